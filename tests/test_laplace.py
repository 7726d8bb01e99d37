import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits.algorithms.laplace import Laplace
from vits.potentials import Dense, Derivatives, Expectations, Potential, Prior
from vits.types import Observation, Scalar


@eqx.filter_jit
def learn(posterior, key, features, rewards):
    def step(state, row):
        key, phi, r = row
        return posterior.update(key, state, Observation(phi, r))

    keys = jax.random.split(key, len(rewards))
    return jax.lax.scan(step, posterior.init(key), (keys, features, rewards))


@eqx.filter_jit
def update(posterior, state, observation):
    return posterior.update(jax.random.key(0), state, observation)


def logistic_data(dim, count, scale, seed):
    rng = np.random.default_rng(seed)
    features = scale * rng.standard_normal((count, dim)) / np.sqrt(dim)
    rewards = rng.random(count) < 1.0 / (1.0 + np.exp(-features @ rng.standard_normal(dim)))
    return jnp.asarray(features, float), jnp.asarray(rewards, float)


def logistic_derivatives(features, rewards, eta, precision, mean):
    features, rewards, mean = (np.asarray(x, np.float64) for x in (features, rewards, mean))
    p = 1.0 / (1.0 + np.exp(-features @ mean))
    grad = eta * features.T @ (p - rewards) + precision @ mean
    return grad, eta * features.T @ ((p * (1.0 - p))[:, None] * features) + precision


def test_on_a_linear_model_it_is_the_exact_posterior():
    dim, count, eta, lam = 5, 60, 10.0, 0.5
    rng = np.random.default_rng(0)
    features, rewards = rng.standard_normal((count, dim)), rng.standard_normal(count)
    policy = vits.algorithms.laplace_ts(vits.models.linear(dim), inverse_temperature=eta, prior_precision=lam)
    state, infos = learn(policy.posterior, jax.random.key(0), jnp.asarray(features, float), jnp.asarray(rewards, float))
    V = lam * np.eye(dim) + features.T @ features
    error = np.asarray(state.mean, np.float64) - np.linalg.solve(V, features.T @ rewards)
    assert np.sqrt(eta * error @ V @ error) < 0.05
    np.testing.assert_allclose(state.sqrt_cov @ state.sqrt_cov.T, np.linalg.inv(eta * V), rtol=1e-3, atol=1e-6)
    assert not np.any(infos.rejected | infos.step_capped)


@pytest.mark.parametrize("eta", [1.0, 100.0])
def test_on_a_logistic_model_it_is_the_gaussian_at_the_mode(eta):
    dim = 4
    features, rewards = logistic_data(dim, 80, scale=3.0, seed=0)
    policy = vits.algorithms.laplace_ts(
        vits.models.logistic(dim), inverse_temperature=eta, prior=(0.0, 1.0), capacity=128
    )
    state, infos = learn(policy.posterior, jax.random.key(0), features, rewards)
    assert not np.any(infos.rejected)
    grad, hessian = logistic_derivatives(features, rewards, eta, np.eye(dim), state.mean)
    B = np.asarray(state.sqrt_cov, np.float64)
    # The way to the mode, in posterior standard deviations, is within the stated tolerance.
    assert np.linalg.norm(np.linalg.solve(np.linalg.cholesky(hessian), grad)) < 0.06
    np.testing.assert_allclose(B.T @ hessian @ B, np.eye(dim), atol=2e-3)


def saturated(eta, num_steps):
    """A posterior that is sure of f = -12, and the observation that contradicts it; the prior is N(0, 25)."""
    policy = vits.algorithms.laplace_ts(
        vits.models.logistic(1), inverse_temperature=eta, prior=(0.0, 25.0), num_steps=num_steps, capacity=4
    )
    posterior = policy.posterior
    state = posterior.init(jax.random.key(0))._replace(mean=jnp.asarray([-12.0]))
    return update(posterior, state, Observation(jnp.ones(1), jnp.asarray(1.0)))


def test_where_newton_overshoots_it_is_damped_and_still_finds_the_mode():
    eta, start = 100.0, -12.0
    # A full step would go from -12 to 2472: the curvature at -12 is nearly that of the prior alone.
    grad, hessian = logistic_derivatives(np.ones((1, 1)), np.ones(1), eta, np.eye(1) / 25.0, np.asarray([start]))
    assert start - grad[0] / hessian[0, 0] > 2000.0
    state, info = saturated(eta, num_steps=30)
    grad, hessian = logistic_derivatives(np.ones((1, 1)), np.ones(1), eta, np.eye(1) / 25.0, state.mean)
    assert abs(grad[0]) / np.sqrt(hessian[0, 0]) < 0.05
    assert not info.rejected
    assert info.step_capped
    assert float(info.step) < 1.0


def test_steps_that_were_too_few_are_reported():
    state, info = saturated(1.0, num_steps=1)
    grad, hessian = logistic_derivatives(np.ones((1, 1)), np.ones(1), 1.0, np.eye(1) / 25.0, state.mean)
    assert abs(grad[0]) / np.sqrt(hessian[0, 0]) > 0.05
    assert info.step_capped
    assert not info.rejected


class Hill(Potential):
    """U = sum_i depth (theta_i^2 - 1)^2 / 4 + theta_i^2 / 2: curvature 1 - depth at the origin, wells beside it."""

    depth: Scalar
    inverse_temperature: Scalar
    prior: Prior

    def init(self):
        return jnp.asarray(0)

    def observe(self, data, observation, belief=None):
        return data + 1

    def count(self, data):
        return data

    def grad(self, data, theta):
        return self.depth * (theta**3 - theta) + theta

    def derivatives(self, data, thetas):
        hessians = jax.vmap(lambda theta: jnp.diag(self.depth * (3.0 * theta**2 - 1.0) + 1.0))(thetas)
        return Derivatives(jax.vmap(self.grad, (None, 0))(data, thetas), Dense(jnp.mean(hessians, axis=0)))

    def expectations(self, key, data, mean, sqrt_cov):
        return Expectations(self.grad(data, mean), self.hessian(data, mean))

    def largest_curvature(self, data, theta, sqrt_cov=None):
        return 3.0 * self.depth


@pytest.mark.parametrize("depth", [2.0, 50.0, 1e4])
def test_an_indefinite_hessian_gives_a_proper_gaussian_and_the_way_into_a_well(depth):
    posterior = Laplace(Hill(jnp.asarray(depth), jnp.asarray(1.0), Prior(jnp.zeros(2), jnp.eye(2))), num_steps=1)
    state = posterior.init(jax.random.key(0))._replace(mean=jnp.asarray([0.1, -0.2]))
    observation = Observation(jnp.zeros(2), jnp.asarray(0.0))
    reported = []
    for _ in range(40):
        state, info = update(posterior, state, observation)
        reported.append(bool(info.step_capped))
        # Never more than twice as uncertain as under the prior N(0, I).
        assert np.linalg.eigvalsh(np.asarray(state.sqrt_cov @ state.sqrt_cov.T))[-1] <= 2.0 + 1e-4
    assert reported[0]
    assert not reported[-1]
    well = np.sqrt(1.0 - 1.0 / depth)
    np.testing.assert_allclose(state.mean, [well, -well], atol=0.05 / np.sqrt(depth) + 1e-3)


def test_it_works_in_double_precision(x64):
    features, rewards = logistic_data(3, 30, scale=2.0, seed=1)
    policy = vits.algorithms.laplace_ts(vits.models.logistic(3), capacity=32)
    state, _ = learn(policy.posterior, jax.random.key(0), features, rewards)
    assert state.sqrt_cov.dtype == jnp.float64
    _, hessian = logistic_derivatives(features, rewards, 1.0, np.eye(3), state.mean)
    np.testing.assert_allclose(state.sqrt_cov.T @ hessian @ state.sqrt_cov, np.eye(3), atol=1e-9)


def test_on_minibatches_the_mean_jitters_by_no_more_than_a_posterior_standard_deviation():
    dim, count, runs = 3, 300, 20
    rows = logistic_data(dim, count, scale=3.0, seed=2)
    exact, sampled = (
        vits.algorithms.laplace_ts(vits.models.logistic(dim), capacity=count, minibatch=m).posterior for m in (None, 60)
    )
    mode, _ = learn(exact, jax.random.key(0), *rows)
    states, infos = jax.vmap(lambda key: learn(sampled, key, *rows))(jax.random.split(jax.random.key(1), runs))
    assert not np.any(infos.rejected)
    sd, sampled_sd = (np.linalg.norm(np.asarray(state.sqrt_cov), axis=-1) for state in (mode, states))
    jitter = np.sqrt(np.mean(((states.mean - mode.mean[None]) / sd[None]) ** 2))
    assert 0.4 < jitter < 0.9  # 0.7 if U were quadratic
    assert np.all(np.abs(sampled_sd / sd - 1.0) < 0.4)
