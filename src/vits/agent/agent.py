"""The object of an application: it decides, and learns when a reward comes."""

import functools
import math
import threading
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from vits import models, validate
from vits.agent import arms as arms_
from vits.agent import belief, container, diagnostics, saving, snapshot
from vits.agent.arms import Arm, FeatureMap, Offer
from vits.agent.compiled import Arrays, Chooser, as_number
from vits.agent.decisions import DEFAULT_SAMPLES, Decision, Ledger, Pending, new_tag, ranking
from vits.agent.snapshot import Keys, Settings, Snapshot

MAX_PENDING = 10_000
"""Default number of decisions that may wait for their reward."""

WHEN_FULL = ("grow", "raise")


class RejectedUpdate(ArithmeticError):
    """An update was rejected because the posterior would not have stayed finite; the posterior is unchanged."""


class Agent:
    """A bandit that decides and learns, one call at a time.

    There are three ways to say what the arms are:

    - neither `arms` nor `features`: `decide(arms)` takes the features of the arms on offer, any number of them;
    - `arms` and `features`: `decide(context)` uses `features(context, arm)` for every named arm;
    - `arms` alone: `decide(context)`, and every named arm has its own posterior.

    Any number of threads may decide while others learn. Calls that learn take turns.

    Args:
        algorithm: a name in `vits.catalogue.ALGORITHMS`; `vits list` prints them.
        model: the reward model.
        features: a feature map phi(context, arm).
        arms: names of arms, any hashable values; arms can be added later.
        seed: the same seed and the same calls give the same decisions.
        capacity: initial room for observations, for models that store them (all but linear ones); 1024 by default.
        when_full: "grow" doubles the room, which compiles again; "raise" refuses what does not fit. With a `window` or
            `fold_after` old observations are dropped, and the room never fills.
        max_pending: the number of decisions that may wait for their reward; beyond it the oldest expire.
        hyperparameters: those of the algorithm.

    Example:
        >>> import numpy as np, vits
        >>> agent = vits.Agent("vits_ii", model=vits.models.logistic(2), seed=0)
        >>> decision = agent.decide(np.array([[1.0, 0.0], [0.0, 1.0]]))
        >>> decision.arm in (0, 1)
        True
        >>> agent.learn(decision.id, 1.0)
        >>> agent.posterior().covariance.shape
        (2, 2)
        >>> named = vits.Agent("lin_ts", model=vits.models.linear(1), arms=["red", "green"])
        >>> named.decide([1.0], available=["green"]).arm
        'green'
    """

    def __init__(
        self,
        algorithm: str,
        model: models.RewardModel,
        *,
        features: FeatureMap | None = None,
        arms: Iterable[Hashable] | None = None,
        seed: int = 0,
        capacity: int | None = None,
        when_full: str = "grow",
        max_pending: int = MAX_PENDING,
        **hyperparameters: Any,
    ) -> None:
        _check_seed(seed)
        if when_full not in WHEN_FULL:
            raise validate.unknown("when_full", when_full, WHEN_FULL)
        names = arms_.checked_names([] if arms is None else arms)
        is_named = arms is not None or features is not None
        settings = Settings(algorithm, model, hyperparameters, features, is_named, when_full, seed)
        self._start(snapshot.fresh(settings, names, capacity), Ledger(new_tag(), max_pending))

    def _start(self, current: Snapshot, ledger: Ledger) -> None:
        self._snapshot, self._ledger = current, ledger
        self._keys = Keys.of(current.settings.seed)
        self._learning = threading.RLock()
        """Held by the thread that replaces the snapshot; reading it needs no lock."""

    @classmethod
    def _of(cls, current: Snapshot, ledger: Ledger) -> "Agent":
        agent = object.__new__(cls)
        agent._start(current, ledger)
        return agent

    @property
    def arms(self) -> tuple[Hashable, ...]:
        """The names of the arms."""
        return tuple(self._snapshot.arms)

    def decide(self, arms_or_context: Any, *, available: Iterable[Hashable] | None = None, k: int = 1) -> Decision:
        """Choose an arm, or rank the best k.

        Args:
            arms_or_context: the features of the arms, (K, dim), or a mapping from names to features; if the arms have
                names, the context.
            available: only these arms may be chosen.
            k: how many arms to rank, best first.

        Returns:
            The decision. It waits for its reward until `learn` gets its `id`.
        """
        current, ledger = self._snapshot, self._ledger
        offer = current.offer(arms_or_context, available)
        count, longest = len(offer.names), current.longest_menu
        if k != 1:
            validate.count("k", k)
        if k > count:
            raise ValueError(f"k must be at most the {count} arms on offer, but is {k}")
        if longest is not None and count > longest:
            raise ValueError(f"num_arms must be at least the {count} arms on offer, but is {longest}")
        number = ledger.number()
        scores = current.scores(self._keys.choose, number, offer.rows)[offer.where]
        order = ranking(scores, k, (current.settings.seed, number))
        features = offer.features
        rows = features.take(order, axis=0)
        rows.setflags(write=False)
        names = tuple(offer.names[i] for i in order)
        ranked = tuple(current.arms[name] for name in names) if current.settings.is_named else (None,) * k
        return Decision(
            id=ledger.open(number, Pending(ranked, rows, None if longest is None else np.array(features))),
            arm=names[0],
            arms=names,
            index=order[0],
            features=rows[0],
            offered=offer.names,
            scores=scores,
            # Not the whole snapshot: an application may keep a decision, and an old history with it.
            _draws=functools.partial(_draws, current.chooser, current.view, self._keys.draw, number, offer),
        )

    def learn(self, decision: Decision | str, reward: Any) -> None:
        """Learn the reward of a decision: once, at any time, in any order.

        If the arm was removed since, the reward is counted but nothing is learned from it.

        Args:
            decision: the decision or its id.
            reward: a number; for a ranking of k arms, k numbers, with None for arms whose reward is unknown.

        Raises:
            ValueError: an unknown or expired decision, a reward that was given already, or an invalid reward.
            RejectedUpdate: the posterior would not have stayed finite. It is unchanged, the failure is counted, and
                the decision still waits for its reward.
        """
        self._settle([_id_of(decision)], [reward])

    def learn_many(self, decisions: Sequence[Decision | str], rewards: Sequence[Any]) -> None:
        """Learn the rewards of many decisions: all of them or, if anything is wrong, none.

        Args:
            decisions: decisions or their ids.
            rewards: a reward for each, as in `learn`.
        """
        if len(decisions) != len(rewards):
            raise ValueError(f"there must be {len(decisions)} rewards, one for each decision, but are {len(rewards)}")
        self._settle([_id_of(decision) for decision in decisions], rewards)

    def partial_fit(self, features: Any, rewards: Any, *, arms: Sequence[Hashable] | None = None) -> None:
        """Learn from logged data, row by row: all of it or, if anything is wrong, nothing.

        Args:
            features: the features of the arms that were played, (n, dim).
            rewards: their rewards, (n,).
            arms: the names of the arms that were played, for agents with a posterior for each arm.
        """
        settings = self._snapshot.settings
        if self._snapshot.longest_menu is not None:
            raise ValueError(f"{settings.algorithm} learns from all arms on offer: use decide and learn")
        rows = arms_.table("features", features, settings.dim, settings.dtype)
        values = arms_.numbers("rewards", rewards, settings.dtype)
        validate.shape("rewards", values, (len(rows),))
        for value in values.tolist():
            _checked_reward(settings, value)
        if (arms is not None) != settings.per_arm:
            raise ValueError("arms must name each row's arm where every arm has a posterior of its own, and only there")
        if arms is not None and len(arms) != len(rows):
            raise ValueError(f"arms must name the arm of each of the {len(rows)} rows, but are {len(arms)}")
        with self._learning:
            known = self._snapshot.arms
            for name in arms or ():
                arms_.check_known(known, name)
            self._absorb([None] * len(rows) if arms is None else [known[name] for name in arms], rows, values)

    def add_arm(self, name: Hashable) -> None:
        """Add an arm that starts with the prior; an arm that was removed may return, as a new arm."""
        with self._learning:
            self._snapshot = self._snapshot.with_arm(name)

    def remove_arm(self, name: Hashable) -> None:
        """Remove an arm; its own posterior, if it has one, is forgotten."""
        with self._learning:
            self._snapshot = self._snapshot.without_arm(name)

    def posterior(self, arm: Hashable = None, *, samples: int = DEFAULT_SAMPLES) -> belief.Belief:
        """The posterior over the parameters of the model.

        Args:
            arm: the arm, for agents with a posterior for each arm.
            samples: draws for quantities without a closed form.

        Returns:
            `.mean` (p,), `.covariance` (p, p), and `.interval(arms)`, the expected reward of arms.
        """
        return belief.belief(self._snapshot, arm, samples)

    def diagnostics(self) -> diagnostics.Diagnostics:
        """The counters of the agent."""
        return diagnostics.diagnose(self._snapshot, self._ledger)

    def save(self, path: str | Path) -> None:
        """Write everything to one file, whole or not at all; `load` continues exactly from there."""
        with self._learning:
            content = saving.encoded(self._snapshot, self._ledger)
        container.write(path, *content)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        model: models.RewardModel | None = None,
        features: FeatureMap | None = None,
        **hyperparameters: Any,
    ) -> "Agent":
        """The agent of a file, as it was when it was saved.

        Args:
            path: the file.
            model: the reward model, if it is your own: functions are not saved.
            features: the feature map, if there was one.
            hyperparameters: those that were functions or objects.

        Returns:
            An agent that makes the decisions that the saved one would have made.
        """
        return cls._of(*saving.load(path, model, features, hyperparameters))

    def fork(self, seed: int) -> "Agent":
        """An independent copy with the same knowledge, and its own randomness and ids."""
        _check_seed(seed)
        with self._learning:
            return self._of(self._snapshot.with_seed(seed), self._ledger.copy(new_tag()))

    def _settle(self, ids: Sequence[str], rewards: Sequence[Any]) -> None:
        """Learn the rewards of pending decisions: all of them, or none."""
        with self._learning:
            current = self._snapshot
            found: list[tuple[Arm | None, Any, float, Any]] = []
            for name, reward in zip(ids, rewards, strict=True):
                pending = self._ledger.find(name)
                given = [reward] if len(pending.arms) == 1 else _as_list(reward, len(pending.arms))
                for arm, row, value in zip(pending.arms, pending.features, given, strict=True):
                    if value is not None:
                        found.append((arm, row, _checked_reward(current.settings, value), pending.menu))
            if len(set(ids)) < len(ids):
                raise ValueError("every decision has one reward, but a decision is given twice")
            lasting = [entry for entry in found if entry[0] is None or current.arms.get(entry[0].name) == entry[0]]
            if lasting:
                played, rows, values, menus = zip(*lasting, strict=True)
                self._absorb(played, np.array(rows), np.array(values, current.settings.dtype), menus)
            self._ledger.close(ids)
            counts = self._snapshot.counts
            unlearned = counts.unlearned + len(found) - len(lasting)
            self._snapshot = self._snapshot._replace(counts=counts._replace(unlearned=unlearned))

    def _absorb(self, played: Sequence[Arm | None], rows: Any, rewards: Any, menus: Sequence[Any] = ()) -> None:
        """Learn from checked observations; if that fails, only the count of failures changes."""
        self._snapshot, report = self._snapshot.learned(self._keys.learn, played, rows, rewards, menus)
        if report.rejected:
            raise RejectedUpdate(
                f"an update with reward {rewards[report.first_rejected]:g} was rejected, because the posterior would "
                "not have stayed finite; nothing was learned, and decisions still wait for their reward"
            )

    def __repr__(self) -> str:
        settings, counts = self._snapshot.settings, self.diagnostics()
        named = f", arms=[{arms_.listed(self.arms)}]" if settings.is_named else ""
        model = f"{type(settings.model).__name__.lower()}({settings.dim})"
        return f"Agent({settings.algorithm}, {model}{named}: {counts.observations} learned, {counts.pending} pending)"

    def _repr_html_(self) -> str:
        return diagnostics.as_html(repr(self), self.diagnostics())

    def __reduce__(self) -> Any:
        raise TypeError("an agent cannot be pickled: use save and load, or fork")


def _check_seed(seed: int) -> None:
    validate.count("seed", seed, least=0)
    if seed >= 1 << 32:
        raise ValueError(f"seed must be below 2^32, but is {seed}")


def _id_of(decision: Decision | str) -> str:
    return decision.id if isinstance(decision, Decision) else decision


def _checked_reward(settings: Settings, value: Any) -> float:
    """A reward that is possible under the model."""
    if not isinstance(value, (float, int)) or not math.isfinite(value):
        validate.finite("the reward", value)
        validate.shape("the reward", value, ())
    reward, (least, largest) = float(value), settings.model.reward_range
    if not least <= reward <= largest:
        raise ValueError(f"the reward of {settings.model.reward_rule()}, but is {reward:g}")
    if abs(reward) > float(np.finfo(settings.dtype).max):
        raise ValueError(f"the reward must fit into {settings.dtype}, but is {reward:g}")
    return reward


def _as_list(rewards: Any, k: int) -> list[Any]:
    if isinstance(rewards, str) or not hasattr(rewards, "__len__") or len(rewards) != k:
        raise ValueError(f"a ranking of {k} arms needs {k} rewards, None where nothing is known, but got {rewards!r}")
    return list(rewards)


def _draws(
    chooser: Chooser | None, view: Arrays, key: Array, number: int, offer: Offer, samples: int
) -> Float[np.ndarray, "samples arms"]:
    """A score for each arm on offer under each of many posterior draws; zeros for a policy without scores."""
    if chooser is None:
        return np.zeros((samples, len(offer.names)))
    return np.asarray(chooser.draws(view, key, as_number(number), offer.rows, samples))[:, offer.where]
