"""Rewards as an application gives them: checked, and matched with the arms of a decision."""

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vits import validate
from vits.agent import arms as arms_
from vits.agent.arms import Arm
from vits.agent.decisions import Pending
from vits.agent.errors import InvalidReward
from vits.agent.settings import Settings
from vits.agent.snapshot import Snapshot


def checked_reward(settings: Settings, value: Any) -> float:
    """A reward that is possible under the model."""
    if isinstance(value, int) and abs(value) > settings.largest:  # it may be too large for a float, or to be printed
        size = f"2**{value.bit_length() - 1}"
        raise InvalidReward(f"the reward must fit into {settings.dtype}, but its size is at least {size}")
    if not isinstance(value, (float, int)) or not math.isfinite(value):
        _check_number(value)
    reward, (least, largest) = float(value), settings.model.reward_range
    if not least <= reward <= largest:
        raise InvalidReward(f"the reward of {settings.model.reward_rule()}, but is {reward:g}")
    if abs(reward) > settings.largest:
        raise InvalidReward(f"the reward must fit into {settings.dtype}, but is {reward:g}")
    return reward


class Observed(NamedTuple):
    """Played arms, their features and rewards, and the menus that they were chosen from."""

    played: Sequence[Arm | None]
    rows: Float[np.ndarray, "n dim"]
    rewards: Float[np.ndarray, " n"]
    menus: Sequence[Any]


def observations(snapshot: Snapshot, decisions: Sequence[Pending], rewards: Sequence[Any]) -> tuple[Observed, int]:
    """The observations in the rewards of decisions, and the number of rewards of arms that were removed."""
    settings, gone = snapshot.settings, 0
    played, rows, values, menus = [], [], [], []
    for pending, reward in zip(decisions, rewards, strict=True):
        ranked = zip(pending.arms, pending.features, ranked_rewards(pending, reward), strict=True)
        for arm, row, value in ranked:
            if value is None:
                continue
            checked = checked_reward(settings, value)
            if arm is not None and snapshot.arms.get(arm.name) != arm:
                gone += 1
                continue
            played.append(arm)
            rows.append(row)
            values.append(checked)
            menus.append(pending.menu)
    table = np.array(rows, settings.dtype).reshape(len(rows), settings.dim)
    return Observed(played, table, np.array(values, settings.dtype), menus), gone


def ranked_rewards(pending: Pending, reward: Any) -> Sequence[Any]:
    """A reward for each arm of a decision, None where it is unknown."""
    k = len(pending.arms)
    if isinstance(reward, Mapping):
        rewards = _by_arm(pending, reward)
    elif k == 1:
        rewards = [reward]
    elif isinstance(reward, (str, bytes, bytearray, Set)) or _length(reward) != k:
        raise InvalidReward(
            f"a ranking of {k} arms needs {k} rewards, None where nothing is known, or a mapping from arms to rewards, "
            f"but got {validate.shown(reward)}"
        )
    else:
        rewards = list(reward)
    if all(value is None for value in rewards):
        raise InvalidReward("the reward must be a number, but is None: a decision waits until its reward is known")
    return rewards


def _by_arm(pending: Pending, rewards: Mapping[Any, Any]) -> list[Any]:
    if pending.names is None:
        raise InvalidReward("the names of the arms were not saved with this decision: give its rewards in their order")
    for arm in rewards:
        if arm not in pending.names:
            raise InvalidReward(
                f"a reward is for arm {validate.shown(arm)}, but the decision ranked {arms_.listed(pending.names)}"
            )
    return [rewards.get(name) for name in pending.names]


def _length(reward: Any) -> int | None:
    """The number of rewards, or None if there is only one: a scalar, or an array without axes."""
    try:
        return len(reward)
    except TypeError:
        return None


def _check_number(value: Any) -> None:
    if np.ma.is_masked(value):
        raise InvalidReward("the reward must be a number, but is masked")
    if validate.is_traced(value):
        raise InvalidReward(f"the reward must be a number, but is traced by JAX: {validate.shown(value)}")
    try:
        validate.finite("the reward", value)
        validate.shape("the reward", value, ())
    except ValueError as error:
        raise InvalidReward(str(error)) from None
