"""What posteriors should be, computed anew from all data at once, in double precision, by NumPy alone."""

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
    """How far a Gaussian is from a reference, along whichever direction is worst.

    `mean` is in standard deviations of the reference, `deviation` the relative error of a standard deviation.
    """

    mean: float
    deviation: float

    @property
    def worst(self) -> float:
        """The larger of the two."""
        return max(self.mean, self.deviation)


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


def logistic(
    features: Rows, rewards: Vector, *, eta: float, precision: float, variational: bool, steps: int = 200
) -> Gaussian:
    """The best Gaussian for a logistic model under N(0, I / precision), by damped Newton steps.

    `variational`: the minimiser of the divergence to the posterior, its expectations by quadrature; else Laplace's.
    """
    dim = features.shape[1]

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

    mean = np.zeros(dim)
    for _ in range(steps):
        grad, hessian = looked(mean, np.zeros(len(rewards)))
        move = np.linalg.solve(hessian, grad)
        while potential(mean - move) > potential(mean) and np.linalg.norm(move) > 1e-12:
            move = 0.5 * move
        mean = mean - move
        if np.linalg.norm(move) < 1e-12 * (1.0 + np.linalg.norm(mean)):
            break
    grad, hessian = looked(mean, np.zeros(len(rewards)))
    for _ in range(50 if variational else 0):
        deviation = np.linalg.norm(np.linalg.solve(np.linalg.cholesky(hessian), features.T), axis=0)
        grad, curved = looked(mean, deviation)
        hessian = 0.5 * hessian + 0.5 * curved
        mean = mean - 0.5 * np.linalg.solve(hessian, grad)
    return Gaussian(mean, np.linalg.cholesky(hessian).T)


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
