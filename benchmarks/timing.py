"""Timers, the peak of the machine, and the row of a table."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

Work = Callable[[], object]


class Measurement(NamedTuple):
    """One row of the table."""

    what: str
    ours: str
    reference: str
    ratio: str
    goal: str


def seconds_by_turn(works: Mapping[str, Work], repeats: int = 3) -> dict[str, Float[np.ndarray, " repeats"]]:
    """The seconds of every run of each work, after one that warms it up.

    The works take turns, so that other work on the machine slows all of them.
    """
    for work in works.values():
        work()
    seconds = {name: np.empty(repeats) for name in works}
    for turn in range(repeats):
        for name, work in works.items():
            started = time.perf_counter()
            work()
            seconds[name][turn] = time.perf_counter() - started
    return seconds


def best_seconds(works: Mapping[str, Work], repeats: int = 3) -> dict[str, float]:
    """The fastest run of each work."""
    return {name: float(np.min(seconds)) for name, seconds in seconds_by_turn(works, repeats).items()}


PEAK = "peak"


def peak_work(size: int = 2048) -> Work:
    """A product of two large matrices: the most that this machine can do in single precision."""
    matrix = jax.random.normal(jax.random.key(0), (size, size))
    product = jax.jit(lambda x: x @ x)
    return lambda: jax.block_until_ready(product(matrix))


def peak_flops(seconds: float, size: int = 2048) -> float:
    """Floating-point operations a second of `peak_work`."""
    return 2.0 * size**3 / seconds


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """b in seconds ~ sizes^b, by least squares on the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


class Compilations:
    """How many programs XLA was asked for; the first use starts the count."""

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event: str, seconds: float, **rest: Any) -> None:
        self.count += "backend_compile" in event
