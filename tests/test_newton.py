from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from vits.inference import newton


class Place(NamedTuple):
    x: Any
    distance: Any


def walk(trial, start=0.0, max_steps=1):
    """Steps on the real line until 1 is within 0.1; `trial` gives the end and the two slopes."""

    def line(place, s):
        end, *slopes = trial(place.x, s)
        return newton.Line(Place(end, jnp.abs(end - 1.0)), *slopes)

    first = Place(jnp.asarray(start), jnp.asarray(abs(start - 1.0)))
    return newton.descend(first, line, size=jnp.asarray(1.0), max_steps=max_steps, tolerance=0.1)


def along(slope):
    """A trial, given the derivative of the objective."""
    return lambda x, s: (x + s, slope(x), slope(x + s))


@pytest.mark.parametrize(
    ("start", "max_steps", "end", "steps"), [(0.0, 9, 0.9375, 4), (0.0, 3, 0.875, 3), (0.95, 9, 0.975, 1)]
)
def test_a_walk_goes_on_until_it_is_near_enough(start, max_steps, end, steps):
    """Half of the way to 1 in each step, the first of which is always taken."""
    found = walk(lambda x, s: (x + 0.5 * s * (1.0 - x), x - 1.0, 0.5 * (x - 1.0)), start, max_steps)
    assert float(found.point.x) == pytest.approx(end)
    assert int(found.num_steps) == steps
    assert float(found.smallest_step) == 1.0


def test_a_step_to_the_minimum_of_a_parabola_is_taken_in_full():
    taken = walk(along(lambda x: 2.0 * (x - 1.0)))
    assert (float(taken.point.x), float(taken.smallest_step)) == (1.0, 1.0)


def test_a_step_is_halved_until_the_slope_behind_the_minimum_is_half_of_that_at_the_start():
    # Slope -2 at the start and 2 (10 s - 1) at s: 1, 1/2 and 1/4 end steeper than 1, 1/8 does not.
    taken = walk(along(lambda x: 2.0 * (10.0 * x - 1.0)))
    assert (float(taken.point.x), float(taken.smallest_step)) == (0.125, 0.125)


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_without_an_acceptable_end_no_step_is_taken(bad):
    taken = walk(lambda _, s: (bad * s, jnp.asarray(-1.0), bad * s), start=3.0)
    assert (float(taken.point.x), float(taken.smallest_step)) == (3.0, 0.0)


def test_a_matrix_above_half_the_floor_is_left_alone():
    matrix, floor = jnp.diag(jnp.asarray([0.6, 5.0])), jnp.eye(2)
    result = newton.raised(matrix, floor, share=0.5)
    assert np.array_equal(result.matrix, matrix)
    np.testing.assert_allclose(result.factor @ result.factor.T, matrix, rtol=1e-6)
    assert not result.was_raised


@pytest.mark.parametrize(("smallest", "multiple"), [(0.4, 1.0), (-0.4, 1.0), (-0.6, 4.0), (-100.0, 256.0)])
def test_a_matrix_below_is_raised_by_the_first_multiple_that_helps(smallest, multiple):
    matrix, floor = jnp.diag(jnp.asarray([smallest, 5.0])), jnp.eye(2)
    result = newton.raised(matrix, floor, share=0.5)
    np.testing.assert_allclose(result.matrix, matrix + multiple * floor, rtol=1e-6)
    np.testing.assert_allclose(result.factor @ result.factor.T, result.matrix, rtol=1e-6)
    assert result.was_raised


def test_newton_finds_a_minimum_from_where_plain_newton_diverges():
    """U = log cosh x + x^2 / 200 from x = 4: the curvature is 0.0013 + 0.01, and a full step lands at x = -88."""
    weak = 0.01
    found = newton.minimum(
        lambda x: newton.Slopes(jnp.tanh(x) + weak * x, jnp.diag(1.0 / jnp.cosh(x) ** 2 + weak)),
        jnp.asarray([4.0]),
        floor=jnp.asarray([[weak]]),
        share=0.5,
        tolerance=1e-3,
        max_steps=20,
    )
    walk, found = found, found.point
    assert abs(float(found.theta[0])) < 1e-3
    assert float(found.distance) < 1e-3
    assert float(walk.smallest_step) < 1.0
    np.testing.assert_allclose(found.sqrt_cov[0, 0] ** 2, 1.0 / (1.0 + weak), rtol=1e-5)
