"""How the seeds of a simulation are shared among groups and threads.

XLA compiles a program for the size of a group, and may sum in another order when the size differs. So the number of
groups decides the last bits of the results, and the number of threads does not.
"""

import contextlib
import contextvars
import os
from collections.abc import Iterator
from typing import NamedTuple


class Shares(NamedTuple):
    """The seeds are split into at most `groups` groups of one size, which are played in `threads` threads."""

    groups: int
    threads: int


_SHARES: contextvars.ContextVar[Shares | None] = contextvars.ContextVar("shares", default=None)


def current() -> Shares:
    """What `shared` has set; by default as many groups and threads as there are cores."""
    return _SHARES.get() or Shares(os.cpu_count() or 1, os.cpu_count() or 1)


@contextlib.contextmanager
def shared(shares: Shares) -> Iterator[None]:
    """Use these numbers within the context, for example those of another machine whose results are to be repeated."""
    token = _SHARES.set(shares)
    try:
        yield
    finally:
        _SHARES.reset(token)
