"""Grids over hyperparameters: each algorithm's setting in each world is chosen on one set of seeds, checked on another.

Settings are compared by successive halving. All of them play an eighth of the tuning seeds, the best third a quarter,
the best third of those half, and the remaining ones all. A setting with a failed seed is eliminated. The best setting
replaces the default only if its mean regret is lower by the paired rule of `vits.lab.compare`, at a level divided by
the number of settings: ties go to the default. A choice other than the default is then compared with it on fresh seeds.

In the reading "as written", all settings of the paper's grids play all tuning seeds, and the least mean is chosen.
"""

import dataclasses
import functools
import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from vits import validate
from vits.files import Arrays
from vits.lab import compare, results
from vits.lab.compare import HOLDS
from vits.lab.experiments.bandit import TUNING, Contender, Entrant, RegretExperiment, Stage, World, regret_row
from vits.lab.experiments.base import Advance, Cell, Experiment, chunked
from vits.lab.results import BEST, DEFAULT, GRID, WRITTEN, Claim, Results, Row


@dataclasses.dataclass(frozen=True)
class Grid:
    """Values to try, and hyperparameters that are the same at every point."""

    values: Mapping[str, tuple[float, ...]]
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def points(self) -> list[dict[str, Any]]:
        """Every combination of the values."""
        combinations = itertools.product(*self.values.values())
        return [{**dict(zip(self.values, point, strict=True)), **self.fixed} for point in combinations]

    def without(self, names: Collection[str]) -> "Grid":
        """The same grid without these hyperparameters."""
        return Grid({name: values for name, values in self.values.items() if name not in names}, self.fixed)

    def extended(self, more: Mapping[str, tuple[float, ...]]) -> "Grid":
        """The same grid with more values of its hyperparameters."""
        return Grid({name: (*values, *more.get(name, ())) for name, values in self.values.items()}, self.fixed)


_PRIOR = {"prior_precision": (0.1, 1.0, 10.0)}
_POSTERIOR = {"inverse_temperature": (1.0, 3.0, 10.0, 100.0, 500.0, 1000.0), **_PRIOR}
_SAFE_STEP = Grid(_POSTERIOR)
_PAPER_STEP = Grid({**_POSTERIOR, "step_size": (0.001, 0.01, 0.1)}, {"step_rule": "per_observation"})

GRIDS: dict[str, tuple[Grid, ...]] = {
    **dict.fromkeys(("vits_i", "vits_ii", "vits_ii_hf", "lmc_ts"), (_SAFE_STEP, _PAPER_STEP)),
    **dict.fromkeys(("vits_ng", "lin_ts", "laplace_ts", "ensemble_ts"), (Grid(_POSTERIOR),)),
    "lin_ucb": (Grid({**_PRIOR, "width": (0.1, 0.3, 1.0, 3.0)}),),
    "vts": (Grid({**_PRIOR, "prior_scale": (0.1, 1.0, 10.0)}),),
}
"""The grids of each algorithm.

These are the paper's grids with its step h / (eta t), and the same with the safe step. The paper's values of eta begin
at 10. With rewards of order one that is narrower than the exact posterior, so 1 and 3 are tried too.
"""


LITERAL: dict[str, Mapping[str, Any]] = {
    "vits_i": {"draws": "single", "start": "draw", "step_rule": "per_observation"},
    "vits_ii": {"draws": "single", "start": "draw", "step_rule": "per_observation"},
    "vits_ii_hf": {"draws": "plain", "num_samples": 20, "start": "draw", "step_rule": "per_observation"},
    "lmc_ts": {"step_rule": "per_observation"},
    "lin_ts": {},
}
"""The algorithms that the paper tunes, to the letter.

VITS takes single draws (20 plain ones without Hessians), steps h / (eta t), and starts at a draw from the prior. A step
h / (eta t) of LMC-TS on the tempered potential is its step h / t on the loss with noise sqrt(2 h / (eta t)).
"""

_LETTER = {"inverse_temperature": (10.0, 100.0, 500.0, 1000.0), **_PRIOR}
PAPER_GRIDS: dict[str, tuple[Grid, ...]] = {
    name: (Grid(_LETTER if name == "lin_ts" else {**_LETTER, "step_size": (0.001, 0.01, 0.1)}),) for name in LITERAL
}
"""The grids of the paper's appendix, and nothing else."""

CHUNK = 50
"""The most seeds of a setting that are played and stored together; an experiment may have smaller chunks."""

KEPT, FEWEST = 3, 3
"""One setting in three, and at least three, reach the next heat."""


class Race(NamedTuple):
    """The state of a comparison: the settings still in it, the seeds they need, and the choice once it is made."""

    settings: list[int]
    seeds: int
    chosen: int | None


@dataclasses.dataclass(frozen=True)
class Tuning(Experiment):
    """Tries every setting of every contender in every world of an experiment, and reports the choice on fresh seeds."""

    experiment: RegretExperiment
    tuning_seeds: int

    @property
    def reading(self) -> str:
        """How the paper is read."""
        return self.experiment.reading

    @property
    @override
    def labels(self) -> tuple[str, ...]:
        return self.experiment.labels

    @override
    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "experiment": self.experiment.settings()}

    @override
    def cells(self) -> list[Cell]:
        """The first heat of all settings."""
        experiment = self.experiment
        validate.count("tuning_seeds", self.tuning_seeds)
        validate.count("seeds", experiment.seeds)
        validate.count("horizon", experiment.horizon)
        curves = len(experiment.worlds) * len(experiment.contenders)
        validate.run_size(experiment.seeds + self.tuning_seeds, experiment.horizon, curves)
        if experiment.seeds > TUNING.start:
            raise ValueError(
                f"seeds must be at most {TUNING.start}, where those that tune begin, but is {experiment.seeds}"
            )
        if self.tuning_seeds > len(TUNING):
            raise ValueError(f"tuning_seeds must be at most {len(TUNING)}, but is {self.tuning_seeds}")
        return self._cells(None)

    @override
    def more(self, found: Results) -> list[Cell]:
        """The next heat of the settings still compared, and the report of the chosen ones."""
        return self._cells(found)

    def _cells(self, found: Results | None) -> list[Cell]:
        """All cells that are needed, as far as the results tell."""
        content = self.experiment.content()
        return [
            cell
            for world in self.experiment.worlds
            for stage in [self.experiment.stage(world)]
            for contender in self.experiment.contenders
            for cell in self._cells_of(world, stage, contender, content, found)
        ]

    def _cells_of(
        self, world: World, stage: Stage, contender: Contender, content: list[Any], found: Results | None
    ) -> Iterable[Cell]:
        experiment, points = self.experiment, self.points(contender)
        arrays = None if found is None else found.cells.get((world.label, contender.label + GRID))
        race, seen = self.race(len(points), arrays), _played(arrays)

        @functools.cache
        def entrant_of(setting: int) -> tuple[Contender, Entrant]:
            chosen = dataclasses.replace(contender, hyperparameters=points[setting])
            return chosen, experiment.entrant(stage, chosen)

        def cell(suffix: str, setting: int, seeds: list[int]) -> Cell:
            chosen, entrant = entrant_of(setting)
            if suffix == GRID:
                compute = functools.partial(self._tune, entrant, setting, seeds)
            else:
                compute = functools.partial(experiment.compute, entrant, seeds)
            return Cell(
                environment=world.label,
                algorithm=contender.label + suffix,
                chunk=f"{setting}--{seeds[0]}-{seeds[-1]}",
                hyperparameters=chosen.hyperparameters,
                cost=len(seeds) * experiment.horizon,
                settings=experiment.cell_settings(world, chosen, content),
                compute=compute,
            )

        for setting in range(len(points)):
            needed = max(race.seeds if setting in race.settings else 0, seen.get(setting, 0))
            for seeds in chunked(TUNING[:needed], min(CHUNK, experiment.chunk)):
                yield cell(GRID, setting, seeds)
        if race.chosen is not None:
            for suffix, setting in {DEFAULT: 0, "": race.chosen}.items():
                if suffix != DEFAULT or (race.chosen != 0 and self.reading == BEST):
                    for seeds in chunked(range(experiment.seeds), experiment.chunk):
                        yield cell(suffix, setting, seeds)

    def points(self, contender: Contender) -> list[dict[str, Any]]:
        """The settings of a contender: its default first, or the paper's grid to the letter."""
        own = dict(contender.hyperparameters)
        tried = [{**own, **point} for grid in grids(self.experiment, contender) for point in grid.points()]
        if self.reading == WRITTEN:
            return [{**point, **LITERAL[contender.algorithm]} for point in tried]
        return [own, *(point for point in tried if point != own)]

    @property
    def heats(self) -> list[int]:
        """Tuning seeds at the end of each heat."""
        shares = (8, 4, 2, 1) if self.reading == BEST else (1,)
        return sorted({max(self.tuning_seeds // share, 1) for share in shares})

    def race(self, count: int, arrays: Arrays | None) -> Race:
        """The state of the comparison of `count` settings."""
        settings = list(range(count))
        for seeds in self.heats:
            regret = _matrix(arrays, count, seeds)
            if np.any(np.isinf(regret[settings])):
                return Race(settings, seeds, None)
            if seeds < self.tuning_seeds:
                settings = _fittest(settings, regret)
        return Race(settings, self.tuning_seeds, self._choice(settings, regret))

    def _choice(self, settings: list[int], regret: Float[np.ndarray, "settings seeds"]) -> int:
        """The best setting, or the default if the best is not better by the paired rule."""
        best = settings[int(np.argmin([_score(regret[setting]) for setting in settings]))]
        if self.reading == WRITTEN or best == 0 or np.any(np.isnan(regret[0])):
            return best
        decision = compare.decide(compare.less, regret[best], regret[0], alpha=compare.LEVEL / len(regret), margin=0.0)
        return best if decision.verdict == HOLDS else 0

    def _tune(self, entrant: Entrant, setting: int, seeds: list[int], progress: Advance) -> Arrays:
        trace = entrant.play(self.experiment.seed, self.experiment.horizon, seeds, progress)
        return {
            "final": np.where(trace.failed, np.nan, trace.cumulative_regret[:, -1]),
            "setting": np.full(len(seeds), setting),
            "tuning_seed": np.array(seeds),
            "seconds": np.array([trace.seconds]),
        }

    @override
    def row(self, cell: Cell, arrays: Arrays) -> Row:
        """Regret of the chosen setting or the default on fresh seeds; or counts of the settings tried."""
        if "final" not in arrays:
            return regret_row(*cell.key, cell.hyperparameters, arrays)
        count = int(np.max(arrays["setting"])) + 1
        failed = {int(setting) for setting in arrays["setting"][np.isnan(arrays["final"])]}
        return results.row(
            *cell.key,
            {},
            horizon=self.experiment.horizon,
            seeds=self.tuning_seeds,
            seconds=float(np.sum(arrays["seconds"])),
            failed_seeds=0,
            settings_tried=count,
            settings_with_failed_seeds=len(failed),
        )

    @override
    def claims(self, found: Results) -> list[Claim]:
        """Whether each choice is not worse than its default beyond the margin, on fresh seeds."""
        pairs = [key for key in found.cells if (key[0], key[1] + DEFAULT) in found.cells]
        alpha = compare.LEVEL / max(len(pairs), 1)
        checks = []
        for world, label in pairs:
            tuned, default = (results.final_regret(found.cells[world, label + end]) for end in ("", DEFAULT))
            decision = compare.decide(compare.not_above, tuned, default, alpha=alpha)
            verdict = compare.FAILS if np.any(np.isnan(tuned)) else decision.verdict
            checks.append(
                Claim(
                    id=f"{world}: {label}",
                    claim="the tuned setting has no failed seed and is not worse than the default beyond the margin",
                    verdict=verdict,
                    evidence=str(decision),
                )
            )
        return checks

    @override
    def only(self, names: list[str]) -> "Tuning":
        asked = tuning(self.experiment.only(names), tuning_seeds=self.tuning_seeds)
        return dataclasses.replace(self, experiment=asked.experiment)


def _matrix(arrays: Arrays | None, count: int, seeds: int) -> Float[np.ndarray, "settings seeds"]:
    """Regret of each setting on the first tuning seeds: NaN where a seed failed, infinite where it was not played."""
    regret = np.full((count, seeds), np.inf)
    if arrays is not None:
        seed = arrays["tuning_seed"] - TUNING.start
        early = seed < seeds
        regret[arrays["setting"][early], seed[early]] = arrays["final"][early]
    return regret


def _played(arrays: Arrays | None) -> dict[int, int]:
    """How many tuning seeds each setting has played."""
    settings, seeds = np.unique([] if arrays is None else arrays["setting"], return_counts=True)
    return {int(setting): int(count) for setting, count in zip(settings, seeds, strict=True)}


def _fittest(settings: list[int], regret: Float[np.ndarray, "settings seeds"]) -> list[int]:
    """The best third, at least three, and the default. Settings with a failed seed drop out unless all have one."""
    alive = [setting for setting in settings if not np.any(np.isnan(regret[setting]))] or settings
    ranked = sorted(alive, key=lambda setting: _score(regret[setting]))
    kept = ranked[: max(FEWEST, -(-len(alive) // KEPT))]
    return sorted({*kept, *(setting for setting in alive if setting == 0)})


def _score(regret: Float[np.ndarray, " seeds"]) -> float:
    """Mean regret; infinite if any seed failed."""
    return float("inf") if np.any(np.isnan(regret)) else float(np.mean(regret))


def grids(experiment: RegretExperiment, contender: Contender) -> list[Grid]:
    """The grids of a contender in an experiment."""
    if experiment.reading == WRITTEN:
        return [grid.without(experiment.decides) for grid in PAPER_GRIDS[contender.algorithm]]
    return [grid.without(experiment.decides).extended(experiment.tries) for grid in GRIDS[contender.algorithm]]


def tuning(experiment: Experiment, *, tuning_seeds: int = 400) -> Tuning:
    """The tuning of a regret experiment.

    Args:
        experiment: what to tune; its seeds are kept for the report. In the reading "as written", the grids are the
            paper's and the algorithms follow it to the letter.
        tuning_seeds: fresh seeds on which settings are compared.

    Returns:
        An experiment that can be run, stored and resumed like any other.
    """
    if not isinstance(experiment, RegretExperiment) or not experiment.tuning_worlds():
        raise ValueError(
            f"'{experiment.name}' has no grids to tune over; linear, quadratic, movielens and the fixed arms have"
        )
    known = GRIDS if experiment.reading == BEST else PAPER_GRIDS
    contenders = tuple(contender for contender in experiment.contenders if contender.algorithm in known)
    if not contenders:
        names = ", ".join(contender.label for contender in experiment.contenders)
        raise ValueError(f"there is nothing to tune in {names}; grids exist for {', '.join(known)}")
    return Tuning(
        name=experiment.name + results.TUNING,
        title=f"{experiment.title}, tuned {experiment.reading}",
        experiment=dataclasses.replace(experiment, worlds=experiment.tuning_worlds(), contenders=contenders),
        tuning_seeds=tuning_seeds,
    )
