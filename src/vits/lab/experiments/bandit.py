"""Regret experiments: every contender plays in every world, with the same seeds."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from vits import algorithms, catalogue, environments, models, validate
from vits.environments.base import Environment
from vits.lab import results
from vits.lab.compare import Claim, Difference, all_of, claim, is_alike, is_faster, is_less, paired
from vits.lab.experiments.base import Cell, Experiment, Progress
from vits.lab.results import Arrays, Results
from vits.policies import Policy
from vits.simulation import Trace, simulate, simulate_each


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


class Stage(NamedTuple):
    """A world, made: the environment, and how policies for it come about."""

    environment: Environment
    policy: Callable[[Contender, models.RewardModel, Any], Policy]
    """A contender's policy, from its model and what its seed brings with it."""
    own: Callable[[Sequence[int]], Any] = lambda seeds: None
    """What each of these seeds brings with it, on a leading axis; None if nothing."""
    example: Any = None
    """What one seed might bring."""


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

    decides: ClassVar[frozenset[str]] = frozenset()
    """Hyperparameters that the experiment settles itself, so that there is nothing to tune."""
    tries: ClassVar[Mapping[str, tuple[float, ...]]] = {}
    """Values that tuning tries here beside those it tries everywhere."""

    @abc.abstractmethod
    def stage(self, world: World) -> Stage:
        """Make a world. Bad settings are refused here."""

    def notes(self, environment: Environment, seeds: list[int], trace: Trace) -> Arrays:
        """What is stored beside the trace."""
        return {}

    def content(self) -> list[Any]:
        """What decides the numbers and is not in the settings, such as a checksum of data."""
        return []

    def tuning_worlds(self) -> tuple[World, ...]:
        """The worlds in which contenders can be tuned: those where none has a setting of its own."""
        return tuple(world for world in self.worlds if not world.hyperparameters)

    def model_of(self, contender: Contender) -> models.RewardModel:
        """The contender's model, or everybody's."""
        spec = contender.model or self.model
        return cast(models.RewardModel, getattr(models, spec.name)(**spec.arguments))

    def play(self, stage: Stage, contender: Contender, seeds: Sequence[int], progress: Progress) -> Trace:
        """Play these seeds: all with one policy, or each with its own."""
        model, own = self.model_of(contender), stage.own(seeds)
        if own is None:
            policy = stage.policy(contender, model, None)
        else:
            policy = eqx.filter_vmap(lambda own: stage.policy(contender, model, own))(own)
        # What has no numbers is the same for every seed.
        run = simulate if own is None or not jax.tree.leaves(policy) else simulate_each
        return run(self.seed, stage.environment, policy, self.horizon, seeds=seeds, progress=progress)

    def cells(self) -> list[Cell]:
        """One cell per world, contender and chunk of seeds."""
        validate.count("horizon", self.horizon)
        validate.count("seeds", self.seeds)
        cells = []
        for world in self.worlds:
            stage = self.stage(world)
            for contender in (contender.within(world) for contender in self.contenders):
                stage.policy(contender, self.model_of(contender), stage.example)  # refuses bad settings now
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
                                dataclasses.asdict(contender.model or self.model),
                                self.horizon,
                                self.seed,
                                *self.content(),
                            ],
                            compute=functools.partial(self._compute, stage, contender, seeds),
                        )
                    )
        return cells

    def _compute(self, stage: Stage, contender: Contender, seeds: list[int], progress: Progress) -> Arrays:
        trace = self.play(stage, contender, seeds, progress)
        return {**results.trace_arrays(trace), **self.notes(stage.environment, seeds, trace)}

    def row(
        self, environment: str, algorithm: str, hyperparameters: Mapping[str, Any], arrays: Arrays
    ) -> dict[str, Any]:
        """Regret and its spread."""
        return results.regret_row(environment, algorithm, hyperparameters, arrays)

    def only(self, names: list[str]) -> "RegretExperiment":
        """The same experiment with these contenders; an algorithm that is not among them joins at its defaults."""
        known = {contender.label: contender for contender in self.contenders}
        for name in names:
            if name not in known and name not in catalogue.ALGORITHMS:
                raise validate.unknown("algorithm", name, {*known, *catalogue.ALGORITHMS})
        chosen = tuple(known.get(name, Contender(name, name)) for name in dict.fromkeys(names))
        return dataclasses.replace(self, contenders=chosen)

    def claims(self, found: Results) -> list[Claim]:
        """Nothing is claimed of an experiment that the paper does not have."""
        return []


@dataclasses.dataclass(frozen=True)
class BanditExperiment(RegretExperiment):
    """Every contender is one policy, whatever the seed."""

    def stage(self, world: World) -> Stage:
        """The named environment, and the named algorithms."""
        environment = getattr(environments, world.environment)(**world.arguments)
        return Stage(environment, named_policy)


def named_policy(contender: Contender, model: models.RewardModel, own: None = None) -> Policy:
    """The algorithm that a contender names, with its hyperparameters."""
    return algorithms.make(contender.algorithm, model, **contender.hyperparameters)


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


def cheaper(found: Results, worlds: Sequence[str], firsts: Sequence[str], second: str) -> dict[str, str]:
    """Whether each of the firsts plays more rounds a second than the other, world by world: evidence and verdicts."""
    speed = {(row["environment"], row["algorithm"]): row["rounds_per_second"] for row in found.summary["rows"]}
    return {
        f"{world}: {first} {speed[world, first]:,.0f} rounds/s, {second} {speed[world, second]:,.0f}": is_faster(
            speed[world, first], speed[world, second]
        )
        for world in worlds
        for first in firsts
    }
