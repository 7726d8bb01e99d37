"""Regret where a right implementation is known to have it: 50 seeds with eta = lambda = 1."""

import dataclasses

import numpy as np
import pytest

from vits.lab.experiments import fixed_arms, quadratic
from vits.lab.experiments import run as runs

QUICK = ("lin_ts", "laplace_ts", "uniform")
"""These few seconds are worth while in every run of the tests."""

GAUSSIAN = ("vits_i", "vits_ii", "vits_ii_hf", "vits_ng", "lmc_ts", "ensemble_ts")

BANDS = [
    *((fixed_arms.FIXED_LINEAR, name, 73.0, 10.0) for name in (*GAUSSIAN, "lin_ts")),
    (fixed_arms.FIXED_LINEAR, "uniform", 817.0, 45.0),
    *((fixed_arms.FIXED_LOGISTIC, name, 42.0, 7.0) for name in (*GAUSSIAN, "laplace_ts")),
    (fixed_arms.FIXED_LOGISTIC, "lin_ts", 83.0, 8.0),
    (fixed_arms.FIXED_LOGISTIC, "uniform", 190.0, 11.0),
]


def _case(experiment, name, middle, half):
    marks = () if name in QUICK else (pytest.mark.heavy,)
    return pytest.param(experiment, name, middle, half, id=f"{experiment.name}-{name}", marks=marks)


@pytest.mark.parametrize(("experiment", "name", "middle", "half"), [_case(*band) for band in BANDS])
def test_the_regret_with_fixed_arms_is_in_its_band(experiment, name, middle, half):
    world = experiment.worlds[0]
    (contender,) = (each for each in experiment.contenders if each.label == name)
    entrant = experiment.entrant(experiment.stage(world), contender)
    trace = entrant.play(experiment.seed, experiment.horizon, range(50), lambda rounds: None)
    assert not np.any(trace.failed)
    assert np.mean(trace.cumulative_regret[:, -1]) == pytest.approx(middle, abs=half)


@pytest.mark.heavy
def test_square_networks_separate_the_methods_where_contexts_are_diverse(tmp_path):
    quick = quadratic.PRESETS["quick"]
    experiment = dataclasses.replace(quick, worlds=quick.worlds[1:])
    assert experiment.worlds[0].label == "zeta=1"
    experiment = experiment.only(["vits_ii", "lmc_ts(10)", "lmc_ts(50)", "lin_ts"])
    found = {row["algorithm"]: row for row in runs.run(experiment, tmp_path / "run", preset="quick").summary["rows"]}
    assert found["vits_ii"]["failed_seeds"] == 0
    assert found["vits_ii"]["regret_mean"] < found["lmc_ts(10)"]["regret_mean"]
    assert found["vits_ii"]["regret_mean"] < found["lmc_ts(50)"]["regret_mean"]
    assert found["vits_ii"]["regret_mean"] < 0.5 * found["lin_ts"]["regret_mean"]
