"""Grids over hyperparameters: all settings of an algorithm are one batch of one compiled program.

The best setting of each algorithm in each world is chosen on one set of seeds and reported on another.
"""

import dataclasses
import functools
import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from typing_extensions import override

from vits import validate
from vits.files import Arrays
from vits.history import with_capacity
from vits.lab import results
from vits.lab.experiments.bandit import Contender, RegretExperiment, Stage, World, regret_row, trace_arrays
from vits.lab.experiments.base import Advance, Cell, Experiment, check_size
from vits.lab.results import Row
from vits.policies import Policy
from vits.simulation import simulate_each


@dataclasses.dataclass(frozen=True)
class Grid:
    """Values to try, and what goes with all of them."""

    values: Mapping[str, tuple[float, ...]]
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def points(self) -> list[dict[str, Any]]:
        """Every combination of the values."""
        combinations = itertools.product(*self.values.values())
        return [{**dict(zip(self.values, point, strict=True)), **self.fixed} for point in combinations]

    def without(self, names: Collection[str]) -> "Grid":
        """The same grid but for these hyperparameters."""
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
"""What is tried for each algorithm.

The paper's grids, with its step h / (eta t), and beside them the same with the safe step. The paper's eta begin at 10;
with rewards of order one that is narrower than the posterior itself, so 1 and 3 are tried too.
"""


FIRST_SEED = 10_000
"""Seeds from this one on tune, seeds below it report, in every preset: never the same."""

FIRST_HEAT, FINALISTS, FEWEST = 4, 6, 3
"""One seed in four is for all settings, which play half the rounds; one setting in six, and three at least, goes on to
play every seed."""

BATCH = 60
"""Players at once: of one size and with one capacity, so that the two heats share a compilation."""


@dataclasses.dataclass(frozen=True)
class Tuning(Experiment):
    """Tries every setting of every contender in every world of an experiment, and reports the best on fresh seeds.

    In two heats: all settings of a grid play a quarter of the tuning seeds for half the rounds, the best sixth of them
    (three at least) plays all seeds to the end, and the best of those is chosen. With fewer than eight seeds there is
    no first heat.
    """

    experiment: RegretExperiment
    tuning_seeds: int

    @property
    @override
    def labels(self) -> tuple[str, ...]:
        return self.experiment.labels

    @override
    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "experiment": self.experiment.settings()}

    @override
    def cells(self) -> list[Cell]:
        """One cell per world and contender: the tuning and the report."""
        experiment = self.experiment
        validate.count("tuning_seeds", self.tuning_seeds)
        validate.count("seeds", experiment.seeds)
        validate.count("horizon", experiment.horizon)
        curves = len(experiment.worlds) * len(experiment.contenders)
        check_size(experiment.seeds + self.tuning_seeds, experiment.horizon, curves)
        if experiment.seeds > FIRST_SEED:
            raise ValueError(
                f"seeds must be at most {FIRST_SEED}, where those that tune begin, but is {experiment.seeds}"
            )
        content = experiment.content()
        stages = [(world, experiment.stage(world)) for world in experiment.worlds]
        return [self._cell(world, stage, who, content) for world, stage in stages for who in experiment.contenders]

    def _cell(self, world: World, stage: Stage, contender: Contender, content: list[Any]) -> Cell:
        experiment, tried = self.experiment, grids(self.experiment, contender)
        return Cell(
            environment=world.label,
            algorithm=contender.label,
            chunk="all",
            hyperparameters=contender.hyperparameters,
            cost=sum(self._cost(len(grid.points())) for grid in tried) + experiment.seeds * experiment.horizon,
            settings=[
                dataclasses.asdict(world),
                dataclasses.asdict(contender),
                dataclasses.asdict(contender.model or experiment.model),
                [dataclasses.asdict(grid) for grid in tried],
                [FIRST_HEAT, FINALISTS, FEWEST],
                experiment.horizon,
                experiment.seeds,
                experiment.seed,
                self.tuning_seeds,
                *content,
            ],
            compute=functools.partial(self._tune, stage, contender),
        )

    def _first_heat(self) -> range:
        """The seeds of the first heat; none if there are too few for one."""
        return range(FIRST_SEED, FIRST_SEED + self.tuning_seeds // FIRST_HEAT * (self.tuning_seeds >= 2 * FIRST_HEAT))

    def _num_finalists(self, num_points: int) -> int:
        return min(num_points, max(FEWEST, -(-num_points // FINALISTS))) if self._first_heat() else num_points

    def _cost(self, num_points: int) -> int:
        """How many rounds the two heats of a grid take."""
        heat = num_points * len(self._first_heat()) * self._half()
        return heat + self._num_finalists(num_points) * self.tuning_seeds * self.experiment.horizon

    def _half(self) -> int:
        return -(-self.experiment.horizon // 2)

    def _tune(self, stage: Stage, contender: Contender, progress: Advance) -> Arrays:
        everyone = range(FIRST_SEED, FIRST_SEED + self.tuning_seeds)
        tried: list[dict[str, Any]] = []
        regret, seconds = [], 0.0
        for grid in grids(self.experiment, contender):
            points = grid.points()
            finalists = np.arange(len(points))
            final = np.full((len(points), len(everyone)), np.inf)
            if heat := self._first_heat():
                found, took = self._play(stage, contender, grid, points, heat, self._half(), progress)
                finalists = np.argsort(_score(found))[: self._num_finalists(len(points))]
                final[np.any(np.isnan(found), axis=1)] = np.nan
                seconds += took
            chosen = [points[i] for i in finalists]
            horizon = self.experiment.horizon
            final[finalists], took = self._play(stage, contender, grid, chosen, everyone, horizon, progress)
            seconds += took
            regret.append(final)
            tried += [{**contender.hyperparameters, **point} for point in points]
        everywhere = np.concatenate(regret)
        best = int(np.argmin(_score(everywhere)))
        winner = self.experiment.entrant(stage, dataclasses.replace(contender, hyperparameters=tried[best]))
        report = winner.play(self.experiment.seed, self.experiment.horizon, range(self.experiment.seeds), progress)
        return {
            **trace_arrays(report),
            "tried": np.array([json.dumps(point) for point in tried]),
            "tuning_regret": everywhere,
            "tuning_seconds": np.array([seconds]),
            "best": np.array([best]),
        }

    def _play(
        self,
        stage: Stage,
        contender: Contender,
        grid: Grid,
        points: Sequence[Mapping[str, Any]],
        seeds: range,
        horizon: int,
        progress: Advance,
    ) -> tuple[Float[np.ndarray, "points seeds"], float]:
        """Regret of every point with every seed at the end, NaN where a seed failed; and the seconds it took."""
        experiment, model = self.experiment, self.experiment.model_of(contender)
        which, players = (x.ravel() for x in np.meshgrid(np.arange(len(points)), np.asarray(seeds), indexing="ij"))

        def policy(values: Mapping[str, Any], own: Any) -> Policy:
            hyperparameters = {**contender.hyperparameters, **grid.fixed, **values}
            return stage.policy(dataclasses.replace(contender, hyperparameters=hyperparameters), model, own)

        regret, seconds = [], 0.0
        size = min(BATCH, len(players))
        padded = np.resize(np.arange(len(players)), -(-len(players) // size) * size)
        for batch in padded.reshape(-1, size):
            columns = {name: jnp.array([points[i][name] for i in which[batch]]) for name in grid.values}
            policies = eqx.filter_vmap(policy)(columns, stage.own(players[batch].tolist()) if stage.own else None)
            played = simulate_each(
                experiment.seed,
                stage.environment,
                with_capacity(policies, experiment.horizon),
                horizon,
                seeds=players[batch].tolist(),
                progress=progress,
            )
            regret.append(np.where(played.failed, np.nan, played.cumulative_regret[..., -1]))
            seconds += played.seconds
        return np.concatenate(regret)[: len(players)].reshape(len(points), len(seeds)), seconds

    @override
    def row(self, cell: Cell, arrays: Arrays) -> Row:
        """The best setting, its regret on fresh seeds, and how the others fared."""
        best = int(arrays["best"][0])
        chosen = json.loads(str(arrays["tried"][best]))
        failed = np.any(np.isnan(arrays["tuning_regret"]), axis=1)
        return regret_row(
            *cell.key,
            chosen,
            arrays,
            settings_tried=failed.size,
            settings_with_failed_seeds=int(np.sum(failed)),
            tuning_seconds=float(arrays["tuning_seconds"][0]),
        )

    @override
    def only(self, names: list[str]) -> "Tuning":
        asked = tuning(self.experiment.only(names), tuning_seeds=self.tuning_seeds)
        return dataclasses.replace(self, experiment=asked.experiment)


def grids(experiment: RegretExperiment, contender: Contender) -> list[Grid]:
    """What is tried for a contender of an experiment."""
    return [grid.without(experiment.decides).extended(experiment.tries) for grid in GRIDS[contender.algorithm]]


def _score(regret: Float[np.ndarray, "points seeds"]) -> Float[np.ndarray, " points"]:
    """Mean regret; infinite for a setting with a failed seed, which is out of the race whatever its other seeds say."""
    means = np.mean(regret, axis=1)
    return np.where(np.isnan(means), np.inf, means)


def tuning(experiment: Experiment, *, tuning_seeds: int = 10) -> Tuning:
    """The tuning of a regret experiment.

    Args:
        experiment: what to tune; its seeds are kept for the report.
        tuning_seeds: fresh seeds on which settings are compared.

    Returns:
        An experiment that can be run, stored and resumed like any other.
    """
    if not isinstance(experiment, RegretExperiment) or not experiment.tuning_worlds():
        raise ValueError(
            f"'{experiment.name}' has no grids to tune over; linear, quadratic, movielens and the fixed arms have"
        )
    contenders = tuple(contender for contender in experiment.contenders if contender.algorithm in GRIDS)
    if not contenders:
        names = ", ".join(contender.label for contender in experiment.contenders)
        raise ValueError(f"there is nothing to tune in {names}; grids exist for {', '.join(GRIDS)}")
    return Tuning(
        name=experiment.name + results.TUNING,
        title=f"{experiment.title}, best of the grids",
        experiment=dataclasses.replace(experiment, worlds=experiment.tuning_worlds(), contenders=contenders),
        tuning_seeds=tuning_seeds,
    )
