"""Text files with one record per line. Errors name the file, the line and the value."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vits import files

SHOWN = 60
"""Characters of a line that an error message shows."""


class Edition(NamedTuple):
    """The number of rows and the checksum of a complete file; None accepts any."""

    num_rows: int | None
    md5: str | None = None


class Record(NamedTuple):
    """One line, split into its fields, and its name for messages."""

    where: str
    fields: list[str]


Records = Iterator[Record]


def find(place: str | Path | None, folder: str, name: str, page: str) -> Path:
    """A file in a place or in its `folder`, or an error that says where it is published.

    The place is by default the environment variable VITS_DATA, or a folder in the user's cache.
    """
    place = files.data_folder() if place is None else Path(place)
    found = next((path for path in (place / name, place / folder / name) if path.is_file()), None)
    if found is None:
        raise ValueError(
            f"{place} holds no {name}, neither itself nor in its folder {folder}; it is published at {page}, "
            "and VITS_DATA says where data sets are"
        )
    return found


def read(path: Path, separator: str, num_fields: int, edition: Edition) -> Records:
    """The records of a file, line by line. An incomplete or changed file is refused after its last line."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    *lines, rest = content.decode("ascii", "backslashreplace").split("\n")
    if rest:
        raise ValueError(f"{path}, line {len(lines) + 1}: the file breaks off after '{rest[-SHOWN:]}'")
    for number, line in enumerate(lines, 1):
        where, fields = f"{path}, line {number}", line.removesuffix("\r").rstrip(" ").split(separator)
        if len(fields) != num_fields:
            raise ValueError(f"{where}: must have {num_fields} columns, but has {len(fields)}: '{line[:SHOWN]}'")
        yield Record(where, fields)
    if edition.num_rows is not None and len(lines) != edition.num_rows:
        raise ValueError(f"{path} must have {edition.num_rows} lines, but has {len(lines)}")
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if edition.md5 is not None and found != edition.md5:
        raise ValueError(f"{path} must have the md5 {edition.md5}, but has {found}: it is not as it was published")


def foreign(where: str, name: str, value: str, allowed: Sequence[str]) -> ValueError:
    """The error for a value that is not one of those allowed."""
    return ValueError(f"{where}: the {name} must be one of {', '.join(allowed)}, but is '{value}'")


def numbers(where: str, name: str, values: Sequence[str]) -> list[float]:
    """Finite numbers, fast for lines with many of them."""
    try:
        found = [float(value) for value in values]
    except ValueError:
        found = []
    if found and all(map(math.isfinite, found)):
        return found
    for i, value in enumerate(values):
        between(where, f"{name} {i}", value)
    return found


def between(
    where: str,
    name: str,
    value: str,
    least: float | int = -math.inf,
    most: float | int = math.inf,
    *,
    whole: bool = False,
) -> float:
    """A finite number between two bounds; a whole number, if `whole`."""
    try:
        found = float(value)
    except ValueError:
        raise ValueError(f"{where}: the {name} must be a number, but is '{value}'") from None
    if not (math.isfinite(found) and least <= found <= most):
        allowed = f"between {least:g} and {most:g}" if math.isfinite(least) else "finite"
        raise ValueError(f"{where}: the {name} must be {allowed}, but is {value}")
    if whole and not found.is_integer():
        raise ValueError(f"{where}: the {name} must be a whole number, but is {value}")
    return found


def one_hot(columns: Sequence[Sequence[str]], values: Sequence[Sequence[str]]) -> Float[np.ndarray, "rows features"]:
    """One feature for each value of each column: 1 in rows that have it. Values that are not listed have none."""
    tables = [
        np.asarray(column)[:, None] == np.asarray(list(known))[None]
        for column, known in zip(columns, values, strict=True)
    ]
    return np.concatenate(tables, axis=1).astype(float)
