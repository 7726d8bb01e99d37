import math

import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits import potentials, steps
from vits.types import Observation


def terrain(eta=4.0, lam=0.5, rows=((3.0, 0.0), (0.0, 1.0))):
    potential = potentials.potential(vits.models.linear(2), inverse_temperature=eta, prior_precision=lam)
    data = potential.init()
    for row in rows:
        data = potential.observe(data, Observation(jnp.array(row), jnp.asarray(1.0)))
    mean = jnp.zeros(2)
    return steps.LocalGeometry(potential, data, mean, potential.largest_curvature(data, mean))


def test_constant_is_constant():
    assert float(steps.constant(0.25)(terrain(), 7).size) == 0.25


def test_per_observation_is_h_over_eta_t():
    assert float(steps.per_observation(0.6)(terrain(eta=4.0), 7).size) == pytest.approx(0.6 / (4.0 * 2))


def test_safe_keeps_step_times_curvature_below_its_fraction():
    ground = terrain(eta=4.0, lam=0.5)
    largest = 4.0 * (0.5 + 9.0)  # eta lmax(V), by hand
    stiffness = float(steps.safe(0.5)(ground, 7).size) * largest
    assert 0.5 / 2 ** (1 / 16) <= stiffness <= 0.5 * (1 + 1e-6)


def test_theory_is_the_formula_of_the_appendix():
    eta, lam, horizon, noise = 4.0, 0.5, 100, 2.0
    smallest, largest = lam + 1.0, lam + 9.0  # eigenvalues of V, by hand
    kappa = largest / smallest
    log = math.log(3 * horizon**3)
    wanted = 1 + 2 * (1 + 2 * kappa**2) * math.log(2 * noise * kappa * 2**2 * horizon**2 * log**2)
    rule = steps.theory(horizon=horizon, noise=noise)
    plan = rule(terrain(eta=eta, lam=lam), 10_000)
    assert float(plan.size) == pytest.approx(smallest / (2 * eta * (smallest**2 + 2 * largest**2)), rel=1e-5)
    assert int(plan.num_steps) == math.ceil(wanted)
    assert not plan.capped
    capped = rule(terrain(eta=eta, lam=lam), 50)
    assert int(capped.num_steps) == 50
    assert capped.capped
    assert (
        int(steps.theory(horizon=1, noise=1e-6)(terrain(eta=eta, lam=lam), 50).num_steps) == 1
    )  # a negative logarithm


def test_at_most_takes_the_smaller_step_and_says_so():
    limited = steps.at_most(steps.constant(1.0), steps.constant(0.1))(terrain(), 3)
    assert float(limited.size) == pytest.approx(0.1)
    assert limited.capped
    free = steps.at_most(steps.constant(0.01), steps.constant(0.1))(terrain(), 3)
    assert float(free.size) == pytest.approx(0.01)
    assert not free.capped


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("rule", [steps.constant, steps.per_observation, steps.safe])
def test_a_bad_step_is_refused_with_its_value(rule, value):
    with pytest.raises(ValueError, match="step_size must be") as error:
        rule(value)
    assert str(value) in str(error.value)


def test_safe_refuses_a_fraction_of_one_or_more():
    with pytest.raises(ValueError, match="between 0 and 1"):
        steps.safe(1.0)


def test_an_unknown_rule_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="did you mean 'safe'"):
        steps.resolve("save", 0.5)


def test_theory_inverse_temperature_is_the_formula():
    value = steps.theory_inverse_temperature(dim=3, horizon=10, prior_precision=0.5, noise=2.0)
    assert value == pytest.approx(4 * 0.25 / (81 * 4 * 3 * np.log(3000)))
