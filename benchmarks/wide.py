"""Wide generalised linear models: a table with 126 columns and one posterior per arm, and growth in the features.

The table is mushroom if `VITS_DATA` has it, else one of the same shape: 22 properties, coded as ones and zeros.
The arms are the classes, and the right one pays 1.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import vits
from benchmarks import peers
from benchmarks.timing import Measurement, best_seconds, exponent
from vits import files, simulation
from vits.datasets import uci
from vits.environments import Environment
from vits.history import with_capacity
from vits.policies import Thompson
from vits.types import Observation, State

GOALS = {"vits_ng": 1.0, "laplace_ts": 1.0, "vits_ii": 2.0}
"""The goal for each algorithm, as a multiple of the time of the fastest peer."""
SETTINGS: dict[str, dict[str, Any]] = {"all data": {}, "folding": {"fold_after": 1}}
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"{algorithm}, {label}": (algorithm, settings) for label, settings in SETTINGS.items() for algorithm in GOALS},
    "vits_ii, folding, frozen inverse": ("vits_ii", {"fold_after": 1, "inverse": "frozen"}),
}
DIMS = (100, 200, 500, 1000, 2000)
ROUNDS = 3
"""Rounds that are timed as the features grow."""


def rows(*, horizon: int = 2000, seeds: int = 4, repeats: int = 2, dims: tuple[int, ...] = DIMS) -> list[Measurement]:
    """The table against the peers, then an update against the number of features."""
    found = against_peers(horizon=horizon, seeds=seeds, repeats=repeats)
    return found + [in_features(form, dims) for form in FORMS]


def in_features(form: str, dims: tuple[int, ...]) -> Measurement:
    """A round of learning with one posterior, and the exponent that fits its time."""
    (algorithm, settings), works = FORMS[form], {}
    for dim in dims:
        policy = with_capacity(vits.make(algorithm, vits.models.logistic(dim), **settings), ROUNDS)
        works[str(dim)] = _learning(policy, dim)
    seconds = [second / ROUNDS for second in best_seconds(works, repeats=2).values()]
    times = ", ".join(f"{dim}: {1e3 * second:.2f} ms" for dim, second in zip(dims, seconds, strict=True))
    fitted = f"exponent {exponent(list(dims), seconds):.2f}"
    return Measurement(f"{form}: time of a round against d", times, "", fitted, "<= 2")


def _learning(policy: Thompson, dim: int) -> Any:
    features = jax.random.normal(jax.random.key(0), (ROUNDS, dim)) / jnp.sqrt(dim / 20.0)
    rewards, keys = (features[:, 0] > 0.0).astype(features.dtype), jax.random.split(jax.random.key(1), ROUNDS)

    def learn(state: State, row: Any) -> tuple[State, None]:
        key, phi, reward = row
        return policy.update(key, state, Observation(phi, reward))[0], None

    program = jax.jit(lambda state: jax.lax.scan(learn, state, (keys, features, rewards))[0])
    state = policy.init(jax.random.key(2))
    return lambda: jax.block_until_ready(program(state).mean)


def world() -> tuple[str, Environment]:
    """The name of the table, and the table as a bandit."""
    if (files.data_folder() / uci.FOLDER / uci.MUSHROOM_FILE).exists():
        table = uci.mushroom()
        return "mushroom", vits.environments.classification(table.features, table.labels, encoding="row")
    rng = np.random.default_rng(0)
    sizes = [len(values) for values in uci.MUSHROOM_COLUMNS.values()]
    features = np.concatenate([np.eye(size)[rng.integers(size, size=8124)] for size in sizes], axis=1)
    scores = features @ rng.normal(size=features.shape[1])
    labels = (scores > np.median(scores)).astype(int)
    return "synthetic table", vits.environments.classification(features, labels, encoding="row")


def against_peers(*, horizon: int, seeds: int, repeats: int) -> list[Measurement]:
    """Time on one core and regret of the same rounds. Both sides play in turns, and the fastest run of each counts."""
    name, environment = world()
    policies = {
        form: vits.make(algorithm, vits.models.logistic(environment.dim), per_arm=environment.num_arms, **settings)
        for form, (algorithm, settings) in FORMS.items()
    }
    seconds: dict[str, float] = {}
    regret: dict[str, float] = {}
    drawn = simulation.rounds(0, environment, horizon, seeds=seeds)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rounds.npz"
        np.savez(file, **{f"wide_{part}": np.asarray(array) for part, array in drawn._asdict().items()})
        with peers.worker(file) as ask:
            for _ in range(repeats):
                for player, policy in policies.items():
                    took, regret[player] = _played(environment, policy, horizon, seeds)
                    seconds[player] = min(seconds.get(player, np.inf), took)
                for peer in peers.PEERS["logistic"]:
                    answers = [
                        ask(task="simulate", peer=peer, model="wide", seed=seed, one_each=True) for seed in range(seeds)
                    ]
                    took = sum(answer["core_seconds"] for answer in answers)
                    seconds[peer] = min(seconds.get(peer, np.inf), took)
                    regret[peer] = float(np.mean([answer["regret"] for answer in answers]))

    def text(player: str) -> str:
        return f"{1e3 * seconds[player] / (seeds * horizon):.2f} ms a round (regret {regret[player]:.0f})"

    fastest = min(peers.PEERS["logistic"], key=lambda peer: seconds[peer])
    return [
        Measurement(
            what=f"{name}, {environment.dim} features, {seeds} seeds x {horizon} rounds: {player}",
            ours=text(player),
            reference=", ".join(f"{peer} {text(peer)}" for peer in peers.PEERS["logistic"]),
            ratio=f"{seconds[player] / seconds[fastest]:.2f}x {fastest}",
            goal=f"<= {GOALS[FORMS[player][0]]:g}x",
        )
        for player in policies
    ]


def _played(environment: Environment, policy: Any, horizon: int, seeds: int) -> tuple[float, float]:
    """Core seconds, of all threads together and without compilation, and mean regret."""
    policy = with_capacity(policy, horizon)
    vits.simulate(0, environment, policy, 1, seeds=seeds)  # compile
    started = time.process_time()
    trace = vits.simulate(0, environment, policy, horizon, seeds=seeds)
    return time.process_time() - started, float(trace.cumulative_regret[:, -1].mean())
