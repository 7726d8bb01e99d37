"""Latency of agents: what must hold so that calls are fast, stay fast, and change nothing else in the process."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import vits
from vits.agent.settings import FOLD_AFTER

UNTOUCHED = """
import jax
before = dict(jax.config.values)
import vits
agent = vits.Agent("vits_ii", vits.models.logistic(2))
agent.learn(agent.decide([[1.0, 0.0], [0.0, 1.0]]), 1.0)
agent.posterior()
vits.simulate
assert dict(jax.config.values) == before, {k: v for k, v in jax.config.values.items() if v != before[k]}
assert jax.numpy.zeros(1).devices() == {jax.devices()[0]}
print("unchanged", len(before))
"""


def test_an_agent_leaves_every_setting_of_jax_as_it_was():
    found = subprocess.run([sys.executable, "-c", UNTOUCHED], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("unchanged")
    assert int(found.stdout.split()[1]) > 50


def scores_without_drawing_ahead(algorithm, model, arms, rewards):
    """The scores of an agent that is copied before each decision, so that nothing drawn before is left."""
    agent, found = vits.Agent(algorithm, model, seed=3), []
    for offered, reward in zip(arms, rewards, strict=True):
        agent._ahead = None
        decision = agent.decide(offered)
        found.append(decision.scores)
        agent.learn(decision, reward)
    return found


@pytest.mark.parametrize(
    ("algorithm", "model"), [("lin_ts", "linear"), ("vits_ii", "logistic"), ("lmc_ts", "logistic")]
)
def test_decisions_are_the_same_whether_or_not_they_were_drawn_ahead(algorithm, model):
    rng = np.random.default_rng(0)
    arms, rewards = rng.normal(size=(12, 5, 3)), rng.integers(2, size=12).astype(float)
    model = getattr(vits.models, model)(3)
    agent = vits.Agent(algorithm, model, seed=3)
    for offered, reward, expected in zip(
        arms, rewards, scores_without_drawing_ahead(algorithm, model, arms, rewards), strict=True
    ):
        decision = agent.decide(offered)
        np.testing.assert_array_equal(decision.scores, expected)
        agent.learn(decision, reward)
        assert agent._ahead.number == agent._ledger.draws


def test_what_was_drawn_ahead_is_not_used_after_an_update_or_for_another_decision():
    agent, arms = vits.Agent("lin_ts", vits.models.linear(3)), np.eye(3)
    first, second = agent.decide(arms), agent.decide(arms)
    agent.learn(first, 1.0)
    stale = agent._ahead
    agent.learn(second, 1.0)
    agent._ahead = stale  # as if the first update had been the slower one
    fresh = vits.Agent("lin_ts", vits.models.linear(3))
    for decision in [fresh.decide(arms), fresh.decide(arms)]:
        fresh.learn(decision, 1.0)
    np.testing.assert_array_equal(agent.decide(arms).scores, fresh.decide(arms).scores)
    scores = [agent.decide(arms).scores for _ in range(3)]  # no update between them: each has its own draw
    assert len(np.unique(scores, axis=0)) == 3


def test_the_scores_of_a_decision_are_those_of_its_policy():
    agent, arms = vits.Agent("vits_ii", vits.models.logistic(3), seed=5), np.random.default_rng(1).normal(size=(9, 3))
    agent.learn(agent.decide(arms), 1.0)
    current, number = agent._snapshot, agent._ledger.draws
    compiled = current.scores(agent._keys.choose, number, arms.astype(np.float32), None)
    np.testing.assert_allclose(agent.decide(arms).scores, compiled, rtol=1e-5)


@pytest.fixture
def compilations():
    """The events of compilations since the test began."""
    heard = []

    def listen(event, seconds, **rest):
        if "backend_compile" in event:
            heard.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield heard
    jax.monitoring.unregister_event_duration_listener(listen)


def offers(rounds, dim, most=64):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(rng.integers(1, most + 1), dim)) for _ in range(rounds)]


@pytest.mark.parametrize(
    ("algorithm", "model", "settings"),
    [
        ("vits_ii", "logistic", {}),
        ("lin_ts", "linear", {}),
        ("lmc_ts", "poisson", {}),
        ("fg_ts", "linear", {"num_arms": 64, "window": 8, "num_steps": 2}),
        ("lin_ucb", "linear", {}),
        ("uniform", "linear", {}),
    ],
)
def test_nothing_is_compiled_after_a_warm_up(compilations, algorithm, model, settings):
    agent = vits.Agent(algorithm, getattr(vits.models, model)(4), **settings)
    agent.warm_up(max_arms=64)
    before, start = agent.diagnostics(), len(compilations)
    assert before.observations == before.decisions == 0  # nothing was learned or decided
    waiting = []
    for arms in offers(200, 4):
        decision = agent.decide(arms, k=min(2, len(arms)))
        agent.learn(decision, [1.0] + [None] * (len(decision.arms) - 1) if len(decision.arms) > 1 else 1.0)
        waiting.append(agent.decide(arms))
    agent.learn_many(waiting, [0.0] * len(waiting))
    waiting[-1].propensity()
    if algorithm != "uniform":
        agent.posterior()
    assert len(compilations) == start


def test_a_warm_up_leaves_decisions_as_they_are():
    cold, warm = (vits.Agent("vits_ii", vits.models.logistic(3), seed=1) for _ in range(2))
    warm.warm_up(8)
    for arms in offers(5, 3, 8):
        decisions = [agent.decide(arms) for agent in (cold, warm)]
        np.testing.assert_array_equal(*[decision.scores for decision in decisions])
        for agent, decision in zip((cold, warm), decisions, strict=True):
            agent.learn(decision, 1.0)


def test_named_arms_with_their_own_posteriors_are_warmed_up(compilations):
    agent = vits.Agent("laplace_ts", vits.models.logistic(2), arms=["a", "b", "c"])
    agent.warm_up()
    start = len(compilations)
    for _ in range(20):
        agent.learn(agent.decide([1.0, 0.5]), 1.0)
    assert len(compilations) == start


@pytest.mark.parametrize(
    ("algorithm", "model", "settings", "kept"),
    [
        ("lin_ts", vits.models.linear(2), {}, "sums over all observations"),
        ("vits_ii", vits.models.linear(2), {}, "sums over all observations"),
        ("vits_ii", vits.models.logistic(2), {}, "the last 128 observations, and older ones as a quadratic form"),
        ("laplace_ts", vits.models.logistic(2), {}, "the last 128 observations, and older ones as a quadratic form"),
        ("vits_ii", vits.models.logistic(2), {"fold_after": 3}, "the last 3 observations, and older ones as a quad"),
        ("vits_ii", vits.models.logistic(2), {"window": 7}, "the last 7 observations"),
        ("vits_ii", vits.models.logistic(2), {"minibatch": 8}, "the last 1024 observations"),
        ("vits_ii", vits.models.logistic(2), {"capacity": 8}, "all observations"),
        ("vits_ii", vits.models.poisson(2), {}, "the last 1024 observations"),
        ("lmc_ts", vits.models.mlp(2, (2,)), {}, "the last 1024 observations"),
        ("ensemble_ts", vits.models.logistic(2), {}, "the last 1024 observations"),
        ("fg_ts", vits.models.linear(2), {}, "the last 1024 observations"),
    ],
)
def test_what_an_agent_stores(algorithm, model, settings, kept):
    found = vits.Agent(algorithm, model, **settings).diagnostics()
    assert found.storage.startswith(kept)
    assert (found.capacity is not None) == (kept == "all observations")


def test_an_option_that_allows_no_window_asks_for_a_capacity():
    with pytest.raises(ValueError, match="capacity"):
        vits.Agent("lmc_ts", vits.models.logistic(2), preconditioner="design")
    agent = vits.Agent("lmc_ts", vits.models.logistic(2), preconditioner="design", capacity=8)
    assert agent.diagnostics().storage == "all observations"
    with pytest.raises(ValueError, match="needs a capacity"):
        vits.Agent("lmc_ts", vits.models.logistic(2), when_full="raise")


def test_ten_thousand_rewards_compile_nothing_and_take_no_memory(compilations):
    agent, rng = vits.Agent("vits_ii", vits.models.logistic(8), seed=0), np.random.default_rng(0)
    agent.warm_up(8)
    start, memory = len(compilations), agent.diagnostics().memory_bytes
    for _ in range(5):
        waiting = [agent.decide(rng.normal(size=(5, 8))) for _ in range(2000)]
        agent.learn_many(waiting[:1500], rng.integers(2, size=1500).tolist())
        for decision in waiting[1500:]:
            agent.learn(decision, 1.0)
    found = agent.diagnostics()
    assert found.observations == 10_000
    assert len(compilations) == start
    assert found.memory_bytes == memory


def test_the_default_posterior_is_close_to_that_of_all_data():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(2000, 5))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    rewards = (rng.random(2000) < 1.0 / (1.0 + np.exp(-features @ rng.normal(size=5)))).astype(float)
    agents = [vits.Agent("vits_ng", vits.models.logistic(5), **room) for room in ({}, {"capacity": 2000})]
    for agent in agents:
        agent.partial_fit(features, rewards)
    bounded, full = (agent.posterior() for agent in agents)
    whiten = np.linalg.inv(np.linalg.cholesky(full.covariance))
    assert np.linalg.norm(whiten @ (bounded.mean - full.mean)) < 0.2
    ratios = np.linalg.eigvalsh(whiten @ bounded.covariance @ whiten.T)
    assert ratios.min() > 0.9
    assert ratios.max() < 1.1
    assert FOLD_AFTER < 2000
