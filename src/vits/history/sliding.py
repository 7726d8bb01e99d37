"""A sliding window: the last observations."""

from dataclasses import replace
from typing import cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vits.history.full import History
from vits.types import Observation, Scalar


class SlidingHistory(History):
    """The last `capacity` observations, in a ring; `evicted` is the row that the last append wrote over."""

    evicted: tuple[Float[Array, " dim"], Scalar]

    @property
    def overflowed(self) -> Bool[Array, ""]:
        """Never: a new observation replaces the oldest."""
        return jnp.zeros_like(self.seen, bool)

    def append(self, observation: Observation) -> "SlidingHistory":
        """Add one observation; if the window is full, drop the oldest."""
        slot = self._next_slot()
        appended = super().append(observation)
        return replace(cast(SlidingHistory, appended), evicted=(self._at(slot).get(), self.rewards[slot]))

    def undo_unless(self, accepted: Bool[Array, ""], old: History) -> "SlidingHistory":
        """`self` if accepted, else `old`, bit for bit, where `self` is `old` after one `append`."""
        past = cast(SlidingHistory, old)
        slot = jnp.where(accepted, self.capacity, past._next_slot())
        features, reward = jax.tree.map(lambda row: jnp.where(accepted, 0.0, row), self.evicted)
        return replace(
            self,
            features=self._at(slot).set(features),
            rewards=self.rewards.at[slot].set(reward),
            seen=jnp.where(accepted, self.seen, past.seen),
            evicted=jax.tree.map(lambda a, b: jnp.where(accepted, a, b), self.evicted, past.evicted),
        )

    def _next_slot(self) -> Int[Array, ""]:
        return self.seen % self.capacity
