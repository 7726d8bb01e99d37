"""The agent: what it decides and what it learns."""

import gc
import math
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from tests.agents import ARMS, REWARDS, RNG, ROWS, assert_posterior, laplace, lin_ts, ridge

import vits
from vits.algorithms.feel_good import feel_good_potential as feel_good
from vits.types import Observation


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
    agent = vits.Agent("greedy", vits.models.linear(7))
    for count in range(1, 33):
        assert 0 <= agent.decide(np.ones((count, 7))).arm < count
    assert agent._snapshot.chooser.score._cache_size() == 3  # 8, 16 and 32


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
    history = weakref.ref(max(agent._snapshot.state_arrays, key=lambda array: array.size))
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
    assert jax.tree.leaves(agent._snapshot.view)[0].shape == (2,)
