"""What a potential remembers when the data cannot be summed up: the observations themselves.

A history is a buffer of fixed size and a count. Sums over it run over as many blocks as are filled, in a loop whose
bound is traced: one compilation serves every round, and a round costs what its data cost, whatever the capacity.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from vits import checks
from vits.types import Observation, Scalar, Undoable

DEFAULT_CAPACITY = 1024
"""Observations that fit when nobody said how many will come."""

BLOCK = 128
"""Rows that enter a sum at once, where a row is cheap."""

Total = TypeVar("Total", bound=PyTree[Any])
Term = Callable[[Float[Array, "rows dim"], Float[Array, " rows"], Float[Array, " rows"]], Total]
"""A sum over some rows, given their features, rewards and weights; a weight of 0 stands for an empty row."""

Rows = Any
"""A history, or a sample that stands for one: whatever has `count` and `sum`."""


class History(Undoable):
    """The first `capacity` observations.

    Features lie in the rows of a matrix, or in its columns: then a block enters the products of a generalised linear
    model as Phi' and these run along last axes, for which XLA takes half the time; other models are faster by rows.

    Rows past the count are zero, a spare one among them: an observation that finds no room goes there, and `overflowed`
    says that the update has to be rejected.
    """

    features: Float[Array, "_ _"]
    rewards: Float[Array, " rows"]
    seen: Int[Array, ""]
    capacity: int = eqx.field(static=True)
    block: int = eqx.field(static=True)
    by_columns: bool = eqx.field(static=True)

    @property
    def count(self) -> Int[Array, ""]:
        """How many observations are in the buffer."""
        return jnp.minimum(self.seen, self.capacity)

    @property
    def overflowed(self) -> Bool[Array, ""]:
        """Whether the last observation found no room."""
        return self.seen > self.capacity

    @property
    def longest(self) -> Int[Array, ""]:
        """How far a sum runs: to the count, and within a batch to that of the fullest history."""
        return _batch_max(self.count)

    @property
    def inflation(self) -> Scalar:
        """How much shorter than on all the data steps have to be: not at all."""
        return jnp.ones(())

    def append(self, observation: Observation) -> "History":
        """The history with one observation more."""
        slot = self._next_slot()
        return replace(
            self,
            features=self._at(slot).set(observation.features.astype(self.features.dtype)),
            rewards=self.rewards.at[slot].set(observation.reward.astype(self.rewards.dtype)),
            seen=self.seen + 1,
        )

    def undo_unless(self, accepted: Bool[Array, ""], old: "History") -> "History":
        """This history, which is `old` with one observation more, if accepted; else `old` bit for bit.

        Choosing between two buffers would cost their length, and reading a row that is also written may make the
        compiler copy them. So zeros are written, unread: over the new row, or over the spare one, which is zero.
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
        # By rows, not by blocks, which would have to be counted: a call of an agent is made of such small operations.
        longest = self.longest
        return jax.lax.while_loop(lambda carry: carry[0] < longest, add, (jnp.zeros_like(longest), start))[1]

    def minibatch(self, key: Key[Array, ""], size: int) -> "Minibatch":
        """`size` observations drawn with replacement, standing for all of them; all of them if they are no more."""
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
        """Phi of these observations, whichever way features lie."""
        phi = self._at(slots).get()
        return phi.T if self.by_columns else phi

    def _at(self, slots: Int[Array, "*slots"]) -> Any:
        """Where the features of these observations are: to be read with `.get()` and written with `.set(...)`."""
        return self.features.at[:, slots] if self.by_columns else self.features.at[slots]

    def _next_slot(self) -> Int[Array, ""]:
        return jnp.minimum(self.seen, self.capacity)


class SlidingHistory(History):
    """The last `capacity` observations, in a ring; `evicted` is the row that the last append wrote over."""

    evicted: tuple[Float[Array, " dim"], Scalar]

    @property
    def overflowed(self) -> Bool[Array, ""]:
        """Never: there is always room for one more."""
        return jnp.zeros_like(self.seen, bool)

    def append(self, observation: Observation) -> "SlidingHistory":
        """The history with one observation more, and one less if it was full."""
        slot = self._next_slot()
        appended = super().append(observation)
        return replace(cast(SlidingHistory, appended), evicted=(self._at(slot).get(), self.rewards[slot]))

    def undo_unless(self, accepted: Bool[Array, ""], old: History) -> "SlidingHistory":
        """This history, which is `old` with one observation more, if accepted; else `old` bit for bit."""
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


class Minibatch(eqx.Module):
    """A random sample of a history whose sums are unbiased: each of its m rows weighs count / m, on average."""

    features: Float[Array, "rows dim"]
    rewards: Float[Array, " rows"]
    weights: Float[Array, " rows"]
    count: Int[Array, ""]

    @property
    def inflation(self) -> Scalar:
        """How much shorter than on all the data steps have to be: 1 + count / m once the sample is not all.

        The noise of a gradient has count / m times the variance that one observation each would bring, so steps
        that much shorter jitter no more than those of a single draw. The 1 makes room for the spectra of other
        samples, which differ most when the sample is nearly all.
        """
        size = self.rewards.shape[0]
        return jnp.where(self.count > size, 1.0 + self.count / size, 1.0)

    def sum(self, term: Term[Total], start: Total | None = None) -> Total:
        """An unbiased estimate of the sum of a term over all observations, onto `start`."""
        return onto(start, term(self.features, self.rewards, self.weights))


def onto(start: Total | None, total: Total) -> Total:
    """The two together; None is nothing."""
    return total if start is None else jax.tree.map(jnp.add, start, total)


def zeros_like(function: Callable[..., Total], *args: Array) -> Total:
    """Zeros in the shape of what a function returns."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function, *args))


class Buffer(eqx.Module):
    """What a history is to be like: the one place where histories are made.

    `window` keeps the last so many observations. Otherwise `capacity` is how many fit; None leaves it to whoever
    runs the policy (`with_capacity`), and to `DEFAULT_CAPACITY` if nobody does.
    """

    capacity: int | None = None
    window: int | None = None

    def init(self, dim: int, block: int = BLOCK, *, by_columns: bool = False) -> History:
        """An empty history of observations with `dim` features, summed `block` rows at once."""
        capacity = self.window or self.capacity or DEFAULT_CAPACITY
        block = min(block, capacity)
        rows = (capacity // block + 1) * block
        features = jnp.zeros((dim, rows) if by_columns else (rows, dim))
        history = History(features, jnp.zeros(rows), jnp.asarray(0), capacity, block, by_columns)
        if self.window is None:
            return history
        return SlidingHistory(**vars(history), evicted=(jnp.zeros(dim), jnp.zeros(())))


def buffer(*, capacity: int | None = None, window: int | None = None) -> Buffer:
    """A checked `Buffer`."""
    if capacity is not None:
        checks.count("capacity", capacity)
    if window is not None:
        checks.count("window", window)
        if capacity is not None:
            raise ValueError(f"capacity must be left out when there is a window, but is {capacity}")
    return Buffer(capacity, window)


def with_capacity(tree: PyTree[Any], capacity: int) -> PyTree[Any]:
    """The same policy, with room for `capacity` observations wherever nobody had said how many will come.

    Rounded up to a power of two, so that runs of similar lengths share one compilation.
    """
    checks.count("capacity", capacity)
    rounded = max(BLOCK, 1 << (capacity - 1).bit_length())

    def fill(node: Any) -> Any:
        if isinstance(node, Buffer) and node.capacity is None and node.window is None:
            return Buffer(rounded)
        return node

    return jax.tree.map(fill, tree, is_leaf=lambda node: isinstance(node, Buffer))


@jax.custom_batching.custom_vmap
def _batch_max(bound: Int[Array, ""]) -> Int[Array, ""]:
    # A loop bound that differs within a batch would turn every slice into a gather and every sum into a select;
    # the weights already mask what lies beyond a history's own count, so all may run to the largest.
    return bound


@_batch_max.def_vmap
def _batch_max_rule(axis_size: int, in_batched: list[bool], bound: Int[Array, " batch"]) -> tuple[Array, bool]:
    return _batch_max(jnp.max(bound)), False
