"""Decisions, and the ledger of those that wait for their reward."""

import math
import secrets
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from vits import validate
from vits.agent.arms import Arm

DEFAULT_SAMPLES = 1000
"""Posterior draws for an estimate."""


class Propensity(NamedTuple):
    """A probability estimated from posterior draws, and its standard error.

    They are the mean and standard deviation of Beta(c + 1/2, n - c + 1/2) after c hits in n draws (Jeffreys), so the
    estimate is never 0 or 1 and the error never 0.
    """

    estimate: float
    stderr: float
    samples: int


def propensity_of(hits: float, samples: int) -> Propensity:
    """Jeffreys' estimate of a probability."""
    a, b = hits + 0.5, samples - hits + 0.5
    return Propensity(a / (a + b), math.sqrt(a * b / ((a + b) ** 2 * (a + b + 1.0))), samples)


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One decision: pass its `id` to `learn` together with the reward.

    `arm` is the name of the arm to play, or its row where arms are given without names; `arms` are the best k, best
    first. `offered` are all arms on offer, `scores` are their scores under the posterior draw that decided, and `index`
    is the position of `arm` among them. `features` are those of `arm`.
    """

    id: str
    arm: Hashable
    arms: tuple[Hashable, ...]
    index: int
    features: Float[np.ndarray, " dim"]
    offered: Sequence[Hashable]
    scores: Float[np.ndarray, " arms"]
    _draws: Callable[[int], Shaped[np.ndarray, "samples arms"]] = field(repr=False)

    def propensity(self, samples: int = DEFAULT_SAMPLES) -> Propensity:
        """The probability that the agent, in the state in which it decided, puts the same arm first.

        Args:
            samples: posterior draws; the standard error falls with their square root.

        Returns:
            The estimate and its standard error. Algorithms that are deterministic between updates (`greedy`, `lin_ucb`,
            and `lmc_ts`, whose chain moves only when it learns) have a probability of 1.
        """
        return propensity_of(float(samples * self.frequencies(samples)[self.index]), samples)

    def frequencies(self, samples: int = DEFAULT_SAMPLES) -> Float[np.ndarray, " arms"]:
        """The share of posterior draws under which each arm on offer comes first; ties are split evenly."""
        validate.count("samples", samples)
        scores = self._draws(samples)
        best = scores == np.max(scores, axis=1, keepdims=True)
        return np.mean(best / best.sum(axis=1, keepdims=True), axis=0)

    def __repr__(self) -> str:
        ranked = f", arms={self.arms!r}" if len(self.arms) > 1 else ""
        return f"Decision(arm={self.arm!r}{ranked}, id={self.id!r}, offered={len(self.offered)})"


def ranking(scores: Float[np.ndarray, " arms"], k: int, seed: tuple[int, int]) -> tuple[int, ...]:
    """The positions of the k highest scores, best first; ties are broken by a generator seeded with `seed`."""
    if k == 1:
        best = int(scores.argmax())
        top = scores[best]
        if math.isfinite(top) and np.count_nonzero(scores == top) == 1:
            return (best,)
    finite = np.isfinite(scores)
    if np.count_nonzero(finite) < k:
        raise ArithmeticError(f"only {np.count_nonzero(finite)} of {len(scores)} arms have a finite score, {k} needed")
    order = np.lexsort((np.random.default_rng(seed).random(len(scores)), -np.where(finite, scores, -np.inf)))
    return tuple(order[:k].tolist())


class Pending(NamedTuple):
    """A decision without a reward: its ranked arms and their features.

    `menu` are the features of all arms on offer, for algorithms that learn from arms that were not played.
    """

    arms: tuple[Arm | None, ...]
    features: Float[np.ndarray, "ranked dim"]
    menu: Float[np.ndarray, "arms dim"] | None

    @property
    def nbytes(self) -> int:
        """Memory of the features."""
        return self.features.nbytes + (0 if self.menu is None else self.menu.nbytes)


def new_tag() -> str:
    """A random prefix for the ids of one agent, so that ids of two agents differ."""
    return secrets.token_hex(4)


class Ledger:
    """Pending decisions, at most `limit` of them: the oldest expire.

    An id is a tag and a number, and numbers increase. Expired decisions are older than all pending ones, so the fate of
    a decision that is no longer pending is known from its number.
    """

    def __init__(self, tag: str, limit: int) -> None:
        validate.count("max_pending", limit)
        self.tag, self.limit = tag, limit
        self.issued, self.expired, self.horizon = 0, 0, -1
        self.pending: dict[str, Pending] = {}
        self._lock = threading.Lock()

    def number(self) -> int:
        """The number of a new decision."""
        with self._lock:
            self.issued += 1
            return self.issued - 1

    def name(self, number: int) -> str:
        """The id of a decision."""
        return f"{self.tag}-{number}"

    def open(self, number: int, pending: Pending) -> str:
        """Add a decision and return its id."""
        name = self.name(number)
        with self._lock:
            self.pending[name] = pending
            while len(self.pending) > self.limit:
                oldest = next(iter(self.pending))
                del self.pending[oldest]
                self.expired += 1
                self.horizon = max(self.horizon, self._number_of(oldest))
        return name

    def find(self, name: Any) -> Pending:
        """The pending decision of an id, or an error that says what became of it."""
        waiting = self.pending.get(name) if isinstance(name, str) else None
        if waiting is not None:
            return waiting
        number = self._number_of(name) if isinstance(name, str) else -1
        if not 0 <= number < self.issued:
            raise ValueError(f"unknown decision {name!r}: this agent never made it")
        if number <= self.horizon:
            raise ValueError(
                f"decision '{name}' is no longer pending: its reward was learned, or it expired because only "
                f"{self.limit} decisions may wait (max_pending)"
            )
        raise ValueError(f"the reward of decision '{name}' was given already")

    def close(self, names: Sequence[str]) -> None:
        """Remove decisions whose reward was learned; one that expired meanwhile no longer counts as expired."""
        with self._lock:
            for name in names:
                if self.pending.pop(name, None) is None:
                    self.expired -= 1

    def waiting(self) -> dict[str, Pending]:
        """All pending decisions, oldest first."""
        with self._lock:
            return dict(self.pending)

    def copy(self, tag: str) -> "Ledger":
        """A ledger with the same pending decisions and another tag for new ones."""
        other = Ledger(tag, self.limit)
        other.pending = self.waiting()
        return other

    def _number_of(self, name: str) -> int:
        tag, _, number = name.rpartition("-")
        return int(number) if tag == self.tag and number.isdecimal() else -1
