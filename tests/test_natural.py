import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits.algorithms.natural import Natural
from vits.potentials import Dense, Derivatives, Expectations, Potential, Prior, potential
from vits.types import Observation, Scalar


def nothing(dim):
    return Observation(jnp.zeros(dim), jnp.asarray(0.0))


@eqx.filter_jit
def update(posterior, key, state, observation):
    return posterior.update(key, state, observation)


def play_the_linear_bandit(policy, horizon, seed):
    """All means, square roots, features and rewards of one run on the ill-conditioned linear bandit."""
    world = vits.environments.linear(zeta=0.1)
    params = world.init(jax.random.key(seed))

    def step(state, key):
        draw_key, act_key, update_key = jax.random.split(key, 3)
        arms, _, rewards = world.draw(draw_key, params, jnp.asarray(0))
        arm = policy.act(act_key, state, arms)
        state, info = policy.update(update_key, state, Observation(arms[arm], rewards[arm]))
        return state, (state.mean, state.sqrt_cov, arms[arm], rewards[arm], info)

    keys = jax.random.split(jax.random.key(seed + 1), horizon)
    return eqx.filter_jit(lambda policy: jax.lax.scan(step, policy.init(keys[0]), keys)[1])(policy)


def test_on_the_ill_conditioned_linear_bandit_every_round_ends_at_the_exact_posterior_after_one_step():
    eta, lam, dim = 100.0, 1.0, 20
    policy = vits.algorithms.vits_ng(vits.models.linear(dim), inverse_temperature=eta, num_steps=1)
    means, roots, features, rewards, info = play_the_linear_bandit(policy, 500, seed=0)
    means, roots, features, rewards = (np.asarray(x, np.float64) for x in (means, roots, features, rewards))
    assert not np.any(info.rejected)
    V, b = lam * np.eye(dim), np.zeros(dim)
    for t in range(len(rewards)):
        V += np.outer(features[t], features[t])
        b += rewards[t] * features[t]
        error = means[t] - np.linalg.solve(V, b)
        # Mahalanobis, the largest error in any direction; 0.01 is what single precision leaves.
        assert np.sqrt(eta * error @ V @ error) < 0.05, t
        if t % 50 == 49:
            spectrum = np.linalg.eigvalsh(roots[t].T @ (eta * V) @ roots[t])
            assert np.all(np.abs(spectrum - 1.0) < 0.01), t


def kl_to(target_mean, target_precision, mean, sqrt_cov):
    mean, sqrt_cov = np.asarray(mean, np.float64), np.asarray(sqrt_cov, np.float64)
    ratio = np.linalg.eigvalsh(sqrt_cov.T @ target_precision @ sqrt_cov)
    gap = mean - target_mean
    return 0.5 * (np.sum(ratio - 1.0 - np.log(ratio)) + gap @ target_precision @ gap)


@pytest.mark.parametrize("kappa", [1.0, 10.0, 100.0, 1000.0])
def test_the_steps_to_a_gaussian_target_do_not_depend_on_its_condition_number(kappa):
    dim = 20
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    precision = basis @ np.diag(np.logspace(-np.log10(kappa), 0, dim)) @ basis.T
    mean = rng.standard_normal(dim)
    target = potential(
        vits.models.linear(dim),
        inverse_temperature=1.0,
        prior_precision=1.0,
        prior=(mean, np.linalg.inv(precision)),
    )
    posterior = Natural(target, jnp.asarray(0.5), 1)
    state = posterior.init(jax.random.key(0))._replace(
        mean=jnp.zeros(dim), sqrt_cov=jnp.eye(dim), precision=jnp.eye(dim)
    )
    divergences = []
    for i in range(15):
        state, _ = update(posterior, jax.random.key(i), state, nothing(dim))
        divergences.append(kl_to(mean, precision, state.mean, state.sqrt_cov))
    assert min(divergences) <= 0.1, divergences
    assert divergences == sorted(divergences, reverse=True)


def logistic_data(dim, count, scale, seed):
    rng = np.random.default_rng(seed)
    features = scale * rng.standard_normal((count, dim)) / np.sqrt(dim)
    rewards = (rng.random(count) < 1.0 / (1.0 + np.exp(-features @ rng.standard_normal(dim)))).astype(float)
    return features, rewards


def learn(posterior, features, rewards, seed=0):
    return learn_rows(posterior, jax.random.key(seed), jnp.asarray(features, float), jnp.asarray(rewards, float))


@eqx.filter_jit
def learn_rows(posterior, key, features, rewards):
    def step(state, row):
        key, phi, r = row
        return posterior.update(key, state, Observation(phi, r))

    keys = jax.random.split(key, len(rewards))
    return jax.lax.scan(step, posterior.init(key), (keys, features, rewards))


def expected_derivatives(features, rewards, eta, precision, mean, sqrt_cov):
    """E grad U and E hess U of a logistic model with prior N(0, precision^-1), with 200 quadrature points."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    weights = weights / weights.sum()
    mean, sqrt_cov = np.asarray(mean, np.float64), np.asarray(sqrt_cov, np.float64)
    f = (features @ mean)[:, None] + np.linalg.norm(features @ sqrt_cov, axis=1)[:, None] * nodes
    p = 1.0 / (1.0 + np.exp(-f))
    grad = eta * features.T @ ((p - rewards[:, None]) @ weights) + precision @ mean
    hessian = eta * features.T @ (((p * (1.0 - p)) @ weights)[:, None] * features) + precision
    return grad, hessian


@pytest.mark.parametrize("eta", [1.0, 10.0])
def test_on_a_logistic_model_it_converges_to_the_gaussian_variational_optimum(eta):
    dim = 4
    features, rewards = logistic_data(dim, 60, scale=2.0, seed=1)
    policy = vits.algorithms.vits_ng(vits.models.logistic(dim), inverse_temperature=eta, capacity=128)
    state, infos = learn(policy.posterior, features, rewards)
    assert not np.any(infos.rejected)
    for i in range(4):
        state, _ = update(policy.posterior, jax.random.key(i), state, nothing(dim))
    grad, hessian = expected_derivatives(features, rewards, eta, eta * np.eye(dim), state.mean, state.sqrt_cov)
    B = np.asarray(state.sqrt_cov, np.float64)
    # The optimum is where E grad U = 0 and E hess U = Sigma^-1; both in units of the posterior.
    assert np.linalg.norm(B.T @ grad) < 2e-3
    assert np.linalg.norm(B.T @ hessian @ B - np.eye(dim)) < 2e-3
    np.testing.assert_allclose(state.precision @ B @ B.T, np.eye(dim), atol=1e-4)


def objective(features, rewards, eta, precision, mean, sqrt_cov):
    """F = E U - log |B| of a logistic model with prior N(0, precision^-1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    weights = weights / weights.sum()
    mean, sqrt_cov = np.asarray(mean, np.float64), np.asarray(sqrt_cov, np.float64)
    f = (features @ mean)[:, None] + np.linalg.norm(features @ sqrt_cov, axis=1)[:, None] * nodes
    loss = np.sum((np.logaddexp(0.0, f) - rewards[:, None] * f) @ weights)
    prior = 0.5 * (mean @ precision @ mean + np.trace(sqrt_cov.T @ precision @ sqrt_cov))
    return eta * loss + prior - np.linalg.slogdet(sqrt_cov)[1]


def test_where_the_likelihood_is_much_stronger_than_the_prior_steps_are_damped_and_the_objective_falls():
    dim, eta, count = 3, 100.0, 40
    features, rewards = logistic_data(dim, count, scale=4.0, seed=2)
    model = vits.models.logistic(dim)
    policy = vits.algorithms.vits_ng(model, inverse_temperature=eta, prior=(0.0, 1.0), num_steps=2, capacity=64)
    state, damped, precision = policy.posterior.init(jax.random.key(0)), 0, np.eye(dim)
    for t in range(count):
        seen = features[: t + 1], rewards[: t + 1]
        before = objective(*seen, eta, precision, state.mean, state.sqrt_cov)
        observation = Observation(jnp.asarray(features[t], float), jnp.asarray(rewards[t], float))
        state, info = update(policy.posterior, jax.random.key(t), state, observation)
        after = objective(*seen, eta, precision, state.mean, state.sqrt_cov)
        assert not info.rejected
        assert after <= before + 1e-2, t
        damped += int(info.step_capped)
        assert bool(info.step_capped) == (float(info.step) < 1.0)
    assert damped > 0


class DoubleWell(Potential):
    """U = sum_i depth (theta_i^2 - 1)^2 / 4 + theta_i^2 / 2: curvature 1 - depth at the origin."""

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
        variance = jnp.sum(sqrt_cov**2, axis=1)
        grad = self.depth * (mean**3 + 3.0 * mean * variance - mean) + mean
        return Expectations(grad, jnp.diag(self.depth * (3.0 * (mean**2 + variance) - 1.0) + 1.0))

    def largest_curvature(self, data, theta, sqrt_cov=None):
        return self.depth * 3.0 * jnp.max(theta**2) + 1.0


def double_well(depth, dim=2):
    return DoubleWell(jnp.asarray(depth), jnp.asarray(1.0), Prior(jnp.zeros(dim), jnp.eye(dim)))


@pytest.mark.parametrize("depth", [5.0, 100.0, 1e4])
def test_an_indefinite_curvature_never_makes_the_precision_indefinite(depth):
    posterior = Natural(double_well(depth), jnp.asarray(1.0), 2)
    # Narrow and beside the top of the hill: the expected Hessian is negative.
    state = posterior.init(jax.random.key(0))._replace(
        mean=jnp.asarray([0.1, -0.2]), sqrt_cov=0.05 * jnp.eye(2), precision=400.0 * jnp.eye(2)
    )
    damped = []
    for i in range(40):
        state, info = update(posterior, jax.random.key(i), state, nothing(2))
        assert not info.rejected
        assert np.linalg.eigvalsh(np.asarray(state.precision))[0] > 0.0
        damped.append(bool(info.step_capped))
    assert damped[0]
    # It ends at a stationary point of the objective: E grad U = 0 and E hess U = P. At depth 5 that is a wide Gaussian
    # over both wells, around which full steps would swing; damped ones stay within 1e-3 nats of it.
    grad, hessian = posterior.potential.expectations(None, None, state.mean, state.sqrt_cov)
    assert np.linalg.norm(state.sqrt_cov.T @ grad) < 0.01
    np.testing.assert_allclose(state.sqrt_cov.T @ hessian @ state.sqrt_cov, np.eye(2), atol=0.07)


@pytest.mark.parametrize("step_size", [0.0, -0.5, 1.5, float("nan")])
def test_a_step_size_outside_its_range_is_refused(step_size):
    with pytest.raises(ValueError, match="step_size must be"):
        vits.algorithms.vits_ng(vits.models.linear(2), step_size=step_size)


def test_it_works_in_double_precision(x64):
    features, rewards = logistic_data(3, 30, scale=2.0, seed=0)
    policy = vits.algorithms.vits_ng(vits.models.logistic(3), num_steps=30, tolerance=0.0, capacity=32)
    state, _ = learn(policy.posterior, features, rewards)
    assert state.mean.dtype == jnp.float64
    grad, _ = expected_derivatives(features, rewards, 1.0, np.eye(3), state.mean, state.sqrt_cov)
    assert np.linalg.norm(grad) < 1e-4


@pytest.mark.parametrize("tolerance", [0.05, 0.5])
def test_a_round_ends_within_the_tolerance(x64, tolerance):
    """The gradient of the mean, in standard deviations, is part of the distance that the tolerance is about."""
    features, rewards = logistic_data(3, 30, scale=2.0, seed=0)
    policy = vits.algorithms.vits_ng(vits.models.logistic(3), num_steps=30, tolerance=tolerance, capacity=32)
    state, _ = learn(policy.posterior, features, rewards)
    grad, _ = expected_derivatives(features, rewards, 1.0, np.eye(3), state.mean, state.sqrt_cov)
    assert np.linalg.norm(state.sqrt_cov.T @ grad) <= tolerance


def test_on_minibatches_the_mean_jitters_by_no_more_than_a_posterior_standard_deviation():
    dim, count, runs = 4, 300, 20
    rows = [jnp.asarray(x, float) for x in logistic_data(dim, count, scale=3.0, seed=3)]
    exact, sampled = (
        vits.algorithms.vits_ng(vits.models.logistic(dim), capacity=count, minibatch=m).posterior for m in (None, 50)
    )
    optimum, _ = learn_rows(exact, jax.random.key(0), *rows)
    states, infos = jax.vmap(lambda key: learn_rows(sampled, key, *rows))(jax.random.split(jax.random.key(1), runs))
    assert not np.any(infos.rejected)
    sd, sampled_sd = (np.linalg.norm(np.asarray(state.sqrt_cov), axis=-1) for state in (optimum, states))
    jitter = np.sqrt(np.mean(((states.mean - optimum.mean[None]) / sd[None]) ** 2))
    assert 0.4 < jitter < 0.9  # 0.7 if U were quadratic
    assert np.all(np.abs(sampled_sd / sd - 1.0) < 0.2)


def test_where_expectations_are_estimated_steps_are_short_unless_asked_for():
    network = vits.models.mlp(2, hidden=(3,))
    assert float(vits.algorithms.vits_ng(vits.models.logistic(2)).posterior.step_size) == 1.0
    assert float(vits.algorithms.vits_ng(network).posterior.step_size) < 0.5
    assert float(vits.algorithms.vits_ng(network, step_size=0.7).posterior.step_size) == pytest.approx(0.7)
