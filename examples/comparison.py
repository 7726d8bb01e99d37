"""Our algorithms and bayesianbandits, on the same rows in the same order with the same random rewards."""

import argparse
import json
import math
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import vits
from vits import simulation
from vits.environments.classification import Classification

PEERS = Path(os.environ.get("VITS_PEERS", Path(__file__).parents[1] / ".venv-peers")) / "bin" / "python"
"""The Python of an environment with benchmarks/peers.txt; `make bench` makes one."""


def options(text: str, *algorithms: str) -> argparse.Namespace:
    """The command line of a comparison."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--algorithms", nargs="+", default=algorithms, choices=algorithms)
    return parser.parse_args()


def play(name: str, world: Classification, given: argparse.Namespace, model: str, **settings: Any) -> np.ndarray:
    """Play one of our algorithms, with a posterior for each arm; print and return the regret of every seed."""
    policy = vits.make(name, getattr(vits.models, model)(world.dim), per_arm=world.num_arms, **settings)
    trace = vits.simulate(0, world, policy, given.rounds, seeds=given.seeds)
    return line(f"{name}, {model}", trace.cumulative_regret[:, -1], trace.seconds, int(trace.failed.sum()))


def always(world: Classification, given: argparse.Namespace, arm: int) -> simulation.Trace:
    """Play one arm in all rounds."""
    return simulation.replay(0, world, np.full((given.seeds, given.rounds), arm), seeds=given.seeds)


def play_peer(ours: dict[str, np.ndarray], world: Classification, given: argparse.Namespace, **settings: Any) -> None:
    """Let bayesianbandits play the same rounds, if its environment is there, and compare ours with it seed by seed."""
    name = f"bayesianbandits, {settings.get('approximation', settings['model'])}"
    if not PEERS.exists():
        print(f"{name:32} left out: no environment at {PEERS.parents[1]}; `make bench` makes it")
        return
    arms = [always(world, given, arm) for arm in range(world.num_arms)]
    order = np.asarray(simulation.worlds(0, world, seeds=given.seeds).order)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stream.npz"
        np.savez(
            file,
            rows=world.features,
            order=order[:, np.arange(given.rounds) % order.shape[1]],
            rewards=[trace.reward for trace in arms],
            regrets=[trace.regret for trace in arms],
        )
        command = [
            str(PEERS),
            "-W",
            "ignore",
            str(Path(__file__).with_name("peer.py")),
            str(file),
            json.dumps(settings),
        ]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    theirs = line(name, np.array(found["regret"]), found["seconds"])
    for own, regret in ours.items():
        line(f"  {own}, difference", regret - theirs)


def line(name: str, regret: np.ndarray, seconds: float | None = None, failed: int = 0) -> np.ndarray:
    """Print one row of the table; the regret is returned as it is."""
    error = regret.std(ddof=1) / math.sqrt(len(regret)) if len(regret) > 1 else math.nan
    time = "" if seconds is None else f"{seconds:9.1f} s"
    note = f", {failed} seeds failed" if failed else ""
    print(f"{name:32} {regret.mean():8.1f} +- {error:6.1f} {np.median(regret):8.1f} {time}{note}", flush=True)
    return regret


def header(world: Classification, given: argparse.Namespace) -> None:
    """What is played, and the head of the table."""
    print(f"{given.rounds} rounds, {given.seeds} seeds, {world.num_arms} arms, {world.dim} features")
    print(f"{'':32} {'regret':>8}    {'s.e.':>6} {'median':>8} {'time':>9}")
