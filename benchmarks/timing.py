"""The clock, and the shape of a row."""

import time
from collections.abc import Callable
from typing import NamedTuple


class Measurement(NamedTuple):
    """One row of the table."""

    what: str
    ours: str
    reference: str
    ratio: str
    goal: str


def best_seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The fastest of a few runs, after one that warms everything up."""
    work()
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
