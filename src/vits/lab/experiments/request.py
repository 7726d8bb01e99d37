"""From a command to an experiment: the preset, what was changed of it, and the command itself as it is recorded."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vits import catalogue
from vits.lab.experiments.base import Experiment
from vits.lab.results import BEST, WRITTEN, Record

MOST_SEEDS = 2000
"""The cap of runs until all claims are decided, unless another is given."""


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
    reading: str = BEST
    """How the grids are read; only for tuning."""
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
    if request.algorithms is not None:
        asked = asked.only(list(request.algorithms))
    usual = preset
    if request.tuning_seeds is not None:
        from vits.lab.experiments.tuning import tuning  # imports JAX

        usual, asked = (
            tuning(each, tuning_seeds=request.tuning_seeds, reading=request.reading) for each in (preset, asked)
        )
    record = Record(command=command(request), changes=_numbers_changed(request, preset) + _names_changed(usual, asked))
    return asked, record


def command(request: Request) -> str:
    """The command that gives the same run. It names no folder: results and data may be anywhere."""
    verb = "run" if request.tuning_seeds is None else "tune"
    words = ["vits", verb, request.experiment, "--preset", request.preset]
    options: dict[str, Any] = {
        "--tuning-seeds": request.tuning_seeds,
        "--seeds": request.seeds,
        "--horizon": request.horizon,
        "--algorithms": ",".join(request.algorithms) if request.algorithms else None,
    }
    if request.reading == WRITTEN:
        words.append("--as-written")
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
    """Algorithms that were left out or added; their order decides nothing."""
    missing = [name for name in usual.labels if name not in asked.labels]
    added = [name for name in asked.labels if name not in usual.labels]
    return [f"{word} {', '.join(names)}" for word, names in (("without", missing), ("with", added)) if names]
