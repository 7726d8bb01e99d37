"""The potential of a linear-Gaussian model, summed up in a matrix and a vector."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key
from typing_extensions import override

from vits import linalg
from vits.potentials.base import Centre, Derivatives, Expectations, Potential, Prior
from vits.potentials.curvature import Dense
from vits.types import Matrix, Observation, Scalar, Spread, Vector


class QuadraticData(NamedTuple):
    """A quadratic potential in full: U(theta) = 1/2 theta' precision theta - linear' theta + const."""

    precision: Matrix
    linear: Vector
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
        precision = self.prior.matrix
        return QuadraticData(precision, precision @ self.prior.mean, jnp.asarray(0))

    def observe(self, data: QuadraticData, observation: Observation, centre: Centre | None = None) -> QuadraticData:
        """V + phi phi' and b + r phi, times eta."""
        tempered = self.inverse_temperature * observation.features
        return QuadraticData(
            precision=data.precision + jnp.outer(tempered, observation.features),
            linear=data.linear + observation.reward * tempered,
            seen=data.seen + 1,
        )

    @override
    def count(self, data: QuadraticData) -> Int[Array, ""]:
        return data.seen

    def grad(self, data: QuadraticData, theta: Vector) -> Vector:
        """eta (V theta - b)."""
        return data.precision @ theta - data.linear

    def derivatives(self, data: QuadraticData, thetas: Float[Array, "points params"]) -> Derivatives:
        """eta (V theta - b) at each point, and eta V, which is the same at all points."""
        return Derivatives(jax.vmap(self.grad, (None, 0))(data, thetas), Dense(data.precision))

    @property
    @override
    def is_convex(self) -> bool:
        return True

    def expectations(self, key: Key[Array, ""], data: QuadraticData, mean: Vector, sqrt_cov: Matrix) -> Expectations:
        """The gradient at the mean and eta V: exact, since U is quadratic."""
        return Expectations(self.grad(data, mean), data.precision)

    def largest_curvature(self, data: QuadraticData, theta: Vector, sqrt_cov: Spread | None = None) -> Scalar:
        """A true upper bound on lmax(eta V)."""
        return linalg.largest_eigenvalue_bound(data.precision)
