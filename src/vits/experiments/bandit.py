"""Regret experiments: every contender plays in every world, with the same seeds."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from vits import algorithms, checks, environments, models, registry, results
from vits.compare import Claim
from vits.experiments.base import Cell, Experiment, Progress
from vits.results import Arrays, Results
from vits.simulation import simulate


@dataclasses.dataclass(frozen=True)
class World:
    """An environment and the arguments it is made with."""

    label: str
    environment: str
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Model:
    """A reward model and the arguments it is made with."""

    name: str
    arguments: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Contender:
    """An algorithm, its hyperparameters, and its model where it is not everybody's."""

    label: str
    algorithm: str
    hyperparameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    model: Model | None = None


@dataclasses.dataclass(frozen=True)
class BanditExperiment(Experiment):
    """Worlds, contenders, a horizon and seeds."""

    worlds: tuple[World, ...]
    contenders: tuple[Contender, ...]
    model: Model
    horizon: int
    seeds: int
    seed: int = 0
    chunk: int = 50
    """Seeds that are played, and stored, together."""

    def cells(self) -> list[Cell]:
        """One cell per world, contender and chunk of seeds."""
        checks.count("horizon", self.horizon)
        checks.count("seeds", self.seeds)
        cells = []
        for world in self.worlds:
            environment = getattr(environments, world.environment)(**world.arguments)
            for contender in self.contenders:
                model = contender.model or self.model
                policy = algorithms.make(
                    contender.algorithm, getattr(models, model.name)(**model.arguments), **contender.hyperparameters
                )
                for first in range(0, self.seeds, self.chunk):
                    seeds = list(range(first, min(first + self.chunk, self.seeds)))

                    def compute(
                        progress: Progress, environment: Any = environment, policy: Any = policy, seeds: Any = seeds
                    ) -> Arrays:
                        trace = simulate(self.seed, environment, policy, self.horizon, seeds=seeds, progress=progress)
                        return results.trace_arrays(trace)

                    cells.append(
                        Cell(
                            environment=world.label,
                            algorithm=contender.label,
                            chunk=f"{seeds[0]}-{seeds[-1]}",
                            hyperparameters=contender.hyperparameters,
                            cost=len(seeds) * self.horizon,
                            settings=[
                                dataclasses.asdict(world),
                                dataclasses.asdict(contender),
                                dataclasses.asdict(model),
                                self.horizon,
                                self.seed,
                            ],
                            compute=compute,
                        )
                    )
        return cells

    def row(
        self, environment: str, algorithm: str, hyperparameters: Mapping[str, Any], arrays: Arrays
    ) -> dict[str, Any]:
        """Regret and its spread."""
        return results.regret_row(environment, algorithm, hyperparameters, arrays)

    def only(self, names: list[str]) -> "BanditExperiment":
        """The same experiment with these contenders; an algorithm that is not among them joins at its defaults."""
        known = {contender.label: contender for contender in self.contenders}
        for name in names:
            if name not in known and name not in registry.ALGORITHMS:
                raise registry.unknown("algorithm", name, {*known, *registry.ALGORITHMS})
        chosen = tuple(known.get(name, Contender(name, name)) for name in dict.fromkeys(names))
        return dataclasses.replace(self, contenders=chosen)

    def claims(self, found: Results) -> list[Claim]:
        """Nothing is claimed of an experiment that the paper does not have."""
        return []


def final(found: Results, environment: str, algorithm: str) -> Float[np.ndarray, " seeds"]:
    """Cumulative regret at the end, seed by seed; NaN for seeds that failed."""
    return results.final_regret(found.cells[environment, algorithm])
