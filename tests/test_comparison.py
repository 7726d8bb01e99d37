import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits import environments, models
from vits.lab import results
from vits.lab.experiments import comparison, linear, tuning
from vits.lab.experiments import run as runs
from vits.lab.report import tables, views
from vits.lab.report.page import write as write_report
from vits.types import Observation

SMALL = dataclasses.replace(comparison.EXPERIMENT, horizon=20, seeds=3, dims=(8, 16), blocks=2).only(
    ["vits_ii", "lin_ts"]
)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return runs.run(SMALL, tmp_path_factory.mktemp("comparison") / "run", preset="quick")


def test_the_bandit_is_that_of_figure_1(small):
    figure = dataclasses.replace(linear.EXPERIMENT, horizon=20, seeds=3).only(["vits_ii"])
    (contender,), world = figure.contenders, figure.worlds[0]
    entrant = figure.entrant(figure.stage(world), contender)
    trace = entrant.play(0, 20, range(3), lambda rounds: None)
    np.testing.assert_array_equal(small.cells["zeta=0.1", "vits_ii"]["regret"], trace.regret)


def test_rows_hold_regret_or_the_cost_of_a_round(small):
    rows = {(row["environment"], row["algorithm"]): row for row in small.summary["rows"]}
    assert len(rows) == 2 * (2 + 2)
    for (environment, name), row in rows.items():
        json.dumps(row, allow_nan=False)
        if environment.startswith("zeta"):
            assert row["regret_mean"] > 0.0
            assert row["rounds_per_second"] > 0.0
        else:
            assert row["regret_mean"] is None
            assert environment == f"d={row['dim']}"
            assert row["seconds_per_round"] == np.min(small.cells[environment, name]["seconds_per_round"]) > 0.0
            assert row["linear_only"] == (name == "lin_ts")


@pytest.mark.parametrize(("power", "exponent"), [(1.0, 1.0), (0.5, 0.5)])
@pytest.mark.parametrize("horizon", [100, 101])
def test_growth_with_rounds_is_the_exponent_of_a_power_law(power, exponent, horizon):
    curve = 3.0 * np.arange(horizon + 1.0) ** power
    regret = np.stack([np.diff(curve), 2.0 * np.diff(curve), np.full(horizon, np.nan)])
    arrays = {"regret": regret, "failed": np.array([False, False, True])}
    assert comparison._growth_with_rounds(arrays) == pytest.approx(exponent)


@pytest.mark.parametrize("regret", [np.zeros((1, 10)), np.ones((1, 1)), np.ones((0, 10))])
def test_without_a_curve_there_is_no_growth(regret):
    assert comparison._growth_with_rounds({"regret": regret, "failed": np.zeros(len(regret), bool)}) is None


def test_growth_with_the_dimension_is_that_of_the_two_largest():
    costs = [{"dim": d, "seconds_per_round": 1e-6 * max(d**3, 1000)} for d in (80, 5, 40)]
    assert tables.growth_with_dim(costs) == pytest.approx(3.0)
    assert tables.growth_with_dim(costs[:1]) is None
    assert (
        tables.growth_with_dim([*costs, {"dim": 160, "seconds_per_round": -1e-9}]) is None
    )  # less than the clock sees


def test_those_that_are_for_linear_rewards_alone():
    cells = [cell for cell in comparison.EXPERIMENT.cells() if "dim" in cell.coordinates]
    assert {cell.algorithm for cell in cells if cell.coordinates["linear_only"]} == {"lin_ts", "lin_ucb", "vts"}
    assert {cell.coordinates["dim"] for cell in cells} == set(comparison.EXPERIMENT.dims)


def test_what_is_timed_is_choosing_and_learning():
    """The timed rounds end where the same rounds, played one by one, do."""
    policy = vits.make("lin_ts", models.linear(3))
    offered = comparison._draw(environments.linear(zeta=1.0, dim=3, num_arms=4), jax.random.key(0), 6)
    key = jax.random.key(1)
    start = state = policy.init(key)
    for t in range(6):
        act_key, update_key = jax.random.split(jax.random.fold_in(key, t))
        action = policy.act(act_key, state, offered.arms[t])
        observation = Observation(offered.arms[t, action], offered.rewards[t, action], action, offered.arms[t])
        state, _ = policy.update(update_key, state, observation)
    found, rejected = comparison._rounds(policy, key, start, offered, jnp.asarray(0), jnp.asarray(6))
    assert rejected == 0
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, state)


def test_the_time_of_a_round_is_without_that_of_the_call(monkeypatch):
    """On a made-up clock: a call takes 5 ms, the first of each kind 1 s more, and a round 2 ms."""
    now, seen = 0.0, set()

    def rounds(policy, key, state, offered, first, end):
        nonlocal now
        length = int(end - first)
        now += 5e-3 + 2e-3 * length + (0.0 if length in seen else 1.0)
        seen.add(length)
        return state, jnp.asarray(length)

    monkeypatch.setattr(comparison, "_rounds", rounds)
    monkeypatch.setattr(comparison.time, "perf_counter", lambda: now)
    cost = comparison.round_cost(vits.make("lin_ts", models.linear(2)), 2, seed=0, blocks=3)
    assert np.min(cost.seconds) == pytest.approx(2e-3)
    assert cost.seconds.shape == (3,)
    assert cost.rejected == comparison.WARM + comparison.BLOCK


def test_a_policy_that_fails_while_it_is_timed_is_counted(monkeypatch, tmp_path):
    failing = comparison.Cost(np.ones(2), rejected=7)
    monkeypatch.setattr(comparison, "round_cost", lambda *args, **kwargs: failing)
    found = runs.run(SMALL.only(["lin_ts"]), tmp_path / "run", preset="quick")
    assert [row["rejected_updates"] for row in found.summary["rows"]] == [0, 0, 7, 7]


def test_it_is_tuned_as_figure_1():
    with pytest.raises(ValueError, match="'comparison' has no grids to tune over; linear, "):
        tuning.tuning(SMALL)


def test_a_run_loads_draws_prints_and_reports(small):
    loaded = results.load(small.folder)
    assert [picture.path.name for picture in views.draw(loaded)] == ["regret.png", "cost.png"]
    table = views.table(loaded.summary)
    assert [row[:2] for row in table.rows] == [("any", "vits_ii"), ("linear", "lin_ts")]
    assert table.columns[2:4] == ("zeta=0.1", "zeta=1")
    assert all(len(row) == len(table.columns) for row in table.rows)
    page = write_report(loaded).read_text()
    assert "Time of a round, choosing and learning" in page
    assert "The paper claims nothing that this run could score." in page


def test_a_finished_run_is_not_measured_again(small):
    assert runs.run(SMALL, small.folder, preset="quick").summary["rows"] == small.summary["rows"]


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="blocks must be a whole number of at least 1, but is 0"):
        dataclasses.replace(SMALL, blocks=0).cells()
    with pytest.raises(ValueError, match="dims must name at least one dimension"):
        dataclasses.replace(SMALL, dims=()).cells()
    with pytest.raises(ValueError, match="dim must be a whole number of at least 1, but is 0"):
        dataclasses.replace(SMALL, dims=(0,)).cells()
