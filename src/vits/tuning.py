"""Grids over hyperparameters: all settings of an algorithm are one batch of one compiled program.

The best setting of each algorithm in each world is chosen on one set of seeds and reported on another.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from vits import algorithms, checks, environments, models, registry, results
from vits.compare import Claim
from vits.experiments.bandit import BanditExperiment, Model
from vits.experiments.base import Cell, Experiment, Progress
from vits.results import Arrays, Results
from vits.simulation import simulate, simulate_grid

_POSTERIOR = {"inverse_temperature": (10.0, 100.0, 500.0, 1000.0), "prior_precision": (0.1, 1.0, 10.0)}
_STEPPED = {**_POSTERIOR, "step_size": (0.001, 0.01, 0.1)}
_PAPER_STEP = {"step_rule": "per_observation"}


@dataclasses.dataclass(frozen=True)
class Grid:
    """Values to try for an algorithm, and what stays fixed."""

    label: str
    algorithm: str
    values: Mapping[str, tuple[float, ...]]
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    model: Model | None = None

    def points(self) -> list[dict[str, Any]]:
        """Every combination of the values."""
        return [dict(zip(self.values, point, strict=True)) for point in itertools.product(*self.values.values())]


PAPER_GRIDS = (
    Grid("lin_ts", "lin_ts", _POSTERIOR),
    *(
        grid
        for name in ("vits_i", "vits_ii", "vits_ii_hf")
        for grid in (Grid(name, name, _POSTERIOR), Grid(f"{name}, paper step", name, _STEPPED, _PAPER_STEP))
    ),
    Grid("vits_ng", "vits_ng", _POSTERIOR),
    *(Grid(f"lmc_ts({k})", "lmc_ts", _POSTERIOR, {"num_steps": k}) for k in (10, 50)),
    *(Grid(f"lmc_ts({k}), paper step", "lmc_ts", _STEPPED, {"num_steps": k, **_PAPER_STEP}) for k in (10, 50)),
)
"""The paper's grids, with its step h / (eta t), and beside them the same grids with the safe step."""


@dataclasses.dataclass(frozen=True)
class Tuning(Experiment):
    """Tries every setting of every grid in every world of an experiment, and reports the best on fresh seeds."""

    experiment: BanditExperiment
    grids: tuple[Grid, ...]
    tuning_seeds: int

    def cells(self) -> list[Cell]:
        """One cell per world and grid: the tuning and the report."""
        checks.count("tuning_seeds", self.tuning_seeds)
        cells = []
        for world in self.experiment.worlds:
            environment = getattr(environments, world.environment)(**world.arguments)
            for grid in self.grids:

                def compute(progress: Progress, environment: Any = environment, grid: Grid = grid) -> Arrays:
                    return self._tune(environment, grid, progress)

                tried = len(grid.points()) * self.tuning_seeds
                cells.append(
                    Cell(
                        environment=world.label,
                        algorithm=grid.label,
                        chunk="all",
                        hyperparameters=grid.fixed,
                        cost=(tried + self.experiment.seeds) * self.experiment.horizon,
                        settings=[dataclasses.asdict(world), dataclasses.asdict(grid), self.settings()],
                        compute=compute,
                    )
                )
        return cells

    def _tune(self, environment: Any, grid: Grid, progress: Progress) -> Arrays:
        experiment = self.experiment
        spec = grid.model or experiment.model
        model = getattr(models, spec.name)(**spec.arguments)
        points = grid.points()
        columns = {name: jnp.array([point[name] for point in points]) for name in grid.values}
        policies = eqx.filter_vmap(lambda values: algorithms.make(grid.algorithm, model, **values, **grid.fixed))(
            columns
        )
        # Seeds from `seeds` on tune, seeds below it report: never the same.
        tuning = range(experiment.seeds, experiment.seeds + self.tuning_seeds)
        tried = simulate_grid(
            experiment.seed, environment, policies, experiment.horizon, seeds=tuning, progress=progress
        )
        regret = np.where(tried.failed, np.nan, tried.cumulative_regret[..., -1])
        clean = np.where(tried.failed.any(axis=1), np.inf, regret.mean(axis=1))
        best = int(np.argmin(clean))
        policy = algorithms.make(grid.algorithm, model, **points[best], **grid.fixed)
        report = simulate(
            experiment.seed, environment, policy, experiment.horizon, seeds=experiment.seeds, progress=progress
        )
        return {
            **results.trace_arrays(report),
            "tuning_regret": regret,
            "tuning_seconds": np.array([tried.seconds]),
            "best": np.array([best]),
            **{f"setting_{name}": np.asarray(column) for name, column in columns.items()},
        }

    def row(
        self, environment: str, algorithm: str, hyperparameters: Mapping[str, Any], arrays: Arrays
    ) -> dict[str, Any]:
        """The best setting, its regret on fresh seeds, and how the others fared."""
        best = int(arrays["best"][0])
        names = [name for name in arrays if name.startswith("setting_")]
        chosen = {name.removeprefix("setting_"): float(f"{arrays[name][best]:.6g}") for name in names}
        failed = np.any(np.isnan(arrays["tuning_regret"]), axis=1)
        return {
            **results.regret_row(environment, algorithm, {**chosen, **hyperparameters}, arrays),
            "settings_tried": failed.size,
            "settings_with_failed_seeds": int(np.sum(failed)),
            "tuning_seconds": float(arrays["tuning_seconds"][0]),
        }

    def only(self, names: list[str]) -> "Tuning":
        """The grids with these labels, or of these algorithms."""
        known = {grid.label for grid in self.grids} | {grid.algorithm for grid in self.grids}
        for name in names:
            if name not in known:
                raise registry.unknown("algorithm", name, known)
        chosen = tuple(grid for grid in self.grids if {grid.label, grid.algorithm} & set(names))
        return dataclasses.replace(self, grids=chosen)

    def claims(self, found: Results) -> list[Claim]:
        """Tuning makes no claim; a run with the settings it found does."""
        return []


def tuning(experiment: Experiment, *, tuning_seeds: int = 20) -> Tuning:
    """The tuning of a regret experiment, over the paper's grids.

    Args:
        experiment: what to tune; its seeds are kept for the report.
        tuning_seeds: fresh seeds on which settings are compared.

    Returns:
        An experiment that can be run, stored and resumed like any other.
    """
    if not isinstance(experiment, BanditExperiment):
        raise ValueError(f"'{experiment.name}' has no hyperparameters to tune; only regret experiments have")
    return Tuning(
        name=f"{experiment.name}-tuning",
        title=f"{experiment.title}, best of the grids",
        experiment=experiment,
        grids=PAPER_GRIDS,
        tuning_seeds=tuning_seeds,
    )
