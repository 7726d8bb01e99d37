"""Whole simulations and single calls, against the libraries that one would pick instead.

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

import jax
import jax.numpy as jnp
import numpy as np

import vits
from benchmarks import agent
from benchmarks.timing import Measurement
from vits import simulation
from vits.environments import Environment

PYTHON = Path(os.environ.get("VITS_PEERS", Path(__file__).parents[1] / ".venv-peers")) / "bin" / "python"
DIM, ARMS, REPEATS, TURNS = 20, 50, 2, 9
PEERS = {"linear": ("bayesianbandits", "mabwiser"), "logistic": ("bayesianbandits",)}
"""Whom we are compared with, by model."""


def rows(*, seeds: int = 50, horizon: int = 1000, peer_seeds: int = 2) -> list[Measurement]:
    """Rounds a second with many seeds, then medians of `decide` and `learn`."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rounds.npz"
        np.savez(file, **rounds(range(peer_seeds), horizon))
        with worker(file) as ask:
            for model in PEERS:
                found += _simulations(ask, model, seeds, horizon, peer_seeds)
            for model in PEERS:
                found += _calls(ask, model)
    return found


def world(model: str) -> Environment:
    """The bandit in which a model is at home."""
    make = {"linear": vits.environments.linear, "logistic": vits.environments.fixed_logistic}
    return make[model](dim=DIM, num_arms=ARMS)


def rounds(seeds: Any, horizon: int) -> dict[str, np.ndarray]:
    """Arms, means and rewards of all rounds that `simulate(0, ...)` plays with these seeds."""
    found = {}
    for model in PEERS:
        environment = world(model)
        keys = simulation._keys(jax.random.key(0), jnp.asarray(seeds)).world
        params = simulation.worlds(0, environment, seeds=list(seeds))

        def draw(key: Any, params: Any, t: Any, environment: Environment = environment) -> Any:
            return environment.draw(jax.random.fold_in(key, t), params, t)

        drawn = jax.jit(jax.vmap(jax.vmap(draw, (None, None, 0)), (0, 0, None)))(keys, params, jnp.arange(horizon))
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
    """This thread, on the first of its cores, whose number is for others to go there too: cores differ in pace."""
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
        for label, settings in agent.SETTINGS[model].items()
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


def _calls(ask: Any, model: str) -> list[Measurement]:
    """Medians of what the turns say, the ratio of each turn being that to whoever was fastest in it."""
    names, peers = agent.MODELS[model], PEERS[model]
    turns: list[dict[str, dict[str, float]]] = []
    with on_one_core() as core:
        for _ in range(TURNS):
            ours = {name: agent.median_microseconds(name, getattr(vits.models, model)(DIM)) for name in names}
            turns.append(ours | {peer: ask(task="calls", peer=peer, model=model, seed=0, core=core) for peer in peers})

    def median(player: str, call: str) -> float:
        return float(np.median([turn[player][call] for turn in turns]))

    found = []
    for name in names:
        for call in ("decide", "learn"):
            ratios = [turn[name][call] / min(turn[peer][call] for peer in peers) for turn in turns]
            found.append(
                Measurement(
                    what=f"{model} {name}, {call}",
                    ours=f"{median(name, call):.0f} us",
                    reference=", ".join(f"{peer} {median(peer, call):.0f} us" for peer in peers),
                    ratio=f"{np.median(ratios):.2f}x the fastest",
                    goal="<= 2x" if (call, name) == ("learn", "vits_ii") else "<= 1x",
                )
            )
    return found
