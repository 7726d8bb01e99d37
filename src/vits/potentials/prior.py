"""The Gaussian prior: a precision that is a number, a diagonal or a matrix, and what can be done with it."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vits import linalg, validate
from vits.potentials import curvature
from vits.potentials.curvature import Operator
from vits.types import Matrix, Scalar, Vector


class Prior(NamedTuple):
    """The Gaussian prior N(mean, precision^-1); the precision is stored as a number or a diagonal where it can be."""

    mean: Vector
    precision: Operator

    @property
    def matrix(self) -> Matrix:
        """The precision as a matrix."""
        return curvature.as_matrix(self.precision, self.mean.shape[0])

    def grad(self, theta: Vector) -> Vector:
        """P0 (theta - m0)."""
        return curvature.times(self.precision, theta - self.mean)

    def spread(self, eps: Float[Array, "*n params"]) -> Float[Array, "*n params"]:
        """B eps with B B' = P0^-1, for one vector or for each row: eps ~ N(0, I) becomes a deviation from the mean."""
        if self.precision.ndim < 2:
            return eps * jnp.broadcast_to(1.0 / jnp.sqrt(self.precision), eps.shape)
        return eps @ linalg.sqrt_of_inverse(linalg.cholesky(self.precision)).T


def ridge_prior(num_params: int, *, inverse_temperature: Scalar | float, prior_precision: Scalar | float) -> Prior:
    """The paper's prior N(0, I / (lambda eta))."""
    validate.positive("inverse_temperature", inverse_temperature)
    validate.positive("prior_precision", prior_precision)
    precision = jnp.asarray(inverse_temperature * prior_precision, float)
    validate.positive(f"inverse_temperature * prior_precision, in {precision.dtype},", precision)
    return Prior(jnp.zeros(num_params), precision)


def gaussian_prior(num_params: int, mean: Any, covariance: Any) -> Prior:
    """The prior N(mean, covariance), not scaled by eta.

    Args:
        num_params: number of parameters of the model.
        mean: a number for all parameters, or one for each.
        covariance: a variance for all parameters, one for each, or a covariance matrix.
    """
    mean, covariance = jnp.asarray(mean, float), jnp.asarray(covariance, float)
    if mean.ndim > 0:
        validate.shape("the prior's mean", mean, (num_params,))
    validate.finite("the prior's mean", mean)
    if covariance.ndim == 2:
        validate.shape("the prior's covariance", covariance, (num_params, num_params))
        _check_positive_definite(covariance)
        precision = jnp.linalg.inv(covariance)
        precision = 0.5 * (precision + precision.T)
    else:
        if covariance.ndim > 0:
            validate.shape("the prior's covariance", covariance, (num_params,))
        validate.positive("the prior's covariance", covariance)
        precision = 1.0 / covariance
    return Prior(jnp.broadcast_to(mean, (num_params,)), precision)


def _check_positive_definite(covariance: Matrix) -> None:
    if validate.is_traced(covariance):
        return
    validate.finite("the prior's covariance", covariance)
    matrix = np.asarray(covariance)
    if not np.allclose(matrix, matrix.T):
        raise ValueError(f"the prior's covariance must be symmetric, but differs from its transpose: {matrix.tolist()}")
    smallest = float(np.linalg.eigvalsh(matrix)[0])
    if smallest <= 0.0:
        raise ValueError(f"the prior's covariance must be positive definite, but has the eigenvalue {smallest:g}")
