"""The time of finished runs on more cores, simulated from the measured times of their cells.

`python -m benchmarks.scaling FOLDER...` takes the folders of finished runs. Cells are given to cores as the Ray engine
does: one core each, the longest first. Only the schedule is simulated: no start-up, no compilation, no network,
and all cells are known from the beginning.

`--preset NAME` is for another preset of the same experiments: a cell takes as long as its row took when measured, in
proportion to rounds times seeds; a row that was not measured takes what its algorithm took on average.

On Ray a cell has one core. On the local engine it has all of them, so `--cores N` says how many that were.
"""

import argparse
import heapq
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vits import catalogue
from vits.lab import results

CORES = (2, 4, 8, 16, 32, 64, 128, 256, 512)


class Scaling(NamedTuple):
    cells: int
    core_seconds: float
    longest: float
    walls: dict[int, float]

    @property
    def enough(self) -> int:
        """The number of cores from which on the longest cell determines the time."""
        return next((cores for cores, wall in self.walls.items() if wall <= 1.001 * self.longest), 0)


def cell_seconds(folder: Path, cores: int = 1) -> list[float]:
    """The seconds on one core of each cell of a run, without compilation."""
    seconds = []
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as arrays:
            seconds.append(cores * float(np.sum(arrays["seconds"])))
    return seconds


def preset_seconds(folder: Path, preset: str, cores: int = 1) -> list[float]:
    """The seconds on one core that each cell of another preset would take, from the rows of a measured run."""
    found = results.load(folder)
    rates: dict[str, list[float]] = {}
    by_row = {}
    for row in found.summary["rows"]:
        rate = cores * row["seconds"] / (row["seeds"] * row["horizon"])
        rates.setdefault(row["algorithm"], []).append(rate)
        by_row[row["environment"], row["algorithm"]] = rate
    cells = catalogue.presets(found.summary["experiment"])[preset].cells()
    return [cell.cost * by_row.get(cell.key, float(np.mean(rates[cell.algorithm]))) for cell in cells]


def wall(seconds: Sequence[float], cores: int) -> float:
    """When the last core is finished, if each free core takes the longest cell that is left."""
    ends = [0.0] * min(cores, len(seconds))
    for each in sorted(seconds, reverse=True):
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends)


def scaling(seconds: Sequence[float]) -> Scaling:
    return Scaling(len(seconds), sum(seconds), max(seconds), {cores: wall(seconds, cores) for cores in CORES})


def table(found: dict[str, Scaling]) -> str:
    """A table for docs/howto/cluster.md, in seconds."""
    head = [
        "run",
        "cells",
        "core-hours",
        "longest cell",
        *(f"{cores} cores" for cores in CORES),
        "longest cell decides",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, each in found.items():
        walls = [f"{wall:.1f} s" for wall in each.walls.values()]
        limit = f"from {each.enough} cores" if each.enough else "not yet"
        row = [name, str(each.cells), f"{each.core_seconds / 3600:.3f}", f"{each.longest:.1f} s", *walls, limit]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--preset")
    arguments = parser.parse_args()
    times = {}
    for folder in arguments.folders:
        if arguments.preset is None:
            times[folder.name] = cell_seconds(folder, arguments.cores)
        else:
            name = f"{results.load(folder).summary['experiment']}-{arguments.preset}"
            times[name] = preset_seconds(folder, arguments.preset, arguments.cores)
    found = {name: scaling(seconds) for name, seconds in times.items() if seconds}
    if len(found) > 1:
        found["together"] = scaling([each for seconds in times.values() for each in seconds])
    print(table(found))


if __name__ == "__main__":
    main()
