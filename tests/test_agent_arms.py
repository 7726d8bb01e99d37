"""Rankings, arms with names that come and go, and the room that their data take."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.agents import ARMS, REWARDS, RNG, ROWS, assert_posterior, laplace, lin_ts, ridge

import vits
from vits.agent.snapshot import moved
from vits.history import buffer
from vits.history.paged import paged
from vits.types import Observation


def test_a_ranking_is_that_of_the_scores_and_learns_from_each_arm_that_was_seen():
    agent = lin_ts()
    decision = agent.decide(ARMS, k=3)
    assert decision.arms == tuple(np.argsort(-decision.scores).tolist())
    assert decision.arm == decision.arms[0]
    agent.learn(decision, [1.0, None, 0.5])
    played = [decision.arms[0], decision.arms[2]]
    assert_posterior(agent, ARMS[played], [1.0, 0.5])


def test_named_arms_with_a_feature_map_share_a_posterior():
    def phi(context, arm):
        return [context["x"], 1.0 if arm == "left" else -1.0]

    agent = lin_ts(features=phi, arms=["left", "right"])
    decision = agent.decide({"x": 2.0}, available=["right"])
    assert decision.arm == "right"
    agent.learn(decision, 1.0)
    assert_posterior(agent, [[2.0, -1.0]], [1.0])
    interval = agent.posterior(samples=4000).interval({"x": 0.0}, level=0.9)
    mean, covariance = ridge(np.array([[2.0, -1.0]]), np.array([1.0]))
    assert interval.arms == ("left", "right")
    spread = 1.645 * math.sqrt(covariance[1, 1])
    np.testing.assert_allclose(interval.lower, [mean[1] - spread, -mean[1] - spread], atol=0.15)
    np.testing.assert_allclose(interval.upper, [mean[1] + spread, -mean[1] + spread], atol=0.15)


def test_a_feature_map_may_return_the_same_array_again():
    shared = np.zeros(2, np.float32)

    def phi(context, arm):
        shared[:] = context, arm
        return shared

    class Features(dict):
        def __getitem__(self, arm):
            return phi(1.0, arm)

    agent, given, each = lin_ts(arms=[1, 2, 3], features=phi), lin_ts(), lin_ts(arms=[1, 2, 3])
    for decision in (
        agent.decide(1.0, k=3),
        given.decide(Features.fromkeys([1, 2, 3]), k=3),
        each.decide(Features.fromkeys([1, 2, 3]), k=3),
    ):
        assert decision.features[1] == decision.arm
    agent.partial_fit([[1.0, 2.0]], [1.0])
    interval = agent.posterior(samples=2).interval(1.0)
    assert len(set(interval.mean.tolist())) == 3


def test_a_late_reward_of_an_arm_that_is_gone_is_taken_where_all_arms_on_offer_are_stored():
    agent = vits.Agent(
        "fg_ts", vits.models.linear(2), arms=["a", "b"], features=lambda x, arm: [x, arm == "a"], num_arms=2
    )
    decision = agent.decide(1.0, available=["b"])
    agent.remove_arm("b")
    agent.learn(decision, 1.0)
    agent.learn_many([], [])
    found = agent.diagnostics()
    assert (found.unlearned, found.observations, found.pending) == (1, 0, 0)


def test_named_arms_without_one_have_a_posterior_each():
    agent = lin_ts(arms=["a", ("b", 1), 3])
    agent.partial_fit(ROWS[:6], REWARDS[:6], arms=["a", 3, "a", 3, 3, "a"])
    assert_posterior(agent, ROWS[[0, 2, 5]], REWARDS[[0, 2, 5]], arm="a")
    assert_posterior(agent, ROWS[[1, 3, 4]], REWARDS[[1, 3, 4]], arm=3)
    assert_posterior(agent, [], [], arm=("b", 1))
    decision = agent.decide({"a": [1.0, 0.0], 3: [0.0, 1.0]})
    assert decision.offered == ("a", 3)


def test_arms_come_and_go_without_touching_the_others():
    agent = lin_ts(arms=["a", "b"])
    agent.partial_fit(ROWS[:4], REWARDS[:4], arms=["a", "b", "a", "b"])
    late = agent.decide([1.0, 0.0], available=["b"])
    agent.remove_arm("b")
    for i in range(9):  # more than there is room for at first
        agent.add_arm(i)
    agent.add_arm("b")
    agent.learn(late, 5.0)  # of the b that is gone
    assert_posterior(agent, ROWS[[0, 2]], REWARDS[[0, 2]], arm="a")
    assert_posterior(agent, [], [], arm="b")
    found = agent.diagnostics()
    assert (found.unlearned, found.observations, found.pending) == (1, 4, 0)
    assert agent.arms == ("a", *range(9), "b")


def test_forgetting_an_arm_frees_its_pages_and_leaves_the_others_theirs():
    order = list("abcabcab" * 15)
    rows, rewards = RNG.normal(size=(len(order), 2)), RNG.integers(0, 2, len(order)).astype(float)
    agent, without_b = laplace(arms=["a", "b", "c"]), laplace(arms=["a", "c"])
    agent.partial_fit(rows, rewards, arms=order)
    before = agent.posterior("c", samples=2)
    agent.remove_arm("b")
    np.testing.assert_array_equal(agent.posterior("c", samples=2).mean, before.mean)
    agent.add_arm("b")
    others = [i for i, name in enumerate(order) if name != "b"]
    without_b.partial_fit(rows[others], rewards[others], arms=[order[i] for i in others])
    # b starts anew in the freed pages, a and c go on.
    for one in (agent, without_b):
        one.partial_fit(rows[:60], rewards[:60], arms=["a", "c"] * 30)
    agent.partial_fit(rows[:50], rewards[:50], arms=["b"] * 50)
    without_b.add_arm("b")
    without_b.partial_fit(rows[:50], rewards[:50], arms=["b"] * 50)
    for name in "abc":
        np.testing.assert_allclose(
            agent.posterior(name, samples=2).mean, without_b.posterior(name, samples=2).mean, atol=1e-4
        )


def test_a_history_that_grows_is_the_same_history():
    rows, rewards = RNG.normal(size=(200, 2)), RNG.integers(0, 2, 200).astype(float)
    small, large = laplace(capacity=128), laplace(capacity=256)
    choose = small._snapshot.chooser
    for agent in (small, large):
        for start in range(0, 200, 100):
            agent.partial_fit(rows[start : start + 100], rewards[start : start + 100])
    np.testing.assert_allclose(small.posterior(samples=2).mean, large.posterior(samples=2).mean, rtol=1e-5)
    assert small.diagnostics().capacity == 256
    assert small._snapshot.chooser is choose  # choosing is not compiled anew


@pytest.mark.parametrize(
    ("settings", "grows"),
    [
        ({}, True),
        ({"arms": ["a"]}, True),
        ({"arms": range(100)}, True),
        ({"window": 8}, False),
        ({"model": vits.models.linear(2)}, False),
        ({"algorithm": "lmc_ts", "arms": range(9)}, True),
        ({"algorithm": "vts", "model": vits.models.linear(2), "arms": ["a"]}, True),
        ({"algorithm": "vts", "model": vits.models.linear(2), "arms": ["a"], "num_components": 1}, False),
    ],
)
def test_it_is_known_which_agents_need_more_room(settings, grows):
    bounded = {"window", "fold_after"} & set(settings)
    room = {} if bounded else {"capacity": 128}
    agent = vits.Agent(**{"algorithm": "laplace_ts", "model": vits.models.logistic(2)} | settings | room)
    assert agent._snapshot.grows is grows
    assert (agent.diagnostics().capacity is None) is not grows


@pytest.mark.parametrize("by_columns", [False, True])
def test_a_pool_that_grows_keeps_the_rows_of_every_arm(by_columns):
    def total(history, arm):
        return history.of(jnp.asarray(arm)).sum(lambda x, y, weight: jnp.stack([weight @ y, weight @ x[:, 1]]))

    @jax.jit
    def append(history, arm, reward):
        return history.put(arm, history.of(arm).append(Observation(jnp.ones(2), reward)))

    def pool(capacity, num_arms):
        return paged(buffer(capacity=capacity).init(2, by_columns=by_columns), num_arms, page=4)

    small, large = pool(40, 3), pool(200, 20)
    rewards = {0: 0.0, 1: 0.0, 2: 0.0, 15: 0.0}
    for i in range(20):
        small = append(small, jnp.asarray(i % 2), jnp.asarray(float(i)))
        rewards[i % 2] += i
    grown = moved(small, large)
    for i in range(70):
        arm = (0, 2, 15)[i % 3]
        grown = append(grown, jnp.asarray(arm), jnp.asarray(float(i)))
        rewards[arm] += i
    assert not bool(jnp.any(grown.overflowed))
    for arm, count in {0: 34, 1: 10, 2: 23, 15: 23}.items():
        np.testing.assert_allclose(total(grown, arm), [rewards[arm], count])
    without = grown.without(0)
    for arm, count in {0: 0, 1: 10, 2: 23, 15: 23}.items():
        np.testing.assert_allclose(total(without, arm), [rewards[arm] if count else 0.0, count])
    assert int(without.used) == int(grown.used) - 9  # 34 rows, four to a page


def test_a_full_history_is_refused_where_that_was_asked_for():
    agent = laplace(capacity=3, when_full="raise")
    agent.partial_fit(ROWS[:3], [0.0, 1.0, 1.0])
    decision = agent.decide(ARMS)
    with pytest.raises(ValueError, match="capacity is 3 observations, but 4 would have to fit"):
        agent.learn(decision, 1.0)
    assert agent.diagnostics().pending == 1


def test_a_window_forgets_and_bounds_the_memory():
    agent, fresh = laplace(window=20), laplace(window=20)
    agent.partial_fit(ROWS, (REWARDS > 0).astype(float))
    memory = agent.diagnostics().memory_bytes
    agent.partial_fit(ROWS, (REWARDS > 0).astype(float))
    assert agent.diagnostics().memory_bytes == memory
    fresh.partial_fit(ROWS[-20:], (REWARDS[-20:] > 0).astype(float))
    np.testing.assert_allclose(agent.posterior(samples=2).mean, fresh.posterior(samples=2).mean, atol=0.02)
