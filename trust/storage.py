"""The error of bounded storage: agents with the default storage, against agents that store all observations."""

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

    For a network, rewards are those of another network of the same shape, with noise.
    """

    model: str
    dim: int
    number: int
    length: float
    size: float


GLMS = ("vits_ng", "vits_ii", "laplace_ts")
PROBLEMS = {
    Problem("logistic", 10, 10_000, 1.0, 1.0): GLMS,
    Problem("logistic", 20, 10_000, 4.5, 0.5): ("vits_ng", "laplace_ts"),
    Problem("poisson", 10, 10_000, 1.0, 1.0): GLMS,
    Problem("mlp", 4, 4_000, 2.0, 1.0): ("vits_ng",),
}
"""The algorithms for each problem."""


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


def run(problem: Problem, algorithm: str, seeds: Sequence[int] = range(2)) -> Difference:
    """One row of the table."""
    found = [_compared(problem, algorithm, seed) for seed in seeds]
    return Difference(
        storage=found[0].storage,
        mean=max(each.mean for each in found),
        least=min(each.least for each in found),
        largest=max(each.largest for each in found),
        error=max(each.error for each in found),
        full_error=max(each.full_error for each in found),
    )


def _compared(problem: Problem, algorithm: str, seed: int) -> Difference:
    rng, is_network = np.random.default_rng(seed), problem.model == "mlp"
    model = vits.models.mlp(problem.dim, (8,)) if is_network else getattr(vits.models, problem.model)(problem.dim)
    theta = problem.size * rng.normal(size=model.num_params)
    features, tested = (_features(problem, rng, count) for count in (problem.number, TESTED))
    expected, truth = (_rewards(model, theta[None], rows)[0] for rows in (features, tested))
    rewards = {
        "logistic": lambda: rng.random(problem.number) < expected,
        "poisson": lambda: rng.poisson(expected),
        "mlp": lambda: expected + NOISE * rng.normal(size=problem.number),
    }[problem.model]()
    settings: dict[str, Any] = {"inverse_temperature": NOISE**-2} if is_network else {}
    agents = [vits.Agent(algorithm, model, capacity=room, **settings) for room in (None, problem.number)]
    for agent in agents:
        agent.partial_fit(features, rewards.astype(float))
    bounded, full = (agent.posterior() for agent in agents)
    draws = [_rewards(model, each.draws, tested) for each in (bounded, full)]
    errors = [float(np.sqrt(np.mean((each.mean(axis=0) - truth) ** 2))) for each in draws]
    if is_network:
        deviations = [each.std(axis=0) for each in draws]
        off = (draws[0].mean(axis=0) - draws[1].mean(axis=0)) / deviations[1]
        ratios = np.quantile((deviations[0] / deviations[1]) ** 2, [0.05, 0.95])
    else:
        whiten = np.linalg.inv(np.linalg.cholesky(full.covariance.astype(np.float64)))
        off, ratios = whiten @ (bounded.mean - full.mean), np.linalg.eigvalsh(whiten @ bounded.covariance @ whiten.T)
    distance = float(np.sqrt(np.mean(off**2)))
    return Difference(agents[0].diagnostics().storage, distance, float(ratios.min()), float(ratios.max()), *errors)


def _features(problem: Problem, rng: np.random.Generator, count: int) -> Float[np.ndarray, "n dim"]:
    rows = rng.normal(size=(count, problem.dim))
    return problem.length * rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _rewards(model: Any, thetas: Any, rows: Any) -> Float[np.ndarray, "draws n"]:
    return np.asarray(_means(model, jnp.asarray(thetas, float), jnp.asarray(rows, float)), np.float64)


@eqx.filter_jit
def _means(model: Any, thetas: Float[Array, "draws params"], rows: Float[Array, "n dim"]) -> Float[Array, "draws n"]:
    """The expected reward of each row under each draw."""
    return jax.vmap(lambda theta: jax.vmap(model.mean, (None, 0))(theta, rows))(thetas)
