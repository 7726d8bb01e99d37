"""What a potential remembers when the data cannot be summed up: the observations themselves.

A history is a buffer of fixed size and a count. Sums over it run over as many blocks as are filled, in a loop whose
bound is traced: one compilation serves every round, and a round costs what its data cost, whatever the capacity.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from vits import checks
from vits.types import Observation, Scalar, Undoable

DEFAULT_CAPACITY = 1024
"""Observations that fit when nobody said how many will come."""

BLOCK = 64
"""Rows that enter a sum at once."""

Total = TypeVar("Total", bound=PyTree[Any])
Term = Callable[[Float[Array, "rows dim"], Float[Array, " rows"], Float[Array, " rows"]], Total]
"""A sum over some rows, given their features, rewards and weights; a weight of 0 stands for an empty row."""

Rows = Any
"""A history, or a sample that stands for one: whatever has `count` and `sum`."""


class History(Undoable):
    """A buffer of observations: the first `capacity` of them, or the last ones if `sliding`.

    Without a sliding window an observation that finds the buffer full raises the flag `overflowed`, for the update
    to be rejected. `evicted` is the row that the last append wrote over: with it an append can be undone in place.
    """

    features: Float[Array, "rows dim"]
    rewards: Float[Array, " rows"]
    seen: Int[Array, ""]
    evicted: tuple[Float[Array, " dim"], Scalar]
    overflowed: Bool[Array, ""]
    capacity: int = eqx.field(static=True)
    sliding: bool = eqx.field(static=True)
    block: int = eqx.field(static=True)

    @property
    def count(self) -> Int[Array, ""]:
        """How many observations are in the buffer."""
        return jnp.minimum(self.seen, self.capacity)

    @property
    def num_blocks(self) -> Int[Array, ""]:
        """How many blocks a sum runs over; within a batch, as many as the fullest history needs."""
        return _batch_max(-(-self.count // self.block))

    def append(self, observation: Observation) -> "History":
        """The history with one observation more."""
        slot = self._next_slot()
        return History(
            features=self.features.at[slot].set(observation.features.astype(self.features.dtype)),
            rewards=self.rewards.at[slot].set(observation.reward.astype(self.rewards.dtype)),
            seen=self.seen + 1,
            evicted=(self.features[slot], self.rewards[slot]),
            overflowed=jnp.asarray(False) if self.sliding else self.seen >= self.capacity,
            capacity=self.capacity,
            sliding=self.sliding,
            block=self.block,
        )

    def undo_unless(self, accepted: Bool[Array, ""], old: "History") -> "History":
        """This history, which is `old` with one observation more, if accepted; else `old` bit for bit.

        Only one row is touched, in place: choosing between two buffers would cost their length.
        """
        slot = old._next_slot()
        features, reward = self.evicted
        return History(
            features=self.features.at[slot].set(jnp.where(accepted, self.features[slot], features)),
            rewards=self.rewards.at[slot].set(jnp.where(accepted, self.rewards[slot], reward)),
            seen=jnp.where(accepted, self.seen, old.seen),
            evicted=jax.tree.map(lambda a, b: jnp.where(accepted, a, b), self.evicted, old.evicted),
            overflowed=jnp.where(accepted, self.overflowed, old.overflowed),
            capacity=self.capacity,
            sliding=self.sliding,
            block=self.block,
        )

    def sum(self, term: Term[Total]) -> Total:
        """The sum of a term over all observations, block by block."""

        def add(i: Int[Array, ""], total: Total) -> Total:
            start = i * self.block
            features = jax.lax.dynamic_slice_in_dim(self.features, start, self.block)
            rewards = jax.lax.dynamic_slice_in_dim(self.rewards, start, self.block)
            weights = (start + jnp.arange(self.block) < self.count).astype(self.rewards.dtype)
            return jax.tree.map(jnp.add, total, term(features, rewards, weights))

        first = self.features[: self.block], self.rewards[: self.block], self.rewards[: self.block]
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(term, *first))
        return jax.lax.fori_loop(0, self.num_blocks, add, zero)

    def minibatch(self, key: Key[Array, ""], size: int) -> "Minibatch":
        """`size` observations drawn with replacement, standing for all of them."""
        rows = jax.random.randint(key, (size,), 0, jnp.maximum(self.count, 1))
        weight = self.count.astype(self.rewards.dtype) / size
        return Minibatch(self.features[rows], self.rewards[rows], jnp.full(size, weight), self.count)

    def _next_slot(self) -> Int[Array, ""]:
        return self.seen % self.capacity if self.sliding else jnp.minimum(self.seen, self.capacity - 1)


class Minibatch(eqx.Module):
    """A random sample of a history whose sums are unbiased: each of its m rows weighs count / m."""

    features: Float[Array, "rows dim"]
    rewards: Float[Array, " rows"]
    weights: Float[Array, " rows"]
    count: Int[Array, ""]

    def sum(self, term: Term[Total]) -> Total:
        """An unbiased estimate of the sum of a term over all observations."""
        return term(self.features, self.rewards, self.weights)


class Buffer(eqx.Module):
    """What a history is to be like: the one place where histories are made.

    `window` keeps the last so many observations. Otherwise `capacity` is how many fit; None leaves it to whoever
    runs the policy (`with_capacity`), and to `DEFAULT_CAPACITY` if nobody does.
    """

    capacity: int | None = None
    window: int | None = None

    def init(self, dim: int) -> History:
        """An empty history of observations with `dim` features."""
        capacity = self.window or self.capacity or DEFAULT_CAPACITY
        block = min(BLOCK, capacity)
        rows = -(-capacity // block) * block
        return History(
            features=jnp.zeros((rows, dim)),
            rewards=jnp.zeros(rows),
            seen=jnp.asarray(0),
            evicted=(jnp.zeros(dim), jnp.zeros(())),
            overflowed=jnp.asarray(False),
            capacity=capacity,
            sliding=self.window is not None,
            block=block,
        )


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
