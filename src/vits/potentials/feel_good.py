"""The feel-good potential: a posterior that leans towards parameters under which the past looked rewarding.

    U_fg(theta) = U(theta) - w sum_s min(b, max_a f(theta; x_s, a))

f is the expected reward. The maximum runs over all arms that were on offer in round s, so all of them are kept.

Reference: Zhang, "Feel-good Thompson sampling for contextual bandits and reinforcement learning", SIAM Journal on
Mathematics of Data Science, 2022.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from vits import checks
from vits.history import Buffer, History, Minibatch
from vits.models import RewardModel
from vits.potentials.base import Data, Expectations, Potential, Prior
from vits.types import Observation, Scalar


class Bonus(eqx.Module):
    """How good a round looks, given what its arms are expected to pay."""

    @abc.abstractmethod
    def __call__(self, means: Float[Array, " arms"]) -> Scalar:
        """The bonus; an arm that was not on offer has a mean of minus infinity."""

    @abc.abstractmethod
    def bend(self, means: Float[Array, " arms"]) -> Scalar:
        """An upper bound on minus the second derivative, along any direction in which no mean moves faster than 1."""


class Plain(Bonus):
    """min(b, max_a f_a): piecewise as smooth as f, with kinks where the best arm changes and at the cap."""

    cap: Scalar

    def __call__(self, means: Float[Array, " arms"]) -> Scalar:
        """The best arm's mean, or the cap."""
        return jnp.minimum(self.cap, jnp.max(means))

    def bend(self, means: Float[Array, " arms"]) -> Scalar:
        """0 almost everywhere."""
        return jnp.zeros((), means.dtype)


class Smoothed(Bonus):
    """z - tau softplus((z - b) / tau) with z = tau log sum_a exp(f_a / tau); tends to the plain form as tau -> 0.

    The first is the smooth minimum b - tau softplus((b - z) / tau), written so that a far-away cap costs no digits.
    """

    cap: Scalar
    temperature: Scalar

    def __call__(self, means: Float[Array, " arms"]) -> Scalar:
        """A smooth minimum of the cap and a smooth maximum of the means."""
        tau, best = self.temperature, self._best(means)
        return best - tau * jax.nn.softplus((best - self.cap) / tau)

    def bend(self, means: Float[Array, " arms"]) -> Scalar:
        """sigmoid'((b - z) / tau) / tau, at its largest between here and half-way to the cap.

        The bonus is subtracted: its log-sum-exp, which is convex, takes curvature away, and only the concave cap adds
        some.
        """
        tau = self.temperature
        u = 0.5 * (self.cap - self._best(means)) / tau
        return jax.nn.sigmoid(u) * jax.nn.sigmoid(-u) / tau

    def _best(self, means: Float[Array, " arms"]) -> Scalar:
        return self.temperature * jax.nn.logsumexp(means / self.temperature)


class FeelGoodData(NamedTuple):
    """What the base potential keeps, and the rounds: a row holds all arms' features and how many arms there were."""

    base: Data
    rounds: History | Minibatch


class FeelGood(Potential):
    """A base potential minus `weight` times the bonus of every round, by automatic differentiation."""

    base: Potential
    model: RewardModel
    bonus: Bonus
    weight: Scalar
    num_arms: int
    buffer: Buffer
    batch_size: int | None = None

    @property
    def inverse_temperature(self) -> Scalar:  # type: ignore[override]
        """The base potential's eta."""
        return self.base.inverse_temperature

    @property
    def prior(self) -> Prior:  # type: ignore[override]
        """The base potential's prior: without data there is no bonus."""
        return self.base.prior

    def start(self, key: Key[Array, ""]) -> Float[Array, " params"]:
        """Where the base potential starts."""
        return self.base.start(key)

    def init(self) -> FeelGoodData:
        """No rounds yet."""
        return FeelGoodData(self.base.init(), self.buffer.init(self.num_arms * self.model.dim))

    def observe(self, data: FeelGoodData, observation: Observation) -> FeelGoodData:
        """One observation more, and all arms of its round."""
        arms = observation.arms
        if arms is None:
            raise ValueError("fg_ts needs the features of all arms of a round, but observation.arms is None")
        offered = arms.shape[0]
        if offered > self.num_arms:
            raise ValueError(f"num_arms must be at least the {offered} arms of the round, but is {self.num_arms}")
        padded = jnp.pad(arms, ((0, self.num_arms - offered), (0, 0)))
        assert isinstance(data.rounds, History)
        row = Observation(padded.ravel(), jnp.asarray(offered, arms.dtype))
        return FeelGoodData(self.base.observe(data.base, observation), data.rounds.append(row))

    def minibatch(self, key: Key[Array, ""], data: FeelGoodData) -> FeelGoodData:
        """The base potential's sample, and one of as many rounds."""
        base_key, rounds_key = jax.random.split(key)
        base = self.base.minibatch(base_key, data.base)
        if self.batch_size is None:
            return FeelGoodData(base, data.rounds)
        assert isinstance(data.rounds, History)
        return FeelGoodData(base, data.rounds.minibatch(rounds_key, self.batch_size))

    def count(self, data: FeelGoodData) -> Int[Array, ""]:
        """How many observations the base potential sums over."""
        return self.base.count(data.base)

    def grad(self, data: FeelGoodData, theta: Float[Array, " params"]) -> Float[Array, " params"]:
        """grad U - w sum_s grad bonus_s."""
        return self.base.grad(data.base, theta) - self.weight * data.rounds.sum(self._summed(jax.grad, theta))
