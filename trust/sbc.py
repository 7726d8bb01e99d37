"""Simulation-based calibration: parameters drawn from the prior, data drawn from them, posteriors given the data.

If a posterior is right, the rank of the true parameter among draws from it is uniform, whatever the data.

Reference: Talts, Betancourt, Simpson, Vehtari and Gelman, "Validating Bayesian inference algorithms with
simulation-based calibration", 2018.
"""

from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from scipy import stats

import vits
from vits.policies import Thompson
from vits.types import Observation

DIM, COUNT = 3, 30
DRAWS, BINS = 63, 16
"""Draws to rank among, and bins of four ranks each."""

CONVERGED: dict[str, dict[str, Any]] = {
    "lin_ts": {},
    "vits_i": {"num_steps": 30},
    "vits_ii": {"num_steps": 30},
    "vits_ii_hf": {"num_steps": 30},
    "vits_ng": {},
    "laplace_ts": {},
}
"""The posteriors to check, with steps enough to reach what they aim at."""

FAMILIES: dict[str, dict[str, Any]] = {
    "rank 3": {"covariance": "low_rank", "rank": 3},
    "rank 1": {"covariance": "low_rank", "rank": 1},
    "diagonal": {"covariance": "diagonal"},
}

STRUCTURED: dict[str, dict[str, Any]] = {
    f"{algorithm}, {family}": {**CONVERGED[algorithm], **options}
    for algorithm in ("vits_ng", "vits_ii", "vits_ii_hf")
    for family, options in FAMILIES.items()
}
"""Posteriors of smaller families, by a label: of lower rank than the truth they are narrower than it, by design."""


class Calibration(NamedTuple):
    """What the ranks say, the coordinates pooled.

    `bias` and `width` are the mean and the standard deviation of (theta - mean) / sd, which should be 0 and 1.
    """

    algorithm: str
    model: str
    simulations: int
    p_value: float
    bias: float
    width: float
    rejected: int


def run(algorithm: str, model: str, simulations: int, seed: int = 0) -> Calibration:
    """Calibrate one algorithm. One coordinate a simulation, in turn: those of one simulation are not independent."""
    reward_model = vits.models.linear(DIM) if model == "linear" else vits.models.logistic(DIM)
    room = {} if algorithm == "lin_ts" else {"capacity": COUNT}
    options = {**CONVERGED, **STRUCTURED}[algorithm]
    policy = cast(Thompson, vits.make(algorithm.split(",")[0], reward_model, **options, **room))
    keys = jax.random.split(jax.random.key(seed), simulations)
    ranks, scores, rejected = (np.asarray(x) for x in _simulate(policy, keys, jnp.arange(simulations) % DIM))
    counts = np.bincount(ranks * BINS // (DRAWS + 1), minlength=BINS)
    p_value = float(stats.chisquare(counts).pvalue)
    return Calibration(
        algorithm, model, simulations, p_value, float(scores.mean()), float(scores.std()), int(rejected.sum())
    )


@eqx.filter_jit
def _simulate(
    policy: Thompson, keys: Key[Array, " n"], coordinates: Int[Array, " n"]
) -> tuple[Int[Array, " n"], Float[Array, " n"], Int[Array, " n"]]:
    is_logistic = isinstance(policy.model, vits.models.Logistic)

    def one(key: Key[Array, ""], coordinate: Int[Array, ""]) -> tuple[Array, Array, Array]:
        theta_key, phi_key, noise_key, learn_key, draw_key = jax.random.split(key, 5)
        theta = jax.random.normal(theta_key, (DIM,))
        phi = jax.random.normal(phi_key, (COUNT, DIM))
        f = phi @ theta
        if is_logistic:
            rewards = (jax.random.uniform(noise_key, f.shape) < jax.nn.sigmoid(f)).astype(f.dtype)
        else:
            rewards = f + jax.random.normal(noise_key, f.shape)

        def learn(state: Any, row: tuple[Array, Array, Array]) -> tuple[Any, Array]:
            state, info = policy.update(row[0], state, Observation(row[1], row[2]))
            return state, info.reason > 0

        rows = (jax.random.split(learn_key, COUNT), phi, rewards)
        state, rejected = jax.lax.scan(learn, policy.init(key), rows)
        draws = jax.vmap(policy.posterior.sample, (0, None))(jax.random.split(draw_key, DRAWS), state)
        marginals = policy.posterior.marginals(state)
        assert marginals is not None
        rank = jnp.sum(draws < theta[None, :], axis=0)
        scores = (theta - marginals.mean) / jnp.sqrt(marginals.variances)
        return rank[coordinate], scores[coordinate], jnp.sum(rejected)

    return jax.vmap(one)(keys, coordinates)
