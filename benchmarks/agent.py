"""The latency of one call of an agent, and whether it stays the same: `python -m benchmarks agent`."""

import re
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import vits
from benchmarks.timing import Compilations, Measurement

DIM, ARMS = 20, 50
WARM_UP = 100
"""Rounds before calls are timed."""
MODELS = {"linear": ("lin_ts", "vits_ii", "vits_ng"), "logistic": ("vits_ii", "vits_ng", "laplace_ts")}
"""The algorithms of each model."""


class Quantiles(NamedTuple):
    """The median and the 99th percentile of a call, in microseconds."""

    p50: float
    p99: float


def quantiles(seconds: Any) -> Quantiles:
    """Quantiles of times after the warm-up."""
    timed = seconds[min(WARM_UP, len(seconds) // 2) :]
    return Quantiles(*(1e6 * float(np.quantile(timed, q)) for q in (0.5, 0.99)))


def play(agent: vits.Agent, arms: Any, rewards: Any) -> tuple[list[float], list[float]]:
    """Seconds of `decide` and `learn` in each round: `arms` (rounds, arms, dim) and `rewards` (rounds, arms)."""
    decide, learn = [], []
    for t in range(len(arms)):
        started = time.perf_counter()
        decision = agent.decide(arms[t])
        decided = time.perf_counter()
        agent.learn(decision, float(rewards[t, decision.arm]))
        decide.append(decided - started)
        learn.append(time.perf_counter() - decided)
    return decide, learn


def calls(algorithm: str, model: str, arms: Any, rewards: Any) -> dict[str, Quantiles]:
    """Quantiles of `decide` and `learn` with the default settings."""
    agent = vits.Agent(algorithm, getattr(vits.models, model)(arms.shape[-1]))
    decide, learn = play(agent, arms, rewards)
    return {"decide": quantiles(decide), "learn": quantiles(learn)}


def rows(*, rounds: int = 10_000) -> list[Measurement]:
    """Whether learning slows down, compiles or takes memory in a long run, for models that store observations."""
    return [
        _long_run("vits_ii", vits.models.logistic(8), rounds, "the README's agent"),
        _long_run("vits_ii", vits.models.poisson(8), rounds, "vits_ii, poisson"),
    ]


def _long_run(algorithm: str, model: Any, rounds: int, name: str) -> Measurement:
    rng = np.random.default_rng(0)
    arms = rng.normal(size=(rounds, 10, model.dim)) / np.sqrt(model.dim)
    rewards = (rng.random((rounds, 10)) < 0.5).astype(float)
    agent = vits.Agent(algorithm, model)
    agent.warm_up()
    part = rounds // 10
    compilations = Compilations()
    play(agent, arms[:part], rewards[:part])
    memory = _memory()
    _, learn = play(agent, arms[part:], rewards[part:])
    first, last = (1e6 * float(np.median(times)) for times in (learn[:part], learn[-part:]))
    return Measurement(
        what=f"{name}, {rounds} rewards after warm_up: learn, the last {part} against the second {part}",
        ours=f"{last:.0f} us, {compilations.count} compilations, {(_memory() - memory) / 2**20:+.1f} MiB",
        reference=f"{first:.0f} us",
        ratio=f"{last / first:.2f}x",
        goal="<= 1.1x",
    )


def _memory() -> int:
    """Resident bytes of this process."""
    return 1024 * int(re.findall(r"VmRSS:\s*(\d+) kB", Path("/proc/self/status").read_text())[0])
