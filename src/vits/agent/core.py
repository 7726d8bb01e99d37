"""The workings of an agent: what it knows, what waits for a reward, and the locks that keep the two in step."""

import math
import secrets
import threading
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vits import validate
from vits.agent import features
from vits.agent.decisions import Book
from vits.agent.diagnostics import Counts
from vits.agent.features import Arm, FeatureMap, Offer
from vits.agent.mind import Mind, RejectedUpdate
from vits.agent.programs import Batch


class Live(NamedTuple):
    """What decisions are made from: swapped in one assignment, so that a decision never sees half of a change."""

    mind: Mind
    arms: dict[Hashable, Arm]


class Keys(NamedTuple):
    """Where the randomness of each kind comes from."""

    choose: Array
    learn: Array
    start: Array
    draw: Array

    @classmethod
    def of(cls, seed: int) -> "Keys":
        """Independent keys from a seed."""
        return cls(*jax.random.key_data(jax.random.split(jax.random.key(seed), 4)))


class Core:
    """Everything behind the methods of an agent.

    `live` is read without a lock, and replaced by whoever holds `learning`.
    """

    def __init__(
        self,
        *,
        seed: int,
        phi: FeatureMap | None,
        is_named: bool,
        when_full: str,
        live: Live,
        book: Book,
        counts: Counts,
    ) -> None:
        self.seed, self.keys = seed, Keys.of(seed)
        self.phi, self.is_named, self.when_full = phi, is_named, when_full
        self.live, self.book, self.counts = live, book, counts
        self.model = live.mind.recipe.model
        self.dim, self.dtype = self.model.dim, np.dtype(jnp.zeros(()).dtype)
        self.reward_range, self.largest = self.model.reward_range, float(np.finfo(self.dtype).max)
        self.learning = threading.RLock()

    def offer(self, live: Live, what: Any, available: Iterable[Hashable] | None) -> Offer:
        """The arms to choose among, from whatever the application has given."""
        if not self.is_named:
            return features.given_rows(what, available, self.dim, self.dtype)
        if self.phi is not None:
            return features.mapped_rows(what, live.arms, available, self.phi, self.dim, self.dtype)
        return features.slot_rows(what, live.arms, available, live.mind.slots, self.dim, self.dtype)

    def settle(self, ids: Sequence[str], rewards: Sequence[Any]) -> None:
        """Learn the rewards of pending decisions: all of them, or none."""
        with self.learning:
            arms = self.live.arms
            found: list[tuple[Arm | None, Any, float, Any]] = []
            for name, reward in zip(ids, rewards, strict=True):
                pending = self.book.find(name)
                given = [reward] if len(pending.arms) == 1 else _as_list(reward, len(pending.arms))
                for arm, row, value in zip(pending.arms, pending.features, given, strict=True):
                    if value is not None:
                        found.append((arm, row, self.checked_reward(value), pending.menu))
            if len(set(ids)) < len(ids):
                raise ValueError("every decision has one reward, but a decision is given twice")
            lasting = [entry for entry in found if entry[0] is None or arms.get(entry[0].name) == entry[0]]
            if lasting:
                played, rows, values, menus = zip(*lasting, strict=True)
                self.absorb(played, np.array(rows), np.array(values, self.dtype), menus)
            self.book.close(ids)
            self.counts.unlearned += len(found) - len(lasting)

    def absorb(self, played: Sequence[Arm | None], rows: Any, rewards: Any, menus: Sequence[Any] = ()) -> None:
        """Learn from checked observations; on failure nothing has changed but the count of failures."""
        mind, counts, many = self.live.mind, self.counts, len(rewards)
        room = mind.rows + many
        if mind.grows and room > mind.capacity and self.when_full == "raise":
            raise ValueError(f"capacity is {mind.capacity} observations, but {room} would have to fit")
        slots = np.asarray([0 if arm is None else arm.slot for arm in played], np.int32)
        batch = Batch(rows, rewards, slots, *_padded_menus(menus, mind.longest_menu))
        learned, report = mind.with_room(room).learned(self.keys.learn, counts.updates, batch)
        counts.updates += many  # a second try is to have other luck
        if report.rejected:
            counts.rejected += report.rejected
            raise RejectedUpdate(
                f"an update with reward {rewards[report.first_rejected]:g} was rejected, because the posterior would "
                "not have stayed finite; nothing was learned, and decisions still wait for their reward"
            )
        counts.accept(many, report, played)
        self.live = Live(learned, self.live.arms)

    def add_arm(self, name: Hashable) -> None:
        """One arm more, with the prior if it has a posterior of its own."""
        with self.learning:
            live, born = self._named(), self.counts.next_born
            if name in live.arms:
                raise ValueError(f"arm {name!r} is there already")
            mind, slot = live.mind, 0
            if mind.recipe.per_arm:
                taken = {arm.slot for arm in live.arms.values()}
                mind = mind.with_slots(len(taken) + 1, self.start_key(born + 1))
                slot = min(set(range(mind.slots)) - taken)
            self.counts.next_born += 1
            self.live = Live(mind, live.arms | {name: Arm(name, slot, born)})

    def remove_arm(self, name: Hashable) -> None:
        """One arm less; what was known of it alone is forgotten."""
        with self.learning:
            live = self._named()
            check_known(live.arms, name)
            arm, mind = live.arms[name], live.mind
            rows = self.counts.by_arm.pop(arm.born, 0)
            if mind.recipe.per_arm:
                mind = mind.without_arm(arm.slot, rows, self.start_key(self.counts.next_born + 1))
            self.counts.next_born += 1
            self.live = Live(mind, {other: it for other, it in live.arms.items() if other != name})

    def fork(self, seed: int) -> "Core":
        """The same knowledge, with randomness and ids of its own."""
        with self.learning:
            return Core(
                seed=seed,
                phi=self.phi,
                is_named=self.is_named,
                when_full=self.when_full,
                live=self.live,
                book=self.book.copy(new_tag()),
                counts=self.counts.copy(),
            )

    def start_key(self, number: int) -> Array:
        """A key for fresh posteriors."""
        return start_key(self.seed, number)

    def checked_reward(self, value: Any) -> float:
        """A reward that makes sense under the model."""
        if not isinstance(value, (float, int)) or not math.isfinite(value):
            validate.finite("the reward", value)
            validate.shape("the reward", value, ())
        reward, (least, largest) = float(value), self.reward_range
        if not least <= reward <= largest:
            raise ValueError(f"the reward of {self.model.reward_rule()}, but is {reward:g}")
        if abs(reward) > self.largest:
            raise ValueError(f"the reward must fit into {self.dtype}, but is {reward:g}")
        return reward

    def _named(self) -> Live:
        if not self.is_named:
            raise ValueError("arms can be added and removed only where they have names: Agent(..., arms=[...])")
        return self.live


def new_tag() -> str:
    """What the ids of one agent begin with, and no other's: ids of two agents must never be taken for each other."""
    return secrets.token_hex(4)


def start_key(seed: int, number: int) -> Array:
    """A key for fresh posteriors; number 0 is for those that an agent begins with."""
    return jax.random.fold_in(jax.random.wrap_key_data(Keys.of(seed).start), number)


def check_known(arms: dict[Hashable, Arm], name: Hashable) -> None:
    """Raise unless there is an arm of this name."""
    if name not in arms:
        raise ValueError(f"unknown arm {name!r}; known: {features.listed(arms)}")


def _as_list(rewards: Any, k: int) -> list[Any]:
    if isinstance(rewards, str) or not hasattr(rewards, "__len__") or len(rewards) != k:
        raise ValueError(f"a ranking of {k} arms needs {k} rewards, None where nothing is known, but got {rewards!r}")
    return list(rewards)


def _padded_menus(menus: Sequence[Any], longest: int | None) -> tuple[Any, Any]:
    """All menus with the same number of rows, and how many of them are arms."""
    if longest is None:
        return None, None
    padded = [np.pad(menu, ((0, longest - len(menu)), (0, 0))) for menu in menus]
    return np.stack(padded), np.asarray([len(menu) for menu in menus], np.int32)
