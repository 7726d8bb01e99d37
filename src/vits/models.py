"""Reward models: what an arm's features say about its reward, given the parameters."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from vits import checks
from vits.types import Scalar


class RewardModel(eqx.Module):
    """The expected reward of an arm and the negative log likelihood of what it paid."""

    dim: eqx.AbstractVar[int]
    num_params: eqx.AbstractVar[int]

    @abc.abstractmethod
    def mean(self, theta: Float[Array, " params"], features: Float[Array, " dim"]) -> Scalar:
        """Expected reward of an arm."""

    @abc.abstractmethod
    def nll(self, theta: Float[Array, " params"], features: Float[Array, " dim"], reward: Scalar) -> Scalar:
        """Negative log likelihood of a reward, up to a constant."""

    def score(self, theta: Float[Array, " params"], features: Float[Array, " dim"]) -> Scalar:
        """What arms are ranked by: any increasing function of `mean`, chosen so that it does not saturate."""
        return self.mean(theta, features)


class Linear(RewardModel):
    """Linear mean, Gaussian noise: f = phi' theta, nll = 1/2 (f - r)^2."""

    dim: int
    num_params: int

    def mean(self, theta: Float[Array, " params"], features: Float[Array, " dim"]) -> Scalar:
        """phi' theta."""
        return features @ theta

    def nll(self, theta: Float[Array, " params"], features: Float[Array, " dim"], reward: Scalar) -> Scalar:
        """1/2 (phi' theta - r)^2."""
        return 0.5 * jnp.square(features @ theta - reward)


def linear(dim: int) -> Linear:
    """Linear-Gaussian rewards: `r = phi' theta + noise`.

    Args:
        dim: number of features of an arm, and of parameters.

    Returns:
        The model. Its posterior is Gaussian, so every algorithm can be checked against it.

    Example:
        >>> import vits, jax.numpy as jnp
        >>> float(vits.models.linear(2).mean(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0])))
        11.0
    """
    checks.count("dim", dim)
    return Linear(dim=dim, num_params=dim)
