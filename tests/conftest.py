"""Settings for all tests: strict promotion, so that no shape or dtype is mended silently."""

import gc
from collections.abc import Iterator

import jax
import matplotlib
import pytest

try:
    enable_x64 = jax.enable_x64
except AttributeError:  # before JAX 0.8
    from jax.experimental import enable_x64

matplotlib.use("Agg")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision within one test."""
    with enable_x64(True):
        yield


@pytest.fixture(autouse=True, scope="module")
def _programs_are_dropped() -> Iterator[None]:
    """A process can map only so many compiled programs; those of one file are of little use to the next."""
    yield
    jax.clear_caches()
    gc.collect()
