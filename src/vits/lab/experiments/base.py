"""What every experiment offers, and how it is run: cell by cell, stored when finished, resumed where it stopped."""

import abc
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vits.lab import results
from vits.lab.compare import Claim
from vits.lab.results import Arrays, Results

Progress = Callable[[int], None]


class Cell(NamedTuple):
    """What is computed and stored as one: an algorithm in an environment, with some of the seeds."""

    environment: str
    algorithm: str
    chunk: str
    hyperparameters: Mapping[str, Any]
    cost: int
    """How much of the progress bar it is worth."""
    settings: Any
    """All that decides its numbers, as JSON."""
    compute: Callable[[Progress], Arrays]


@dataclasses.dataclass(frozen=True)
class Experiment(abc.ABC):
    """Frozen settings that can be imported, shrunk and tested."""

    name: str
    title: str

    @abc.abstractmethod
    def cells(self) -> list[Cell]:
        """What there is to compute. Making the list is cheap; bad settings are refused here."""

    @abc.abstractmethod
    def row(
        self, environment: str, algorithm: str, hyperparameters: Mapping[str, Any], arrays: Arrays
    ) -> dict[str, Any]:
        """The line of the summary for one environment and algorithm, from all its seeds."""

    @abc.abstractmethod
    def only(self, names: list[str]) -> "Experiment":
        """The same experiment with these algorithms."""

    @abc.abstractmethod
    def claims(self, found: Results) -> list[Claim]:
        """What the paper says about it, and whether that was found."""

    def settings(self) -> dict[str, Any]:
        """Everything needed to run it again, as JSON."""
        return dict(json.loads(json.dumps(dataclasses.asdict(self), default=str)))


def run(
    experiment: Experiment,
    folder: Path,
    *,
    preset: str,
    progress: Progress = lambda cost: None,
    resume: Progress = lambda cost: None,
    announce: Callable[[str], None] = lambda message: None,
) -> Results:
    """Run what is not in the folder yet, store each cell when it is finished, and write the summary last.

    Args:
        experiment: what to run.
        folder: where results go; a folder with something else in it is refused.
        preset: the name under which the settings are stored.
        progress: called with the cost of what was just computed.
        resume: called once, before anything is computed, with the cost of what was found: it took no time.
        announce: called with the name of each cell before it runs.

    Returns:
        The results, as stored.
    """
    cells = experiment.cells()
    settings = experiment.settings()
    try:
        _claim(folder, settings)
    except OSError as error:
        raise ValueError(f"{folder} cannot be used: {error.strerror}; choose another folder") from None
    versions = results.versions()
    marks = [fingerprint(experiment.name, cell, versions) for cell in cells]
    stored = [_stored(_file(folder, cell), mark) for cell, mark in zip(cells, marks, strict=True)]
    resume(sum(cell.cost for cell, arrays in zip(cells, stored, strict=True) if arrays is not None))
    chunks: dict[tuple[str, str], list[Arrays]] = {}
    files: dict[tuple[str, str], list[str]] = {}
    hyperparameters = {(cell.environment, cell.algorithm): dict(cell.hyperparameters) for cell in cells}
    for cell, mark, arrays in zip(cells, marks, stored, strict=True):
        announce(f"{cell.algorithm}, {cell.environment}")
        key, file = (cell.environment, cell.algorithm), _file(folder, cell)
        if arrays is None:
            stamp = {"fingerprint": [mark], "commit": [versions["commit"]]}
            results.save_arrays(file, {**cell.compute(progress), **stamp})
        chunks.setdefault(key, []).append(results.load_cell(file) if arrays is None else arrays)
        files.setdefault(key, []).append(file.name)
    joined = {key: results.join(parts) for key, parts in chunks.items()}
    rows = [
        {**experiment.row(*key, hyperparameters[key], arrays), "files": files[key]} for key, arrays in joined.items()
    ]
    summary = {
        "experiment": experiment.name,
        "preset": preset,
        "settings": settings,
        "versions": {**versions, "commit": _commits(joined.values())},
        "rows": rows,
        "claims": [],
    }
    found = Results(folder, summary, joined)
    summary["claims"] = [claim._asdict() for claim in experiment.claims(found)]
    results.write_json(folder / results.SUMMARY, summary)
    return found


def _commits(cells: Iterable[Arrays]) -> str:
    """Those that the cells were computed with: a run may have been continued with another."""
    return ", ".join(dict.fromkeys(str(commit) for arrays in cells for commit in arrays["commit"]))


def fingerprint(name: str, cell: Cell, versions: Mapping[str, str]) -> str:
    """A hash of everything that decides one cell's numbers: its settings and the libraries' versions."""
    libraries = {package: version for package, version in versions.items() if package != "commit"}
    parts = [name, cell.environment, cell.algorithm, cell.chunk, dict(cell.hyperparameters), cell.settings, libraries]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _claim(folder: Path, settings: dict[str, Any]) -> None:
    """Make the folder ours, unless it holds something else; sweep up after a run that was killed while it wrote."""
    path = folder / results.SETTINGS
    if path.is_file():
        found = _settings(path)
        if found.get("name") != settings["name"]:
            raise ValueError(
                f"{folder} holds a run of '{found.get('name')}', not of '{settings['name']}'; choose another folder"
            )
        different = sorted(key for key in settings if found.get(key) != settings[key])
        if different:
            raise ValueError(
                f"{folder} holds a run of '{settings['name']}' whose settings differ in {', '.join(different)}; "
                "choose another folder"
            )
    elif folder.exists() and (not folder.is_dir() or set(folder.iterdir()) - set(results.unfinished(folder))):
        raise ValueError(f"{folder} is not an empty folder and holds no run; choose another folder")
    for file in results.unfinished(folder):
        file.unlink()
    if not path.is_file():
        results.write_json(path, settings)


def _settings(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:  # no JSON, or no text at all
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: it holds no mapping of names to values")
    return found


def _file(folder: Path, cell: Cell) -> Path:
    return results.cell_file(folder, cell.environment, cell.algorithm, cell.chunk)


def _stored(file: Path, mark: str) -> Arrays | None:
    if not file.is_file():
        return None
    arrays = results.load_cell(file)
    return arrays if "fingerprint" in arrays and arrays["fingerprint"].tolist() == [mark] else None
