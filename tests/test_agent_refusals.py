"""What an agent refuses, and what it forgets, in words and in numbers."""

import functools
import math
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from tests.agents import ARMS, REWARDS, ROWS, assert_posterior, lin_ts

import vits
from vits.agent import RejectedUpdate
from vits.agent import errors as agent_errors
from vits.agent.snapshot import Snapshot


def test_the_oldest_pending_decisions_expire():
    agent = lin_ts(max_pending=3)
    ids = [agent.decide(ARMS).id for _ in range(5)]
    found = agent.diagnostics()
    assert (found.decisions, found.pending, found.expired) == (5, 3, 2)
    with pytest.raises(ValueError, match=r"is no longer pending.*only 3 decisions may wait"):
        agent.learn(ids[1], 1.0)
    agent.learn(ids[2], 1.0)
    with pytest.raises(ValueError, match="was given already"):
        agent.learn(ids[2], 1.0)
    for unknown in ("nonsense", ids[0].split("-")[0] + "-99", lin_ts().decide(ARMS).id):
        with pytest.raises(ValueError, match="unknown decision"):
            agent.learn(unknown, 1.0)
    assert agent.diagnostics().observations == 1


def test_a_decision_that_expires_while_it_is_being_learned_counts_as_learned(monkeypatch):
    agent = lin_ts(max_pending=2)
    learned, decision = Snapshot.learned, agent.decide(ARMS)

    def slow(self, *observations, **rest):
        change = learned(self, *observations, **rest)
        for _ in range(3):
            agent.decide(ARMS)
        return change

    monkeypatch.setattr(Snapshot, "learned", slow)
    agent.learn(decision, 1.0)
    found = agent.diagnostics()
    assert (found.decisions, found.observations, found.pending, found.expired) == (4, 1, 2, 1)


def run_without_type_checks(module):
    """Run a module of the tests, which wrap all functions of the package in type checks, without them."""
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-m", module], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_arguments_of_the_wrong_type_are_refused_in_one_sentence():
    run_without_type_checks("tests.wrong_types")


def test_sizes_and_seeds_may_be_numpy_integers():
    run_without_type_checks("tests.numpy_sizes")


def test_each_refusal_is_an_error_of_its_own():
    agent = lin_ts(max_pending=1)
    expired, decision = agent.decide(ARMS), agent.decide(ARMS)
    calls = {
        agent_errors.UnknownDecision: lambda: agent.learn("no-such-id", 1.0),
        agent_errors.ExpiredDecision: lambda: agent.learn(expired, 1.0),
        agent_errors.InvalidReward: lambda: agent.learn(decision, math.nan),
        agent_errors.RewardGivenAlready: lambda: [agent.learn(decision, 1.0), agent.learn(decision, 1.0)],
    }
    for kind, call in calls.items():
        assert issubclass(kind, ValueError)
        with pytest.raises(kind) as error:
            call()
        assert error.type is kind
    for name in ("CapacityFull", "ForkedProcess", "RejectedUpdate", *(kind.__name__ for kind in calls)):
        assert getattr(vits.agent, name) is getattr(agent_errors, name)
    for broken in (1.5, "1", None, [1.0]):
        logistic = vits.Agent("laplace_ts", vits.models.logistic(2))
        with pytest.raises(agent_errors.InvalidReward):
            logistic.learn(logistic.decide(ARMS), broken)


def test_rewards_can_be_given_by_arm():
    agent, named = lin_ts(), lin_ts(arms=["a", "b", "c"])
    decision = agent.decide(ARMS, k=3)
    agent.learn(decision, {0: 1.0, 2: 0.5})
    assert_posterior(agent, ARMS[[0, 2]], [1.0, 0.5])
    decision = agent.decide({"x": [1.0, 1.0], "y": [2.0, 1.0]}, k=2)
    agent.learn(decision.id, {"y": 3.0, "x": None})
    assert_posterior(agent, [*ARMS[[0, 2]], [2.0, 1.0]], [1.0, 0.5, 3.0])
    decision = named.decide([1.0, 2.0], k=3)
    named.learn(decision.id, {"b": 2.0})
    assert_posterior(named, [[1.0, 2.0]], [2.0], arm="b")
    assert_posterior(named, [], [], arm="a")
    decision = named.decide([1.0, 2.0], available=["a"])
    named.learn(decision, {"a": 4.0})
    assert_posterior(named, [[1.0, 2.0]], [4.0], arm="a")


def test_many_rewards_can_be_given_by_decision():
    agent = lin_ts()
    decisions = [agent.decide([row]) for row in ROWS[:4]]
    agent.learn_many({decision.id: float(reward) for decision, reward in zip(decisions[:2], REWARDS, strict=False)})
    given = {decision: float(reward) for decision, reward in zip(decisions[2:], REWARDS[2:4], strict=True)}
    agent.learn_many(given.keys(), given.values())
    assert_posterior(agent, ROWS[:4], REWARDS[:4])


def test_names_of_arms_in_a_ranking_are_saved(tmp_path):
    agent = lin_ts()
    rows, mapped, odd = (
        agent.decide(ARMS, k=2),
        agent.decide({("x", 1): [1.0, 0.0], "y": [0.0, 1.0]}, k=2),
        agent.decide({frozenset("x"): [1.0, 0.0], "y": [0.0, 1.0]}, k=2),
    )
    agent.save(tmp_path / "agent")
    loaded = vits.Agent.load(tmp_path / "agent")
    loaded.learn(rows.id, {rows.arm: 1.0})
    loaded.learn(mapped.id, {("x", 1): 2.0})
    with pytest.raises(ValueError, match="names of the arms were not saved with this decision"):
        loaded.learn(odd.id, {"y": 1.0})
    loaded.learn(odd.id, [None, 1.0])
    assert_posterior(loaded, [ARMS[rows.arm], [1.0, 0.0], odd_second(odd)], [1.0, 2.0, 1.0])


def odd_second(decision):
    return [0.0, 1.0] if decision.arms[1] == "y" else [1.0, 0.0]


def test_a_change_of_precision_after_the_agent_was_made_is_refused(x64):
    agent = lin_ts()
    decision = agent.decide(ARMS)
    calls = (
        lambda: agent.decide(ARMS),
        lambda: agent.learn(decision, 1.0),
        lambda: agent.partial_fit(ROWS, REWARDS),
        lambda: agent.posterior(),
        lambda: agent.fork(1),
    )
    for call in calls:
        with jax.enable_x64(False), pytest.raises(ValueError, match="computes in float64, but JAX was set to another"):
            call()
    agent.learn(decision, 1.0)
    assert agent.diagnostics().decisions == 1


@pytest.mark.parametrize("algorithm", ["greedy", "lin_ucb", "uniform"])
def test_baselines_take_named_arms_like_the_others(algorithm):
    agent = vits.Agent(algorithm, vits.models.linear(2), arms=["a", "b"])
    for row, reward in zip(ROWS[:6], REWARDS, strict=False):
        agent.learn(agent.decide(row, available=["a"]), float(reward))
    agent.add_arm("c")
    agent.remove_arm("b")
    assert agent.decide(ROWS[0]).arm in ("a", "c")
    assert agent.diagnostics().observations == 6
    if algorithm == "uniform":
        with pytest.raises(ValueError, match="uniform has no posterior"):
            agent.posterior("a")
        return
    assert_posterior(agent, ROWS[:6], REWARDS[:6], arm="a")
    assert_posterior(agent, [], [], arm="c")


def test_a_rejected_update_is_raised_and_counted_and_leaves_no_trace():
    agent = lin_ts(prior_precision=1e-6)  # so wide a prior that the mean would go to 1.5e41
    prior = agent.posterior(samples=2)
    decision = agent.decide([[1e-3, 0.0]])
    with pytest.raises(RejectedUpdate, match="an update with reward 3e\\+38 was rejected"):
        agent.learn(decision, 3e38)
    found = agent.diagnostics()
    assert (found.rejected, found.observations, found.pending) == (1, 0, 1)
    good = agent.decide(ARMS)
    with pytest.raises(RejectedUpdate):
        agent.learn_many([good, decision], [1.0, 3e38])
    np.testing.assert_array_equal(agent.posterior(samples=2).mean, prior.mean)
    np.testing.assert_array_equal(agent.posterior(samples=2).covariance, prior.covariance)
    agent.learn_many([good, decision], [1.0, 1.0])
    found = agent.diagnostics()
    assert (found.rejected, found.observations, found.pending) == (2, 2, 0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: a.decide([[1.0, math.nan]]), "arms must be finite, but 1 of its 2 entries are NaN or infinite"),
        (lambda a: a.decide([[1.0, 1e300]]), "arms must be finite"),
        (lambda a: a.decide(np.ones((3, 4))), r"arms must have shape \(K, 2\), but has shape \(3, 4\)"),
        (lambda a: a.decide(np.ones(2)), r"arms must have shape \(K, 2\), but has shape \(2,\)"),
        (lambda a: a.decide(np.ones((0, 2))), "arms must have at least one row"),
        (lambda a: a.decide([["x", "y"]]), "arms must be numbers, but are"),
        (lambda a: a.decide(np.array([["x", 1.0], ["y", 2.0]], object)), "arms must be numbers, but are"),
        (lambda a: a.decide([[1.0, 2.0], [3.0]]), "arms must be numbers, but are"),
        (lambda a: a.decide({}), "there must be at least one arm to choose"),
        (lambda a: a.decide({"a": [1.0]}), r"the features of arm 'a' must have shape \(2,\)"),
        (lambda a: a.decide(ARMS, available=[]), "available must name at least one arm, but is empty"),
        (lambda a: a.decide(ARMS, available=[3]), "unknown arm 3; known: 0, 1, 2"),
        (lambda a: a.decide(ARMS, k=4), "k must be at most the 3 arms on offer, but is 4"),
        (lambda a: a.decide(ARMS, k=0), "k must be a whole number of at least 1, but is 0"),
        (lambda a: a.decide(np.ma.masked_values(ARMS, 0.5)), "arms must have no masked entries"),
        (lambda a: a.decide([np.ma.masked_values(ARMS[2], 0.5), ARMS[0]]), "arms must have no masked entries"),
        (lambda a: a.decide(np.array([["1", 2.0]], object)), "arms must be numbers, but are"),
        (lambda a: a.learn(a.decide(ARMS), None), "the reward must be a number, but is None"),
        (lambda a: a.learn(a.decide(ARMS), "1"), "the reward must be a number, but is '1'"),
        (lambda a: a.learn(a.decide(ARMS), -(10**5000)), "the reward must fit into float32, but its size is at least"),
        (lambda a: a.learn(a.decide(ARMS), b"1"), "the reward must be a number, but is b'1'"),
        (lambda a: a.learn(a.decide(ARMS), np.ma.masked), "the reward must be a number, but is masked"),
        (
            lambda a: jax.jit(functools.partial(a.learn, a.decide(ARMS)))(1.0),
            "the reward must be a number, but is traced by JAX: ",
        ),
        (lambda a: a.learn(a.decide(ARMS), 1j), "the reward must be a number, but is 1j"),
        (lambda a: a.learn(a.decide(ARMS, k=2), [None, None]), "the reward must be a number, but is None"),
        (lambda a: a.learn(a.decide(ARMS, k=2), {}), "the reward must be a number, but is None"),
        (lambda a: a.learn(a.decide(ARMS, k=2), {0.0, 1.0}), "a ranking of 2 arms needs 2 rewards"),
        (lambda a: a.learn(a.decide(ARMS, k=2), b"12"), "a ranking of 2 arms needs 2 rewards"),
        (lambda a: a.learn(a.decide(ARMS, k=2), {"x": 1.0}), "a reward is for arm 'x', but the decision ranked"),
        (lambda a: a.learn_many({a.decide(ARMS).id}, [1.0]), "decisions must be in order, such as a list, but are"),
        (lambda a: a.learn_many([a.decide(ARMS)], {1.0}), "rewards must be in order, such as a list, but are"),
        (lambda a: a.learn_many([a.decide(ARMS)], {"x": 1.0}), "rewards must be in order, such as a list, but are"),
        (lambda a: a.learn_many([a.decide(ARMS)], "1"), "rewards must be in order, such as a list, but are '1'"),
        (lambda a: a.learn_many(a.decide(ARMS).id, "1" * 14), "decisions must be in order, such as a list, but are"),
        (lambda a: a.learn_many([a.decide(ARMS)]), "rewards must be in order, such as a list, but are None"),
        (lambda a: a.partial_fit(ARMS, ["1", "2", "3"]), "rewards must be numbers, but are"),
        (lambda a: a.partial_fit(ARMS, np.array(["1", 2.0, 3.0], object)), "rewards must be numbers, but are"),
        (lambda a: a.partial_fit(ARMS, np.ma.masked_values([1.0, 2.0, 3.0], 2.0)), "rewards must have no masked"),
        (lambda a: a.learn(a.decide(ARMS), math.inf), "the reward must be finite"),
        (lambda a: a.learn(a.decide(ARMS), "much"), "the reward must be a number, but is 'much'"),
        (lambda a: a.learn(a.decide(ARMS), 1e300), "the reward must fit into float32, but is 1e\\+300"),
        (lambda a: a.learn(a.decide(ARMS), [1.0, 2.0]), r"the reward must have shape \(\)"),
        (lambda a: a.learn(a.decide(ARMS, k=2), 1.0), "a ranking of 2 arms needs 2 rewards"),
        (lambda a: a.learn_many([a.decide(ARMS).id] * 2, [1.0, 1.0]), "a decision is given twice"),
        (lambda a: a.learn_many([a.decide(ARMS)], []), "there must be 1 rewards, one for each decision, but are 0"),
        (lambda a: a.partial_fit(ROWS, REWARDS[:3]), r"rewards must have shape \(40,\), but has shape \(3,\)"),
        (lambda a: a.partial_fit(ROWS, REWARDS, arms=["a"] * 40), "arms must name the arm of each row if"),
        (lambda a: a.add_arm("a"), "only where they have names"),
        (lambda a: a.decide(ARMS).propensity(0), "samples must be a whole number of at least 1, but is 0"),
        (lambda a: a.posterior().interval(ARMS, level=1.5), "level must be between 0 and 1"),
    ],
)
def test_bad_input_is_refused_in_one_sentence_before_anything_changes(call, message):
    agent = lin_ts()
    with pytest.raises(ValueError, match=message) as error:
        call(agent)
    assert "\n" not in str(error.value)
    assert agent.diagnostics().observations == 0
    assert agent.diagnostics().decisions == agent.diagnostics().pending == agent._ledger.draws
    assert_posterior(agent, [], [])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: a.decide([1.0, 2.0], available=["c"]), "unknown arm 'c'; known: 'a', 'b'"),
        (lambda a: a.decide([1.0, 2.0], available="a"), "available must be a collection of arms, but is 'a'"),
        (lambda a: a.decide([1.0]), r"the context must have shape \(2,\), but has shape \(1,\)"),
        (lambda a: a.decide({"c": [1.0, 2.0]}), "unknown arm 'c'"),
        (lambda a: a.add_arm("a"), "arm 'a' is there already"),
        (lambda a: a.partial_fit(ROWS[:1], [1.0], arms="a"), "arms must be in order, such as a list, but are 'a'"),
        (lambda a: a.partial_fit(ROWS[:1], [1.0], arms={"a"}), "arms must be in order, such as a list, but are"),
        (lambda a: a.remove_arm("c"), "unknown arm 'c'; known: 'a', 'b'"),
        (lambda a: a.posterior(), "unknown arm None; known: 'a', 'b'"),
        (lambda a: a.partial_fit(ROWS[:1], [1.0], arms=["c"]), "unknown arm 'c'"),
        (lambda a: [a.remove_arm("a"), a.remove_arm("b"), a.decide([1.0, 2.0])], "there must be at least one arm"),
    ],
)
def test_names_that_nobody_knows_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(lin_ts(arms=["a", "b"]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"algorithm": "lin_tz"}, "unknown algorithm 'lin_tz'; did you mean 'lin_ts'"),
        ({"algorithm": "vts"}, "vts keeps one posterior for each arm"),
        ({"algorithm": "vts", "arms": ["a"], "num_arms": 3}, "num_arms must be left out"),
        ({"algorithm": "lin_ts", "fold_after": 10}, "unknown hyperparameter of lin_ts 'fold_after'"),
        ({"arms": ["a", "a"]}, "arms must have different names"),
        ({"arms": {"a", "b"}}, "arms must be in an order, such as a list, but are "),
        ({"arms": frozenset("a")}, "arms must be in an order, such as a list, but are "),
        ({"arms": "ab"}, "arms must be a collection of names, but is 'ab'"),
        ({"seed": 2**40}, "seed must be below 2\\^32, but is 1099511627776"),
        ({"seed": -1}, "seed must be a whole number of at least 0, but is -1"),
        ({"capacity": 0}, "capacity must be a whole number of at least 1, but is 0"),
        ({"window": 5, "capacity": 9}, "capacity must be left out where window is 5, but is 9"),
        ({"fold_after": 4, "capacity": 9}, "capacity must be left out where fold_after is 4, but is 9"),
        ({"window": 10**12}, "a history of 1,000,000,000,000 observations with 2 features needs .* a smaller window"),
        ({"max_pending": 0}, "max_pending must be a whole number of at least 1, but is 0"),
        ({"when_full": "burst"}, "unknown when_full 'burst'; known: grow, raise"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        vits.Agent(**{"algorithm": "vits_ii", "model": vits.models.linear(2)} | settings)


@pytest.mark.parametrize(("model", "reward"), [("logistic", 1.5), ("poisson", -1.0)])
def test_rewards_that_the_model_rules_out_are_refused(model, reward):
    agent = vits.Agent("laplace_ts", getattr(vits.models, model)(2))
    with pytest.raises(ValueError, match=f"(?i)the reward of a {model} model must"):
        agent.learn(agent.decide(ARMS), reward)
