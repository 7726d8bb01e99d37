"""Results of a run: a typed summary and the arrays of each cell, in memory and on disk."""

import json
import types
import typing
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

import numpy as np
from jaxtyping import Float

from vits import files
from vits.files import Arrays

SUMMARY = "summary.json"
SETTINGS = "settings.json"
TUNING = "-tuning"
"""Suffix of the name of an experiment's tuning."""

GRID, DEFAULT = " (grid)", " (default)"
"""Suffixes of an algorithm's rows in a tuning: all its settings on tuning seeds, and its default on fresh seeds."""

VERDICTS = ("holds", "fails", "inconclusive")

READINGS = WRITTEN, BEST = ("as written", "at its best")
"""The two readings of a claim: the paper's algorithms to the letter, with its grids; or all tuned and stable."""


class Row(TypedDict):
    """An algorithm in an environment, over all seeds. Experiments may add columns."""

    environment: str
    algorithm: str
    hyperparameters: dict[str, Any]
    horizon: int
    seeds: int
    failed_seeds: int
    regret_mean: float | None
    regret_stderr: float | None
    regret_median: float | None
    seconds: float
    rounds_per_second: float | None
    files: NotRequired[list[str]]
    rejected_updates: NotRequired[int]
    rejections: NotRequired[dict[str, int]]
    capped_rounds: NotRequired[int]
    unstable_rounds: NotRequired[int]
    refreshed_inverses: NotRequired[int]


Key = tuple[str, str]
"""A row of a run: its environment and its algorithm."""


class Finding(TypedDict):
    """A statement that is part of a claim: its verdict and the numbers behind it."""

    text: str
    verdict: str
    rows: list[list[str]]
    """Environment and algorithm of each row that the statement is about."""
    seeds: int
    """Paired seeds at the look that decided, or all of them."""
    needed: int | None
    """About how many seeds would decide it; null if that cannot be estimated."""
    expected: str
    """The verdict after that many seeds."""
    margin: float
    """As a fraction of the reference."""
    mean: float | None
    low: float | None
    high: float | None
    reference: float | None
    median: float | None
    middle_mean: float | None
    won: float | None


class Claim(TypedDict):
    """A claim of the paper and the verdict on it. Claims that are decided by seeds have statements."""

    id: str
    claim: str
    verdict: str
    evidence: str
    reading: NotRequired[str]
    """One of `READINGS`; the second if it is missing."""
    statements: NotRequired[list[Finding]]
    seeds: NotRequired[int]
    """Paired seeds that decided it, or that were not enough."""
    needed: NotRequired[int | None]
    """About how many seeds would decide an undecided claim; null if that cannot be estimated."""


class Record(TypedDict):
    """How a run was started: the command, and what it changed of its preset. Both are None for a run from Python."""

    command: str | None
    changes: list[str] | None


class Summary(TypedDict):
    """The content of summary.json. Runs from before the command was recorded have no `record`."""

    experiment: str
    preset: str
    settings: dict[str, Any]
    versions: dict[str, str]
    rows: list[Row]
    claims: list[Claim]
    record: NotRequired[Record]


class DamagedRun(ValueError):
    """A file of a run's folder does not hold what was written into it."""


class Results(NamedTuple):
    """A finished run: its summary, and its arrays by environment and algorithm."""

    folder: Path
    summary: Summary
    cells: dict[Key, Arrays]

    @property
    def environments(self) -> list[str]:
        """In the order they were run."""
        return list(dict.fromkeys(environment for environment, _ in self.cells))

    @property
    def algorithms(self) -> list[str]:
        """In the order they were run."""
        return list(dict.fromkeys(algorithm for _, algorithm in self.cells))


def outcome(claim: Claim) -> str:
    """The verdict in words, with the number of seeds that decided it or would decide it."""
    if "seeds" not in claim:
        return claim["verdict"]
    if "needed" not in claim:
        return f"{claim['verdict']} after {claim['seeds']:,} seeds"
    outlook = "an unknown number" if claim["needed"] is None else f"about {claim['needed']:,}"
    return f"{claim['verdict']} after {claim['seeds']:,} seeds; {outlook} would decide"


def columns(summary: Summary) -> list[dict[str, Any]]:
    """The rows, with the columns that experiments add."""
    return typing.cast(list[dict[str, Any]], summary["rows"])


def finite(value: float) -> float | None:
    """The value, or None if it is infinite or NaN, which JSON cannot express."""
    return float(value) if np.isfinite(value) else None


def span(values: Set[int]) -> str:
    """One number, or the smallest and the largest of several."""
    found = sorted(values)
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"


def counted(number: int, noun: str) -> str:
    """A number of things in words: 1 core, 2 cores."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def join(parts: Sequence[Arrays]) -> Arrays:
    """Concatenate chunks of seeds; an array that an older chunk does not have is left out."""
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def cumulative(arrays: Arrays) -> Float[np.ndarray, "seeds horizon"]:
    """Regret summed up to each round, of the seeds that did not fail."""
    return np.cumsum(arrays["regret"][~arrays["failed"]], axis=1, dtype=np.float64)


def final_regret(arrays: Arrays) -> Float[np.ndarray, " seeds"]:
    """Cumulative regret of every seed at the end; NaN for seeds that failed, so that seeds stay paired."""
    total = np.sum(arrays["regret"], axis=1, dtype=np.float64)
    return np.where(arrays["failed"], np.nan, total)


def row(
    environment: str,
    algorithm: str,
    hyperparameters: Mapping[str, Any],
    *,
    horizon: int,
    seeds: int,
    seconds: float,
    **columns: Any,
) -> Row:
    """A row of the summary. Regret is null unless it is among `columns`."""
    return typing.cast(
        Row,
        {
            "environment": environment,
            "algorithm": algorithm,
            "hyperparameters": dict(hyperparameters),
            "horizon": horizon,
            "seeds": seeds,
            "regret_mean": None,
            "regret_stderr": None,
            "regret_median": None,
            "seconds": seconds,
            "rounds_per_second": None,
            **columns,
        },
    )


def cell_file(folder: Path, environment: str, algorithm: str, chunk: str) -> Path:
    """Where one chunk of seeds of one cell is stored."""
    name = f"{environment}--{algorithm}--{chunk}.npz"
    return folder / name.replace("/", "-").replace(" ", "_")


def load_cell(path: Path) -> Arrays:
    """The arrays of one chunk. Chunks from before the commit was stored have an unknown one."""
    try:
        return {"commit": np.array(["unknown"]), **files.load_arrays(path)}
    except ValueError as error:
        raise DamagedRun(str(error)) from None


def load(folder: str | Path) -> Results:
    """Load the folder of a finished run. Missing and damaged files are refused by name."""
    summary, folder = load_summary(folder), Path(folder)
    cells = {}
    for row in summary["rows"]:
        for name in row["files"]:
            if not (folder / name).is_file():
                raise DamagedRun(f"{folder} is incomplete: {name} is missing")
        cells[row["environment"], row["algorithm"]] = join([load_cell(folder / name) for name in row["files"]])
    return Results(folder, summary, cells)


def load_summary(folder: str | Path) -> Summary:
    """The summary of a finished run, checked field by field."""
    path = Path(folder) / SUMMARY
    if not path.is_file():
        raise ValueError(f"{folder} holds no finished run: {SUMMARY} is missing")
    load_settings(Path(folder) / SETTINGS)
    try:
        summary = json.loads(path.read_bytes())
    except ValueError as error:  # no JSON, or no text at all
        raise _not_a_summary(path, str(error)) from None
    _check(path, "the summary", summary, Summary)
    if not isinstance(summary["settings"].get("title"), str):
        raise _not_a_summary(path, "its settings have no 'title'")
    for row in summary["rows"]:
        _check(path, "a row", row, Row)
        names = row.get("files")
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise _not_a_summary(path, "a row has no 'files'")
    if "record" in summary:
        _check(path, "the record", summary["record"], Record)
    for claim in summary["claims"]:
        _check(path, "a claim", claim, Claim)
        if claim["verdict"] not in VERDICTS:
            raise _not_a_summary(path, f"a verdict is '{claim['verdict']}', not one of {', '.join(VERDICTS)}")
    if not summary["rows"]:
        raise _not_a_summary(path, "it has no rows")
    return typing.cast(Summary, summary)


def load_settings(path: Path) -> dict[str, Any] | None:
    """The content of a settings file; None if there is no file."""
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:  # no JSON, or no text at all
        raise DamagedRun(f"{path} is damaged: {error}") from None
    if not isinstance(found, dict):
        raise DamagedRun(f"{path} is damaged: it holds no mapping of names to values")
    return found


def _check(path: Path, what: str, found: Any, fields: Any) -> None:
    """Refuse what does not have the fields of a TypedDict."""
    if not isinstance(found, dict):
        raise _not_a_summary(path, f"{what} is not a mapping of names to values")
    for name, hint in typing.get_type_hints(fields).items():
        if name not in found:
            if name in fields.__required_keys__:
                raise _not_a_summary(path, f"{what} has no '{name}'")
        elif not isinstance(found[name], _kinds(hint)):
            raise _not_a_summary(path, f"'{name}' of {what} is {found[name]!r:.40}")


def _kinds(hint: Any) -> tuple[type, ...]:
    """The types that JSON gives for a type hint."""
    if isinstance(hint, types.UnionType):
        return tuple(kind for part in typing.get_args(hint) for kind in _kinds(part))
    kind = typing.get_origin(hint) or hint
    if typing.is_typeddict(kind):
        return (dict,)
    return (int, float) if kind is float else (kind,)


def _not_a_summary(path: Path, reason: str) -> DamagedRun:
    return DamagedRun(f"{path} is not a summary of a run: {reason}")
