"""The parts of a round of VITS-II at d = 20: their processor time on one thread, for a batch of seeds."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import vits
from benchmarks.timing import Measurement, Work

DIM, ARMS, STEPS = 20, 50, 10
LOOP = 100
"""Repetitions within one program, so that the time of the call is negligible."""


def rows(*, seeds: int = 25, horizon: int = 300, repeats: int = 5) -> list[Measurement]:
    """Microseconds per round and seed."""
    works = _whole(seeds, horizon) | _pieces(seeds)
    rounds = {name: seeds * (horizon if name in _whole_names() else LOOP) for name in works}
    seconds = _least_cpu(works, repeats)
    return [
        Measurement(f"d = {DIM}, {ARMS} arms: {name}", f"{1e6 * seconds[name] / rounds[name]:.1f} us CPU", "", "", "")
        for name in works
    ]


def _whole_names() -> dict[str, tuple[str, dict[str, Any]]]:
    return {
        f"a round, {STEPS} steps": ("vits_ii", {"num_steps": STEPS}),
        "a round, 1 step": ("vits_ii", {"num_steps": 1}),
        "a round of the environment": ("uniform", {}),
    }


def _whole(seeds: int, horizon: int) -> dict[str, Work]:
    world, model = vits.environments.linear(dim=DIM, num_arms=ARMS), vits.models.linear(DIM)

    def play(algorithm: str, settings: dict[str, Any]) -> Work:
        policy = vits.make(algorithm, model, **settings)
        return lambda: vits.simulate(0, world, policy, horizon, seeds=seeds, workers=1)

    return {name: play(*made) for name, made in _whole_names().items()}


def _pieces(seeds: int) -> dict[str, Work]:
    keys = jax.random.split(jax.random.key(0), seeds)
    A = jnp.eye(DIM) + 0.01 * jax.vmap(lambda key: jax.random.normal(key, (DIM, DIM)))(keys)
    h = 1e-3

    def recursion(i: Any, carry: Any) -> Any:
        A, B, D = carry
        return A, B - h * A @ B + h * D, D - h * (D @ D.T - A) @ D

    def products(i: Any, carry: Any) -> Any:
        A, B, D = carry
        return A, A @ B, D @ D

    def normals(number: int) -> Callable[[Any, Any], Any]:
        def draw(i: Any, carry: Any) -> Any:
            key, total = carry
            return key, total + jax.random.normal(jax.random.fold_in(key, i), (number,))

        return draw

    def steps(body: Callable[[Any, Any], Any]) -> Work:
        return _looped(lambda i, carry: jax.lax.fori_loop(0, STEPS, body, carry), (A, A, A))

    return {
        f"{STEPS} steps of B and D, alone": steps(recursion),
        f"{2 * STEPS} products of {DIM} x {DIM} matrices": steps(products),
        f"{ARMS * (DIM + 1)} normals": _looped(normals(ARMS * (DIM + 1)), (keys, jnp.zeros((seeds, ARMS * (DIM + 1))))),
        f"{STEPS * DIM} normals": _looped(normals(STEPS * DIM), (keys, jnp.zeros((seeds, STEPS * DIM)))),
    }


def _looped(body: Callable[[Any, Any], Any], carry: Any) -> Work:
    """`LOOP` turns for all seeds, as one program."""
    program = jax.jit(jax.vmap(lambda carry: jax.lax.fori_loop(0, LOOP, body, carry)))
    return lambda: jax.block_until_ready(program(carry))


def _least_cpu(works: Mapping[str, Work], repeats: int) -> dict[str, float]:
    for work in works.values():
        work()
    least = dict.fromkeys(works, np.inf)
    for _ in range(repeats):
        for name, work in works.items():
            started = time.process_time()
            work()
            least[name] = min(least[name], time.process_time() - started)
    return least
