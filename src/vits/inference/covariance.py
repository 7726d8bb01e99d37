"""Gaussians whose precision, or whose covariance, is a diagonal plus a matrix of low rank.

`Precision` is P = diag(d) + W' W, for natural gradients. `Root` is a square root of the covariance
Sigma = diag(s)^2 + V' V, for gradient steps on it. With no rows in W or V both are the diagonal family; with as many
rows as parameters, any Gaussian. Nothing of size p x p is formed: with L rows a draw from N(0, Sigma) costs O(p L),
and one from N(0, P^-1) O(p L^2).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from vits import linalg, validate
from vits.inference.guards import RESOLUTION, epsilon
from vits.models import Glm, RewardModel
from vits.potentials import AutodiffPotential, DataOptions, Potential
from vits.potentials.autodiff import OfRows
from vits.potentials.curvature import Curvature, LowRank, OfObservations
from vits.potentials.jacobian import Jacobian, Stacked
from vits.types import Matrix, Scalar, Vector

COVARIANCES = ("full", "low_rank", "diagonal")

RANK = 20
"""Default number of rows of a low-rank covariance."""

MINIBATCH = 64
"""Default number of observations per step of a network without a full covariance."""


class Precision(NamedTuple):
    """P = diag(diagonal) + factor' factor."""

    diagonal: Vector
    factor: Float[Array, "rank params"]

    def times(self, x: Vector) -> Vector:
        """P x."""
        return self.diagonal * x + self.factor.T @ (self.factor @ x)

    @property
    def solver(self) -> "Solver":
        """P^-1, for several products."""
        if not len(self.factor):
            return Solver(self, jnp.zeros((0, 0), self.diagonal.dtype))
        return Solver(self, linalg.inverse_root(jnp.eye(len(self.factor), dtype=self.diagonal.dtype) + self._gram))

    @property
    def is_drowned(self) -> Bool[Array, ""]:
        """Whether the rounding error of D^-1 is more than a tenth of what Woodbury's identity leaves of it.

        What is left along the leading direction of W is a share 1 / (1 + lmax(W D^-1 W')).
        """
        return ~(epsilon(self.factor) * jnp.linalg.norm(self._gram) <= RESOLUTION)

    @property
    def _gram(self) -> Float[Array, "rank rank"]:
        """W D^-1 W'."""
        return Stacked(self.factor).gram(1.0 / self.diagonal)

    def draw(self, key: Key[Array, ""]) -> Vector:
        """A draw from N(0, P^-1): P^-1 (D^1/2 eps + W' xi), whose covariance is P^-1 (D + W' W) P^-1."""
        rank, dim = self.factor.shape
        noise = linalg.normal(key, (dim + rank,), self.diagonal.dtype)
        return self.solver.times(jnp.sqrt(self.diagonal) * noise[:dim] + noise[dim:] @ self.factor)

    @property
    def variances(self) -> Vector:
        """The diagonal of P^-1."""
        return 1.0 / self.diagonal - jnp.sum(jnp.square(self.solver.root.T @ self.factor), axis=0) / jnp.square(
            self.diagonal
        )

    @property
    def matrix(self) -> Matrix:
        """P, formed."""
        return jnp.diag(self.diagonal) + self.factor.T @ self.factor

    def mixed(self, rho: Scalar, base: Vector, rows: Jacobian) -> "Precision":
        """(1 - rho) P + rho (diag(base) + rows' rows), brought back to as many rows as W has.

        The rows that are kept are the leading directions in units in which the new P has a diagonal of ones, so that
        the units of the parameters do not matter. Their eigenvalues are lessened by the mean of those that are dropped,
        as in probabilistic principal components: the diagonal has that much in every direction. The diagonal of P is
        exact. With no rows this is the diagonal Gaussian that is closest in KL(q || p).
        """
        diagonal = (1.0 - rho) * self.diagonal + rho * base
        (rank, dim), ones = self.factor.shape, jnp.ones(rows.size, base.dtype)
        old, new = Stacked(jnp.sqrt(1.0 - rho) * self.factor), rows.scaled(jnp.sqrt(rho) * ones)
        total = new.squares(ones)
        if rank == 0:
            return Precision(diagonal + total, self.factor)
        total = total + jnp.sum(jnp.square(old.rows), axis=0)
        units = 1.0 / (diagonal + total)
        across = new.times(old.rows * units[None, :])
        gram = jnp.block([[old.gram(units), across], [across.T, new.gram(units)]])
        values, vectors = linalg.eigenvectors(gram)
        dropped = jnp.sum(jnp.maximum(values[rank:], 0.0)) / (dim - rank) if dim > rank else 0.0
        share = jnp.maximum(values[:rank] - dropped, 0.0) / jnp.where(values[:rank] > 0.0, values[:rank], 1.0)
        leading = jnp.sqrt(share)[:, None] * vectors[:rank]
        kept = leading[:, :rank] @ old.rows + new.mixtures(leading[:, rank:])
        return Precision(diagonal + jnp.maximum(total - jnp.sum(jnp.square(kept), axis=0), 0.0), kept)


class Solver(NamedTuple):
    """P^-1 = D^-1 - D^-1 W' S S' W D^-1 with S = root, S S' = (I + W D^-1 W')^-1: Woodbury's identity."""

    precision: Precision
    root: Float[Array, "rank rank"]

    def times(self, x: Vector) -> Vector:
        """P^-1 x."""
        (diagonal, factor), root = self.precision, self.root
        scaled = x / diagonal
        return scaled - ((root @ (root.T @ (factor @ scaled))) @ factor) / diagonal


def positive_rows(curvature: Curvature, prior: Vector) -> tuple[Vector, Jacobian]:
    """The curvature of a convex loss and a diagonal prior as diag(base) + rows' rows."""
    if isinstance(curvature, OfObservations):
        return prior, curvature.positive
    if isinstance(curvature, LowRank):
        left, right = curvature.left, curvature.right
        lengths = jnp.sum(jnp.square(right), axis=1)
        weights = jnp.sum(left * right, axis=1) / jnp.where(lengths > 0.0, lengths, 1.0)  # left = weight * right
        return prior, Stacked(jnp.sqrt(jnp.maximum(weights, 0.0))[:, None] * right)
    # Half of the prior is kept separate, so that the rest has a Cholesky factor for all data.
    base = 0.5 * prior
    return base, Stacked(linalg.cholesky(curvature.matrix - jnp.diag(base)).T)


class Root(NamedTuple):
    """A square root of the covariance: a diagonal and a few columns, B = [diag(deviations), factor'].

    theta = mean + B e with e = (eps, xi) in R^(p + L) is mean + deviations * eps + factor' xi, so that
    Sigma = B B' = diag(deviations)^2 + factor' factor. A matrix of this pattern, such as the gradient of an objective
    with respect to B, has the same two fields.
    """

    deviations: Vector
    factor: Float[Array, "rank params"]

    def times(self, e: Float[Array, "*n columns"]) -> Float[Array, "*n params"]:
        """B e, for one vector or for each row."""
        dim = self.deviations.size
        spread = jnp.broadcast_to(self.deviations, (*e.shape[:-1], dim))
        return e[..., :dim] * spread + e[..., dim:] @ self.factor

    def precision_times(self) -> "Root":
        """Sigma^-1 B on the pattern, by Woodbury's identity; for a square B it would be B^-T."""
        s, V = self
        if not len(V):
            return Root(1.0 / s, V)
        weighted = V / jnp.square(s)[None, :]
        root = linalg.inverse_root(jnp.eye(len(V), dtype=s.dtype) + weighted @ V.T)
        half = root.T @ weighted
        # (Sigma^-1)_ii is positive, but the difference of two rounded numbers need not be.
        diagonal = jnp.maximum(1.0 / jnp.square(s) - jnp.sum(jnp.square(half), axis=0), 0.0)
        return Root(diagonal * s, root @ half)

    @property
    def variances(self) -> Vector:
        """The diagonal of Sigma."""
        return jnp.square(self.deviations) + jnp.sum(jnp.square(self.factor), axis=0)

    @property
    def matrix(self) -> Float[Array, "params columns"]:
        """B, formed."""
        return jnp.concatenate([jnp.diag(self.deviations), self.factor.T], axis=1)


def footprint(rank: int, potential: Potential, num_params: int, *, vectors: float = 20.0) -> float:
    """How many numbers an update holds at once, about: `vectors` and the curvature's share for each parameter."""
    # Generalised linear models form their curvature.
    curvature = potential.numbers_per_parameter if isinstance(potential, AutodiffPotential) else 3.0 * num_params
    return (curvature + 6.0 * rank + vectors) * num_params


def rows_of(covariance: str, rank: int | None, model: RewardModel) -> int | None:
    """The number of rows of a covariance in addition to its diagonal; None for a full one."""
    validate.choice("covariance", covariance, dict.fromkeys(COVARIANCES))
    if covariance != "low_rank":
        if rank is not None:
            raise ValueError(f"rank must be left out where the covariance is {covariance}, but is {rank}")
        return 0 if covariance == "diagonal" else None
    rank = RANK if rank is None else rank
    validate.count("rank", rank)
    if rank > model.num_params:
        raise ValueError(f"rank must be at most the {model.num_params} parameters of the model, but is {rank}")
    return rank


def sampled(model: RewardModel, data: DataOptions) -> DataOptions:
    """The data options of a covariance that is not full: networks use a minibatch in each step."""
    if not isinstance(model, Glm) and data.get("minibatch") is None:
        return {**data, "minibatch": MINIBATCH}
    return data


def check_structure(covariance: str, potential: Potential) -> None:
    """Refuse options that a diagonal plus a few rows does not support."""
    if potential.prior.precision.ndim == 2:
        raise ValueError(f"covariance must be 'full' where the prior's covariance is a matrix, but is {covariance!r}")
    if not potential.sees_again:
        raise ValueError(f"covariance must be 'full' where observations are folded, but is {covariance!r}")
    if isinstance(potential, AutodiffPotential) and not isinstance(potential.curvature, OfRows):
        raise ValueError(
            f"covariance {covariance!r} needs the curvature 'gauss_newton', which is never negative and needs no "
            "matrix: leave out curvature, or give custom(mean, loss=...) instead of nll"
        )
