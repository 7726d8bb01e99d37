import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vits import linalg

MATRICES = jnp.asarray([[[4.0, 1.0], [1.0, 3.0]], [[2.0, -1.0], [-1.0, 5.0]], [[1.0, 0.0], [0.0, 9.0]]])
"""A batch of three, positive definite."""


def test_the_factor_and_the_root_of_the_inverse():
    factor = jax.vmap(linalg.cholesky)(MATRICES)
    np.testing.assert_allclose(factor, np.linalg.cholesky(np.asarray(MATRICES)), rtol=1e-6)
    root = jax.vmap(linalg.sqrt_of_inverse)(factor)
    np.testing.assert_allclose(root @ jnp.swapaxes(root, 1, 2), np.linalg.inv(np.asarray(MATRICES)), atol=1e-6)
    indefinite = linalg.cholesky(jnp.asarray([[1.0, 2.0], [2.0, 1.0]]))
    assert np.all(np.isnan(indefinite[jnp.tril_indices(2)]))


@pytest.mark.parametrize(("dim", "size"), [(200, 3), (40, 10), (12, 11)])
def test_random_frames_are_orthonormal_and_look_in_every_direction(dim, size):
    keys = jax.random.split(jax.random.key(0), 400)
    frames = np.asarray(jax.vmap(lambda key: linalg.random_frame(key, dim, size))(keys))
    grams = frames @ np.swapaxes(frames, 1, 2)
    np.testing.assert_allclose(grams, np.broadcast_to(np.eye(size), grams.shape), atol=2e-6)
    # The mean projection is (size / dim) I; a mean over 400 frames is that to within a few standard errors.
    mean = np.mean(np.swapaxes(frames, 1, 2) @ frames, axis=0)
    np.testing.assert_allclose(mean, size / dim * np.eye(dim), atol=5.0 * np.sqrt(2.0 * size / dim**2 / 400))


def test_an_error_that_is_known_is_not_computed_again():
    matrix = jnp.eye(3) + 0.1
    inverse = linalg.refreshed_inverse(matrix, jnp.linalg.inv(matrix).T, error=jnp.asarray(0.02), tolerance=0.1)
    assert (float(inverse.error), bool(inverse.refreshed)) == (pytest.approx(0.02), False)
    inverse = linalg.refreshed_inverse(matrix, jnp.linalg.inv(matrix).T, error=jnp.asarray(0.2), tolerance=0.1)
    assert bool(inverse.refreshed)
    assert float(inverse.error) < 1e-5


@pytest.mark.parametrize("function", [linalg.cholesky, linalg.sqrt_of_inverse, linalg.inverse, linalg.eigenvalues])
def test_members_of_a_batch_are_taken_one_after_the_other(function):
    def program(function, *matrices):
        return jax.jit(function).lower(*matrices).as_text()

    batched = jax.vmap(function)
    assert linalg.calls_batched_lapack(program(jax.vmap(jnp.linalg.inv), MATRICES))
    assert "@lapack_" in program(batched, MATRICES)
    assert not linalg.calls_batched_lapack(program(batched, MATRICES))
    for matrix, member in zip(MATRICES, batched(MATRICES), strict=True):
        np.testing.assert_array_equal(function(matrix), member)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**31 - 1), dim=st.sampled_from([1, 2, 20]), log_condition=st.floats(0.0, 6.0))
def test_largest_eigenvalue_bound_is_never_below_the_eigenvalue_nor_far_above(seed, dim, log_condition):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    spectrum = 10.0 ** rng.uniform(-log_condition, 0.0, dim) * 10.0 ** rng.uniform(-6, 6)
    matrix = jnp.asarray((basis * spectrum) @ basis.T, float)
    bound = float(linalg.largest_eigenvalue_bound(matrix))
    largest = spectrum.max()
    assert largest * (1 - 1e-5) <= bound <= largest * dim ** (1 / 16) * (1 + 1e-5)


def test_the_bound_counts_negative_eigenvalues_too():
    assert float(linalg.largest_eigenvalue_bound(jnp.diag(jnp.array([1.0, -3.0])))) >= 3.0


def test_a_good_inverse_is_left_alone():
    matrix = jnp.diag(jnp.array([1.0, 2.0]))
    guess = jnp.diag(jnp.array([1.0, 0.51]))
    inverse = linalg.refreshed_inverse(matrix, guess, tolerance=0.1)
    assert not inverse.refreshed
    assert jnp.array_equal(inverse.inverse_transpose, guess)
    assert float(inverse.error) == pytest.approx(0.02, abs=1e-6)


@pytest.mark.parametrize("spoil", [1.2, 100.0, -1.0, 0.0])
def test_a_bad_inverse_is_repaired_wherever_it_starts(spoil):
    matrix = jax.random.normal(jax.random.key(0), (6, 6)) + 3.0 * jnp.eye(6)
    inverse = linalg.refreshed_inverse(matrix, spoil * jnp.linalg.inv(matrix).T, tolerance=0.1)
    assert inverse.refreshed
    assert float(jnp.linalg.norm(inverse.inverse_transpose.T @ matrix - jnp.eye(6))) <= 0.1


def test_an_inverse_of_nan_is_repaired_from_the_safe_start():
    matrix = 2.0 * jnp.eye(3)
    inverse = linalg.refreshed_inverse(matrix, jnp.full((3, 3), jnp.nan), tolerance=1e-3)
    assert inverse.refreshed
    np.testing.assert_allclose(inverse.inverse_transpose, 0.5 * np.eye(3), atol=1e-3)


def test_repair_of_one_member_of_a_batch_leaves_the_others_bitwise():
    matrices = jnp.stack([jnp.eye(3), 2.0 * jnp.eye(3)])
    guesses = jnp.stack([jnp.eye(3) * 1.01, jnp.eye(3) * 5.0])
    batch = jax.vmap(lambda m, g: linalg.refreshed_inverse(m, g, tolerance=0.1))(matrices, guesses)
    assert batch.refreshed.tolist() == [False, True]
    assert jnp.array_equal(batch.inverse_transpose[0], guesses[0])
    np.testing.assert_allclose(batch.inverse_transpose[1], 0.5 * np.eye(3), atol=0.05)


def test_an_inverse_that_nobody_doubts_is_not_looked_at():
    matrix, wrong = 2.0 * jnp.eye(3), jnp.eye(3)
    doubts = jnp.array([False, True])
    inverse = jax.vmap(lambda doubt: linalg.refreshed_inverse_if(doubt, matrix, wrong, tolerance=0.1))(doubts)
    assert inverse.refreshed.tolist() == [False, True]
    assert jnp.array_equal(inverse.inverse_transpose[0], wrong)
    np.testing.assert_allclose(inverse.inverse_transpose[1], 0.5 * np.eye(3), atol=0.05)


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (2, 3, 4), (0, 3)])
def test_normals_are_those_of_jax(shape):
    keys = jax.random.split(jax.random.key(3), 4)
    drawn = jax.vmap(lambda key: linalg.normal(key, shape))(keys)
    np.testing.assert_array_equal(drawn, jax.vmap(lambda key: jax.random.normal(key, shape))(keys))


def test_normals_have_the_precision_asked_for():
    assert linalg.normal(jax.random.key(0), (2, 2), np.float16).dtype == np.float16
