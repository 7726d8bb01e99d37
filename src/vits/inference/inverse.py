"""How D, the transposed inverse of the square root B, follows B from step to step."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from vits import linalg
from vits.potentials import Curvature
from vits.types import Matrix, Scalar


class Finished(NamedTuple):
    """D at the end of a round, and an upper bound on |D' B - I|_F if one is known."""

    sqrt_precision: Matrix
    error: Scalar | None = None


class InverseRule(NamedTuple):
    """How D follows B^-T: `step(new B, old D, A, h)` within a round, `finish(B, D)` once at its end.

    `reach` is how far B may go in a round, as the sum of h lmax over its steps, before D has lost it. A D that
    `drifts` can be lost in a single step; the first of a round, which meets the new observation, is the longest.
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
    """The D that the round began with."""
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
"""VITS-I: one inversion a step."""

first_order_inverse = InverseRule(_first_order, _as_it_is, drifts=True)
"""VITS-II: three products a step."""

frozen_inverse = InverseRule(_unmoved, _newton_schulz, reach=1.0)
"""D stays through the round and is repaired at its end: one product a step.

On a quadratic potential of curvature a, a round of K steps multiplies a small deviation of sqrt(a) B from 1 by
2 (1 - h a)^K - 1. That is -0.26 at h a K = 1 and goes to -1, a covariance that swings forever, beyond: hence `reach`.
"""
