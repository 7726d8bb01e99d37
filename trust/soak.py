"""Long runs: a million rounds of LinTS and of windowed VITS-II, a hundred thousand of full-history logistic VITS-II.

After each, the posterior is compared with one computed from the same observations at once, in double precision.
"""

import resource
import sys
import time
from collections.abc import Callable
from typing import NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

import vits
from trust import reference
from vits.algorithms.vits import INVERSE_TOLERANCE
from vits.inference.base import GaussianPosterior
from vits.policies import PosteriorPolicy
from vits.types import Info, Observation, State

DIM, ARMS = 5, 4
CHUNK = 5_000
"""Rounds in one call of the compiled program, which returns their diagnostics as arrays."""

TOLERANCE = 0.01
"""Of a standard deviation, for the mean and for the deviations themselves, along the worst direction."""

MEMORY = 16.0
"""MiB by which the peak of memory may grow after the first fifth of a run: what Python's allocator does by itself."""


class Soak(NamedTuple):
    """A run: its policy, its length, the number of last observations that count, and the reference posterior."""

    name: str
    policy: PosteriorPolicy
    rounds: int
    kept: int
    reference: Callable[[Float[np.ndarray, "n d"], Float[np.ndarray, " n"]], reference.Gaussian]


class Outcome(NamedTuple):
    """The measurements of a run."""

    name: str
    rounds: int
    seconds: float
    not_finite: int
    rejected: int
    refreshed: int
    inverse_error: float
    distance: reference.Distance
    memory_growth: float

    @property
    def passed(self) -> bool:
        """Whether all promises were kept."""
        return (
            self.not_finite == self.rejected == 0
            and self.inverse_error <= INVERSE_TOLERANCE
            and self.distance.worst <= TOLERANCE
            and self.memory_growth <= MEMORY
        )


def soaks(scale: float = 1.0) -> list[Soak]:
    """The three runs; a scale below 1 makes them shorter."""
    linear, logistic = vits.models.linear(DIM), vits.models.logistic(DIM)
    million, tenth = (max(CHUNK, int(scale * n) // CHUNK * CHUNK) for n in (1_000_000, 100_000))
    window = 256
    exact = lambda phi, r: reference.linear(phi, r, eta=1.0, precision=1.0)  # noqa: E731
    closest = lambda phi, r: reference.logistic(phi, r, eta=1.0, precision=1.0, variational=True)  # noqa: E731
    windowed = vits.algorithms.vits_ii(linear, window=window, num_steps=20)
    full = vits.algorithms.vits_ii(logistic, num_steps=2, capacity=tenth)
    return [
        Soak("lin_ts", vits.algorithms.lin_ts(linear), million, million, exact),
        Soak("vits_ii, window 256", windowed, million, window, exact),
        Soak("vits_ii, logistic, all data", full, tenth, tenth, closest),
    ]


def world(key: Key[Array, ""], is_logistic: bool, theta: Float[Array, " d"]) -> tuple[Array, Array]:
    """Features of the arms, and the reward of each."""
    arms_key, noise_key = jax.random.split(key)
    arms = jax.random.normal(arms_key, (ARMS, DIM))
    f = arms @ theta
    if is_logistic:
        return arms, (jax.random.uniform(noise_key, f.shape) < jax.nn.sigmoid(f)).astype(f.dtype)
    return arms, f + jax.random.normal(noise_key, f.shape)


@eqx.filter_jit
def play(policy: PosteriorPolicy, state: State, key: Key[Array, ""]) -> tuple[State, tuple[Array, Array, Info]]:
    """`CHUNK` rounds, and the observations and diagnostics of each."""
    is_logistic = isinstance(policy.model, vits.models.Logistic)
    theta = jnp.linspace(-0.5, 0.5, DIM)

    def one(state: State, key: Key[Array, ""]) -> tuple[State, tuple[Array, Array, Info]]:
        world_key, act_key, update_key = jax.random.split(key, 3)
        arms, rewards = world(world_key, is_logistic, theta)
        arm = policy.act(act_key, state, arms)
        state, info = policy.update(update_key, state, Observation(arms[arm], rewards[arm], arm, arms))
        return state, (arms[arm], rewards[arm], info)

    return jax.lax.scan(one, state, jax.random.split(key, CHUNK))


def run(soak: Soak, progress: Callable[[int], None] = lambda _: None) -> Outcome:
    """Play, watch, and compare with the recomputation at the end."""
    started, root = time.perf_counter(), jax.random.key(0)
    state = soak.policy.init(root)
    # Filled in place and touched beforehand, so that what is kept for the recomputation does not look like a leak.
    features, rewards = np.ones((soak.kept, DIM)), np.ones(soak.kept)
    not_finite, rejected, refreshed, error, settled = 0, 0, 0, 0.0, 0.0
    for first in range(0, soak.rounds, CHUNK):
        state, (phi, r, info) = play(soak.policy, state, jax.random.fold_in(root, first))
        at = np.arange(first, first + CHUNK) % soak.kept
        features[at], rewards[at] = phi, r
        not_finite += int(np.sum(~info.is_finite))
        rejected += int(np.sum(info.rejected))
        refreshed += int(np.sum(info.refreshed))
        error = float(np.maximum(error, np.max(info.inverse_error)))
        progress(CHUNK)
        if first <= soak.rounds // 5:
            settled = peak_memory()
    growth, seconds = peak_memory() - settled, time.perf_counter() - started
    mean, sqrt_cov = (np.asarray(x, np.float64) for x in cast(GaussianPosterior, soak.policy.posterior).moments(state))
    distance = reference.distance(mean, sqrt_cov, soak.reference(features, rewards))
    return Outcome(soak.name, soak.rounds, seconds, not_finite, rejected, refreshed, error, distance, growth)


def peak_memory() -> float:
    """The most memory that this process has had, in MiB."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
