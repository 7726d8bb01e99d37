import dataclasses
import html.parser
import io
import json
import re
import shutil
import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest
from rich.console import Console

from vits import catalogue, files
from vits.lab import results
from vits.lab.experiments import compute, fixed_arms, kl, linear
from vits.lab.experiments import run as runs
from vits.lab.experiments.base import Request, plan
from vits.lab.experiments.run import Monitor
from vits.lab.plots import curves, style
from vits.lab.report import console, scorecard, tables
from vits.lab.report import html as markup
from vits.lab.report.page import comparisons, render
from vits.lab.report.page import write as write_report

WORLDS = linear.EXPERIMENT.worlds[:2]
SMALL = dataclasses.replace(linear.PRESETS["quick"], worlds=WORLDS, horizon=20, seeds=3).only(
    ["lin_ucb", "lin_ts", "uniform"]
)
VOID = {"meta", "img", "line", "circle", "path"}


class Page(html.parser.HTMLParser):
    """A page, with its elements counted, and an error where one is not closed where it should be."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.text = [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert tag in VOID or self.open.pop() == tag

    def handle_data(self, data):
        self.text += data if self.open and self.open[-1] != "style" else ""

    def all(self, tag):
        return [attributes for found, attributes in self.elements if found == tag]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return runs.run(SMALL, tmp_path_factory.mktemp("linear") / "run", preset="quick")


@pytest.fixture(scope="module")
def page(run):
    return Page(write_report(run).read_text())


def copy(run, folder, **changes):
    folder.mkdir(parents=True)
    files.write_json(folder / "summary.json", {**run.summary, **changes})
    return folder


def test_the_page_needs_no_other_file_and_no_script(run, page):
    assert page.all("script") == page.all("link") == page.all("a") == []
    assert all(image["src"].startswith("data:image/png;base64,") for image in page.all("img"))
    assert "url(" not in (run.folder / "report.html").read_text()
    assert (run.folder / "report.html").stat().st_size < 2e6


def test_pictures_are_described_and_tables_have_captions_and_headings(page):
    assert len(page.all("img")) == 1
    assert all("regret" in image["alt"] and "lin_ucb" in image["alt"] for image in page.all("img"))
    assert len(page.all("caption")) == len(page.all("table")) == 6
    assert all("scope" in heading for heading in page.all("th"))


def test_the_page_holds_what_was_found(run, page):
    for row in run.summary["rows"]:
        assert f"{row['regret_mean']:.1f} ± {row['regret_stderr']:.1f}" in page.text
        assert f"{row['rounds_per_second']:,.0f}" in page.text
    for text in ("refreshed inverses", "capped rounds", "rejected updates", "failed seeds", "prior_precision = 1"):
        assert text in page.text
    for version in run.summary["versions"].values():
        assert version in page.text


def test_the_same_run_gives_the_same_page(run):
    first = write_report(run).read_bytes()
    assert write_report(results.load(run.folder)).read_bytes() == first


def test_names_are_text_and_never_tags(run):
    rows = [{**row, "environment": "<b>&"} for row in run.summary["rows"]]
    claims = [results.Claim(id="<i>", claim="<script>alert(1)</script>", verdict="holds", evidence="a < b; c")]
    settings = {**run.summary["settings"], "title": "</title><script>"}
    hostile = run._replace(summary={**run.summary, "rows": rows, "claims": claims, "settings": settings})
    text = render(hostile, [], "lin_ts")
    assert Page(text).all("script") == []
    assert "<script>alert(1)</script>" in Page(text).text


def test_differences_are_paired_with_the_reference():
    def cell(*final, failed=None):
        regret = np.array(final)[:, None]
        return {"regret": regret, "failed": np.zeros(len(final), bool) if failed is None else np.array(failed)}

    cells = {
        ("e", "a"): cell(1.0, 2.0, 3.0, 4.0),
        ("e", "b"): cell(3.0, 3.0, 5.0, 99.0, failed=[False, False, False, True]),
        ("f", "b"): cell(1.0, 1.0, 1.0, 1.0),
    }
    ((key, found),) = comparisons(results.Results(None, {}, cells), "a").items()
    assert key == ("e", "b")
    # Differences 2, 1, 2: mean 5/3, standard error sqrt(1/3) / sqrt(3) = 1/3.
    # Student's t with two degrees of freedom reaches 4.302653.
    assert found.mean == pytest.approx(5 / 3)
    assert found.high == pytest.approx(5 / 3 + 4.302653 / 3)
    assert found.pairs == 3


def test_one_seed_is_reported_without_intervals(tmp_path):
    found = runs.run(dataclasses.replace(SMALL, seeds=1).only(["lin_ts", "uniform"]), tmp_path / "run", preset="quick")
    assert "too few seeds" in Page(write_report(found).read_text()).text


def test_failed_seeds_and_steps_that_were_too_long_are_said_at_the_top(run):
    rows = [{**row, "failed_seeds": 2, "unstable_rounds": 6} for row in run.summary["rows"][:1]]
    text = Page(render(run._replace(summary={**run.summary, "rows": rows}), [], "lin_ts")).text
    assert "left out of every average: lin_ucb in zeta=0.1, 2 of 3" in text
    assert "too long for a correct covariance: lin_ucb in zeta=0.1" in text
    assert "6 (10.0 %)" in text


def test_an_algorithm_that_failed_on_every_seed_is_counted_among_those_that_ran(run):
    rows = [
        {**row, "failed_seeds": 3, "regret_mean": None} if row["algorithm"] == "lin_ucb" else row
        for row in run.summary["rows"]
    ]
    for kept in (rows, [row for row in rows if row["regret_mean"] is None]):
        text = Page(render(run._replace(summary={**run.summary, "rows": kept}), [], "lin_ts")).text
        algorithms = "3 algorithms" if kept is rows else "1 algorithm"
        assert f"{algorithms} in 2 environments, 3 seeds of 20 rounds each" in text


def made(experiment, folder, cells):
    """A run with these arrays, as if it had been computed."""
    built = {cell.key: cell for cell in experiment.cells()}
    rows = [{**experiment.row(built[key], arrays), "files": []} for key, arrays in cells.items()]
    summary = {"experiment": experiment.name, "preset": "paper", "settings": experiment.settings(), "rows": rows}
    found = results.Results(folder, {**summary, "versions": {}, "claims": []}, cells)
    found.summary["claims"] = experiment.claims(found)
    return found


def test_the_report_of_steps_to_a_target(tmp_path):
    small = dataclasses.replace(kl.EXPERIMENT, condition_numbers=(1.0, 10.0), step_sizes=(0.1,), seeds=1)
    small = small.only(["vi_i", "vi_ii"])
    none = {"diverged": np.zeros(1, bool), "refreshed": np.zeros(1, int), "floor": np.zeros(1), "seconds": np.ones(1)}
    steps = {"h=0.1, kappa=1": 22.0, "h=0.1, kappa=10": np.inf}
    cells = {(where, who): {**none, "steps": np.array([k])} for where, k in steps.items() for who in ("vi_i", "vi_ii")}
    page = Page(write_report(made(small, tmp_path, cells)).read_text())
    for text in ("at most 50,000 steps", "✓ holds", "> 50,000", "steps median", "below floor"):
        assert text in page.text
    assert "Differences" not in page.text
    assert len(page.all("img")) == 1


def test_the_report_of_computing_time(tmp_path):
    small = dataclasses.replace(compute.EXPERIMENT, dims=(20,), seeds=1).only(["vits_i", "lmc_averaged"])
    arrays = {
        "steps": np.array([100.0]),
        "diverged": np.zeros(1, bool),
        "seconds": np.ones(1),
        "seconds_per_step": np.full(3, 1.5e-5),
        "kl": np.array([[1.0, 0.05]]),
        "stride": np.array([50]),
    }
    cells = {("d=20", name): arrays for name in ("vits_i", "lmc_averaged")}
    page = Page(write_report(made(small, tmp_path, cells)).read_text())
    for text in ("compute-order", "µs a step", "15.0", "1.50", f"1.5 {markup.TIMES} 10⁻⁵"):
        assert text in page.text


@pytest.mark.parametrize(
    ("request_", "command", "changes"),
    [
        (Request("linear"), "vits run linear --preset quick", []),
        (
            Request("kl", "paper", ["vi_ii", "vi_i"], seeds=3, horizon=4000),
            "vits run kl --preset paper --seeds 3 --horizon 4000 --algorithms vi_ii,vi_i",
            [
                "seeds 3 instead of 100",
                "horizon 4,000 instead of 50,000",
                "without vi_ii_hf, natural, lmc_averaged, lmc_law, vi_i_one_draw, vi_ii_one_draw, vi_ii_hf_plain",
            ],
        ),
        (
            Request("fixed-logistic", seeds=20, algorithms=["greedy"], tuning_seeds=7),
            "",
            None,
        ),
        (
            Request("fixed-linear", algorithms=["lin_ts", "vits_i"], tuning_seeds=7, seeds=20),
            "vits tune fixed-linear --preset quick --tuning-seeds 7 --seeds 20 --algorithms lin_ts,vits_i",
            ["without vits_ii, vits_ii_hf, vits_ng, lmc_ts, ensemble_ts, vts, lin_ucb"],
        ),
        (
            Request("theory", "paper", ["lin_ts", "vits_i"]),
            "vits run theory --preset paper --algorithms lin_ts,vits_i",
            [],
        ),
    ],
)
def test_the_command_and_what_it_changed_are_known_when_a_run_starts(request_, command, changes):
    if changes is None:
        with pytest.raises(ValueError, match="there is nothing to tune in greedy"):
            plan(request_)
        return
    experiment, record = plan(request_)
    assert record == {"command": command, "changes": changes}
    assert experiment.name.removesuffix(results.TUNING) == request_.experiment
    assert set(experiment.labels) == set(request_.algorithms or experiment.labels)


def test_the_record_is_written_before_anything_is_computed_and_kept_when_the_run_is_resumed(tmp_path):
    class Stops(Monitor):
        def cell(self, cell):
            raise KeyboardInterrupt

    first = results.Record(command="vits run linear", changes=["seeds 3 instead of 20"])
    with pytest.raises(KeyboardInterrupt):
        runs.run(SMALL, tmp_path / "run", preset="quick", record=first, monitor=Stops())
    stored = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert stored == {"record": first, "settings": SMALL.settings()}
    assert runs.run(SMALL, tmp_path / "run", preset="quick").summary["record"] == first


def test_folders_from_before_the_record_was_kept_are_shown_and_resumed(tmp_path):
    folder = tmp_path / "run"
    runs.run(SMALL, folder, preset="quick")
    summary = json.loads((folder / "summary.json").read_text())
    del summary["record"]
    files.write_json(folder / "summary.json", summary)
    files.write_json(folder / "settings.json", SMALL.settings())
    text = Page(write_report(results.load(folder)).read_text()).text
    assert "The run is from before commands were recorded" in text
    record = results.Record(command="vits run linear", changes=[])
    assert runs.run(SMALL, folder, preset="quick", record=record).summary["record"] == record


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12345, "12,345"), (1234.5, "1,234"), (12.34, "12.3"), (0.01234, "0.0123"), (0.5, "0.500")],
)
def test_numbers_have_as_many_digits_as_help(value, text):
    assert markup.number(value) == text


def test_small_and_negative_numbers_are_set_as_in_print():
    assert markup.number(1.5e-5) == f"1.5 {markup.TIMES} 10⁻⁵"
    assert markup.decimal(-2.25, 1) == f"{markup.MINUS}2.2"
    assert markup.decimal(2.0, 1, "+") == "+2.0"


def vits(*arguments, cwd=None):
    command = [sys.executable, "-c", "from vits.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


@pytest.mark.parametrize("command", ["report", "claims"])
@pytest.mark.parametrize(
    ("summary", "message"),
    [
        (None, "holds no finished run: summary.json is missing"),
        ("{", "is not a summary of a run: Expecting property name"),
        ("[]", "the summary is not a mapping"),
        ('{"experiment": "linear"}', "the summary has no 'preset'"),
        ({"rows": []}, "it has no rows"),
        ({"record": {}}, "the record has no 'command'"),
        ({"claims": [{"id": "theorem", "claim": "", "verdict": "perhaps", "evidence": ""}]}, "a verdict is 'perhaps'"),
    ],
)
def test_what_is_no_finished_run_is_refused_in_one_sentence(command, summary, message, run, tmp_path):
    folder = tmp_path / "run"
    if isinstance(summary, dict):
        copy(run, folder, **summary)
    else:
        folder.mkdir()
        if summary is not None:
            (folder / "summary.json").write_text(summary)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ValueError, match=re.escape(message)):
        scorecard.scorecard([folder]) if command == "claims" else write_report(results.load(folder))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_bad_input_ends_with_exit_code_2_and_writes_nothing(run, tmp_path):
    (run.folder / "report.html").unlink(missing_ok=True)
    for arguments, message in (
        (["report", "nowhere"], "nowhere holds no finished run"),
        (["claims", "nowhere"], "nowhere holds no finished run"),
        (
            ["report", run.folder, "--reference", "ucb"],
            "unknown algorithm of this run 'ucb'; did you mean 'lin_ucb'?",
        ),
        (["claims", run.folder, "--format", "latex"], "unknown format 'latex'"),
    ):
        done = vits(*arguments, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    assert not (run.folder / "report.html").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("names", [[], [3]])
def test_rows_without_names_of_files_are_refused_in_one_sentence(names, run, tmp_path):
    rows = [{**row, "files": names} for row in run.summary["rows"]]
    with pytest.raises(results.DamagedRun, match="a row has no 'files'"):
        results.load(copy(run, tmp_path / "run", rows=rows))


def test_the_figure_of_arms_tells_the_seeds_of_all_rows(monkeypatch, tmp_path):
    small = dataclasses.replace(fixed_arms.FIXED_LINEAR, horizon=10, seeds=2).only(["lin_ts", "uniform"])
    found = runs.run(small, tmp_path / "run", preset="quick")
    for row in found.summary["rows"][1:]:
        row["seeds"] = 150
    titles = []
    monkeypatch.setattr(style, "finish", lambda figure, axes, title, path: titles.append(title) or path)
    curves.arms(found)
    plt.close("all")
    assert titles[0].endswith("mean of 2 to 150 seeds")


def test_damaged_curves_are_named(run, tmp_path):
    folder = copy(run, tmp_path / "run")
    for name in (name for row in run.summary["rows"] for name in row["files"]):
        (folder / name).write_bytes(b"not an archive")
    with pytest.raises(ValueError, match=r"zeta=0\.1--lin_ucb--0-2\.npz is damaged"):
        results.load(folder)


def scored(run, folder, preset, *claims, **changes):
    found = [
        results.Claim(id=name, claim=f"about {name}", verdict=verdict, evidence="x; y") for name, verdict in claims
    ]
    record = results.Record(command="vits run", changes=[])
    return copy(run, folder, preset=preset, claims=found, **{"record": record, **changes})


def test_every_claim_of_the_paper_is_listed_in_its_order(run, tmp_path):
    scores = scorecard.scorecard([scored(run, tmp_path / "a", "quick", ("theorem", "fails"), ("mine", "holds"))])
    pairs = scorecard.paired(scores)
    assert [best.id for _, best in pairs] == [*catalogue.CLAIMS, "mine"]
    assert {best.verdict for _, best in pairs[:-2]} == {"not run"}
    assert {written.verdict for written, _ in pairs} == {"not run"}
    # The theorem's came from linear, and nothing is claimed of the others.
    assert {best.experiment for _, best in pairs} == set(catalogue.EXPERIMENTS) - {"theory", "comparison", "tables"}
    assert scorecard.tally(scores) == "As written: 17 not run. At its best: 1 hold, 1 fail, 15 not run."
    assert scorecard.markdown(scores).splitlines()[-1] == "| **mine** about mine | not run | holds | *at its best*: x |"


def test_the_two_readings_of_a_claim_stand_side_by_side(run, tmp_path):
    folder = tmp_path / "a"
    scored(run, folder, "paper", ("theorem", "fails"))
    summary = json.loads((folder / "summary.json").read_text())
    summary["claims"].append({**summary["claims"][0], "reading": "as written", "verdict": "holds"})
    (folder / "summary.json").write_text(json.dumps(summary))
    written, best = next(pair for pair in scorecard.paired(scorecard.scorecard([folder])) if pair[0].id == "theorem")
    assert (written.reading, written.verdict) == ("as written", "holds")
    assert (best.reading, best.verdict) == ("at its best", "fails")


def test_the_papers_preset_counts_before_quick_and_later_before_earlier(run, tmp_path):
    paper = scored(run, tmp_path / "paper", "paper", ("theorem", "holds"))
    quick = scored(run, tmp_path / "quick", "quick", ("theorem", "fails"), ("kl-alike", "fails"))
    later = scored(run, tmp_path / "later", "quick", ("kl-alike", "inconclusive"))
    scores = {best.id: best for _, best in scorecard.paired(scorecard.scorecard([paper, quick, later, quick]))}
    assert (scores["theorem"].verdict, scores["theorem"].folder) == ("holds", str(paper))
    assert scores["theorem"].others == (f"{quick} (quick): fails",)
    assert (scores["kl-alike"].verdict, scores["kl-alike"].folder) == ("inconclusive", str(later))


def test_a_run_that_changed_its_preset_counts_after_one_that_did_not_and_says_so(run, tmp_path):
    quick = scored(run, tmp_path / "quick", "quick", ("theorem", "holds"))
    tuned = scored(run, tmp_path / "tuned", "tuned", ("theorem", "inconclusive"))
    less = results.Record(command="vits run", changes=["seeds 3 instead of 50"])
    changed = scored(run, tmp_path / "changed", "paper", ("theorem", "fails"), ("kl-alike", "fails"), record=less)
    python = scored(run, tmp_path / "python", "paper", ("kl-linear", "fails"), record=runs.UNRECORDED)
    scores = {best.id: best for _, best in scorecard.paired(scorecard.scorecard([quick, tuned, changed, python]))}
    assert scores["kl-linear"].run == "paper, changes unknown"
    assert (scores["theorem"].verdict, scores["theorem"].run) == ("holds", "quick")
    assert scores["theorem"].others == (f"{changed} (paper, changed): fails", f"{tuned} (tuned): inconclusive")
    assert scores["kl-alike"].run == "paper, changed"
    assert scores["kl-alike"].changes == ("seeds 3 instead of 50",)
    printed = vits("claims", changed).stdout
    assert "paper, changed" in printed
    assert "(changed: seeds 3" in printed


def test_the_scorecard_is_printed_whole_in_80_columns(run, tmp_path):
    folder = scored(run, tmp_path / "a", "paper", ("theorem", "fails"))
    done = vits("claims", folder)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "…" not in done.stdout
    for name in catalogue.CLAIMS:
        assert name in done.stdout
    assert "16 claims. As written: 16 not run. At its best: 1 fail, 15 not run." in " ".join(done.stdout.split())
    listed = json.loads(vits("claims", folder, "--format", "json").stdout)
    assert listed[-1] == {
        "id": "theorem",
        "claim": "about theorem",
        "reading": "at its best",
        "verdict": "fails",
        "evidence": "x; y",
        "outcome": "fails",
        "experiment": "linear",
        "preset": "paper",
        "folder": str(folder),
        "changes": [],
        "others": [],
    }


def test_a_run_from_the_command_line_leaves_its_report(tmp_path):
    folder = tmp_path / "out"
    done = vits("run", "linear", "--algorithms", "lin_ts,uniform", "--seeds", 2, "--horizon", 10, "--out", folder)
    assert done.returncode == 0, done.stderr
    assert f"report: {folder / 'report.html'}" in done.stdout
    text = Page((folder / "report.html").read_text()).text
    assert "vits run linear --preset quick --seeds 2 --horizon 10 --algorithms lin_ts,uniform" in text
    assert "Changed from the preset: seeds 2 instead of 20; horizon 10 instead of 1,000" in text


@pytest.mark.parametrize("name", ["x[/y]", "b [v1] :smile:"])
def test_folders_are_printed_as_they_are_called(name, run, tmp_path):
    folder = tmp_path / name
    shutil.copytree(run.folder, folder)
    done = vits("report", folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"report: {folder / 'report.html'}\n"


def test_a_narrow_terminal_cuts_no_cell():
    rows = [("zeta=0.1, tuned", "vits_ii", "12345.6 ± 78.9", "31,415"), ("zeta=1, tuned", "lin_ts", "1.0 ± 0.1", "2")]
    content = tables.Table("Regret", ("environment", "algorithm", "mean ± s.e.", "rounds/s"), rows)
    written = io.StringIO()
    console.print_table(Console(file=written, width=30), content)
    for row in rows:
        assert all(cell in written.getvalue() for cell in row)


def test_random_play_does_not_set_the_scale_of_a_figure():
    rounds = np.arange(1, 11)
    found = {"lin_ts": curves.Curve(rounds, 1.0 * rounds, None), "uniform": curves.Curve(rounds, 100.0 * rounds, None)}
    figure, axes = plt.subplots()
    curves._panel(axes, found, style.looks(found))
    plt.close(figure)
    assert [text.get_text() for text in axes.texts] == ["uniform: 1000 (off scale)"]
    assert [line.get_label() for line in axes.lines] == ["lin_ts"]
