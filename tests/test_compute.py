import dataclasses
import json

import jax
import numpy as np
import pytest

from vits.lab import results
from vits.lab.experiments import compute, gaussian_target
from vits.lab.experiments import run as runs
from vits.lab.report import views

SMALL = dataclasses.replace(
    compute.EXPERIMENT, dims=(3,), horizon=1500, seeds=3, blocks=2, condition_number=2.0, epsilon=0.3
).only(["vits_ii", "vits_ii_frozen", "lmc_averaged"])


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return runs.run(SMALL, tmp_path_factory.mktemp("compute") / "run", preset="quick")


def test_rows_hold_steps_and_times_that_belong_together(small):
    rows = {row["algorithm"]: row for row in small.summary["rows"]}
    for row in rows.values():
        json.dumps(row, allow_nan=False)
        assert row["environment"] == "d=3"
        assert row["horizon"] == 1500
        assert row["failed_seeds"] == 0
        assert row["regret_mean"] is None
        assert row["rounds_per_second"] is None
        assert 0.0 < row["seconds_per_step"] <= row["seconds_per_step_median"]
        assert row["seconds_to_target"] == pytest.approx(row["steps_median"] * row["seconds_per_step"])
    assert rows["vits_ii"]["seeds"] == 1
    assert rows["vits_ii_frozen"]["steps_median"] % compute.ROUND == 0
    assert rows["lmc_averaged"]["steps_median"] > 1000  # nothing is known before the burn-in is over
    assert rows["lmc_averaged"]["seeds"] == 3


def test_the_curve_ends_at_the_target(small):
    for name in ("vits_ii", "lmc_averaged"):
        arrays = small.cells["d=3", name]
        arrived = (arrays["steps"] / arrays["stride"]).astype(int) - 1
        for seed, look in enumerate(arrived):
            assert arrays["kl"][seed, look] <= 0.3
            assert np.all(arrays["kl"][seed, :look] > 0.3)


def test_a_run_loads_draws_and_prints(small):
    loaded = results.load(small.folder)
    assert loaded.summary == small.summary
    ((path, _),) = views.draw(loaded)
    assert path == small.folder / "kl.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    table = views.table(loaded.summary)
    assert [row[1] for row in table.rows] == ["vits_ii", "vits_ii_frozen", "lmc_averaged"]
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_a_finished_run_is_not_measured_again(small):
    again = runs.run(SMALL, small.folder, preset="quick")
    assert again.summary["rows"] == small.summary["rows"]


def test_what_is_timed_is_the_chain_and_not_its_reading():
    """A thousand parallel chains cost no more than one, because one is what is timed."""
    target = gaussian_target.gaussian_target(0, 3, 2.0)
    law = next(contender for contender in compute.CONTENDERS if contender.reading == "law")
    approximation = gaussian_target.approximation(law, target, 0.1)
    state = gaussian_target.Approximation.start(approximation, jax.random.key(0))
    assert state.theta.shape == (3,)
    times = compute.seconds_per_step(approximation, blocks=2, rounds=3)
    assert times.shape == (2,)
    assert np.all(times > 0.0)


def verdict(**times):
    """The claim for made-up times to the target; a negative time stands for a target not met in the time of the cap."""
    rows = [
        {
            "environment": "d=20",
            "algorithm": name,
            "seconds_to_target": time if time > 0 else None,
            "horizon": 1,
            "seconds_per_step": abs(time),
        }
        for name, time in times.items()
    ]
    cells = {("d=20", name): {} for name in times}
    claims = compute.EXPERIMENT.claims(results.Results(None, {"rows": rows}, cells))
    return [(claim["reading"], claim["verdict"]) for claim in claims]


def test_the_claim_is_scored_by_rule():
    def best(**changes):
        ((reading, found),) = verdict(**{**paper, **changes})
        assert reading == "at its best"
        return found

    paper = {"vits_i": 10.0, "vits_ii": 1.0, "vits_ii_hf": 0.5, "lmc_law": 5.0}
    assert best() == "holds"
    assert best(vits_i=4.0) == "fails"  # LMC is the slowest
    assert best(vits_i=5.2) == "inconclusive"  # within a tenth
    assert best(lmc_law=-20.0) == "fails"  # not met, and later than VITS-I already
    assert best(lmc_law=-5.0) == "inconclusive"  # not met: perhaps later than VITS-I
    assert best(vits_ii=6.0) == "fails"
    assert verdict() == []


def test_as_written_draws_are_the_papers_and_a_chain_is_averaged():
    written = {"vits_i_one_draw": 10.0, "vits_ii_one_draw": 1.0, "vits_ii_hf_plain": 0.5, "lmc_averaged": 5.0}
    assert verdict(**written) == [("as written", "holds")]


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="blocks must be a whole number of at least 1, but is 0"):
        dataclasses.replace(SMALL, blocks=0).cells()
    with pytest.raises(ValueError, match="unknown algorithm 'vits_3'"):
        SMALL.only(["vits_3"])
