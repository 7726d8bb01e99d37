"""Steps that use curvature and cannot run away: what Newton and natural-gradient posteriors share.

A full step solves a quadratic model of the objective. Where the model is wrong (a saturated likelihood much stronger
than the prior, a curvature that is not positive) the step is damped until the objective itself agrees.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from vits.types import Scalar, choose

MAX_HALVINGS = 10
"""After so many halvings a step is not taken at all."""

NEGLIGIBLE = 1e-3
"""Differences of the objective, in nats, that are too small to be told from rounding or to matter."""


class Line(NamedTuple):
    """The end of a trial step: where it led, and the objective's slope along it at its start and at its end."""

    end: PyTree[Any]
    slope_at_start: Scalar
    slope_at_end: Scalar


class Damped(NamedTuple):
    """Where a damped step led, the fraction of the way that was taken, and whether it had to be cut."""

    end: PyTree[Any]
    size: Scalar
    cut: Bool[Array, ""]


def backtracked(start: PyTree[Any], size: Scalar, trial: Callable[[Scalar], Line]) -> Damped:
    """The first of `size`, `size`/2, `size`/4, ... whose end is finite and has not left a minimum far behind,

        slope at end <= 1/2 |slope at start|,

    or `start` if there is none. On a quadratic this is Armijo's condition with constant 1/4 (the approximate Wolfe
    condition of Hager and Zhang, 2005); being about slopes, it needs no values and survives single precision.
    """

    def enough(line: Line) -> Bool[Array, ""]:
        return line.slope_at_end <= 0.5 * jnp.abs(line.slope_at_start) + NEGLIGIBLE  # false for a NaN

    def unfinished(carry: tuple[Array, Scalar, PyTree[Any], Bool[Array, ""]]) -> Bool[Array, ""]:
        halvings, _, _, accepted = carry
        return ~accepted & (halvings <= MAX_HALVINGS)

    def attempt(
        carry: tuple[Array, Scalar, PyTree[Any], Bool[Array, ""]],
    ) -> tuple[Array, Scalar, PyTree[Any], Bool[Array, ""]]:
        halvings, size, _, _ = carry
        line = trial(size)
        accepted = enough(line)
        return halvings + 1, jnp.where(accepted, size, 0.5 * size), line.end, accepted

    first = (jnp.asarray(0), size, start, jnp.asarray(False))
    trials, last, end, accepted = jax.lax.while_loop(unfinished, attempt, first)
    return Damped(choose(accepted, end, start), jnp.where(accepted, last, 0.0), (trials > 1) | ~accepted)


class Raised(NamedTuple):
    """A positive definite matrix, and whether it had to be raised to become one."""

    matrix: Float[Array, "d d"]
    was_raised: Bool[Array, ""]


def raised(matrix: Float[Array, "d d"], floor: Float[Array, "d d"], max_trials: int = 20) -> Raised:
    """A + tau F with the first tau of 0, 1, 4, 16, ... that keeps it above F / 2.

    With the prior precision as F, no direction is believed to be twice as uncertain as it was under the prior.
    """

    def is_above(tau: Scalar) -> Bool[Array, ""]:
        return jnp.all(jnp.isfinite(jnp.linalg.cholesky(matrix + (tau - 0.5) * floor)))

    def unfinished(carry: tuple[Array, Scalar, Bool[Array, ""]]) -> Bool[Array, ""]:
        trials, _, above = carry
        return ~above & (trials < max_trials)

    def raise_more(carry: tuple[Array, Scalar, Bool[Array, ""]]) -> tuple[Array, Scalar, Bool[Array, ""]]:
        trials, tau, _ = carry
        tau = jnp.maximum(4.0 * tau, 1.0)
        return trials + 1, tau, is_above(tau)

    zero = jnp.zeros((), matrix.dtype)
    trials, tau, _ = jax.lax.while_loop(unfinished, raise_more, (jnp.asarray(0), zero, is_above(zero)))
    return Raised(matrix + tau * floor, trials > 0)


def sqrt_of_inverse(precision: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """B = L^-T with precision = L L', so that B B' is the covariance."""
    identity = jnp.eye(precision.shape[0], dtype=precision.dtype)
    return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(precision), identity, lower=True).T


def sample_step(count: Int[Array, ""], batch_size: int | None) -> Scalar:
    """The largest step that keeps the noise of a sample down: 1 if it is all the data, else 1 / (1 + count / m).

    The gradient of m out of t observations has noise of t / m times the curvature's covariance. Newton steps of size s
    turn this into a jitter of s / (2 - s) t / m posterior variances: with this step, at most half of one.
    """
    if batch_size is None:
        return jnp.ones(())
    return jnp.where(count > batch_size, 1.0 / (1.0 + count / batch_size), 1.0)


class Minimum(NamedTuple):
    """Where Newton's method ended, and what happened on the way.

    With H the Hessian at theta, B B' = H^-1 and `distance` = |B' grad U| is Newton's estimate of the way that is
    left, in standard deviations of N(theta, H^-1).
    """

    theta: Float[Array, " params"]
    grad: Float[Array, " params"]
    sqrt_cov: Float[Array, "params params"]
    distance: Scalar
    num_steps: Int[Array, ""]
    smallest_step: Scalar
    damped: Bool[Array, ""]


def minimum(
    grad: Callable[[Float[Array, " params"]], Float[Array, " params"]],
    hessian: Callable[[Float[Array, " params"]], Float[Array, "params params"]],
    start: Float[Array, " params"],
    *,
    floor: Float[Array, "params params"],
    tolerance: float,
    max_steps: Int[Array, ""] | int,
    size: Scalar | float = 1.0,
) -> Minimum:
    """Newton's method from `start`: theta <- theta - s H^-1 grad, until the distance is within the tolerance.

    H is raised above `floor` / 2, and s found by backtracking from `size`.
    """

    def look(
        theta: Float[Array, " params"], slope: Float[Array, " params"]
    ) -> tuple[Float[Array, "params params"], Scalar, Bool[Array, ""]]:
        H = raised(hessian(theta), floor)
        sqrt_cov = sqrt_of_inverse(H.matrix)
        return sqrt_cov, jnp.linalg.norm(sqrt_cov.T @ slope), H.was_raised

    def step(at: Minimum) -> Minimum:
        direction = -at.sqrt_cov @ (at.sqrt_cov.T @ at.grad)

        def trial(s: Scalar) -> Line:
            theta = at.theta + s * direction
            slope = grad(theta)
            return Line((theta, slope), at.grad @ direction, slope @ direction)

        taken = backtracked((at.theta, at.grad), longest, trial)
        theta, slope = taken.end
        sqrt_cov, distance, was_raised = look(theta, slope)
        smallest_step = jnp.minimum(at.smallest_step, taken.size)
        damped = at.damped | taken.cut | was_raised
        return Minimum(theta, slope, sqrt_cov, distance, at.num_steps + 1, smallest_step, damped)

    def unfinished(at: Minimum) -> Bool[Array, ""]:
        return ~(at.distance <= tolerance) & (at.num_steps < max_steps)

    slope, longest = grad(start), jnp.asarray(size, start.dtype)
    sqrt_cov, distance, was_raised = look(start, slope)
    first = Minimum(start, slope, sqrt_cov, distance, jnp.asarray(0), longest, was_raised)
    return jax.lax.while_loop(unfinished, step, first)
