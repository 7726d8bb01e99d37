"""Latency of agents: what must hold so that calls are fast, stay fast, and change nothing else in the process."""

import subprocess
import sys

import numpy as np
import pytest

import vits

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
