"""The wheel bandit against cases that can be checked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ((0.1, 0.1), [1.2, 1.0, 1.0, 1.0, 1.0]),
        ((0.7, 0.7), [1.2, 50.0, 1.0, 1.0, 1.0]),
        ((0.7, -0.7), [1.2, 1.0, 50.0, 1.0, 1.0]),
        ((-0.7, 0.7), [1.2, 1.0, 1.0, 50.0, 1.0]),
        ((-0.7, -0.7), [1.2, 1.0, 1.0, 1.0, 50.0]),
        ((0.89, 0.0), [1.2, 1.0, 1.0, 1.0, 1.0]),
        ((0.91, 0.0), [1.2, 1.0, 50.0, 1.0, 1.0]),
    ],
)
def test_the_arm_of_the_quadrant_pays_beyond_delta(context, expected):
    np.testing.assert_allclose(vits.environments.wheel(0.9).means(jnp.asarray(context)), expected, rtol=1e-6)


def test_contexts_are_uniform_on_the_disc_and_rewards_have_the_noise():
    world = vits.environments.wheel(0.9, noise=0.5, encoding="row")
    rounds = vits.simulation.rounds(0, world, 4000, seeds=1)
    contexts = rounds.arms[0, :, 0]
    radii = np.linalg.norm(contexts, axis=1)
    assert np.max(radii) <= 1.0
    for radius in (0.5, 0.9):
        assert np.mean(radii <= radius) == pytest.approx(radius**2, abs=0.03)
    assert np.max(np.abs(np.mean(contexts, axis=0))) < 0.03
    assert np.std(rounds.rewards - rounds.means) == pytest.approx(0.5, rel=0.03)


def test_the_regret_of_uniform_play_is_the_one_computed_by_hand():
    """Beyond delta a random arm loses 50 - (50 + 1.2 + 3) / 5, inside 4/5 of 0.2; the unit divides all of it."""
    by_hand = 0.19 * (50.0 - 54.2 / 5.0) + 0.81 * 0.16
    worlds = [vits.environments.wheel(0.9, unit=unit) for unit in (1.0, 50.0)]
    uniform = vits.make("uniform", vits.models.linear(10))
    plain, scaled = (vits.simulate(0, world, uniform, 4000, seeds=2).regret for world in worlds)
    assert np.mean(plain) == pytest.approx(by_hand, rel=0.06)
    np.testing.assert_allclose(50.0 * scaled, plain, rtol=1e-5, atol=1e-5)


def test_arms_see_the_context_and_for_networks_their_number():
    world = vits.environments.wheel(encoding="head")
    arms = np.asarray(world.draw(jax.random.key(0), world.init(jax.random.key(1)), jnp.asarray(0)).arms)
    assert arms.shape == (5, world.dim) == (5, 3)
    np.testing.assert_array_equal(arms[:, -1], np.arange(5))
    assert np.all(arms[:, :2] == arms[0, :2])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"delta": 1.5}, "delta must be between 0 and 1, but is 1.5"),
        ({"delta": float("nan")}, "delta must be finite"),
        ({"noise": -1.0}, "noise must be zero or a positive finite number, but is -1.0"),
        ({"unit": 0.0}, "unit must be a positive finite number, but is 0.0"),
        ({"encoding": "heads"}, "did you mean 'head'"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        vits.environments.wheel(**arguments)
