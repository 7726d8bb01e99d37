"""Experiments for tests of engines: cells whose time and whose numbers are known."""

import dataclasses
import functools
import os
import time
from pathlib import Path

import numpy as np

from vits.lab import results
from vits.lab.experiments import linear
from vits.lab.experiments.base import Cell, Experiment


@dataclasses.dataclass(frozen=True)
class Trivial(Experiment):
    """Cells that wait for some seconds and return random numbers from their index."""

    num_cells: int = 6
    seconds: float = 0.0
    broken: tuple[int, ...] = ()
    """Cells that raise an error."""

    @property
    def labels(self):
        return tuple(f"a{i}" for i in range(self.num_cells))

    def cells(self):
        return [self._cell(i) for i in range(self.num_cells)]

    def _cell(self, i):
        compute = functools.partial(_compute, i, self.seconds, i in self.broken)
        return Cell("world", f"a{i}", "all", {}, cost=1 + i % 3, settings=[i], compute=compute)

    def row(self, cell, arrays):
        return results.row(*cell.key, {}, horizon=1, seeds=1, seconds=0.0, failed_seeds=0)

    def only(self, names):
        return self


def _compute(index, seconds, broken, advance):
    if broken:
        raise ArithmeticError(f"cell {index} is broken")
    time.sleep(seconds)
    advance(1 + index % 3)
    return {"numbers": np.random.default_rng(index).normal(size=50), "seconds": np.zeros(1)}


def busy(num_cells, chunk=32):
    """Cells of VITS-I on the linear bandit, about two seconds of one core each."""
    one = linear.EXPERIMENT.only(["vits_i"])
    return dataclasses.replace(one, worlds=one.worlds[:1], seeds=chunk * num_cells, chunk=chunk)


class Compiling(Trivial):
    """Cells that count the programs that they found compiled."""

    def _cell(self, i):
        return super()._cell(i)._replace(compute=_count_found)


def _count_found(advance):
    import jax
    import jax.numpy as jnp

    found = []
    jax.monitoring.register_event_listener(lambda event, **_: found.append(event))
    jax.jit(lambda x: jnp.linalg.eigh(x @ x.T))(jnp.eye(50))
    return {"found": np.array([found.count("/jax/compilation_cache/cache_hits")]), "seconds": np.zeros(1)}


class Threads(Trivial):
    """Cells that count the threads of XLA in their process, after a product that needs them."""

    def _cell(self, i):
        return super()._cell(i)._replace(compute=_count_threads)


def _count_threads(advance):
    import jax.numpy as jnp

    (jnp.ones((1000, 1000)) @ jnp.ones((1000, 1000))).block_until_ready()
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    blas = int(os.environ["OPENBLAS_NUM_THREADS"])
    return {"xla": np.array([names.count("tf_XLAEigen")]), "blas": np.array([blas]), "seconds": np.zeros(1)}
