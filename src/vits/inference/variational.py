"""The parts of a step of VITS: the draws eps, the curvature A at these draws, and the rule for the inverse of B.

A scheme of draws returns directions; a mirrored one is used as +eps and -eps, which cancels all odd noise. A curvature
comes from Hessians, or from gradients by Stein's identity. An inverse rule says how D = B^-T follows B.
"""

import abc
import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from vits import linalg, validate
from vits.potentials import Curvature, Data, Dense, LowRank, Potential
from vits.types import Matrix, Scalar, Vector


class Draws(eqx.Module):
    """Directions eps with mean outer product I, and the factor by which they inflate an estimate from gradients."""

    mirrored: eqx.AbstractClassVar[bool]

    @abc.abstractmethod
    def __call__(self, key: Key[Array, ""], dim: int) -> Float[Array, "directions dim"]:
        """The directions of one step."""

    @abc.abstractmethod
    def inflation(self, dim: int) -> float:
        """The factor by which a Hessian-free step must be shorter than one with the true curvature."""


class Plain(Draws):
    """The paper's draws: independent standard normals."""

    num_samples: int
    mirrored: ClassVar[bool] = False

    def __call__(self, key: Key[Array, ""], dim: int) -> Float[Array, "directions dim"]:
        """eps_s ~ N(0, I)."""
        return linalg.normal(key, (self.num_samples, dim))

    def inflation(self, dim: int) -> float:
        """(1 + sqrt(d / S))^2, the edge of the spectrum of a sample covariance."""
        return (1.0 + math.sqrt(dim / self.num_samples)) ** 2


class Antithetic(Plain):
    """Independent standard normals, each with its mirror image: S / 2 pairs."""

    mirrored: ClassVar[bool] = True


class Orthogonal(Draws):
    """Orthogonal directions of length sqrt(d), mirrored: symmetric cubature.

    With as many directions as dimensions these are +-sqrt(d) e_i, need no randomness, and are exact for quadratic
    potentials. With fewer, a random frame is drawn in each step; the estimate is unbiased and its spectrum d / m
    times too large. Its noise moves the covariance by about 1.4 sqrt(h d / m lmax) in relative terms, for all d / m
    (measured at d = 100): the step is shortened until that is a third.
    """

    num_directions: int
    mirrored: ClassVar[bool] = True

    def __call__(self, key: Key[Array, ""], dim: int) -> Float[Array, "directions dim"]:
        """sqrt(d) times the rows of a frame."""
        frame = jnp.eye(dim) if self.num_directions >= dim else linalg.random_frame(key, dim, self.num_directions)
        return math.sqrt(dim) * frame

    def inflation(self, dim: int) -> float:
        """1 if all d directions are used, else d / m against instability and 16 against noise."""
        return 1.0 if self.num_directions >= dim else 16.0 * dim / self.num_directions


def plain(num_samples: int = 1) -> Plain:
    """The paper's independent draws: one for VITS-I and II, twenty for the Hessian-free form."""
    validate.count("num_samples", num_samples)
    return Plain(num_samples)


def antithetic(num_samples: int = 2) -> Antithetic:
    """Pairs (eps, -eps): `num_samples` gradients a step."""
    if num_samples % 2 or num_samples < 2:
        raise ValueError(f"num_samples must be even for antithetic draws, but is {num_samples}")
    return Antithetic(num_samples // 2)


def orthogonal(num_samples: int) -> Orthogonal:
    """Symmetric cubature along orthogonal directions: `num_samples` gradients a step."""
    if num_samples % 2 or num_samples < 2:
        raise ValueError(f"num_samples must be even for orthogonal draws, but is {num_samples}")
    return Orthogonal(num_samples // 2)


class Points(NamedTuple):
    """The points of one step: theta = mean + B eps. Mirrored: theta = mean -+ B eps too."""

    eps: Float[Array, "directions params"]
    mirrored: bool
    thetas: Float[Array, "points params"]


class Slope(NamedTuple):
    """The mean of grad U over the points of a step, and the curvature."""

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
    grad, factors = stein_factors(potential, data, points, sqrt_precision)
    left, right = factors.left, factors.right
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
    # Transposed twice, so that the product runs along last axes, which is three times faster than along first ones.
    return jnp.mean(grads, axis=0), LowRank((sqrt_precision @ points.eps.T).T, odd / directions)


exact_curvature = CurvatureRule(_mean_hessian)
"""The mean Hessian over the points."""

stein_plain = CurvatureRule(_stein_plain, max_blur=0.01)
"""The paper's Hessian-free A: of low rank and not symmetric."""

stein = CurvatureRule(_stein, max_blur=0.01)
"""The symmetric part of the Hessian-free A."""


class Finished(NamedTuple):
    """D at the end of a round, and an upper bound on |D' B - I|_F if one is known."""

    sqrt_precision: Matrix
    error: Scalar | None = None


class InverseRule(NamedTuple):
    """How D follows B^-T: `step(new B, old D, A, h)` within a round, `finish(B, D)` once at its end.

    `reach` limits the change of B in a round, as the sum of h lmax over its steps, so that D stays close to B^-T. With
    `drifts`, a single step can be too long; the first step of a round, which uses the new observation, is the longest.
    """

    step: Callable[[Matrix, Matrix, Curvature, Scalar], Matrix]
    finish: Callable[[Matrix, Matrix], Finished]
    reach: float = math.inf
    drifts: bool = False


def _solved(new_sqrt_cov: Matrix, sqrt_precision: Matrix, curvature: Curvature, step: Scalar) -> Matrix:
    """D = B^-T, by solving."""
    return linalg.inverse(new_sqrt_cov).T


def _first_order(new_sqrt_cov: Matrix, sqrt_precision: Matrix, curvature: Curvature, step: Scalar) -> Matrix:
    """C <- C (I - h (C'C - A)), transposed: D <- D - h (D D' - A)' D."""
    return sqrt_precision - step * curvature.gap_times(sqrt_precision)  # VITS-II, C step


def _unmoved(new_sqrt_cov: Matrix, sqrt_precision: Matrix, curvature: Curvature, step: Scalar) -> Matrix:
    """The D from the beginning of the round."""
    return sqrt_precision


def _as_it_is(sqrt_cov: Matrix, sqrt_precision: Matrix) -> Finished:
    """D needs no repair."""
    return Finished(sqrt_precision)


def _newton_schulz(sqrt_cov: Matrix, sqrt_precision: Matrix) -> Finished:
    """C <- 2 C - C (B C), transposed: D <- 2 D - D B' D, which squares the error I - B' D."""
    B, D = sqrt_cov, sqrt_precision
    product = B.T @ D
    error = jnp.linalg.norm(jnp.eye(product.shape[0], dtype=product.dtype) - product)
    return Finished(2.0 * D - D @ product, jnp.square(error))


exact_inverse = InverseRule(_solved, _as_it_is)
"""VITS-I: one inversion per step."""

first_order_inverse = InverseRule(_first_order, _as_it_is, drifts=True)
"""VITS-II: three products per step."""

frozen_inverse = InverseRule(_unmoved, _newton_schulz, reach=1.0)
"""D is constant within a round and repaired at its end: one product per step.

On a quadratic potential of curvature a, a round of K steps multiplies a small deviation of sqrt(a) B from 1 by
2 (1 - h a)^K - 1. That is -0.26 at h a K = 1 and tends to -1 beyond, where the covariance never settles. Hence `reach`.
"""
