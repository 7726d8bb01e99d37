import dataclasses

import numpy as np
import pytest

import vits
from vits.lab.experiments import fixed_arms, kl, linear, movielens, quadratic, tuning
from vits.lab.experiments import run as runs
from vits.lab.experiments.engines import Monitor

SMALL = dataclasses.replace(linear.EXPERIMENT, worlds=linear.EXPERIMENT.worlds[1:2], horizon=40, seeds=3)


def run(monkeypatch, folder, algorithm, grid):
    monkeypatch.setitem(tuning.GRIDS, algorithm, (grid,))
    done = runs.run(tuning.tuning(SMALL.only([algorithm]), tuning_seeds=2), folder, preset="quick")
    (row,) = done.summary["rows"]
    return row


def test_the_best_setting_is_chosen_on_one_set_of_seeds_and_reported_on_another(monkeypatch, tmp_path):
    etas = (0.01, 1.0, 100.0)
    row = run(monkeypatch, tmp_path / "run", "lin_ts", tuning.Grid({"inverse_temperature": etas}))
    world, model = vits.environments.linear(zeta=1.0), vits.models.linear(20)

    def regret(eta, seeds):
        policy = vits.make("lin_ts", model, inverse_temperature=eta)
        return vits.simulate(0, world, policy, 40, seeds=seeds).cumulative_regret[:, -1].mean()

    best = min(etas, key=lambda eta: regret(eta, [10_000, 10_001]))
    assert row["hyperparameters"] == {"inverse_temperature": best, "prior_precision": 1.0}
    assert row["regret_mean"] == pytest.approx(regret(best, [0, 1, 2]), rel=1e-4)
    assert row["settings_tried"] == 3


def test_a_setting_that_fails_on_a_seed_is_out_of_the_race(monkeypatch, tmp_path):
    grid = tuning.Grid({"step_size": (1e-3, 1e-5)}, {"step_rule": "constant"})
    row = run(monkeypatch, tmp_path / "run", "vits_ii", grid)
    assert row["settings_with_failed_seeds"] == 1
    assert row["hyperparameters"]["step_size"] == 1e-5


def test_the_best_sixth_of_the_settings_plays_all_the_seeds_to_the_end(monkeypatch, tmp_path):
    monkeypatch.setattr(tuning, "FEWEST", 2)
    etas = (0.001, 0.003, 0.01, 0.03, 0.1, 1.0, 10.0)
    monkeypatch.setitem(tuning.GRIDS, "lin_ts", (tuning.Grid({"inverse_temperature": etas}),))
    experiment = tuning.tuning(SMALL.only(["lin_ts"]), tuning_seeds=9)
    (cell,) = experiment.cells()
    assert cell.cost == 7 * 2 * 20 + 2 * 9 * 40 + 3 * 40

    class Counted(Monitor):
        rounds = 0

        def advance(self, cost):
            self.rounds += cost

    counted = Counted()
    done = runs.run(experiment, tmp_path / "run", preset="quick", monitor=counted)
    assert counted.rounds == pytest.approx(cell.cost, rel=0.2)  # seeds are padded to the number of cores
    (arrays,) = done.cells.values()
    regret = arrays["tuning_regret"]
    assert regret.shape == (7, 9)

    def first_heat(eta):
        policy = vits.make("lin_ts", vits.models.linear(20), inverse_temperature=eta)
        trace = vits.simulate(0, vits.environments.linear(zeta=1.0), policy, 20, seeds=[10_000, 10_001])
        return trace.cumulative_regret[:, -1].mean()

    finalists = np.argsort([first_heat(eta) for eta in etas])[:2]
    assert np.array_equal(np.flatnonzero(np.all(np.isfinite(regret), axis=1)), np.sort(finalists))
    assert arrays["best"][0] == finalists[np.argmin(np.mean(regret[finalists], axis=1))]


@pytest.mark.parametrize(("num_points", "finalists"), [(2, 2), (6, 3), (12, 3), (18, 3), (54, 9)])
def test_a_short_grid_keeps_three_for_the_second_heat(num_points, finalists, monkeypatch):
    etas = tuple(float(i) for i in range(1, num_points + 1))
    monkeypatch.setitem(tuning.GRIDS, "lin_ts", (tuning.Grid({"inverse_temperature": etas}),))
    (cell,) = tuning.tuning(SMALL.only(["lin_ts"]), tuning_seeds=8).cells()
    assert cell.cost == num_points * 2 * 20 + finalists * 8 * 40 + 3 * 40


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


@pytest.mark.parametrize(
    "experiment",
    [
        linear.EXPERIMENT,
        fixed_arms.FIXED_LINEAR,
        fixed_arms.FIXED_LOGISTIC,
        movielens.PRESETS["quick"],
        quadratic.PRESETS["tuned"],
    ],
    ids=lambda each: each.name,
)
def test_the_settings_shipped_as_tuned_lie_on_the_grids(experiment):
    contenders = {contender.label: contender for contender in experiment.contenders}
    worlds = [world for world in experiment.worlds if world.hyperparameters]
    assert [world.label for world in worlds] == [f"{world.label}, tuned" for world in experiment.tuning_worlds()]
    for world in worlds:
        assert set(world.hyperparameters) == {who for who in contenders if contenders[who].algorithm in tuning.GRIDS}
        for label, chosen in world.hyperparameters.items():
            assert chosen in [point for grid in tuning.grids(experiment, contenders[label]) for point in grid.points()]
