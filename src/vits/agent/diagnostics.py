"""What an agent counts, and how it shows it."""

import html
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from vits.agent.features import Arm
from vits.agent.programs import Report


class Diagnostics(NamedTuple):
    """How an agent is doing.

    `decisions` were made; `observations` were learned from, `pending` decisions wait for their reward, `expired` ones
    waited too long, and `unlearned` rewards came after their arm was removed. `rejected` updates failed and left no
    trace. In `step_capped` updates a limit cut the steps, and in `refreshed` ones an inverse had to be repaired: many
    of them ask for other settings. `capacity` is the room for observations, None where none are kept or the room never
    fills.
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
    memory_bytes: int


@dataclass
class Counts:
    """What an agent counts as it goes; `by_arm` are the observations of each arm that has a posterior of its own."""

    observations: int = 0
    unlearned: int = 0
    rejected: int = 0
    step_capped: int = 0
    refreshed: int = 0
    updates: int = 0
    next_born: int = 0
    by_arm: dict[int, int] = field(default_factory=dict)

    def accept(self, count: int, report: Report, played: Sequence[Arm | None]) -> None:
        """So many observations were learned from."""
        self.observations += count
        self.step_capped += report.step_capped
        self.refreshed += report.refreshed
        for arm in played:
            if arm is not None:
                self.by_arm[arm.born] = self.by_arm.get(arm.born, 0) + 1

    def copy(self) -> "Counts":
        """Counts that go on independently."""
        return replace(self, by_arm=dict(self.by_arm))


def as_html(title: str, diagnostics: Diagnostics) -> str:
    """A small table for notebooks."""
    rows = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in diagnostics._asdict().items())
    return f"<table><caption>{html.escape(title)}</caption>{rows}</table>"
