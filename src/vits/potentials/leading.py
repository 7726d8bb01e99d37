"""The largest eigenvalue of a sum of outer products, followed from observation to observation without a matrix."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vits.types import Scalar

DIRECTIONS = 4
"""Leading directions that are followed."""

MARGIN = 2.0
"""Safety factor: the eigenvalue may be this many times larger than the estimate. If the old leading direction is known,
the longest image of it and of the new row is at least half of the new eigenvalue."""

PRODUCTS = 8
"""Products with the matrix in a power iteration from a random start."""


class Leading(NamedTuple):
    """Orthonormal rows near the leading eigenvectors of H, and an upper estimate of its largest eigenvalue."""

    directions: Float[Array, "directions dim"]
    limit: Scalar


def unknown(dim: int, limit: Scalar) -> Leading:
    """Arbitrary directions, before the first observation."""
    rows = jax.random.normal(jax.random.key(0), (DIRECTIONS, dim))
    return Leading(_orthonormal(rows), limit)


def followed(
    leading: Leading,
    row: Float[Array, " dim"],
    images_of: Callable[[Float[Array, "rows dim"]], tuple[Float[Array, "rows dim"], Scalar]],
) -> Leading:
    """One step of a block power iteration, after `row` was added to the sum.

    Args:
        leading: what is known of the sum before.
        row: the new row phi.
        images_of: the products of H with some rows, and a true upper bound on its largest eigenvalue (its trace, say).

    Returns:
        The directions after the step, and the smaller of `MARGIN` times the longest image and the true bound.
    """
    length = jnp.linalg.norm(row)
    new = row / jnp.where(length > 0.0, length, 1.0)
    images, bound = images_of(jnp.concatenate([leading.directions, new[None]]))
    lengths = jnp.linalg.norm(images, axis=1)
    longest_first = images[jnp.argsort(-lengths)]
    return Leading(_orthonormal(longest_first)[:DIRECTIONS], jnp.minimum(MARGIN * jnp.max(lengths), bound))


def power_iteration(
    product: Callable[[Float[Array, " dim"]], Float[Array, " dim"]], like: Float[Array, " dim"]
) -> Scalar:
    """An estimate of the largest |eigenvalue| of a symmetric matrix, from `PRODUCTS` products and a random start.

    With K products the estimate is at least about d^(-1/2K) times the eigenvalue: two thirds for d = 861.
    """

    def step(_: Array, carry: tuple[Float[Array, " dim"], Scalar]) -> tuple[Float[Array, " dim"], Scalar]:
        image = product(carry[0] / jnp.linalg.norm(carry[0]))
        return image, jnp.linalg.norm(image)

    start = jax.random.normal(jax.random.key(0), like.shape, like.dtype)
    return jax.lax.fori_loop(0, PRODUCTS, step, (start, jnp.zeros((), like.dtype)))[1]


def _orthonormal(rows: Float[Array, "rows dim"]) -> Float[Array, "rows dim"]:
    """Gram-Schmidt orthonormalisation, row by row; a dependent row becomes zero."""
    done: list[Float[Array, " dim"]] = []
    for row in rows:
        rest = row / jnp.maximum(jnp.linalg.norm(row), np.finfo(row.dtype).tiny)
        for _ in range(2):  # twice is enough
            for other in done:
                rest = rest - (other @ rest) * other
        length = jnp.linalg.norm(rest)
        done.append(jnp.where(length > 1e-4, rest / jnp.where(length > 0.0, length, 1.0), 0.0))
    return jnp.stack(done)
