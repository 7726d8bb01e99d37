"""Moving what an agent knows into a larger state: more observations, or more arms."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Shaped

from vits.history.paged import PagedHistory
from vits.policies import Policy
from vits.types import State


def moved(old: State, new: State) -> State:
    """The state `new`, of a policy with more room, with everything that `old` holds in its place.

    What grew is longer along some axes and fresh beyond what there was before.
    """
    parts, structure = jax.tree.flatten(new, is_leaf=_is_paged)
    before = jax.tree.leaves(old, is_leaf=_is_paged)
    return jax.tree.unflatten(structure, [_moved(a, b) for a, b in zip(before, parts, strict=True)])


def without_arm(state: State, slot: int, fresh: State) -> State:
    """The state of all arms with that of one as in `fresh`, and its observations gone."""

    def forget(node: Any, new: Any) -> Any:
        return node.without(slot) if _is_paged(node) else node.at[slot].set(new[slot])

    return jax.tree.map(forget, state, fresh, is_leaf=_is_paged)


def grows(small: Policy, large: Policy) -> bool:
    """Whether the state of a policy is another one where more observations are to fit: its capacity is part of it."""
    key = jax.random.key(0)
    structures: list[Any] = [jax.tree.structure(jax.eval_shape(policy.init, key)) for policy in (small, large)]
    return bool(structures[0] != structures[1])


def _is_paged(node: Any) -> bool:
    return isinstance(node, PagedHistory)


def _moved(old: Any, new: Any) -> Any:
    if not _is_paged(new):
        return _in_corner(old, new)
    moved = jax.tree.unflatten(
        jax.tree.structure(new),
        [_in_corner(a, b) for a, b in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)],
    )
    # Pages that nobody owns start beyond every row that may come now, not beyond those that could come before.
    used = int(old.used)
    return replace(moved, start=new.start.at[:used].set(old.start[:used]))


def _in_corner(old: Shaped[jax.Array, "..."], new: Shaped[jax.Array, "..."]) -> Shaped[jax.Array, "..."]:
    if old.shape == new.shape:
        return old
    array = np.array(new)
    array[tuple(slice(length) for length in old.shape)] = np.asarray(old)
    return jnp.asarray(array)
