"""An exact Gaussian on the last layer: against the closed form, and on worlds that a network has to learn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits.models.network import unflatten
from vits.types import Observation

ETA, LAM = 4.0, 0.5


def learned(model, rows, rewards, **options):
    policy = vits.make("last_layer_ts", model, inverse_temperature=ETA, prior_precision=LAM, capacity=64, **options)
    state, update = policy.init(jax.random.key(0)), eqx.filter_jit(policy.update)
    for t, (phi, r) in enumerate(zip(rows, rewards, strict=True)):
        state, info = update(jax.random.key(t), state, Observation(jnp.asarray(phi, float), jnp.asarray(r, float)))
        assert int(info.reason) == 0
    return policy, state


def closed_form(network, contexts, rewards):
    hidden = np.column_stack([jax.vmap(network.hidden)(jnp.asarray(contexts, float)), np.ones(len(contexts))])
    precision = ETA * (LAM * np.eye(hidden.shape[1]) + hidden.T @ hidden)
    return np.linalg.solve(precision, ETA * hidden.T @ rewards), np.linalg.inv(precision)


@pytest.mark.usefixtures("x64")
def test_given_the_body_the_last_layer_is_the_exact_posterior():
    rng = np.random.default_rng(0)
    rows, rewards = rng.normal(size=(30, 3)), rng.normal(size=30)
    policy, state = learned(vits.models.mlp(3, hidden=(5, 4)), rows, rewards)
    network = unflatten(policy.model.network, state.theta)
    mean, covariance = closed_form(network, rows, rewards)
    np.testing.assert_allclose(np.append(network.layers[-1].weight[0], network.layers[-1].bias), mean, rtol=1e-8)
    root = state.last_sqrt_cov[0]
    np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-8, atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_each_output_has_the_posterior_of_its_own_observations():
    rng = np.random.default_rng(1)
    contexts, arms, rewards = rng.normal(size=(30, 3)), rng.integers(0, 2, 30), rng.normal(size=30)
    policy, state = learned(vits.models.mlp(3, hidden=(4,), outputs=2), np.column_stack([contexts, arms]), rewards)
    network = unflatten(policy.model.network, state.theta)
    for arm in range(2):
        mean, covariance = closed_form(network, contexts[arms == arm], rewards[arms == arm])
        found = np.append(network.layers[-1].weight[arm], network.layers[-1].bias[arm])
        np.testing.assert_allclose(found, mean, rtol=1e-8)
        root = state.last_sqrt_cov[arm]
        np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-8, atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_draws_move_the_last_layer_alone_and_have_its_covariance():
    rng = np.random.default_rng(0)
    policy, state = learned(vits.models.mlp(3, hidden=(3,)), rng.normal(size=(10, 3)), rng.normal(size=10))
    draws = np.asarray(jax.vmap(policy.posterior.sample, (0, None))(jax.random.split(jax.random.key(0), 20_000), state))
    np.testing.assert_array_equal(draws[:, :-4], np.broadcast_to(state.theta[:-4], (20_000, draws.shape[1] - 4)))
    root = np.asarray(state.last_sqrt_cov[0])
    np.testing.assert_allclose(np.cov(draws[:, -4:].T), root @ root.T, atol=0.03)


@pytest.mark.usefixtures("x64")
def test_with_all_rows_the_body_has_the_curvature_of_all_data():
    """In each round Q is recomputed from all data: the prior and Gauss-Newton's matrix at the parameters."""
    rng = np.random.default_rng(0)
    model = vits.models.mlp(2, hidden=(3,))
    policy, state = learned(model, rng.normal(size=(6, 2)), rng.normal(size=6), minibatch=None, rank=13)
    potential = vits.make("vits_ng", model, inverse_temperature=ETA, prior_precision=LAM).posterior.potential
    truth = np.asarray(potential.hessian(state.data, state.theta))
    np.testing.assert_allclose(state.spread.matrix, truth, rtol=1e-6, atol=1e-8)
    body = np.linalg.inv(truth)[:-4, :-4]
    root = policy.posterior.moments(state).sqrt_cov
    np.testing.assert_allclose((root @ root.T)[:-4, :-4], body, rtol=1e-6)
    np.testing.assert_array_equal((root @ root.T)[:-4, -4:], 0.0)
    draws = np.asarray(jax.vmap(policy.posterior.sample, (0, None))(jax.random.split(jax.random.key(0), 20_000), state))
    units = np.sqrt(np.outer(np.diag(body), np.diag(body)))
    np.testing.assert_allclose(np.cov(draws[:, :-4].T) / units, body / units, atol=0.05)
    np.testing.assert_allclose(np.var(draws[:, -4:], axis=0), np.diag(root @ root.T)[-4:], rtol=0.05)
    np.testing.assert_allclose(policy.posterior.marginals(state).variances, np.diag(root @ root.T), rtol=1e-6)


def test_a_rank_leaves_the_last_layer_as_it_is_and_narrows_the_body():
    rng = np.random.default_rng(2)
    rows, rewards = rng.normal(size=(40, 3)), rng.normal(size=40)
    (_, point), (_, spread) = (learned(vits.models.mlp(3, hidden=(5,)), rows, rewards, **o) for o in ({}, {"rank": 4}))
    np.testing.assert_allclose(point.theta, spread.theta, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(point.last_sqrt_cov, spread.last_sqrt_cov, rtol=1e-3, atol=1e-4)
    variances = np.asarray(spread.spread.variances)
    assert np.all(variances <= 1.02 / (ETA * LAM))  # of P, the diagonal is exact; that of its inverse is not quite
    assert variances[:-6].mean() < 0.6 / (ETA * LAM)
    with pytest.raises(ValueError, match="rank must be at most the 26 parameters of the model, but is 27"):
        vits.make("last_layer_ts", vits.models.mlp(3, hidden=(5,)), rank=27)


def test_it_learns_what_no_linear_model_can():
    angles = np.linspace(0.0, 2.0 * np.pi, 120, endpoint=False)
    rows, labels = np.stack([np.cos(angles), np.sin(angles)], 1), (np.arange(120) // 30) % 2
    world = vits.environments.classification(rows, labels, encoding="head")
    policy = vits.make(
        "last_layer_ts",
        vits.models.mlp(2, hidden=(16,), outputs=2),
        inverse_temperature=30.0,
        prior_precision=0.05,
        learning_rate=0.02,
    )
    regret = np.asarray(vits.simulate(0, world, policy, 300, seeds=2).regret)
    assert np.all(np.sum(regret[:, 150:], axis=1) < 30.0)  # 75 for a policy that does not learn


def test_a_body_that_diverges_is_a_rejected_update():
    policy = vits.make("last_layer_ts", vits.models.mlp(2, hidden=(3,)), learning_rate=1e30, capacity=8)
    state = policy.init(jax.random.key(0))
    new, info = policy.update(jax.random.key(1), state, Observation(jnp.ones(2), jnp.ones(())))
    assert int(info.reason) > 0
    np.testing.assert_array_equal(new.theta, state.theta)


def test_an_agent_that_met_enormous_gradients_can_be_restored(tmp_path):
    """Adam's squared gradients must stay in the range that a saved file may have."""
    agent = vits.Agent("last_layer_ts", model=vits.models.mlp(3, hidden=(5,), activation="relu"))
    learned, rng = 0, np.random.default_rng(0)
    for _ in range(20):
        decision = agent.decide(1e8 * rng.normal(size=(4, 3)))
        try:
            agent.learn(decision, 1e3 * rng.normal())
            learned += 1
        except vits.agent.RejectedUpdate:
            pass
    agent.save(tmp_path / "agent")
    assert vits.Agent.load(tmp_path / "agent").diagnostics().observations == learned


def test_what_has_no_last_layer_is_refused():
    for model in (vits.models.linear(3), vits.models.logistic(3), vits.models.mlp(3, hidden=())):
        with pytest.raises(ValueError, match="last_layer_ts needs a network with a hidden layer"):
            vits.make("last_layer_ts", model)
    with pytest.raises(ValueError, match="needs a prior with one variance, or one for each parameter"):
        vits.make("last_layer_ts", vits.models.mlp(1, hidden=(1,)), prior=(0.0, np.eye(4)))
