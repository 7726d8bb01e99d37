"""Runs that add seeds until their claims are decided."""

import dataclasses
import json

import numpy as np
import pytest

from vits.lab import compare, results
from vits.lab.experiments import theory
from vits.lab.experiments.bandit import regret_row
from vits.lab.experiments.base import Cell, Experiment, Request, plan
from vits.lab.experiments.run import Local, Monitor, run
from vits.lab.experiments.statements import alike, cheaper, less, scored

CHUNK = 50
COUNTS = ("failed", "rejected", "step_capped", "unstable", "refreshed")
MEANS = {"best": 100.0, "twin": 101.0, "worse": 160.0, "idle": 500.0}


@dataclasses.dataclass(frozen=True)
class Toy(Experiment):
    """Regrets drawn from a normal distribution: what is run costs nothing."""

    seeds: int = 50
    deviation: float = 60.0

    @property
    def labels(self):
        return tuple(MEANS)

    def only(self, names):
        return self

    def cells(self):
        return self.more_cells({})

    def more_cells(self, seeds):
        return [
            Cell(
                "world",
                name,
                f"{first}-{first + CHUNK - 1}",
                {},
                CHUNK,
                [name, self.deviation],
                self._draw(name, first),
            )
            for name in MEANS
            for first in range(0, seeds.get(("world", name), self.seeds), CHUNK)
        ]

    def _draw(self, name, first):
        def compute(progress):
            rng = np.random.default_rng([first, *name.encode()])
            progress(CHUNK)
            return {
                "regret": rng.normal(MEANS[name], self.deviation, (CHUNK, 1)),
                **{
                    key: np.zeros(CHUNK, bool) for key in ("failed", "rejected", "step_capped", "unstable", "refreshed")
                },
                "seconds": np.ones(1),
            }

        return compute

    def row(self, cell, arrays):
        return regret_row(*cell.key, cell.hyperparameters, arrays)

    def claims(self, found):
        return [
            *scored("linear-well", found, less("world", "best", "worse")),
            *scored("linear-ill", found, alike("world", "best", "twin")),
        ]


class Watching(Monitor):
    def __init__(self):
        self.looks = []

    def undecided(self, statements, most_seeds):
        self.looks.append([each["text"].split(",")[0] for each in statements])


def seeds(found):
    return {row["algorithm"]: row["seeds"] for row in found.summary["rows"]}


def test_only_rows_of_undecided_statements_get_more_seeds(tmp_path):
    watching = Watching()
    found = run(Toy("toy", "Toy"), tmp_path / "run", preset="p", monitor=watching, most_seeds=5000)
    well, ill = found.summary["claims"]
    assert (well["verdict"], ill["verdict"]) == ("holds", "holds")
    assert well["seeds"] < ill["seeds"] < 5000
    played = seeds(found)
    assert ill["seeds"] <= played["best"] == played["twin"] <= 1.5 * ill["seeds"]
    assert well["seeds"] <= played["worse"] < played["twin"]
    assert played["idle"] == 50
    assert watching.looks[0] == ["world: best < worse", "world: best ~ twin"]
    assert watching.looks[-1] == ["world: best ~ twin"]
    assert results.load(tmp_path / "run").summary == found.summary


def test_what_the_cap_leaves_open_says_how_many_seeds_it_needs(tmp_path):
    found = run(Toy("toy", "Toy"), tmp_path, preset="p", most_seeds=150)
    _, ill = found.summary["claims"]
    assert ill["verdict"] == "inconclusive"
    assert ill["seeds"] == 150 == max(seeds(found).values())
    assert 150 < ill["needed"] < 10_000
    assert results.outcome(ill) == f"inconclusive after 150 seeds; about {ill['needed']:,} would decide"
    again = run(Toy("toy", "Toy"), tmp_path, preset="p", most_seeds=5000)  # a larger cap goes on in the same folder
    assert [claim["verdict"] for claim in again.summary["claims"]] == ["holds", "holds"]


@pytest.mark.parametrize("moments", [5, pytest.param(20, marks=pytest.mark.heavy)])
def test_an_interrupted_run_ends_in_the_same_bytes(moments, tmp_path):
    class Stopping(Local):
        def __init__(self, after):
            self.left = after

        def compute(self, cells, monitor):
            for pair in super().compute(cells, monitor):
                if not self.left:
                    raise KeyboardInterrupt
                self.left -= 1
                yield pair

    whole = run(Toy("toy", "Toy"), tmp_path / "whole", preset="p", most_seeds=3000)
    cells = sum(seeds(whole).values()) // CHUNK
    for after in range(0, cells, max(cells // moments, 1)):
        folder = tmp_path / str(after)
        with pytest.raises(KeyboardInterrupt):
            run(Toy("toy", "Toy"), folder, preset="p", engine=Stopping(after), most_seeds=3000)
        assert not (folder / results.SUMMARY).exists()
        run(Toy("toy", "Toy"), folder, preset="p", most_seeds=3000)
        assert (folder / results.SUMMARY).read_bytes() == (tmp_path / "whole" / results.SUMMARY).read_bytes()


def test_a_plain_run_is_another_run(tmp_path):
    run(Toy("toy", "Toy"), tmp_path, preset="p")
    with pytest.raises(ValueError, match="differ in until_decided"):
        run(Toy("toy", "Toy"), tmp_path, preset="p", most_seeds=200)
    folder = tmp_path / "decided"
    run(Toy("toy", "Toy"), folder, preset="p", most_seeds=200)
    with pytest.raises(ValueError, match="differ in until_decided"):
        run(Toy("toy", "Toy"), folder, preset="p")


def test_a_run_that_may_have_more_seeds_than_before_tells_its_own_command(tmp_path):
    for most in (100, 200, 100):
        record = results.Record(command=f"vits run toy --until-decided --max-seeds {most}", changes=[])
        found = run(Toy("toy", "Toy"), tmp_path, preset="p", most_seeds=most, record=record)
        assert max(seeds(found).values()) == most
        assert found.summary["record"] == record
        assert json.loads((tmp_path / results.SETTINGS).read_text())["record"] == record


def test_where_seeds_decide_nothing_more_of_them_are_refused(tmp_path):
    with pytest.raises(ValueError, match="more seeds decide nothing about 'theory'; run it without --until-decided"):
        run(theory.PRESETS["quick"], tmp_path / "run", preset="quick", most_seeds=200)
    assert not (tmp_path / "run").exists()


def test_the_cap_is_not_below_the_seeds_that_a_run_begins_with():
    with pytest.raises(ValueError, match="max_seeds must be at least seeds, which is 300, but is 200"):
        plan(Request("linear", seeds=300, most_seeds=200))


def test_a_claim_that_fails_needs_no_other_statement(tmp_path):
    class Failing(Toy):
        def claims(self, found):
            return scored("linear-well", found, less("world", "worse", "best"), alike("world", "best", "twin"))

    found = run(Failing("toy", "Toy"), tmp_path, preset="p", most_seeds=5000)
    (claim,) = found.summary["claims"]
    failing, undecided = claim["statements"]
    assert (claim["verdict"], failing["verdict"], undecided["verdict"]) == ("fails", "fails", "inconclusive")
    assert claim["seeds"] == failing["seeds"]
    assert "needed" not in claim
    assert results.outcome(claim) == f"fails after {claim['seeds']} seeds"


def test_the_statement_that_is_expected_to_fail_first_gets_the_seeds(tmp_path):
    """The other one would need ten times as many. If the cap keeps the first from deciding, the other gets its turn."""

    class Failing(Toy):
        def claims(self, found):
            return scored("linear-well", found, alike("world", "best", "twin"), less("world", "worse", "best"))

    watching = Watching()
    found = run(Failing("toy", "Toy", deviation=200.0), tmp_path / "a", preset="p", monitor=watching, most_seeds=5000)
    (claim,) = found.summary["claims"]
    assert claim["verdict"] == "fails"
    assert seeds(found)["twin"] < claim["seeds"] <= seeds(found)["worse"]
    assert watching.looks[-1] == ["world: worse < best"]
    capped = run(Failing("toy", "Toy", deviation=200.0), tmp_path / "b", preset="p", most_seeds=100)
    (claim,) = capped.summary["claims"]
    assert claim["verdict"] == "inconclusive"
    assert claim["needed"] == min(finding["needed"] for finding in claim["statements"])
    assert seeds(capped)["twin"] == seeds(capped)["worse"] == 100


def test_statements_of_a_claim_share_its_level(tmp_path):
    """The interval of one of two statements is that of half the level."""
    found = run(Toy("toy", "Toy", seeds=400), tmp_path, preset="p")
    one, two = less("world", "best", "twin"), alike("world", "best", "worse")
    for count in (1, 2):
        finding = scored("linear-well", found, *(one, two)[:count])[0]["statements"][0]
        decision = compare.decide(compare.less, *one.values(found), alpha=0.05 / 16 / count)
        assert finding["low"] == decision.difference.low


def test_speed_alone_can_fail_a_claim(tmp_path):
    found = run(Toy("toy", "Toy"), tmp_path, preset="p")
    statement = less("world", "best", "worse")
    (claim,) = scored("linear-hf", found, statement, also=lambda: cheaper(found, ["world"], ["best"], "worse"))
    assert claim["verdict"] == "fails"  # as fast as the other, so not cheaper
    assert "seeds" not in claim
    assert results.outcome(claim) == "fails"


def test_rows_that_were_not_run_leave_a_claim_unscored(tmp_path):
    found = run(Toy("toy", "Toy"), tmp_path, preset="p")
    assert scored("linear-well", found, less("world", "best", "missing")) == []


def test_summaries_are_strict_json(tmp_path):
    run(Toy("toy", "Toy"), tmp_path, preset="p")
    json.loads((tmp_path / results.SUMMARY).read_text(), parse_constant=pytest.fail)  # no Infinity, no NaN


def test_evidence_says_how_many_seeds_failed():
    regret = np.tile(np.linspace(90.0, 110.0, 120)[:, None], (1, 1))
    cells = {
        ("world", "a"): {"regret": regret, "failed": np.arange(120) < 5},
        ("world", "b"): {"regret": regret, "failed": np.zeros(120, bool)},
    }
    summary = {"settings": {"reading": "as written"}, "rows": []}
    (claim,) = scored("linear-vits1", results.Results(None, summary, cells), alike("world", "a", "b"))
    assert "5 of 120 seeds failed and are left out" in claim["evidence"]
    assert claim["reading"] == "as written"
