"""Contexts scattered around a fixed pool of vectors: the paper's linear and quadratic bandits."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from vits import validate
from vits.environments.base import Environment
from vits.linalg import normal
from vits.types import Round, Scalar


class PoolParams(NamedTuple):
    """The pool of context vectors and the true parameters."""

    pool: Float[Array, "pool dim"]
    theta: Float[Array, " dim"]


class Pool(Environment):
    """Each round each arm takes a random vector of the pool plus zeta N(0, I) and pays (x' theta*)^power plus noise.

    A small zeta gives few distinct directions and an ill-conditioned posterior. The noise is scaled so that the
    signal-to-noise ratio is 1.
    """

    zeta: Scalar
    noise: Scalar
    power: int
    dim: int
    num_arms: int
    pool_size: int

    def init(self, key: Key[Array, ""]) -> PoolParams:
        """Pool ~ N(0, I), theta* ~ N(0, I / d)."""
        pool_key, theta_key = jax.random.split(key)
        return PoolParams(
            pool=normal(pool_key, (self.pool_size, self.dim)),
            theta=jax.random.normal(theta_key, (self.dim,)) / math.sqrt(self.dim),
        )

    def draw(self, key: Key[Array, ""], params: PoolParams, t: Int[Array, ""]) -> Round:
        """x = pool vector + zeta eps;  r = (x' theta*)^power + noise eps."""
        which_key, noise_key = jax.random.split(key)
        which = jax.random.randint(which_key, (self.num_arms,), 0, self.pool_size)
        # One flat draw for contexts and rewards, because most of a round's time is spent drawing random numbers.
        eps = jax.random.normal(noise_key, (self.num_arms * (self.dim + 1),))
        spread, noise = jnp.split(eps, [self.num_arms * self.dim])
        arms = params.pool[which] + self.zeta * spread.reshape(self.num_arms, self.dim)
        means = (arms @ params.theta) ** self.power
        return Round(arms, means, means + self.noise * noise)


def linear(zeta: Scalar | float = 0.1, dim: int = 20, num_arms: int = 50, pool_size: int = 50) -> Pool:
    """The paper's linear bandit, with contexts around a pool of `pool_size` vectors.

    Args:
        zeta: spread of the contexts around the pool; 0.1 is ill-conditioned, 1 well-conditioned.
        dim: number of features.
        num_arms: number of arms in each round.
        pool_size: number of vectors in the pool.

    Example:
        >>> import vits
        >>> vits.environments.linear(zeta=1.0).num_arms
        50
    """
    return _pool(zeta, dim, num_arms, pool_size, power=1)


def quadratic(zeta: Scalar | float = 0.1, dim: int = 20, num_arms: int = 50, pool_size: int = 50) -> Pool:
    """The paper's quadratic bandit: r = (x' theta*)^2 + (1 + zeta^2) sqrt(3 + 6/d) eps. Arguments as in `linear`.

    Example:
        >>> import vits
        >>> vits.environments.quadratic(zeta=1.0).dim
        20
    """
    return _pool(zeta, dim, num_arms, pool_size, power=2)


def _pool(zeta: Scalar | float, dim: int, num_arms: int, pool_size: int, *, power: int) -> Pool:
    validate.number("zeta", zeta)
    validate.not_negative("zeta", zeta)
    dim = validate.count("dim", dim)
    num_arms = validate.count("num_arms", num_arms)
    pool_size = validate.count("pool_size", pool_size)
    variance = 1.0 + jnp.square(zeta)  # of each feature
    noise = jnp.sqrt(variance) if power == 1 else variance * math.sqrt(3.0 + 6.0 / dim)
    return Pool(
        zeta=jnp.asarray(zeta, float),
        noise=jnp.asarray(noise, float),
        power=power,
        dim=dim,
        num_arms=num_arms,
        pool_size=pool_size,
    )
