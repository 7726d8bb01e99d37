"""The time of a round as the data, the features, the arms and the seeds grow; nothing may compile twice."""

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

import vits
from benchmarks.timing import Compilations, Measurement, best_seconds, exponent
from vits import simulation
from vits.history import with_capacity
from vits.policies import Policy
from vits.potentials import Centre
from vits.types import Observation

ROUNDS = (100, 300, 1000, 3000, 10_000)
DIMS = (5, 20, 50, 100, 200, 500)
ARMS = (10, 100, 1000, 10_000)
SEEDS = (1, 5, 25, 100, 500)
WINDOW = 100


def rows(
    *,
    rounds: tuple[int, ...] = ROUNDS,
    dims: tuple[int, ...] = DIMS,
    arms: tuple[int, ...] = ARMS,
    seeds: tuple[int, ...] = SEEDS,
) -> list[Measurement]:
    """One row per form, with the exponent that fits the times."""
    linear, logistic = vits.models.linear(20), vits.models.logistic(20)
    forms = {
        "quadratic": (vits.make("vits_ii", linear), "0 +- 0.1"),
        "windowed": (vits.make("vits_ii", logistic, window=WINDOW), "0 +- 0.1"),
        "folding": (vits.make("vits_ii", logistic, fold_after=WINDOW), "0 +- 0.1"),
        "minibatch": (vits.make("vits_ii", logistic, minibatch=WINDOW), ""),
        "glm": (vits.make("vits_ii", logistic), "<= 1"),
    }
    found = [in_rounds(name, policy, rounds, goal) for name, (policy, goal) in forms.items()]
    found.append(_row("d", dims, [_simulation(dim=dim) for dim in dims], ""))
    found.append(_row("arms", arms, [_simulation(arms=number, horizon=20) for number in arms], ""))
    found.append(_row("seeds", seeds, [_simulation(seeds=number) for number in seeds], "<= 1"))
    return found


def _row(variable: str, sizes: tuple[int, ...], seconds: list[float], goal: str) -> Measurement:
    times = ", ".join(f"{size}: {_text(second)}" for size, second in zip(sizes, seconds, strict=True))
    return Measurement(f"vits_ii, time of a round against {variable}", times, "", _fitted(sizes, seconds), goal)


def in_rounds(name: str, policy: Policy, rounds: tuple[int, ...], goal: str) -> Measurement:
    """One update of one program, with more and more data in the buffer."""
    policy = with_capacity(policy, max(rounds))
    update = jax.jit(lambda key, state, observation: policy.update(key, state, observation)[0])
    states = {t: _filled(policy, t) for t in rounds}
    observation = Observation(jnp.ones(20) / 20.0, jnp.ones(()))

    def work(state: Any) -> Any:
        return lambda: jax.block_until_ready(update(jax.random.key(0), state, observation).mean)

    work(states[rounds[0]])()
    compilations = Compilations()
    seconds = best_seconds({str(t): work(state) for t, state in states.items()}, repeats=20)
    row = _row("t", rounds, [seconds[str(t)] for t in rounds], goal)
    again = f"{1 + compilations.count} compilation{'s' if compilations.count else ''}"
    return row._replace(what=f"vits_ii, {name}: time of a round against t", reference=again)


def _filled(policy: Policy, t: int) -> Any:
    """A state with t observations, inserted without learning from them."""
    keys = jax.random.split(jax.random.key(1), t)
    features = jax.vmap(lambda key: jax.random.normal(key, (20,)) / 20.0)(keys)
    observe = policy.posterior.potential.observe
    state = policy.init(jax.random.key(0))

    def add(i: Any, data: Any) -> Any:
        observation = Observation(features[i], (features[i, 0] > 0).astype(features.dtype))
        return observe(data, observation, Centre(state.mean, state.sqrt_cov))

    return state._replace(data=jax.jit(lambda data: jax.lax.fori_loop(0, t, add, data))(state.data))


def _simulation(*, dim: int = 20, arms: int = 50, seeds: int = 1, horizon: int = simulation.SEGMENT) -> float:
    """Seconds a round, of all seeds together."""
    world = vits.environments.linear(dim=dim, num_arms=arms)
    policy = vits.make("vits_ii", vits.models.linear(dim))
    horizon = min(horizon, max(3, 2000 // dim))
    return best_seconds({"": lambda: vits.simulate(0, world, policy, horizon, seeds=seeds)}, repeats=2)[""] / horizon


def _fitted(sizes: Iterable[int], seconds: list[float]) -> str:
    return f"exponent {exponent(list(sizes), seconds):.2f}"


def _text(seconds: float) -> str:
    return f"{1e6 * seconds:.0f} us" if seconds < 1e-2 else f"{1e3 * seconds:.0f} ms"
