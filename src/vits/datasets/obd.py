"""The Open Bandit Dataset: which item was shown to whom, with what probability, and whether it was clicked.

Reference: Saito, Aihara, Matsutani and Narita, "Open Bandit Dataset and Pipeline", NeurIPS datasets track, 2021.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vits import validate
from vits.datasets import records
from vits.datasets.records import Edition

FOLDER = "obd"
PAGE = "https://github.com/st-tech/zr-obp/tree/master/obd"

POLICIES = ("random", "bts")
"""The logging policies: uniform choice, or Bernoulli Thompson sampling."""

CAMPAIGNS = {"all": 80, "men": 34, "women": 46}
"""Items of each campaign."""

POSITIONS = 3
NUM_USER_FEATURES = 4
NUM_ITEM_FEATURES = 4

SAMPLE = Edition(10_001)
"""The sample that comes with the Open Bandit Pipeline: a header and 10,000 rows for every policy and campaign."""

Values = tuple[tuple[str, ...], ...]


class Impressions(NamedTuple):
    """The logged rows, and the features of the items.

    `users` has a column of zeros and ones for each of `user_values`; `affinity[i, a]` says how often the user of row i
    clicked item a before. `items` holds the items' numeric feature, then their other features coded in the same way.
    """

    item: Int[np.ndarray, " rows"]
    position: Int[np.ndarray, " rows"]
    click: Float[np.ndarray, " rows"]
    propensity: Float[np.ndarray, " rows"]
    users: Float[np.ndarray, "rows features"]
    affinity: Float[np.ndarray, "rows items"]
    items: Float[np.ndarray, "items item_features"]
    user_values: Values


def load(
    place: str | Path | None = None,
    policy: str = "random",
    campaign: str = "men",
    *,
    user_values: Values | None = None,
    edition: Edition = SAMPLE,
) -> Impressions:
    """The log of one policy in one campaign.

    Args:
        place: the folder with the folders `random` and `bts`, or the one above; by default the environment variable
            VITS_DATA, or a folder in the user's cache.
        policy: "random" or "bts".
        campaign: "all", "men" or "women".
        user_values: those of another log, to code the users of both in the same way; by default those that occur.
        edition: how many lines a complete file has; `Edition(None)` for the full data set.
    """
    if policy not in POLICIES:
        raise validate.unknown("policy", policy, POLICIES)
    num_items = validate.choice("campaign", campaign, CAMPAIGNS)
    if user_values is not None and len(user_values) != NUM_USER_FEATURES:
        raise ValueError(f"user_values must be those of {NUM_USER_FEATURES} columns, but are of {len(user_values)}")
    folder = f"{policy}/{campaign}"
    header = [
        *("", "timestamp", "item_id", "position", "click", "propensity_score"),
        *(f"user_feature_{i}" for i in range(NUM_USER_FEATURES)),
        *(f"user-item_affinity_{i}" for i in range(num_items)),
    ]
    path = records.find(place, FOLDER, f"{folder}/{campaign}.csv", PAGE)
    logged, users, affinity = [], [], []
    for where, (_, _, item, position, click, propensity, *rest) in _rows(path, header, edition):
        logged.append(
            (
                records.between(where, "item_id", item, 0, num_items - 1, whole=True),
                records.between(where, "position", position, 1, POSITIONS, whole=True),
                records.between(where, "click", click, 0, 1, whole=True),
                _propensity(where, propensity),
            )
        )
        users.append(rest[:NUM_USER_FEATURES])
        affinity.append(records.numbers(where, "user-item affinity", rest[NUM_USER_FEATURES:]))
    if not logged:
        raise ValueError(f"{path} must have rows below its header, but has none")
    item, position, click, propensity = np.asarray(logged).T
    columns = list(zip(*users, strict=True))
    values = user_values or tuple(tuple(sorted(set(column))) for column in columns)
    return Impressions(
        item=item.astype(int),
        position=position.astype(int),
        click=click,
        propensity=propensity,
        users=records.one_hot(columns, values),
        affinity=np.asarray(affinity),
        items=_items(records.find(place, FOLDER, f"{folder}/item_context.csv", PAGE), num_items),
        user_values=values,
    )


def _items(path: Path, num_items: int) -> Float[np.ndarray, "items item_features"]:
    header = ["", "item_id", *(f"item_feature_{i}" for i in range(NUM_ITEM_FEATURES))]
    numbers, words = np.zeros(num_items), []
    for expected, (where, (_, item, value, *rest)) in enumerate(_rows(path, header, Edition(1 + num_items))):
        records.between(where, "item_id", item, expected, expected, whole=True)
        numbers[expected] = records.between(where, "item_feature_0", value)
        words.append(rest)
    columns = list(zip(*words, strict=True))
    return np.column_stack([numbers, records.one_hot(columns, [sorted(set(column)) for column in columns])])


def _rows(path: Path, header: list[str], edition: Edition) -> records.Records:
    """The records below the header, which must be the documented one."""
    rows = records.read(path, ",", len(header), edition)
    for where, names in rows:
        for expected, name in zip(header, names, strict=True):
            if name != expected:
                raise ValueError(f"{where}: the header must name a column '{expected}', but has '{name}'")
        break
    return rows


def _propensity(where: str, value: str) -> float:
    found = records.between(where, "propensity_score", value, 0, 1)
    if found == 0:
        raise ValueError(f"{where}: the propensity_score of what was shown must be above 0, but is {value}")
    return found
