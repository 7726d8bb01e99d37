"""The interface of an experiment (cells, rows, claims), and the way from a request to an experiment."""

import abc
import dataclasses
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vits import catalogue
from vits.files import Arrays
from vits.lab.results import Claim, Key, Record, Results, Row

Advance = Callable[[int], None]
"""Called with the cost of what was just computed."""

MOST_SEEDS = 2000
"""The cap of runs until all claims are decided, unless another is given."""


class Cell(NamedTuple):
    """The unit that is computed and stored: one algorithm in one environment, for a chunk of the seeds."""

    environment: str
    algorithm: str
    chunk: str
    hyperparameters: Mapping[str, Any]
    cost: int
    """Its share of the progress bar."""
    settings: Any
    """All settings that its numbers depend on, as JSON."""
    compute: Callable[[Advance], Arrays]
    coordinates: Mapping[str, Any] = {}
    """The position of the cell in the experiment, such as its dimension: columns of its row."""

    @property
    def key(self) -> Key:
        """Cells with the same key are chunks of one row."""
        return self.environment, self.algorithm


def chunked(seeds: Sequence[int], size: int) -> list[list[int]]:
    """The seeds in groups of `size`, the last of which may be smaller."""
    return [list(seeds[first : first + size]) for first in range(0, len(seeds), size)]


@dataclasses.dataclass(frozen=True)
class Experiment(abc.ABC):
    """Frozen settings that can be imported, shrunk and tested."""

    name: str
    title: str

    @property
    @abc.abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The names of the algorithms, as `only` takes them."""

    @abc.abstractmethod
    def cells(self) -> list[Cell]:
        """The cells to compute. Building them is cheap; bad settings are refused here."""

    def more_cells(self, seeds: Mapping[Key, int]) -> list[Cell] | None:
        """The cells if some rows get more seeds than the settings say; None if more seeds would not help."""
        return None

    def more(self, found: Results) -> list[Cell] | None:
        """All cells needed once these results are known, for experiments that choose as they go; None by default."""
        return None

    @abc.abstractmethod
    def row(self, cell: Cell, arrays: Arrays) -> Row:
        """The row of an algorithm in an environment, from one of its cells and the arrays of all seeds."""

    @abc.abstractmethod
    def only(self, names: list[str]) -> "Experiment":
        """The same experiment with these algorithms."""

    def claims(self, found: Results) -> list[Claim]:
        """Verdicts on the paper's claims about the experiment; none by default."""
        return []

    def settings(self) -> dict[str, Any]:
        """Everything needed to run the experiment again, as JSON."""
        return dict(json.loads(json.dumps(dataclasses.asdict(self), default=str)))


class Request(NamedTuple):
    """An experiment of the catalogue, and what to change of its preset; None leaves the preset's value."""

    experiment: str
    preset: str = "quick"
    algorithms: Sequence[str] | None = None
    seeds: int | None = None
    horizon: int | None = None
    data: Path | None = None
    tuning_seeds: int | None = None
    """Try the grids with this many tuning seeds, instead of running the preset's settings."""
    most_seeds: int | None = None
    """Add seeds until all claims are decided or rows have this many."""


def plan(request: Request) -> tuple[Experiment, Record]:
    """The experiment that a request asks for, and the record of the request."""
    row = catalogue.experiment(request.experiment, request.preset)
    if request.data is not None and row.data_set is None:
        raise ValueError(
            f"experiment '{request.experiment}' reads no data set; leave out --data, which is {request.data}"
        )
    preset = catalogue.presets(request.experiment)[request.preset]
    names = ("seeds", "horizon", "data")
    changes = {name: getattr(request, name) for name in names if getattr(request, name) is not None}
    asked = dataclasses.replace(preset, **changes)
    if request.most_seeds is not None and request.most_seeds < asked.seeds:
        raise ValueError(f"max_seeds must be at least seeds, which is {asked.seeds:,}, but is {request.most_seeds:,}")
    if request.algorithms is not None:
        asked = asked.only(list(request.algorithms))
    usual = preset
    if request.tuning_seeds is not None:
        from vits.lab.experiments.tuning import tuning  # imports JAX

        usual, asked = (tuning(each, tuning_seeds=request.tuning_seeds) for each in (preset, asked))
    record = Record(command=command(request), changes=_numbers_changed(request, preset) + _names_changed(usual, asked))
    return asked, record


def command(request: Request) -> str:
    """The command that repeats the run. It names no folder, because results and data may be anywhere."""
    verb = "run" if request.tuning_seeds is None else "tune"
    words = ["vits", verb, request.experiment, "--preset", request.preset]
    options: dict[str, Any] = {
        "--tuning-seeds": request.tuning_seeds,
        "--seeds": request.seeds,
        "--horizon": request.horizon,
        "--algorithms": ",".join(request.algorithms) if request.algorithms else None,
    }
    if request.most_seeds is not None:
        words += ["--until-decided", "--max-seeds", str(request.most_seeds)]
    words += [word for name, value in options.items() if value is not None for word in (name, str(value))]
    return shlex.join(words)


def _numbers_changed(request: Request, preset: Any) -> list[str]:
    return [
        f"{name} {getattr(request, name):,} instead of {getattr(preset, name):,}"
        for name in ("seeds", "horizon")
        if getattr(request, name) not in (None, getattr(preset, name))
    ]


def _names_changed(usual: Experiment, asked: Experiment) -> list[str]:
    """Algorithms that were left out or added, in any order."""
    missing = [name for name in usual.labels if name not in asked.labels]
    added = [name for name in asked.labels if name not in usual.labels]
    return [f"{word} {', '.join(names)}" for word, names in (("without", missing), ("with", added)) if names]
