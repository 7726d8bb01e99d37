"""The randomness of decisions: the standard normal numbers that posterior draws are made from.

They depend on the number of the decision and not on the posterior, so they are drawn for many decisions at once.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vits.agent import compiled

ROWS, NUMBERS = 128, 1 << 16
"""The largest number of decisions whose noise is drawn at once, and the largest number of normals drawn at once."""


class Block(NamedTuple):
    """The noise of decision `first` and of those after it, one in each row."""

    first: int
    rows: Float[np.ndarray, "rows params"]


class Noise:
    """eps ~ N(0, I) for every decision of an agent, from the key of its decisions."""

    def __init__(self, key: Array, num_params: int, dtype: Any) -> None:
        self.key = key
        self._shape = min(ROWS, max(1, NUMBERS // num_params)), num_params
        self._dtype = str(dtype)
        self._block = Block(-1, np.zeros((0, num_params)))

    def of(self, number: int) -> Float[np.ndarray, " params"]:
        """The noise of one decision. Threads need no lock: a block has the same numbers whenever it is drawn."""
        first = number - number % self._shape[0]
        block = self._block
        if block.first != first:
            rows = _program(*self._shape, self._dtype)(self.key, compiled.as_number(first))
            block = self._block = Block(first, np.asarray(rows))
        return block.rows[number - first]


@functools.lru_cache(maxsize=compiled.PROGRAMS)
def _program(rows: int, num_params: int, dtype: str) -> Any:
    @compiled.one_by_one
    def noise(key: Array, first: Array) -> Array:
        keys = jax.vmap(lambda i: compiled.decision_key(key, first + i))(jnp.arange(rows, dtype=jnp.uint32))
        return jax.vmap(lambda key: jax.random.normal(key, (num_params,), dtype))(keys)

    return noise
