"""What every posterior offers, and the guard that keeps a failed update from leaving a trace."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from vits.types import Info, Observation, Scalar, State, all_finite, choose, overflowed, report


class Posterior(eqx.Module):
    """A distribution over the parameters of a reward model that learns from observations."""

    @abc.abstractmethod
    def init(self, key: Key[Array, ""]) -> State:
        """The state before any observation: the prior."""

    @abc.abstractmethod
    def update(self, key: Key[Array, ""], state: State, observation: Observation) -> tuple[State, Info]:
        """The state after one observation more, and what happened; a failed update returns the old state."""

    @abc.abstractmethod
    def sample(self, key: Key[Array, ""], state: State) -> Float[Array, " params"]:
        """One draw of the parameters."""


class Moments(NamedTuple):
    """Mean and a square root of the covariance, Sigma = sqrt_cov sqrt_cov'."""

    mean: Float[Array, " params"]
    sqrt_cov: Float[Array, "params params"]


class GaussianPosterior(Posterior):
    """A posterior that is a Gaussian: its states have the fields `mean` and `sqrt_cov`."""

    def moments(self, state: State) -> Moments:
        """Mean and square root of the covariance."""
        return Moments(state.mean, state.sqrt_cov)

    def sample(self, key: Key[Array, ""], state: State) -> Float[Array, " params"]:
        """theta = mean + B eps, eps ~ N(0, I)."""
        eps = jax.random.normal(key, state.mean.shape, state.mean.dtype)
        return state.mean + state.sqrt_cov @ eps


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
