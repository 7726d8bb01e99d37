"""Where a Gaussian variational step looks at the potential: schemes for the standard normal draws eps.

A scheme returns directions; a mirrored one is used as +eps and -eps, which cancels all odd noise.
"""

import abc
import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from vits import linalg, validate
from vits.linalg import normal


class Draws(eqx.Module):
    """Directions eps with mean outer product I, and how far they inflate an estimate made from gradients."""

    mirrored: eqx.AbstractClassVar[bool]

    @abc.abstractmethod
    def __call__(self, key: Key[Array, ""], dim: int) -> Float[Array, "directions dim"]:
        """The directions of one step."""

    @abc.abstractmethod
    def inflation(self, dim: int) -> float:
        """How many times shorter than with the true curvature a Hessian-free step must be."""


class Plain(Draws):
    """The paper's draws: independent standard normals."""

    num_samples: int
    mirrored: ClassVar[bool] = False

    def __call__(self, key: Key[Array, ""], dim: int) -> Float[Array, "directions dim"]:
        """eps_s ~ N(0, I)."""
        return normal(key, (self.num_samples, dim))

    def inflation(self, dim: int) -> float:
        """(1 + sqrt(d / S))^2, the edge of the spectrum of a sample covariance."""
        return (1.0 + math.sqrt(dim / self.num_samples)) ** 2


class Antithetic(Plain):
    """Independent standard normals, each with its mirror image: S / 2 pairs."""

    mirrored: ClassVar[bool] = True


class Orthogonal(Draws):
    """Orthogonal directions of length sqrt(d), mirrored: symmetric cubature.

    With as many directions as dimensions these are +-sqrt(d) e_i, need no randomness, and are exact for quadratic
    potentials. With fewer, a random frame is drawn in each step; the estimate is unbiased and its spectrum d / m
    times too large. Its noise moves the covariance by about 1.4 sqrt(h d / m lmax) in relative terms, whatever d / m
    (measured at d = 100): the step is shortened until that is a third.
    """

    num_directions: int
    mirrored: ClassVar[bool] = True

    def __call__(self, key: Key[Array, ""], dim: int) -> Float[Array, "directions dim"]:
        """sqrt(d) times the rows of a frame."""
        frame = jnp.eye(dim) if self.num_directions >= dim else linalg.random_frame(key, dim, self.num_directions)
        return math.sqrt(dim) * frame

    def inflation(self, dim: int) -> float:
        """1 where every direction is looked at, else d / m against instability and 16 against noise."""
        return 1.0 if self.num_directions >= dim else 16.0 * dim / self.num_directions


def plain(num_samples: int = 1) -> Plain:
    """The paper's independent draws: one for VITS-I and II, twenty for the Hessian-free form."""
    validate.count("num_samples", num_samples)
    return Plain(num_samples)


def antithetic(num_samples: int = 2) -> Antithetic:
    """Pairs (eps, -eps): `num_samples` gradients a step."""
    if num_samples % 2 or num_samples < 2:
        raise ValueError(f"num_samples must be even for antithetic draws, but is {num_samples}")
    return Antithetic(num_samples // 2)


def orthogonal(num_samples: int) -> Orthogonal:
    """Symmetric cubature along orthogonal directions: `num_samples` gradients a step."""
    if num_samples % 2 or num_samples < 2:
        raise ValueError(f"num_samples must be even for orthogonal draws, but is {num_samples}")
    return Orthogonal(num_samples // 2)
