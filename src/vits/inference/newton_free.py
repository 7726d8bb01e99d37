"""Newton's method without a matrix: directions by conjugate gradients, from products with the Hessian."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from vits.inference.newton import Descent, Line, descend
from vits.types import Scalar, Vector

PRODUCTS = 20
"""Products with the Hessian for one direction, at most."""

ACCURACY = 0.1
"""A direction is accepted when its residual is at most this fraction of the gradient."""


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
    """Newton's method from `start` until its estimate of the distance is within the tolerance.

    It costs at most `PRODUCTS` products with the Hessian, of about two gradients each, for every step.
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
