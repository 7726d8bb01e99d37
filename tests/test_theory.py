import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vits import environments, steps
from vits.lab import results
from vits.lab.experiments import run as runs
from vits.lab.experiments import theory
from vits.lab.report import views

SMALL = dataclasses.replace(
    theory.EXPERIMENT, dims=(2, 3), horizon=40, halvings=1, max_steps=5, seeds=3, num_arms=5, noise=0.1
)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return runs.run(SMALL, tmp_path_factory.mktemp("theory") / "run", preset="quick")


def test_the_arms_of_the_sphere_are_unit_vectors_and_pay_what_they_should():
    world = environments.sphere(dim=4, num_arms=200, noise=0.0)
    params = world.init(jax.random.key(0))
    arms, means, rewards = world.draw(jax.random.key(1), params, jnp.asarray(0))
    np.testing.assert_allclose(np.linalg.norm(params.theta), 1.0, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(arms, axis=1), np.ones(200), rtol=1e-5)
    np.testing.assert_allclose(means, arms @ params.theta, rtol=1e-5)
    np.testing.assert_array_equal(rewards, means)
    np.testing.assert_allclose(arms.T @ arms / 200, np.eye(4) / 4, atol=0.06)


def test_every_horizon_is_a_run_of_its_own_with_its_own_temperature(small):
    assert SMALL.horizons == (20, 40)
    rows = {(row["environment"], row["algorithm"]): row for row in small.summary["rows"]}
    assert len(rows) == 2 * 2 * 2
    for dim in (2, 3):
        for horizon in (20, 40):
            row = rows[f"d={dim}, T={horizon}", "vits_i"]
            eta = steps.theory_inverse_temperature(dim=dim, horizon=horizon, noise=0.1)
            assert row["hyperparameters"]["inverse_temperature"] == eta
            assert (row["dim"], row["horizon"], row["seeds"], row["failed_seeds"]) == (dim, horizon, 3, 0)
            assert row["capped_rounds"] == 3 * horizon  # K_t is at least a hundred
            json.dumps(row, allow_nan=False)


def test_a_run_loads_draws_and_prints(small):
    loaded = results.load(small.folder)
    assert loaded.summary == small.summary
    ((path, _),) = views.draw(loaded)
    assert path == small.folder / "growth.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    assert (
        views.table(loaded.summary).title
        == "Growth of the regret of VITS-I (quick): regret after 20 to 40 rounds, 3 seeds"
    )


def test_a_finished_run_is_not_computed_again(small):
    again = runs.run(SMALL, small.folder, preset="quick")
    assert again.summary["rows"] == small.summary["rows"]


def test_seeds_are_split_into_cells_of_few_rounds(monkeypatch, tmp_path, small):
    cells = theory.EXPERIMENT.cells()
    assert max(cell.cost for cell in cells) == 40_000
    assert [cell.chunk for cell in cells if cell.key == ("d=8, T=8000", "vits_i")][:2] == ["0-4", "5-9"]
    monkeypatch.setattr(theory, "CHUNK", 80)
    asked = dataclasses.replace(SMALL, dims=(2,)).only(["lin_ts"])
    assert [(cell.environment, cell.chunk) for cell in asked.cells()] == [
        ("d=2, T=20", "0-2"),
        ("d=2, T=40", "0-1"),
        ("d=2, T=40", "2-2"),
    ]
    split = runs.run(asked, tmp_path / "run", preset="quick")
    key = ("d=2, T=40", "lin_ts")
    np.testing.assert_allclose(split.cells[key]["regret"], small.cells[key]["regret"], rtol=1e-3, atol=1e-5)


def found_with(regret, seeds=5, noise=0.01):
    """Results in which the regret of VITS-I is given as a function of d and T, up to a little noise per seed."""
    experiment = dataclasses.replace(theory.EXPERIMENT, dims=(2, 4, 8), horizon=800, halvings=3, seeds=seeds)
    experiment = experiment.only(["vits_i"])
    draws = np.random.default_rng(0)
    cells, rows = {}, []
    for d in experiment.dims:
        for T in experiment.horizons:
            total = regret(d, T) * np.exp(noise * draws.standard_normal(seeds))
            cells[theory.label(d, T), "vits_i"] = {"regret": total[:, None], "failed": np.zeros(seeds, bool)}
            rows.append({"algorithm": "vits_i", "capped_rounds": 7, "horizon": T, "seeds": seeds})
    return experiment, results.Results(None, {"rows": rows}, cells)


def test_exponents_are_recovered():
    experiment, found = found_with(lambda d, T: 3.0 * T**0.4 * d**1.2)
    growth = experiment.growth(found, "vits_i")
    assert growth["T"].exponent == pytest.approx(0.4, abs=0.02)
    assert growth["d"].exponent == pytest.approx(1.2, abs=0.02)
    assert growth["T"].low < growth["T"].exponent < growth["T"].high
    over_log = experiment.growth(found, "vits_i", over_log=True)
    assert over_log["T"].exponent < 0.4
    assert over_log["d"].exponent == pytest.approx(growth["d"].exponent)


def test_seeds_that_failed_do_not_count():
    experiment, found = found_with(lambda d, T: 3.0 * T**0.4 * d**1.2)
    cell = found.cells["d=2, T=100", "vits_i"]
    cell["regret"][1], cell["failed"][1] = 1e6, True
    assert experiment.growth(found, "vits_i")["T"].exponent == pytest.approx(0.4, abs=0.02)


@pytest.mark.parametrize(
    ("regret", "verdict"),
    [
        (lambda d, T: T**0.45 * d**1.4, "holds"),
        (lambda d, T: T**0.9 * d, "fails"),
        (lambda d, T: T**0.4 * d**1.8, "fails"),
        (lambda d, T: np.sqrt(T) * np.log(3 * T**3) * d, "inconclusive"),  # the bound with a logarithm: not told apart
    ],
)
def test_the_claim_is_scored_by_rule(regret, verdict):
    experiment, found = found_with(regret)
    claim, same = experiment.claims(found)
    assert same == {**claim, "reading": "at its best"}
    assert (claim["id"], claim["verdict"]) == ("theorem", verdict)
    assert "K_t cut to 1000 in 84 of 22500 rounds" in claim["evidence"]


def test_without_the_theorems_algorithm_nothing_is_claimed():
    assert SMALL.only(["lin_ts"]).claims(results.Results(None, {"rows": []}, {})) == []


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="horizon must be a whole number of at least 2, but is 1"):
        dataclasses.replace(SMALL, horizon=1).cells()
    with pytest.raises(ValueError, match="unknown algorithm of theory 'uniform'"):
        SMALL.only(["uniform"])


@pytest.mark.heavy
def test_vits_i_with_the_theory_preset_has_the_regret_of_the_exact_posterior(tmp_path):
    experiment = dataclasses.replace(theory.PRESETS["quick"], dims=(2, 4), horizon=1000, halvings=1)
    found = runs.run(experiment, tmp_path / "run", preset="quick")
    for environment in found.environments:
        exact = np.mean(results.final_regret(found.cells[environment, "lin_ts"]))
        assert np.mean(results.final_regret(found.cells[environment, "vits_i"])) == pytest.approx(exact, rel=0.05)
