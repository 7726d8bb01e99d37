"""Unit arms in all directions, new in every round: linear bandits within the assumptions of the regret bound."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from vits import validate
from vits.environments.base import Environment
from vits.linalg import normal
from vits.types import Round, Scalar


class SphereParams(NamedTuple):
    """The true parameters, of length 1."""

    theta: Float[Array, " dim"]


class Sphere(Environment):
    """Arms uniform on the unit sphere, r = x' theta* + noise eps, |theta*| = 1.

    If theta is drawn in the direction u, the arm played is on average a multiple of u. So the expected regret of a
    round is proportional to 1 - cos(u, theta*), as if every direction were an arm.
    """

    noise: Scalar
    dim: int
    num_arms: int

    def init(self, key: Key[Array, ""]) -> SphereParams:
        """theta* uniform on the sphere."""
        theta = jax.random.normal(key, (self.dim,))
        return SphereParams(theta / jnp.linalg.norm(theta))

    def draw(self, key: Key[Array, ""], params: SphereParams, t: Int[Array, ""]) -> Round:
        """Fresh arms and their rewards."""
        arm_key, noise_key = jax.random.split(key)
        arms = normal(arm_key, (self.num_arms, self.dim))
        arms = arms / jnp.linalg.norm(arms, axis=1, keepdims=True)
        means = arms @ params.theta
        return Round(arms, means, means + self.noise * jax.random.normal(noise_key, means.shape))


def sphere(dim: int = 4, num_arms: int = 50, noise: Scalar | float = 1.0) -> Sphere:
    """A linear bandit with unit arms in all directions, new in every round.

    Args:
        dim: number of features.
        num_arms: number of arms in each round.
        noise: standard deviation of the rewards.

    Example:
        >>> import vits
        >>> vits.environments.sphere(dim=3).num_arms
        50
    """
    dim = validate.count("dim", dim)
    num_arms = validate.count("num_arms", num_arms)
    validate.number("noise", noise)
    validate.not_negative("noise", noise)
    return Sphere(noise=jnp.asarray(noise, float), dim=dim, num_arms=num_arms)
