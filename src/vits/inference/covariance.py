"""Gaussians whose precision is a diagonal plus a matrix of low rank, P = diag(d) + W' W.

With no rows in W the covariance is diagonal; with as many rows as parameters it can be any. A product, a solution or a
draw costs O(p L) for L rows, and nothing of size p x p is formed.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from vits import linalg
from vits.potentials.curvature import Curvature, LowRank
from vits.types import Matrix, Scalar, Vector

COVARIANCES = ("full", "low_rank", "diagonal")


class Precision(NamedTuple):
    """P = diag(diagonal) + factor' factor."""

    diagonal: Vector
    factor: Float[Array, "rank params"]

    def times(self, x: Vector) -> Vector:
        """P x."""
        return self.diagonal * x + self.factor.T @ (self.factor @ x)

    def solve(self, x: Vector) -> Vector:
        """P^-1 x, by Woodbury's identity: D^-1 x - D^-1 W' (I + W D^-1 W')^-1 W D^-1 x."""
        scaled, weighted = x / self.diagonal, self.factor / self.diagonal[None, :]
        if not len(self.factor):
            return scaled
        small = jnp.eye(len(self.factor), dtype=x.dtype) + weighted @ self.factor.T
        root = linalg.sqrt_of_inverse(linalg.cholesky(small))
        return scaled - weighted.T @ (root @ (root.T @ (self.factor @ scaled)))

    def draw(self, key: Key[Array, ""]) -> Vector:
        """A draw from N(0, P^-1): P^-1 (D^1/2 eps + W' xi), whose covariance is P^-1 (D + W' W) P^-1."""
        rank, dim = self.factor.shape
        noise = linalg.normal(key, (dim + rank,), self.diagonal.dtype)
        return self.solve(jnp.sqrt(self.diagonal) * noise[:dim] + self.factor.T @ noise[dim:])

    @property
    def variances(self) -> Vector:
        """The diagonal of P^-1."""
        weighted = self.factor / self.diagonal[None, :]
        small = jnp.eye(len(self.factor), dtype=weighted.dtype) + weighted @ self.factor.T
        root = linalg.sqrt_of_inverse(linalg.cholesky(small)) if len(self.factor) else small
        return 1.0 / self.diagonal - jnp.sum(jnp.square(root.T @ weighted), axis=0)

    @property
    def matrix(self) -> Matrix:
        """P, formed."""
        return jnp.diag(self.diagonal) + self.factor.T @ self.factor

    def mixed(self, rho: Scalar, base: Vector, rows: Float[Array, "n params"]) -> "Precision":
        """(1 - rho) P + rho (diag(base) + rows' rows), brought back to as many rows as W has.

        The rows that are kept are the leading directions in units in which the new P has a diagonal of ones, so that
        the units of the parameters do not matter. Their eigenvalues are lessened by the mean of those that are dropped,
        as in probabilistic principal components: the diagonal has that much in every direction. The diagonal of P is
        exact. With no rows this is the diagonal Gaussian that is closest in KL(q || p).
        """
        diagonal = (1.0 - rho) * self.diagonal + rho * base
        all_rows = jnp.concatenate([jnp.sqrt(1.0 - rho) * self.factor, jnp.sqrt(rho) * rows])
        total = jnp.sum(jnp.square(all_rows), axis=0)
        rank = len(self.factor)
        if rank == 0:
            return Precision(diagonal + total, self.factor)
        scaled = all_rows / jnp.sqrt(diagonal + total)[None, :]
        values, vectors = linalg.eigenvectors(scaled @ scaled.T)
        missing = max(all_rows.shape[1] - rank, 1)
        dropped = jnp.sum(jnp.maximum(values[rank:], 0.0)) / missing if all_rows.shape[1] > rank else 0.0
        share = jnp.maximum(values[:rank] - dropped, 0.0) / jnp.where(values[:rank] > 0.0, values[:rank], 1.0)
        kept = jnp.sqrt(share)[:, None] * (vectors[:rank] @ all_rows)
        return Precision(diagonal + jnp.maximum(total - jnp.sum(jnp.square(kept), axis=0), 0.0), kept)


def positive_rows(curvature: Curvature, prior: Vector) -> tuple[Vector, Float[Array, "n params"]]:
    """The curvature of a convex loss and a diagonal prior as diag(base) + rows' rows."""
    if isinstance(curvature, LowRank):
        left, right = curvature.left, curvature.right
        lengths = jnp.sum(jnp.square(right), axis=1)
        weights = jnp.sum(left * right, axis=1) / jnp.where(lengths > 0.0, lengths, 1.0)  # left = weight * right
        return prior, jnp.sqrt(jnp.maximum(weights, 0.0))[:, None] * right
    # Half of the prior stays apart, so that the rest has a Cholesky factor whatever the data are.
    base = 0.5 * prior
    return base, linalg.cholesky(curvature.matrix - jnp.diag(base)).T
