"""Observations that have left a history, kept as a quadratic form together with the prior.

A potential that folds adds `Folded` to its sums over the history wherever it would add the prior.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from vits import linalg
from vits.potentials.base import Centre, Prior
from vits.potentials.curvature import times
from vits.types import Matrix, Vector


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


Past = Prior | Folded
"""What the sums over a history start from."""


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
