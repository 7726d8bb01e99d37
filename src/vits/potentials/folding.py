"""Potentials that sum over a history; and observations that have left it, kept as a quadratic form with the prior."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from typing_extensions import override

from vits import linalg
from vits.history import Buffer
from vits.models import RewardModel
from vits.potentials.base import Centre, Potential, Prior
from vits.potentials.curvature import times
from vits.types import Matrix, Scalar, Vector


class Folded(NamedTuple):
    """The prior and the observations that have left the history: 1/2 theta' precision theta - linear' theta.

    `root` is B with B B' = precision^-1, where it is kept.
    """

    precision: Matrix
    linear: Vector
    root: Matrix | None = None

    @property
    def matrix(self) -> Matrix:
        """The precision, as `Prior.matrix`."""
        return self.precision

    def grad(self, theta: Vector) -> Vector:
        """P theta - b."""
        return self.precision @ theta - self.linear


class HistoryPotential(Potential):
    """Sums over a history; if it `folds`, an observation that leaves the window of the buffer stays as an expansion.

    Its data have the fields `history` and `folded`.
    """

    model: RewardModel
    inverse_temperature: Scalar
    prior: Prior
    buffer: Buffer
    batch_size: int | None
    folds: bool

    @override
    def count(self, data: Any) -> Int[Array, ""]:
        return data.history.count if data.folded is None else data.history.seen

    @property
    @override
    def sees_again(self) -> bool:
        return not self.folds

    @override
    def inflation(self, data: Any) -> Scalar:
        return data.history.inflation

    def past(self, data: Any) -> Prior | Folded:
        """What the sums over the history start from: the prior, with what was folded into it."""
        return self.prior if data.folded is None else data.folded


def nothing(prior: Prior, *, keeps_root: bool = False) -> Folded:
    """The prior alone."""
    precision = prior.matrix
    root = linalg.inverse_root(precision) if keeps_root else None
    return Folded(precision, times(prior.precision, prior.mean), root)


def required(centre: Centre | None) -> Centre:
    """The centre, which a potential that folds cannot do without."""
    if centre is None:
        raise ValueError("centre must be given to a potential that folds observations, but is None")
    return centre


def positive_part(matrix: Float[Array, "p p"]) -> Float[Array, "p p"]:
    """The nearest symmetric matrix without negative eigenvalues."""
    values, vectors = jnp.linalg.eigh(0.5 * (matrix + matrix.T))
    return (vectors * jnp.maximum(values, 0.0)[None, :]) @ vectors.T
