"""The state of an agent as one immutable value: learning and changes of arms return a new snapshot.

Readers see a consistent snapshot while others learn, and a failed update changes nothing.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from vits import validate
from vits.agent import arms as arms_
from vits.agent import compiled, device
from vits.agent.arms import Arm, Offer
from vits.agent.compiled import Arrays, Batch, Chooser, Learner, Noise, Report, Skeleton
from vits.agent.decisions import DEFAULT_SAMPLES
from vits.agent.errors import CapacityFull, RejectedUpdate
from vits.agent.settings import Keys, Settings, slots_for
from vits.history import DEFAULT_CAPACITY
from vits.history.paged import PagedHistory
from vits.policies import Policy, PosteriorPolicy, longest_menu
from vits.types import REASONS, State

CHUNK = 128
"""Observations per call of the compiled program, when many are learned at once."""


class Counts(NamedTuple):
    """Counters of an agent.

    `settled` counts decisions whose reward was given. `updates` numbers the random keys of updates, rejected ones
    included. `arm_changes` counts arms that were added or removed, initial ones included. `by_arm` has the number of
    observations of each arm by its `created` number.
    """

    observations: int = 0
    settled: int = 0
    unlearned: int = 0
    rejected: int = 0
    step_capped: int = 0
    refreshed: int = 0
    updates: int = 0
    arm_changes: int = 0
    by_arm: Mapping[int, int] = {}


class Snapshot(NamedTuple):
    """The state of an agent: posterior, arms and counters.

    The policy and its state are split into skeletons and arrays for the compiled programs; `view` holds the arrays
    that a choice depends on. `rows` counts the stored observations, for agents whose storage `grows`; there is room for
    `capacity`. `longest_menu` is the largest number of arms on offer, for algorithms that store all of them. `settled`
    are the ids of the decisions that this snapshot has learned and its predecessor had not: the ledger may still list
    them.
    """

    settings: Settings
    slots: int
    capacity: int
    rows: int
    grows: bool
    skeletons: tuple[Skeleton, Skeleton]
    policy_arrays: Arrays
    state_arrays: Arrays
    learner: Learner
    chooser: Chooser
    view: Arrays
    longest_menu: int | None
    arms: Mapping[Hashable, Arm]
    counts: Counts
    settled: Sequence[str] = ()

    @property
    def policy(self) -> Policy:
        """The policy."""
        return self.skeletons[0].filled(self.policy_arrays)

    @property
    def state(self) -> State:
        """The state of the policy."""
        return self.skeletons[1].filled(self.state_arrays)

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        return sum(array.nbytes for array in (*self.policy_arrays, *self.state_arrays))

    def offer(self, what: Any, available: Iterable[Hashable] | None) -> Offer:
        """The arms to choose among, from the argument of `decide`."""
        settings = self.settings
        dim, dtype = settings.dim, settings.dtype
        heads = settings.model.num_heads
        if settings.per_arm:
            return arms_.slot_rows(what, self.arms, available, self.slots, dim, dtype)
        if settings.features is not None:
            offer = arms_.mapped_rows(what, self.arms, available, settings.features, dim, dtype)
        elif heads is not None and settings.is_named:
            return arms_.head_rows(what, self.arms, available, heads, dim, dtype)
        else:
            offer = arms_.given_rows(what, available, dim, dtype)
        if heads is not None:
            arms_.check_outputs(offer.rows, heads)
        return offer

    def scores(self, noise: Noise, number: int, rows: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, " rows"]:
        """A score for each row under the posterior draw of decision `number`; zeros for a policy without scores."""
        chooser, view = self.chooser, self.view
        if chooser.gaussian is None:
            scores = chooser.score(view, noise.key, compiled.as_number(number), arms_.padded(rows))
            return np.asarray(scores)[: len(rows)]
        mean, sqrt_cov = (np.asarray(view[i]) for i in chooser.gaussian)
        with np.errstate(over="ignore", invalid="ignore"):  # scores that are not finite never win
            return rows @ (mean + sqrt_cov @ noise.of(number))  # phi' (mean + B eps)

    def learned(
        self,
        key: Array,
        played: Sequence[Arm | None],
        rows: Any,
        rewards: Any,
        menus: Sequence[Any] = (),
        *,
        settled: Sequence[str] = (),
        unlearned: int = 0,
    ) -> "Change":
        """The snapshot after these observations; if one was rejected, only counters differ, and the error says why.

        The decisions `settled` then have their reward; `unlearned` of their rewards were of arms that are gone.
        """
        count, counts = len(rewards), self.counts
        room = self.rows + count
        if self.grows and room > self.capacity and self.settings.when_full == "raise":
            raise CapacityFull(f"capacity is {self.capacity} observations, but {room} would have to fit")
        slots = None
        if self.settings.per_arm:
            slots = np.asarray([0 if arm is None else arm.slot for arm in played], np.int32)
        batch = Batch(rows, rewards, slots, *_padded_menus(menus, self.longest_menu))
        larger = self._with_room(room)
        state, report = larger._updated(key, counts.updates, batch)
        updates = counts.updates + count  # a retry of a rejected update uses fresh randomness
        if report.rejected:
            counts = counts._replace(updates=updates, rejected=counts.rejected + report.rejected)
            reason = REASONS[report.reason]
            message = (
                f"an update with reward {rewards[report.first_rejected]:g} was rejected, because {reason}; nothing was "
                "learned, and decisions still wait for their reward"
            )
            return self._replace(counts=counts), RejectedUpdate(message, reason)
        by_arm = counts.by_arm
        if self.settings.is_named:
            by_arm = dict(by_arm)
            for arm in played:
                if arm is not None:
                    by_arm[arm.created] = by_arm.get(arm.created, 0) + 1
        counts = counts._replace(
            updates=updates,
            observations=counts.observations + count,
            settled=counts.settled + len(settled),
            unlearned=counts.unlearned + unlearned,
            step_capped=counts.step_capped + report.step_capped,
            refreshed=counts.refreshed + report.refreshed,
            by_arm=by_arm,
        )
        return larger._with_state(state, rows=room, counts=counts, settled=settled), None

    def with_arm(self, name: Hashable) -> "Snapshot":
        """The snapshot with a new arm, which has the prior if each arm has its own posterior."""
        self._check_named()
        if arms_.hashable("an arm's name", name) in self.arms:
            raise ValueError(f"arm {validate.shown(name)} is there already")
        larger, slot, number, heads = self, 0, self.counts.arm_changes, self.settings.model.num_heads
        if heads is not None and self.settings.features is None:
            arms_.check_has_output(name, number, heads)
        if self.settings.per_arm:
            taken = {arm.slot for arm in self.arms.values()}
            if len(taken) == self.slots:
                slots = slots_for(self.slots + 1)
                larger = self._rebuilt(slots, self.capacity, self.settings.start_key(number + 1))
            slot = min(set(range(larger.slots)) - taken)
        return larger._replace(
            arms={**self.arms, name: Arm(name, slot, number)}, counts=self.counts._replace(arm_changes=number + 1)
        )

    def without_arm(self, name: Hashable) -> "Snapshot":
        """The snapshot without an arm; its own posterior and observations are forgotten."""
        self._check_named()
        arms_.check_known(self.arms, name)
        arm, counts = self.arms[name], self.counts
        counts = counts._replace(
            arm_changes=counts.arm_changes + 1,
            by_arm={created: rows for created, rows in counts.by_arm.items() if created != arm.created},
        )
        smaller = self
        if self.settings.per_arm:
            fresh = compiled.initial_state(self.policy, self.settings.start_key(counts.arm_changes))
            state = _without_slot(self.state, arm.slot, fresh)
            rows = self.rows - self.counts.by_arm.get(arm.created, 0)
            smaller = self._with_state(compiled.take_apart(state)[1], rows=rows)
        left = {other: it for other, it in self.arms.items() if other != name}
        return smaller._replace(arms=left, counts=counts)

    def with_seed(self, seed: int) -> "Snapshot":
        """The same knowledge with another source of randomness."""
        return self._replace(settings=replace(self.settings, seed=seed))

    def warm_up(self, keys: Keys, noise: Noise, max_arms: int) -> None:
        """Call every compiled program once and drop its results."""
        chooser, settings = self.chooser, self.settings
        sizes = [self.slots]
        if not settings.per_arm:
            first, last = (arms_.padded_size(count).bit_length() for count in (1, max_arms))
            sizes = [1 << (bits - 1) for bits in range(first, last + 1)]
        for size in sizes:
            rows = np.zeros((size, settings.dim), settings.dtype)
            self.scores(noise, 0, rows)
            chooser.draws(self.view, keys.draw, compiled.as_number(0), rows, DEFAULT_SAMPLES)
        for count in (1, 2):
            rows = np.zeros((count, settings.dim), settings.dtype)
            menus = _padded_menus([rows[:1]] * count, self.longest_menu)
            reward = np.zeros(count, settings.dtype)
            slots = np.zeros(count, np.int32) if settings.per_arm else None
            self._updated(keys.learn, 0, Batch(rows, reward, slots, *menus))

    def _updated(self, key: Array, number: int, batch: Batch) -> tuple[Arrays, Report]:
        policy, state, count = self.policy_arrays, self.state_arrays, len(batch.rewards)
        if count == 1:
            return self.learner(policy, state, key, compiled.as_number(number), batch)
        total = Report(0, 0, 0, -1, 0)
        for first in range(0, count, CHUNK):
            chunk, taken = batch.chunk(first, CHUNK), np.int32(min(CHUNK, count - first))
            state, report = self.learner(policy, state, key, compiled.as_number(number + first), chunk, taken)
            total = total.plus(report, first)
        return state, total

    def _with_room(self, rows: int) -> "Snapshot":
        if rows <= self.capacity or not self.grows:
            return self
        larger = self._rebuilt(self.slots, max(rows, 2 * self.capacity), jax.random.key(0))
        # A choice does not depend on the storage, so it keeps its compiled program.
        return larger._replace(chooser=self.chooser)._with_state(larger.state_arrays)

    def _rebuilt(self, slots: int, capacity: int, key: Array) -> "Snapshot":
        policy = self.settings.policy(slots, capacity)
        state = moved(self.state, compiled.initial_state(policy, key))
        return assembled(self.settings, slots, capacity, self.rows, policy, state, self.arms, self.counts)

    def _with_state(self, state: Arrays, **changed: Any) -> "Snapshot":
        return self._replace(state_arrays=state, view=self.chooser.view(self.policy_arrays, state), **changed)

    def _check_named(self) -> None:
        if not self.settings.is_named:
            raise ValueError("arms can be added and removed only where they have names: Agent(..., arms=[...])")


Change = tuple[Snapshot, RejectedUpdate | None]
"""A new snapshot, and the error to raise if it is that of a rejected update."""


def fresh(settings: Settings, names: Sequence[Hashable], capacity: int | None) -> Snapshot:
    """The snapshot of an agent that has seen nothing; its storage is bounded unless there is a capacity."""
    if capacity is not None:
        capacity = validate.count("capacity", capacity)
        settings.check_unbounded(capacity)
    heads = settings.model.num_heads
    if settings.is_named and settings.features is None and heads not in (None, len(names)):
        raise ValueError(f"the model has {heads} outputs, one for each arm, but there are {len(names)} arms")
    slots, room = slots_for(len(names) if settings.per_arm else 0), capacity or DEFAULT_CAPACITY
    policy = settings.policy(slots, room)
    if capacity is None and settings.stores_all(slots):
        settings = settings.bounded()
        policy = settings.policy(slots, room)
    state = compiled.initial_state(policy, settings.start_key(0))
    arms = {name: Arm(name, i if settings.per_arm else 0, i) for i, name in enumerate(names)}
    return assembled(settings, slots, room, 0, policy, state, arms, Counts(arm_changes=len(names)))


def assembled(
    settings: Settings,
    slots: int,
    capacity: int,
    rows: int,
    policy: Policy,
    state: State,
    arms: Mapping[Hashable, Arm],
    counts: Counts,
) -> Snapshot:
    """A snapshot with the compiled programs of its policy."""
    policy_skeleton, policy_arrays = compiled.take_apart(policy)
    state_skeleton, state_arrays = compiled.take_apart(state)
    policy_arrays, state_arrays = device.put(policy_arrays), device.put(state_arrays)
    chooser = compiled.INDIFFERENT
    if isinstance(policy, PosteriorPolicy):
        shapes = compiled.shapes_of((*policy_arrays, *state_arrays))
        rows_shape = (slots if settings.per_arm else 1, settings.dim)
        chooser = compiled.chooser(policy_skeleton, state_skeleton, shapes, rows_shape)
    return Snapshot(
        settings=settings,
        slots=slots,
        capacity=capacity,
        rows=rows,
        grows=settings.stores_all(slots),
        skeletons=(policy_skeleton, state_skeleton),
        policy_arrays=policy_arrays,
        state_arrays=state_arrays,
        learner=compiled.learner(policy_skeleton, state_skeleton),
        chooser=chooser,
        view=chooser.view(policy_arrays, state_arrays),
        longest_menu=longest_menu(policy),
        arms=arms,
        counts=counts,
    )


def moved(old: State, new: State) -> State:
    """The state `new` of a policy with more room, with everything that `old` holds copied into it."""
    parts, structure = jax.tree.flatten(new, is_leaf=_is_paged)
    before = jax.tree.leaves(old, is_leaf=_is_paged)
    return jax.tree.unflatten(structure, [_moved(a, b) for a, b in zip(before, parts, strict=True)])


def _without_slot(state: State, slot: int, fresh: State) -> State:
    """The state of all arms with that of one as in `fresh`, and without its observations."""

    def forget(node: Any, new: Any) -> Any:
        return node.without(slot) if _is_paged(node) else node.at[slot].set(new[slot])

    return jax.tree.map(forget, state, fresh, is_leaf=_is_paged)


def _is_paged(node: Any) -> bool:
    return isinstance(node, PagedHistory)


def _moved(old: Any, new: Any) -> Any:
    if not _is_paged(new):
        return _in_corner(old, new)
    moved = jax.tree.unflatten(
        jax.tree.structure(new),
        [_in_corner(a, b) for a, b in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)],
    )
    # Unowned pages start beyond every row that fits now, not beyond those that fitted before.
    used = int(old.used)
    return replace(moved, start=new.start.at[:used].set(old.start[:used]))


def _in_corner(old: Shaped[jax.Array, "..."], new: Shaped[jax.Array, "..."]) -> Shaped[jax.Array, "..."]:
    if old.shape == new.shape:
        return old
    array = np.array(new)
    array[tuple(slice(length) for length in old.shape)] = np.asarray(old)
    return jnp.asarray(array)


def _padded_menus(menus: Sequence[Any], longest: int | None) -> tuple[Any, Any]:
    """All menus padded to the same number of rows, and how many of them are arms."""
    if longest is None or not menus:
        return None, None
    padded = [np.pad(menu, ((0, longest - len(menu)), (0, 0))) for menu in menus]
    return np.stack(padded), np.asarray([len(menu) for menu in menus], np.int32)
