"""What an agent knows, as one value that never changes: learning gives a new one.

Whoever reads a mind sees it whole, however many learn in the meantime, and a learner that fails leaves no trace.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from vits import algorithms, models, validate
from vits.agent import growth, programs
from vits.agent.programs import Arrays, Batch, Chooser, Learner, Report, Skeleton
from vits.history import BLOCK, DEFAULT_CAPACITY, with_capacity
from vits.policies import Policy, PosteriorPolicy, longest_menu
from vits.types import State

CHUNK = 128
"""Observations that one call of the compiled program learns from, where there are many."""

FEWEST_SLOTS = 8
"""Posteriors that an agent with one for each arm starts with; when they run out, their number doubles."""


class RejectedUpdate(ArithmeticError):
    """An update that would have made the posterior infinite or meaningless; the posterior is as it was."""


@dataclass(frozen=True)
class Recipe:
    """What an agent is made from: enough to make its policy, with room for so many arms and observations."""

    algorithm: str
    model: models.RewardModel
    per_arm: bool
    hyperparameters: Mapping[str, Any]

    def __post_init__(self) -> None:
        for name in ("num_arms", "per_arm"):
            if name in self.hyperparameters and self.algorithm != "fg_ts":
                raise ValueError(f"{name} must be left out, since an agent knows its arms")
        if self.algorithm == "vts" and not self.per_arm:
            raise ValueError("vts keeps one posterior for each arm, so it needs arms=[...] and no features")

    def policy(self, slots: int, capacity: int) -> Policy:
        """The policy for so many arms with a posterior of their own, if they have any, and so many observations."""
        arms: dict[str, Any] = {}
        if self.per_arm and self.algorithm != "uniform":
            arms = {"num_arms" if self.algorithm == "vts" else "per_arm": slots}
        return with_capacity(algorithms.make(self.algorithm, self.model, **arms, **self.hyperparameters), capacity)


class Mind(NamedTuple):
    """A policy and its state, taken apart for the compiled programs; `view` is what choosing depends on.

    `rows` counts the observations that take up room, if they do (`grows`); there is enough for `capacity` of them.
    `longest_menu` is how many arms may be on offer, for an algorithm that remembers them all.
    """

    recipe: Recipe
    slots: int
    capacity: int
    rows: int
    grows: bool
    skeletons: tuple[Skeleton, Skeleton]
    policy_arrays: Arrays
    state_arrays: Arrays
    learner: Learner
    chooser: Chooser | None
    view: Arrays
    longest_menu: int | None

    @property
    def policy(self) -> Policy:
        """The policy."""
        return self.skeletons[0].filled(self.policy_arrays)

    @property
    def state(self) -> State:
        """Its state."""
        return self.skeletons[1].filled(self.state_arrays)

    @property
    def nbytes(self) -> int:
        """Memory of all arrays."""
        return sum(array.nbytes for array in (*self.policy_arrays, *self.state_arrays))

    def scores(self, key: Array, number: int, rows: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, " rows"]:
        """A score for each row, under one posterior draw; all the same for a policy that has none."""
        if self.chooser is None:
            return np.zeros(len(rows), rows.dtype)
        return np.asarray(self.chooser.score(self.view, key, programs.as_number(number), rows))

    def learned(self, key: Array, number: int, batch: Batch) -> tuple["Mind", Report]:
        """The mind after a batch of observations, for which there is room, and what happened."""
        state, total, count = self.state_arrays, Report(0, 0, 0, -1), len(batch.rewards)
        size = 1 if count == 1 else CHUNK
        for first in range(0, count, size):
            chunk = batch if count == 1 else batch.chunk(first, size)
            taken = np.int32(min(size, count - first))
            state, report = self.learner(
                self.policy_arrays, state, key, programs.as_number(number + first), chunk, taken
            )
            total = total.plus(report, first)
        return self._with_state(state, self.rows + count), total

    def with_room(self, rows: int) -> "Mind":
        """The same mind with room for so many observations."""
        if rows <= self.capacity or not self.grows:
            return self
        capacity = max(rows, 2 * self.capacity)
        policy = self.recipe.policy(self.slots, capacity)
        fresh = programs.initial_state(policy, jax.random.key(0))
        mind = assembled(self.recipe, self.slots, capacity, self.rows, policy, growth.moved(self.state, fresh))
        # What choosing depends on has not grown, and needs no new program.
        return mind._replace(chooser=self.chooser)._with_state(mind.state_arrays, self.rows)

    def with_slots(self, arms: int, key: Array) -> "Mind":
        """The same mind with posteriors for so many arms; the new ones are priors."""
        if arms <= self.slots:
            return self
        slots = slots_for(arms)
        policy = self.recipe.policy(slots, self.capacity)
        fresh = programs.initial_state(policy, key)
        return assembled(self.recipe, slots, self.capacity, self.rows, policy, growth.moved(self.state, fresh))

    def without_arm(self, slot: int, rows: int, key: Array) -> "Mind":
        """The same mind with the prior for one arm, whose `rows` observations are forgotten."""
        fresh = programs.initial_state(self.policy, key)
        state = growth.without_arm(self.state, slot, fresh)
        return self._with_state(programs.take_apart(state)[1], self.rows - rows)

    def _with_state(self, state: Arrays, rows: int) -> "Mind":
        view = self.view if self.chooser is None else self.chooser.view(self.policy_arrays, state)
        return self._replace(state_arrays=state, rows=rows, view=view)


def slots_for(arms: int) -> int:
    """How many posteriors there are for so many arms."""
    return 1 << (max(arms, FEWEST_SLOTS) - 1).bit_length()


def fresh(recipe: Recipe, num_arms: int, capacity: int | None, key: Array) -> Mind:
    """A mind that has seen nothing."""
    if capacity is not None:
        validate.count("capacity", capacity)
    slots, room = slots_for(num_arms), capacity or DEFAULT_CAPACITY
    policy = recipe.policy(slots, room)
    return assembled(recipe, slots, room, 0, policy, programs.initial_state(policy, key))


def assembled(recipe: Recipe, slots: int, capacity: int, rows: int, policy: Policy, state: State) -> Mind:
    """A mind from a policy and its state."""
    policy_skeleton, policy_arrays = programs.take_apart(policy)
    state_skeleton, state_arrays = programs.take_apart(state)
    chooser = None
    if isinstance(policy, PosteriorPolicy):
        shapes = programs.shapes_of((*policy_arrays, *state_arrays))
        rows_shape = (slots if recipe.per_arm else 1, recipe.model.dim)
        chooser = programs.chooser(policy_skeleton, state_skeleton, shapes, rows_shape)
    return Mind(
        recipe=recipe,
        slots=slots,
        capacity=capacity,
        rows=rows,
        grows=growth.grows(*(recipe.policy(slots, room) for room in (BLOCK, 2 * BLOCK))),
        skeletons=(policy_skeleton, state_skeleton),
        policy_arrays=policy_arrays,
        state_arrays=state_arrays,
        learner=programs.learner(policy_skeleton, state_skeleton),
        chooser=chooser,
        view=() if chooser is None else chooser.view(policy_arrays, state_arrays),
        longest_menu=longest_menu(policy),
    )
