"""Whole simulations and single calls, against other libraries.

Both play the same rounds of the same seeds on the same machine, in turns.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import vits
from benchmarks import agent
from benchmarks.timing import Measurement
from vits import simulation
from vits.environments import Environment

PYTHON = Path(os.environ.get("VITS_PEERS", Path(__file__).parents[1] / ".venv-peers")) / "bin" / "python"
DIM, ARMS, REPEATS, TURNS = agent.DIM, agent.ARMS, 2, 9
SLOWEST = ("logistic", "vits_ii")
"""The model and the algorithm whose `learn` does the most work."""
PEERS = {
    "linear": ("bayesianbandits", "mabwiser"),
    "logistic": ("bayesianbandits (Laplace)", "bayesianbandits (RVGA)"),
}
"""The peers of each model."""
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "linear": {"": {}},
    "logistic": {", all data": {}, ", folding": {"fold_after": 1}},
}
"""How our algorithms are set in simulations: with the defaults, and as the logistic peers work."""


def rows(*, seeds: int = 50, horizon: int = 1000, peer_seeds: int = 2) -> list[Measurement]:
    """Rounds a second with many seeds, then quantiles of `decide` and `learn`."""
    found: list[Measurement] = []
    drawn = rounds(range(peer_seeds), horizon)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rounds.npz"
        np.savez(file, **drawn)
        with worker(file) as ask:
            for model in PEERS:
                found += _simulations(ask, model, seeds, horizon, peer_seeds)
            for model in PEERS:
                found += _calls(ask, model, drawn)
    return found


def world(model: str) -> Environment:
    """A bandit whose rewards follow the model."""
    make = {"linear": vits.environments.linear, "logistic": vits.environments.fixed_logistic}
    return make[model](dim=DIM, num_arms=ARMS)


def rounds(seeds: Any, horizon: int) -> dict[str, np.ndarray]:
    """Arms, means and rewards of all rounds that `simulate(0, ...)` plays with these seeds."""
    found = {}
    for model in PEERS:
        drawn = simulation.rounds(0, world(model), horizon, seeds=list(seeds))
        found |= {f"{model}_{name}": np.asarray(array) for name, array in drawn._asdict().items()}
    return found


@contextmanager
def worker(file: Path) -> Iterator[Any]:
    """A process of the peers' Python; ask it with a question."""
    if not PYTHON.exists():
        raise FileNotFoundError(f"the peers' environment must be at {PYTHON.parents[1]}; `make bench` makes it")
    command = [str(PYTHON), "-W", "ignore", str(Path(__file__).with_name("peer_worker.py")), str(file)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(**question: Any) -> dict[str, float]:
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps(question), file=process.stdin, flush=True)
        return json.loads(process.stdout.readline())

    with process:
        yield ask
        process.stdin.close()  # type: ignore[union-attr]


@contextmanager
def on_one_core() -> Iterator[int]:
    """Run this thread on the first of its cores and return the core's number, because cores differ in speed."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield min(allowed)
    finally:
        os.sched_setaffinity(0, allowed)


def _simulations(ask: Any, model: str, seeds: int, horizon: int, peer_seeds: int) -> list[Measurement]:
    peers = PEERS[model]
    policies = {
        name + label: vits.make(name, getattr(vits.models, model)(DIM), **settings)
        for label, settings in SETTINGS[model].items()
        for name in agent.MODELS[model]
    }
    ours, theirs, regret = {}, {}, {}
    for _ in range(REPEATS):
        for name, policy in policies.items():
            trace = vits.simulate(0, world(model), policy, horizon, seeds=seeds)
            ours[name] = max(ours.get(name, 0.0), seeds * horizon / trace.seconds)
            regret[name] = trace.cumulative_regret[:peer_seeds, -1].mean()
        for peer in peers:
            answers = [ask(task="simulate", peer=peer, model=model, seed=seed) for seed in range(peer_seeds)]
            speed = horizon / min(answer["seconds"] for answer in answers)
            theirs[peer] = max(theirs.get(peer, 0.0), speed)
            regret[peer] = np.mean([answer["regret"] for answer in answers])
    fastest = max(theirs, key=lambda peer: theirs[peer])
    reference = ", ".join(f"{peer} {speed:,.0f} (regret {regret[peer]:.0f})" for peer, speed in theirs.items())
    return [
        Measurement(
            what=f"{model} {name}, {seeds} seeds x {horizon} rounds",
            ours=f"{ours[name]:,.0f} rounds/s (regret {regret[name]:.0f})",
            reference=f"{reference} rounds/s",
            ratio=f"{ours[name] / theirs[fastest]:.1f}x {fastest}",
            goal=">= 10x",
        )
        for name in policies
    ]


def _calls(ask: Any, model: str, drawn: dict[str, np.ndarray]) -> list[Measurement]:
    """Medians over turns; the ratio of a turn is to the fastest peer of that turn."""
    names, peers = agent.MODELS[model], PEERS[model]
    arms, rewards = (drawn[f"{model}_{name}"][0].astype(float) for name in ("arms", "rewards"))
    turns: list[dict[str, dict[str, tuple[float, float]]]] = []
    with on_one_core() as core:
        for _ in range(TURNS):
            ours: Any = {name: agent.calls(name, model, arms, rewards) for name in names}
            turns.append(ours | {peer: ask(task="calls", peer=peer, model=model, seed=0, core=core) for peer in peers})

    def text(player: str, call: str) -> str:
        p50, p99 = np.median([turn[player][call] for turn in turns], axis=0)
        return f"{p50:.0f} us (p99 {p99:.0f})"

    found = []
    for name in names:
        for call in ("decide", "learn"):
            ratios = [turn[name][call][0] / min(turn[peer][call][0] for peer in peers) for turn in turns]
            found.append(
                Measurement(
                    what=f"{model} {name}, {call}",
                    ours=text(name, call),
                    reference=", ".join(f"{peer} {text(peer, call)}" for peer in peers),
                    ratio=f"{np.median(ratios):.2f}x the fastest",
                    goal="<= 0.7x" if call == "decide" else "<= 1.3x" if (model, name) == SLOWEST else "<= 1x",
                )
            )
    return found
