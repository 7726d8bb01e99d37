"""The error of bounded storage: agents with the default storage, against agents that store all observations."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import vits

TESTED = 200
"""New feature vectors at which expected rewards are compared."""

NOISE = 0.3
"""Standard deviation of the rewards of a network."""


class Problem(NamedTuple):
    """Observations with features of one length, whose rewards follow the model; theta ~ N(0, size^2 I).

    For a network, rewards are those of another network of the same shape, with `hidden` units and noise.
    """

    model: str
    dim: int
    number: int
    length: float
    size: float
    hidden: int = 8


class Row(NamedTuple):
    """A problem, and an agent that learns it. The agent it is compared with keeps all data, and has the seed 0."""

    problem: Problem
    algorithm: str
    settings: dict[str, Any]


LOGISTIC, LONG = Problem("logistic", 10, 10_000, 1.0, 1.0), Problem("logistic", 20, 10_000, 4.5, 0.5)
POISSON, STEEP = Problem("poisson", 10, 10_000, 1.0, 1.0), Problem("poisson", 10, 4_000, 4.0, 0.5)
NETWORK = Problem("mlp", 4, 4_000, 2.0, 1.0)
LARGER = NETWORK._replace(hidden=20)
ROWS = (
    *(Row(LOGISTIC, algorithm, {}) for algorithm in ("vits_ng", "vits_ii", "laplace_ts")),
    *(Row(LONG, algorithm, {}) for algorithm in ("vits_ng", "laplace_ts")),
    Row(LOGISTIC, "vits_ng", {"covariance": "diagonal"}),
    *(Row(POISSON, algorithm, {}) for algorithm in ("vits_ng", "vits_ii", "laplace_ts")),
    *(Row(STEEP, algorithm, {}) for algorithm in ("vits_ng", "vits_ii", "laplace_ts")),
    Row(NETWORK, "vits_ng", {}),
    *(Row(NETWORK, "vits_ng", {"fold_after": number}) for number in (128, 512)),
    Row(NETWORK, "vits_ng", {"window": 1024}),
    Row(NETWORK, "vits_ng", {"capacity": NETWORK.number, "seed": 1}),
    *(Row(LARGER, algorithm, {}) for algorithm in ("vits_ng", "laplace_ts")),
    Row(LARGER, "vits_ng", {"window": 1024}),
    Row(LARGER, "laplace_ts", {"window": 1024}),
    *(Row(LARGER, algorithm, {"capacity": LARGER.number, "seed": 1}) for algorithm in ("vits_ng", "laplace_ts")),
)
"""Default storages; for networks others too, and another seed: how far two agents with all data are apart."""


class Difference(NamedTuple):
    """The difference between the default storage and all data: the worst of all data sets.

    `mean` is the distance of the means in standard deviations, per direction; `least` and `largest` are the ratios of
    variances over all directions. For a network, whose parameters are not identified, these are taken over the expected
    rewards at new features, the ratios without the outer 5 %. `error` and `full_error` are the root mean square errors
    of the expected rewards, with the default storage and with all data.
    """

    storage: str
    mean: float
    least: float
    largest: float
    error: float
    full_error: float


def run(row: Row, seeds: Sequence[int] = range(2)) -> Difference:
    """The figures of one row of the table."""
    found = [_compared(row, seed) for seed in seeds]
    return Difference(
        storage=found[0].storage,
        mean=max(each.mean for each in found),
        least=min(each.least for each in found),
        largest=max(each.largest for each in found),
        error=max(each.error for each in found),
        full_error=max(each.full_error for each in found),
    )


def _compared(row: Row, seed: int) -> Difference:
    all_data = {"window": None, "fold_after": None, "capacity": row.problem.number, "seed": 0}
    bounded = _learned(row.problem, row.algorithm, seed, tuple(row.settings.items()))
    full = _learned(row.problem, row.algorithm, seed, tuple((row.settings | all_data).items()))
    if row.problem.model == "mlp":
        deviations = [each.expected.std(axis=0) for each in (bounded, full)]
        off = (bounded.expected.mean(axis=0) - full.expected.mean(axis=0)) / deviations[1]
        ratios = np.quantile((deviations[0] / deviations[1]) ** 2, [0.05, 0.95])
    else:
        whiten = np.linalg.inv(np.linalg.cholesky(full.covariance.astype(np.float64)))
        off, ratios = whiten @ (bounded.mean - full.mean), np.linalg.eigvalsh(whiten @ bounded.covariance @ whiten.T)
    distance = float(np.sqrt(np.mean(off**2)))
    return Difference(bounded.storage, distance, float(ratios.min()), float(ratios.max()), bounded.error, full.error)


class _Learned(NamedTuple):
    """What an agent stores, its posterior, draws of expected rewards at new features, and the error of their mean."""

    storage: str
    mean: Float[np.ndarray, " params"]
    covariance: Float[np.ndarray, "params params"]
    expected: Float[np.ndarray, "draws n"]
    error: float


@functools.cache
def _learned(problem: Problem, algorithm: str, seed: int, settings: tuple[tuple[str, Any], ...]) -> _Learned:
    rng, is_network = np.random.default_rng(seed), problem.model == "mlp"
    model = (
        vits.models.mlp(problem.dim, (problem.hidden,))
        if is_network
        else getattr(vits.models, problem.model)(problem.dim)
    )
    theta = problem.size * rng.normal(size=model.num_params)
    features, tested = (_features(problem, rng, count) for count in (problem.number, TESTED))
    expected, truth = (_rewards(model, theta[None], rows)[0] for rows in (features, tested))
    rewards = {
        "logistic": lambda: rng.random(problem.number) < expected,
        "poisson": lambda: rng.poisson(expected),
        "mlp": lambda: expected + NOISE * rng.normal(size=problem.number),
    }[problem.model]()
    noise: dict[str, Any] = {"inverse_temperature": NOISE**-2} if is_network else {}
    agent = vits.Agent(algorithm, model, **noise, **dict(settings))
    agent.partial_fit(features, rewards.astype(float))
    posterior = agent.posterior()
    draws = _rewards(model, posterior.draws, tested)
    error = float(np.sqrt(np.mean((draws.mean(axis=0) - truth) ** 2)))
    return _Learned(agent.diagnostics().storage, posterior.mean, posterior.covariance, draws, error)


def _features(problem: Problem, rng: np.random.Generator, count: int) -> Float[np.ndarray, "n dim"]:
    rows = rng.normal(size=(count, problem.dim))
    return problem.length * rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _rewards(model: Any, thetas: Any, rows: Any) -> Float[np.ndarray, "draws n"]:
    return np.asarray(_means(model, jnp.asarray(thetas, float), jnp.asarray(rows, float)), np.float64)


@eqx.filter_jit
def _means(model: Any, thetas: Float[Array, "draws params"], rows: Float[Array, "n dim"]) -> Float[Array, "draws n"]:
    """The expected reward of each row under each draw."""
    return jax.vmap(lambda theta: jax.vmap(model.mean, (None, 0))(theta, rows))(thetas)
