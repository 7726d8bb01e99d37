"""The buffers of observations: all of them up to a capacity, or the last ones in a ring; and their settings."""

from dataclasses import replace
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from vits import validate
from vits.history.base import BLOCK, Minibatch, Term, Total, Undoable, batch_max, zeros_like
from vits.types import Observation, Scalar

DEFAULT_CAPACITY = 1024
"""Buffer size if no capacity is given."""


class History(Undoable):
    """The first `capacity` observations.

    Features are stored as the rows of a matrix, or as its columns. By columns, a block enters the products of a
    generalised linear model as Phi', and the products run along last axes, which takes XLA half the time; other models
    are faster by rows.

    Rows past the count are zero. One of them is a spare row: if the buffer is full, an observation goes there, and
    `overflowed` says that the update has to be rejected.
    """

    features: Float[Array, "_ _"]
    rewards: Float[Array, " rows"]
    seen: Int[Array, ""]
    capacity: int = eqx.field(static=True)
    block: int = eqx.field(static=True)
    by_columns: bool = eqx.field(static=True)

    @property
    def count(self) -> Int[Array, ""]:
        """The number of observations in the buffer."""
        return jnp.minimum(self.seen, self.capacity)

    @property
    def overflowed(self) -> Bool[Array, ""]:
        """Whether there was no room for the last observation."""
        return self.seen > self.capacity

    @property
    def longest(self) -> Int[Array, ""]:
        """The end of a sum: the count, and within a batch the count of the fullest history."""
        return batch_max(self.count)

    @property
    def inflation(self) -> Scalar:
        """The factor by which steps must be shorter than on all data: 1."""
        return jnp.ones(())

    def append(self, observation: Observation) -> "History":
        """Add one observation."""
        slot = self._next_slot()
        return replace(
            self,
            features=self._at(slot).set(observation.features.astype(self.features.dtype)),
            rewards=self.rewards.at[slot].set(observation.reward.astype(self.rewards.dtype)),
            seen=self.seen + 1,
        )

    def undo_unless(self, accepted: Bool[Array, ""], old: "History") -> "History":
        """`self` if accepted, else `old`, bit for bit, where `self` is `old` after one `append`.

        Selecting between two buffers would take time proportional to their length, and reading a row that is also
        written may make the compiler copy them. So zeros are written without reading: over the new row if the update is
        rejected, otherwise over the spare row, which is zero already.
        """
        slot = jnp.where(accepted, self.capacity, old._next_slot())
        return replace(
            self,
            features=self._at(slot).set(0.0),
            rewards=self.rewards.at[slot].set(0.0),
            seen=jnp.where(accepted, self.seen, old.seen),
        )

    def sum(self, term: Term[Total], start: Total | None = None) -> Total:
        """The sum of a term over all observations, block by block, onto `start`."""

        def add(carry: tuple[Int[Array, ""], Total]) -> tuple[Int[Array, ""], Total]:
            row, total = carry
            phi, rewards = self._rows(row)
            weights = (row + jnp.arange(self.block) < self.count).astype(self.rewards.dtype)
            return row + self.block, jax.tree.map(jnp.add, total, term(phi, rewards, weights))

        if start is None:
            start = zeros_like(term, *self._rows(jnp.asarray(0)), self.rewards[: self.block])
        if self.capacity == self.block:
            return add((jnp.asarray(0), start))[1]
        # The loop counts rows, not blocks, which saves a division: an agent's call consists of such small operations.
        longest = self.longest
        return jax.lax.while_loop(lambda carry: carry[0] < longest, add, (jnp.zeros_like(longest), start))[1]

    def minibatch(self, key: Key[Array, ""], size: int) -> "Minibatch":
        """`size` observations drawn with replacement, or all of them if there are no more than that."""
        everything, positions = self.count <= size, jnp.arange(size)
        rows = jnp.where(everything, positions, jax.random.randint(key, (size,), 0, jnp.maximum(self.count, 1)))
        rows = jnp.minimum(rows, self.capacity)
        weights = jnp.where(everything, (positions < self.count).astype(self.rewards.dtype), self.count / size)
        return Minibatch(self._read(rows), self.rewards[rows], weights, self.count)

    def _rows(self, first: Int[Array, ""]) -> tuple[Float[Array, "block dim"], Float[Array, " block"]]:
        """Phi and the rewards of a block."""
        phi = jax.lax.dynamic_slice_in_dim(self.features, first, self.block, axis=int(self.by_columns))
        return phi.T if self.by_columns else phi, jax.lax.dynamic_slice_in_dim(self.rewards, first, self.block)

    def _read(self, slots: Int[Array, " slots"]) -> Float[Array, "slots dim"]:
        """Phi of these observations, stored by rows or by columns."""
        phi = self._at(slots).get()
        return phi.T if self.by_columns else phi

    def _at(self, slots: Int[Array, "*slots"]) -> Any:
        """A reference to the features of these observations: read it with `.get()`, write it with `.set(...)`."""
        return self.features.at[:, slots] if self.by_columns else self.features.at[slots]

    def _next_slot(self) -> Int[Array, ""]:
        return jnp.minimum(self.seen, self.capacity)


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


class Buffer(eqx.Module):
    """Settings of a history. All histories are made here.

    `window` keeps the last `window` observations. Otherwise `capacity` is the size of the buffer; None leaves it to the
    code that runs the policy (`with_capacity`), or else to `DEFAULT_CAPACITY`.
    """

    capacity: int | None = None
    window: int | None = None

    def init(self, dim: int, block: int = BLOCK, *, by_columns: bool = False) -> History:
        """An empty history of observations with `dim` features, summed in blocks of `block` rows."""
        capacity = self.window or self.capacity or DEFAULT_CAPACITY
        block = min(block, capacity)
        rows = (capacity // block + 1) * block
        validate.memory(
            f"a history of {capacity:,} observations with {dim:,} features",
            jnp.zeros(()).itemsize * float(rows) * (dim + 1),
            "use a smaller window, fold_after or capacity",
        )
        features = jnp.zeros((dim, rows) if by_columns else (rows, dim))
        history = History(features, jnp.zeros(rows), jnp.asarray(0), capacity, block, by_columns)
        if self.window is None:
            return history
        return SlidingHistory(**vars(history), evicted=(jnp.zeros(dim), jnp.zeros(())))


def buffer(*, capacity: int | None = None, window: int | None = None) -> Buffer:
    """A checked `Buffer`."""
    if capacity is not None:
        capacity = validate.count("capacity", capacity)
    if window is not None:
        window = validate.count("window", window)
        if capacity is not None:
            raise ValueError(f"capacity must be left out when there is a window, but is {capacity}")
    return Buffer(capacity, window)


def with_capacity(tree: PyTree[Any], capacity: int) -> PyTree[Any]:
    """The same policy, with room for at least `capacity` observations in every buffer whose size was not set.

    The size is a power of two, so that runs of similar lengths share one compilation.
    """
    rounded = max(BLOCK, 1 << (capacity - 1).bit_length())

    def fill(node: Any) -> Any:
        if isinstance(node, Buffer) and node.capacity is None and node.window is None:
            return Buffer(rounded)
        return node

    return jax.tree.map(fill, tree, is_leaf=lambda node: isinstance(node, Buffer))
