"""Second derivatives as linear operators, so that a matrix is formed only where that saves work.

A symmetric operator that does not change, such as the precision of a prior, is an array: a number for a multiple of
the identity, a vector for a diagonal matrix, or a matrix. The curvature of a step is `Dense` or `LowRank`.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from typing_extensions import override

from vits import linalg
from vits.potentials.jacobian import Jacobian
from vits.types import Matrix, Scalar, Vector

Operator = Float[Array, ""] | Vector | Matrix
"""A number, a diagonal, or a matrix."""


def times(operator: Operator, x: Float[Array, "params *columns"]) -> Float[Array, "params *columns"]:
    """A x, for a vector x or the columns of a matrix."""
    if operator.ndim == 2:
        return operator @ x
    return (operator[:, None] if operator.ndim == 1 and x.ndim == 2 else operator) * x


def as_matrix(operator: Operator, dim: int) -> Matrix:
    """A itself."""
    if operator.ndim == 2:
        return operator
    return jnp.diag(operator) if operator.ndim == 1 else operator * jnp.eye(dim, dtype=operator.dtype)


def largest(operator: Operator) -> Scalar:
    """An upper bound on |A|_2, exact for a number or a diagonal."""
    return linalg.largest_eigenvalue_bound(operator) if operator.ndim == 2 else jnp.max(jnp.abs(operator))


class Curvature(eqx.Module):
    """A p x p matrix A, symmetric up to the noise of an estimate, given by its products.

    The products here form A; a curvature that is not stored has cheaper ones.
    """

    @property
    @abc.abstractmethod
    def matrix(self) -> Matrix:
        """A, formed."""

    @property
    def diagonal(self) -> Vector:
        """A_ii."""
        return jnp.diagonal(self.matrix)

    def times(self, x: Float[Array, "params columns"]) -> Float[Array, "params columns"]:
        """A x."""
        return self.matrix @ x

    def gap_times(self, sqrt_precision: Matrix) -> Matrix:
        """(D D' - A)' D, which is zero when the precision D D' is the curvature."""
        return (sqrt_precision @ sqrt_precision.T - self.matrix) @ sqrt_precision

    def largest(self) -> Scalar:
        """An upper bound on |A|_2."""
        return linalg.largest_eigenvalue_bound(self.matrix)

    @property
    def sqrt_of_inverse(self) -> Matrix | None:
        """B with B B' = A^-1, where it takes no decomposition; else None."""
        return None


class Dense(Curvature):
    """A symmetric matrix that is stored."""

    entries: Matrix

    @property
    @override
    def matrix(self) -> Matrix:
        return self.entries


class LowRank(Curvature):
    """A = base + left' right, never formed; without a base, A = left' right."""

    left: Float[Array, "rank params"]
    right: Float[Array, "rank params"]
    base: Operator | None = None

    @property
    @override
    def diagonal(self) -> Vector:
        product = jnp.sum(self.left * self.right, axis=0)
        if self.base is None:
            return product
        return product + (jnp.diagonal(self.base) if self.base.ndim == 2 else self.base)

    @override
    def times(self, x: Float[Array, "params columns"]) -> Float[Array, "params columns"]:
        product = self.left.T @ (self.right @ x)
        return product if self.base is None else times(self.base, x) + product

    @override
    def gap_times(self, sqrt_precision: Matrix) -> Matrix:
        D = sqrt_precision
        gap = D @ D.T @ D - self.right.T @ (self.left @ D)
        return gap if self.base is None else gap - times(self.base, D)

    @override
    def largest(self) -> Scalar:
        """The largest entry of the base plus |M|_2 <= tr((M M')^k)^(1/2k) for M = left' right and k = 8.

        The trace is that of (R R' L L')^k, products of small matrices.
        """
        bound = _bound((self.right @ self.right.T) @ (self.left @ self.left.T))
        return bound if self.base is None else largest(self.base) + bound

    @property
    @override
    def matrix(self) -> Matrix:
        product = self.left.T @ self.right
        return product if self.base is None else as_matrix(self.base, product.shape[0]) + product


class OfObservations(Curvature):
    """A = base + J' diag(weights) J with a row of J for each of few observations, never formed."""

    jacobian: Jacobian
    weights: Float[Array, " n"]
    base: Float[Array, ""] | Vector

    @property
    def positive(self) -> Jacobian:
        """R with R' R = J' diag(weights) J, where no weight is negative; negative ones count as zero."""
        return self.jacobian.scaled(jnp.sqrt(jnp.maximum(self.weights, 0.0)))

    @property
    @override
    def diagonal(self) -> Vector:
        return self.base + self.jacobian.squares(self.weights)

    @override
    def times(self, x: Float[Array, "params columns"]) -> Float[Array, "params columns"]:
        product = self.jacobian.mixtures(self.jacobian.times(x.T) * self.weights[None, :]).T
        return times(self.base, x) + product

    @override
    def largest(self) -> Scalar:
        """The largest entry of the base plus a bound on |M|_2 for M = J' diag(|weights|) J, as that of `LowRank`."""
        weighted = self.jacobian.gram() * jnp.abs(self.weights)[None, :]
        return largest(self.base) + _bound(weighted @ weighted)

    @property
    @override
    def matrix(self) -> Matrix:
        rows = self.jacobian.mixtures(jnp.eye(self.weights.size, dtype=self.weights.dtype))
        return as_matrix(self.base, rows.shape[1]) + (rows.T * self.weights[None, :]) @ rows


def _bound(square: Float[Array, "rank rank"]) -> Scalar:
    """tr(S^8)^(1/16), an upper bound on |M|_2 where S has the eigenvalues of M M' that are not zero."""
    scale = jnp.maximum(jnp.linalg.norm(square), np.finfo(square.dtype).tiny)
    power = jax.lax.fori_loop(0, 3, lambda _, power: power @ power, square / scale)
    return jnp.sqrt(scale * jnp.maximum(jnp.trace(power), 0.0) ** 0.125)


class Updated(Curvature):
    """A = base + rows' diag(weights) rows, for few rows and a base with known B B' = base^-1, B = base_root."""

    base: Matrix
    base_root: Matrix
    rows: Float[Array, "rank params"]
    weights: Float[Array, " rank"]

    @property
    @override
    def matrix(self) -> Matrix:
        return self.base + (self.rows.T * self.weights[None, :]) @ self.rows

    @property
    @override
    def diagonal(self) -> Vector:
        return jnp.diagonal(self.base) + self.weights @ jnp.square(self.rows)

    @property
    @override
    def sqrt_of_inverse(self) -> Matrix | None:
        return linalg.updated_root(self.base_root, self.rows, self.weights)
