"""Grids over hyperparameters: all settings of an algorithm are one batch of one compiled program.

The best setting of each algorithm in each world is chosen on one set of seeds and reported on another.
"""

import dataclasses
import itertools
import json
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from vits import algorithms, checks, environments, models, results
from vits.compare import Claim
from vits.environments.base import Environment
from vits.experiments.bandit import BanditExperiment, Contender, World
from vits.experiments.base import Cell, Experiment, Progress
from vits.results import Arrays, Results
from vits.simulation import simulate, simulate_grid


@dataclasses.dataclass(frozen=True)
class Grid:
    """Values to try, and what goes with all of them."""

    values: Mapping[str, tuple[float, ...]]
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def points(self) -> list[dict[str, Any]]:
        """Every combination of the values."""
        combinations = itertools.product(*self.values.values())
        return [{**dict(zip(self.values, point, strict=True)), **self.fixed} for point in combinations]


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


@dataclasses.dataclass(frozen=True)
class Tuning(Experiment):
    """Tries every setting of every contender in every world of an experiment, and reports the best on fresh seeds."""

    experiment: BanditExperiment
    tuning_seeds: int

    def cells(self) -> list[Cell]:
        """One cell per world and contender: the tuning and the report."""
        checks.count("tuning_seeds", self.tuning_seeds)
        return [self._cell(world, who) for world in self.experiment.worlds for who in self.experiment.contenders]

    def _cell(self, world: World, contender: Contender) -> Cell:
        experiment = self.experiment
        environment = getattr(environments, world.environment)(**world.arguments)
        grids = GRIDS[contender.algorithm]
        tried = sum(len(grid.points()) for grid in grids) * self.tuning_seeds

        def compute(progress: Progress) -> Arrays:
            return self._tune(environment, contender, progress)

        return Cell(
            environment=world.label,
            algorithm=contender.label,
            chunk="all",
            hyperparameters=contender.hyperparameters,
            cost=(tried + experiment.seeds) * experiment.horizon,
            settings=[
                dataclasses.asdict(world),
                dataclasses.asdict(contender),
                dataclasses.asdict(contender.model or experiment.model),
                [dataclasses.asdict(grid) for grid in grids],
                experiment.horizon,
                experiment.seeds,
                experiment.seed,
                self.tuning_seeds,
            ],
            compute=compute,
        )

    def _tune(self, environment: Environment, contender: Contender, progress: Progress) -> Arrays:
        experiment = self.experiment
        spec = contender.model or experiment.model
        model = getattr(models, spec.name)(**spec.arguments)
        # Seeds from `seeds` on tune, seeds below it report: never the same.
        seeds = range(experiment.seeds, experiment.seeds + self.tuning_seeds)
        tried: list[dict[str, Any]] = []
        regret, seconds = [], 0.0
        for grid in GRIDS[contender.algorithm]:
            points = grid.points()
            fixed = {**contender.hyperparameters, **grid.fixed}
            columns = {name: jnp.array([point[name] for point in points]) for name in grid.values}
            policies = eqx.filter_vmap(
                lambda values, fixed=fixed: algorithms.make(contender.algorithm, model, **{**fixed, **values})
            )(columns)
            played = simulate_grid(
                experiment.seed, environment, policies, experiment.horizon, seeds=seeds, progress=progress
            )
            regret.append(np.where(played.failed, np.nan, played.cumulative_regret[..., -1]))
            seconds += played.seconds
            tried += [{**contender.hyperparameters, **point} for point in points]
        everywhere = np.concatenate(regret)
        # A setting with a failed seed is out of the race, whatever its other seeds say.
        means = np.mean(everywhere, axis=1)
        best = int(np.argmin(np.where(np.isnan(means), np.inf, means)))
        policy = algorithms.make(contender.algorithm, model, **tried[best])
        report = simulate(
            experiment.seed, environment, policy, experiment.horizon, seeds=experiment.seeds, progress=progress
        )
        return {
            **results.trace_arrays(report),
            "tried": np.array([json.dumps(point) for point in tried]),
            "tuning_regret": everywhere,
            "tuning_seconds": np.array([seconds]),
            "best": np.array([best]),
        }

    def row(
        self, environment: str, algorithm: str, hyperparameters: Mapping[str, Any], arrays: Arrays
    ) -> dict[str, Any]:
        """The best setting, its regret on fresh seeds, and how the others fared."""
        best = int(arrays["best"][0])
        chosen = json.loads(str(arrays["tried"][best]))
        failed = np.any(np.isnan(arrays["tuning_regret"]), axis=1)
        return {
            **results.regret_row(environment, algorithm, chosen, arrays),
            "settings_tried": failed.size,
            "settings_with_failed_seeds": int(np.sum(failed)),
            "tuning_seconds": float(arrays["tuning_seconds"][0]),
        }

    def only(self, names: list[str]) -> "Tuning":
        """The contenders with these names."""
        return tuning(self.experiment.only(names), tuning_seeds=self.tuning_seeds)

    def claims(self, found: Results) -> list[Claim]:
        """Tuning makes no claim; a run with the settings it found does."""
        return []


def tuning(experiment: Experiment, *, tuning_seeds: int = 10) -> Tuning:
    """The tuning of a regret experiment.

    Args:
        experiment: what to tune; its seeds are kept for the report.
        tuning_seeds: fresh seeds on which settings are compared.

    Returns:
        An experiment that can be run, stored and resumed like any other.
    """
    if not isinstance(experiment, BanditExperiment):
        raise ValueError(f"'{experiment.name}' has no grids to tune over; linear, quadratic and the fixed arms have")
    worlds = tuple(world for world in experiment.worlds if not world.hyperparameters)
    contenders = tuple(contender for contender in experiment.contenders if contender.algorithm in GRIDS)
    if not contenders:
        names = ", ".join(contender.label for contender in experiment.contenders)
        raise ValueError(f"there is nothing to tune in {names}; grids exist for {', '.join(GRIDS)}")
    return Tuning(
        name=f"{experiment.name}-tuning",
        title=f"{experiment.title}, best of the grids",
        experiment=dataclasses.replace(experiment, worlds=worlds, contenders=contenders),
        tuning_seeds=tuning_seeds,
    )
