"""What every posterior offers."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float, Key

from vits.types import Info, Observation, State


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
