"""What every potential offers."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from vits.potentials.curvature import Curvature
from vits.potentials.prior import Prior
from vits.types import Matrix, Observation, Scalar, Vector

Data = Any
"""What a potential keeps of the observations: each form names its own fields."""


class Centre(NamedTuple):
    """Where a potential expands observations that it folds: around N(mean, B B') with B = sqrt_cov, or at a point."""

    mean: Vector
    sqrt_cov: Matrix | None = None


class Expectations(NamedTuple):
    """Mean gradient and mean Hessian of U under a Gaussian."""

    grad: Vector
    hessian: Matrix


class Derivatives(NamedTuple):
    """Gradients of U at several points, and the average of its second derivatives there."""

    grads: Float[Array, "points params"]
    curvature: Curvature


class Potential(eqx.Module):
    """A sum of losses over the data seen, plus the prior.

    In a round a posterior calls `observe`, then `minibatch`, once or for each step, and works on what that returns;
    it keeps what `observe` returned.
    """

    inverse_temperature: eqx.AbstractVar[Scalar]
    prior: eqx.AbstractVar[Prior]

    @abc.abstractmethod
    def init(self) -> Data:
        """No observations yet."""

    @abc.abstractmethod
    def observe(self, data: Data, observation: Observation, centre: Centre | None = None) -> Data:
        """The data with one more observation; potentials that fold old observations expand them around `centre`."""

    @abc.abstractmethod
    def count(self, data: Data) -> Int[Array, ""]:
        """How many observations U_t sums over: those seen, or the last ones if there is a window."""

    @abc.abstractmethod
    def grad(self, data: Data, theta: Vector) -> Vector:
        """Gradient of U_t at theta."""

    @abc.abstractmethod
    def derivatives(self, data: Data, thetas: Float[Array, "points params"]) -> Derivatives:
        """Gradients and mean Hessian at several points, in one pass over the data.

        The Hessian may be an estimate that is unbiased for points drawn alike; for a single point it is exact.
        """

    def hessian(self, data: Data, theta: Vector) -> Matrix:
        """Hessian of U_t at theta."""
        return self.derivatives(data, theta[None]).curvature.matrix

    @property
    def sees_again(self) -> bool:
        """Whether later rounds look at an observation again: if not, what a round did not learn from it is lost."""
        return True

    @property
    def longest_menu(self) -> int | None:
        """How many arms a round may offer, if observations must carry the features of all of them; else None."""
        return None

    @property
    def is_convex(self) -> bool:
        """Whether U_t, less its prior, is known to be convex."""
        return False

    @abc.abstractmethod
    def expectations(self, key: Key[Array, ""], data: Data, mean: Vector, sqrt_cov: Matrix) -> Expectations:
        """E grad U_t and E hess U_t under N(mean, B B')."""

    @abc.abstractmethod
    def largest_curvature(self, data: Data, theta: Vector, sqrt_cov: Matrix | None = None) -> Scalar:
        """An upper estimate of the Hessian's largest eigenvalue, for choosing steps.

        It is for points near theta or, given B, for draws from N(theta, B B').
        """

    def start(self, key: Key[Array, ""]) -> Vector:
        """Where a posterior starts: the prior mean, unless the model could not learn from there."""
        return self.prior.mean

    def minibatch(self, key: Key[Array, ""], data: Data) -> Data:
        """The data as a step looks at them: all of them, or a random sample that stands for all."""
        return data

    def inflation(self, data: Data) -> Scalar:
        """How many times shorter steps have to be because `data` are a sample (`vits.history.Minibatch`): 1 if not."""
        return jnp.ones(())
