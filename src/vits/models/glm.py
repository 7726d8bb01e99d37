"""Generalised linear models: the likelihood depends on f = phi' theta."""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vits import checks
from vits.models.base import OutputModel
from vits.types import Scalar

QUADRATURE_POINTS = 32
"""Gauss-Hermite nodes: E l'' of a logistic model is right to 1e-5 for a deviation of f up to 2, to 1e-2 up to 5."""


class Glm(OutputModel):
    """A loss of f = phi' theta, known with two derivatives; `max_d2loss` bounds the second, where a bound exists."""

    dim: int
    num_params: int
    max_d2loss: eqx.AbstractClassVar[float | None]

    @abc.abstractmethod
    def dloss(self, f: Float[Array, "*n"], reward: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Its derivative in f."""

    @abc.abstractmethod
    def d2loss(self, f: Float[Array, "*n"], reward: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Its second derivative in f."""

    def expected_derivatives(
        self, mean: Float[Array, " n"], deviation: Float[Array, " n"], reward: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """E l'(f, r) and E l''(f, r) for f ~ N(mean, deviation^2), by Gauss-Hermite quadrature."""
        nodes, weights = (jnp.asarray(x, float) for x in np.polynomial.hermite_e.hermegauss(QUADRATURE_POINTS))
        weights = weights / jnp.sum(weights)
        f = mean[:, None] + deviation[:, None] * nodes[None, :]
        r = jnp.broadcast_to(reward[:, None], f.shape)
        return self.dloss(f, r) @ weights, self.d2loss(f, r) @ weights

    def output(self, theta: Float[Array, " params"], features: Float[Array, " dim"]) -> Scalar:
        """phi' theta."""
        return features @ theta


class Linear(Glm):
    """Linear mean, Gaussian noise: nll = 1/2 (f - r)^2."""

    max_d2loss: ClassVar[float | None] = 1.0

    def inverse_link(self, f: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """The identity."""
        return f

    def loss(self, f: Float[Array, "*n"], reward: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """1/2 (f - r)^2."""
        return 0.5 * jnp.square(f - reward)

    def dloss(self, f: Float[Array, "*n"], reward: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """f - r."""
        return f - reward

    def d2loss(self, f: Float[Array, "*n"], reward: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """1."""
        return jnp.ones_like(f)


class Logistic(Glm):
    """Bernoulli rewards with logit f: nll = softplus(f) - r f."""

    max_d2loss: ClassVar[float | None] = 0.25

    def inverse_link(self, f: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """sigmoid(f)."""
        return jax.nn.sigmoid(f)

    def loss(self, f: Float[Array, "*n"], reward: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """softplus(f) - r f."""
        return jax.nn.softplus(f) - reward * f

    def dloss(self, f: Float[Array, "*n"], reward: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """sigmoid(f) - r."""
        return jax.nn.sigmoid(f) - reward

    def d2loss(self, f: Float[Array, "*n"], reward: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """sigmoid(f) sigmoid(-f), which is exact where 1 - sigmoid(f) would round to 0."""
        return jax.nn.sigmoid(f) * jax.nn.sigmoid(-f)


class Poisson(Glm):
    """Counts with log mean f: nll = exp(f) - r f."""

    max_d2loss: ClassVar[float | None] = None

    def inverse_link(self, f: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """exp(f)."""
        return jnp.exp(f)

    def loss(self, f: Float[Array, "*n"], reward: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """exp(f) - r f."""
        return jnp.exp(f) - reward * f

    def dloss(self, f: Float[Array, "*n"], reward: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """exp(f) - r."""
        return jnp.exp(f) - reward

    def d2loss(self, f: Float[Array, "*n"], reward: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """exp(f)."""
        return jnp.exp(f)

    def expected_derivatives(
        self, mean: Float[Array, " n"], deviation: Float[Array, " n"], reward: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """E exp(f) = exp(mean + deviation^2 / 2), in closed form."""
        expected = jnp.exp(mean + 0.5 * jnp.square(deviation))
        return expected - reward, expected


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


def logistic(dim: int) -> Logistic:
    """Rewards 0 or 1: `P(r = 1) = sigmoid(phi' theta)`.

    Args:
        dim: number of features of an arm, and of parameters.

    Returns:
        The model. Arms are ranked by the logit, which does not saturate.

    Example:
        >>> import vits, jax.numpy as jnp
        >>> float(vits.models.logistic(2).mean(jnp.array([1.0, 2.0]), jnp.array([2.0, -1.0])))
        0.5
    """
    checks.count("dim", dim)
    return Logistic(dim=dim, num_params=dim)


def poisson(dim: int) -> Poisson:
    """Rewards that are counts: `E r = exp(phi' theta)`.

    Args:
        dim: number of features of an arm, and of parameters.

    Returns:
        The model. Arms are ranked by the logarithm of the mean.

    Example:
        >>> import vits, jax.numpy as jnp
        >>> float(vits.models.poisson(2).mean(jnp.array([1.0, 2.0]), jnp.array([2.0, -1.0])))
        1.0
    """
    checks.count("dim", dim)
    return Poisson(dim=dim, num_params=dim)
