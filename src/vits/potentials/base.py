"""The interface of a potential, and the Gaussian prior that is part of each."""

import abc
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from vits import linalg, validate
from vits.potentials.curvature import Curvature, Operator, as_matrix, times
from vits.types import Matrix, Observation, Scalar, Spread, Vector

Data = Any
"""The stored observations or statistics of a potential; each form has its own fields."""


class Prior(NamedTuple):
    """The Gaussian prior N(mean, precision^-1); the precision is stored as a number or a diagonal where it can be."""

    mean: Vector
    precision: Operator

    @property
    def matrix(self) -> Matrix:
        """The precision as a matrix."""
        return as_matrix(self.precision, self.mean.shape[0])

    def grad(self, theta: Vector) -> Vector:
        """P0 (theta - m0)."""
        return times(self.precision, theta - self.mean)

    def spread(self, eps: Float[Array, "*n params"]) -> Float[Array, "*n params"]:
        """B eps with B B' = P0^-1, for one vector or for each row: eps ~ N(0, I) becomes a deviation from the mean."""
        if self.precision.ndim < 2:
            return eps * jnp.broadcast_to(1.0 / jnp.sqrt(self.precision), eps.shape)
        return eps @ linalg.inverse_root(self.precision).T


def ridge_prior(num_params: int, *, inverse_temperature: Scalar | float, prior_precision: Scalar | float) -> Prior:
    """The paper's prior N(0, I / (lambda eta))."""
    validate.positive("inverse_temperature", inverse_temperature)
    validate.positive("prior_precision", prior_precision)
    precision = jnp.asarray(jnp.asarray(inverse_temperature, float) * prior_precision, float)
    validate.positive(f"inverse_temperature * prior_precision, in {precision.dtype},", precision)
    return Prior(jnp.zeros(num_params), precision)


def gaussian_prior(num_params: int, mean: Any, covariance: Any) -> Prior:
    """The prior N(mean, covariance), not scaled by eta.

    Args:
        num_params: number of parameters of the model.
        mean: a number for all parameters, or one for each.
        covariance: a variance for all parameters, one for each, or a covariance matrix.
    """
    for name, value in (("the prior's mean", mean), ("the prior's covariance", covariance)):
        validate.numbers(name, value)
    mean, covariance = jnp.asarray(mean, float), jnp.asarray(covariance, float)
    if mean.ndim > 0:
        validate.shape("the prior's mean", mean, (num_params,))
    validate.finite("the prior's mean", mean)
    if covariance.ndim == 2:
        validate.shape("the prior's covariance", covariance, (num_params, num_params))
        _check_positive_definite(covariance)
        precision = jnp.linalg.inv(covariance)
        precision = 0.5 * (precision + precision.T)
        validate.finite(f"the inverse of the prior's covariance, in {precision.dtype},", precision)
    else:
        if covariance.ndim > 0:
            validate.shape("the prior's covariance", covariance, (num_params,))
        validate.positive("the prior's covariance", covariance)
        precision = 1.0 / covariance
        validate.positive(f"the inverse of the prior's covariance, in {precision.dtype},", precision)
    return Prior(jnp.broadcast_to(mean, (num_params,)), precision)


def _check_positive_definite(covariance: Matrix) -> None:
    if validate.is_traced(covariance):
        return
    validate.finite("the prior's covariance", covariance)
    matrix = np.asarray(covariance)
    if not np.allclose(matrix, matrix.T):
        given = validate.shown(matrix.tolist())
        raise ValueError(f"the prior's covariance must be symmetric, but differs from its transpose: {given}")
    smallest = float(np.linalg.eigvalsh(matrix)[0])
    if smallest <= 0.0:
        raise ValueError(f"the prior's covariance must be positive definite, but has the eigenvalue {smallest:g}")


class Centre(NamedTuple):
    """The centre around which folded observations are expanded: N(mean, B B') with B = sqrt_cov, or a point."""

    mean: Vector
    sqrt_cov: Float[Array, "params columns"] | None = None


class News(NamedTuple):
    """What one observation adds around a centre: slope phi to the gradient, weight phi phi' to the Hessian."""

    slope: Scalar
    weight: Scalar


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

    In a round a posterior calls `observe`, then `minibatch` once or for each step. Steps use the result of `minibatch`;
    the result of `observe` is stored.
    """

    inverse_temperature: eqx.AbstractVar[Scalar]
    prior: eqx.AbstractVar[Prior]

    @abc.abstractmethod
    def init(self) -> Data:
        """No observations yet."""

    @abc.abstractmethod
    def observe(self, data: Data, observation: Observation, centre: Centre | None = None) -> Data:
        """The data after adding an observation. Potentials that fold old observations expand them around `centre`."""

    @abc.abstractmethod
    def count(self, data: Data) -> Int[Array, ""]:
        """The number of observations in U_t: all seen so far, or those in the window."""

    @abc.abstractmethod
    def grad(self, data: Data, theta: Vector) -> Vector:
        """Gradient of U_t at theta."""

    @abc.abstractmethod
    def derivatives(self, data: Data, thetas: Float[Array, "points params"]) -> Derivatives:
        """Gradients and mean Hessian at several points, in one pass over the data.

        The Hessian may be an estimate, unbiased for identically distributed points; for a single point it is exact.
        """

    def hessian(self, data: Data, theta: Vector) -> Matrix:
        """Hessian of U_t at theta."""
        return self.derivatives(data, theta[None]).curvature.matrix

    @property
    def sees_again(self) -> bool:
        """Whether later rounds use an observation again. If not, a round must learn from it completely."""
        return True

    @property
    def patience(self) -> float:
        """Rounds in which a posterior must have learned from an observation; later ones cannot make up for it."""
        return math.inf

    @property
    def grows_by_rows(self) -> bool:
        """Whether derivatives at the centre of a round are the previous ones plus the `news` of the observation.

        It is true only for wide models, where this saves work.
        """
        return False

    def news(self, observation: Observation, centre: Centre) -> News:
        """The contribution of an observation, if the potential grows by rows."""
        raise NotImplementedError

    @property
    def longest_menu(self) -> int | None:
        """The largest number of arms in a round, if observations must hold the features of all arms; else None."""
        return None

    @property
    def is_convex(self) -> bool:
        """Whether U_t, less its prior, is known to be convex."""
        return False

    @abc.abstractmethod
    def expectations(self, key: Key[Array, ""], data: Data, mean: Vector, sqrt_cov: Matrix) -> Expectations:
        """E grad U_t and E hess U_t under N(mean, B B')."""

    @abc.abstractmethod
    def largest_curvature(self, data: Data, theta: Vector, sqrt_cov: Spread | None = None) -> Scalar:
        """An upper estimate of the Hessian's largest eigenvalue, for choosing steps.

        It is for points near theta or, given B, for draws from N(theta, B B').
        """

    def start(self, key: Key[Array, ""]) -> Vector:
        """The start of a posterior: the prior mean, unless the model cannot learn from there."""
        return self.prior.mean

    def drawn_start(self, key: Key[Array, ""]) -> Vector:
        """The same plus a draw from the prior around zero."""
        start_key, draw_key = jax.random.split(key)
        start = self.start(start_key)
        return start + self.prior.spread(jax.random.normal(draw_key, start.shape, start.dtype))

    def minibatch(self, key: Key[Array, ""], data: Data) -> Data:
        """The data that a step uses: all of them, or a random sample."""
        return data

    def inflation(self, data: Data) -> Scalar:
        """The factor by which steps must be shorter because `data` are a sample (`vits.history.Minibatch`); else 1."""
        return jnp.ones(())
