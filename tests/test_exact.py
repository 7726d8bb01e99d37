import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits.algorithms.exact import Exact
from vits.potentials import potential
from vits.types import Observation


def observations(n, dim, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, dim)), rng.standard_normal(n)


def closed_form(features, rewards, eta, lam):
    V = lam * np.eye(features.shape[1]) + features.T @ features
    return np.linalg.solve(V, features.T @ rewards), np.linalg.inv(eta * V)


def learn(posterior, features, rewards):
    state = posterior.init(jax.random.key(0))
    for phi, r in zip(features, rewards, strict=True):
        state, _ = posterior.update(
            jax.random.key(0), state, Observation(jnp.asarray(phi, float), jnp.asarray(r, float))
        )
    return state


def exact(dim, eta, lam):
    return Exact(potential(vits.models.linear(dim), inverse_temperature=eta, prior_precision=lam))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("eta", "lam"), [(1.0, 1.0), (100.0, 0.1), (0.01, 10.0)])
def test_sequential_updates_equal_the_closed_form(eta, lam):
    features, rewards = observations(60, 5)
    state = learn(exact(5, eta, lam), features, rewards)
    mean, covariance = closed_form(features, rewards, eta, lam)
    np.testing.assert_allclose(state.mean, mean, rtol=0, atol=1e-10)
    np.testing.assert_allclose(state.sqrt_cov @ state.sqrt_cov.T, covariance, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_the_order_of_observations_does_not_matter():
    features, rewards = observations(30, 4)
    there = learn(exact(4, 10.0, 1.0), features, rewards)
    back = learn(exact(4, 10.0, 1.0), features[::-1], rewards[::-1])
    np.testing.assert_allclose(there.mean, back.mean, atol=1e-12)
    np.testing.assert_allclose(
        there.sqrt_cov @ there.sqrt_cov.T, back.sqrt_cov @ back.sqrt_cov.T, rtol=1e-10, atol=1e-14
    )


def test_single_precision_stays_close_over_many_updates():
    features, rewards = observations(2000, 20)
    posterior = exact(20, 100.0, 1.0)

    @jax.jit
    def run(features, rewards):
        def body(state, row):
            return posterior.update(jax.random.key(0), state, Observation(*row))[0], None

        return jax.lax.scan(body, posterior.init(jax.random.key(0)), (features, rewards))[0]

    state = run(jnp.asarray(features, float), jnp.asarray(rewards, float))
    mean, covariance = closed_form(features, rewards, 100.0, 1.0)
    sd = np.sqrt(np.diag(covariance))
    assert np.max(np.abs(state.mean - mean) / sd) < 0.02
    np.testing.assert_allclose(np.diag(state.sqrt_cov @ state.sqrt_cov.T), sd**2, rtol=0.005)


def test_draws_have_the_posterior_moments():
    features, rewards = observations(20, 3)
    posterior = exact(3, 2.0, 1.0)
    state = learn(posterior, features, rewards)
    draws = jax.vmap(posterior.sample, (0, None))(jax.random.split(jax.random.key(1), 20_000), state)
    mean, covariance = closed_form(features, rewards, 2.0, 1.0)
    sd = np.sqrt(np.diag(covariance))
    assert np.max(np.abs(np.mean(draws, axis=0) - mean) / sd) < 4 / np.sqrt(20_000)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=5 * np.max(sd) ** 2 / np.sqrt(20_000))
