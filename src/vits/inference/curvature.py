"""Where the curvature A of a variational step comes from: Hessians, or gradients by Stein's identity."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vits.potentials import Curvature, Data, Dense, LowRank, Potential
from vits.types import Matrix, Vector


class Points(NamedTuple):
    """The points of one step: theta = mean + B eps. Mirrored: theta = mean -+ B eps too."""

    eps: Float[Array, "directions params"]
    mirrored: bool
    thetas: Float[Array, "points params"]


class Slope(NamedTuple):
    """What a step sees from its points: the mean of grad U, and the curvature."""

    grad: Vector
    curvature: Curvature


class CurvatureRule(NamedTuple):
    """`slope(potential, data, points, D)` gives the mean gradient and the curvature of a step.

    `max_blur` is how large rounding errors in B may be, relative to its narrowest direction, before steps with such a
    curvature no longer move B: a curvature made of gradients has the rounding error of D' B.
    """

    slope: Callable[[Potential, Data, Points, Matrix], Slope]
    max_blur: float = math.inf


def _mean_hessian(potential: Potential, data: Data, points: Points, sqrt_precision: Matrix) -> Slope:
    """A = the mean of hess U over the points."""
    grads, curvature = potential.derivatives(data, points.thetas)
    return Slope(jnp.mean(grads, axis=0), curvature)


def _stein_plain(potential: Potential, data: Data, points: Points, sqrt_precision: Matrix) -> Slope:
    """E[hess U] = E[Sigma^-1 (theta - mu) grad U'] = E[D eps grad U'], averaged over the points."""
    return Slope(*stein_factors(potential, data, points, sqrt_precision))


def _stein(potential: Potential, data: Data, points: Points, sqrt_precision: Matrix) -> Slope:
    """The symmetric part of that, formed only where its rank is too high to save work."""
    grad, plain = stein_factors(potential, data, points, sqrt_precision)
    left, right = plain.left, plain.right
    rank, dim = left.shape
    if 2 * rank < dim:
        return Slope(grad, LowRank(jnp.concatenate([left, right]), 0.5 * jnp.concatenate([right, left])))
    product = left.T @ right
    return Slope(grad, Dense(0.5 * (product + product.T)))


def stein_factors(potential: Potential, data: Data, points: Points, sqrt_precision: Matrix) -> tuple[Vector, LowRank]:
    """The mean gradient, and D eps and grad U as the factors of Stein's curvature."""
    grads = jax.vmap(potential.grad, (None, 0))(data, points.thetas)
    directions = points.eps.shape[0]
    odd = 0.5 * (grads[:directions] - grads[directions:]) if points.mirrored else grads
    # Transposed twice, so that the product with it runs along last axes: along first ones it takes three times as long.
    return jnp.mean(grads, axis=0), LowRank((sqrt_precision @ points.eps.T).T, odd / directions)


exact_curvature = CurvatureRule(_mean_hessian)
"""The mean Hessian over the points."""

stein_plain = CurvatureRule(_stein_plain, max_blur=0.01)
"""The paper's Hessian-free A as it stands: of low rank and not symmetric."""

stein = CurvatureRule(_stein, max_blur=0.01)
"""The symmetric part of the Hessian-free A."""
