"""Agents and `os.fork()`: ids stay unique, and calls that would hang are refused.

The threads of JAX do not survive a fork, so compiling in the child never returns, and running may not return either.
"""

import os
import weakref
from typing import Any

from jax._src import xla_bridge

from vits.agent.errors import ForkedProcess

_WATCHED: weakref.WeakSet[Any] = weakref.WeakSet()
_IS_FORKED = False
"""Whether this process was forked from one in which JAX had started."""


def watch(agent: Any) -> None:
    """Call `agent.continue_in_child()` in a forked process, before anything else runs there."""
    _WATCHED.add(agent)


def check() -> None:
    """Raise if compiled programs cannot be trusted to return."""
    if _IS_FORKED:
        raise ForkedProcess(
            "this process was made by os.fork() after JAX had started, and JAX would wait for threads that are not "
            "here: start processes by spawn, or fork before JAX computes anything"
        )


def _after_fork() -> None:
    global _IS_FORKED
    _IS_FORKED = _IS_FORKED or xla_bridge.backends_are_initialized()
    for agent in list(_WATCHED):
        agent.continue_in_child()


os.register_at_fork(after_in_child=_after_fork)
