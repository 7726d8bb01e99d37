"""The error of folding: posteriors with folded observations, against the best Gaussian for all observations."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import vits
from vits.inference.base import Moments
from vits.policies import Thompson
from vits.types import Observation


class Problem(NamedTuple):
    """Logistic observations with features of one length; theta has independent N(0, size^2) entries."""

    dim: int
    number: int
    length: float
    size: float
    inverse_temperature: float


PROBLEMS = (
    Problem(10, 500, 1.0, 1.0, 1.0),
    Problem(10, 500, 4.0, 1.0, 1.0),
    Problem(5, 400, 1.0, 2.0, 1.0),
    Problem(10, 500, 1.0, 1.0, 10.0),
    Problem(10, 500, 1.0, 1.0, 100.0),
)
ALGORITHMS = ("vits_ng", "vits_ii", "laplace_ts")
FOLDS = (1, 50, None)
"""Observations that are not folded; None for all."""


class Distance(NamedTuple):
    """The distance of a posterior from the best one, averaged over data sets.

    `mean` is the distance of the means in standard deviations, over all directions together, `variance` the largest
    relative error of a variance along any direction.
    """

    mean: float
    variance: float
    rejected: int


def run(problem: Problem, algorithm: str, fold_after: int | None, seeds: Sequence[int] = range(4)) -> Distance:
    """One row of the table."""
    room: dict[str, Any] = {"capacity": problem.number}
    folded = room if fold_after is None else {"fold_after": fold_after}
    found = []
    for seed in seeds:
        best_mean, best_root, _ = learnt(problem, "vits_ng", seed, num_steps=10, tolerance=0.0, **room)
        mean, root, rejected = learnt(problem, algorithm, seed, **folded)
        whiten = np.linalg.inv(best_root)
        relative = whiten @ root
        off = np.linalg.norm(whiten @ (mean - best_mean))
        found.append((off, np.max(np.abs(np.linalg.eigvalsh(relative @ relative.T) - 1.0)), rejected))
    means, variances, rejections = zip(*found, strict=True)
    return Distance(float(np.mean(means)), float(np.mean(variances)), int(np.sum(rejections)))


def learnt(
    problem: Problem, algorithm: str, seed: int, **settings: Any
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"], int]:
    """Mean and root of the covariance after one observation at a time, and how many were rejected."""
    dim, number, length, size, eta = problem
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(number, dim))
    features *= length / np.linalg.norm(features, axis=1, keepdims=True)
    chances = 1.0 / (1.0 + np.exp(-features @ (size * rng.normal(size=dim))))
    rewards = (rng.uniform(size=number) < chances).astype(float)
    policy = cast(Thompson, vits.make(algorithm, vits.models.logistic(dim), inverse_temperature=eta, **settings))
    moments, rejected = _learn(policy, jnp.asarray(features, float), jnp.asarray(rewards, float))
    return np.asarray(moments.mean, np.float64), np.asarray(moments.sqrt_cov, np.float64), int(rejected)


@eqx.filter_jit
def _learn(
    policy: Thompson, features: Float[Array, "n d"], rewards: Float[Array, " n"]
) -> tuple[Moments, Int[Array, ""]]:
    posterior: Any = policy.posterior

    def update(state: Any, row: Any) -> Any:
        key, *observation = row
        state, info = posterior.update(key, state, Observation(*observation))
        return state, info.rejected

    keys = jax.random.split(jax.random.key(1), rewards.shape[0])
    state, rejected = jax.lax.scan(update, posterior.init(jax.random.key(0)), (keys, features, rewards))
    return posterior.moments(state), jnp.sum(rejected)
