"""Engines, which compute the cells of an experiment: in this process, or on a Ray cluster."""

import importlib.util
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from typing_extensions import override

from vits import validate
from vits.files import Arrays
from vits.lab.experiments.base import Cell
from vits.lab.results import Finding

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
