"""Settings from which histories are made: a capacity, or a window."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from vits import validate
from vits.history.base import BLOCK
from vits.history.full import History
from vits.history.sliding import SlidingHistory

DEFAULT_CAPACITY = 1024
"""Buffer size if no capacity is given."""


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
        validate.count("capacity", capacity)
    if window is not None:
        validate.count("window", window)
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
