"""Networks of 10^4 to 10^6 parameters: time and memory of a round, the agent's decisions, and how they grow.

The network is 20 -> w -> 50 -> 1: its first hidden layer grows, so that the last one, whose exact Gaussian costs the
cube of its width, is the same for all sizes. A round takes ten steps of 64 observations out of 200.
"""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import vits
from benchmarks.timing import Measurement, best_seconds, exponent
from vits.policies import Thompson
from vits.types import Observation, State

DIM, LAST, OBSERVATIONS, ARMS = 20, 50, 200, 100
SIZES = (10**4, 10**5, 10**6)
RANKS = (5, 10, 20, 40, 80)
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "vits_ng, diagonal": ("vits_ng", {"covariance": "diagonal"}),
    "vits_ng, low rank 20": ("vits_ng", {"covariance": "low_rank", "rank": 20}),
    "vits_ii, diagonal": ("vits_ii", {"covariance": "diagonal"}),
    "vits_ii, low rank 20": ("vits_ii", {"covariance": "low_rank", "rank": 20}),
    "last_layer_ts": ("last_layer_ts", {}),
}
TRIADS = 200


def rows(
    *, sizes: tuple[int, ...] = SIZES, ranks: tuple[int, ...] = RANKS, forms: tuple[str, ...] = tuple(FORMS)
) -> list[Measurement]:
    """A row of the machine itself, one for each form against p, two against the rank, and the decisions of agents."""
    middle = sizes[len(sizes) // 2]
    found = [_row("x + a y on vectors of p numbers", sizes, [(triad(p), 0) for p in sizes], "p", "")]
    for name in forms:
        algorithm, settings = FORMS[name]
        measured = [a_round(algorithm, p, **settings) for p in sizes]
        found.append(_row(f"{name}, a round", sizes, measured, "p", "<= 1.1"))
    for algorithm in ("vits_ng", "vits_ii"):
        measured = [a_round(algorithm, middle, covariance="low_rank", rank=rank) for rank in ranks]
        found.append(
            _row(f"{algorithm}, low rank, {middle:,} parameters, a round", ranks, measured, "the rank", "<= 2")
        )
    found += [decisions(name, middle) for name in forms]
    return found


def network(num_params: int) -> vits.models.Mlp:
    """About this many parameters."""
    return vits.models.mlp(DIM, hidden=(round((num_params - 2 * LAST - 1) / (DIM + 1 + LAST)), LAST))


def triad(size: int) -> float:
    """Seconds of x + a y: what the caches of the machine alone make of larger vectors."""
    x, y = jnp.ones(size), jnp.ones(size)
    many = jax.jit(lambda x, y: jax.lax.fori_loop(0, TRIADS, lambda _, x: x + 1e-3 * y, x))
    return best_seconds({"": lambda: jax.block_until_ready(many(x, y))}, repeats=5)[""] / TRIADS


def a_round(algorithm: str, num_params: int, **settings: Any) -> tuple[float, int]:
    """Seconds and bytes of one update: its arguments, its results and all that it holds in between."""
    common = {"inverse_temperature": 10.0, "prior_precision": 20.0, "capacity": OBSERVATIONS + 1}
    policy = vits.make(algorithm, network(num_params), **common, **settings)
    state = _filled(policy)

    def update(key: Any, state: State) -> tuple[State, Any]:
        new, info = policy.update(key, state, _observation(OBSERVATIONS))
        return new, info.reason

    program = jax.jit(update).lower(jax.random.key(0), state).compile()
    memory = program.memory_analysis()
    used = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes

    def work() -> None:
        _, reason = jax.block_until_ready(program(jax.random.key(0), state))
        assert int(reason) == 0

    repeats = int(np.clip(3 * 10**5 // num_params, 3, 20))
    return best_seconds({"": work}, repeats=repeats)[""], used


def decisions(name: str, num_params: int, calls: int = 100) -> Measurement:
    """How long `Agent.decide` takes among 100 arms, after some rewards."""
    algorithm, settings = FORMS[name]
    agent = vits.Agent(algorithm, model=network(num_params), seed=0, **settings)
    arms = np.random.default_rng(0).normal(size=(ARMS, DIM))
    for _ in range(3):
        agent.learn(agent.decide(arms).id, 1.0)
    seconds = np.empty(calls)
    for call in range(calls):
        started = time.perf_counter()
        agent.decide(arms)
        seconds[call] = time.perf_counter() - started
    took = f"{1e3 * np.median(seconds):.2f} ms (p99 {1e3 * np.quantile(seconds, 0.99):.2f})"
    return Measurement(f"{name}, {num_params:,} parameters, decide among {ARMS} arms", took, "", "", "<= 5 ms")


def _filled(policy: Thompson) -> State:
    """The prior with observations that nothing was learned from."""
    state = policy.init(jax.random.key(0))
    observe = eqx.filter_jit(policy.posterior.potential.observe)
    data = state.data
    for t in range(OBSERVATIONS):
        data = observe(data, _observation(t))
    return state._replace(data=data)


def _observation(t: int) -> Observation:
    features = jax.random.normal(jax.random.key(t), (DIM,))
    return Observation(features, features[0])


def _row(what: str, sizes: tuple[int, ...], measured: list[tuple[float, int]], variable: str, goal: str) -> Measurement:
    times = ", ".join(f"{size:,}: {_time(seconds)}" for size, (seconds, _) in zip(sizes, measured, strict=True))
    memory = ", ".join(
        f"{size:,}: {used / 1e6:,.0f} MB" for size, (_, used) in zip(sizes, measured, strict=True) if used
    )
    fitted = f"exponent {exponent(list(sizes), [seconds for seconds, _ in measured]):.2f} in {variable}"
    return Measurement(what, times, memory, fitted, goal)


def _time(seconds: float) -> str:
    return f"{1e6 * seconds:.0f} us" if seconds < 1e-3 else f"{1e3 * seconds:,.1f} ms"
