import jax.numpy as jnp
import numpy as np
import pytest

from vits.posteriors import descent


def line_along(slope):
    """A trial on the real line from 0, given the derivative of the objective."""
    return lambda s: descent.Line(s, slope(jnp.asarray(0.0)), slope(s))


def test_a_step_to_the_minimum_of_a_parabola_is_taken_in_full():
    taken = descent.backtracked(jnp.asarray(0.0), jnp.asarray(1.0), line_along(lambda s: 2.0 * (s - 1.0)))
    assert (float(taken.end), float(taken.size), bool(taken.cut)) == (1.0, 1.0, False)


def test_a_step_is_halved_until_the_slope_behind_the_minimum_is_half_of_that_at_the_start():
    # Slope -2 at the start and 2 (10 s - 1) at s: 1, 1/2 and 1/4 end steeper than 1, 1/8 does not.
    taken = descent.backtracked(jnp.asarray(0.0), jnp.asarray(1.0), line_along(lambda s: 2.0 * (10.0 * s - 1.0)))
    assert (float(taken.end), float(taken.size), bool(taken.cut)) == (0.125, 0.125, True)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_without_an_acceptable_end_no_step_is_taken(bad):
    taken = descent.backtracked(
        jnp.asarray(3.0), jnp.asarray(1.0), lambda s: descent.Line(bad * s, jnp.asarray(-1.0), bad * s)
    )
    assert (float(taken.end), float(taken.size), bool(taken.cut)) == (3.0, 0.0, True)


def test_a_matrix_above_half_the_floor_is_left_alone():
    matrix, floor = jnp.diag(jnp.asarray([0.6, 5.0])), jnp.eye(2)
    result = descent.raised(matrix, floor)
    assert np.array_equal(result.matrix, matrix)
    assert not result.was_raised


@pytest.mark.parametrize(("smallest", "multiple"), [(0.4, 1.0), (-0.4, 1.0), (-0.6, 4.0), (-100.0, 256.0)])
def test_a_matrix_below_is_raised_by_the_first_multiple_that_helps(smallest, multiple):
    matrix, floor = jnp.diag(jnp.asarray([smallest, 5.0])), jnp.eye(2)
    result = descent.raised(matrix, floor)
    np.testing.assert_allclose(result.matrix, matrix + multiple * floor, rtol=1e-6)
    assert result.was_raised


def test_the_root_of_the_inverse():
    precision = jnp.asarray([[4.0, 1.0], [1.0, 3.0]])
    root = descent.sqrt_of_inverse(precision)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(np.asarray(precision)), rtol=1e-5)


def test_newton_finds_a_minimum_from_where_plain_newton_diverges():
    """U = log cosh x + x^2 / 200 from x = 4: the curvature is 0.0013 + 0.01, and a full step lands at x = -88."""
    weak = 0.01
    found = descent.minimum(
        lambda x: jnp.tanh(x) + weak * x,
        lambda x: jnp.diag(1.0 / jnp.cosh(x) ** 2 + weak),
        jnp.asarray([4.0]),
        floor=jnp.asarray([[weak]]),
        tolerance=1e-3,
        max_steps=20,
    )
    assert abs(float(found.theta[0])) < 1e-3
    assert float(found.distance) < 1e-3
    assert bool(found.damped)
    assert float(found.smallest_step) < 1.0
    np.testing.assert_allclose(found.sqrt_cov[0, 0] ** 2, 1.0 / (1.0 + weak), rtol=1e-5)
