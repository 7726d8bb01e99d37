"""The few shapes that everything shares."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from vits import validate

Scalar = Float[Array, ""]
State = Any
"""What a posterior or a policy remembers between rounds: each family names its own fields."""


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
    """The observation in the working precision, or an error that names what does not fit.

    Shapes are known before a program runs, so that this costs nothing inside one; without it a feature vector of
    length 1 would be stretched to all features.
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
    """What the world holds in one round: every arm's features, expected reward and (counterfactual) reward."""

    arms: Float[Array, "arms dim"]
    means: Float[Array, " arms"]
    rewards: Float[Array, " arms"]


class Info(NamedTuple):
    """What an update reports about itself, as values, because nothing can be raised inside a compiled loop.

    `stiffness` is step size times the largest curvature: from 1 on the covariance is no longer right, from 2 on
    the iteration diverges. `rejected` means that the state was left as it was.
    """

    is_finite: Bool[Array, ""]
    rejected: Bool[Array, ""]
    step: Scalar
    step_capped: Bool[Array, ""]
    stiffness: Scalar
    inverse_error: Scalar
    refreshed: Bool[Array, ""]


def report(
    *,
    is_finite: Bool[Array, ""],
    rejected: Bool[Array, ""] | None = None,
    step: Scalar | float = 0.0,
    step_capped: Bool[Array, ""] | bool = False,
    stiffness: Scalar | float = 0.0,
    inverse_error: Scalar | float = 0.0,
    refreshed: Bool[Array, ""] | bool = False,
) -> Info:
    """An `Info` with harmless values for whatever an algorithm has nothing to say about."""
    return Info(
        is_finite=is_finite,
        rejected=~is_finite if rejected is None else rejected,
        step=jnp.asarray(step, float),
        step_capped=jnp.asarray(step_capped),
        stiffness=jnp.asarray(stiffness, float),
        inverse_error=jnp.asarray(inverse_error, float),
        refreshed=jnp.asarray(refreshed),
    )


def all_finite(tree: PyTree[Any]) -> Bool[Array, ""]:
    """Whether every number in every floating-point leaf is finite."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)]
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


def as_key(key: Key[Array, ""] | Array | int) -> Key[Array, ""]:
    """A typed random key from a typed key, an old-style uint32 pair or a plain integer seed."""
    if isinstance(key, int):
        return jax.random.key(key)
    if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(key)
    return key
