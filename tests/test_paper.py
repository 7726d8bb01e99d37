"""The reproduction as data: what is kept of a run, and pages that agree with it."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from vits import catalogue
from vits.lab.experiments import linear, tuned
from vits.lab.experiments import run as runs
from vits.lab.report import paper, scorecard

ROOT = Path(__file__).parents[1]
PAGES = ("docs/reproduction.md", "docs/real-data.md", "README.md")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    small = dataclasses.replace(linear.PRESETS["figure"], horizon=100, seeds=3).only(["lin_ts", "uniform"])
    return runs.run(small, tmp_path_factory.mktemp("runs") / "linear", preset="figure")


@pytest.fixture
def kept(found, tmp_path):
    paper.keep(found, tmp_path / "linear-paper.json")
    return paper.load(tmp_path)


def test_a_kept_run_has_the_summary_and_thinned_curves(found, kept):
    run = kept["linear-paper"]
    assert run.summary["claims"] == found.summary["claims"]
    assert run.summary["versions"] == found.summary["versions"]
    for row, original in zip(run.summary["rows"], found.summary["rows"], strict=True):
        assert "files" not in row
        assert row["commits"] == list(dict.fromkeys(found.cells[row["environment"], row["algorithm"]]["commit"]))
        assert row["regret_mean"] == original["regret_mean"]
        curve = run.curves[row["environment"], row["algorithm"]]
        assert len(curve.rounds) == paper.POINTS
        assert (curve.rounds[0], curve.rounds[-1]) == (1, 100)
        np.testing.assert_allclose(curve.mean[-1], original["regret_mean"], rtol=1e-4)
        np.testing.assert_allclose(curve.error[-1], original["regret_stderr"], rtol=1e-4)


def test_blocks_are_filled_from_the_data_and_only_they_change(kept):
    page = (
        "before\n<!-- begin linear-paper -->\nold\n<!-- end linear-paper -->\nbetween\n<!-- begin kl-paper -->\nold\n"
    )
    page += "<!-- end kl-paper -->\n<!-- begin all-tally -->\n<!-- end all-tally -->\nafter\n"
    new = paper.filled(page, kept)
    assert new.startswith("before\n<!-- begin linear-paper -->\n![Linear bandit](figures/linear-paper.png")
    assert "old" not in new
    assert (
        "between\n<!-- begin kl-paper -->\nNo run is kept yet. `vits paper kl` makes one.\n<!-- end kl-paper -->" in new
    )
    assert "At its best: 16 not run" in new
    assert paper.filled(new, kept) == new
    row = kept["linear-paper"].summary["rows"][0]
    assert f"{row['regret_mean']:.1f} ± {row['regret_stderr']:.1f}, {row['regret_median']:.1f}" in new


def test_a_block_that_nothing_makes_is_refused(kept):
    with pytest.raises(ValueError, match="asks for all-figures"):
        paper.filled("<!-- begin all-figures -->\n<!-- end all-figures -->\n", kept)


def test_pages_figures_and_the_shipped_scorecard_are_written(kept, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- begin linear-paper -->\n<!-- end linear-paper -->\n")
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "linear-paper.json").rename(data / "linear-paper.json")
    paper.write_pages(data, [page], tmp_path / "figures", tmp_path / "scorecard.json")
    assert (tmp_path / "figures" / "linear-paper.png").stat().st_size > 10_000
    assert "figures/linear-paper.png" in page.read_text()
    listed = json.loads((tmp_path / "scorecard.json").read_text())
    assert [scorecard.Score(**each).id for each in listed[::2]] == list(catalogue.CLAIMS)


def test_a_new_figure_has_a_new_checksum(kept):
    run = kept["linear-paper"]
    changed = {key: curve._replace(mean=curve.mean + 1.0) for key, curve in run.curves.items()}
    assert paper.checksum(run) == paper.checksum(run)
    assert paper.checksum(run) != paper.checksum(run._replace(curves=changed))


@pytest.mark.parametrize("name", PAGES)
def test_pages_agree_with_the_data(name):
    """If this fails: make paper-docs."""
    page = (ROOT / name).read_text("utf-8")
    assert paper.filled(page, paper.load(ROOT / "paper")) == page


def test_the_shipped_scorecard_agrees_with_the_data():
    """If this fails: make paper-docs."""
    assert [score._asdict() for score in paper.scores(paper.load(ROOT / "paper"))] == [
        {**score._asdict(), "changes": tuple(score.changes), "others": tuple(score.others)}
        for score in paper.shipped_scores()
    ]


def test_figures_of_the_pages_are_there():
    for name, run in paper.load(ROOT / "paper").items():
        assert not paper.has_figure(run) or (ROOT / "docs" / paper.figure_name(name)).is_file()


def test_the_data_are_small_and_hold_no_ratings():
    files = list((ROOT / "paper").glob("*"))
    assert sum(path.stat().st_size for path in files) < 5_000_000
    assert {path.suffix for path in files} <= {".json", ".md"}


def test_every_run_of_the_reproduction_is_a_preset():
    for job in paper.JOBS:
        catalogue.experiment(job.experiment, job.preset)
    assert {job.experiment for job in paper.JOBS} == set(catalogue.EXPERIMENTS)
    assert {job.experiment for job in paper.JOBS if job.preset == "written"} == {
        name for name, row in catalogue.EXPERIMENTS.items() if "written" in row.presets
    }


def test_every_shipped_difference_between_the_readings_is_explained():
    differing = [pair[0].id for pair in scorecard.paired(paper.shipped_scores()) if scorecard.differ(*pair)]
    assert [name for name in differing if name not in scorecard.DIFFERS] == []


def test_the_page_lists_every_setting_that_ships():
    listed = paper.settings()
    count = {
        (experiment, world, name)
        for experiment, readings in tuned.shipped().items()
        for worlds in readings.values()
        for world, names in worlds.items()
        for name in names
    }
    assert {row[:3] for row in listed.rows} == count
