"""Random numbers in the shape they are wanted."""

import math
from typing import Any

import jax
from jaxtyping import Array, Float, Key


def normal(key: Key[Array, ""], shape: tuple[int, ...], dtype: Any = float) -> Float[Array, "..."]:
    """Those of `jax.random.normal`, drawn in a row and then folded: the same numbers in less time.

    With axes of ten or twenty XLA unrolls the generator once for each entry: a program takes seconds longer to compile,
    and draws more slowly.
    """
    return jax.random.normal(key, (math.prod(shape),), dtype).reshape(shape)
