"""Time on 2 to 512 cores of `make paper` and of the grids of the quadratic bandit, simulated from measured cell times.

`python -m benchmarks.scaling` writes the tables of docs/howto/cluster.md; so does `make paper-docs`. Only the schedule
is simulated, as the Ray engine makes it: one core per cell, the longest first, one job after the other, and within a
job one batch of cells after the other where the next batch depends on the results (more seeds for undecided claims,
the next heat of a grid). Start-up, compilation and network are not in it.

Cell times come from the runs in paper/. For jobs that have none, or one with other seeds or algorithms than the job,
`python -m benchmarks.cell_times` times some rounds of a cell of every row.
"""

import heapq
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vits import catalogue, files
from vits.lab.compare import FEWEST, LOOK_EVERY
from vits.lab.experiments import theory, tuning
from vits.lab.experiments.gaussian_target import TargetContender
from vits.lab.report import paper
from vits.lab.results import BEST

CORES = (2, 4, 8, 16, 32, 64, 128, 256, 512)

KEPT_CORES = 2
"""Cores of the machine that computed the runs in paper/: the local engine gives all of them to each cell."""

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/howto/cluster.md"
BEGIN, END = "<!-- begin scaling -->\n", "<!-- end scaling -->\n"

PIECES = Path(__file__).with_name("cell_times.json")
"""What `benchmarks.cell_times` measured."""

GRIDS = {preset: f"vits tune quadratic --preset {preset}" for preset in ("quick", "paper")}
"""Presets of the quadratic bandit whose grids are simulated: the square network, and the paper's."""

TUNING_SEEDS = 400
"""As `vits tune` has by default."""

REPORTED = 2
"""Settings that are played on fresh seeds at the end of a tuning: the chosen one and the default."""

Batches = list[list[float]]
"""Seconds on one core of every cell; each batch begins when the one before it is finished."""


class Row(NamedTuple):
    """An algorithm in an environment."""

    seeds: int
    chunk: int
    """Seeds of a cell."""
    seconds: float
    """Of one core, for each seed."""

    def cells(self, first: int, last: int) -> list[float]:
        """The cells with these seeds."""
        starts = range(first, min(last, self.seeds), self.chunk)
        return [self.seconds * (min(start + self.chunk, last, self.seeds) - start) for start in starts]


class Job(NamedTuple):
    """What one command computes; `source` says where its times come from."""

    source: str
    batches: Batches
    local: bool = False
    """Whether it measures time, so that it runs on the driver's machine alone."""

    @property
    def cells(self) -> int:
        """How many there are."""
        return sum(map(len, self.batches))

    @property
    def core_seconds(self) -> float:
        """Of all cells."""
        return sum(map(sum, self.batches))

    @property
    def longest(self) -> float:
        """The longest cell."""
        return max(map(max, self.batches))

    @property
    def least(self) -> float:
        """The time that it takes on any number of cores: the longest cell of every batch."""
        return self.wall(self.cells)

    def wall(self, cores: int) -> float:
        """Until the last cell is finished."""
        if self.local:
            return self.core_seconds / KEPT_CORES
        return sum(wall(batch, cores) for batch in self.batches)


def wall(seconds: Sequence[float], cores: int) -> float:
    """When the last core is finished, if each free core takes the longest cell that is left."""
    ends = [0.0] * min(cores, len(seconds))
    for each in sorted(seconds, reverse=True):
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends)


def looks(first: int, last: int) -> list[int]:
    """Seeds at each look of a run until its claims are decided: half as many again each time."""
    found = [min(first, last)]
    while found[-1] < last:
        goal = max(FEWEST, found[-1] + LOOK_EVERY, found[-1] + found[-1] // 2)
        found.append(min(-(-goal // LOOK_EVERY) * LOOK_EVERY, last))
    return found


def batches(rows: Iterable[Row], first: int) -> Batches:
    """The cells of a run whose rows begin with `first` seeds."""
    rows = list(rows)
    ends = looks(first, max(row.seeds for row in rows))
    found = [
        [seconds for row in rows for seconds in row.cells(begin, end)]
        for begin, end in zip([0, *ends], ends, strict=False)
    ]
    return [batch for batch in found if batch]


def kept_job(name: str, summary: Mapping[str, Any]) -> Job:
    """A job from its run in paper/."""
    settings, experiment = summary["settings"], summary["experiment"]
    rows = [
        Row(row["seeds"], _chunk(settings, experiment, row), KEPT_CORES * row["seconds"] / row["seeds"])
        for row in summary["rows"]
    ]
    # Rows that do not gain from seeds may have fewer than the settings say.
    return Job(f"`paper/{name}.json`", batches(rows, settings["seeds"]), catalogue.experiment(experiment).timed)


def _chunk(settings: Mapping[str, Any], experiment: str, row: Mapping[str, Any]) -> int:
    if experiment == "theory":
        return max(theory.CHUNK // row["horizon"], 1)
    if experiment == "kl":
        contenders = {each["label"]: TargetContender(**each) for each in settings["contenders"]}
        return len(contenders[row["algorithm"]].chunks(row["seeds"])[0])
    return int(settings.get("chunk", row["seeds"]))


def measured_job(job: paper.Job, pieces: Mapping[str, Any]) -> Job:
    """A job from some rounds of its cells; with all the seeds that it may get."""
    rows = [
        Row(max(job.most_seeds or 0, each["seeds"]), each["chunk"], each["seconds"])
        for each in pieces[job.name]["rows"]
    ]
    return Job("some rounds", batches(rows, pieces[job.name]["seeds"]), catalogue.experiment(job.experiment).timed)


def paper_jobs(kept: Path, pieces: Mapping[str, Any]) -> dict[str, Job | None]:
    """Every job of `make paper`; None if it was not measured."""
    runs = {name: run.summary for name, run in paper.load(kept).items() if not run.summary["record"]["changes"]}
    found: dict[str, Job | None] = {}
    for job in paper.JOBS:
        if job.name in runs:
            found[job.name] = kept_job(job.name, runs[job.name])
        else:
            found[job.name] = measured_job(job, pieces) if job.name in pieces else None
    return found


def grid_job(preset: str, pieces: Mapping[str, Any]) -> Job:
    """`vits tune quadratic`: heats in which most settings drop out, then the chosen ones on fresh seeds."""
    experiment = tuning.tuning(catalogue.presets("quadratic")[preset], tuning_seeds=TUNING_SEEDS)
    assert experiment.reading == BEST
    chunk = min(tuning.CHUNK, experiment.experiment.chunk)
    heats = [0, *experiment.heats]
    found: Batches = [[] for _ in [*experiment.heats, "report"]]
    for contender in experiment.experiment.contenders:
        seconds = [each["seconds"] for each in pieces[GRIDS[preset]]["rows"] if each["label"] == contender.label]
        row = Row(TUNING_SEEDS, chunk, math.fsum(seconds) / len(seconds))
        report = Row(experiment.experiment.seeds, experiment.experiment.chunk, row.seconds)
        for _ in experiment.experiment.worlds:
            settings = len(experiment.points(contender))
            for heat, (begin, end) in enumerate(itertools.pairwise(heats)):
                found[heat] += settings * row.cells(begin, end)
                settings = min(settings, max(tuning.FEWEST, -(-settings // tuning.KEPT)) + 1)  # and the default
            found[-1] += REPORTED * report.cells(0, report.seeds)
    return Job("some rounds", found)


def costs(jobs: Mapping[str, Job | None]) -> str:
    """Core-hours by job, in Markdown."""
    lines = ["| job | cells | core-hours | longest cell | from |", "|---|---:|---:|---:|---|"]
    for name, job in jobs.items():
        if job is None:
            lines.append(f"| {name} | | | | not measured |")
        else:
            hours, longest = f"{job.core_seconds / 3600:,.2f}", duration(job.longest)
            lines.append(f"| {name} | {job.cells:,} | {hours} | {longest} | {job.source} |")
    return "\n".join(lines)


def walls(runs: Mapping[str, Sequence[Job]]) -> str:
    """Wall time against cores, in Markdown: a column for each run, which is a sequence of jobs."""
    lines = ["| cores | " + " | ".join(runs) + " |", "|---:|" + "---:|" * len(runs)]
    for cores in CORES:
        times = [duration(sum(job.wall(cores) for job in jobs)) for jobs in runs.values()]
        lines.append(f"| {cores} | " + " | ".join(times) + " |")
    lines.append("| *longest cells alone* | " + " | ".join(duration(least(jobs)) for jobs in runs.values()) + " |")
    lines.append("| *within a tenth of that from* | " + " | ".join(map(enough, runs.values())) + " |")
    return "\n".join(lines)


def least(jobs: Sequence[Job]) -> float:
    """The time that jobs take on any number of cores."""
    return sum(job.wall(1) if job.local else job.least for job in jobs)


def enough(jobs: Sequence[Job]) -> str:
    """The number of cores from which on the longest cells decide: more of them save less than a tenth."""
    bound = 1.1 * least(jobs)
    found = next((cores for cores in CORES if sum(job.wall(cores) for job in jobs) <= bound), None)
    return f"more than {CORES[-1]} cores" if found is None else f"{found} cores"


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 100.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000.0 else f"{seconds / 3600:,.1f} h"


def text() -> str:
    """Both tables of the page."""
    pieces = json.loads(PIECES.read_bytes()) if PIECES.exists() else {}
    jobs = {f"`{name}`": job for name, job in paper_jobs(ROOT / "paper", pieces).items()}
    grids = {f"`{name}`": grid_job(preset, pieces) if name in pieces else None for preset, name in GRIDS.items()}
    measured = [job for job in jobs.values() if job is not None]
    runs = {"`make paper`" if len(measured) == len(jobs) else "`make paper`, measured jobs": measured}
    runs |= {name: [job] for name, job in grids.items() if job is not None}
    return f"{costs({**jobs, **grids})}\n\n{walls(runs)}\n"


def main() -> None:
    """Write both tables into the page."""
    before, begin, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    files.write_atomically(PAGE, "".join([before, begin, text(), end, after]).encode())


if __name__ == "__main__":
    main()
