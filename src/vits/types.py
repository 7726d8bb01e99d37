"""Types that all modules share: observations, rounds, and the `Info` of an update."""

import enum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from vits import validate

Scalar = Float[Array, ""]
Vector = Float[Array, " params"]
"""One number for each parameter of a model."""

Matrix = Float[Array, "params params"]
"""One number for each pair of parameters."""

Spread = Float[Array, "params columns"] | Vector
"""B with B B' the covariance, or the standard deviation of each parameter."""

State = Any
"""The state of a posterior or a policy between rounds; each algorithm has its own fields."""


class Observation(NamedTuple):
    """One played arm and the reward it gave.

    `action` is the index of the arm, for posteriors kept per arm; `arms` are the features of all arms that were
    on offer, for algorithms that look at what they did not play: all rows, or the first `offered` of them.
    """

    features: Float[Array, " dim"]
    reward: Scalar
    action: Int[Array, ""] | int = 0
    arms: Float[Array, "arms dim"] | None = None
    offered: Int[Array, ""] | None = None


def conformed(observation: Observation, dim: int) -> Observation:
    """The observation in the working precision, or an error that names the wrong field.

    Shapes are known before a program runs, so this costs nothing inside one. Without it a feature vector of length 1
    would be broadcast to all features.
    """
    arms = observation.arms
    return observation._replace(
        features=as_real("the features of an observation", observation.features, (dim,)),
        reward=as_real("the reward of an observation", observation.reward, ()),
        arms=None if arms is None else as_real("the arms of an observation", arms, ("arms", dim)),
    )


def as_real(name: str, value: Any, shape: tuple[int | str, ...]) -> Float[Array, "..."]:
    """An array of real numbers in the working precision, or an error if its type or its shape does not fit."""
    validate.real(name, value)
    validate.shape(name, value, shape)
    return jnp.asarray(value).astype(float)


class Round(NamedTuple):
    """One round of an environment: features, expected rewards and (counterfactual) rewards of all arms."""

    arms: Float[Array, "arms dim"]
    means: Float[Array, " arms"]
    rewards: Float[Array, " arms"]


class Reason(enum.IntEnum):
    """Why an update was rejected: a small integer inside programs, a sentence of `REASONS` outside.

    If several apply, the first in this order is reported, which is the first cause: a bad observation, then a problem
    with the old state, then a failure of the steps, then a problem with the new state.
    """

    FINE = 0
    NO_SUCH_ARM = 1
    OBSERVATION = 2
    FEATURES = 3
    FULL = 4
    DROWNED = 5
    PARAMETERS = 6
    DIVERGED = 7
    UNRESOLVED = 8
    INVERSE = 9


REASONS: dict[int, str] = {
    Reason.FINE: "the update was accepted",
    Reason.NO_SUCH_ARM: "the arm that was played does not exist",
    Reason.OBSERVATION: "the features or the reward are not finite",
    Reason.FEATURES: "the features are so large that their squares overflow",
    Reason.FULL: "the buffer for observations is full",
    Reason.DROWNED: "the features are too large for a posterior this wide in the working precision",
    Reason.PARAMETERS: "the posterior would not have stayed finite",
    Reason.DIVERGED: "the steps grew instead of shrinking, so they are too long for the curvature of the data",
    Reason.UNRESOLVED: "the posterior mean would be too large for its deviations in the working precision",
    Reason.INVERSE: "the inverse of the covariance's square root was lost and could not be recomputed",
}
"""One sentence for each reason."""


class Info(NamedTuple):
    """Diagnostics of an update, as values, because nothing can be raised inside a compiled loop.

    `reason` says why the update was rejected and the state left as it was; 0 if it was not. `stiffness` is step size
    times the largest curvature: from 1 on the covariance is no longer right, from 2 on the iteration diverges.
    """

    is_finite: Bool[Array, ""]
    reason: Int[Array, ""]
    step: Scalar
    step_capped: Bool[Array, ""]
    stiffness: Scalar
    inverse_error: Scalar
    refreshed: Bool[Array, ""]

    @property
    def rejected(self) -> Bool[Array, "*rounds"] | Bool[np.ndarray, "*rounds"]:
        """Whether the state was left as it was."""
        return self.reason > 0


def new_info(
    *,
    is_finite: Bool[Array, ""],
    reason: Int[Array, ""] | None = None,
    step: Scalar | float = 0.0,
    step_capped: Bool[Array, ""] | bool = False,
    stiffness: Scalar | float = 0.0,
    inverse_error: Scalar | float = 0.0,
    refreshed: Bool[Array, ""] | bool = False,
) -> Info:
    """An `Info` with neutral values for the fields that an algorithm does not set.

    Without a reason, an update that is not finite counts as one with a bad observation.
    """
    return Info(
        is_finite=is_finite,
        reason=first_reason((Reason.OBSERVATION, ~is_finite)) if reason is None else reason,
        step=jnp.asarray(step, float),
        step_capped=jnp.asarray(step_capped),
        stiffness=jnp.asarray(stiffness, float),
        inverse_error=jnp.asarray(inverse_error, float),
        refreshed=jnp.asarray(refreshed),
    )


def first_reason(*causes: tuple[Reason, Bool[Array, ""] | bool]) -> Int[Array, ""]:
    """The first reason that applies, in the order of `Reason`; 0 if none does."""
    reason = jnp.zeros((), int)
    for cause, applies in sorted(causes, key=lambda pair: -pair[0]):
        reason = jnp.where(applies, int(cause), reason)
    return reason


def reason_counts(reasons: Int[Any, "..."]) -> dict[str, int]:
    """The number of rejected updates by the sentence of their reason; reasons that never applied are left out."""
    codes, counts = np.unique(np.asarray(reasons), return_counts=True)
    return {REASONS[int(code)]: int(count) for code, count in zip(codes, counts, strict=True) if code > 0}


def all_finite(tree: PyTree[Any]) -> Bool[Array, ""]:
    """Whether every number in every floating-point leaf is finite."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))
