import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits.algorithms.ensemble import Copies, NoisyCopies
from vits.types import Observation


@eqx.filter_jit
def learn(posterior, key, features, rewards):
    def step(state, row):
        key, phi, r = row
        return posterior.update(key, state, Observation(phi, r))

    keys = jax.random.split(key, len(rewards))
    return jax.lax.scan(step, posterior.init(key), (keys, features, rewards))


def ensemble(model, **settings):
    return vits.algorithms.ensemble_ts(model, **settings).posterior


def linear_data(dim, count, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((count, dim)) * np.linspace(0.5, 1.5, dim)
    return jnp.asarray(features, float), jnp.asarray(features @ rng.standard_normal(dim) + rng.standard_normal(count))


def whitened(members, mean, precision):
    """The members in coordinates in which N(mean, precision^-1) is N(0, I)."""
    return (np.asarray(members, np.float64) - mean) @ np.linalg.cholesky(precision)


def test_before_any_observation_the_members_are_draws_from_the_prior():
    posterior = ensemble(vits.models.linear(2), num_members=4000, prior=([1.0, -2.0], [4.0, 0.25]))
    members = np.asarray(posterior.init(jax.random.key(0)).members)
    np.testing.assert_allclose(members.mean(axis=0), [1.0, -2.0], atol=4 * 2.0 / np.sqrt(4000))
    np.testing.assert_allclose(np.cov(members.T), np.diag([4.0, 0.25]), atol=0.4)


def test_each_member_of_a_linear_model_is_the_exact_mode_of_its_own_perturbed_data():
    dim, eta, lam = 5, 10.0, 0.5
    features, rewards = linear_data(dim, 50)
    posterior = ensemble(vits.models.linear(dim), inverse_temperature=eta, prior_precision=lam, num_members=20)
    state, infos = learn(posterior, jax.random.key(0), features, rewards)
    assert not np.any(infos.rejected | infos.step_capped)
    # (eta V) theta_m = eta b + P0 theta0_m + eta sum_s w_ms phi_s, and the last two are the tilts.
    phi, r = np.asarray(features, np.float64), np.asarray(rewards, np.float64)
    precision = eta * (lam * np.eye(dim) + phi.T @ phi)
    tilts = np.asarray(state.prior_tilts + state.seen.tilts, np.float64)
    exact = np.linalg.solve(precision, eta * (phi.T @ r)[:, None] + tilts.T).T
    assert np.max(np.linalg.norm(whitened(state.members - exact, 0.0, precision), axis=1)) < 0.05


def test_mean_and_covariance_of_many_linear_members_are_those_of_the_posterior():
    dim, eta, lam, num_members = 4, 10.0, 1.0, 4000
    features, rewards = linear_data(dim, 40)
    posterior = ensemble(vits.models.linear(dim), inverse_temperature=eta, prior_precision=lam, num_members=num_members)
    state, _ = learn(posterior, jax.random.key(1), features, rewards)
    phi, r = np.asarray(features, np.float64), np.asarray(rewards, np.float64)
    V = lam * np.eye(dim) + phi.T @ phi
    draws = whitened(state.members, np.linalg.solve(V, phi.T @ r), eta * V)
    # Four standard errors of the mean and of a covariance's entries.
    assert np.max(np.abs(draws.mean(axis=0))) < 4.0 / np.sqrt(num_members)
    assert np.max(np.abs(np.cov(draws.T) - np.eye(dim))) < 4.0 * np.sqrt(2.0 / num_members)


@pytest.mark.parametrize("num_members", [4, 40])
def test_its_moments_are_those_of_the_members(num_members):
    posterior = ensemble(vits.models.linear(6), num_members=num_members)
    state = posterior.init(jax.random.key(1))
    mean, sqrt_cov = posterior.moments(state)
    np.testing.assert_allclose(mean, np.mean(state.members, axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(sqrt_cov @ sqrt_cov.T, np.cov(np.asarray(state.members).T, bias=True), atol=1e-5)


def test_a_draw_is_each_member_equally_often():
    posterior = ensemble(vits.models.linear(1), num_members=5)
    state = posterior.init(jax.random.key(0))
    draws = jax.vmap(posterior.sample, (0, None))(jax.random.split(jax.random.key(1), 5000), state)
    counts = np.sum(np.asarray(draws) == np.asarray(state.members)[:, 0][None, :], axis=0)
    assert counts.sum() == 5000
    assert np.all(np.abs(counts - 1000) < 4 * np.sqrt(5000 * 0.2 * 0.8))


@pytest.mark.parametrize(("model", "mean_reward"), [(vits.models.logistic, 0.5), (vits.models.poisson, 1.0)])
def test_members_of_a_generalised_linear_model_spread_as_laplace_says(model, mean_reward):
    dim, count, num_members = 3, 400, 400
    rng = np.random.default_rng(0)
    features = rng.standard_normal((count, dim)) / np.sqrt(dim)
    f = features @ np.asarray([0.5, -1.0, 0.3])
    rewards = rng.random(count) < 1.0 / (1.0 + np.exp(-f)) if mean_reward == 0.5 else rng.poisson(np.exp(f))
    rows = jnp.asarray(features, float), jnp.asarray(rewards, float)
    state, infos = learn(ensemble(model(dim), num_members=num_members, capacity=count), jax.random.key(2), *rows)
    assert not np.any(infos.rejected)
    laplace = vits.algorithms.laplace_ts(model(dim), capacity=count).posterior
    reference, _ = learn(laplace, jax.random.key(3), *rows)
    precision = np.linalg.inv(np.asarray(reference.sqrt_cov @ reference.sqrt_cov.T, np.float64))
    draws = whitened(state.members, np.asarray(reference.mean), precision)
    # Noise drawn when the model still knew little is a little off: 0.1 and 10 %, and four standard errors.
    assert np.max(np.abs(draws.mean(axis=0))) < 0.1 + 4.0 / np.sqrt(num_members)
    spread = np.linalg.eigvalsh(np.cov(draws.T))
    assert np.all(np.abs(spread - 1.0) < 0.1 + 4.0 * np.sqrt(2.0 / num_members)), spread


def test_with_a_window_the_noise_that_left_it_no_longer_counts():
    dim, window, num_members = 2, 20, 2000
    features, rewards = linear_data(dim, 120)
    state, _ = learn(
        ensemble(vits.models.linear(dim), num_members=num_members, window=window), jax.random.key(0), features, rewards
    )
    phi, r = np.asarray(features, np.float64)[-window:], np.asarray(rewards, np.float64)[-window:]
    V = np.eye(dim) + phi.T @ phi
    draws = whitened(state.members, np.linalg.solve(V, phi.T @ r), V)
    assert np.max(np.abs(draws.mean(axis=0))) < 0.1
    # The noise has the right size, but its directions are those of the last rounds on average, not of the window.
    assert np.all(np.abs(np.linalg.eigvalsh(np.cov(draws.T)) - 1.0) < 0.6)


def test_members_of_any_other_model_keep_data_of_their_own_and_spread_as_the_posterior_does():
    """A linear likelihood given as a custom one takes the general way and must come to the same posterior."""
    dim, eta, num_members, count = 2, 5.0, 300, 30
    features, rewards = linear_data(dim, count)
    model = vits.models.custom(
        lambda theta, phi: phi @ theta, loss=lambda f, r: 0.5 * jnp.square(f - r), dim=dim, num_params=dim
    )
    posterior = ensemble(model, inverse_temperature=eta, num_members=num_members, capacity=count)
    assert isinstance(posterior.perturbation, NoisyCopies)
    state, infos = learn(posterior, jax.random.key(0), features, rewards)
    assert not np.any(infos.rejected)
    phi, r = np.asarray(features, np.float64), np.asarray(rewards, np.float64)
    V = np.eye(dim) + phi.T @ phi
    draws = whitened(state.members, np.linalg.solve(V, phi.T @ r), eta * V)
    assert np.max(np.abs(draws.mean(axis=0))) < 4.0 / np.sqrt(num_members)
    assert np.max(np.abs(np.cov(draws.T) - np.eye(dim))) < 4.0 * np.sqrt(2.0 / num_members)


def test_an_observation_without_room_leaves_all_copies_as_they_were():
    model = vits.models.custom(
        lambda theta, phi: phi @ theta, loss=lambda f, r: 0.5 * jnp.square(f - r), dim=1, num_params=1
    )
    posterior = ensemble(model, num_members=3, capacity=2)
    state, _ = learn(posterior, jax.random.key(0), jnp.ones((2, 1)), jnp.ones(2))
    assert isinstance(state.seen, Copies)
    new, info = eqx.filter_jit(posterior.update)(jax.random.key(9), state, Observation(jnp.ones(1), jnp.asarray(1.0)))
    assert info.rejected
    assert info.is_finite
    for before, after in zip(jax.tree.leaves(state), jax.tree.leaves(new), strict=True):
        assert np.array_equal(before, after)


def test_the_noise_of_a_reward_has_its_variance_under_the_model():
    observation = Observation(jnp.asarray([2.0]), jnp.asarray(1.0))
    theta = jnp.asarray([0.3])
    bernoulli = vits.models.custom(
        lambda theta, phi: jax.nn.sigmoid(phi @ theta),
        loss=lambda p, r: -r * jnp.log(p) - (1.0 - r) * jnp.log1p(-p),
        dim=1,
        num_params=1,
    )
    p = 1.0 / (1.0 + np.exp(-0.6))
    # l_ff = 1 / p^2 at r = 1 and l_fr = -1 / (p (1 - p)): on average over r their quotient is p (1 - p).
    at_one = NoisyCopies(bernoulli)._variance(theta, observation)
    at_zero = NoisyCopies(bernoulli)._variance(theta, observation._replace(reward=jnp.asarray(0.0)))
    np.testing.assert_allclose(p * at_one + (1.0 - p) * at_zero, p * (1.0 - p), rtol=1e-5)
    opaque = vits.models.custom(
        lambda theta, phi: phi @ theta, lambda theta, phi, r: jnp.abs(phi @ theta - r), dim=1, num_params=1
    )
    np.testing.assert_allclose(NoisyCopies(opaque)._variance(theta, observation), (1.0 - 0.6) ** 2, rtol=1e-5)


def test_an_ensemble_that_folds_is_close_to_one_with_all_data():
    """The same noise for both, so that member is compared with member."""
    model, count = vits.models.logistic(3), 300
    rng = np.random.default_rng(0)
    features = jnp.asarray(rng.standard_normal((count, 3)), float)
    rewards = jnp.asarray(rng.random(count) < 1.0 / (1.0 + np.exp(-features @ jnp.asarray([1.0, -1.0, 0.5]))), float)
    found = {}
    for name, options in {"folds": {"fold_after": 16}, "all": {"capacity": count}, "window": {"window": 16}}.items():
        posterior = ensemble(model, num_members=50, **options)
        state, infos = learn(posterior, jax.random.key(0), features, rewards)
        assert not np.any(infos.rejected)
        found[name] = np.asarray(state.members, np.float64)
    precision = np.linalg.inv(np.cov(found["all"].T))
    distance = {name: np.sqrt(np.mean(whitened(found[name] - found["all"], 0.0, precision) ** 2)) for name in found}
    assert distance["folds"] < 0.3 < 2.0 < distance["window"]
