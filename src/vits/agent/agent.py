"""The object an application holds: it decides, and learns when the reward comes."""

import functools
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from vits import models, validate
from vits.agent import archive, beliefs, mind
from vits.agent import features as rows_of
from vits.agent.core import Core, Live, check_known, new_tag, start_key
from vits.agent.decisions import DEFAULT_SAMPLES, Book, Decision, Pending, ranking
from vits.agent.diagnostics import Counts, Diagnostics, as_html
from vits.agent.features import Arm, FeatureMap, Offer
from vits.agent.programs import Arrays, Chooser, as_number
from vits.policies import PosteriorPolicy, ThompsonPerArm

MAX_PENDING = 10_000
"""Decisions that may wait for their reward."""

WHEN_FULL = ("grow", "raise")


class Agent:
    """A bandit that decides and learns, one call at a time.

    Three ways to say what there is to choose from:

    - neither `arms` nor `features`: `decide(arms)` gets the features of the arms on offer, any number of them;
    - `arms` and `features`: `decide(context)` looks at `features(context, arm)` for every named arm;
    - `arms` alone: `decide(context)`, and every named arm has a posterior of its own.

    Any number of threads may decide while others learn; those that learn take turns.

    Args:
        algorithm: one of `vits.catalogue.ALGORITHMS`; `vits list` prints them.
        model: the reward model.
        features: a feature map phi(context, arm).
        arms: names of arms, anything hashable; more can be added later.
        seed: the same seed and the same calls give the same decisions.
        capacity: room for so many observations, for models that keep them (all but linear ones); 1024 by default.
        when_full: "grow" doubles the room and compiles anew; "raise" refuses what does not fit. With a `window` or
            with `fold_after` only the last so many observations are kept, and the room never fills.
        max_pending: so many decisions may wait for their reward; then the oldest expire.
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
        named = _checked_names([] if arms is None else arms)
        recipe = mind.Recipe(algorithm, model, arms is not None and features is None, hyperparameters)
        roster = {name: Arm(name, i if recipe.per_arm else 0, i) for i, name in enumerate(named)}
        start = mind.fresh(recipe, len(named) if recipe.per_arm else 0, capacity, start_key(seed, 0))
        self._core = Core(
            seed=seed,
            phi=features,
            is_named=arms is not None or features is not None,
            when_full=when_full,
            live=Live(start, roster),
            book=Book(new_tag(), max_pending),
            counts=Counts(next_born=len(named)),
        )

    @property
    def arms(self) -> tuple[Hashable, ...]:
        """The names of the arms."""
        return tuple(self._core.live.arms)

    def decide(self, arms_or_context: Any, *, available: Iterable[Hashable] | None = None, k: int = 1) -> Decision:
        """Choose an arm, or rank the best k.

        Args:
            arms_or_context: the features of the arms, (K, dim), or a mapping from names to features; where arms have
                names, the context.
            available: only these arms may be chosen.
            k: how many arms to rank, best first.

        Returns:
            The decision. It waits for its reward until `learn` gets its `id`.
        """
        core = self._core
        live = core.live
        offer = core.offer(live, arms_or_context, available)
        count, longest = len(offer.names), live.mind.longest_menu
        if k != 1:
            validate.count("k", k)
        if k > count:
            raise ValueError(f"k must be at most the {count} arms on offer, but is {k}")
        if longest is not None and count > longest:
            raise ValueError(f"num_arms must be at least the {count} arms on offer, but is {longest}")
        number = core.book.number()
        scores = live.mind.scores(core.keys.choose, number, offer.rows)[offer.where]
        order = ranking(scores, k, (core.seed, number))
        features = offer.features
        rows = features.take(order, axis=0)
        rows.setflags(write=False)
        names = tuple(offer.names[i] for i in order)
        played = tuple(live.arms[name] for name in names) if core.is_named else (None,) * k
        return Decision(
            id=core.book.open(number, Pending(played, rows, None if longest is None else np.array(features))),
            arm=names[0],
            arms=names,
            index=order[0],
            features=rows[0],
            offered=offer.names,
            scores=scores,
            # Not the whole mind: an application may hold on to a decision, and with it to an old history.
            _draws=functools.partial(_draws, live.mind.chooser, live.mind.view, core.keys.draw, number, offer),
        )

    def learn(self, decision: Decision | str, reward: Any) -> None:
        """Learn what a decision brought: once, at any time, in any order.

        If its arm was removed in the meantime, the reward is counted but nothing is learned from it.

        Args:
            decision: the decision or its id.
            reward: a number; for a ranking of k arms, k numbers, with None for arms of which nothing is known.

        Raises:
            ValueError: an unknown or expired decision, or a reward that was given already or makes no sense.
            RejectedUpdate: the posterior would not have stayed finite. It is as it was, the failure is counted, and
                the decision still waits for its reward.
        """
        self._core.settle([_id_of(decision)], [reward])

    def learn_many(self, decisions: Sequence[Decision | str], rewards: Sequence[Any]) -> None:
        """Learn what many decisions brought: all of it or, if anything is wrong, nothing.

        Args:
            decisions: decisions or their ids.
            rewards: a reward for each, as in `learn`.
        """
        if len(decisions) != len(rewards):
            raise ValueError(f"there must be {len(decisions)} rewards, one for each decision, but are {len(rewards)}")
        self._core.settle([_id_of(decision) for decision in decisions], rewards)

    def partial_fit(self, features: Any, rewards: Any, *, arms: Sequence[Hashable] | None = None) -> None:
        """Learn from logged data, row by row: all of it or, if anything is wrong, nothing.

        Args:
            features: the features of the arms that were played, (n, dim).
            rewards: what they paid, (n,).
            arms: the names of the arms that were played, for agents with a posterior for each arm.
        """
        core = self._core
        recipe = core.live.mind.recipe
        if core.live.mind.longest_menu is not None:
            raise ValueError(f"{recipe.algorithm} learns from all arms on offer: use decide and learn")
        rows = rows_of.table("features", features, recipe.model.dim, core.dtype)
        values = rows_of.numbers("rewards", rewards, core.dtype)
        validate.shape("rewards", values, (len(rows),))
        for value in values.tolist():
            core.checked_reward(value)
        if (arms is not None) != recipe.per_arm:
            raise ValueError("arms must name each row's arm where every arm has a posterior of its own, and only there")
        if arms is not None and len(arms) != len(rows):
            raise ValueError(f"arms must name the arm of each of the {len(rows)} rows, but are {len(arms)}")
        with core.learning:
            known = core.live.arms
            for name in arms or ():
                check_known(known, name)
            core.absorb([None] * len(rows) if arms is None else [known[name] for name in arms], rows, values)

    def add_arm(self, name: Hashable) -> None:
        """One arm more, which nothing is known about; a name that was removed may come back, as a new arm."""
        self._core.add_arm(name)

    def remove_arm(self, name: Hashable) -> None:
        """One arm less; if it had a posterior of its own, that is forgotten."""
        self._core.remove_arm(name)

    def posterior(self, arm: Hashable = None, *, samples: int = DEFAULT_SAMPLES) -> beliefs.Belief:
        """What the agent believes about the parameters of its model.

        Args:
            arm: whose posterior, for agents with one for each arm.
            samples: draws for what has no closed form.

        Returns:
            `.mean` (p,), `.covariance` (p, p), and `.interval(arms)`, the expected reward of arms.
        """
        core = self._core
        live = core.live
        recipe, policy, state = live.mind.recipe, live.mind.policy, live.mind.state
        if not isinstance(policy, PosteriorPolicy):
            raise ValueError(f"{recipe.algorithm} has no posterior")
        posterior = policy.posterior

        def offer(what: Any) -> tuple[Sequence[Hashable], Float[np.ndarray, "arms dim"]]:
            offered = core.offer(live, what, [arm] if recipe.per_arm else None)
            return offered.names, offered.features

        if isinstance(policy, ThompsonPerArm):
            check_known(live.arms, arm)
            state, posterior = policy.posterior.of(state, live.arms[arm].slot), policy.posterior.posterior
        key = start_key(core.seed, 0)
        return beliefs.believe(posterior, state, key, samples, recipe.model, offer)

    def diagnostics(self) -> Diagnostics:
        """How the agent is doing, in numbers."""
        core = self._core
        live, counts, waiting = core.live, core.counts, core.book.waiting()
        return Diagnostics(
            decisions=core.book.issued,
            observations=counts.observations,
            pending=len(waiting),
            expired=core.book.expired,
            unlearned=counts.unlearned,
            rejected=counts.rejected,
            step_capped=counts.step_capped,
            refreshed=counts.refreshed,
            capacity=live.mind.capacity if live.mind.grows else None,
            memory_bytes=live.mind.nbytes + sum(pending.nbytes for pending in waiting.values()),
        )

    def save(self, path: str | Path) -> None:
        """Write everything to one file, whole or not at all; `load` goes on exactly from there."""
        archive.save(path, self._core)

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
            model: the reward model, if it is of your own making: functions are not saved.
            features: the feature map, if there was one.
            hyperparameters: those that were functions or objects.

        Returns:
            An agent that makes the decisions that the saved one would have made.
        """
        return cls._of(archive.load(path, model, features, hyperparameters))

    def fork(self, seed: int) -> "Agent":
        """An independent copy that knows all that this one knows now, with randomness and ids of its own."""
        _check_seed(seed)
        return self._of(self._core.fork(seed))

    @classmethod
    def _of(cls, core: Core) -> "Agent":
        agent = object.__new__(cls)
        agent._core = core
        return agent

    def __repr__(self) -> str:
        recipe, counts = self._core.live.mind.recipe, self.diagnostics()
        named = f", arms=[{rows_of.listed(self.arms)}]" if self._core.is_named else ""
        model = f"{type(recipe.model).__name__.lower()}({recipe.model.dim})"
        return f"Agent({recipe.algorithm}, {model}{named}: {counts.observations} learned, {counts.pending} pending)"

    def _repr_html_(self) -> str:
        return as_html(repr(self), self.diagnostics())

    def __reduce__(self) -> Any:
        raise TypeError("an agent cannot be pickled: use save and load, or fork")


def _check_seed(seed: int) -> None:
    validate.count("seed", seed, least=0)
    if seed >= 1 << 32:
        raise ValueError(f"seed must be below 2^32, but is {seed}")


def _id_of(decision: Decision | str) -> str:
    return decision.id if isinstance(decision, Decision) else decision


def _draws(
    chooser: Chooser | None, view: Arrays, key: Array, number: int, offer: Offer, samples: int
) -> Float[np.ndarray, "samples arms"]:
    """A score for each arm on offer, under each of many posterior draws; all the same for a policy without scores."""
    if chooser is None:
        return np.zeros((samples, len(offer.names)))
    return np.asarray(chooser.draws(view, key, as_number(number), offer.rows, samples))[:, offer.where]


def _checked_names(names: Iterable[Hashable]) -> list[Hashable]:
    if isinstance(names, (str, bytes)):
        raise ValueError(f"arms must be a collection of names, but is {names!r}")
    listed = list(names)
    if len(set(listed)) < len(listed):
        raise ValueError(f"arms must have different names, but are {rows_of.listed(listed)}")
    return listed
