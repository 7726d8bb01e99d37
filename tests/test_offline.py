"""Agents judged by logs: against worlds whose truth is known, and the loader of the Open Bandit Dataset."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from examples import open_bandit

import vits
from vits import offline
from vits.datasets import obd
from vits.datasets.records import Edition

DATA = Path(os.environ.get("VITS_DATA") or Path(__file__).parent.parent.parent / "shared/data")
PAGE = (Path(__file__).parent.parent / "docs/real-data.md").read_text()
needs_data = pytest.mark.skipif(not (DATA / "obd").is_dir(), reason=f"the Open Bandit sample is not at {DATA}")
needs_tables = pytest.mark.skipif(not (DATA / "uci").is_dir(), reason=f"the UCI tables are not at {DATA}")

RATES = np.array([0.2, 0.8, 0.5])


def log_of(n, propensities=(1 / 3, 1 / 3, 1 / 3), seed=0):
    """Arms drawn with these probabilities; arm a pays Ber(RATES[a])."""
    rng = np.random.default_rng(seed)
    arms = rng.choice(3, size=n, p=propensities)
    return offline.Log(np.ones((n, 1)), arms, 1.0 * (rng.random(n) < RATES[arms]), np.asarray(propensities)[arms])


def agent_of(algorithm="lin_ts", **settings):
    return vits.Agent(algorithm, model=vits.models.linear(1), arms=range(3), **settings)


def taught(rewards=(0.0, 1.0, 0.0), **settings):
    agent = agent_of(**settings)
    agent.partial_fit(np.ones((3, 1)), rewards, arms=range(3))
    return agent


def test_replay_keeps_the_rounds_that_agree_and_learns_from_these_alone():
    agent, log = agent_of(seed=3), log_of(300)
    found = offline.rejection_replay(agent, log, seed=5)
    again, kept = agent.fork(5), []
    for context, arm, reward in zip(log.contexts, log.arms, log.rewards, strict=True):
        decision = again.decide(context)
        if decision.arm == arm:
            again.learn(decision, reward)
            kept.append(reward)
    assert (found.matched, found.rounds) == (len(kept), 300)
    assert found.mean == np.mean(kept)
    hits, misses = sum(kept) + 0.5, len(kept) - sum(kept) + 0.5  # Jeffreys' Beta
    assert found.stderr == pytest.approx(np.sqrt(hits * misses / (len(kept) + 1) ** 2 / (len(kept) + 2)))
    assert found.stderr == pytest.approx(np.std(kept, ddof=1) / np.sqrt(len(kept)), rel=0.05)
    assert found.agent.diagnostics().observations == len(kept)
    np.testing.assert_array_equal(found.agent.posterior(1).mean, again.posterior(1).mean)
    assert agent.diagnostics().decisions == 0


def test_replay_of_a_uniform_agent_keeps_one_round_in_three_and_finds_the_mean_rate():
    found = offline.rejection_replay(agent_of("uniform"), log_of(1500))
    assert abs(found.matched - 500) < 4 * np.sqrt(1500 * 2 / 9)
    assert abs(found.mean - RATES.mean()) < 4 * found.stderr


def test_replay_of_other_rewards_has_the_usual_standard_error():
    log = log_of(300)
    paid = log.rewards * np.linspace(1.0, 2.0, 300)
    kept = paid[log.arms == 1]
    knows = taught(inverse_temperature=1e6, rewards=(0.0, 2.0, 0.0))
    found = offline.rejection_replay(knows, log._replace(rewards=paid))
    assert found.matched == len(kept)
    assert found.stderr == pytest.approx(np.std(kept, ddof=1) / np.sqrt(len(kept)))


def test_replay_of_an_agent_that_knows_the_best_arm_finds_its_rate():
    found = offline.rejection_replay(taught(inverse_temperature=1000.0, rewards=(0.0, 2.0, 0.0)), log_of(600))
    assert abs(found.mean - 0.8) < 4 * found.stderr
    assert abs(found.matched - 200) < 4 * np.sqrt(600 * 2 / 9)


def test_weights_are_the_agents_probability_over_that_of_the_log():
    """Hand-worked: a uniform agent plays each of three arms with 1/3, the log with 1/2, 1/4 and 1/4."""
    log = offline.Log(np.ones((3, 1)), [0, 1, 2], [1.0, 2.0, 4.0], [0.5, 0.25, 0.25])
    found = offline.inverse_propensity(agent_of("uniform"), log, samples=7)
    weighted = np.array([2 / 3 * 1, 4 / 3 * 2, 4 / 3 * 4])
    assert found.mean == pytest.approx(weighted.mean())
    assert found.stderr == pytest.approx(weighted.std(ddof=1) / np.sqrt(3))
    assert found.effective == pytest.approx((10 / 3) ** 2 / (36 / 9))
    assert found.rounds == 3


def test_a_log_that_prefers_bad_arms_is_corrected():
    log = log_of(2000, (0.7, 0.1, 0.2))
    assert np.mean(log.rewards) < 0.4
    agent = taught()
    found = offline.inverse_propensity(agent, log, samples=50)
    rates = np.mean([agent.decide([1.0]).frequencies(50) for _ in range(50)], axis=0) @ RATES
    assert abs(found.mean - rates) < 4 * found.stderr
    assert found.effective < 2000
    assert agent.diagnostics().observations == 3


def test_the_frequencies_of_a_decision_sum_to_one_and_give_its_propensity():
    decision = taught().decide([1.0])
    frequencies = decision.frequencies(200)
    assert frequencies.sum() == pytest.approx(1.0)
    assert decision.propensity(200).estimate == pytest.approx((200 * frequencies[decision.index] + 0.5) / 201)


def test_arms_may_be_rows_of_a_table_that_changes_from_round_to_round():
    """The arm with the larger feature pays 1: an agent that has learned so earns it in every round that matches."""
    rng = np.random.default_rng(0)
    tables, arms = rng.normal(size=(60, 3, 1)), rng.integers(3, size=60)
    paid = 1.0 * (arms == tables[..., 0].argmax(axis=1))
    log = offline.Log(tables, arms, paid, np.full(60, 1 / 3))
    agent = vits.Agent("lin_ts", model=vits.models.linear(1), inverse_temperature=1e6)
    agent.partial_fit([[1.0], [-1.0]], [1.0, -1.0])
    found = offline.rejection_replay(agent, log)
    assert (found.mean, found.matched) == (1.0, int(paid.sum()))
    assert offline.inverse_propensity(agent, log, samples=5).mean == pytest.approx(3 * paid.mean())


GOOD = log_of(6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"arms": []}, "the number of rounds in the log must be a whole number of at least 1, but is 0"),
        ({"contexts": GOOD.contexts[:5]}, "there must be 6 contexts, one for each arm played, but are 5"),
        ({"rewards": GOOD.rewards[:5]}, r"rewards must have shape \(6,\), but has shape \(5,\)"),
        ({"rewards": np.full(6, np.nan)}, "rewards must be finite, but 6 of its 6 entries are NaN"),
        ({"propensities": np.array([1, 1, 0, 1, 1, 1.0])}, "at most 1, but that of round 2 is 0.0"),
        ({"propensities": np.array([1, 1, 1, 1, 1, 1.5])}, "at most 1, but that of round 5 is 1.5"),
        ({"arms": [7] * 6}, "in round 0 the log played arm 7, which is not among the 3 arms on offer"),
    ],
)
def test_logs_that_make_no_sense_are_refused(changed, message):
    for judge in (offline.rejection_replay, offline.inverse_propensity):
        with pytest.raises(ValueError, match=message):
            judge(agent_of(), GOOD._replace(**changed))


@pytest.mark.parametrize("evaluate", [offline.rejection_replay, offline.inverse_propensity])
@pytest.mark.parametrize(
    ("rewards", "propensities", "message"),
    [
        ([0.0, 2.0], [0.5, 0.5], "in round 1 the reward of .* but is 2"),
        ([0.0, -1.0], [0.5, 0.5], "in round 1 the reward of .* but is -1"),
        (["0", "1"], [0.5, 0.5], "rewards must be numbers, but are of type <U1"),
        ([0.0, 1.0], ["0.5", "0.5"], "propensities must be numbers, but are of type <U3"),
        ([0.0, 1.0], [True, True], "propensities must be numbers, but are of type bool"),
        ([0.0, 1.0], [0.5, 1e-310], "at most 1, but that of round 1 is 1e-310"),
    ],
)
def test_rewards_and_propensities_that_cannot_be_are_refused(evaluate, rewards, propensities, message):
    agent = vits.Agent("uniform", vits.models.logistic(1), arms=[0, 1])
    with pytest.raises(ValueError, match=message):
        evaluate(agent, offline.Log(np.ones((2, 1)), [0, 1], rewards, propensities))


def test_a_log_that_could_play_one_arm_only_says_nothing_about_others():
    agent = vits.Agent("uniform", vits.models.logistic(1), arms=[0, 1])
    log = offline.Log(np.ones((2, 1)), [0, 1], [0.0, 1.0], [0.5, 1.0])
    with pytest.raises(
        ValueError, match="in round 1 the log played its arm with probability 1, but 2 arms are on offer"
    ):
        offline.inverse_propensity(agent, log)


@pytest.mark.parametrize(
    ("propensities", "message"),
    [
        ([0.5, 0.25, 0.25, 0.5, 0.5, 0.5], "its propensities go from 0.25 to 0.5; inverse_propensity takes such a log"),
        ([0.25] * 6, "among the 3 arms .* each with probability 0.333333, but in round 0 that was 0.25"),
    ],
)
def test_replay_refuses_a_log_that_is_not_uniform_over_the_same_arms(propensities, message):
    with pytest.raises(ValueError, match=message):
        offline.rejection_replay(agent_of(), GOOD._replace(propensities=propensities))


def test_a_replay_without_a_match_is_an_error_and_no_error_of_zero_is_ever_claimed():
    knows = taught(inverse_temperature=1e6, rewards=(0.0, 2.0, 0.0))
    log = offline.Log(np.ones((2, 1)), [0, 2], [1.0, 1.0], [1 / 3, 1 / 3])
    with pytest.raises(ValueError, match="agreed in none of 2"):
        offline.rejection_replay(knows, log)
    never_clicked = offline.rejection_replay(knows, log._replace(arms=[1, 1], rewards=[0.0, 0.0]))
    assert (never_clicked.mean, never_clicked.matched) == (0.0, 2)
    assert never_clicked.stderr == pytest.approx(np.sqrt(0.5 * 2.5 / 9 / 4))
    assert np.isnan(offline.rejection_replay(knows, log._replace(arms=[1, 1], rewards=[2.5, 2.5])).stderr)
    assert np.isnan(offline.inverse_propensity(knows, log._replace(rewards=[0.0, 0.0])).stderr)


ITEMS = 34
USERS = [("u0", "v0", "w0", "x0"), ("u1", "v0", "w1", "x0"), ("u0", "v0", "w0", "x1")]
LOGGED = [(14, 3, 0, 0.0294), (33, 1, 1, 0.0294), (0, 2, 0, 0.0294)]


def written(folder, rows=None, header=None, items=ITEMS):
    """A small log as files."""
    folder = folder / "random" / "men"
    folder.mkdir(parents=True, exist_ok=True)
    names = ["", "timestamp", "item_id", "position", "click", "propensity_score"]
    names += [f"user_feature_{i}" for i in range(4)] + [f"user-item_affinity_{i}" for i in range(ITEMS)]
    if rows is None:
        rows = [
            ",".join(map(str, (i, "2019-11-24 00:00:34+00:00", *what, *user, *([0.0] * (ITEMS - 1)), float(i))))
            for i, (what, user) in enumerate(zip(LOGGED, USERS, strict=True))
        ]
    (folder / "men.csv").write_text("\n".join([",".join(names) if header is None else header, *rows]) + "\n")
    item = [f"{i},{i},{0.1 * i},a{i % 2},b,c{i % 3}" for i in range(items)]
    head = ",item_id,item_feature_0,item_feature_1,item_feature_2,item_feature_3"
    (folder / "item_context.csv").write_text("\n".join([head, *item]) + "\n")
    return folder


def test_a_log_is_read_as_it_was_written(tmp_path):
    written(tmp_path)
    found = obd.load(tmp_path, edition=Edition(4))
    np.testing.assert_array_equal(found.item, [14, 33, 0])
    np.testing.assert_array_equal(found.position, [3, 1, 2])
    np.testing.assert_array_equal(found.click, [0.0, 1.0, 0.0])
    np.testing.assert_array_equal(found.propensity, 0.0294)
    np.testing.assert_array_equal(found.affinity[:, -1], [0.0, 1.0, 2.0])
    assert found.user_values == (("u0", "u1"), ("v0",), ("w0", "w1"), ("x0", "x1"))
    np.testing.assert_array_equal(found.users, [[1, 0, 1, 1, 0, 1, 0], [0, 1, 1, 0, 1, 1, 0], [1, 0, 1, 1, 0, 0, 1]])
    assert found.items.shape == (ITEMS, 1 + 2 + 1 + 3)
    np.testing.assert_allclose(found.items[:, 0], 0.1 * np.arange(ITEMS))


def test_users_of_two_logs_can_be_coded_alike(tmp_path):
    written(tmp_path)
    found = obd.load(tmp_path, user_values=(("u1", "u9"), ("v0",), ("w0",), ("x0",)), edition=Edition(4))
    np.testing.assert_array_equal(found.users, [[0, 0, 1, 1, 1], [1, 0, 1, 0, 1], [0, 0, 1, 1, 0]])


def line(**changed):
    fields = {"item": 1, "position": 1, "click": 0, "propensity": 0.03} | changed
    affinity = ["0.0"] * (ITEMS - 1) + [str(changed.get("last", "0.0"))]
    values = ["0", "2019-11-24", *(str(fields[n]) for n in ("item", "position", "click", "propensity"))]
    return ",".join([*values, "u", "v", "w", "x", *affinity])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (line(item=34), "line 3: the item_id must be between 0 and 33, but is 34"),
        (line(item=1.5), "line 3: the item_id must be a whole number, but is 1.5"),
        (line(position=0), "line 3: the position must be between 1 and 3, but is 0"),
        (line(click=2), "line 3: the click must be between 0 and 1, but is 2"),
        (line(click="yes"), "line 3: the click must be a number, but is 'yes'"),
        (line(propensity=1.2), "line 3: the propensity_score must be between 0 and 1, but is 1.2"),
        (line(propensity=0.0), "line 3: the propensity_score of what was shown must be above 0, but is 0.0"),
        (line(last="nan"), "line 3: the user-item affinity 33 must be finite, but is nan"),
        (line() + ",0.0", "line 3: must have 44 columns, but has 45"),
        ("0,2019", "line 3: must have 44 columns, but has 2: '0,2019'"),
    ],
)
def test_the_first_fault_is_named_with_file_line_and_value(tmp_path, bad, message):
    written(tmp_path, [line(), bad, line()])
    with pytest.raises(ValueError, match=f"men.csv, {re.escape(message)}"):
        obd.load(tmp_path, edition=Edition(4))


def test_other_faults_of_the_files_are_refused(tmp_path):
    folder = written(tmp_path, header=",".join(["x"] * 44))
    with pytest.raises(ValueError, match=r"men.csv, line 1: the header must name a column '', but has 'x'"):
        obd.load(tmp_path)
    written(tmp_path)
    with pytest.raises(ValueError, match=r"men.csv must have 10001 lines, but has 4"):
        obd.load(tmp_path)
    written(tmp_path, items=33)
    with pytest.raises(ValueError, match=r"item_context.csv must have 35 lines, but has 34"):
        obd.load(tmp_path, edition=Edition(None))
    written(tmp_path, rows=[])
    with pytest.raises(ValueError, match="must have rows below its header, but has none"):
        obd.load(tmp_path, edition=Edition(None))
    (folder / "men.csv").write_text((folder / "men.csv").read_text()[:-3])
    with pytest.raises(ValueError, match=r"men.csv, line 1: the file breaks off after '.*affinity_'"):
        obd.load(tmp_path, edition=Edition(None))
    for wrong, message in (
        ({"policy": "ucb"}, "unknown policy 'ucb'"),
        ({"campaign": "kids"}, "unknown campaign 'kids'"),
        ({"user_values": (("u0",),)}, "user_values must be those of 4 columns, but are of 1"),
    ):
        with pytest.raises(ValueError, match=message):
            obd.load(tmp_path, **wrong)
    with pytest.raises(ValueError, match=r"holds no bts/men/men.csv.*published at https://"):
        obd.load(tmp_path, policy="bts")


@needs_data
def test_the_log_of_thompson_sampling_weighted_agrees_with_that_of_chance():
    """Both tell the click rate of choosing uniformly; the two logs are independent."""
    chance, thompson = obd.load(DATA, "random"), obd.load(DATA, "bts")
    assert (chance.click.sum(), thompson.click.sum()) == (46, 69)
    weights = 1 / 34 / thompson.propensity
    weighted = weights * thompson.click
    error = np.hypot(weighted.std() / 100, chance.click.std() / 100)
    assert abs(weighted.mean() - chance.click.mean()) < 4 * error
    few = slice(200)
    log = offline.Log(np.ones((200, 1)), thompson.item[few], thompson.click[few], thompson.propensity[few])
    uniform = vits.Agent("uniform", model=vits.models.linear(1), arms=range(34))
    assert offline.inverse_propensity(uniform, log, samples=2).mean == pytest.approx(weighted[few].mean())


@needs_data
def test_the_example_prints_both_estimates(monkeypatch, capsys):
    monkeypatch.setenv("VITS_DATA", str(DATA))
    monkeypatch.setattr(sys, "argv", ["open_bandit", "--rows", "300", "--seeds", "2"])
    open_bandit.main()
    printed = capsys.readouterr().out
    assert printed.count("clicks in 300 rounds") == 2
    assert printed.count("rounds matched; 2 seeds together") == printed.count("effective rounds") == 2


@needs_data
@needs_tables
def test_every_snippet_of_the_page_on_real_data_runs_in_order(monkeypatch, capsys):
    monkeypatch.setenv("VITS_DATA", str(DATA))
    names = {"__name__": "real-data.md"}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    for block in blocks:
        exec(compile(block, "real-data.md", "exec"), names)
    assert capsys.readouterr().out
