"""Generalised linear models: the likelihood depends on f = phi' theta."""

import abc
import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vits import validate
from vits.models.base import OutputModel
from vits.types import Scalar, Vector

QUADRATURE_POINTS = 32
"""Gauss-Hermite nodes: enough where l'' is smooth on the scale of the deviation of f."""

# sigmoid(x) = sum_k p_k Phi(s_k x) to 2e-9 everywhere: Monahan and Stefanski, "Normal scale mixture approximations to
# F*(z) and computation of the logistic-normal integral" (1992), table for eight components.
PROBIT_WEIGHTS = (
    0.003246343272134,
    0.051517477033972,
    0.195077912673858,
    0.315569823632818,
    0.274149576158423,
    0.131076880695470,
    0.027912418727972,
    0.001449567805354,
)
PROBIT_SLOPES = (
    1.365340806296348,
    1.059523971016916,
    0.830791313765644,
    0.650732166639391,
    0.508135425366489,
    0.396313345166341,
    0.308904252267995,
    0.238212616409306,
)


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

    def output(self, theta: Vector, features: Float[Array, " dim"]) -> Scalar:
        """phi' theta."""
        return features @ theta


class Linear(Glm):
    """Linear mean, Gaussian noise: nll = 1/2 (f - r)^2."""

    max_d2loss: ClassVar[float | None] = 1.0

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
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)

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
        """sigmoid(f) sigmoid(-f) = e / (1 + e)^2 with e = exp(-|f|), which does not underflow early."""
        e = jnp.exp(-jnp.abs(f))
        return e / jnp.square(1.0 + e)

    def expected_derivatives(
        self, mean: Float[Array, " n"], deviation: Float[Array, " n"], reward: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """sigmoid is a mixture of Phi(s f) to 2e-9, and E Phi(s f) = Phi(q mean), 1 / q^2 = 1 / s^2 + deviation^2."""
        weights, slopes = jnp.asarray(PROBIT_WEIGHTS, float), jnp.asarray(PROBIT_SLOPES, float)
        q = 1.0 / jnp.sqrt(1.0 / jnp.square(slopes)[None, :] + jnp.square(deviation)[:, None])
        scaled = q * mean[:, None]
        return jax.scipy.stats.norm.cdf(scaled) @ weights - reward, (q * jax.scipy.stats.norm.pdf(scaled)) @ weights


class Poisson(Glm):
    """Counts with log mean f: nll = exp(f) - r f."""

    max_d2loss: ClassVar[float | None] = None
    reward_range: ClassVar[tuple[float, float]] = (0.0, math.inf)

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
    dim = validate.count("dim", dim)
    return Linear(dim=dim, num_params=dim)


def logistic(dim: int) -> Logistic:
    """Rewards 0 or 1: `P(r = 1) = sigmoid(phi' theta)`. Numbers between are accepted.

    Args:
        dim: number of features of an arm, and of parameters.

    Returns:
        The model. Arms are ranked by the logit, which does not saturate.

    Example:
        >>> import vits, jax.numpy as jnp
        >>> float(vits.models.logistic(2).mean(jnp.array([1.0, 2.0]), jnp.array([2.0, -1.0])))
        0.5
    """
    dim = validate.count("dim", dim)
    return Logistic(dim=dim, num_params=dim)


def poisson(dim: int) -> Poisson:
    """Rewards that are counts: `E r = exp(phi' theta)`.

    The curvature grows with the mean, so a prior that allows very large means leads to very short safe steps. Scale the
    features, or choose a prior, so that the standard deviation of phi' theta under the prior is at most about 2.

    Args:
        dim: number of features of an arm, and of parameters.

    Returns:
        The model. Arms are ranked by the logarithm of the mean.

    Example:
        >>> import vits, jax.numpy as jnp
        >>> float(vits.models.poisson(2).mean(jnp.array([1.0, 2.0]), jnp.array([2.0, -1.0])))
        1.0
    """
    dim = validate.count("dim", dim)
    return Poisson(dim=dim, num_params=dim)
