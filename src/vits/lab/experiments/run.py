"""Running an experiment: an engine computes its cells, and each is stored when it is finished, so runs can resume.

An engine computes in this process, or on a Ray cluster.
"""

import hashlib
import importlib.util
import json
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from typing_extensions import override

from vits import files, validate
from vits.files import Arrays
from vits.lab import results
from vits.lab.compare import FEWEST, LOOK_EVERY
from vits.lab.experiments.base import Cell, Experiment
from vits.lab.experiments.statements import unsettled
from vits.lab.results import DamagedRun, Finding, Key, Record, Results, Summary

UNRECORDED = Record(command=None, changes=None)

ADDED = {"reading": results.BEST, "starts": 1}
"""Settings that older folders do not name, with the values they had then."""

ENGINES = ("local", "ray")
"""The names that `engine` takes."""


class Monitor:
    """Receives the progress of a run. This one ignores it; the command line draws a bar."""

    def start(self, total: int, found: int) -> None:
        """The cost of all cells, and of those that were found finished."""

    def cell(self, cell: Cell) -> None:
        """The cell that is computed next."""

    def advance(self, cost: int) -> None:
        """The cost of what was just computed."""

    def nodes(self, lines: Sequence[str]) -> None:
        """The state of a cluster, one line for each of its nodes."""

    def undecided(self, statements: Sequence[Finding], most_seeds: int) -> None:
        """The statements that get more seeds, and the largest number of seeds they may get."""


class EngineError(Exception):
    """An engine could not compute all cells. Those it finished are stored."""


@runtime_checkable
class Engine(Protocol):
    """Computes cells, which do not depend on each other."""

    def compute(self, cells: Sequence[Cell], monitor: Monitor) -> Iterator[tuple[Cell, Arrays]]:
        """Every cell with its arrays, in any order, each as soon as it is finished."""


class Local(Engine):
    """Computes cells in this process, one after the other; the seeds of a cell share the cores."""

    @override
    def compute(self, cells: Sequence[Cell], monitor: Monitor) -> Iterator[tuple[Cell, Arrays]]:
        for cell in cells:
            monitor.cell(cell)
            yield cell, cell.compute(monitor.advance)


def engine(name: str, address: str | None = None) -> Engine:
    """The engine with this name.

    Args:
        name: "local" or "ray".
        address: that of a Ray cluster; by default RAY_ADDRESS, or a new cluster on this machine.
    """
    if name not in ENGINES:
        raise validate.unknown("engine", name, ENGINES)
    if name == "local":
        if address is not None:
            raise ValueError(f"an address is for --engine ray, but it is {address} and the engine is local")
        return Local()
    if importlib.util.find_spec("ray") is None:
        raise ValueError("--engine ray needs Ray, which is not installed; pip install 'vits-bandits[ray]' installs it")
    from vits.lab.experiments.ray_engine import Ray

    return Ray(address)


def run(
    experiment: Experiment,
    folder: Path,
    *,
    preset: str,
    record: Record = UNRECORDED,
    engine: Engine | None = None,
    monitor: Monitor | None = None,
    most_seeds: int | None = None,
) -> Results:
    """Compute the cells that are not in the folder yet, store each when it is finished, and write the summary last.

    Args:
        experiment: what to run.
        folder: where results go; a folder with something else in it is refused.
        preset: the name under which the settings are stored.
        record: how the run was started; stored before anything is computed.
        engine: where cells are computed; in this process by default.
        monitor: receives the progress.
        most_seeds: add seeds to the rows of undecided claims until all claims are decided or rows have this many.

    Returns:
        The results, which are also in the folder.
    """
    engine, monitor = engine or Local(), monitor or Monitor()
    settings = experiment.settings()
    cells = experiment.cells() if most_seeds is None else experiment.more_cells({})
    if cells is None:
        raise ValueError(f"more seeds decide nothing about '{experiment.name}'; run it without --until-decided")
    if most_seeds is not None:
        settings["until_decided"] = True
    try:
        record = _occupy(folder, settings, record)
    except OSError as error:
        raise ValueError(f"{folder} cannot be used: {error.strerror}; choose another folder") from None
    stored: dict[Path, Arrays] = {}
    while True:
        _compute(experiment, folder, cells, stored, engine, monitor)
        found = _results(
            experiment,
            folder,
            cells,
            stored,
            Summary(
                experiment=experiment.name,
                preset=preset,
                settings=settings,
                versions={},
                rows=[],
                claims=[],
                record=record,
            ),
        )
        more = experiment.more(found)
        if most_seeds is not None:
            undecided = unsettled(found, most_seeds)
            more = _more(experiment, found, undecided, most_seeds)
            if more is not None:
                monitor.undecided(undecided, most_seeds)
        if more is None or [(cell.key, cell.chunk) for cell in more] == [(cell.key, cell.chunk) for cell in cells]:
            break
        cells = more
    files.write_json(folder / results.SUMMARY, found.summary)
    return found


def _compute(
    experiment: Experiment,
    folder: Path,
    cells: list[Cell],
    stored: dict[Path, Arrays],
    engine: Engine,
    monitor: Monitor,
) -> None:
    """Fill `stored` with the arrays of all cells: those in the folder, and the others computed."""
    current = versions()
    marks = {_file(folder, cell): fingerprint(experiment.name, cell, current) for cell in cells}
    for file, mark in marks.items():
        if file not in stored and (arrays := _stored(file, mark)) is not None:
            stored[file] = arrays
    missing = [cell for cell in cells if _file(folder, cell) not in stored]
    total = sum(cell.cost for cell in cells)
    monitor.start(total, total - sum(cell.cost for cell in missing))
    for cell, computed in engine.compute(missing, monitor):
        file = _file(folder, cell)
        stamp = {"fingerprint": [marks[file]], "commit": [current["commit"]]}
        stored[file] = {name: np.asarray(array) for name, array in {**computed, **stamp}.items()}
        files.save_arrays(file, stored[file])


def _results(
    experiment: Experiment, folder: Path, cells: list[Cell], stored: Mapping[Path, Arrays], summary: Summary
) -> Results:
    """The results of these cells, with the rows, the claims and the versions of the summary filled in."""
    groups: dict[Key, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.key, []).append(cell)
    joined = {key: results.join([stored[_file(folder, cell)] for cell in chunks]) for key, chunks in groups.items()}
    summary["versions"] = {**versions(), "commit": _commits(joined.values())}
    for key, chunks in groups.items():
        row = experiment.row(chunks[0], joined[key])
        row["files"] = [_file(folder, cell).name for cell in chunks]
        summary["rows"].append(row)
    found = Results(folder, summary, joined)
    summary["claims"] = experiment.claims(found)
    return found


def _more(experiment: Experiment, found: Results, undecided: list[Finding], most: int) -> list[Cell] | None:
    """The cells with more seeds for the rows of these statements; None if there is nothing to add.

    The next look is where the statement is expected to be decided, but at most half as many seeds again.
    """
    seeds = {(row["environment"], row["algorithm"]): row["seeds"] for row in found.summary["rows"]}
    asked = dict(seeds)
    for finding in undecided:
        keys = [(environment, algorithm) for environment, algorithm in finding["rows"]]
        now = min(seeds[key] for key in keys)
        goal = max(FEWEST, now + LOOK_EVERY, min(finding["needed"] or most, now + now // 2))
        goal = min(-(-goal // LOOK_EVERY) * LOOK_EVERY, most)
        asked |= {key: max(asked[key], goal) for key in keys}
    return None if asked == seeds else experiment.more_cells(asked)


def _commits(cells: Iterable[Arrays]) -> str:
    """All commits that cells were computed with; a resumed run can have several."""
    return ", ".join(dict.fromkeys(str(commit) for arrays in cells for commit in arrays["commit"]))


def fingerprint(name: str, cell: Cell, versions: Mapping[str, str]) -> str:
    """A hash of everything that decides a cell's numbers: its settings and the versions of the libraries."""
    libraries = {package: version for package, version in versions.items() if package != "commit"}
    parts = [name, cell.environment, cell.algorithm, cell.chunk, dict(cell.hyperparameters), cell.settings, libraries]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _occupy(folder: Path, settings: dict[str, Any], record: Record) -> Record:
    """Write settings and record into an empty folder, or check that it holds the same settings. Returns its record.

    The record is that of the last command, which may allow more seeds than the first; from Python it stays. Files that
    a killed run left half-written are deleted.
    """
    path = folder / results.SETTINGS
    found = results.load_settings(path)
    old: Any = settings
    if found is None:
        if folder.exists() and (not folder.is_dir() or set(folder.iterdir()) - set(files.unfinished(folder))):
            raise ValueError(f"{folder} is not an empty folder and holds no run; choose another folder")
    else:
        # Folders from before the record was kept hold the settings alone.
        old = found.get("settings") if "record" in found else found
        if not isinstance(old, dict):
            raise DamagedRun(f"{path} is damaged: its settings are no mapping of names to values")
        _check_same(folder, old, settings)
    for file in files.unfinished(folder):
        file.unlink()
    if found is not None and "record" in found and record == UNRECORDED:
        return cast(Record, found["record"])
    if found is None or found.get("record", record) != record:
        files.write_json(path, {"record": record, "settings": old})
    return record


def _check_same(folder: Path, old: dict[str, Any], settings: dict[str, Any]) -> None:
    if not isinstance(old.get("name"), str):
        raise ValueError(f"{folder}/settings.json is not that of a run; choose another folder")
    if old["name"] != settings["name"]:
        raise ValueError(f"{folder} holds a run of '{old['name']}', not of '{settings['name']}'; choose another folder")
    names = {*settings, "until_decided"}  # which only runs that add seeds have
    different = sorted(key for key in names if old.get(key, ADDED.get(key)) != settings.get(key))
    if different:
        raise ValueError(
            f"{folder} holds a run of '{settings['name']}' whose settings differ in {', '.join(different)}; "
            "choose another folder"
        )


def _file(folder: Path, cell: Cell) -> Path:
    return results.cell_file(folder, cell.environment, cell.algorithm, cell.chunk)


def _stored(file: Path, mark: str) -> Arrays | None:
    """The arrays in a file, if they were computed from the same settings and versions."""
    if not file.is_file():
        return None
    arrays = results.load_cell(file)
    return arrays if "fingerprint" in arrays and arrays["fingerprint"].tolist() == [mark] else None


def versions() -> dict[str, str]:
    """The versions that a result depends on, and the commit if this is a checkout."""
    return {**libraries(), "commit": _commit()}


def libraries() -> dict[str, str]:
    """The versions of Python, of this package and of the libraries that decide its numbers."""
    packages = {name: metadata.version(name) for name in ("vits-bandits", "jax", "jaxlib", "numpy", "equinox")}
    return {"python": platform.python_version(), **packages}


def _commit() -> str:
    """The commit of this checkout, marked if files differ from it; unknown if this file is in no repository."""
    here, package = Path(__file__), Path(__file__).parents[2]
    if not _git(package, "ls-files", str(here)):  # a copy installed somewhere inside another repository
        return "unknown"
    changed = _git(package, "status", "--porcelain", str(package))
    return _git(package, "rev-parse", "HEAD") + (" and changes" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""
