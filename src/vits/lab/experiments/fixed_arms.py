"""The paper's non-contextual bandits: ten fixed arms, the two best of them close, linear or logistic rewards."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from typing_extensions import override

from vits.environments.base import Environment
from vits.files import Arrays
from vits.lab.experiments import tuned
from vits.lab.experiments.bandit import BanditExperiment, Contender, Model, World, as_written
from vits.lab.experiments.statements import alike, less, scored
from vits.lab.results import WRITTEN, Claim, Results
from vits.simulation import Trace, worlds

_POSTERIOR = {"inverse_temperature": 1.0, "prior_precision": 1.0}
_LINEAR_MODEL = Model("linear", {"dim": 10})
_PAPERS_RIVALS = ("lin_ts", "lmc_ts", "vts")
_PAPERS = ["vits_i", "vits_ii", *_PAPERS_RIVALS, "uniform"]


@dataclasses.dataclass(frozen=True)
class FixedArmsExperiment(BanditExperiment):
    """The arms of a seed are the same in every round."""

    @override
    def notes(self, environment: Environment, seeds: list[int], trace: Trace) -> Arrays:
        """`plays`: how often each seed played its best arm, its second best, and so on."""
        arms, theta = worlds(self.seed, environment, seeds=seeds)
        best_first = np.argsort(-np.asarray(jnp.einsum("sad,sd->sa", arms, theta)), axis=1)
        played = np.stack([np.bincount(actions, minlength=environment.num_arms) for actions in trace.action])
        return {"plays": np.take_along_axis(played, best_first, axis=1)}


@dataclasses.dataclass(frozen=True)
class FixedLinear(FixedArmsExperiment):
    """Fixed arms with linear rewards."""

    @override
    def claims(self, found: Results) -> list[Claim]:
        statements = [
            statement(world, name, rival)
            for world in self.judged[-1:]
            for name in ("vits_i", "vits_ii")
            for statement, rival in ((alike, "lin_ts"), (less, "lmc_ts"), (less, "vts"))
        ]
        return scored("fixed-linear", found, *statements)


@dataclasses.dataclass(frozen=True)
class FixedLogistic(FixedArmsExperiment):
    """Fixed arms with logistic rewards."""

    @override
    def claims(self, found: Results) -> list[Claim]:
        """VITS-II better than all others: those in the paper's figure, and at its best also Laplace and ensembles."""
        rivals = _PAPERS_RIVALS if self.reading == WRITTEN else (*_PAPERS_RIVALS, "laplace_ts", "ensemble_ts")
        statements = [less(world, "vits_ii", rival) for world in self.judged[-1:] for rival in rivals]
        return scored("fixed-logistic", found, *statements)


FIXED_LINEAR = FixedLinear(
    name="fixed-linear",
    title="Fixed arms, linear rewards",
    worlds=(
        World("fixed-linear", "fixed_linear"),
        World("fixed-linear, tuned", "fixed_linear", hyperparameters=tuned.settings("fixed-linear", "fixed-linear")),
    ),
    contenders=(
        *(
            Contender(name, name, _POSTERIOR)
            for name in ("vits_i", "vits_ii", "vits_ii_hf", "vits_ng", "lin_ts", "lmc_ts")
        ),
        # An ensemble with fewer members explores less than a posterior does.
        Contender("ensemble_ts", "ensemble_ts", {**_POSTERIOR, "num_members": 100}),
        Contender("vts", "vts", {"num_arms": 10}),
        Contender("lin_ucb", "lin_ucb"),
        Contender("uniform", "uniform"),
    ),
    model=_LINEAR_MODEL,
    horizon=1000,
    seeds=50,
)

FIXED_LOGISTIC = FixedLogistic(
    name="fixed-logistic",
    title="Fixed arms, logistic rewards",
    worlds=(
        World("fixed-logistic", "fixed_logistic"),
        World(
            "fixed-logistic, tuned",
            "fixed_logistic",
            hyperparameters=tuned.settings("fixed-logistic", "fixed-logistic"),
        ),
    ),
    contenders=(
        *(
            Contender(name, name, _POSTERIOR)
            for name in ("vits_i", "vits_ii", "vits_ii_hf", "vits_ng", "laplace_ts", "lmc_ts", "ensemble_ts")
        ),
        Contender("lin_ts", "lin_ts", _POSTERIOR, _LINEAR_MODEL),
        Contender("vts", "vts", {"num_arms": 10}, _LINEAR_MODEL),
        Contender("uniform", "uniform"),
    ),
    model=Model("logistic", {"dim": 10}),
    horizon=1000,
    seeds=50,
)

LINEAR = {
    "paper": FIXED_LINEAR,
    "written": as_written(FIXED_LINEAR.only(_PAPERS)),
    "quick": dataclasses.replace(FIXED_LINEAR, seeds=20),
}
LOGISTIC = {
    "paper": FIXED_LOGISTIC,
    "written": as_written(FIXED_LOGISTIC.only(_PAPERS)),
    "quick": dataclasses.replace(FIXED_LOGISTIC, seeds=20),
}
