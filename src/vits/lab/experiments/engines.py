"""Where cells are computed. An engine takes cells and yields their arrays; the caller alone writes files."""

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from typing_extensions import override

from vits.files import Arrays
from vits.lab.experiments.base import Cell
from vits.lab.results import Finding


class Monitor:
    """What a run reports while it runs. This one ignores it; the command line draws a bar."""

    def start(self, total: int, found: int) -> None:
        """The cost of all cells, and of those that were found finished."""

    def cell(self, cell: Cell) -> None:
        """The cell that is computed next."""

    def advance(self, cost: int) -> None:
        """The cost of what was just computed."""

    def undecided(self, statements: Sequence[Finding], most_seeds: int) -> None:
        """The statements that get more seeds, and the largest number of seeds they may get."""


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
