"""The agent: what it decides, learns and refuses."""

import gc
import math
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest

import vits
from vits.agent import RejectedUpdate
from vits.agent.growth import moved
from vits.history import buffer
from vits.posteriors.paged import paged
from vits.potentials.feel_good import feel_good
from vits.types import Observation

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(40, 2)).astype(np.float32)
REWARDS = ROWS @ np.array([1.0, -0.5], np.float32) + 0.1 * RNG.normal(size=40).astype(np.float32)
ARMS = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])


def lin_ts(**settings):
    return vits.Agent("lin_ts", vits.models.linear(2), **settings)


def laplace(**settings):
    return vits.Agent("laplace_ts", vits.models.logistic(2), num_steps=5, **settings)


def ridge(rows, rewards):
    precision = np.eye(rows.shape[1]) + rows.T @ rows
    return np.linalg.solve(precision, rows.T @ rewards), np.linalg.inv(precision)


def assert_posterior(agent, rows, rewards, arm=None):
    belief = agent.posterior(arm, samples=2)
    mean, covariance = ridge(np.asarray(rows, float).reshape(-1, 2), np.asarray(rewards, float))
    np.testing.assert_allclose(belief.mean, mean, atol=2e-5)
    np.testing.assert_allclose(belief.covariance, covariance, atol=2e-5)


def test_rewards_that_come_late_and_out_of_order_give_the_exact_posterior():
    agent = lin_ts()
    decisions = [agent.decide(RNG.normal(size=(3 + i, 2))) for i in range(10)]
    rewards = RNG.normal(size=10)
    for i in RNG.permutation(10):
        agent.learn(decisions[i].id, rewards[i])
    assert_posterior(agent, [d.features for d in decisions], rewards)
    assert agent.diagnostics().pending == 0


def test_batches_and_logged_data_are_learned_like_single_rewards():
    logged, batched = lin_ts(), lin_ts()
    logged.partial_fit(ROWS, REWARDS)
    assert_posterior(logged, ROWS, REWARDS)
    decisions = [batched.decide([row]) for row in ROWS]
    batched.learn_many(decisions, REWARDS.tolist())
    assert_posterior(batched, ROWS, REWARDS)
    assert batched.diagnostics().observations == logged.diagnostics().observations == 40


def test_a_batch_longer_than_one_call_of_the_program_is_learned_whole():
    agent = lin_ts()
    agent.partial_fit(np.tile(ROWS, (7, 1)), np.tile(REWARDS, 7))
    assert_posterior(agent, np.tile(ROWS, (7, 1)), np.tile(REWARDS, 7))


def test_the_same_seed_gives_the_same_decisions_whatever_the_ids():
    def play(seed):
        agent, played = lin_ts(seed=seed), []
        for i in range(20):
            decision = agent.decide(ARMS)
            played.append(decision.arm)
            agent.learn(decision, float(i % 3))
        return played

    assert play(1) == play(1)
    assert play(1) != play(2)


def test_all_ways_to_give_the_same_features_give_the_same_decisions():
    pandas_frame, polars_frame = (
        pd.DataFrame(ARMS, columns=["age", "price"]),
        pl.DataFrame(ARMS, schema=["age", "price"]),
    )
    given = [ARMS, ARMS.astype(np.float32), ARMS.tolist(), jnp.asarray(ARMS), pandas_frame, polars_frame]
    given += [dict(enumerate(ARMS)), {i: pandas_frame.iloc[i] for i in range(len(ARMS))}]
    given += [{i: polars_frame[i] for i in range(len(ARMS))}, {i: polars_frame.row(i) for i in range(len(ARMS))}]
    decisions = [lin_ts(seed=3).decide(arms) for arms in given]
    assert len({decision.arm for decision in decisions}) == 1
    for decision in decisions:
        np.testing.assert_array_equal(decision.scores, decisions[0].scores)
        np.testing.assert_allclose(decision.features, ARMS[decision.index])


def test_the_application_may_reuse_its_array():
    agent, arms = lin_ts(), ARMS.copy()
    decision = agent.decide(arms)
    arms[:] = 1e3
    agent.learn(decision, 1.0)
    assert_posterior(agent, [ARMS[decision.index]], [1.0])


def test_a_changing_number_of_arms_compiles_for_powers_of_two_only():
    agent = vits.Agent("lin_ts", vits.models.linear(7))
    for count in range(1, 33):
        assert 0 <= agent.decide(np.ones((count, 7))).arm < count
    assert agent._core.live.mind.chooser.score._cache_size() == 3  # 8, 16 and 32


def test_equal_arms_are_chosen_equally_often():
    agent = lin_ts()
    chosen = np.bincount([agent.decide(np.ones((4, 2))).arm for _ in range(800)], minlength=4)
    assert np.all(np.abs(chosen - 200) < 4.0 * math.sqrt(800 * 0.25 * 0.75))


def test_propensity_is_that_of_two_gaussians_and_says_how_sure_it_is():
    agent = lin_ts()
    agent.partial_fit([[1.0, 0.0]] * 3, [1.0, 0.5, 0.9])
    decision = agent.decide(np.eye(2))
    # mean (0.6, 0), variances 1/4 and 1: P(theta_0 > theta_1) = Phi(0.6 / sqrt(1.25))
    first = 0.5 * (1.0 + math.erf(0.6 / math.sqrt(1.25) / math.sqrt(2.0)))
    truth = first if decision.arm == 0 else 1.0 - first
    found = decision.propensity(samples=2000)
    assert abs(found.estimate - truth) < 4.0 * found.stderr
    assert found.stderr == pytest.approx(math.sqrt(truth * (1.0 - truth) / 2000), rel=0.1)
    # It is the state of the decision that counts, not what was learned since.
    agent.partial_fit([[1.0, 0.0]] * 50, [9.0] * 50)
    assert decision.propensity(samples=2000) == found


def test_a_decision_that_is_kept_does_not_keep_the_history():
    agent = laplace()
    decision = agent.decide(ARMS)
    history = weakref.ref(max(agent._core.live.mind.state_arrays, key=lambda array: array.size))
    agent.learn(decision, 1.0)
    gc.collect()
    assert history() is None
    assert 0.0 < decision.propensity(samples=50).estimate < 1.0


def test_propensity_never_claims_certainty():
    found = vits.Agent("greedy", vits.models.linear(2)).decide([[1.0, 0.0], [0.0, 1.0]]).propensity(samples=100)
    assert found.stderr > 0.0
    agent = vits.Agent("lin_ts", vits.models.linear(2), inverse_temperature=1e6)
    found = agent.decide([[1.0, 0.0], [1e3, 0.0]]).propensity(samples=100)
    assert 0.0 < found.estimate < 1.0


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
    choose = small._core.live.mind.chooser
    for agent in (small, large):
        for start in range(0, 200, 100):
            agent.partial_fit(rows[start : start + 100], rewards[start : start + 100])
    np.testing.assert_allclose(small.posterior(samples=2).mean, large.posterior(samples=2).mean, rtol=1e-5)
    assert small.diagnostics().capacity == 256
    assert small._core.live.mind.chooser is choose  # choosing is not compiled anew


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
    agent = vits.Agent(**{"algorithm": "laplace_ts", "model": vits.models.logistic(2)} | settings)
    assert agent._core.live.mind.grows is grows
    assert (agent.diagnostics().capacity is None) is not grows


def test_a_pool_that_grows_keeps_the_rows_of_every_arm():
    def total(history, arm):
        return history.of(jnp.asarray(arm)).sum(lambda x, y, weight: jnp.stack([weight @ y, jnp.sum(weight)]))

    @jax.jit
    def append(history, arm, reward):
        return history.put(arm, history.of(arm).append(Observation(jnp.ones(2), reward)))

    small, large = paged(buffer(capacity=40).init(2), 3, page=4), paged(buffer(capacity=200).init(2), 20, page=4)
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
    slow, decision = agent._core.absorb, agent.decide(ARMS)

    def absorb(*observations):
        slow(*observations)
        for _ in range(3):
            agent.decide(ARMS)

    monkeypatch.setattr(agent._core, "absorb", absorb)
    agent.learn(decision, 1.0)
    found = agent.diagnostics()
    assert (found.decisions, found.observations, found.pending, found.expired) == (4, 1, 2, 1)


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
        (lambda a: a.learn(a.decide(ARMS), math.inf), "the reward must be finite"),
        (lambda a: a.learn(a.decide(ARMS), "much"), "the reward must be a number, but is 'much'"),
        (lambda a: a.learn(a.decide(ARMS), 1e300), "the reward must fit into float32, but is 1e\\+300"),
        (lambda a: a.learn(a.decide(ARMS), [1.0, 2.0]), r"the reward must have shape \(\)"),
        (lambda a: a.learn(a.decide(ARMS, k=2), 1.0), "a ranking of 2 arms needs 2 rewards"),
        (lambda a: a.learn_many([a.decide(ARMS).id] * 2, [1.0, 1.0]), "a decision is given twice"),
        (lambda a: a.learn_many([a.decide(ARMS)], []), "there must be 1 rewards, one for each decision, but are 0"),
        (lambda a: a.partial_fit(ROWS, REWARDS[:3]), r"rewards must have shape \(40,\), but has shape \(3,\)"),
        (lambda a: a.partial_fit(ROWS, REWARDS, arms=["a"] * 40), "arms must name each row's arm where"),
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
    assert_posterior(agent, [], [])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a: a.decide([1.0, 2.0], available=["c"]), "unknown arm 'c'; known: 'a', 'b'"),
        (lambda a: a.decide([1.0, 2.0], available="a"), "available must be a collection of arms, but is 'a'"),
        (lambda a: a.decide([1.0]), r"the context must have shape \(2,\), but has shape \(1,\)"),
        (lambda a: a.decide({"c": [1.0, 2.0]}), "unknown arm 'c'"),
        (lambda a: a.add_arm("a"), "arm 'a' is there already"),
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
        ({"algorithm": "lin_ts", "window": 10}, "unknown hyperparameter of lin_ts 'window'"),
        ({"arms": ["a", "a"]}, "arms must have different names"),
        ({"arms": "ab"}, "arms must be a collection of names, but is 'ab'"),
        ({"seed": 2**40}, "seed must be below 2\\^32, but is 1099511627776"),
        ({"seed": -1}, "seed must be a whole number of at least 0, but is -1"),
        ({"capacity": 0}, "capacity must be a whole number of at least 1, but is 0"),
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


def test_padded_menus_are_the_menus_of_feel_good_sampling():
    model = vits.models.linear(2)
    base = vits.make("vits_ii", model).posterior.potential
    potential = feel_good(base, model, weight=0.1, cap=10.0, smoothing=0.5, num_arms=8)
    arms = jnp.asarray(ARMS, float)
    exact = Observation(arms[0], jnp.asarray(1.0), 0, arms)
    padded = Observation(arms[0], jnp.asarray(1.0), 0, jnp.pad(arms, ((0, 3), (0, 0))), jnp.asarray(3))
    theta = jnp.asarray([0.3, -0.2])
    np.testing.assert_array_equal(
        potential.grad(potential.observe(potential.init(), exact), theta),
        potential.grad(potential.observe(potential.init(), padded), theta),
    )


def test_feel_good_agents_take_any_number_of_arms_up_to_theirs():
    agent = vits.Agent("fg_ts", vits.models.linear(2), num_arms=4, num_steps=1)
    assert agent.decide(np.ones((4, 2))).arm in range(4)
    with pytest.raises(ValueError, match="num_arms must be at least the 5 arms on offer, but is 4"):
        agent.decide(np.ones((5, 2)))
    with pytest.raises(ValueError, match="fg_ts learns from all arms on offer"):
        agent.partial_fit(ROWS, REWARDS)


def test_the_posterior_of_a_chain_comes_from_walking_on():
    agent = vits.Agent("lmc_ts", vits.models.linear(2), step_size=0.2)
    agent.partial_fit(ROWS, REWARDS)
    belief = agent.posterior(samples=2000)
    mean, covariance = ridge(ROWS.astype(float), REWARDS.astype(float))
    assert not belief.exact
    np.testing.assert_allclose(belief.mean, mean, atol=0.15 * math.sqrt(covariance[0, 0]))
    np.testing.assert_allclose(belief.covariance, covariance, atol=0.25 * covariance[0, 0])


def test_uniform_agents_choose_by_chance_and_have_no_posterior():
    agent = vits.Agent("uniform", vits.models.linear(2), arms=["a", "b"])
    chosen = [agent.decide([0.0, 0.0]).arm for _ in range(200)]
    assert 60 < chosen.count("a") < 140
    agent.learn(agent.decide([0.0, 0.0]), 1.0)
    with pytest.raises(ValueError, match="uniform has no posterior"):
        agent.posterior()


def test_a_fork_goes_its_own_way_and_knows_the_decisions_that_are_pending():
    agent = lin_ts(seed=0)
    agent.partial_fit(ROWS[:5], REWARDS[:5])
    pending = agent.decide(ARMS)
    fork = agent.fork(seed=1)
    fork.learn(pending, 2.0)
    assert_posterior(agent, ROWS[:5], REWARDS[:5])
    agent.learn(pending, 1.0)
    assert_posterior(agent, np.vstack([ROWS[:5], pending.features]), [*REWARDS[:5], 1.0])
    assert_posterior(fork, np.vstack([ROWS[:5], pending.features]), [*REWARDS[:5], 2.0])
    with pytest.raises(ValueError, match="unknown decision"):
        fork.learn(agent.decide(ARMS).id, 1.0)
    assert [agent.decide(ARMS).arm for _ in range(20)] != [fork.decide(ARMS).arm for _ in range(20)]


def test_it_says_what_it_is():
    agent = lin_ts(arms=["<b>", "c"])
    agent.decide([1.0, 0.0])
    assert repr(agent) == "Agent(lin_ts, linear(2), arms=['<b>', 'c']: 0 learned, 1 pending)"
    assert "&lt;b&gt;" in agent._repr_html_()
    assert "<td>1</td>" in agent._repr_html_()
    assert "arm=" in repr(agent.decide([1.0, 0.0]))


def test_it_works_in_double_precision(x64):
    agent = lin_ts()
    agent.partial_fit(ROWS.astype(float), REWARDS.astype(float))
    mean, _ = ridge(ROWS.astype(float), REWARDS.astype(float))
    np.testing.assert_allclose(agent.posterior(samples=2).mean, mean, rtol=1e-12)
    assert agent.decide(ARMS).scores.dtype == np.float64


def test_the_agent_plays_well():
    agent, theta = vits.Agent("vits_ii", vits.models.linear(2), inverse_temperature=100.0), np.array([1.0, -0.5])
    rng = np.random.default_rng(1)
    regret = []
    for _ in range(60):
        arms = rng.normal(size=(5, 2))
        decision = agent.decide(arms)
        agent.learn(decision, arms[decision.arm] @ theta + 0.1 * rng.normal())
        regret.append(np.max(arms @ theta) - arms[decision.arm] @ theta)
    assert np.mean(regret[20:]) < 0.02
    assert jax.tree.leaves(agent._core.live.mind.view)[0].shape == (2,)
