"""The device of agents: a separate CPU client whose programs run in the calling thread.

JAX hands a computation on the CPU to another thread by default. A caller that waits for the result pays for the
hand-over, which takes longer than a decision with 20 features. The setting that turns this off,
`jax_cpu_enable_async_dispatch`, affects the whole process. A second CPU client does not.
"""

import functools
from collections.abc import Iterable
from typing import Any

import jax


@functools.cache
def device() -> Any:
    """The device of all agents in this process: a synchronous CPU device, or the default device if it is no CPU."""
    default = jax.devices()[0]
    if default.platform != "cpu":
        return default
    try:
        from jax._src.lib import xla_client  # type: ignore[attr-defined]

        client: Any = xla_client.make_cpu_client(asynchronous=False)
        return client.devices()[0]
    except (ImportError, AttributeError, TypeError):  # not a public interface; without it calls take longer
        return default


def put(arrays: Iterable[Any]) -> tuple[Any, ...]:
    """The arrays on the device of agents."""
    return tuple(jax.device_put(tuple(arrays), device()))
