"""The interface of a posterior."""

import abc
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key
from typing_extensions import override

from vits.types import Info, Observation, State, Vector


class Moments(NamedTuple):
    """Mean and a square root of the covariance, Sigma = sqrt_cov sqrt_cov'; stacked for a posterior per arm."""

    mean: Float[Array, "*arms params"]
    sqrt_cov: Float[Array, "*arms params params"]


class Marginals(NamedTuple):
    """Mean and variance of each parameter."""

    mean: Vector
    variances: Vector


class Posterior(eqx.Module):
    """A distribution over the parameters of a reward model that learns from observations."""

    is_chain: ClassVar[bool] = False
    """Whether draws are the positions of a Markov chain, which has to `advance` even without an observation."""

    num_matrices: ClassVar[int] = 0
    """About how many matrices of the size of a covariance an update holds at once."""

    def footprint(self, num_params: int) -> float:
        """How many numbers an update holds at once, about."""
        return float(self.num_matrices) * num_params**2

    @abc.abstractmethod
    def init(self, key: Key[Array, ""]) -> State:
        """The state before any observation: the prior."""

    @abc.abstractmethod
    def update(self, key: Key[Array, ""], state: State, observation: Observation) -> tuple[State, Info]:
        """The state after an observation, and its `Info`. A failed update returns the old state."""

    @abc.abstractmethod
    def sample(self, key: Key[Array, ""], state: State) -> Float[Array, "*arms params"]:
        """One draw of the parameters."""

    def moments(self, state: State) -> Moments | None:
        """Mean and square root of the covariance; None where they can only be estimated from draws."""
        return None

    def marginals(self, state: State) -> Marginals | None:
        """Means and variances, without a matrix where the posterior keeps none; None as for `moments`."""
        moments = self.moments(state)
        return None if moments is None else Marginals(moments.mean, jnp.sum(jnp.square(moments.sqrt_cov), axis=-1))

    def advance(self, key: Key[Array, ""], state: State) -> tuple[State, Info]:
        """For a chain, the state after a round without an observation, and its `Info`."""
        raise NotImplementedError(f"{type(self).__name__} is not a chain")


class GaussianPosterior(Posterior):
    """A posterior that is a Gaussian: its states have the fields `mean` and `sqrt_cov`."""

    @override
    def moments(self, state: State) -> Moments:
        return Moments(state.mean, state.sqrt_cov)

    def sample(self, key: Key[Array, ""], state: State) -> Vector:
        """theta = mean + B eps, eps ~ N(0, I)."""
        eps = jax.random.normal(key, state.mean.shape, state.mean.dtype)
        return state.mean + state.sqrt_cov @ eps


def draws_by_noise(posterior: Posterior) -> bool:
    """Whether a draw of the posterior is mean + B eps, with the mean and the square root B in its state."""
    return isinstance(posterior, GaussianPosterior) and type(posterior).sample is GaussianPosterior.sample
