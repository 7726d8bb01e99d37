"""What an agent believes: moments of its posterior, and what arms are expected to pay."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from vits import validate
from vits.agent.programs import LAPACK
from vits.inference.base import Posterior
from vits.inference.per_arm import Walker
from vits.models import RewardModel
from vits.types import State


class Interval(NamedTuple):
    """What arms are expected to pay: the posterior mean, and a central interval of the given level."""

    arms: Sequence[Hashable]
    mean: Float[np.ndarray, " arms"]
    lower: Float[np.ndarray, " arms"]
    upper: Float[np.ndarray, " arms"]


@dataclass(frozen=True, eq=False)
class Belief:
    """A posterior over the parameters of the reward model.

    `mean` and `covariance` are exact where the posterior is Gaussian or an ensemble; otherwise they come from `draws`,
    which are those of a chain that walks on from where the agent's stands, or independent ones.
    """

    mean: Float[np.ndarray, " params"]
    covariance: Float[np.ndarray, "params params"]
    draws: Float[np.ndarray, "samples params"]
    exact: bool
    _model: RewardModel = field(repr=False)
    _offer: Callable[[Any], tuple[Sequence[Hashable], Any]] = field(repr=False)

    def interval(self, arms: Any, level: float = 0.9) -> Interval:
        """The expected reward of arms, from the draws.

        Args:
            arms: what `decide` takes; for the posterior of one arm, a context.
            level: the probability of the interval.

        Returns:
            Means, lower and upper ends, arm by arm.
        """
        validate.positive("level", level, below=1.0)
        names, features = self._offer(arms)
        rewards = np.asarray(_means(self._model, jnp.asarray(self.draws), jnp.asarray(features)))
        lower, upper = np.quantile(rewards, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
        return Interval(names, rewards.mean(axis=0), lower, upper)


def believe(
    posterior: Posterior,
    state: State,
    key: Key[Array, ""],
    samples: int,
    model: RewardModel,
    offer: Callable[[Any], tuple[Sequence[Hashable], Any]],
) -> Belief:
    """The belief that a posterior's state stands for."""
    validate.count("samples", samples, least=2)
    with LAPACK:
        draws = np.asarray(_draws(posterior, state, key, samples))
        moments = getattr(posterior, "moments", None)
        if moments is None:
            return Belief(draws.mean(axis=0), np.cov(draws.T).reshape(2 * draws.shape[1:]), draws, False, model, offer)
        mean, sqrt_cov = (np.asarray(part) for part in moments(state))
    return Belief(mean, sqrt_cov @ sqrt_cov.T, draws, True, model, offer)


@eqx.filter_jit
def _draws(posterior: Posterior, state: State, key: Key[Array, ""], samples: int) -> Float[Array, "samples params"]:
    keys = jax.random.split(key, samples)
    if not isinstance(posterior, Walker):
        return jax.vmap(posterior.sample, (0, None))(keys, state)

    def walk(state: State, key: Key[Array, ""]) -> tuple[State, Float[Array, " params"]]:
        moved, _ = posterior.advance(key, state)
        return moved, posterior.sample(key, moved)

    return jax.lax.scan(walk, state, keys)[1]


@eqx.filter_jit
def _means(
    model: RewardModel, thetas: Float[Array, "samples params"], features: Float[Array, "arms dim"]
) -> Float[Array, "samples arms"]:
    return jax.vmap(lambda theta: jax.vmap(model.mean, (None, 0))(theta, features))(thetas)
