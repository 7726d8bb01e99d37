import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vits.lab import results
from vits.lab.experiments import gaussian_target, kl
from vits.lab.experiments import run as runs
from vits.lab.experiments.base import Cell
from vits.lab.experiments.gaussian_target import TargetContender
from vits.lab.report import views
from vits.potentials import Prior

CONTENDERS = {contender.label: contender for contender in kl.CONTENDERS}
CONTRACT = {
    "environment",
    "algorithm",
    "hyperparameters",
    "horizon",
    "seeds",
    "failed_seeds",
    "regret_mean",
    "regret_stderr",
    "regret_median",
    "seconds",
    "rounds_per_second",
}


def go(contender, kappa, h=0.1, seeds=1, cap=5000, epsilon=0.1, dim=20):
    if isinstance(contender, str):
        contender = CONTENDERS[contender]
    target = gaussian_target.gaussian_target(0, dim, kappa)
    approximation = gaussian_target.approximation(contender, target, h)
    experiment = dataclasses.replace(kl.EXPERIMENT, seeds=seeds, epsilon=epsilon, horizon=cap)
    return experiment.follow(contender, approximation)


def spectrum(kappa, dim=20):
    return kappa ** -np.linspace(0.0, 1.0, dim)


def scalar_kl(p, mean, variance):
    """Of independent coordinates N(mean, variance) from N(1, 1 / p)."""
    return 0.5 * np.sum(p * variance - 1.0 + p * (mean - 1.0) ** 2 - np.log(p * variance))


def recursion(p, h, *, first_order):
    """KL after each step of VI with exact gradients, coordinate by coordinate, in double precision."""
    mean, b, c = np.zeros_like(p), np.ones_like(p), np.ones_like(p)
    while True:
        mean = mean - h * p * (mean - 1.0)
        new_b = (1.0 - h * p) * b + h * c
        c = c * (1.0 - h * (c**2 - p)) if first_order else 1.0 / new_b
        b = new_b
        yield scalar_kl(p, mean, b**2)


def steps_by_recursion(kappa, h, *, first_order):
    return next(k for k, value in enumerate(recursion(spectrum(kappa), h, first_order=first_order), 1) if value <= 0.1)


def test_the_divergence_is_the_closed_form():
    target = Prior(jnp.array([1.0, -1.0]), jnp.diag(jnp.array([2.0, 0.5])))
    cov = jnp.array([[2.0, 0.3], [0.3, 1.0]])
    expected = 0.5 * (2.0 * 2.0 + 0.5 * 1.0 - 2.0 + 2.0 * 1.0 + 0.5 * 4.0 - np.log(2.0 - 0.09))
    assert gaussian_target.divergence(target, jnp.array([0.0, 1.0]), cov) == pytest.approx(expected, rel=1e-5)
    assert gaussian_target.divergence(target, target.mean, jnp.diag(jnp.array([0.5, 2.0]))) == pytest.approx(
        0, abs=1e-6
    )
    assert gaussian_target.divergence(target, target.mean, jnp.zeros((2, 2))) == np.inf


def test_the_target_has_the_spectrum_that_was_asked_for():
    target = gaussian_target.gaussian_target(3, 6, 50.0)
    eigenvalues, vectors = np.linalg.eigh(target.prior.precision)
    np.testing.assert_allclose(eigenvalues, np.sort(spectrum(50.0, 6)), rtol=1e-4)
    np.testing.assert_allclose(np.abs(vectors.T @ target.prior.mean), np.ones(6), rtol=1e-4)
    with pytest.raises(ValueError, match=r"at least 1, but is 0\.5"):
        gaussian_target.gaussian_target(0, 6, 0.5)


@pytest.mark.parametrize(("name", "first_order"), [("vi_i", False), ("vi_ii", True)])
def test_variational_steps_are_those_of_the_scalar_recursion(name, first_order):
    """22 and 73 steps at kappa = 1 and 10 for VI-I, within one step for rounding."""
    for kappa, h in ((1.0, 0.1), (10.0, 0.1), (100.0, 0.1), (10.0, 0.05)):
        expected = steps_by_recursion(kappa, h, first_order=first_order)
        assert go(name, kappa, h).steps == pytest.approx(expected, abs=1)
    assert go(name, 1.0).steps == [22]
    assert go(name, 10.0).steps == [75 if first_order else 73]


def test_variational_one_and_two_need_the_same_steps_up_to_a_tenth():
    for h in (0.01, 0.1):
        for kappa in (1.0, 10.0, 100.0):
            first = steps_by_recursion(kappa, h, first_order=False)
            second = steps_by_recursion(kappa, h, first_order=True)
            assert abs(first - second) <= 0.05 * first


def test_hessian_free_along_all_directions_is_exact():
    assert go("vi_ii_hf", 10.0).steps == pytest.approx(73, abs=2)


def test_natural_gradients_do_not_depend_on_the_condition_number_and_compile_once():
    """With rho = 1/2 the errors halve: 4 to 11 steps."""
    found = [go("natural", 1.0, cap=50)]
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **rest: compiled.append(name) if "backend_compile" in name else None
    )
    found += [go("natural", kappa, cap=50) for kappa in (10.0, 100.0, 1000.0)]
    jax.monitoring.clear_event_listeners()
    assert compiled == []
    steps = [int(course.steps[0]) for course in found]
    assert steps == sorted(steps)
    assert steps[0] >= 4
    assert steps[-1] <= 11


def test_the_path_of_a_chain_needs_thousands_of_steps():
    """At kappa = 1, h = 0.1: (105 * 9.5 + 10 * 19) / n of the path plus a bias of 0.014 make 0.1 at n = 13,700."""
    found = go("lmc_averaged", 1.0, seeds=6, cap=20_000)
    assert 12_500 <= np.median(found.steps) <= 17_500
    assert np.all(np.isinf(found.kl[:, :20]))  # the burn-in and the first look: no moments


def test_a_chain_in_law_follows_the_exact_law():
    """Mean and variance of the law follow a linear recursion; the estimate of its KL is unbiased."""
    p, h = spectrum(10.0, 5), 0.1
    mean, variance, exact = np.zeros(5), np.ones(5), []
    for _ in range(40):
        mean, variance = mean - h * p * (mean - 1.0), (1.0 - h * p) ** 2 * variance + 2.0 * h
        exact.append(scalar_kl(p, mean, variance))
    contender = dataclasses.replace(CONTENDERS["lmc_law"], chains=50, max_seeds=40)
    found = go(contender, 10.0, seeds=40, cap=40, epsilon=1e-9, dim=5)
    error = np.std(found.kl, axis=0, ddof=1) / np.sqrt(40)
    np.testing.assert_array_less(np.abs(np.mean(found.kl, axis=0) - exact), 4.0 * error)


def test_a_thousand_chains_are_a_cell_of_their_own(tmp_path):
    """Each seed of a chain in law takes minutes. Alone it takes the steps that it takes among the others."""
    contender = dataclasses.replace(CONTENDERS["lmc_law"], chains=200)
    experiment = dataclasses.replace(
        SMALL, condition_numbers=(10.0,), step_sizes=(0.1,), epsilon=0.1, contenders=(contender,)
    )
    assert [cell.chunk for cell in experiment.cells()] == ["0-0", "1-1", "2-2"]
    found = runs.run(experiment, tmp_path / "run", preset="quick")
    (row,) = found.summary["rows"]
    together = go(contender, 10.0, seeds=3, cap=400, dim=4)
    assert row["seeds"] == 3
    np.testing.assert_array_equal(found.cells["h=0.1, kappa=10", "lmc_law"]["steps"], together.steps)


def test_the_floor_of_one_draw_is_where_the_kl_settles():
    """About h tr(P) / 4; the average of the last iterates' KL is within 5 % of it."""
    contender = CONTENDERS["vi_i_one_draw"]
    target = gaussian_target.gaussian_target(0, 4, 10.0)
    approximation = gaussian_target.approximation(contender, target, 0.1)
    floor = gaussian_target.floor(approximation, 0.1)
    assert floor == pytest.approx(0.1 * np.sum(spectrum(10.0, 4)) / 4.0, rel=0.05)
    found = go(contender, 10.0, seeds=10, cap=3000, epsilon=1e-9, dim=4)
    assert np.mean(found.kl[:, 300:]) == pytest.approx(floor, rel=0.05)


def test_floors_of_the_others():
    target = gaussian_target.gaussian_target(0, 20, 1.0)

    def floor(name, h):
        return gaussian_target.floor(gaussian_target.approximation(CONTENDERS[name], target, h), h)

    assert floor("vi_ii", 0.5) == 0.0
    assert floor("natural", 0.5) == 0.0
    assert floor("vi_ii_hf_plain", 0.1) == pytest.approx(floor("vi_i_one_draw", 0.1) / 20.0)
    assert floor("lmc_averaged", 0.5) == pytest.approx(20 * 0.5 * (1 / 3 - np.log(4 / 3)), rel=1e-4)
    assert floor("lmc_law", 0.5) == floor("lmc_averaged", 0.5)


SMALL = dataclasses.replace(
    kl.EXPERIMENT, dim=4, condition_numbers=(1.0, 10.0), step_sizes=(0.1, 0.5), horizon=400, seeds=3, epsilon=0.09
).only(["vi_i", "lmc_averaged", "vi_i_one_draw"])


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return runs.run(SMALL, tmp_path_factory.mktemp("kl") / "run", preset="quick")


def test_rows_say_who_arrived_who_did_not_and_who_could_not(small):
    rows = {(row["environment"], row["algorithm"]): row for row in small.summary["rows"]}
    assert len(rows) == 2 * 2 * 3
    for row in rows.values():
        assert set(row) >= CONTRACT
        json.dumps(row, allow_nan=False)
        assert row["regret_mean"] is None
        assert row["reached"] + row["not_reached"] + row["diverged"] == (0 if row["below_floor"] else row["seeds"])
    exact = rows["h=0.1, kappa=10", "vi_i"]
    assert exact["seeds"] == 1
    assert exact["steps_median"] == exact["steps_low"] == exact["steps_high"] > 0
    one_draw = rows["h=0.1, kappa=1", "vi_i_one_draw"]  # its floor is 0.105
    assert one_draw["below_floor"]
    assert one_draw["floor"] == pytest.approx(0.1 * 4 / (2 * 1.9), rel=1e-5)
    assert (one_draw["steps_median"], one_draw["seconds"], one_draw["reached"]) == (None, 0.0, 0)
    averaged = rows["h=0.1, kappa=10", "lmc_averaged"]
    assert not averaged["below_floor"]
    assert (averaged["not_reached"], averaged["steps_median"]) == (3, None)


def test_an_algorithm_that_diverges_is_reported_as_such():
    """One plain draw cannot tell the curvature in four dimensions: at h = 0.9 the update is refused sooner or later."""
    found = go(
        TargetContender("wild", "vits_ii_hf", {"draws": "plain", "num_samples": 1}), 1.0, 0.9, epsilon=1e-9, dim=4
    )
    assert found.diverged.tolist() == [True]
    assert found.steps == [np.inf]
    assert found.kl[0, -1] == np.inf
    arrays = {"steps": found.steps, "diverged": found.diverged, "refreshed": found.refreshed}
    arrays |= {"floor": np.zeros(1), "seconds": np.ones(1)}
    where = {"step_size": 0.5, "condition_number": 1.0}
    cell = Cell("h=0.5, kappa=1", "wild", "all", {"h": 0.5}, 1, None, lambda advance: arrays, where)
    row = SMALL.row(cell, arrays)
    assert (row["diverged"], row["not_reached"], row["steps_median"]) == (1, 0, None)
    summary = {"experiment": "kl", "preset": "", "settings": SMALL.settings(), "rows": [row]}
    assert views.table(summary).rows == [("0.5", "wild", "diverged")]


def test_a_run_loads_draws_and_prints(small):
    loaded = results.load(small.folder)
    assert loaded.summary == small.summary
    ((path, _),) = views.draw(loaded)
    assert path == small.folder / "steps.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    table = views.table(loaded.summary)
    assert table.columns == ("step", "algorithm", "1", "10")
    assert ("0.1", "lmc_averaged", "> 400", "> 400") in table.rows


def test_a_finished_run_is_not_computed_again(small):
    before = {file.name: file.stat().st_mtime_ns for file in small.folder.glob("*.npz")}
    again = runs.run(SMALL, small.folder, preset="quick")
    assert {file.name: file.stat().st_mtime_ns for file in small.folder.glob("*.npz")} == before
    assert again.summary["rows"] == small.summary["rows"]


def found_with(steps):
    """Results with made-up steps by algorithm, step size and condition number."""
    cells = {
        (kl.label(h, kappa), name): {"steps": np.array(value), "refreshed": np.zeros(1)}
        for (name, h, kappa), value in steps.items()
    }
    return results.Results(None, {}, cells)


def claims_of(steps, step_sizes=(0.1,), condition_numbers=(10.0, 100.0), reading="at its best"):
    experiment = dataclasses.replace(kl.EXPERIMENT, step_sizes=step_sizes, condition_numbers=condition_numbers)
    claims = experiment.claims(found_with(steps))
    return {claim["id"]: claim for claim in claims if claim["reading"] == reading}


MADE_UP = {
    **{("vi_i", 0.1, kappa): [7.0 * kappa] for kappa in (10.0, 100.0)},
    **{("vi_ii", 0.1, kappa): [7.2 * kappa] for kappa in (10.0, 100.0)},
    **{("lmc_law", 0.1, kappa): [400.0 * kappa, 300.0 * kappa] for kappa in (10.0, 100.0)},
}


def test_claims_hold_where_the_numbers_say_so():
    claims = claims_of(MADE_UP)
    assert {name: claim["verdict"] for name, claim in claims.items()} == dict.fromkeys(
        ("kl-alike", "kl-linear", "kl-fewer"), "holds"
    )
    assert "2.9 % apart" in claims["kl-alike"]["evidence"]


def test_claims_fail_where_the_numbers_say_so():
    claims = claims_of({**MADE_UP, ("vi_ii", 0.1, 100.0): [1100.0], ("lmc_law", 0.1, 10.0): [60.0, 50.0]})
    assert {claim["verdict"] for claim in claims.values()} == {"fails"}
    assert "not at h=0.1, kappa=10" in claims["kl-fewer"]["evidence"]


def test_what_was_not_reached_leaves_the_growth_open_and_counts_as_slow():
    claims = claims_of({**MADE_UP, ("lmc_law", 0.1, 100.0): [np.inf, np.inf]})
    assert claims["kl-linear"]["verdict"] == "inconclusive"
    assert "lmc_law at h=0.1: target reached up to kappa=10 only" in claims["kl-linear"]["evidence"]
    assert claims["kl-fewer"]["verdict"] == "holds"


def test_growth_is_judged_over_the_last_decade_that_is_reached():
    """A chain that gets to kappa = 30 within the cap is judged from 3 to 30."""
    steps = {(name, 0.1, kappa): [10.0 * kappa] for name in ("vi_i", "vi_ii") for kappa in (3.0, 30.0, 300.0)}
    steps |= {("lmc_law", 0.1, 3.0): [100.0], ("lmc_law", 0.1, 30.0): [300.0], ("lmc_law", 0.1, 300.0): [np.inf]}
    claim = claims_of(steps, condition_numbers=(3.0, 30.0, 300.0))["kl-linear"]
    assert claim["verdict"] == "fails"
    assert "lmc_law at h=0.1: exponent 0.48 up to kappa=30" in claim["evidence"]


def test_as_written_vi_takes_one_draw_and_a_chain_is_averaged():
    renamed = {"vi_i": "vi_i_one_draw", "vi_ii": "vi_ii_one_draw", "lmc_law": "lmc_averaged"}
    made_up = {(renamed[name], *rest): steps for (name, *rest), steps in MADE_UP.items()}
    assert claims_of(made_up) == {}
    claims = claims_of(made_up, reading="as written")
    assert [claim["verdict"] for claim in claims.values()] == ["holds"] * 3


def test_nothing_run_nothing_claimed():
    assert claims_of({}) == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": 0}, "horizon must be a whole number of at least 1, but is 0"),
        ({"epsilon": -1.0}, "epsilon must be a positive finite number"),
        ({"step_sizes": (0.1, 1.5)}, "step_sizes must be between 0 and 1"),
        ({"contenders": (TargetContender("u", "uniform"),)}, "num_steps"),
        ({"contenders": (TargetContender("l", "lmc_ts"),)}, "lmc_ts is no Gaussian"),
        ({"contenders": (TargetContender("l", "lmc_ts", reading="tea"),)}, "unknown reading 'tea'"),
    ],
)
def test_bad_settings_are_refused_before_anything_runs(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(kl.EXPERIMENT, **changes).cells()


def test_an_unknown_algorithm_is_refused():
    with pytest.raises(ValueError, match="unknown algorithm 'vi_iii'; did you mean 'vi_ii'"):
        kl.EXPERIMENT.only(["vi_iii"])


@pytest.mark.heavy
def test_every_condition_number_up_to_1000_is_reached():
    assert go("vi_i", 1000.0, 0.1, cap=50_000).steps == pytest.approx(4300, rel=0.01)
    assert go("vi_ii", 1000.0, 0.1, cap=50_000).steps == pytest.approx(4337, rel=0.01)
    averaged = go("lmc_averaged", 10.0, seeds=20, cap=60_000)
    assert 38_000 <= np.median(averaged.steps) <= 48_000
