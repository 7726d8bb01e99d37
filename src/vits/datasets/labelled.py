"""Text files with one labelled row per line."""

from pathlib import Path

import numpy as np

from vits import validate
from vits.datasets import records
from vits.datasets.uci import LabelledTable

VALUE_OF = "value of "
"""Prefix of the names of features that are 0 or 1."""


def read(path: str | Path, *, label: int = -1, separator: str = ",", header: bool = False) -> LabelledTable:
    """The rows of a file as numbers, and the class of each.

    Args:
        path: the file.
        label: the column with the class, counted from 0, or from the end if negative.
        separator: the text between two columns.
        header: whether the first line holds names.

    Returns:
        The table. A column in which any value is not a number has one feature for each of its values. Classes are
        numbered in sorted order.
    """
    path = Path(path)
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    rows = [(number, line.split(separator)) for number, line in enumerate(lines, 1) if line.strip()]
    names = [name.strip() for name in rows.pop(0)[1]] if header and rows else []
    if not rows:
        raise ValueError(f"{path} must hold at least one row, but is empty")
    num_columns = len(names or rows[0][1])
    for number, row in rows:
        if len(row) != num_columns:
            raise ValueError(f"{path}, line {number}: must have {num_columns} columns, but has {len(row)}")
    if num_columns < 2:
        raise ValueError(f"{path} must have at least two columns separated by {separator!r}, but has {num_columns}")
    if not -num_columns <= label < num_columns:
        raise ValueError(f"label must be the number of one of the {num_columns} columns, but is {label}")
    columns = [[row[i].strip() for _, row in rows] for i in range(num_columns)]
    names = names or [f"column {i}" for i in range(num_columns)]
    classes, labels = np.unique(columns.pop(label), return_inverse=True)
    names.pop(label)
    validate.count("the number of classes", len(classes), least=2)
    features, titles = [], []
    for name, column in zip(names, columns, strict=True):
        try:
            numbers = np.asarray(column, float)
        except ValueError:
            values = sorted(set(column))
            features.append(records.one_hot([column], [values]))
            titles += [f"{VALUE_OF}{name}: {value}" for value in values]
            continue
        if not np.all(np.isfinite(numbers)):
            first = int(np.argmin(np.isfinite(numbers)))
            raise ValueError(f"{path}, line {rows[first][0]}: {name} must be finite, but is {column[first]}")
        features.append(numbers[:, None])
        titles.append(name)
    return LabelledTable(np.concatenate(features, axis=1), labels, tuple(titles))
