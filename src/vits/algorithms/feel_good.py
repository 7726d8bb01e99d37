"""Feel-good Thompson sampling: a posterior with a bonus for parameters under which past rounds look rewarding.

    U_fg(theta) = U(theta) - w sum_s min(b, max_a f(theta; x_s, a))

f is the expected reward. The maximum is over all arms that were on offer in round s, so all of them are stored. Where
observations are folded, the bonus of older rounds is estimated from that of the stored ones: the average is the same if
rounds are alike.

Reference: Zhang, "Feel-good Thompson sampling for contextual bandits and reinforcement learning", SIAM Journal on
Mathematics of Data Science, 2022.
"""

import abc
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key
from typing_extensions import Unpack, override

from vits import models, policies, potentials, steps, validate
from vits.algorithms.langevin import chain
from vits.algorithms.vits import VITS
from vits.history import Buffer, Rows, buffer
from vits.inference.base import Posterior
from vits.inference.variational import antithetic, exact_curvature, first_order_inverse
from vits.models import RewardModel
from vits.potentials import DataOptions
from vits.potentials.base import Centre, Data, Derivatives, Expectations, Potential, Prior
from vits.potentials.curvature import Dense
from vits.types import Matrix, Observation, Scalar, Spread, Vector, all_finite

BLOCK = 16
"""Rounds per block of a sum: few, because each has the features of all its arms."""

Mean = Callable[[Float[Array, " dim"]], Scalar]
"""The expected reward of an arm under given parameters."""


class Menu(NamedTuple):
    """The arms that were on offer in one round: the first `offered` rows."""

    arms: Float[Array, "arms dim"]
    offered: Int[Array, ""]

    def means(self, mean: Mean) -> Float[Array, " arms"]:
        """The expected rewards of the arms; minus infinity in rows without an arm."""
        present = jnp.arange(self.arms.shape[0]) < self.offered
        return jnp.where(present, jax.vmap(mean)(self.arms), -jnp.inf)


class Bonus(eqx.Module):
    """The bonus of a round under given parameters."""

    @abc.abstractmethod
    def __call__(self, mean: Mean, menu: Menu) -> Scalar:
        """The bonus of a round."""

    @abc.abstractmethod
    def bend(self, mean: Mean, menu: Menu) -> Scalar:
        """An upper bound on minus the second derivative of the bonus, in any direction in which all means change at
        constant rates of at most 1.
        """


class SharpBonus(Bonus):
    """min(b, max_a f_a): as smooth as f, except for kinks where the best arm changes and at the cap."""

    cap: Scalar

    def __call__(self, mean: Mean, menu: Menu) -> Scalar:
        """The best arm's mean, or the cap."""
        best = jnp.argmax(menu.means(mean))
        # Evaluated again for the best arm, so that the gradient goes through one arm instead of all.
        return jnp.minimum(self.cap, mean(menu.arms[best]))

    def bend(self, mean: Mean, menu: Menu) -> Scalar:
        """0 almost everywhere."""
        return jnp.zeros(())


class SmoothBonus(Bonus):
    """z - tau softplus((z - b) / tau) with z = tau log sum_a exp(f_a / tau); it tends to the plain form as tau -> 0.

    This is the smooth minimum b - tau softplus((b - z) / tau), written so that a distant cap loses no digits.
    """

    cap: Scalar
    temperature: Scalar

    def __call__(self, mean: Mean, menu: Menu) -> Scalar:
        """A smooth minimum of the cap and a smooth maximum of the means."""
        tau, best = self.temperature, self._best(mean, menu)
        return best - tau * jax.nn.softplus((best - self.cap) / tau)

    def bend(self, mean: Mean, menu: Menu) -> Scalar:
        """The largest value of sigmoid'((b - z) / tau) / tau between here and half-way to the cap.

        The bonus is subtracted from U. Its log-sum-exp is convex and reduces the curvature; only the cap, which is
        concave, adds some.
        """
        tau = self.temperature
        u = 0.5 * (self.cap - self._best(mean, menu)) / tau
        return jax.nn.sigmoid(u) * jax.nn.sigmoid(-u) / tau

    def _best(self, mean: Mean, menu: Menu) -> Scalar:
        return self.temperature * jax.nn.logsumexp(menu.means(mean) / self.temperature)


class FeelGoodData(NamedTuple):
    """The data of the base potential, and the rounds: a row has the features of all arms and the number of arms."""

    base: Data
    rounds: Rows


class FeelGood(Potential):
    """A base potential minus `weight` times the bonus of every round, by automatic differentiation.

    If the base potential folds, the stored rounds stand for all of them.
    """

    base: Potential
    model: RewardModel
    bonus: Bonus
    weight: Scalar
    inverse_temperature: Scalar
    prior: Prior
    num_arms: int
    buffer: Buffer
    batch_size: int | None

    @property
    @override
    def longest_menu(self) -> int | None:
        return self.num_arms

    @property
    @override
    def sees_again(self) -> bool:
        return self.base.sees_again

    @property
    @override
    def patience(self) -> float:
        return self.base.patience

    @override
    def start(self, key: Key[Array, ""]) -> Vector:
        return self.base.start(key)

    @override
    def inflation(self, data: FeelGoodData) -> Scalar:
        return self.base.inflation(data.base)

    def init(self) -> FeelGoodData:
        """No rounds yet."""
        return FeelGoodData(self.base.init(), self.buffer.init(self.num_arms * self.model.dim, BLOCK))

    def observe(self, data: FeelGoodData, observation: Observation, centre: Centre | None = None) -> FeelGoodData:
        """Add one observation, and all arms of its round."""
        arms = observation.arms
        if arms is None:
            raise ValueError("fg_ts needs the features of all arms of a round, but observation.arms is None")
        rows = arms.shape[0]
        if rows > self.num_arms:
            raise ValueError(f"num_arms must be at least the {rows} arms of the round, but is {self.num_arms}")
        offered = rows if observation.offered is None else observation.offered
        # An arm that is not finite marks the whole round NaN, because that arm may become the best one later.
        arms = jnp.where(all_finite(arms), arms, jnp.nan)
        padded = jnp.pad(arms, ((0, self.num_arms - rows), (0, 0)))
        row = Observation(padded.ravel(), jnp.asarray(offered, arms.dtype))
        return FeelGoodData(self.base.observe(data.base, observation, centre), data.rounds.append(row))

    def minibatch(self, key: Key[Array, ""], data: FeelGoodData) -> FeelGoodData:
        """The sample of the base potential, and a sample of as many rounds."""
        base_key, rounds_key = jax.random.split(key)
        base = self.base.minibatch(base_key, data.base)
        if self.batch_size is None:
            return FeelGoodData(base, data.rounds)
        return FeelGoodData(base, data.rounds.minibatch(rounds_key, self.batch_size))

    @override
    def count(self, data: FeelGoodData) -> Int[Array, ""]:
        return self.base.count(data.base)

    def grad(self, data: FeelGoodData, theta: Vector) -> Vector:
        """grad U - w sum_s grad bonus_s."""
        total = data.rounds.sum(partial(jax.grad(self._bonus), theta))
        return self.base.grad(data.base, theta) - self._weight(data) * total

    def derivatives(self, data: FeelGoodData, thetas: Float[Array, "points params"]) -> Derivatives:
        """The derivatives of U minus w sum_s those of bonus_s; for the plain form, those between the kinks."""
        (grads, curvature), bonus = self.base.derivatives(data.base, thetas), self._bonus_derivatives(data, thetas)
        weight = self._weight(data)
        hessian = curvature.matrix - weight * bonus.curvature.matrix
        return Derivatives(grads - weight * bonus.grads, Dense(hessian))

    def expectations(self, key: Key[Array, ""], data: FeelGoodData, mean: Vector, sqrt_cov: Matrix) -> Expectations:
        """Those of the base potential, minus those of the bonus from a mirrored pair of draws."""
        base_key, draw_key = jax.random.split(key)
        base = self.base.expectations(base_key, data.base, mean, sqrt_cov)
        offset = sqrt_cov @ jax.random.normal(draw_key, mean.shape, mean.dtype)
        grads, bonus = self._bonus_derivatives(data, jnp.stack([mean + offset, mean - offset]))
        weight = self._weight(data)
        hessian = base.hessian - weight * bonus.matrix
        return Expectations(base.grad - weight * jnp.mean(grads, axis=0), hessian)

    def largest_curvature(self, data: FeelGoodData, theta: Vector, sqrt_cov: Spread | None = None) -> Scalar:
        """That of the base potential plus, for each round, at most w (bend * max_a |grad f_a|^2 + max_a |hess f_a|).

        |hess f_a| is taken along grad f_a, which is exact for generalised linear models.
        """

        slope = jax.grad(self.model.mean)

        def steepness(arm: Float[Array, " dim"]) -> tuple[Scalar, Scalar]:
            grad, along = jax.jvp(lambda theta: slope(theta, arm), (theta,), (slope(theta, arm),))
            length = jnp.linalg.norm(grad)
            return length**2, jnp.linalg.norm(along) / jnp.where(length > 0.0, length, 1.0)

        def bound(menu: Menu) -> Scalar:
            slopes, bends = jax.vmap(steepness)(menu.arms)
            return self.bonus.bend(partial(self.model.mean, theta), menu) * jnp.max(slopes) + jnp.max(bends)

        def term(rows: Float[Array, "n d"], offered: Float[Array, " n"], weight: Float[Array, " n"]) -> Scalar:
            return weight @ jax.vmap(bound)(self._menus(rows, offered))

        base = self.base.largest_curvature(data.base, theta, sqrt_cov)
        return base + self._weight(data) * data.rounds.inflation * data.rounds.sum(term)

    def _weight(self, data: FeelGoodData) -> Scalar:
        """The weight of a stored round: w, and larger by t / n where n stored rounds stand for t."""
        seen, stored = self.base.count(data.base), jnp.maximum(data.rounds.count, 1)
        return self.weight * jnp.maximum(seen / stored, 1.0)

    def _bonus_derivatives(self, data: FeelGoodData, thetas: Float[Array, "points params"]) -> Derivatives:
        def term(rows: Float[Array, "n d"], offered: Float[Array, " n"], weight: Float[Array, " n"]) -> Derivatives:
            grads = jax.vmap(jax.grad(self._bonus), (0, None, None, None))(thetas, rows, offered, weight)
            hessians = jax.vmap(jax.hessian(self._bonus), (0, None, None, None))(thetas, rows, offered, weight)
            return Derivatives(grads, Dense(jnp.mean(hessians, axis=0)))

        return data.rounds.sum(term)

    def _bonus(
        self, theta: Vector, rows: Float[Array, "n d"], offered: Float[Array, " n"], weight: Float[Array, " n"]
    ) -> Scalar:
        mean = partial(self.model.mean, theta)
        return weight @ jax.vmap(lambda menu: self.bonus(mean, menu))(self._menus(rows, offered))

    def _menus(self, rows: Float[Array, "n d"], offered: Float[Array, " n"]) -> Menu:
        # An empty row counts as one arm with features 0, because a maximum over no arms has no gradient.
        arms = rows.reshape(-1, self.num_arms, self.model.dim)
        return Menu(arms, jnp.maximum(offered.astype(int), 1))


def feel_good_potential(
    base: Potential,
    model: RewardModel,
    *,
    weight: Scalar | float,
    cap: Scalar | float,
    smoothing: Scalar | float = 0.0,
    num_arms: int,
    **data: Unpack[DataOptions],
) -> FeelGood:
    """The feel-good potential over `base`: plain, or smoothed if `smoothing` is not 0.

    Args:
        base: the potential U of the model.
        model: the reward model.
        weight: w, called eta_fg or lambda in the literature.
        cap: b, the largest bonus of a round.
        smoothing: tau; the smooth maximum is at most tau log(number of arms) above the plain one.
        num_arms: the largest number of arms in a round.
        data: as for `base`.

    Returns:
        A potential whose observations must have the features of all arms.
    """
    validate.not_negative("feel_good", weight)
    validate.finite("cap", cap)
    validate.not_negative("smoothing", smoothing)
    validate.count("num_arms", num_arms)
    limit = jnp.asarray(cap, float)
    is_sharp = not validate.is_traced(smoothing) and float(smoothing) == 0.0
    return FeelGood(
        base=base,
        model=model,
        bonus=SharpBonus(limit) if is_sharp else SmoothBonus(limit, jnp.asarray(smoothing, float)),
        weight=jnp.asarray(weight, float),
        inverse_temperature=base.inverse_temperature,
        prior=base.prior,
        num_arms=num_arms,
        buffer=buffer(capacity=data.get("capacity"), window=data.get("window") or data.get("fold_after")),
        batch_size=data.get("minibatch"),
    )


@policies.preset
def fg_ts(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    feel_good: Scalar | float | None = None,
    cap: Scalar | float = 1000.0,
    smoothing: Scalar | float = 0.0,
    sampler: str = "langevin",
    step_size: Scalar | float = 0.5,
    num_steps: int = 10,
    step_rule: str | steps.StepRule = "safe",
    num_arms: int = 64,
    **data: Unpack[DataOptions],
) -> policies.Thompson:
    """FG-TS: Thompson sampling from a posterior with a bonus for parameters under which past rounds look rewarding.

        U_fg(theta) = U(theta) - feel_good sum_s min(cap, max_a f(theta; x_s, a))

    Args:
        model: the reward model; f is its expected reward.
        feel_good: weight of the bonus. Rewards look better by about feel_good / eta in every round; from 0.3 on this
            costs more regret than it saves. By default eta / 100; with 0 there is no bonus.
        cap: the largest bonus of a round, on the scale of the rewards.
        smoothing: temperature tau of the smoothed form, which uses tau log sum exp(f / tau) for the maximum and a
            softplus of the same temperature for the minimum; 0 is the plain form.
        sampler: "langevin" (as in lmc_ts) or "vits" (as in vits_ii; it does not see the kinks of the plain form).
        num_arms: the largest number of arms in a round; the features of all of them are stored.

    Other arguments: see `vits.algorithms`.

    Returns:
        A policy. Its observations must have `arms`, the features of all arms on offer.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.fg_ts(vits.models.linear(3), feel_good=0.1, smoothing=0.1, num_arms=10)

    Reference:
        Zhang, "Feel-good Thompson sampling for contextual bandits and reinforcement learning", SIAM Journal on
        Mathematics of Data Science, 2022.
    """
    is_chain = sampler == "langevin"
    base = potentials.potential(model, inverse_temperature, prior_precision, matrix_free=is_chain, **data)
    potential = feel_good_potential(
        base,
        model,
        weight=0.01 * base.inverse_temperature if feel_good is None else feel_good,
        cap=cap,
        smoothing=smoothing,
        num_arms=num_arms,
        **data,
    )
    rule = steps.resolve(step_rule, step_size)
    if is_chain:
        posterior: Posterior = chain(model, potential, rule, num_steps)
    elif sampler == "vits":
        posterior = VITS(potential, rule, antithetic(), exact_curvature, first_order_inverse, num_steps)
    else:
        raise validate.unknown("sampler", sampler, ("langevin", "vits"))
    return policies.Thompson(model, posterior)
