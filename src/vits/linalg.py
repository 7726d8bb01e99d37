"""Matrix functions that several posteriors need.

XLA computes the members of a batch of LAPACK calls in its own pool of threads, where two programs that run at the same
time can deadlock. So the decompositions here loop over the members of a batch, and simulations and agents may run at
the same time. `calls_batched_lapack` finds programs that must run alone.
"""

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from vits.types import Scalar

Function = TypeVar("Function", bound=Callable[..., Any])


def _one_by_one(function: Function) -> Function:
    """The same function, computed for a batch in a loop."""
    return cast(Function, cast(Any, jax.custom_batching).sequential_vmap(function))


@_one_by_one
def cholesky(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The lower triangle L with L L' = A, which is symmetric; NaN if it is not positive definite."""
    return jax.lax.linalg.cholesky(matrix, symmetrize_input=False)


@_one_by_one
def sqrt_of_inverse(factor: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """B = L^-T, so that B B' is the inverse of L L'."""
    identity = jnp.eye(factor.shape[0], dtype=factor.dtype)
    return jax.scipy.linalg.solve_triangular(factor, identity, lower=True).T


def inverse_root(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """B with B B' = A^-1, for a symmetric A; NaN if it is not positive definite."""
    return sqrt_of_inverse(cholesky(matrix))


MOST_LOST = 0.01
"""The largest relative rounding error of a deviation after an update of a square root."""


def updated_root(
    sqrt_cov: Float[Array, "d d"], rows: Float[Array, "k d"], weights: Float[Array, " k"]
) -> Float[Array, "d d"]:
    """A square root of (P + R' diag(w) R)^-1, where B B' = P^-1, in O(k d^2); the weights are not negative.

    With U = diag(w)^1/2 R B and the Cholesky factor L L' = I + U U', a root of (I + U' U)^-1 is

        I - U' L^-T (I + L)^-1 U

    (Andrews, "A square root formulation of the Kalman covariance equations", 1968). If the rows shrink a deviation so
    far that its rounding error would exceed `MOST_LOST`, the result is NaN.
    """
    U = jnp.sqrt(weights)[:, None] * (rows @ sqrt_cov)
    identity = jnp.eye(len(rows), dtype=sqrt_cov.dtype)
    gram = identity + U @ U.T
    if len(rows) == 1:
        L = jnp.sqrt(gram)
        inner = 1.0 / (L * (1.0 + L))
    else:
        L = cholesky(gram)
        inner = sqrt_of_inverse(L) @ sqrt_of_inverse(identity + L).T
    root = sqrt_cov - (sqrt_cov @ U.T) @ (inner @ U)
    shrunk = np.finfo(gram.dtype).eps * jnp.sqrt(jnp.trace(gram))
    return jnp.where(shrunk <= MOST_LOST, root, jnp.nan)


@_one_by_one
def inverse(matrix: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """A^-1."""
    return jnp.linalg.inv(matrix)


@_one_by_one
def eigenvalues(matrix: Float[Array, "d d"]) -> Float[Array, " d"]:
    """The eigenvalues of a symmetric matrix, in ascending order."""
    return jnp.linalg.eigvalsh(matrix)


@_one_by_one
def eigenvectors(matrix: Float[Array, "d d"]) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Eigenvalues of a symmetric matrix, the largest first, and its eigenvectors as rows."""
    values, vectors = jnp.linalg.eigh(matrix)
    return values[::-1], vectors.T[::-1]


@_one_by_one
def _frame_by_qr(matrix: Float[Array, "d m"]) -> Float[Array, "d m"]:
    return jnp.linalg.qr(matrix)[0]


def random_frame(key: Key[Array, ""], dim: int, size: int) -> Float[Array, "size dim"]:
    """Orthonormal rows that span a random subspace.

    A few rows X of normal draws are nearly orthogonal, so L^-1 X with L L' = X X' is accurate and needs only products.
    Many rows need a QR decomposition.
    """
    if 4 * size > dim:
        return _frame_by_qr(normal(key, (dim, size))).T
    rows = normal(key, (size, dim))
    return inverse_root(rows @ rows.T).T @ rows


def calls_batched_lapack(program: str) -> bool:
    """Whether a program, given as its StableHLO text, calls LAPACK for a whole batch at once."""
    return re.search(r'@lapack_.*num_batch_dims = "[1-9]', program) is not None


def largest_eigenvalue_bound(matrix: Float[Array, "d d"]) -> Scalar:
    """An upper bound on the largest eigenvalue of a symmetric matrix, for the cost of a few products.

    `|A|_2 <= |A^8|_F^(1/8) <= d^(1/16) |A|_2`: never too small, and at most 21 % too large for d = 20 (53 % for
    d = 861).
    """
    scale = jnp.linalg.norm(matrix)
    # A loop, because XLA fuses a chain of products into one that is a hundred times slower for large matrices.
    power = jax.lax.fori_loop(0, 3, lambda _, power: power @ power, matrix / scale)
    return scale * jnp.linalg.norm(power) ** 0.125


class Inverse(NamedTuple):
    """An inverse transpose D of a square root B, the distance of D' B from I, and whether it was repaired."""

    inverse_transpose: Float[Array, "d d"]
    error: Scalar
    refreshed: Bool[Array, ""]


def refreshed_inverse(
    matrix: Float[Array, "d d"],
    guess: Float[Array, "d d"],
    *,
    tolerance: float,
    error: Scalar | None = None,
    worthwhile: Bool[Array, ""] | bool = True,
    max_iterations: int = 40,
) -> Inverse:
    """D close to B^-T: the guess itself while `|D' B - I|_F <= tolerance`, else repaired.

    `error` is an upper bound on that norm, where the caller knows one: it saves a product.

    The repair is the Newton-Schulz iteration D <- 2 D - D B' D, which squares the error. It starts from the guess if
    that is good enough to converge, else from B / (|B|_1 |B|_inf), which always converges. It is a loop, so under vmap
    it costs nothing in rounds where no member of the batch needs it. A matrix that is not finite, or whose inverse is
    not `worthwhile`, is not repaired, so that the other members of the batch do not wait for it.
    """
    identity = jnp.eye(matrix.shape[0], dtype=matrix.dtype)

    def error_of(inverse: Float[Array, "d d"]) -> Scalar:
        return jnp.linalg.norm(inverse.T @ matrix - identity)

    first_error = error_of(guess) if error is None else error
    needed = ~(first_error <= tolerance)
    safe_start = matrix / (jnp.linalg.norm(matrix, 1) * jnp.linalg.norm(matrix, jnp.inf))
    start = jnp.where(~needed | (first_error < 0.9), guess, safe_start)

    def repair(carry: tuple[Array, Float[Array, "d d"], Scalar]) -> tuple[Array, Float[Array, "d d"], Scalar]:
        iteration, inverse, _ = carry
        inverse = 2.0 * inverse - inverse @ (matrix.T @ inverse)  # Newton-Schulz
        return iteration + 1, inverse, error_of(inverse)

    def unfinished(carry: tuple[Array, Float[Array, "d d"], Scalar]) -> Bool[Array, ""]:
        iteration, _, error = carry
        return ~(error <= tolerance) & (iteration < max_iterations) & worthwhile

    worthwhile = worthwhile & jnp.isfinite(jnp.linalg.norm(matrix))
    start_error = jnp.where(needed, jnp.inf, first_error)
    _, inverse, error = jax.lax.while_loop(unfinished, repair, (jnp.asarray(0), start, start_error))
    return Inverse(inverse, error, needed)


def refreshed_inverse_if(
    doubtful: Bool[Array, ""], matrix: Float[Array, "d d"], guess: Float[Array, "d d"], *, tolerance: float
) -> Inverse:
    """`refreshed_inverse` if the guess is in doubt, else the guess itself, with 0 for its error, which is not computed.

    It is a loop of at most one turn: under vmap it costs nothing while no member of the batch is in doubt.
    """

    def look(carry: tuple[Bool[Array, ""], Inverse]) -> tuple[Bool[Array, ""], Inverse]:
        return jnp.zeros_like(doubtful), refreshed_inverse(matrix, carry[1].inverse_transpose, tolerance=tolerance)

    # If the loop does not run, `doubtful` is false: nothing was repaired. A constant would add an operation.
    unseen = Inverse(guess, jnp.zeros((), matrix.dtype), doubtful)
    return jax.lax.while_loop(lambda carry: carry[0], look, (doubtful, unseen))[1]


def normal(key: Key[Array, ""], shape: tuple[int, ...], dtype: Any = float) -> Float[Array, "..."]:
    """The numbers of `jax.random.normal`, drawn as one row and then reshaped.

    With axes of length ten or twenty XLA unrolls the generator once for each entry: the program takes seconds longer
    to compile and draws more slowly.
    """
    return jax.random.normal(key, (math.prod(shape),), dtype).reshape(shape)
