"""What every experiment offers: cells to compute, rows and claims from what they found."""

import abc
import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from vits.files import Arrays
from vits.lab.results import Claim, Key, Results, Row

Advance = Callable[[int], None]
"""Called with the cost of what was just computed."""

MOST_ROUNDS = 10**10
"""A run with more rounds is refused: at a million rounds a second it takes three hours."""

BYTES_PER_ROUND = 12
"""Memory that the results of a round take: regret, action and reward."""


class Cell(NamedTuple):
    """What is computed and stored as one: an algorithm in an environment, with some of the seeds."""

    environment: str
    algorithm: str
    chunk: str
    hyperparameters: Mapping[str, Any]
    cost: int
    """Its share of the progress bar."""
    settings: Any
    """Everything that decides its numbers, as JSON."""
    compute: Callable[[Advance], Arrays]
    coordinates: Mapping[str, Any] = {}
    """Where the cell lies in the experiment, such as its dimension: columns of its row."""

    @property
    def key(self) -> Key:
        """Cells with the same key are chunks of one row."""
        return self.environment, self.algorithm


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
        """The cells when some rows have more seeds than the settings say; None if seeds decide nothing here."""
        return None

    def more(self, found: Results) -> list[Cell] | None:
        """All cells that are needed after these results, for experiments that choose as they go; None by default."""
        return None

    @abc.abstractmethod
    def row(self, cell: Cell, arrays: Arrays) -> Row:
        """The row of the summary for an algorithm in an environment: one of its cells, and the arrays of all seeds."""

    @abc.abstractmethod
    def only(self, names: list[str]) -> "Experiment":
        """The same experiment with these algorithms."""

    def claims(self, found: Results) -> list[Claim]:
        """The verdicts on what the paper says of the experiment; none by default."""
        return []

    def settings(self) -> dict[str, Any]:
        """Everything needed to run the experiment again, as JSON."""
        return dict(json.loads(json.dumps(dataclasses.asdict(self), default=str)))


def check_size(seeds: int, horizon: int, curves: int) -> None:
    """Refuse a run whose results do not fit into memory, or which would take forever.

    Args:
        seeds: seeds of each curve.
        horizon: rounds of each seed.
        curves: pairs of an environment and an algorithm; all are in memory when the summary is written.
    """
    rounds = seeds * horizon * curves
    if rounds > MOST_ROUNDS:
        raise ValueError(
            f"{curves} curves of {seeds:,} seeds and {horizon:,} rounds are {rounds:,} rounds, "
            f"but at most {MOST_ROUNDS:,} can be run; use fewer seeds or a shorter horizon"
        )
    need, memory = BYTES_PER_ROUND * rounds, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > memory:
        raise ValueError(
            f"{curves} curves of {seeds:,} seeds and {horizon:,} rounds need {need / 1e9:,.0f} GB of memory, "
            f"but this machine has {memory / 1e9:,.0f} GB; use fewer seeds or a shorter horizon"
        )
