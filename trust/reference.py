"""Reference posteriors, computed from all data at once, in double precision, with NumPy only."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

Vector = Float[np.ndarray, " d"]
Matrix = Float[np.ndarray, "d d"]
Rows = Float[np.ndarray, "n d"]


class Gaussian(NamedTuple):
    """N(mean, (R' R)^-1) with R upper triangular."""

    mean: Vector
    root: Matrix

    @property
    def precision(self) -> Matrix:
        """R' R."""
        return self.root.T @ self.root


class Distance(NamedTuple):
    """The distance of a Gaussian from a reference, along the worst direction.

    `mean` is in standard deviations of the reference, `deviation` the relative error of a standard deviation.
    """

    mean: float
    deviation: float

    @property
    def worst(self) -> float:
        """The larger of the two; not a number if either is not."""
        return float(np.maximum(self.mean, self.deviation))


def linear(features: Rows, rewards: Vector, *, eta: float, precision: float) -> Gaussian:
    """The posterior of a linear model under N(0, I / precision), by one QR factorisation of all rows.

    The factor has the square root of the posterior's condition number: 1e12 costs six digits and leaves ten.
    """
    dim = features.shape[1]
    rows = np.concatenate([np.sqrt(eta) * features, np.sqrt(precision) * np.eye(dim)])
    targets = np.concatenate([np.sqrt(eta) * rewards, np.zeros(dim)])
    q, root = np.linalg.qr(rows)
    return Gaussian(np.linalg.solve(root, q.T @ targets), root)


NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(64)


def sigmoid(f: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n"]:
    """1 / (1 + exp(-f)), without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * f))


CERTAIN = 1e-6
"""The largest error of a reference, in its own standard deviations."""


class NotConverged(ArithmeticError):
    """There is no reference to compare with."""


def logistic(
    features: Rows, rewards: Vector, *, eta: float, precision: float, variational: bool, steps: int = 500
) -> Gaussian:
    """The best Gaussian for a logistic model under N(0, I / precision), by damped Newton steps.

    `variational`: the minimiser of the divergence to the posterior, its expectations by quadrature; else Laplace's.
    It raises `NotConverged` unless the result is certain: the potential is at least as convex as the prior, so
    |theta - mode| <= |grad| / precision for all features.
    """
    dim, still = features.shape[1], np.zeros(len(rewards))

    def potential(theta: Vector) -> float:
        f = features @ theta
        return float(eta * np.sum(np.logaddexp(0.0, f) - rewards * f) + 0.5 * precision * theta @ theta)

    def looked(mean: Vector, deviation: Vector) -> tuple[Vector, Matrix]:
        """Mean gradient and mean Hessian, where f = phi' theta has these deviations."""
        p = p2 = np.zeros(len(rewards))
        for node, weight in zip(NODES, WEIGHTS / WEIGHTS.sum(), strict=True) if deviation.any() else [(0.0, 1.0)]:
            at_node = sigmoid(features @ mean + deviation * node)
            p, p2 = p + weight * at_node, p2 + weight * at_node * (1.0 - at_node)
        hessian = eta * (features.T * p2) @ features + precision * np.eye(dim)
        return eta * features.T @ (p - rewards) + precision * mean, hessian

    def left(grad: Vector, hessian: Matrix) -> float:
        """A bound on the remaining distance, in standard deviations."""
        return float(np.sqrt(np.linalg.norm(hessian, 2)) * np.linalg.norm(grad) / precision)

    mean = np.zeros(dim)
    grad, hessian = looked(mean, still)
    for _ in range(steps):
        if left(grad, hessian) <= CERTAIN:
            break
        move = np.linalg.solve(hessian, grad)
        # Where Newton's method converges by itself, values differ by less than their rounding.
        while grad @ move > 1e-6 and potential(mean - move) > potential(mean):
            move = 0.5 * move
        mean = mean - move
        grad, hessian = looked(mean, still)
    else:
        raise NotConverged(f"no mode after {steps} steps, but a gradient of {np.linalg.norm(grad):.2g}")
    return _variational(looked, features, mean, hessian, steps) if variational else Gaussian(mean, _root(hessian))


def _variational(
    looked: Callable[[Vector, Vector], tuple[Vector, Matrix]], features: Rows, mean: Vector, hessian: Matrix, steps: int
) -> Gaussian:
    """The Gaussian whose precision is the mean Hessian under it, and whose mean gradient is zero; from Laplace's."""
    for _ in range(steps):
        root = _root(hessian)
        grad, curved = looked(mean, np.linalg.norm(np.linalg.solve(root.T, features.T), axis=0))
        away = np.linalg.norm(np.linalg.solve(root.T, grad))
        wrong = np.linalg.norm(np.linalg.solve(root.T, np.linalg.solve(root.T, curved - hessian).T))
        left = np.maximum(away, wrong)
        if left <= CERTAIN:
            return Gaussian(mean, root)
        hessian = 0.5 * hessian + 0.5 * curved
        mean = mean - 0.5 * np.linalg.solve(hessian, grad)
    raise NotConverged(f"no best Gaussian after {steps} steps, but {left:.2g} standard deviations to go")


def _root(precision: Matrix) -> Matrix:
    """R upper triangular with R' R = P."""
    return np.linalg.cholesky(precision).T


def distance(mean: Vector, sqrt_cov: Matrix, reference: Gaussian) -> Distance:
    """The distance of N(mean, B B') from a reference."""
    whitened = np.linalg.svd(reference.root @ sqrt_cov, compute_uv=False)
    return Distance(
        float(np.linalg.norm(reference.root @ (mean - reference.mean))), float(np.max(np.abs(whitened - 1.0)))
    )


def divergence(mean: Vector, sqrt_cov: Matrix, reference: Gaussian) -> float:
    """KL(N(mean, B B') | reference) in nats."""
    whitened = np.linalg.svd(reference.root @ sqrt_cov, compute_uv=False)
    away = reference.root @ (mean - reference.mean)
    return float(0.5 * (away @ away + np.sum(np.square(whitened) - 1.0 - 2.0 * np.log(whitened))))
