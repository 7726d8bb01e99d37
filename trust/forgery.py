"""Forged files: saved agents changed at random, with and without a matching checksum.

Each file must be refused in one sentence, or give an agent that decides, learns and can be saved again.
"""

import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import vits
from trust.mutations import KINDS
from vits.agent.errors import CapacityFull, RejectedUpdate

MEMORY = 512.0
"""MiB by which the peak of memory may grow, including compiled programs."""

RESULTS = ("refused", "works", "rejects", "traceback", "impossible")
FAILURES = ("traceback", "impossible")

TABLE = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]])


def phi(context: float, arm: str) -> list[float]:
    """A feature map."""
    return [context, float(arm == "b")]


class Sample(NamedTuple):
    """An agent to forge: how to make it, the arguments of its decisions, and those of `load`."""

    make: Callable[[], vits.Agent]
    context: Any
    parts: dict[str, Any]


SAMPLES = {
    "vits_ii": Sample(lambda: vits.Agent("vits_ii", vits.models.logistic(2), capacity=128), TABLE, {}),
    "vits_ng": Sample(lambda: vits.Agent("vits_ng", vits.models.logistic(2), fold_after=4), TABLE, {}),
    "lin_ts": Sample(
        lambda: vits.Agent("lin_ts", vits.models.linear(2), arms=["a", "b"], features=phi, prior=(0.0, [1.0, 2.0])),
        0.5,
        {"features": phi},
    ),
    "laplace_ts": Sample(
        lambda: vits.Agent("laplace_ts", vits.models.logistic(2), arms=["a", 7, ("c", None)], capacity=128),
        [1.0, 0.5],
        {},
    ),
    "fg_ts": Sample(
        lambda: vits.Agent("fg_ts", vits.models.linear(2), num_arms=4, num_steps=2, capacity=128), TABLE, {}
    ),
    "lmc_ts": Sample(lambda: vits.Agent("lmc_ts", vits.models.poisson(2), window=4, max_pending=3), TABLE, {}),
    "ensemble_ts": Sample(lambda: vits.Agent("ensemble_ts", vits.models.logistic(2), num_members=3), TABLE, {}),
    "vts": Sample(lambda: vits.Agent("vts", vits.models.linear(2), arms=["a", "b"], fold_after=1), [1.0, 0.5], {}),
    "network": Sample(lambda: vits.Agent("lmc_ts", vits.models.mlp(2, (2,)), capacity=128), TABLE, {}),
    "structured": Sample(
        lambda: vits.Agent("vits_ng", vits.models.mlp(2, (2,)), covariance="low_rank", rank=2, capacity=128), TABLE, {}
    ),
    "last_layer_ts": Sample(
        lambda: vits.Agent("last_layer_ts", vits.models.mlp(2, (2,)), rank=2, num_steps=2, capacity=128), TABLE, {}
    ),
    "uniform": Sample(lambda: vits.Agent("uniform", vits.models.linear(2), arms=["a", "b"]), [1.0, 0.5], {}),
}


class Outcome(NamedTuple):
    """The outcome for one file."""

    kind: str
    sample: str
    result: str
    reason: str


class Found(NamedTuple):
    """All outcomes, MiB by which the peak of memory grew, and the time that it took."""

    outcomes: list[Outcome]
    memory_growth: float
    seconds: float

    @property
    def counts(self) -> dict[str, Counter[str]]:
        """How often each result occurred, for each kind of change."""
        kinds = dict.fromkeys(outcome.kind for outcome in self.outcomes)
        return {kind: Counter(found.result for found in self.outcomes if found.kind == kind) for kind in kinds}

    @property
    def failures(self) -> list[Outcome]:
        """The outcomes that must not occur."""
        return [outcome for outcome in self.outcomes if outcome.result in FAILURES]

    @property
    def passed(self) -> bool:
        """Whether every file was refused or works, in bounded memory."""
        return not self.failures and self.memory_growth <= MEMORY


def run(
    mutations: int,
    *,
    seed: int = 0,
    samples: tuple[str, ...] = tuple(SAMPLES),
    step: Callable[[], object] = lambda: None,
) -> Found:
    """Change files at random, load each and use the agent.

    Args:
        mutations: how many.
        seed: of the changes.
        samples: names in `SAMPLES`.
        step: is called after each.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "forged"
        contents = {name: _saved(SAMPLES[name], path) for name in samples}
        for name, content in contents.items():  # compiles what intact files need
            intact = attempt(path, content, SAMPLES[name])
            if intact != ("works", ""):
                raise AssertionError(f"{name} as it was saved: {intact}")
        outcomes, before, start = [], _peak(), time.perf_counter()
        for i in range(mutations):
            name = samples[i % len(samples)]
            kind, change = KINDS[i // len(samples) % len(KINDS)]
            outcomes.append(Outcome(kind, name, *attempt(path, change(contents[name], chance), SAMPLES[name])))
            step()
        return Found(outcomes, _peak() - before, time.perf_counter() - start)


def attempt(path: Path, content: bytes, sample: Sample) -> tuple[str, str]:
    """Load a file, use what was loaded, and say what happened."""
    path.write_bytes(content)
    try:
        agent = vits.Agent.load(path, **sample.parts)
    except ValueError as error:
        message = str(error)
        return ("refused", message) if message and "\n" not in message else ("traceback", repr(message))
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {error}"
    try:
        return _used(agent, path, sample)
    except Exception as error:
        return "impossible", f"{type(error).__name__}: {error}"


def _used(agent: vits.Agent, path: Path, sample: Sample) -> tuple[str, str]:
    problem = _impossible(agent)
    if problem:
        return "impossible", problem
    settings = agent._snapshot.settings
    if settings.is_named and not agent.arms:
        return "works", "no arms"
    decision, before = agent.decide(sample.context), agent.diagnostics()
    assert np.all(np.isfinite(decision.scores))
    rejected = ""
    try:
        agent.learn(decision, 1.0)
        assert agent.diagnostics().observations == before.observations + 1
    except RejectedUpdate as error:
        rejected = str(error)
    except CapacityFull:
        assert settings.when_full == "raise"
    agent.save(path)
    vits.Agent.load(path, **sample.parts)
    return ("rejects", rejected) if rejected else ("works", "")


def _impossible(agent: vits.Agent) -> str:
    """What is wrong with a loaded agent, checked by code that is independent of loading."""
    snapshot, found = agent._snapshot, agent.diagnostics()
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves((snapshot.policy_arrays, snapshot.state_arrays))]
    if not all(np.all(np.isfinite(leaf)) for leaf in leaves):
        return "a number is not finite"
    if any(isinstance(count, int) and count < 0 for count in (*found, *snapshot.counts.by_arm.values())):
        return "a count is negative"
    slots = [arm.slot for arm in snapshot.arms.values()]
    if snapshot.settings.per_arm and (len(set(slots)) < len(slots) or max(slots, default=0) >= snapshot.slots):
        return "two arms share a posterior, or one has none"
    if any(leaf.dtype.kind == "i" and np.any(leaf < 0) for leaf in leaves):
        return "an index or a count of the state is negative"
    return ""


def _saved(sample: Sample, path: Path) -> bytes:
    agent = sample.make()
    for i in range(7):
        decision = agent.decide(sample.context)
        if i % 3:
            agent.learn(decision, float(i % 2))
    agent.save(path)
    return path.read_bytes()


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
