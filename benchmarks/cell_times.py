"""How long cells take on one core: `NPROC=1 python -m benchmarks.cell_times NAME...`, with names of jobs or grids.

Adds to benchmarks/cell_times.json, from which `benchmarks.scaling` simulates clusters. One cell of every row is
computed as a worker with one core does it, to its end or for some seconds. What counts is the processor time of the
process, which has one thread, so that other programs on the machine disturb little. Rounds take longer with more data.
So those of a cell that is not computed to its end are timed three times: with an empty, a half full and a nearly full
history; or, where every arm has a history of its own, with an empty one alone. Compilation is not in it.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.scaling import GRIDS, KEPT_CORES, PIECES
from vits import catalogue, files
from vits.lab.experiments import tuning
from vits.lab.experiments.base import Cell, Experiment
from vits.lab.report import paper
from vits.simulation import programs

SECONDS = 4.0
"""Most computing time of a piece, unless `--seconds` says otherwise."""

SEGMENT = 10
"""Rounds between two looks at the clock, unless `--rounds` says otherwise."""

SHARES = (0.0, 0.5, 0.9)
"""Rounds that a cell is taken to have played already, of all its rounds, when it is timed."""


class Enough(Exception):
    """The time is up."""


class Piece(NamedTuple):
    """Some rounds of a cell: the seconds of a round of a seed, and how many rounds were played."""

    seconds: float
    rounds: int


def piece(cell: Cell, rounds: int, limit: float) -> Piece:
    """Play a cell for some seconds, or to its end."""
    reports = []

    def progress(cost: int) -> None:
        reports.append((time.process_time(), cost))
        if reports[-1][0] - reports[0][0] > limit:
            raise Enough

    with programs.shared(programs.Shares(KEPT_CORES, threads=1)), contextlib.suppress(Enough):
        cell.compute(progress)
    # The first report starts the clock. A group of seeds is played to its end before the next one begins.
    times, costs = np.array(reports).T
    played = int(np.sum(costs) * min(programs.SEGMENT, rounds) / costs[0])
    return Piece(float((times[-1] - times[0]) / np.sum(costs[1:])), min(played, rounds))


@contextlib.contextmanager
def filled(count: int) -> Iterator[list[str]]:
    """Let simulations begin with `count` observations, all zero: a round then costs what it does later in a run.

    The list has the names of what was filled. Histories of single arms are not.
    """
    begin, found = programs._init_states, list[str]()

    def fill(path: Any, leaf: Any) -> Any:
        if getattr(path[-1], "name", None) != "seen" or leaf.ndim != 1:
            return leaf
        found.append(jax.tree_util.keystr(path))
        return jnp.full_like(leaf, count)

    programs._init_states = lambda *arguments: jax.tree_util.tree_map_with_path(fill, begin(*arguments))
    try:
        yield found
    finally:
        programs._init_states = begin


def seconds_per_seed(cell: Cell, rounds: int, limit: float) -> tuple[float, int]:
    """The seconds of one core that a seed of a cell takes, and how many rounds were timed."""
    pieces = []
    for share in SHARES:
        with filled(int(share * rounds)) as found:
            pieces.append(piece(cell, rounds, limit))
        if pieces[0].rounds == rounds or not found:
            break
    return rounds * float(np.mean([each.seconds for each in pieces])), sum(each.rounds for each in pieces)


def measured(experiment: Experiment, cells: list[Cell], limit: float) -> Iterator[dict[str, Any]]:
    """A row of the file for each row of an experiment."""
    for cell in {cell.key: cell for cell in reversed(cells)}.values():
        row = {"environment": cell.environment, "label": cell.algorithm.removesuffix(tuning.GRID)}
        if cell.chunk == "all":  # it reports no progress, and takes as long on two cores as on one
            seconds = KEPT_CORES * float(np.sum(cell.compute(lambda cost: None)["seconds"]))
            row |= {"seeds": 1, "chunk": 1, "seconds": seconds}
        else:
            first, last = map(int, cell.chunk.rpartition("--")[2].split("-"))
            chunk = last - first + 1
            rounds = cell.cost // chunk
            seconds, timed = seconds_per_seed(cell, rounds, limit)
            row |= {"seeds": experiment.seeds, "chunk": chunk, "rounds": rounds, "timed_rounds": timed}
        row["seconds"] = float(f"{seconds:.4g}")
        print(row, flush=True)
        yield row


def grid_cells(preset: str) -> tuple[Experiment, list[Cell]]:
    """A cell for every kind of step of every contender, in the first world."""
    experiment = tuning.tuning(catalogue.presets("quadratic")[preset])
    one = dataclasses.replace(experiment.experiment, worlds=experiment.experiment.worlds[:1])
    found: dict[Any, Cell] = {}
    for cell in dataclasses.replace(experiment, experiment=one).cells():
        found.setdefault((cell.algorithm, cell.hyperparameters.get("step_rule")), cell)
    return one, [
        cell._replace(environment=f"{cell.environment}, {rule or 'safe'} step") for (_, rule), cell in found.items()
    ]


def plans() -> dict[str, Any]:
    """What can be measured: the jobs of `make paper`, and grids; each with its experiment and cells."""
    jobs = {}
    for job in paper.JOBS:
        experiment = catalogue.presets(job.experiment)[job.preset]
        jobs[job.name] = lambda experiment=experiment: (experiment, experiment.cells())
    return jobs | {name: lambda preset=preset: grid_cells(preset) for preset, name in GRIDS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+", choices=plans())
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rounds", type=int, default=SEGMENT)
    arguments = parser.parse_args()
    if os.environ.get("NPROC") != "1":
        parser.error("NPROC must be 1, as for a worker with one core: NPROC=1 python -m benchmarks.cell_times NAME...")
    programs.SEGMENT = arguments.rounds
    found = json.loads(PIECES.read_bytes()) if PIECES.exists() else {}
    for name in arguments.names:
        experiment, cells = plans()[name]()
        found[name] = {"seeds": experiment.seeds, "rows": list(measured(experiment, cells, arguments.seconds))}
        files.write_json(PIECES, found)


if __name__ == "__main__":
    main()
