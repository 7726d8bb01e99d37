"""Decisions, and the ledger of those that wait for their reward."""

import math
import secrets
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from vits import validate
from vits.agent.arms import Arm
from vits.agent.errors import ExpiredDecision, RewardGivenAlready, UnknownDecision

DEFAULT_SAMPLES = 1000
"""Posterior draws for an estimate."""

MAX_SESSIONS = 100
"""Sessions whose ids are remembered; older ids that are not pending are unknown."""


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
        needed = float(samples) * self.scores.itemsize * len(self.scores)
        validate.memory(f"{samples:,} scores of {len(self.scores):,} arms", needed, "ask for fewer samples")
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
    """A decision without a reward: its ranked arms, their names and their features.

    `arms` are None for arms without names, whose `names` are rows or the keys of the mapping that `decide` got; `names`
    is None if they could not be saved. `menu` are the features of all arms on offer, for algorithms that learn from
    arms that were not played.
    """

    arms: tuple[Arm | None, ...]
    features: Float[np.ndarray, "ranked dim"]
    menu: Float[np.ndarray, "arms dim"] | None
    names: tuple[Hashable, ...] | None

    @property
    def nbytes(self) -> int:
        """Memory of the features."""
        return self.features.nbytes + (0 if self.menu is None else self.menu.nbytes)


class Session(NamedTuple):
    """The ids of one session of an agent: their tag, and their numbers from `first` to before `end`."""

    tag: str
    first: int
    end: int


class Ledger:
    """Pending decisions, at most `limit` of them: the oldest expire.

    An id is a tag and a number. Numbers count the decisions of an agent, those before a restore included. The tag is
    random and belongs to one session: a new agent, a restored one, a copy and a forked process each start one. So ids
    never repeat, and a session knows the ids of earlier ones up to the point where it branched off. Expired decisions
    are older than all pending ones, so a number tells the fate of a decision that is no longer pending.

    Adding a decision is one insertion into `pending`, and the counters are derived from it: an exception that strikes
    inside a method, such as one from a signal handler, leaves the decision either pending or not made.

    Args:
        limit: the largest number of pending decisions.
        issued: the number of decisions that were made.
        draws: the number of random draws that were made for decisions.
        horizon: the number of the newest decision that expired, or -1.
        sessions: earlier sessions, oldest first.
        pending: the decisions that wait for a reward, oldest first.
    """

    def __init__(
        self,
        limit: int,
        *,
        issued: int = 0,
        draws: int = 0,
        horizon: int = -1,
        sessions: Sequence[Session] = (),
        pending: Mapping[str, Pending] | None = None,
    ) -> None:
        self.limit, self.draws, self.horizon = validate.count("max_pending", limit), draws, horizon
        self.earlier = tuple(sessions)
        self.pending = dict(pending or {})
        self._issued, self._first = issued, issued
        self._tag = ""
        self.start_session()

    def start_session(self) -> None:
        """Give new ids a new tag."""
        self._lock = threading.RLock()  # the old one may be held by a thread that did not survive a fork
        self.earlier = self.sessions
        self._issued = self._first = self.issued
        self._tag = secrets.token_hex(6)

    @property
    def sessions(self) -> tuple[Session, ...]:
        """The sessions whose ids are known, oldest first."""
        if self.issued == self._first:
            return self.earlier
        return (*self.earlier[1 - MAX_SESSIONS :], Session(self._tag, self._first, self.issued))

    @property
    def issued(self) -> int:
        """The number of decisions that were made."""
        return self._issued + (f"{self._tag}-{self._issued}" in self.pending)

    def draw(self) -> int:
        """The number of a new random draw."""
        with self._lock:
            number = self.draws
            self.draws = number + 1
        return number

    def open(self, pending: Pending) -> str:
        """Add a decision and return its id."""
        with self._lock:
            number = self.issued
            name = f"{self._tag}-{number}"
            self.pending[name] = pending
            self._issued = number + 1
            self._expire()
        return name

    def find(self, name: Any) -> Pending:
        """The pending decision of an id, or an error that says why it is not pending."""
        waiting = self.pending.get(name) if isinstance(name, str) else None
        if waiting is not None:
            return waiting
        if not isinstance(name, str) or not self._made(name):
            raise UnknownDecision(
                f"unknown decision {validate.shown(name)}: this agent did not make it, or was restored to a time "
                "before it"
            )
        if _number(name) <= self.horizon:
            raise ExpiredDecision(
                f"decision '{name}' is no longer pending: its reward was learned, or it expired because only "
                f"{self.limit} decisions may wait (max_pending)"
            )
        raise RewardGivenAlready(f"the reward of decision '{name}' was given already")

    def close(self, names: Iterable[str]) -> None:
        """Remove decisions whose reward was learned; this may be repeated."""
        with self._lock:
            for name in names:
                self.pending.pop(name, None)

    def waiting(self) -> tuple[int, dict[str, Pending]]:
        """The number of decisions that were made, and those that are pending, oldest first."""
        with self._lock:
            return self.issued, dict(self.pending)

    def content(self) -> dict[str, Any]:
        """The arguments that make an equal ledger."""
        with self._lock:
            self._expire()
            return {
                "limit": self.limit,
                "issued": self.issued,
                "draws": self.draws,
                "horizon": self.horizon,
                "sessions": self.sessions,
                "pending": dict(self.pending),
            }

    def _expire(self) -> None:
        while len(self.pending) > self.limit:
            oldest = next(iter(self.pending))
            self.horizon = max(self.horizon, min(_number(oldest), self.issued - 1))
            del self.pending[oldest]

    def _made(self, name: str) -> bool:
        tag, number = name.rpartition("-")[0], _number(name)
        return any(session.tag == tag and session.first <= number < session.end for session in self.sessions)


def _number(name: str) -> int:
    """The number in an id, or -1."""
    number = name.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdecimal() and number == f"{int(number[:19])}" else -1
