"""The agent of an application: it decides, and learns when a reward arrives."""

import functools
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, KeysView, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from vits import files, models, validate
from vits.agent import arms as arms_
from vits.agent import belief, container, diagnostics, processes, saving, snapshot
from vits.agent.arms import FeatureMap, Offer
from vits.agent.compiled import Arrays, Chooser, Noise, as_number
from vits.agent.decisions import DEFAULT_SAMPLES, Decision, Ledger, Pending, ranking
from vits.agent.rewards import checked_reward, observations
from vits.agent.settings import Keys, Settings, is_double
from vits.agent.snapshot import Change, Snapshot
from vits.policies import PosteriorPolicy

MAX_PENDING = 10_000
"""Default number of decisions that may wait for their reward."""

WHEN_FULL = ("grow", "raise")


class Agent:
    """A bandit that decides and learns, one call at a time.

    There are three ways to say what the arms are:

    - neither `arms` nor `features`: `decide(arms)` takes the features of the arms on offer, any number of them;
    - `arms` and `features`: `decide(context)` uses `features(context, arm)` for every named arm;
    - `arms` alone: `decide(context)`, and every named arm has its own posterior, or its own output of a network that
      all arms share, `vits.models.mlp(dim, outputs=...)`.

    Any number of threads may decide while others learn. Calls that learn take turns.

    Args:
        algorithm: a name in `vits.catalogue.ALGORITHMS`; `vits list` prints them.
        model: the reward model.
        features: a feature map phi(context, arm).
        arms: names of arms, any hashable values; arms can be added later.
        seed: the same seed and the same calls give the same decisions.
        capacity: store all observations, with initial room for this many. It matters to models that need them (all but
            linear ones). By default these store a bounded number: the last 128 for logistic and Poisson models, 1024 or
            more for others, with older ones folded into a quadratic form (`fold_after`). Where nothing can be folded,
            they store the last 1024 (16,384 with a `minibatch`) and forget older ones (`window`).
            `diagnostics().storage` says which. A `window` or a `fold_after` of your own replaces this.
        when_full: for agents with a capacity. "grow" doubles the room, which compiles again; "raise" refuses what does
            not fit.
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
        processes.check()
        seed = validate.seed("seed", seed)
        if when_full not in WHEN_FULL:
            raise validate.unknown("when_full", when_full, WHEN_FULL)
        if when_full == "raise" and capacity is None:
            raise ValueError("when_full='raise' needs a capacity, but there is none")
        names = arms_.checked_names([] if arms is None else arms)
        is_named = arms is not None or features is not None
        settings = Settings(algorithm, model, hyperparameters, features, is_named, when_full, seed)
        self._start(snapshot.fresh(settings, names, capacity), Ledger(max_pending))

    def _start(self, current: Snapshot, ledger: Ledger) -> None:
        self._snapshot, self._ledger = current, ledger
        self._keys = Keys.of(current.settings.seed)
        self._noise = Noise(self._keys.choose, current.settings.model.num_params, current.settings.dtype)
        self._learning = threading.RLock()
        """Held by the thread that replaces the snapshot; reading it needs no lock."""
        processes.watch(self)

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

        Raises:
            ArithmeticError: fewer than `k` arms have a finite score.
        """
        current, ledger = self._ready(), self._ledger
        if type(k) is not int or k < 1:
            k = validate.count("k", k)
        offer = current.offer(arms_or_context, available)
        count, longest = len(offer.names), current.longest_menu
        if k > count:
            raise ValueError(f"k must be at most the {count} arms on offer, but is {validate.shown(k)}")
        if longest is not None and count > longest:
            raise ValueError(f"num_arms must be at least the {count} arms on offer, but is {longest}")
        number = ledger.draw()
        scores = current.scores(self._noise, number, offer.rows)[offer.where]
        order = ranking(scores, k, (current.settings.seed, number))
        features = offer.features
        rows = features.take(order, axis=0)
        rows.setflags(write=False)
        names = tuple(offer.names[i] for i in order)
        ranked = tuple(current.arms[name] for name in names) if current.settings.is_named else (None,) * k
        return Decision(
            id=ledger.open(Pending(ranked, rows, None if longest is None else np.array(features), names)),
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
            reward: a number; for a ranking of k arms, k numbers in the order of the ranking, with None for arms whose
                reward is unknown, or a mapping from arms to their rewards.

        Raises:
            UnknownDecision: this agent did not make the decision, or was restored to a time before it.
            ExpiredDecision: too many newer decisions wait for a reward. If the decision is older than one that expired,
                its reward may have been learned.
            RewardGivenAlready: the decision has its reward.
            InvalidReward: the reward is not a number that the model allows.
            CapacityFull: there is no room for the observation, with `when_full="raise"`.
            RejectedUpdate: the update would have broken the posterior. The failure is counted.

        After an error, or an exception of any other kind, the agent is as it was, and the decision still waits if it
        did before. All of these but `RejectedUpdate` are refusals; see the how-to on rewards that come late.
        """
        self._update(functools.partial(self._settled, [_id_of(decision)], [reward]))

    def learn_many(
        self,
        decisions: Collection[Decision | str] | Mapping[Decision | str, Any],
        rewards: Collection[Any] | None = None,
    ) -> None:
        """Learn the rewards of many decisions: all of them or, if anything is wrong, none.

        Args:
            decisions: decisions or their ids, or a mapping from them to their rewards.
            rewards: a reward for each decision, as in `learn`; left out for a mapping.
        """
        if isinstance(decisions, Mapping) and rewards is None:
            rewards, decisions = list(decisions.values()), list(decisions)
        ids = [_id_of(decision) for decision in _in_order("decisions", decisions)]
        values = _in_order("rewards", rewards)
        if len(ids) != len(values):
            raise ValueError(f"there must be {len(ids)} rewards, one for each decision, but are {len(values)}")
        self._update(functools.partial(self._settled, ids, values))

    def partial_fit(self, features: Any, rewards: Any, *, arms: Collection[Hashable] | None = None) -> None:
        """Learn from logged data, row by row: all of it or, if anything is wrong, nothing.

        Args:
            features: the features of the arms that were played, (n, dim).
            rewards: their rewards, (n,).
            arms: the names of the arms that were played, for agents with a posterior for each arm.
        """
        settings = self._ready().settings
        if self._snapshot.longest_menu is not None:
            raise ValueError(f"{settings.algorithm} learns from all arms on offer: use decide and learn")
        rows = arms_.table("features", features, settings.dim, settings.dtype)
        if settings.model.num_heads is not None:
            arms_.check_outputs(rows, settings.model.num_heads)
        values = arms_.numbers("rewards", rewards, settings.dtype)
        validate.shape("rewards", values, (len(rows),))
        for value in values.tolist():
            checked_reward(settings, value)
        if (arms is not None) != settings.per_arm:
            raise ValueError("arms must name the arm of each row if every arm has its own posterior, and only then")
        names = None if arms is None else _in_order("arms", arms)
        if names is not None and len(names) != len(rows):
            raise ValueError(f"arms must name the arm of each of the {len(rows)} rows, but are {len(names)}")
        self._update(functools.partial(self._fitted, names, rows, values))

    def warm_up(self, max_arms: int = 64) -> None:
        """Compile everything now, so that no later call has to wait for it.

        Afterwards `decide`, `learn`, `learn_many`, `partial_fit`, `posterior` and `propensity` compile nothing, with
        two exceptions: an agent that stores all observations compiles when its room grows, and one with a posterior
        for each arm when the number of arms exceeds a power of two (8, 16, ...).

        Args:
            max_arms: the largest number of arms on offer in a decision.
        """
        validate.count("max_arms", max_arms)
        current = self._ready()
        needed = float(max_arms) * current.settings.dtype.itemsize * (current.settings.dim + DEFAULT_SAMPLES)
        validate.memory(f"a decision among {max_arms:,} arms", needed, "use a smaller max_arms")
        current.warm_up(self._keys, self._noise, max_arms)
        if isinstance(current.policy, PosteriorPolicy):
            self.posterior(next(iter(current.arms), None))

    def add_arm(self, name: Hashable) -> None:
        """Add an arm that starts with the prior; an arm that was removed may return, as a new arm.

        A model with one output per arm has none for a new one.
        """
        self._update(lambda current: (current.with_arm(name), None))

    def remove_arm(self, name: Hashable) -> None:
        """Remove an arm; its own posterior, if it has one, is forgotten."""
        self._update(lambda current: (current.without_arm(name), None))

    def posterior(self, arm: Hashable = None, *, samples: int = DEFAULT_SAMPLES) -> belief.Belief:
        """The posterior over the parameters of the model.

        Args:
            arm: the arm, for agents with a posterior for each arm.
            samples: draws, for intervals and for quantities without a closed form.

        Returns:
            `.mean` (p,), `.variances` (p,), `.covariance` (p, p), and `.interval(arms)`, the expected reward of arms.
        """
        return belief.belief(self._ready(), arm, samples)

    def diagnostics(self) -> diagnostics.Diagnostics:
        """The counters of the agent."""
        return diagnostics.diagnose(lambda: self._snapshot, self._ledger)

    def save(self, path: str | Path) -> None:
        """Write everything to one file atomically; `load` continues exactly from there."""
        file = files.checked_path(path)
        with self._learning:
            self._ledger.close(self._snapshot.settled)
            content = saving.encoded(self._snapshot, self._ledger)
        container.write(file, *content)

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
            An agent that chooses what the saved one would have chosen. Decisions that were pending keep their ids; new
            ones get ids that no other agent has.
        """
        processes.check()
        return cls._of(*saving.load(files.checked_path(path), model, features, hyperparameters))

    def fork(self, seed: int) -> "Agent":
        """An independent copy with the same posterior and pending decisions, and its own randomness and ids."""
        seed = validate.seed("seed", seed)
        with self._learning:
            current = self._ready()
            self._ledger.close(current.settled)
            return self._of(current.with_seed(seed), Ledger(**self._ledger.content() | {"draws": 0}))

    def _fitted(self, names: Sequence[Hashable] | None, rows: Any, rewards: Any, current: Snapshot) -> Change:
        """The change by logged data."""
        for name in names or ():
            arms_.check_known(current.arms, name)
        played = [None] * len(rows) if names is None else [current.arms[name] for name in names]
        return current.learned(self._keys.learn, played, rows, rewards)

    def _settled(self, ids: Sequence[str], rewards: Sequence[Any], current: Snapshot) -> Change:
        """The change by the rewards of pending decisions."""
        observed, unlearned = observations(current, [self._ledger.find(name) for name in ids], rewards)
        if len(set(ids)) < len(ids):
            raise ValueError("every decision has one reward, but a decision is given twice")
        return current.learned(self._keys.learn, *observed, settled=ids, unlearned=unlearned)

    def _update(self, change: Callable[[Snapshot], Change]) -> None:
        """Replace the snapshot by `change` of it, and raise if the change was a rejected update.

        The snapshot holds everything that a change is about: posterior, arms, counters and settled decisions. It is
        replaced in one assignment, so an interrupted call changes all of this or none of it. The ledger is updated
        afterwards; if that is interrupted, the next call completes it.
        """
        self._ready()
        with self._learning:
            while True:
                current = self._snapshot
                self._ledger.close(current.settled)
                new, error = change(current)
                if self._snapshot is current:  # else a signal handler has learned meanwhile
                    self._snapshot = new
                    break
            self._ledger.close(new.settled)
        if error is not None:
            raise error

    def _ready(self) -> Snapshot:
        """The snapshot, if compiled programs can be called."""
        processes.check()
        current = self._snapshot
        if is_double() is not current.settings.x64:
            raise ValueError(
                f"this agent computes in {current.settings.dtype}, but JAX was set to another precision since "
                "(jax_enable_x64): set it before agents are made"
            )
        return current

    def continue_in_child(self) -> None:
        """After a fork: replace locks that another thread may hold, and give new decisions other ids."""
        self._learning = threading.RLock()
        self._ledger.start_session()

    def __repr__(self) -> str:
        settings, counts = self._snapshot.settings, self.diagnostics()
        named = f", arms=[{arms_.listed(self.arms)}]" if settings.is_named else ""
        model = f"{type(settings.model).__name__.lower()}({settings.dim})"
        return f"Agent({settings.algorithm}, {model}{named}: {counts.observations} learned, {counts.pending} pending)"

    def _repr_html_(self) -> str:
        return diagnostics.as_html(repr(self), self.diagnostics())

    def __reduce__(self) -> Any:
        raise TypeError("an agent cannot be pickled: use save and load, or fork")


def _id_of(decision: Decision | str) -> str:
    return decision.id if isinstance(decision, Decision) else decision


def _in_order(name: str, values: Any) -> list[Any]:
    """The values as a list, if their order means something."""
    unordered = isinstance(values, (Mapping, Set)) and not isinstance(values, KeysView)
    if unordered or isinstance(values, (str, bytes, bytearray)) or not arms_.is_iterable(values):
        raise ValueError(f"{name} must be in order, such as a list, but are {validate.shown(values)}")
    return list(values)


def _draws(
    chooser: Chooser, view: Arrays, key: Array, number: int, offer: Offer, samples: int
) -> Float[np.ndarray, "samples arms"]:
    """A score for each arm on offer under each of many posterior draws; zeros for a policy without scores."""
    processes.check()
    scores = np.asarray(chooser.draws(view, key, as_number(number), arms_.padded(offer.rows), samples))
    return scores[:, : len(offer.rows)][:, offer.where]
