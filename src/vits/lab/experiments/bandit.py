"""Regret experiments: every contender plays in every world, with the same seeds."""

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import equinox as eqx
import jax
import numpy as np
from typing_extensions import override

from vits import algorithms, catalogue, environments, models, validate
from vits.environments.base import Environment
from vits.files import Arrays
from vits.lab import results
from vits.lab.experiments import tuned
from vits.lab.experiments.base import Advance, Cell, Experiment, chunked
from vits.lab.results import BEST, WRITTEN, Key, Row
from vits.policies import Policy
from vits.simulation import Trace, simulate, simulate_each
from vits.types import REASONS, Reason

TUNING = range(10_000, 20_000)
"""Seeds that only tuning plays. A report with more than 10,000 seeds goes on after them."""


@dataclasses.dataclass(frozen=True)
class World:
    """An environment and the arguments it is made with."""

    label: str
    environment: str
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    hyperparameters: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    """Hyperparameters by contender label; in this world they override the contender's own."""


@dataclasses.dataclass(frozen=True)
class Model:
    """A reward model and the arguments it is made with."""

    name: str
    arguments: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Contender:
    """An algorithm, its hyperparameters, and its model if it differs from the experiment's."""

    label: str
    algorithm: str
    hyperparameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    model: Model | None = None

    def within(self, world: World) -> "Contender":
        """The same contender with the hyperparameters that it has in a world."""
        return dataclasses.replace(
            self, hyperparameters={**self.hyperparameters, **world.hyperparameters.get(self.label, {})}
        )


class Stage(NamedTuple):
    """A world that has been built: its environment, and a function that builds policies for it."""

    environment: Environment
    policy: Callable[[Contender, models.RewardModel, Any], Policy]
    """Builds a contender's policy from its model and the input of its seed."""
    own: Callable[[Sequence[int]], Any] | None = None
    """The input of each of these seeds, such as a prior, along the first axis; None if all seeds share a policy."""
    example: Any = None
    """An example of the input of one seed."""


class Entrant(NamedTuple):
    """A contender in a world: one policy for all seeds, or a function that gives each seed its own."""

    environment: Environment
    policy: Policy
    each: Callable[[Sequence[int]], Policy] | None

    def play(self, seed: int, horizon: int, seeds: Sequence[int], progress: Advance) -> Trace:
        """Play these seeds."""
        if self.each is None:
            return simulate(seed, self.environment, self.policy, horizon, seeds=seeds, progress=progress)
        return simulate_each(seed, self.environment, self.each(seeds), horizon, seeds=seeds, progress=progress)


@dataclasses.dataclass(frozen=True)
class RegretExperiment(Experiment):
    """Worlds, contenders, a horizon and seeds; subclasses say how a world is built."""

    worlds: tuple[World, ...]
    contenders: tuple[Contender, ...]
    model: Model
    horizon: int
    seeds: int
    seed: int = 0
    chunk: int = 50
    """Seeds that are played, and stored, together."""
    reading: str = BEST
    """How the paper is read: one of `vits.lab.results.READINGS`."""

    decides: ClassVar[frozenset[str]] = frozenset()
    """Hyperparameters that the experiment sets, so that tuning leaves them out."""
    tries: ClassVar[Mapping[str, tuple[float, ...]]] = {}
    """Values that tuning tries in addition to those it tries everywhere."""

    @abc.abstractmethod
    def stage(self, world: World) -> Stage:
        """Build a world. Bad settings are refused here."""

    def notes(self, environment: Environment, seeds: list[int], trace: Trace) -> Arrays:
        """Arrays to store in addition to the trace."""
        return {}

    def content(self) -> list[Any]:
        """Whatever the numbers depend on that is not in the settings, such as a checksum of data."""
        return []

    @property
    def judged(self) -> tuple[str, ...]:
        """The worlds in which claims are scored: those with tuned settings, or all if there are none."""
        tuned = tuple(world.label for world in self.worlds if world.hyperparameters)
        return tuned or tuple(world.label for world in self.worlds)

    def tuning_worlds(self) -> tuple[World, ...]:
        """The worlds in which contenders can be tuned: those that set no hyperparameters.

        In the reading "as written" every world has settings from the paper's grids. They are dropped here.
        """
        if self.reading == WRITTEN:
            return tuple(dataclasses.replace(world, hyperparameters={}) for world in self.worlds)
        return tuple(world for world in self.worlds if not world.hyperparameters)

    @property
    @override
    def labels(self) -> tuple[str, ...]:
        return tuple(contender.label for contender in self.contenders)

    def model_of(self, contender: Contender) -> models.RewardModel:
        """The contender's own model, or the experiment's."""
        spec = contender.model or self.model
        return cast(models.RewardModel, getattr(models, spec.name)(**spec.arguments))

    def entrant(self, stage: Stage, contender: Contender) -> Entrant:
        """The contender's policy in a world. Bad hyperparameters are refused here."""
        model, own = self.model_of(contender), stage.own
        policy = stage.policy(contender, model, stage.example)
        if own is None or not jax.tree.leaves(policy):  # a policy without numbers is the same for every seed
            return Entrant(stage.environment, policy, None)
        build = eqx.filter_vmap(lambda added: stage.policy(contender, model, added))
        return Entrant(stage.environment, policy, lambda seeds: build(own(seeds)))

    @override
    def cells(self) -> list[Cell]:
        return self.more_cells({})

    @override
    def more_cells(self, seeds: Mapping[Key, int]) -> list[Cell]:
        validate.count("horizon", self.horizon)
        validate.count("seeds", self.seeds)
        counts = [seeds.get((world.label, name), self.seeds) for world in self.worlds for name in self.labels]
        validate.run_size(-(-sum(counts) // max(len(counts), 1)), self.horizon, len(counts))
        content = self.content()
        return [
            cell
            for world in self.worlds
            for stage in [self.stage(world)]
            for contender in self.contenders
            for count in [seeds.get((world.label, contender.label), self.seeds)]
            for cell in self._chunks(world, stage, contender.within(world), content, count)
        ]

    def cell_settings(self, world: World, contender: Contender, content: list[Any]) -> list[Any]:
        """What the numbers of a contender's cells in a world depend on, apart from their seeds."""
        return [
            {**dataclasses.asdict(world), "hyperparameters": None},
            dataclasses.asdict(contender),
            dataclasses.asdict(contender.model or self.model),
            self.horizon,
            self.seed,
            *content,
        ]

    def _chunks(self, world: World, stage: Stage, contender: Contender, content: list[Any], count: int) -> list[Cell]:
        """The cells of a contender in a world: one per chunk of seeds."""
        entrant = self.entrant(stage, contender)
        settings = self.cell_settings(world, contender, content)
        numbers = [i if i < TUNING.start else i + len(TUNING) for i in range(count)]
        return [
            Cell(
                environment=world.label,
                algorithm=contender.label,
                chunk=f"{seeds[0]}-{seeds[-1]}",
                hyperparameters=contender.hyperparameters,
                cost=len(seeds) * self.horizon,
                settings=settings,
                compute=functools.partial(self.compute, entrant, seeds),
            )
            for seeds in chunked(numbers, self.chunk)
        ]

    def compute(self, entrant: Entrant, seeds: list[int], progress: Advance) -> Arrays:
        """The arrays of a cell: these seeds of a contender."""
        trace = entrant.play(self.seed, self.horizon, seeds, progress)
        return {**trace_arrays(trace), **self.notes(entrant.environment, seeds, trace)}

    @override
    def row(self, cell: Cell, arrays: Arrays) -> Row:
        return regret_row(cell.environment, cell.algorithm, cell.hyperparameters, arrays)

    @override
    def only(self, names: list[str]) -> "RegretExperiment":
        """The same experiment with these contenders; an algorithm that is not among them joins at its defaults."""
        known = {name: Contender(name, name) for name in catalogue.ALGORITHMS}
        known |= {contender.label: contender for contender in self.contenders}
        chosen = tuple(validate.choice("algorithm", name, known) for name in dict.fromkeys(names))
        return dataclasses.replace(self, contenders=chosen)


def trace_arrays(trace: Trace) -> Arrays:
    """The arrays of a trace that are stored: the curves in full, the diagnostics as counts per seed."""
    info = trace.info
    reasons = np.stack([np.bincount(codes, minlength=len(Reason)) for codes in np.asarray(info.reason)])
    return {
        "regret": trace.regret,
        "action": np.asarray(trace.action, np.int32),
        "reward": trace.reward,
        "failed": trace.failed,
        "rejected": np.sum(reasons[:, Reason.FINE + 1 :], axis=1),
        "reasons": reasons,
        "step_capped": np.sum(info.step_capped, axis=1),
        "unstable": np.sum(np.asarray(info.stiffness) >= 1.0, axis=1),
        "refreshed": np.sum(info.refreshed, axis=1),
        "inverse_error": np.max(info.inverse_error, axis=1),
        "seconds": np.array([trace.seconds]),
    }


def regret_row(
    environment: str, algorithm: str, hyperparameters: Mapping[str, Any], arrays: Arrays, **columns: Any
) -> Row:
    """A row about regret. Failed seeds are counted and left out of the averages, which are null if all failed."""
    seeds, horizon = arrays["regret"].shape
    final = results.cumulative(arrays)[:, -1]
    seconds = float(np.sum(arrays["seconds"]))
    return results.row(
        environment,
        algorithm,
        hyperparameters,
        horizon=horizon,
        seeds=seeds,
        seconds=seconds,
        failed_seeds=int(np.sum(arrays["failed"])),
        regret_mean=float(np.mean(final)) if len(final) else None,
        regret_stderr=float(np.std(final, ddof=1) / np.sqrt(len(final))) if len(final) > 1 else None,
        regret_median=float(np.median(final)) if len(final) else None,
        rounds_per_second=seeds * horizon / seconds,
        rejected_updates=int(np.sum(arrays["rejected"])),
        rejections=_by_reason(arrays),
        capped_rounds=int(np.sum(arrays["step_capped"])),
        unstable_rounds=int(np.sum(arrays["unstable"])),
        refreshed_inverses=int(np.sum(arrays["refreshed"])),
        **columns,
    )


def _by_reason(arrays: Arrays) -> dict[str, int]:
    """Rejected updates by reason; empty for arrays from before reasons were stored."""
    counts = np.sum(arrays["reasons"], axis=0) if "reasons" in arrays else []
    return {REASONS[code]: int(count) for code, count in enumerate(counts) if code != Reason.FINE and count > 0}


@dataclasses.dataclass(frozen=True)
class BanditExperiment(RegretExperiment):
    """Worlds are environments of the library; every contender has one policy for all seeds."""

    @override
    def stage(self, world: World) -> Stage:
        environment = getattr(environments, world.environment)(**world.arguments)
        return Stage(environment, named_policy)


def named_policy(contender: Contender, model: models.RewardModel, own: None = None) -> Policy:
    """The algorithm that a contender names, with its hyperparameters."""
    return algorithms.make(contender.algorithm, model, **contender.hyperparameters)


Regret = TypeVar("Regret", bound=RegretExperiment)


def as_written(experiment: Regret) -> Regret:
    """The experiment in the reading "as written": the paper's worlds, with settings from the paper's grids."""
    worlds = tuple(
        dataclasses.replace(world, hyperparameters=tuned.settings(experiment.name, world.label, WRITTEN))
        for world in experiment.tuning_worlds()
    )
    return dataclasses.replace(experiment, reading=WRITTEN, worlds=worlds)
