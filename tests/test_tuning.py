import dataclasses
import json

import numpy as np
import pytest

import vits
from vits.lab.experiments import fixed_arms, kl, linear, movielens, quadratic, tuned, tuning
from vits.lab.experiments import run as runs
from vits.lab.experiments.run import Local
from vits.lab.report import tables

SMALL = dataclasses.replace(linear.EXPERIMENT, worlds=linear.EXPERIMENT.worlds[1:2], horizon=40, seeds=3)


def tune(monkeypatch, folder, algorithm, grid, *, seeds, experiment=SMALL, **options):
    monkeypatch.setitem(tuning.GRIDS, algorithm, (grid,))
    asked = tuning.tuning(experiment.only([algorithm]), tuning_seeds=seeds, **options)
    return runs.run(asked, folder, preset="quick")


def regret(eta, seeds):
    policy = vits.make("lin_ts", vits.models.linear(20), inverse_temperature=eta)
    return vits.simulate(0, vits.environments.linear(zeta=1.0), policy, 40, seeds=list(seeds)).cumulative_regret[:, -1]


def test_a_setting_that_is_better_by_the_paired_rule_is_chosen_and_checked_beside_the_default(monkeypatch, tmp_path):
    """The default of this copy explores far too much, and 400 seeds can tell."""
    wide = dataclasses.replace(SMALL.contenders[4], hyperparameters={"inverse_temperature": 0.01})
    experiment = dataclasses.replace(SMALL, contenders=(wide,), seeds=100)
    grid = tuning.Grid({"inverse_temperature": (0.03, 1.0, 100.0)})
    done = tune(monkeypatch, tmp_path / "run", "lin_ts", grid, seeds=400, experiment=experiment)
    rows = {row["algorithm"]: row for row in done.summary["rows"]}
    tuned, default = rows["lin_ts"], rows["lin_ts (default)"]
    best = min((1.0, 100.0), key=lambda eta: regret(eta, range(10_000, 10_400)).mean())
    assert tuned["hyperparameters"] == {"inverse_temperature": best}
    assert default["hyperparameters"] == {"inverse_temperature": 0.01}
    assert tuned["regret_mean"] == pytest.approx(regret(best, range(100)).mean(), rel=1e-4)
    assert rows["lin_ts (grid)"]["settings_tried"] == 4
    (check,) = done.summary["claims"]
    assert check["verdict"] == "holds"
    table = tables.tuned(done.summary)
    assert table.rows[0][:3] == ("zeta=1", "lin_ts", f"eta={best:g}")


def test_cells_have_no_more_seeds_than_those_of_the_experiment():
    """A setting of the paper's network takes minutes with two seeds, and hours with fifty."""
    cells = tuning.tuning(quadratic.EXPERIMENT.only(["vits_ii"]), tuning_seeds=400).cells()
    assert {cell.cost for cell in cells} == {2 * quadratic.EXPERIMENT.horizon}
    cells = tuning.tuning(linear.EXPERIMENT.only(["lin_ts"]), tuning_seeds=400).cells()
    assert {cell.cost for cell in cells} == {50 * linear.EXPERIMENT.horizon}


def test_reports_never_play_the_seeds_that_tuning_plays():
    experiment = linear.EXPERIMENT.only(["lin_ts"])
    cells = experiment.more_cells({("zeta=1", "lin_ts"): 10_120})
    chunks = [cell.chunk for cell in cells if cell.environment == "zeta=1"]
    assert chunks[0] == "0-49"
    assert chunks[199:] == ["9950-9999", "20000-20049", "20050-20099", "20100-20119"]
    tuned = tuning.tuning(experiment, tuning_seeds=10_000).cells()
    assert {cell.chunk.split("--")[1] for cell in tuned if cell.chunk.startswith("0--")} >= {"10000-10049"}
    with pytest.raises(ValueError, match="tuning_seeds must be at most 10000, but is 10001"):
        tuning.tuning(experiment, tuning_seeds=10_001).cells()


def test_an_algorithm_that_failed_on_every_fresh_seed_stays_in_the_table(monkeypatch, tmp_path):
    done = tune(monkeypatch, tmp_path / "run", "lin_ts", tuning.Grid({"prior_precision": (1.0,)}), seeds=2)
    rows = [{**row, "regret_mean": None, "regret_stderr": None} for row in done.summary["rows"]]
    assert [row[3] for row in tables.tuned({**done.summary, "rows": rows}).rows] == ["none finished"]


def test_ties_go_to_the_default(monkeypatch, tmp_path):
    """eta = 101 is eta = 100 in all but name; whichever has the lower mean, the default stays."""
    etas = (99.0, 101.0)
    done = tune(monkeypatch, tmp_path / "run", "lin_ts", tuning.Grid({"inverse_temperature": etas}), seeds=400)
    rows = {row["algorithm"]: row for row in done.summary["rows"]}
    assert set(rows) == {"lin_ts", "lin_ts (grid)"}
    assert rows["lin_ts"]["hyperparameters"] == linear.POSTERIOR
    assert done.summary["claims"] == []


def test_a_setting_that_fails_on_a_seed_is_out_of_the_race(monkeypatch, tmp_path):
    grid = tuning.Grid({"step_size": (1e-3, 1e-5)}, {"step_rule": "constant"})
    done = tune(monkeypatch, tmp_path / "run", "vits_ii", grid, seeds=400)
    row = next(row for row in done.summary["rows"] if row["algorithm"] == "vits_ii (grid)")
    assert row["settings_with_failed_seeds"] == 1
    arrays = done.cells["zeta=1", "vits_ii (grid)"]
    played = {setting: int(np.sum(arrays["setting"] == setting)) for setting in range(3)}
    assert played == {0: 400, 1: 50, 2: 400}  # it failed in the first heat, and played no other


def matrix(*means, seeds, failed=()):
    """Arrays of settings that have played these tuning seeds with constant regret; those that failed have a NaN."""
    count = len(means)
    final = np.repeat(np.array(means, float)[:, None], seeds, axis=1)
    for setting in failed:
        final[setting, 0] = np.nan
    return {
        "final": final.ravel(),
        "setting": np.repeat(np.arange(count), seeds),
        "tuning_seed": np.tile(10_000 + np.arange(seeds), count),
    }


def test_each_heat_keeps_the_best_third_and_the_default():
    experiment = tuning.tuning(SMALL.only(["lin_ts"]), tuning_seeds=80)
    assert experiment.heats == [10, 20, 40, 80]
    assert experiment.race(12, None) == tuning.Race(list(range(12)), 10, None)
    regrets = [50.0, *range(11, 0, -1)]  # the default is worst, the last is best
    race = experiment.race(12, matrix(*regrets, seeds=10))
    assert race == tuning.Race([0, 8, 9, 10, 11], 20, None)
    race = experiment.race(12, matrix(*regrets, seeds=10, failed=[0, 11]))
    assert race == tuning.Race([7, 8, 9, 10], 20, None)
    assert experiment.race(12, matrix(*regrets, seeds=80)).chosen == 0  # 80 seeds are too few to leave the default


def test_a_default_that_fails_is_replaced():
    experiment = tuning.tuning(SMALL.only(["lin_ts"]), tuning_seeds=8)
    assert experiment.race(3, matrix(1.0, 5.0, 4.0, seeds=8, failed=[0])).chosen == 2


def test_an_interrupted_tuning_goes_on_where_it_was(monkeypatch, tmp_path):
    class Stopping(Local):
        def compute(self, cells, monitor):
            for i, pair in enumerate(super().compute(cells, monitor)):
                if i == 2:
                    raise KeyboardInterrupt
                yield pair

    grid = tuning.Grid({"inverse_temperature": (1.0, 10.0)})
    monkeypatch.setitem(tuning.GRIDS, "lin_ts", (grid,))
    asked = tuning.tuning(SMALL.only(["lin_ts"]), tuning_seeds=8)
    with pytest.raises(KeyboardInterrupt):
        runs.run(asked, tmp_path / "run", preset="quick", engine=Stopping())
    stored = {path.name: path.read_bytes() for path in (tmp_path / "run").glob("*.npz")}
    assert len(stored) == 2
    runs.run(asked, tmp_path / "run", preset="quick")
    assert all((tmp_path / "run" / name).read_bytes() == content for name, content in stored.items())


def test_read_as_written_the_papers_grids_are_played_to_the_letter():
    asked = tuning.tuning(linear.PRESETS["written"], tuning_seeds=50)
    assert asked.labels == ("vits_i", "vits_ii", "vits_ii_hf", "lin_ts", "lmc_ts(10)", "lmc_ts(50)")
    assert asked.heats == [50]
    points = {contender.label: asked.points(contender) for contender in asked.experiment.contenders}
    assert {name: len(found) for name, found in points.items()} == dict.fromkeys(asked.labels, 36) | {"lin_ts": 12}
    for name, found in points.items():
        assert {point["inverse_temperature"] for point in found} == {10.0, 100.0, 500.0, 1000.0}
        if name != "lin_ts":
            assert {(point["step_rule"], point["step_size"]) for point in found} == {
                ("per_observation", h) for h in (0.001, 0.01, 0.1)
            }
    assert {(point["draws"], point["start"]) for point in points["vits_ii"]} == {("single", "draw")}
    assert {(point["draws"], point["num_samples"]) for point in points["vits_ii_hf"]} == {("plain", 20)}
    assert asked.race(3, matrix(3.0, 1.0, 2.0, seeds=50)).chosen == 1  # the least mean, whatever its interval
    assert asked.race(3, matrix(3.0, 1.0, 2.0, seeds=50, failed=[1])).chosen == 2


def test_an_experiment_tries_values_of_its_own_too():
    def lambdas(experiment):
        (contender,) = (each for each in experiment.contenders if each.label == "vits_ii")
        return {point["prior_precision"] for grid in tuning.grids(experiment, contender) for point in grid.points()}

    assert lambdas(linear.EXPERIMENT) == {0.1, 1.0, 10.0}
    assert lambdas(quadratic.EXPERIMENT) == {0.1, 1.0, 10.0, 100.0}


def test_what_has_no_grid_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="'kl' has no grids to tune over"):
        tuning.tuning(kl.PRESETS["quick"])
    with pytest.raises(ValueError, match="nothing to tune in uniform"):
        tuning.tuning(SMALL.only(["uniform"]))


TUNED = (
    linear.EXPERIMENT,
    fixed_arms.FIXED_LINEAR,
    fixed_arms.FIXED_LOGISTIC,
    movielens.PRESETS["quick"],
    quadratic.PRESETS["tuned"],
)
WRITTEN = (
    linear.PRESETS["written"],
    fixed_arms.LINEAR["written"],
    fixed_arms.LOGISTIC["written"],
    movielens.PRESETS["written"],
    quadratic.PRESETS["written"],
)


@pytest.mark.parametrize("experiment", TUNED, ids=lambda each: each.name)
def test_the_settings_shipped_as_tuned_are_defaults_or_lie_on_the_grids(experiment):
    worlds = [world for world in experiment.worlds if world.hyperparameters]
    assert [world.label for world in worlds] == [f"{world.label}, tuned" for world in experiment.tuning_worlds()]
    check_settings(experiment, worlds)


@pytest.mark.parametrize("experiment", WRITTEN, ids=lambda each: each.name)
def test_the_settings_shipped_as_written_lie_on_the_papers_grids(experiment):
    assert experiment.reading == "as written"
    check_settings(experiment, experiment.worlds)


def check_settings(experiment, worlds):
    asked = tuning.tuning(experiment)
    for world in worlds:
        assert set(world.hyperparameters) == set(asked.labels)
        for contender in asked.experiment.contenders:
            assert contender.within(world).hyperparameters in asked.points(contender)


def test_choices_are_stored_with_their_command_and_check(monkeypatch, tmp_path):
    """A tuning replaces the settings of its own contenders and leaves the others."""
    file = tmp_path / "tuned.json"
    old = {"hyperparameters": {"width": 9.0}, "command": "", "commit": "", "check": ""}
    file.write_text(json.dumps({"linear": {"at its best": {"zeta=1": {"lin_ucb": old, "lin_ts": old}}}}))
    tune(monkeypatch, tmp_path / "run", "lin_ts", tuning.Grid({"inverse_temperature": (99.0, 101.0)}), seeds=8)
    tuned.store([tmp_path / "run"], file)
    stored = json.loads(file.read_text())["linear"]["at its best"]["zeta=1"]
    assert stored["lin_ucb"] == old
    assert stored["lin_ts"]["hyperparameters"] == linear.POSTERIOR
    assert stored["lin_ts"]["check"] == "the default"
    runs.run(SMALL.only(["uniform"]), tmp_path / "other", preset="quick")
    with pytest.raises(ValueError, match="holds a run of 'linear', which is no tuning"):
        tuned.store([tmp_path / "other"], file)
