"""The counters of an agent, and how a notebook shows them."""

import html
from collections.abc import Callable
from typing import NamedTuple

from vits.agent.decisions import Ledger
from vits.agent.snapshot import Snapshot


class Diagnostics(NamedTuple):
    """The counters of an agent.

    `decisions`: decisions made. `observations`: rewards learned. `pending`: decisions without a reward. `expired`:
    decisions that waited too long. `unlearned`: rewards that came after their arm was removed. `rejected`: updates that
    failed and changed nothing. `step_capped` and `refreshed`: updates whose steps were cut by a limit, and updates that
    repaired an inverse; if there are many, other settings are needed. `capacity`: the room for observations, or None if
    none are stored or the room never fills. `storage`: what is kept of the observations, in words. `memory_bytes`:
    memory of the posterior and of pending decisions.
    """

    decisions: int
    observations: int
    pending: int
    expired: int
    unlearned: int
    rejected: int
    step_capped: int
    refreshed: int
    capacity: int | None
    storage: str
    memory_bytes: int


def diagnose(read: Callable[[], Snapshot], ledger: Ledger) -> Diagnostics:
    """The diagnostics of an agent whose current snapshot is `read()`."""
    snapshot = read()
    while True:
        issued, waiting = ledger.waiting()
        before, snapshot = snapshot, read()
        if before is snapshot:  # else something was learned between the two readings
            break
    for name in snapshot.settled:
        waiting.pop(name, None)
    counts = snapshot.counts
    return Diagnostics(
        decisions=issued,
        observations=counts.observations,
        pending=len(waiting),
        expired=issued - counts.settled - len(waiting),
        unlearned=counts.unlearned,
        rejected=counts.rejected,
        step_capped=counts.step_capped,
        refreshed=counts.refreshed,
        capacity=snapshot.capacity if snapshot.grows else None,
        storage=snapshot.settings.storage(grows=snapshot.grows),
        memory_bytes=snapshot.nbytes + sum(pending.nbytes for pending in waiting.values()),
    )


def as_html(title: str, diagnostics: Diagnostics) -> str:
    """A small table for notebooks."""
    rows = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in diagnostics._asdict().items())
    return f"<table><caption>{html.escape(title)}</caption>{rows}</table>"
