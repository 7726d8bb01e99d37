"""Regret experiments: every contender plays in every world, with the same seeds."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vits import algorithms, checks, environments, models, registry, results
from vits.compare import Claim, Difference, all_of, claim, is_alike, is_less, paired
from vits.environments.base import Environment
from vits.experiments.base import Cell, Experiment, Progress
from vits.results import Arrays, Results
from vits.simulation import Trace, simulate


@dataclasses.dataclass(frozen=True)
class World:
    """An environment and the arguments it is made with."""

    label: str
    environment: str
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    hyperparameters: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    """What contenders, by label, use here in place of their own."""


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

    def within(self, world: World) -> "Contender":
        """With what it uses in a world."""
        return dataclasses.replace(
            self, hyperparameters={**self.hyperparameters, **world.hyperparameters.get(self.label, {})}
        )


Play = Callable[[list[int], Progress], Arrays]
"""Plays these seeds, and gives what is to be stored."""

Game = Callable[[Contender, models.RewardModel], Play]
"""How one contender plays, with its model, in one world."""


@dataclasses.dataclass(frozen=True)
class RegretExperiment(Experiment):
    """Worlds, contenders, a horizon and seeds; who plays what, and how, is left open."""

    worlds: tuple[World, ...]
    contenders: tuple[Contender, ...]
    model: Model
    horizon: int
    seeds: int
    seed: int = 0
    chunk: int = 50
    """Seeds that are played, and stored, together."""

    @abc.abstractmethod
    def game(self, world: World) -> Game:
        """How contenders play in a world. Bad settings are refused here."""

    def cells(self) -> list[Cell]:
        """One cell per world, contender and chunk of seeds."""
        checks.count("horizon", self.horizon)
        checks.count("seeds", self.seeds)
        cells = []
        for world in self.worlds:
            game = self.game(world)
            for contender in (contender.within(world) for contender in self.contenders):
                model = contender.model or self.model
                play = game(contender, getattr(models, model.name)(**model.arguments))
                for first in range(0, self.seeds, self.chunk):
                    seeds = list(range(first, min(first + self.chunk, self.seeds)))
                    cells.append(
                        Cell(
                            environment=world.label,
                            algorithm=contender.label,
                            chunk=f"{seeds[0]}-{seeds[-1]}",
                            hyperparameters=contender.hyperparameters,
                            cost=len(seeds) * self.horizon,
                            settings=[
                                {**dataclasses.asdict(world), "hyperparameters": None},
                                dataclasses.asdict(contender),
                                dataclasses.asdict(model),
                                self.horizon,
                                self.seed,
                            ],
                            compute=functools.partial(play, seeds),
                        )
                    )
        return cells

    def row(
        self, environment: str, algorithm: str, hyperparameters: Mapping[str, Any], arrays: Arrays
    ) -> dict[str, Any]:
        """Regret and its spread."""
        return results.regret_row(environment, algorithm, hyperparameters, arrays)

    def only(self, names: list[str]) -> "RegretExperiment":
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


@dataclasses.dataclass(frozen=True)
class BanditExperiment(RegretExperiment):
    """Every contender is one policy, whatever the seed."""

    def game(self, world: World) -> Game:
        """Plays the named environment with the named algorithm."""
        environment = getattr(environments, world.environment)(**world.arguments)

        def game(contender: Contender, model: models.RewardModel) -> Play:
            policy = algorithms.make(contender.algorithm, model, **contender.hyperparameters)

            def play(seeds: list[int], progress: Progress) -> Arrays:
                trace = simulate(self.seed, environment, policy, self.horizon, seeds=seeds, progress=progress)
                return {**results.trace_arrays(trace), **self.notes(environment, seeds, trace)}

            return play

        return game

    def notes(self, environment: Environment, seeds: list[int], trace: Trace) -> Arrays:
        """What is stored beside the trace."""
        return {}


def final(found: Results, environment: str, algorithm: str) -> Float[np.ndarray, " seeds"]:
    """Cumulative regret at the end, seed by seed; NaN for seeds that failed."""
    return results.final_regret(found.cells[environment, algorithm])


class Statement(NamedTuple):
    """Part of a claim about final regret: the first algorithm has less than the second (<), or about as much (~)."""

    world: str
    first: str
    sign: str
    second: str


_RULES: dict[str, Callable[[Difference], str]] = {"<": is_less, "~": is_alike}


def scored(id: str, found: Results, *statements: Statement, also: Callable[[], dict[str, str]] = dict) -> list[Claim]:
    """A claim of the paper, scored by paired differences; nothing if an algorithm or a world was not run.

    Args:
        id: the claim.
        found: the run.
        statements: what has to hold.
        also: gives further evidence and the verdict on each, once everything needed is known to be there.
    """
    if any((part.world, name) not in found.cells for part in statements for name in (part.first, part.second)):
        return []
    verdicts = {}
    for world, first, sign, second in statements:
        difference = paired(final(found, world, first), final(found, world, second))
        verdicts[f"{world}: {first} {sign} {second}, {difference}"] = _RULES[sign](difference)
    verdicts |= also()
    evidence = "; ".join(f"{text}: {verdict}" for text, verdict in verdicts.items())
    return [claim(id, all_of(*verdicts.values()), evidence)]
