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
