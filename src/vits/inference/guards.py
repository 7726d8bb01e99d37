"""Health checks of an update, and the guard that keeps a failed one from leaving a trace."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from vits.history import Undoable
from vits.types import Info, Observation, Scalar, State, all_finite, report

EXPLOSION = 100.0
"""How many times longer the later steps of a round may be than its first and the spread of its draws together."""


def exploded(first: Scalar, last: Scalar, spread: Scalar) -> Bool[Array, ""]:
    """Whether the moves of a round grew instead of shrinking: the steps were far too long for the curvature they met.

    Stable steps shorten from one to the next, up to the noise of the draws; those beyond 2 / lmax grow by a factor.
    """
    return ~(last <= EXPLOSION * (first + spread))


RESOLUTION = 0.1
"""What rounding a mean to the working precision may move it by, in standard deviations."""


def epsilon(like: Float[Array, "..."]) -> float:
    """The relative spacing of numbers in the precision of an array."""
    return float(np.finfo(like.dtype).eps)


def is_unresolved(mean: Float[Array, "*n params"], sqrt_cov: Float[Array, "*n params params"]) -> Bool[Array, ""]:
    """Whether a mean is so large beside its deviations that the working precision cannot tell where it is."""
    deviations = jnp.linalg.norm(sqrt_cov, axis=-1)
    return jnp.any(~(epsilon(mean) * jnp.abs(mean) <= RESOLUTION * deviations))


def is_drowned(sqrt_cov: Float[Array, "params params"], curvature: Scalar) -> Bool[Array, ""]:
    """Whether B is so wide that its rounding is as large as the deviation which such a curvature leaves.

    A square root cannot hold both then: one feature of 1e20 would freeze what is to be learnt from all others.
    """
    return ~(epsilon(sqrt_cov) * jnp.linalg.norm(sqrt_cov) * jnp.sqrt(curvature) <= RESOLUTION)


def guarded(
    observation: Observation, old: State, new: State, *, parameters: PyTree[Any], **diagnostics: Any
) -> tuple[State, Info]:
    """The new state if the observation and the new `parameters` are finite and the data fit, else the old one.

    Features whose squares overflow are not finite enough: a saturated likelihood would take them in without a trace.
    """
    is_finite = all_finite((observation.features @ observation.features, observation.reward, parameters))
    rejected = ~is_finite | overflowed(new) | diagnostics.pop("exploded", False)
    return choose(~rejected, new, old), report(is_finite=is_finite, rejected=rejected, **diagnostics)


def _is_undoable(node: Any) -> bool:
    return isinstance(node, Undoable)


def overflowed(state: State) -> Bool[Array, ""]:
    """Whether the last change to any part of a state found no room."""
    parts = [node.overflowed for node in jax.tree.leaves(state, is_leaf=_is_undoable) if _is_undoable(node)]
    return jnp.any(jnp.asarray([jnp.any(part) for part in parts], bool))


def choose(use_new: Bool[Array, ""], new: State, old: State) -> State:
    """`new` where the flag is set, else `old`, leaf by leaf; what is `Undoable` is undone in place."""

    def pick(a: Any, b: Any) -> Any:
        return a.undo_unless(use_new, b) if _is_undoable(a) else jnp.where(use_new, a, b)

    return jax.tree.map(pick, new, old, is_leaf=_is_undoable)
