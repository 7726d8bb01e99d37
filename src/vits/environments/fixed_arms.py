"""The same arms in every round: the paper's non-contextual bandits."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from vits import validate
from vits.environments.base import Environment
from vits.linalg import normal
from vits.types import Round

Means = Callable[[Float[Array, " arms"]], Float[Array, " arms"]]
Rewards = Callable[[Key[Array, ""], Float[Array, " arms"]], Float[Array, " arms"]]


class FixedArmsParams(NamedTuple):
    """The arms and the true parameters of one seed."""

    arms: Float[Array, "arms dim"]
    theta: Float[Array, " dim"]


class FixedArms(Environment):
    """Arms {theta*, theta* + 0.1 eps normalised, random unit vectors}, in random order.

    The best arm and the second best are close. Arms are shuffled for each seed, because a broken policy that always
    plays arm 0 would otherwise look perfect.
    """

    dim: int
    num_arms: int
    mean: Means
    reward: Rewards

    def init(self, key: Key[Array, ""]) -> FixedArmsParams:
        """Unit theta*, the arms around and away from it, shuffled."""
        theta_key, near_key, away_key, order_key = jax.random.split(key, 4)
        theta = _unit(jax.random.normal(theta_key, (self.dim,)))
        near = _unit(theta + 0.1 * jax.random.normal(near_key, (self.dim,)))
        away = jax.vmap(_unit)(normal(away_key, (self.num_arms - 2, self.dim)))
        arms = jnp.concatenate([theta[None], near[None], away])
        return FixedArmsParams(jax.random.permutation(order_key, arms), theta)

    def draw(self, key: Key[Array, ""], params: FixedArmsParams, t: Int[Array, ""]) -> Round:
        """The same arms, with fresh rewards."""
        means = self.mean(params.arms @ params.theta)
        return Round(params.arms, means, self.reward(key, means))


def fixed_linear(dim: int = 10, num_arms: int = 10) -> FixedArms:
    """Fixed arms with linear rewards: r = x' theta* + N(0, 1).

    Args:
        dim: number of features.
        num_arms: number of arms, at least two.

    Example:
        >>> import vits
        >>> vits.environments.fixed_linear().num_arms
        10
    """
    return _fixed(dim, num_arms, identity, _gaussian)


def fixed_logistic(dim: int = 10, num_arms: int = 10) -> FixedArms:
    """Fixed arms with logistic rewards: r ~ Ber(sigmoid(x' theta*)). Arguments as in `fixed_linear`.

    Example:
        >>> import vits
        >>> vits.environments.fixed_logistic(dim=5).dim
        5
    """
    return _fixed(dim, num_arms, jax.nn.sigmoid, bernoulli)


def bernoulli(key: Key[Array, ""], means: Float[Array, " arms"]) -> Float[Array, " arms"]:
    """Zeros and ones with these means."""
    return jax.random.bernoulli(key, means).astype(means.dtype)


def _fixed(dim: int, num_arms: int, mean: Means, reward: Rewards) -> FixedArms:
    dim = validate.count("dim", dim)
    num_arms = validate.count("num_arms", num_arms, least=2)
    return FixedArms(dim=dim, num_arms=num_arms, mean=mean, reward=reward)


def identity(scores: Float[Array, " arms"]) -> Float[Array, " arms"]:
    """The scores themselves as means."""
    return scores


def _gaussian(key: Key[Array, ""], means: Float[Array, " arms"]) -> Float[Array, " arms"]:
    return means + jax.random.normal(key, means.shape)


def _unit(vector: Float[Array, " dim"]) -> Float[Array, " dim"]:
    return vector / jnp.linalg.norm(vector)
