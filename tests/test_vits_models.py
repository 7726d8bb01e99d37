"""VITS on models other than the linear one: the Gaussian closest to the posterior, and the options of the data."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits.types import Observation

DIM, COUNT = 10, 500


def dataset(seed: int = 0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(COUNT, DIM))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    theta = 3.0 * rng.normal(size=DIM) / np.sqrt(DIM)
    rewards = rng.uniform(size=COUNT) < 1.0 / (1.0 + np.exp(-features @ theta))
    return jnp.asarray(features, float), jnp.asarray(rewards, float)


@eqx.filter_jit
def learn(learner, features, rewards):
    def step(state, row):
        t, phi, reward = row
        return learner.update(jax.random.fold_in(jax.random.key(1), t), state, Observation(phi, reward))

    rows = jnp.arange(COUNT), features, rewards
    return jax.lax.scan(step, learner.init(jax.random.key(0)), rows)


@eqx.filter_jit
def closest_gaussian(potential, data):
    """argmin KL(q | posterior) over Gaussians: E grad U = 0 and Sigma^-1 = E hess U, by natural-gradient steps."""

    def step(_, moments):
        mean, covariance = moments
        expected = potential.expectations(jax.random.key(0), data, mean, jnp.linalg.cholesky(covariance))
        covariance = jnp.linalg.inv(expected.hessian)
        return mean - covariance @ expected.grad, covariance

    mean = potential.prior.mean
    return jax.lax.fori_loop(0, 50, step, (mean, jnp.linalg.inv(potential.hessian(data, mean))))


def distance(state, mean, covariance):
    """Errors of the mean (root mean square) and of the covariance (spectral), in units of the true deviations."""
    root = np.linalg.cholesky(np.asarray(covariance, np.float64))
    white = np.linalg.solve(root, np.asarray(state.sqrt_cov, np.float64))
    mean_error = np.linalg.solve(root, np.asarray(state.mean - mean, np.float64))
    return np.sqrt(np.mean(mean_error**2)), np.linalg.norm(white @ white.T - np.eye(DIM), 2)


@pytest.mark.parametrize(
    ("name", "options", "mean_tolerance", "cov_tolerance"),
    [
        ("vits_i", {}, 0.05, 0.05),
        ("vits_ii", {}, 0.05, 0.05),
        ("vits_ii_hf", {}, 0.01, 0.02),
        ("vits_ii", {"minibatch": 64}, 1.0, 0.4),
    ],
)
def test_the_posterior_of_a_logistic_model_is_the_closest_gaussian(name, options, mean_tolerance, cov_tolerance):
    learner = vits.make(name, vits.models.logistic(DIM), capacity=COUNT, **options).posterior
    state, info = learn(learner, *dataset())
    mean_error, cov_error = distance(state, *closest_gaussian(learner.potential, state.data))
    assert not np.any(info.rejected)
    assert mean_error < mean_tolerance
    assert cov_error < cov_tolerance


@pytest.mark.parametrize("name", ["vits_i", "vits_ii", "vits_ii_hf"])
def test_presets_hand_on_what_concerns_the_data(name):
    model, prior = vits.models.logistic(2), (np.array([1.0, -1.0]), np.array([0.25, 4.0]))
    learner = vits.make(name, model, prior=prior, window=7, minibatch=3, inverse_temperature=100.0).posterior
    state = learner.init(jax.random.key(0))
    np.testing.assert_allclose(state.mean, [1.0, -1.0])
    np.testing.assert_allclose(state.sqrt_cov @ state.sqrt_cov.T, np.diag([0.25, 4.0]), rtol=1e-5)
    assert state.data.history.capacity == 7
    assert learner.potential.minibatch(jax.random.key(0), state.data).history.rewards.shape == (3,)
    assert vits.make(name, model, capacity=9).posterior.init(jax.random.key(0)).data.history.capacity == 9


def test_a_network_starts_from_its_own_weights_with_the_covariance_of_the_prior():
    model = vits.models.mlp(2, hidden=(3,))
    learner = vits.make("vits_ii", model, inverse_temperature=2.0, prior_precision=8.0).posterior
    state = learner.init(jax.random.key(0))
    np.testing.assert_array_equal(state.mean, model.init_params(jax.random.key(0)))
    np.testing.assert_allclose(state.sqrt_cov, 0.25 * np.eye(model.num_params))
