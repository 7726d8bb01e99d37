"""Settings for all tests: strict promotion, so that no shape or dtype is mended silently."""

from collections.abc import Iterator

import jax
import matplotlib
import pytest

matplotlib.use("Agg")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision within one test."""
    with jax.enable_x64(True):
        yield
