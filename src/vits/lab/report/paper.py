"""The reproduction as data: a folder `paper/` with one JSON file per run, and the pages generated from it.

A file holds the summary of a run and its curves at a few rounds. Tables and figures in the documentation are generated
from these files, never typed by hand.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from vits import files
from vits.files import Arrays
from vits.lab.experiments import tuned
from vits.lab.plots import curves, gaussian_target
from vits.lab.plots.curves import Curve
from vits.lab.report import scorecard, tables, views
from vits.lab.report.tables import Table
from vits.lab.results import BEST, READINGS, Key, Results, Row, Summary, columns, span

POINTS = 60
"""Rounds at which curves are kept."""

DIGITS = 5
"""Significant digits of curves."""


class Job(NamedTuple):
    """A run of the reproduction: an experiment, its preset, a cap on seeds, and about how long it takes."""

    experiment: str
    preset: str
    most_seeds: int | None
    hours: float

    @property
    def name(self) -> str:
        """The name of its folder and its file."""
        return f"{self.experiment}-{self.preset}"


JOBS = (
    Job("compute", "paper", None, 0.1),
    Job("fixed-linear", "paper", 10_000, 0.5),
    Job("fixed-linear", "written", 40_000, 0.8),
    Job("linear", "paper", 10_000, 0.8),
    Job("linear", "written", 10_000, 0.5),
    Job("fixed-logistic", "paper", 4000, 1.0),
    Job("fixed-logistic", "written", 10_000, 0.5),
    Job("kl", "paper", None, 0.5),
    Job("comparison", "paper", None, 0.2),
    Job("theory", "paper", None, 2.5),
    Job("tables", "paper", None, 3.0),
    Job("movielens", "written", 300, 1.5),
    Job("quadratic", "tuned", 600, 2.5),
    Job("movielens", "paper", 300, 3.0),
    Job("quadratic", "paper", 100, 3.0),
    Job("quadratic", "written", None, 10.0),
)
"""All experiments of the paper in both readings, and networks on tables; short runs first.

Hours are for two cores, measured or estimated. Seeds are added until the claims are decided, up to the cap. Runs
without a cap keep the seeds of their preset, because more would not help or would take too long.
"""


class Kept(NamedTuple):
    """A run as it is kept: its summary, and its curves by environment and algorithm (None where every seed failed)."""

    summary: Summary
    curves: dict[Key, Curve | None]


def keep(found: Results, path: Path) -> None:
    """Write a run to a file of the reproduction."""
    rows: list[dict[str, Any]] = []
    for row in found.summary["rows"]:
        arrays = found.cells[row["environment"], row["algorithm"]]
        commits = list(dict.fromkeys(str(commit) for commit in arrays["commit"]))
        rows.append({**{name: value for name, value in row.items() if name != "files"}, "commits": commits})
    kept = [
        curve
        for key, arrays in found.cells.items()
        if found.summary["experiment"] not in DRAWN and (curve := _curve(key, arrays)) is not None
    ]
    content: dict[str, Any] = {**found.summary, "rows": rows, "curves": kept}
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(path, content)


def _curve(key: Key, arrays: Arrays) -> dict[str, Any] | None:
    """A curve as JSON; None if there is no regret."""
    if "regret" not in arrays:
        return None
    found = curves.curve(arrays, POINTS)
    values: dict[str, Any] = {"environment": key[0], "algorithm": key[1], "rounds": None, "mean": None, "error": None}
    if found is not None:
        values["rounds"] = found.rounds.tolist()
        values["mean"] = _rounded(found.mean)
        values["error"] = None if found.error is None else _rounded(found.error)
    return values


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]


def load(folder: Path) -> dict[str, Kept]:
    """The runs in a folder by name, in the order of `JOBS`; other files come last."""
    order = [job.name for job in JOBS]
    names = sorted(path.stem for path in folder.glob("*.json"))
    names.sort(key=lambda name: order.index(name) if name in order else len(order))
    return {name: _load(folder / f"{name}.json") for name in names}


def _load(path: Path) -> Kept:
    content = json.loads(path.read_bytes())
    found: dict[Key, Curve | None] = {}
    for each in content.pop("curves"):
        arrays: Any = {name: None if each[name] is None else np.array(each[name]) for name in Curve._fields}
        found[each["environment"], each["algorithm"]] = None if arrays["mean"] is None else Curve(**arrays)
    return Kept(cast(Summary, content), found)


def scores(runs: Mapping[str, Kept]) -> list[scorecard.Score]:
    """The scorecard of the reproduction."""
    return scorecard.scores((f"paper/{name}.json", kept.summary) for name, kept in runs.items())


# --- pages --------------------------------------------------------------------------------------------------------

_BLOCK = re.compile(r"(<!-- begin (?P<name>[\w-]+) -->\n)(?P<body>.*?)(<!-- end (?P=name) -->)", re.DOTALL)


def filled(page: str, runs: Mapping[str, Kept]) -> str:
    """A page with its blocks filled from the data."""
    made = blocks(runs)
    if unknown := [match["name"] for match in _BLOCK.finditer(page) if match["name"] not in made]:
        raise ValueError(f"a page asks for {', '.join(unknown)}, which nothing makes")
    return _BLOCK.sub(lambda match: f"{match[1]}{made[match['name']]}{match[4]}", page)


def blocks(runs: Mapping[str, Kept]) -> dict[str, str]:
    """The text of every block that pages may have: the scorecard, the tally, the settings, and one block per run."""
    found = scores(runs)
    figures = {f"paper/{name}.json": figure_name(name) for name, kept in runs.items() if has_figure(kept)}
    missing = {job.name: f"No run is kept yet. `vits paper {job.experiment}` makes one.\n" for job in JOBS}
    return {
        "all-scorecard": scorecard.markdown(found, figures) + "\n",
        "all-tally": scorecard.tally(found) + "\n",
        "all-settings": markdown(settings()) + "\n",
        **missing,
        **{name: _section(name, kept) for name, kept in runs.items()},
    }


def figure_name(name: str) -> str:
    """The file of a run's figure, relative to the page."""
    return f"figures/{name}.png"


def _section(name: str, kept: Kept) -> str:
    """The table of a run, its figure, and how to get it."""
    table = markdown(TABLES.get(kept.summary["experiment"], _regrets)(kept))
    record = kept.summary.get("record")
    command = (record and record["command"]) or "from Python"
    where = kept.summary["versions"].get("commit", "unknown")
    said = views.sentences(kept.summary)
    lines = [table, "", *([said, ""] if said else []), f"`{command}`, commit {where[:12]}."]
    if has_figure(kept):
        lines[:0] = [f'![{kept.summary["settings"]["title"]}]({figure_name(name)} "data {checksum(kept)}")', ""]
    return "\n".join(lines) + "\n"


def _regrets(kept: Kept) -> Table:
    """Mean ± standard error and median of the final regret: one row per algorithm, one column per environment."""
    rows = {(row["environment"], row["algorithm"]): row for row in kept.summary["rows"]}
    worlds, names = (list(dict.fromkeys(each)) for each in zip(*kept.curves, strict=True))
    seeds = span({rows[key]["seeds"] for key in kept.curves})
    horizon = max(rows[key]["horizon"] for key in kept.curves)
    title = f"Regret after {horizon:,} rounds, mean ± standard error and median, {seeds} seeds"
    cells = [(name, *(_regret(rows.get((world, name))) for world in worlds)) for name in names]
    return Table(title, ("", *worlds), cells, texts=1)


def _regret(row: Row | None) -> str:
    if row is None or row["regret_mean"] is None:
        return ""
    error = "" if row["regret_stderr"] is None else f" ± {row['regret_stderr']:.1f}"
    failed = f" ({row['failed_seeds']} failed)" if row["failed_seeds"] else ""
    return f"{row['regret_mean']:.1f}{error}, {row['regret_median']:.1f}{failed}"


def _growth(kept: Kept) -> Table:
    """Mean regret of VITS-I: one row per dimension, one column per horizon."""
    rows = [row for row in columns(kept.summary) if row["algorithm"] == "vits_i"]
    found = {(row["dim"], row["horizon"]): f"{row['regret_mean']:.1f}" for row in rows}
    dims, horizons = (list(dict.fromkeys(each)) for each in zip(*found, strict=True))
    cells = [(f"d = {dim}", *(found[dim, horizon] for horizon in horizons)) for dim in dims]
    title = f"Mean regret of VITS-I after T rounds, {span({row['seeds'] for row in rows})} seeds"
    return Table(title, ("", *(f"T = {horizon:,}" for horizon in horizons)), cells, texts=1)


TABLES: dict[str, Callable[[Kept], Table]] = {
    **dict.fromkeys(("kl", "compute", "comparison", "tables"), lambda kept: views.table(kept.summary)),
    "theory": _growth,
}
"""Tables of experiments that show more than regret."""

DRAWN: dict[str, Callable[[Results], Path]] = {"kl": gaussian_target.steps, "theory": curves.growth}
"""Figures that are drawn from rows instead of curves."""


def settings() -> Table:
    """The settings of every contender in both readings, as they ship."""
    cells = []
    for experiment, readings in tuned.shipped().items():
        worlds = dict.fromkeys(
            (world, name) for reading in readings.values() for world in reading for name in reading[world]
        )
        for world, name in worlds:
            pair = [readings.get(reading, {}).get(world, {}).get(name) for reading in READINGS]
            shown = ["" if found is None else tables.setting(found["hyperparameters"]) for found in pair]
            best = pair[READINGS.index(BEST)]
            cells.append((experiment, world, name, *shown, "" if best is None else best["check"]))
    names = ("experiment", "world", "algorithm", *READINGS, "check on fresh seeds against the default")
    return Table("Settings", names, cells, texts=len(names))


def has_figure(kept: Kept) -> bool:
    """Whether a figure can be drawn from what is kept."""
    return bool(kept.curves) or kept.summary["experiment"] in DRAWN


def draw(kept: Kept, path: Path) -> Path:
    """Draw the figure of a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kept.curves:
        return curves.draw(kept.summary, kept.curves, path)
    rows = {(row["environment"], row["algorithm"]): Arrays() for row in kept.summary["rows"]}
    return DRAWN[kept.summary["experiment"]](Results(path.parent, kept.summary, rows)).replace(path)


def checksum(kept: Kept) -> str:
    """A checksum of the data of a figure. It is written into the page, so an outdated figure is noticed."""
    shown = [(key, curve and (curve.mean.tolist(), curve.error is not None)) for key, curve in kept.curves.items()]
    text = json.dumps([shown, None if shown else kept.summary["rows"]], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def markdown(table: Table) -> str:
    """A table in Markdown."""
    lines = [f"**{table.title}**", "", "| " + " | ".join(table.columns) + " |"]
    lines.append("|" + "".join("---|" if i < table.texts else "---:|" for i in range(len(table.columns))))
    lines += ["| " + " | ".join(row) + " |" for row in table.rows]
    return "\n".join(lines)


def write_pages(folder: Path, pages: list[Path], figures: Path, shipped: Path) -> None:
    """Fill the blocks of pages, draw the figures that are older than the data, and write the shipped scorecard."""
    runs = load(folder)
    for page in pages:
        old = page.read_text("utf-8")
        new = filled(old, runs)
        if new != old:
            files.write_atomically(page, new.encode())
    for name, kept in runs.items():
        if has_figure(kept):
            draw(kept, figures / f"{name}.png")
    files.write_json(shipped, [score._asdict() for score in scores(runs)])


def main() -> None:
    """`python -m vits.lab.report.paper`, from the repository: pages, figures and the shipped scorecard."""
    pages = [Path("docs/reproduction.md"), Path("docs/real-data.md"), Path("README.md")]
    write_pages(Path("paper"), pages, Path("docs/figures"), SHIPPED)


SHIPPED = Path(__file__).with_name("scorecard.json")
"""The scorecard that comes with the package."""


def shipped_scores() -> list[scorecard.Score]:
    """The scorecard that comes with the package."""
    if not SHIPPED.is_file():
        raise ValueError("this copy of vits comes without a scorecard; name folders of finished runs")
    return [scorecard.Score(**each) for each in json.loads(SHIPPED.read_bytes())]


if __name__ == "__main__":
    main()
