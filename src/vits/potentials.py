"""U_t, the negative log posterior of the data seen so far, up to a constant.

    U_t(theta) = eta * sum_s nll(theta; phi_s, r_s) + 1/2 (theta - m0)' P0 (theta - m0)

A posterior sees a potential only through its gradient and its Hessian.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vits import checks, linalg, models
from vits.types import Observation, Scalar

Data = Any
"""What a potential keeps of the observations: each form names its own fields."""


class Prior(NamedTuple):
    """The Gaussian prior N(mean, precision^-1)."""

    mean: Float[Array, " params"]
    precision: Float[Array, "params params"]


class Potential(eqx.Module):
    """A sum of losses over the data seen, plus the prior."""

    inverse_temperature: eqx.AbstractVar[Scalar]
    prior: eqx.AbstractVar[Prior]

    @abc.abstractmethod
    def init(self) -> Data:
        """No observations yet."""

    @abc.abstractmethod
    def observe(self, data: Data, observation: Observation) -> Data:
        """One observation more."""

    @abc.abstractmethod
    def count(self, data: Data) -> Int[Array, ""]:
        """How many observations were seen."""

    @abc.abstractmethod
    def grad(self, data: Data, theta: Float[Array, " params"]) -> Float[Array, " params"]:
        """Gradient of U_t at theta."""

    @abc.abstractmethod
    def hessian(self, data: Data, theta: Float[Array, " params"]) -> Float[Array, "params params"]:
        """Hessian of U_t at theta."""

    @abc.abstractmethod
    def largest_curvature(self, data: Data, theta: Float[Array, " params"]) -> Scalar:
        """An upper estimate of the Hessian's largest eigenvalue near theta, for choosing steps."""


class QuadraticData(NamedTuple):
    """A quadratic potential in full: U(theta) = 1/2 theta' precision theta - linear' theta + const."""

    precision: Float[Array, "params params"]
    linear: Float[Array, " params"]
    seen: Int[Array, ""]


class Quadratic(Potential):
    """The potential of a linear-Gaussian model: with V = lambda I + sum phi phi' and b = sum r phi,

        U(theta) = eta/2 (theta' V theta - 2 theta' b) + const,

    kept as precision = eta V and linear = eta b, so that a round costs the same at every t.
    """

    inverse_temperature: Scalar
    prior: Prior

    def init(self) -> QuadraticData:
        """The prior alone."""
        mean, precision = self.prior
        return QuadraticData(precision, precision @ mean, jnp.asarray(0))

    def observe(self, data: QuadraticData, observation: Observation) -> QuadraticData:
        """V + phi phi' and b + r phi, times eta."""
        tempered = self.inverse_temperature * observation.features
        return QuadraticData(
            precision=data.precision + jnp.outer(tempered, observation.features),
            linear=data.linear + observation.reward * tempered,
            seen=data.seen + 1,
        )

    def count(self, data: QuadraticData) -> Int[Array, ""]:
        """How many observations were seen."""
        return data.seen

    def grad(self, data: QuadraticData, theta: Float[Array, " params"]) -> Float[Array, " params"]:
        """eta (V theta - b)."""
        return data.precision @ theta - data.linear

    def hessian(self, data: QuadraticData, theta: Float[Array, " params"]) -> Float[Array, "params params"]:
        """eta V, whatever theta."""
        return data.precision

    def largest_curvature(self, data: QuadraticData, theta: Float[Array, " params"]) -> Scalar:
        """A true upper bound on lmax(eta V)."""
        return linalg.largest_eigenvalue_bound(data.precision)


def ridge_prior(num_params: int, *, inverse_temperature: Scalar | float, prior_precision: Scalar | float) -> Prior:
    """The paper's prior N(0, I / (lambda eta))."""
    checks.positive("inverse_temperature", inverse_temperature)
    checks.positive("prior_precision", prior_precision)
    precision = jnp.asarray(inverse_temperature * prior_precision, float)
    return Prior(jnp.zeros(num_params), precision * jnp.eye(num_params))


def potential(
    model: models.RewardModel, *, inverse_temperature: Scalar | float, prior_precision: Scalar | float
) -> Potential:
    """The potential of a model, in the cheapest form the model allows."""
    prior = ridge_prior(model.num_params, inverse_temperature=inverse_temperature, prior_precision=prior_precision)
    if isinstance(model, models.Linear):
        return Quadratic(jnp.asarray(inverse_temperature, float), prior)
    raise ValueError(f"no potential is known for the model {type(model).__name__}; known: Linear")
