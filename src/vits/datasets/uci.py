"""Two labelled tables of the UCI repository that are common in bandit experiments: mushroom and Statlog shuttle.

Reference: Dua and Graff, "UCI Machine Learning Repository", University of California, Irvine, 2019.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vits.datasets import records
from vits.datasets.records import Edition

FOLDER = "uci"
PAGE = "https://archive.ics.uci.edu"

MUSHROOM_FILE = "agaricus-lepiota.data"
SHUTTLE_FILES = ("shuttle.trn", "shuttle.tst")

MUSHROOM = Edition(8124, "08abc775ae2a79b402cc75f3a29e4b7d")
SHUTTLE = (Edition(43_500, "53cbd0c3ae4986fdf48b0570978b92bc"), Edition(14_500, "279c252ee3b56ae6016825afd6821ee7"))

CLASSES = "ep"
EDIBLE, POISONOUS = 0, 1

MUSHROOM_COLUMNS = {
    "cap-shape": "bcxfks",
    "cap-surface": "fgys",
    "cap-color": "nbcgrpuewy",
    "bruises": "tf",
    "odor": "alcyfmnps",
    "gill-attachment": "adfn",
    "gill-spacing": "cwd",
    "gill-size": "bn",
    "gill-color": "knbhgropuewy",
    "stalk-shape": "et",
    "stalk-root": "bcuezr?",
    "stalk-surface-above-ring": "fyks",
    "stalk-surface-below-ring": "fyks",
    "stalk-color-above-ring": "nbcgopewy",
    "stalk-color-below-ring": "nbcgopewy",
    "veil-type": "pu",
    "veil-color": "nowy",
    "ring-number": "not",
    "ring-type": "ceflnpsz",
    "spore-print-color": "knbhrouwy",
    "population": "acnsvy",
    "habitat": "glmpuwd",
}
"""The columns and their values as documented; a missing stalk root counts as a value."""

SHUTTLE_CLASSES = 7
SHUTTLE_NUMBERS = 9


class LabelledTable(NamedTuple):
    """Rows of numbers and the class of each, from 0; `names` are those of the columns."""

    features: Float[np.ndarray, "rows features"]
    labels: Int[np.ndarray, " rows"]
    names: tuple[str, ...]


def mushroom(place: str | Path | None = None, *, edition: Edition = MUSHROOM) -> LabelledTable:
    """8124 mushrooms, 22 properties of each as 126 zeros and ones; class 0 is edible, class 1 poisonous.

    Args:
        place: the folder with `agaricus-lepiota.data`, or the one above; by default the environment variable VITS_DATA,
            or a folder in the user's cache.
        edition: what a complete copy looks like.

    Returns:
        The table. Nine of its columns are for values that no mushroom has.
    """
    path = records.find(place, FOLDER, MUSHROOM_FILE, PAGE)
    labels, rows = [], []
    for where, (label, *row) in records.read(path, ",", 1 + len(MUSHROOM_COLUMNS), edition):
        if label not in CLASSES:
            raise records.foreign(where, "class", label, CLASSES)
        labels.append(CLASSES.index(label))
        for (name, values), value in zip(MUSHROOM_COLUMNS.items(), row, strict=True):
            if value not in values:
                raise records.foreign(where, name, value, values)
        rows.append(row)
    names = tuple(f"{name}={letter}" for name, letters in MUSHROOM_COLUMNS.items() for letter in letters)
    features = records.one_hot(list(zip(*rows, strict=True)), list(MUSHROOM_COLUMNS.values()))
    return LabelledTable(features, np.asarray(labels), names)


def shuttle(place: str | Path | None = None, *, editions: tuple[Edition, Edition] = SHUTTLE) -> LabelledTable:
    """58,000 states of a space shuttle's radiators, nine whole numbers each, in seven classes.

    Args:
        place: the folder with `shuttle.trn` and `shuttle.tst`, or the one above; by default the environment variable
            VITS_DATA, or a folder in the user's cache.
        editions: what complete copies of the two files look like.

    Returns:
        The rows of both files, unscaled. Class k of the files is label k - 1. Four of five rows have label 0.
    """
    labels, rows = [], []
    for name, edition in zip(SHUTTLE_FILES, editions, strict=True):
        path = records.find(place, FOLDER, name, PAGE)
        for where, (*row, label) in records.read(path, " ", SHUTTLE_NUMBERS + 1, edition):
            rows.append(records.numbers(where, "number", row))
            labels.append(records.between(where, "class", label, 1, SHUTTLE_CLASSES, whole=True))
    names = tuple(f"number {i}" for i in range(SHUTTLE_NUMBERS))
    return LabelledTable(np.asarray(rows), np.asarray(labels, int) - 1, names)
