"""An experiment for tests of engines: cells that take a given time and whose numbers are known."""

import dataclasses
import functools
import time

import numpy as np

from vits.lab import results
from vits.lab.experiments.base import Cell, Experiment


@dataclasses.dataclass(frozen=True)
class Trivial(Experiment):
    """Cells that wait, or count, for some seconds and return random numbers from their index."""

    num_cells: int = 6
    seconds: float = 0.0
    busy: bool = False
    broken: tuple[int, ...] = ()
    """Cells that raise an error."""

    @property
    def labels(self):
        return tuple(f"a{i}" for i in range(self.num_cells))

    def cells(self):
        return [self._cell(i) for i in range(self.num_cells)]

    def _cell(self, i):
        compute = functools.partial(_compute, i, self.seconds, self.busy, i in self.broken)
        return Cell("world", f"a{i}", "all", {}, cost=1 + i % 3, settings=[i], compute=compute)

    def row(self, cell, arrays):
        return results.row(*cell.key, {}, horizon=1, seeds=1, seconds=0.0, failed_seeds=0)

    def only(self, names):
        return self


def _compute(index, seconds, busy, broken, advance):
    if broken:
        raise ArithmeticError(f"cell {index} is broken")
    end = time.process_time() + seconds
    if busy:
        while time.process_time() < end:
            pass
    else:
        time.sleep(seconds)
    advance(1 + index % 3)
    return {"numbers": np.random.default_rng(index).normal(size=50), "seconds": np.zeros(1)}
