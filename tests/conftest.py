"""Settings for all tests: strict promotion, so that no shape or dtype is mended silently."""

import gc
from collections.abc import Iterator

import jax
import jax.experimental
import jax.monitoring
import matplotlib
import pytest

if not hasattr(jax, "enable_x64"):  # before JAX 0.8
    jax.enable_x64 = jax.experimental.enable_x64
if not hasattr(jax.monitoring, "unregister_event_duration_listener"):
    from jax._src import monitoring

    jax.monitoring.unregister_event_duration_listener = monitoring._unregister_event_duration_listener_by_callback

matplotlib.use("Agg")
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def x64() -> Iterator[None]:
    """Double precision within one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True, scope="module")
def _programs_are_dropped() -> Iterator[None]:
    """A process can map only so many compiled programs; those of one file are of little use to the next."""
    yield
    jax.clear_caches()
    gc.collect()
