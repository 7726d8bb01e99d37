"""The posterior of an agent: moments, draws, and intervals for expected rewards."""

import functools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from vits import validate
from vits.agent import arms as arms_
from vits.agent import processes
from vits.agent.compiled import LAPACK, WIDE
from vits.agent.snapshot import Snapshot
from vits.inference.base import Moments, Posterior
from vits.inference.per_arm import PerArm
from vits.models import RewardModel
from vits.policies import PosteriorPolicy
from vits.types import State, Vector


class Interval(NamedTuple):
    """Expected rewards of arms: the posterior mean and a central credible interval."""

    arms: Sequence[Hashable]
    mean: Float[np.ndarray, " arms"]
    lower: Float[np.ndarray, " arms"]
    upper: Float[np.ndarray, " arms"]


@dataclass(frozen=True, eq=False)
class Belief:
    """A posterior over the parameters of the reward model.

    `mean`, `variances` and `covariance` are exact if the posterior is Gaussian or an ensemble. Otherwise they are
    estimated from `draws`: independent ones, or those of a Markov chain that starts at the agent's current parameters.
    Covariance and draws are computed when they are asked for; a network of a million parameters has its mean and its
    variances, while its covariance does not fit into memory and is refused.
    """

    mean: Float[np.ndarray, " params"]
    variances: Float[np.ndarray, " params"]
    exact: bool
    _drawn: Callable[[], Float[np.ndarray, "samples params"]] = field(repr=False)
    _moments: Callable[[], Moments | None] = field(repr=False)
    _model: RewardModel = field(repr=False)
    _offer: Callable[[Any], tuple[Sequence[Hashable], Any]] = field(repr=False)

    @functools.cached_property
    def covariance(self) -> Float[np.ndarray, "params params"]:
        """The covariance of all pairs of parameters."""
        size = self.mean.size
        validate.memory(
            f"the covariance of {size:,} parameters",
            3.0 * self.mean.itemsize * size**2,
            "use variances, or interval(arms) for what they mean for rewards",
        )
        if not self.exact:
            return np.cov(self.draws.T).reshape(size, size)
        with LAPACK:
            moments = self._moments()
        assert moments is not None
        sqrt_cov = np.asarray(moments.sqrt_cov)
        return sqrt_cov @ sqrt_cov.T

    @property
    def draws(self) -> Float[np.ndarray, "samples params"]:
        """Draws of the parameters."""
        return self._drawn()

    def interval(self, arms: Any, level: float = 0.9) -> Interval:
        """The expected reward of arms, from the draws.

        Args:
            arms: what `decide` takes; for the posterior of one arm, a context.
            level: the probability of the interval.

        Returns:
            Mean, lower and upper end for each arm.
        """
        processes.check()
        validate.number("level", level)
        validate.positive("level", level, below=1.0)
        names, features = self._offer(arms)
        rewards = np.asarray(_means(self._model, jnp.asarray(self.draws), jnp.asarray(features)))
        lower, upper = np.quantile(rewards, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0)
        return Interval(names, rewards.mean(axis=0), lower, upper)


def belief(snapshot: Snapshot, arm: Hashable, samples: int) -> Belief:
    """The posterior of a snapshot, or of one of its arms if each has its own."""
    settings, policy, state = snapshot.settings, snapshot.policy, snapshot.state
    if not isinstance(policy, PosteriorPolicy):
        raise ValueError(f"{settings.algorithm} has no posterior")
    posterior = policy.posterior
    if isinstance(posterior, PerArm):
        arms_.check_known(snapshot.arms, arm)
        state, posterior = posterior.of(state, snapshot.arms[arm].slot), posterior.posterior
    elif arm is not None:
        arms_.check_known(snapshot.arms, arm)
    validate.count("samples", samples, least=2)

    def offer(what: Any) -> tuple[Sequence[Hashable], Float[np.ndarray, "arms dim"]]:
        offered = snapshot.offer(what, [arm] if settings.per_arm else None)
        return offered.names, offered.features

    size = settings.model.num_params

    @functools.cache
    def drawn() -> Float[np.ndarray, "samples params"]:
        needed = 2.0 * settings.dtype.itemsize * samples * size
        validate.memory(f"{samples:,} draws of {size:,} parameters", needed, "ask for fewer, posterior(samples=...)")
        with LAPACK:
            return np.asarray(_draws(posterior, state, settings.start_key(0), samples, one_by_one=size > WIDE))

    with LAPACK:
        marginals = posterior.marginals(state)
    if marginals is None:
        mean, variances = drawn().mean(axis=0), drawn().var(axis=0, ddof=1)
    else:
        mean, variances = (np.asarray(part) for part in marginals)
    moments = functools.partial(posterior.moments, state)
    return Belief(mean, variances, marginals is not None, drawn, moments, settings.model, offer)


@eqx.filter_jit
def _draws(
    posterior: Posterior, state: State, key: Key[Array, ""], samples: int, *, one_by_one: bool
) -> Float[Array, "samples params"]:
    keys = jax.random.split(key, samples)
    if not posterior.is_chain:
        sample = functools.partial(posterior.sample, state=state)
        return jax.lax.map(sample, keys) if one_by_one else jax.vmap(sample)(keys)

    def advance(state: State, key: Key[Array, ""]) -> tuple[State, Vector]:
        moved, _ = posterior.advance(key, state)
        return moved, posterior.sample(key, moved)

    return jax.lax.scan(advance, state, keys)[1]


@eqx.filter_jit
def _means(
    model: RewardModel, thetas: Float[Array, "samples params"], features: Float[Array, "arms dim"]
) -> Float[Array, "samples arms"]:
    return jax.vmap(lambda theta: jax.vmap(model.mean, (None, 0))(theta, features))(thetas)
