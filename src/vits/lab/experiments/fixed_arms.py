"""What the experiments with fixed arms share: how often each arm was played, from the best to the worst."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from vits.environments.base import Environment
from vits.lab.experiments.bandit import BanditExperiment
from vits.lab.results import Arrays
from vits.simulation import Trace, worlds


@dataclasses.dataclass(frozen=True)
class FixedArmsExperiment(BanditExperiment):
    """The arms of a seed are the same in every round."""

    def notes(self, environment: Environment, seeds: list[int], trace: Trace) -> Arrays:
        """`plays`: how often each seed played its best arm, its second best, and so on."""
        arms, theta = worlds(self.seed, environment, seeds=seeds)
        best_first = np.argsort(-np.asarray(jnp.einsum("sad,sd->sa", arms, theta)), axis=1)
        played = np.stack([np.bincount(actions, minlength=environment.num_arms) for actions in trace.action])
        return {"plays": np.take_along_axis(played, best_first, axis=1)}
