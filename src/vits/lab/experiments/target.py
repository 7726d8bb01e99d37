"""What the experiments with a Gaussian target share: contenders that walk towards it until they are close."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from vits import validate
from vits.lab import results
from vits.lab.experiments.base import Cell, Experiment, Progress
from vits.lab.experiments.gaussian_target import Approximation, Contender
from vits.lab.experiments.walk import Course, course
from vits.lab.results import Arrays

Kind = TypeVar("Kind", bound="TargetExperiment")

COMMON = (
    Contender("natural", "vits_ng", {"step_size": 0.5}, max_seeds=1),
    Contender("lmc_averaged", "lmc_ts", reading="averaged", look_every=50),
    Contender("lmc_law", "lmc_ts", reading="law", max_seeds=10),
)
"""Natural gradients, and a chain in both of its readings."""


def in_law(contenders: tuple[Contender, ...], max_seeds: int) -> tuple[Contender, ...]:
    """The same contenders, with so many seeds at most where a thousand chains are a seed."""
    return tuple(
        dataclasses.replace(contender, max_seeds=max_seeds) if contender.reading == "law" else contender
        for contender in contenders
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetExperiment(Experiment):
    """Contenders, an accuracy, a cap on steps and seeds."""

    everybody: ClassVar[tuple[Contender, ...]]
    """Who can be asked for by name, in the preset or not."""

    contenders: tuple[Contender, ...]
    epsilon: float
    horizon: int
    """The cap on steps."""
    seeds: int
    seed: int = 0

    def check(self) -> None:
        """Refuse bad settings."""
        validate.count("horizon", self.horizon)
        validate.count("seeds", self.seeds)
        validate.positive("epsilon", self.epsilon)

    def walk(self, contender: Contender, approximation: Approximation) -> Course:
        """The contender's way to the target."""
        return course(
            contender, approximation, seed=self.seed, seeds=self.seeds, epsilon=self.epsilon, cap=self.horizon
        )

    def cell(
        self,
        environment: str,
        contender: Contender,
        compute: Callable[[Progress], Arrays],
        *,
        step_size: float,
        **settings: Any,
    ) -> Cell:
        """A contender in a setting; `settings` is what decides the numbers beside what all settings share."""
        shared = {"epsilon": self.epsilon, "horizon": self.horizon, "seeds": self.seeds, "seed": self.seed}
        return Cell(
            environment=environment,
            algorithm=contender.label,
            chunk="all",
            hyperparameters={"h": step_size, **contender.hyperparameters},
            cost=1,
            settings={"contender": dataclasses.asdict(contender), "step_size": step_size, **shared, **settings},
            compute=compute,
        )

    def line(
        self, environment: str, algorithm: str, hyperparameters: Mapping[str, Any], arrays: Arrays, **columns: Any
    ) -> dict[str, Any]:
        """A line of the summary: there is no regret, `columns` says what there is."""
        return results.row(
            environment,
            algorithm,
            hyperparameters,
            horizon=self.horizon,
            seeds=len(arrays["steps"]),
            seconds=float(np.sum(arrays["seconds"])),
            **columns,
        )

    def only(self: Kind, names: list[str]) -> Kind:
        """The same experiment with these contenders, of this preset or another."""
        known = {contender.label: contender for contender in (*self.everybody, *self.contenders)}
        for name in names:
            if name not in known:
                raise validate.unknown("algorithm", name, known)
        return dataclasses.replace(self, contenders=tuple(known[name] for name in dict.fromkeys(names)))


def finite(value: float) -> float | None:
    """JSON has no infinity."""
    return float(value) if np.isfinite(value) else None
