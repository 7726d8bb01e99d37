"""Damped steps that use curvature, for Newton and natural-gradient posteriors; and Newton steps without a matrix.

A full step solves a quadratic model of the objective. Where the model is wrong (a saturated likelihood much stronger
than the prior, a curvature that is not positive) the step is damped until the objective itself agrees.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from vits import linalg
from vits.inference.guards import choose
from vits.potentials import Data, Potential
from vits.types import Matrix, Scalar, Vector

MAX_HALVINGS = 10
"""Halvings of a step after which it is not taken at all."""

NEGLIGIBLE = 1e-3
"""Differences of the objective, in nats, that are too small to matter or to distinguish from rounding."""

MOST_RAISED = 4.0**19
"""The largest multiple of the floor that is added to a matrix."""

HALF = 0.5
"""The share of the prior precision that a Hessian must exceed where U is not convex: the variance in any direction then
stays below twice the prior's."""

PRODUCTS = 20
"""Products with the Hessian for one direction, at most."""

ACCURACY = 0.1
"""A direction is accepted when its residual is at most this fraction of the gradient."""


class Line(NamedTuple):
    """The end of a trial step: where it led, and the objective's slope along it at its start and at its end."""

    end: PyTree[Any]
    slope_at_start: Scalar
    slope_at_end: Scalar


class Descent(NamedTuple):
    """The point that damped steps have reached, and their number; `size` is the size of the next trial.

    `smallest_step` is below the size of a full one if some trial was not taken, and 0 if the descent ended there.
    """

    point: Any
    size: Scalar
    num_steps: Int[Array, ""]
    smallest_step: Scalar


def descend(
    start: Any,
    trial: Callable[[Any, Scalar], Line],
    *,
    size: Scalar,
    max_steps: Int[Array, ""] | int,
    tolerance: Scalar | float,
) -> Descent:
    """One step from `start`, and more, `max_steps` at most, until the `distance` of the point is within the tolerance.

    Each is the first of `size`, `size`/2, `size`/4, ... whose end is finite and has not left a minimum far behind,

        slope at end <= 1/2 |slope at start|.

    If there is none, the descent is over. On a quadratic this is Armijo's condition with constant 1/4 (the approximate
    Wolfe condition of Hager and Zhang, 2005); being about slopes, it needs no values and survives single precision.
    """
    shortest = size * 0.5**MAX_HALVINGS

    def attempt(descent: Descent) -> Descent:
        line = trial(descent.point, descent.size)
        accepted = line.slope_at_end <= 0.5 * jnp.abs(line.slope_at_start) + NEGLIGIBLE  # false for a NaN
        taken = jnp.where(accepted, descent.size, jnp.where(descent.size > shortest, jnp.inf, 0.0))
        return Descent(
            point=choose(accepted, line.end, descent.point),
            size=jnp.where(accepted, size, 0.5 * descent.size),
            num_steps=descent.num_steps + accepted.astype(descent.num_steps.dtype),
            smallest_step=jnp.minimum(descent.smallest_step, taken),
        )

    def unfinished(descent: Descent) -> Bool[Array, ""]:
        is_near = (descent.num_steps > 0) & (descent.point.distance <= tolerance)
        return ~is_near & (descent.num_steps < max_steps) & (descent.size >= shortest)

    # The first trial is outside the loop: it is usually the only one, and then no loop state is needed.
    return jax.lax.while_loop(unfinished, attempt, attempt(Descent(start, size, jnp.asarray(0), size)))


class Raised(NamedTuple):
    """A positive definite matrix, its Cholesky factor, and whether it had to be raised to become one."""

    matrix: Float[Array, "d d"]
    factor: Float[Array, "d d"]
    was_raised: Bool[Array, ""]


def raised(matrix: Float[Array, "d d"], floor: Float[Array, "d d"], *, share: float = 0.0) -> Raised:
    """A + tau F with the first tau of 0, 1, 4, 16, ... that keeps it above `share` F."""

    def factor_at(tau: Scalar, share: float) -> Float[Array, "d d"]:
        return linalg.cholesky(matrix + (tau - share) * floor)

    def unfinished(carry: tuple[Scalar, Float[Array, "d d"]]) -> Bool[Array, ""]:
        tau, factor = carry
        return ~jnp.all(jnp.isfinite(factor)) & (tau < MOST_RAISED)

    def raise_more(carry: tuple[Scalar, Float[Array, "d d"]]) -> tuple[Scalar, Float[Array, "d d"]]:
        tau = jnp.maximum(4.0 * carry[0], 1.0)
        return tau, factor_at(tau, share)

    zero = jnp.zeros((), matrix.dtype)
    tau, factor = jax.lax.while_loop(unfinished, raise_more, (zero, factor_at(zero, share)))
    return Raised(matrix + tau * floor, factor_at(tau, 0.0) if share else factor, tau > 0.0)


def share_of(potential: Potential) -> float:
    """The share of the prior precision that a Hessian must exceed: 0 where U is convex, which needs no check."""
    return 0.0 if potential.is_convex else HALF


class Slopes(NamedTuple):
    """Gradient and Hessian of U at a point; and a square root of its inverse, where that takes no decomposition."""

    grad: Vector
    hessian: Matrix
    sqrt_of_inverse: Matrix | None = None


def slopes(potential: Potential, data: Data, theta: Vector) -> Slopes:
    """Gradient and Hessian of a potential."""
    grads, curvature = potential.derivatives(data, theta[None])
    return Slopes(grads[0], curvature.matrix, curvature.sqrt_of_inverse)


class Minimum(NamedTuple):
    """The current or the last point of Newton's method.

    With H the Hessian at theta, B B' = H^-1, and `distance` = |B' grad U| is Newton's estimate of the remaining
    distance, in standard deviations of N(theta, H^-1).
    """

    theta: Vector
    grad: Vector
    sqrt_cov: Matrix
    distance: Scalar
    was_raised: Bool[Array, ""]


def known(theta: Vector, grad: Vector, sqrt_cov: Matrix) -> Minimum:
    """A point where B B' = H^-1 is known."""
    return Minimum(theta, grad, sqrt_cov, jnp.linalg.norm(sqrt_cov.T @ grad), jnp.asarray(False))


def minimum(
    slopes: Callable[[Vector], Slopes],
    start: Vector | Minimum,
    *,
    floor: Matrix,
    share: float,
    tolerance: float,
    max_steps: Int[Array, ""] | int,
    size: Scalar | float = 1.0,
) -> Descent:
    """Newton's method from `start`: theta <- theta - s H^-1 grad, until the distance is within the tolerance.

    H is raised above `share` of `floor`, and s is found by backtracking from `size`. The start is a point, or a
    `Minimum` if its derivatives are known.
    """

    def look(theta: Vector) -> Minimum:
        grad, hessian, sqrt_cov = slopes(theta)
        if sqrt_cov is not None:
            return known(theta, grad, sqrt_cov)
        H = raised(hessian, floor, share=share)
        sqrt_cov = linalg.sqrt_of_inverse(H.factor)
        return Minimum(theta, grad, sqrt_cov, jnp.linalg.norm(sqrt_cov.T @ grad), H.was_raised)

    def trial(at: Minimum, s: Scalar) -> Line:
        direction = -at.sqrt_cov @ (at.sqrt_cov.T @ at.grad)
        end = look(at.theta + s * direction)
        end = end._replace(was_raised=at.was_raised | end.was_raised)
        return Line(end, at.grad @ direction, end.grad @ direction)

    first = start if isinstance(start, Minimum) else look(start)
    size = jnp.asarray(size, first.theta.dtype)
    return descend(first, trial, size=size, max_steps=max_steps, tolerance=tolerance)


class FreeMinimum(NamedTuple):
    """A point: theta, grad U, Newton's direction -H^-1 grad U, and its length sqrt(grad' H^-1 grad).

    `was_raised` says that H was not positive along some direction of the search, which then stopped there.
    """

    theta: Vector
    grad: Vector
    direction: Vector
    distance: Scalar
    was_raised: Bool[Array, ""]


class _Solve(NamedTuple):
    """Conjugate gradients for H x = b: x, the residual, the search direction, and whether curvature was negative."""

    x: Vector
    residual: Vector
    search: Vector
    iteration: Int[Array, ""]
    met_negative: Bool[Array, ""]


def solved(product: Callable[[Vector], Vector], b: Vector) -> tuple[Vector, Bool[Array, ""]]:
    """x with H x close to b; and whether H was not positive, where x ends (Steihaug, 1983). Then b'x is positive."""
    tiny = np.finfo(b.dtype).tiny

    def step(at: _Solve) -> _Solve:
        image = product(at.search)
        bend, squared = at.search @ image, at.residual @ at.residual
        is_positive = bend > 0.0
        # If the first curvature is negative, the gradient is the only direction; it keeps its own scale.
        length = jnp.where(is_positive, squared / jnp.maximum(bend, tiny), squared / jnp.maximum(-bend, tiny))
        taken = is_positive | (at.iteration == 0)
        x = jnp.where(taken, at.x + length * at.search, at.x)
        residual = jnp.where(is_positive, at.residual - length * image, at.residual)
        search = residual + (residual @ residual) / jnp.maximum(squared, tiny) * at.search
        return _Solve(x, residual, search, at.iteration + 1, at.met_negative | ~is_positive)

    def unfinished(at: _Solve) -> Bool[Array, ""]:
        is_rough = jnp.linalg.norm(at.residual) > ACCURACY * jnp.linalg.norm(b)
        return is_rough & ~at.met_negative & (at.iteration < PRODUCTS)

    start = _Solve(jnp.zeros_like(b), b, b, jnp.asarray(0), jnp.asarray(False))
    end = jax.lax.while_loop(unfinished, step, start)
    return end.x, end.met_negative


def minimum_free(
    grad: Callable[[Vector], Vector],
    start: Vector,
    *,
    tolerance: float,
    max_steps: Int[Array, ""] | int,
    size: Scalar | float = 1.0,
) -> Descent:
    """The same without a matrix: directions come from conjugate gradients, by products with the Hessian.

    A step costs at most `PRODUCTS` products, of about two gradients each.
    """

    def look(theta: Vector) -> FreeMinimum:
        g = grad(theta)
        away, met_negative = solved(lambda v: jax.jvp(grad, (theta,), (v,))[1], g)
        return FreeMinimum(theta, g, -away, jnp.sqrt(jnp.maximum(g @ away, 0.0)), met_negative)

    def trial(at: FreeMinimum, s: Scalar) -> Line:
        end = look(at.theta + s * at.direction)
        end = end._replace(was_raised=at.was_raised | end.was_raised)
        return Line(end, at.grad @ at.direction, end.grad @ at.direction)

    size = jnp.asarray(size, start.dtype)
    return descend(look(start), trial, size=size, max_steps=max_steps, tolerance=tolerance)
