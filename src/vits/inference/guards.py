"""Health checks of an update, and the guard that returns the old state when an update fails.

`choose` and `overflowed` know `vits.history.Undoable`, the parts of a state that undo their last change in place.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from vits.history import Undoable
from vits.types import Info, Matrix, Observation, Reason, Scalar, State, all_finite, first_reason, new_info

EXPLOSION = 100.0
"""The later steps of a round may be this many times longer than its first step and the spread of its draws together."""

RESOLUTION = 0.1
"""The largest move of a mean by rounding to the working precision, in standard deviations."""

Failures = Mapping[Reason, Bool[Array, ""]]
"""Health checks of an algorithm: whether each reason to reject an update applies."""


def exploded(first: Scalar, last: Scalar, spread: Scalar) -> Bool[Array, ""]:
    """Whether the moves of a round grew instead of shrinking: the steps were far too long for the curvature they met.

    Stable steps shorten from one to the next, up to the noise of the draws; those beyond 2 / lmax grow by a factor.
    """
    return ~(last <= EXPLOSION * (first + spread))


def epsilon(like: Float[Array, "..."]) -> float:
    """The relative spacing of numbers in the precision of an array."""
    return float(np.finfo(like.dtype).eps)


def is_unresolved(mean: Float[Array, "*n params"], sqrt_cov: Float[Array, "*n params params"]) -> Bool[Array, ""]:
    """Whether a mean is too large, compared with its deviations, to be represented in the working precision."""
    deviations = jnp.linalg.norm(sqrt_cov, axis=-1)
    return jnp.any(~(epsilon(mean) * jnp.abs(mean) <= RESOLUTION * deviations))


def is_drowned(sqrt_cov: Matrix, curvature: Scalar) -> Bool[Array, ""]:
    """Whether the rounding error of a wide B is as large as the deviation that remains after such a curvature.

    A square root cannot represent both: one feature of 1e20 would stop learning from all others.
    """
    return ~(epsilon(sqrt_cov) * jnp.linalg.norm(sqrt_cov) * jnp.sqrt(curvature) <= RESOLUTION)


def guarded(
    observation: Observation,
    old: State,
    new: State,
    *,
    parameters: PyTree[Any],
    failures: Failures = MappingProxyType({}),
    **diagnostics: Any,
) -> tuple[State, Info]:
    """The new state if the update is healthy, else the old one; and the `Info` of the update.

    Args:
        observation: the observation of the update.
        old: the state before.
        new: the state after.
        parameters: what must be finite in the new state.
        failures: the algorithm's own health checks.
        diagnostics: the other fields of `Info`.

    Features whose squares overflow are rejected too: a saturated likelihood would accept them without any effect.
    """
    square, reward = observation.features @ observation.features, observation.reward
    is_finite = all_finite((square, reward, parameters))
    reason = first_reason(
        (Reason.OBSERVATION, ~all_finite((observation.features, reward))),
        (Reason.FEATURES, ~jnp.isfinite(square)),
        (Reason.FULL, overflowed(new)),
        (Reason.PARAMETERS, ~is_finite),
        *failures.items(),
    )
    return choose(reason == 0, new, old), new_info(is_finite=is_finite, reason=reason, **diagnostics)


def overflowed(state: State) -> Bool[Array, ""]:
    """Whether there was no room for the last change to some part of a state."""
    parts = [node.overflowed for node in jax.tree.leaves(state, is_leaf=_is_undoable) if _is_undoable(node)]
    return jnp.any(jnp.asarray([jnp.any(part) for part in parts], bool))


def choose(use_new: Bool[Array, ""], new: State, old: State) -> State:
    """`new` if the flag is set, else `old`, leaf by leaf; `Undoable` parts are undone in place."""

    def pick(a: Any, b: Any) -> Any:
        return a.undo_unless(use_new, b) if _is_undoable(a) else jnp.where(use_new, a, b)

    return jax.tree.map(pick, new, old, is_leaf=_is_undoable)


def _is_undoable(node: Any) -> bool:
    return isinstance(node, Undoable)
