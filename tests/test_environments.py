import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits


@pytest.mark.parametrize("zeta", [0.1, 1.0])
def test_contexts_scatter_around_the_pool_with_signal_to_noise_one(zeta):
    world = vits.environments.linear(zeta=zeta, dim=20, num_arms=50)
    keys = jax.random.split(jax.random.key(0), 400)

    def one(key):
        params = world.init(jax.random.fold_in(key, 0))
        return params, world.draw(jax.random.fold_in(key, 1), params, jnp.asarray(0))

    params, rounds = jax.vmap(one)(keys)
    gap = rounds.arms[:, :, None] - params.pool[:, None]
    spread = np.sqrt(np.min(np.sum(np.square(gap), axis=-1), axis=-1) / 20)
    if zeta == 0.1:  # far below the distance between pool vectors, so the nearest one is the origin
        assert np.mean(spread) == pytest.approx(zeta, rel=0.03)
    signal, noise = np.var(rounds.means), np.var(rounds.rewards - rounds.means)
    assert noise == pytest.approx(1 + zeta**2, rel=0.03)
    assert signal / noise == pytest.approx(1.0, rel=0.1)  # theta* varies between the 400 worlds


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"zeta": -0.1}, "zeta must be zero or a positive finite number, but is -0.1"),
        ({"zeta": float("nan")}, "zeta must be zero or a positive finite number, but is nan"),
        ({"dim": 0}, "dim must be a whole number of at least 1, but is 0"),
        ({"num_arms": 0}, "num_arms must be a whole number of at least 1, but is 0"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        vits.environments.linear(**arguments)


def test_quadratic_rewards_have_signal_to_noise_one():
    world = vits.environments.quadratic(zeta=0.5, dim=20, num_arms=50)

    def one(key):
        return world.draw(jax.random.fold_in(key, 1), world.init(jax.random.fold_in(key, 0)), jnp.asarray(0))

    rounds = jax.vmap(one)(jax.random.split(jax.random.key(0), 2000))
    signal = np.mean(np.square(rounds.means))  # the paper's: E (x' theta)^4
    noise = np.var(rounds.rewards - rounds.means)
    assert noise == pytest.approx((1 + 0.25) ** 2 * (3 + 6 / 20), rel=0.03)
    assert signal / noise == pytest.approx(1.0, rel=0.1)
    assert np.all(rounds.means >= 0)


@pytest.mark.parametrize("make", [vits.environments.fixed_linear, vits.environments.fixed_logistic])
def test_fixed_arms_are_unit_vectors_with_two_close_rivals_in_random_places(make):
    world = make(dim=10, num_arms=10)
    params = jax.vmap(world.init)(jax.random.split(jax.random.key(0), 500))
    np.testing.assert_allclose(np.linalg.norm(params.arms, axis=-1), 1.0, rtol=1e-5)
    scores = np.einsum("nad,nd->na", params.arms, params.theta)
    best = np.argmax(scores, axis=1)
    np.testing.assert_allclose(scores.max(axis=1), 1.0, rtol=1e-5)
    assert np.all(np.sort(scores, axis=1)[:, -2] > 0.8)
    assert np.all(np.abs(np.bincount(best, minlength=10) - 50) < 4 * np.sqrt(50))


def test_fixed_logistic_pays_zeros_and_ones_with_the_right_mean():
    world = vits.environments.fixed_logistic(dim=4, num_arms=3)
    params = world.init(jax.random.key(1))
    rounds = jax.vmap(lambda key: world.draw(key, params, jnp.asarray(0)))(jax.random.split(jax.random.key(2), 4000))
    assert set(np.unique(rounds.rewards)) == {0.0, 1.0}
    np.testing.assert_allclose(rounds.rewards.mean(axis=0), rounds.means[0], atol=4 * 0.5 / np.sqrt(4000))
    np.testing.assert_allclose(rounds.means[0], jax.nn.sigmoid(params.arms @ params.theta), rtol=1e-5)
