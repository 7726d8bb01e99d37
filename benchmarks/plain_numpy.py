"""VITS-II on the linear bandit in plain NumPy, one seed after the other."""

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


def vits_ii(
    seed: int,
    *,
    horizon: int,
    dim: int,
    num_arms: int,
    zeta: float,
    inverse_temperature: float,
    prior_precision: float,
    step_size: float,
    num_steps: int,
) -> float:
    """Cumulative regret of one seed, in single precision like the library."""
    f = np.float32
    rng = np.random.default_rng(seed)
    pool = rng.standard_normal((num_arms, dim), dtype=f)
    theta_star = rng.standard_normal(dim, dtype=f) / f(np.sqrt(dim))
    noise, spread, eta = f(np.sqrt(1 + zeta**2)), f(zeta), f(inverse_temperature)
    scale = f(np.sqrt(inverse_temperature * prior_precision))
    mu: Vector = np.zeros(dim, f)
    B: Vector = np.eye(dim, dtype=f) / scale
    C: Vector = np.eye(dim, dtype=f) * scale
    P: Vector = np.eye(dim, dtype=f) * scale**2
    b: Vector = np.zeros(dim, f)
    regret = 0.0
    for _ in range(horizon):
        arms = pool[rng.integers(num_arms, size=num_arms)] + spread * rng.standard_normal((num_arms, dim), dtype=f)
        means = arms @ theta_star
        rewards = means + noise * rng.standard_normal(num_arms, dtype=f)
        theta = mu + B @ rng.standard_normal(dim, dtype=f)
        arm = int(np.argmax(arms @ theta))
        regret += float(means.max() - means[arm])
        x, r = arms[arm], rewards[arm]
        P = P + eta * np.outer(x, x)
        b = b + eta * r * x
        h = f(step_size) / np.linalg.eigvalsh(P)[-1]
        for _ in range(num_steps):
            z = B @ rng.standard_normal(dim, dtype=f)
            gradient = ((P @ (mu + z) - b) + (P @ (mu - z) - b)) / f(2)
            gap = C.T @ C - P
            mu, B, C = mu - h * gradient, B - h * (P @ B) + h * C.T, C - h * (C @ gap)
    return regret
