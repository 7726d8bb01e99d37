"""The arms and the decisions of a saved agent, as JSON and arrays, and back with every value checked."""

import re
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from vits.agent.arms import Arm
from vits.agent.container import Damaged
from vits.agent.decisions import MAX_SESSIONS, Ledger, Pending, Session
from vits.agent.encoding import decoded_name, encoded_name, entries, fields, whole
from vits.agent.settings import Settings
from vits.agent.snapshot import Counts, Snapshot
from vits.files import Arrays

LEDGER = ("limit", "issued", "draws", "horizon", "sessions")

TAG = re.compile("[0-9a-f]{8,64}")
ID = re.compile(f"({TAG.pattern})-(0|[1-9][0-9]{{0,18}})")


def encoded_arm(arm: Arm | None) -> Any:
    """An arm in JSON."""
    return None if arm is None else [encoded_name(arm.name), arm.slot, arm.created]


def decoded_arm(value: Any, slots: int, counts: Counts) -> Arm:
    """An arm from JSON."""
    name, slot, created = entries(value, "an arm", 3)
    return Arm(
        decoded_name(name),
        whole(slot, "the posterior of an arm", most=slots - 1),
        whole(created, "the number of an arm", most=counts.arm_changes - 1),
    )


def encoded_pending(waiting: Mapping[str, Pending]) -> tuple[list[Any], Arrays]:
    """Pending decisions in JSON, and their features."""
    listed = [
        [
            name,
            [encoded_arm(arm) for arm in one.arms],
            None if one.menu is None else len(one.menu),
            _encoded_names(one),
        ]
        for name, one in waiting.items()
    ]
    if not waiting:
        return listed, {}
    arrays = {"pending_features": np.concatenate([one.features for one in waiting.values()])}
    menus = [one.menu for one in waiting.values() if one.menu is not None]
    return listed, arrays | ({"pending_menus": np.concatenate(menus)} if menus else {})


def _encoded_names(pending: Pending) -> list[Any] | None:
    """The names of arms that the agent does not know by name; None if it does, or if they cannot be saved."""
    if pending.names is None or pending.arms[0] is not None:
        return None
    try:
        return [encoded_name(name) for name in pending.names]
    except ValueError:
        return None


def decoded_ledger(
    header: Mapping[str, Any], arrays: dict[str, Shaped[np.ndarray, "..."]], snapshot: Snapshot
) -> Ledger:
    """The ledger of a header, whose arrays are taken out of `arrays`."""
    limit, issued, draws, horizon, listed_sessions = fields(header["ledger"], "the ledger", *LEDGER)
    whole(limit, "max_pending", least=1)
    whole(issued, "the number of decisions")
    whole(draws, "the number of draws")
    whole(horizon, "the last decision that expired", least=-1, most=issued - 1)
    sessions = _decoded_sessions(listed_sessions, issued)
    listed = [entries(entry, "a pending decision", 4) for entry in entries(header["pending"], "pending decisions")]
    longest = snapshot.longest_menu
    features = _Rows(arrays.pop("pending_features", None), snapshot.settings)
    menus = _Rows(arrays.pop("pending_menus", None), snapshot.settings)
    pending: dict[str, Pending] = {}
    for name, ranked, menu_rows, names in listed:
        _check_id(name, sessions)
        arms = tuple(_decoded_ranked(arm, snapshot) for arm in entries(ranked, "the arms of a decision"))
        if not arms or len(set(arms)) < len(arms) * snapshot.settings.is_named:
            raise Damaged("a decision must have different arms, at least one")
        if longest is not None:
            whole(menu_rows, "the number of arms on offer", least=len(arms), most=longest)
        elif menu_rows is not None:
            raise Damaged(f"{snapshot.settings.algorithm} does not keep the arms on offer")
        pending[name] = Pending(
            arms,
            features.take(len(arms)),
            None if menu_rows is None else menus.take(menu_rows),
            _decoded_names(names, arms),
        )
    if len(pending) < len(listed) or len(listed) > limit:
        raise Damaged(f"pending decisions must differ, and at most {limit} may wait")
    if snapshot.counts.settled + len(pending) > issued:
        raise Damaged("more decisions were learned or are pending than were made")
    for rest in (features, menus):
        rest.check_end()
    return Ledger(limit, issued=issued, draws=draws, horizon=horizon, sessions=sessions, pending=pending)


def _decoded_sessions(value: Any, issued: int) -> list[Session]:
    sessions, least = [], 0
    for tag, first, end in (entries(session, "a session", 3) for session in entries(value, "the sessions")):
        if not isinstance(tag, str) or not TAG.fullmatch(tag):
            raise Damaged("the ids of a session must begin with a tag")
        whole(first, "the first decision of a session", least=least, most=issued - 1)
        least = whole(end, "the end of a session", least=first + 1, most=issued)
        sessions.append(Session(tag, first, end))
    if len(sessions) > MAX_SESSIONS or len({session.tag for session in sessions}) < len(sessions):
        raise Damaged(f"sessions must have different tags, and at most {MAX_SESSIONS} are kept")
    return sessions


def _decoded_names(value: Any, arms: tuple[Arm | None, ...]) -> tuple[Hashable, ...] | None:
    """The names of the arms of a decision: those of the agent, or those that were saved, if any."""
    named = tuple(arm.name for arm in arms if arm is not None)
    if value is None:
        return named or None
    names = tuple(decoded_name(name) for name in entries(value, "the names of a decision's arms", len(arms)))
    if named or len(set(names)) < len(names):
        raise Damaged("the arms of a decision must have different names, and not two kinds of them")
    return names


def _check_id(name: Any, sessions: list[Session]) -> None:
    found = ID.fullmatch(name) if isinstance(name, str) else None
    if found is None or any(found[1] == session.tag and int(found[2]) >= session.end for session in sessions):
        raise Damaged("a pending decision has an id that no agent gave it")


def _decoded_ranked(value: Any, snapshot: Snapshot) -> Arm | None:
    """An arm of a pending decision: one of the agent's, or one that was removed since."""
    if (value is None) == snapshot.settings.is_named:
        raise Damaged("the arms of pending decisions must have names where the agent's have, and only there")
    if value is None:
        return None
    arm = decoded_arm(value, snapshot.slots, snapshot.counts)
    same = [other for other in snapshot.arms.values() if other.created == arm.created]
    if same not in ([], [arm]):
        raise Damaged("a pending decision is about another arm than it says")
    return arm


class _Rows:
    """Features of many decisions in one table, taken out one decision after the other."""

    def __init__(self, table: Any, settings: Settings) -> None:
        self.table, self.next = table, 0
        if table is None:
            self.table = np.zeros((0, settings.dim), settings.dtype)
        elif table.shape[1:] != (settings.dim,) or table.dtype != settings.dtype or not np.all(np.isfinite(table)):
            raise Damaged("the features of pending decisions must be finite, and as many as the model has")

    def take(self, count: int) -> Float[np.ndarray, "rows dim"]:
        self.next += count
        return self.table[self.next - count : self.next]

    def check_end(self) -> None:
        if self.next != len(self.table):
            raise Damaged("there must be features for each pending decision, and no others")
