"""Arms and their features: arguments of an application are checked and turned into rows."""

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from vits import validate

FeatureMap = Callable[[Any, Any], Any]
"""phi(context, arm): the features of an arm in a context."""

SMALLEST = 8
"""Compiled programs take at least this many rows, and a power of two."""


class Arm(NamedTuple):
    """A named arm: the index of its posterior, if each arm has its own, and a number that no other arm ever had."""

    name: Hashable
    slot: int
    created: int


class Offer(NamedTuple):
    """Arms to choose among: their names, and the rows of the features that belong to them."""

    names: Sequence[Hashable]
    rows: Float[np.ndarray, "rows dim"]
    where: Int[np.ndarray, " arms"] | slice

    @property
    def features(self) -> Float[np.ndarray, "arms dim"]:
        """The features of each arm."""
        return self.rows[self.where]


def numbers(name: str, value: Any, dtype: Any) -> Float[np.ndarray, "..."]:
    """Finite numbers from an array, a list, or an object with `to_numpy`, such as a row of pandas or polars."""
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    if _has_masked(value):
        raise ValueError(f"{name} must have no masked entries: leave them out or fill them in")
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiub" and (array.dtype.kind != "O" or _has_others(array)):
            raise TypeError
        if array.dtype != dtype:
            with np.errstate(over="ignore"):  # too large values become infinite and are refused below
                array = array.astype(dtype)
    except OverflowError:  # an integer that no float can hold
        raise ValueError(f"{name} must fit into {dtype}, but are {validate.shown(value)}") from None
    except (TypeError, ValueError, np.ma.MaskError):
        raise ValueError(f"{name} must be numbers, but are {validate.shown(value)}") from None
    if not np.isfinite(array).all():
        validate.finite(name, array)
    return array


def vector(name: str, value: Any, dim: int, dtype: Any) -> Float[np.ndarray, " dim"]:
    """The `dim` features of one arm or context; a table with one row is accepted."""
    array = numbers(name, value, dtype)
    if array.shape == (1, dim):
        return array[0]
    if array.shape != (dim,):
        validate.shape(name, array, (dim,))
    return array


def table(name: str, value: Any, dim: int, dtype: Any) -> Float[np.ndarray, "rows dim"]:
    """Rows of `dim` features, at least one."""
    array = numbers(name, value, dtype)
    if array.ndim != 2 or array.shape[1] != dim:
        validate.shape(name, array, ("K", dim))
    if len(array) == 0:
        raise ValueError(f"{name} must have at least one row, but have none")
    return array


def padded(rows: Float[np.ndarray, "arms dim"]) -> Float[np.ndarray, "rows dim"]:
    """The rows with rows of zeros added up to a power of two, so that few shapes are compiled."""
    count, size = len(rows), padded_size(len(rows))
    if count == size:
        return rows
    copy = np.zeros((size, rows.shape[1]), rows.dtype)
    copy[:count] = rows
    return copy


def padded_size(count: int) -> int:
    """The number of rows that a compiled program takes for this many arms."""
    return 1 << (max(count, SMALLEST) - 1).bit_length()


def given_rows(arms: Any, available: Iterable[Hashable] | None, dim: int, dtype: Any) -> Offer:
    """Arms given by their features: a table, or a mapping from names to features."""
    if isinstance(arms, Mapping):
        names = _chosen(tuple(arms), None)
        rows = _stacked(names, arms.__getitem__, dim, dtype)
    else:
        rows = np.array(table("arms", arms, dim, dtype))  # a copy: the decision keeps it
        names = range(len(rows))
    if available is None:
        return Offer(names, rows, slice(None))
    positions = {name: i for i, name in enumerate(names)}
    chosen = _chosen(names, available)
    return Offer(chosen, rows, np.asarray([positions[name] for name in chosen]))


def mapped_rows(
    context: Any, arms: Mapping[Any, Arm], available: Iterable[Hashable] | None, phi: FeatureMap, dim: int, dtype: Any
) -> Offer:
    """Named arms whose features come from a feature map."""
    names = _chosen(tuple(arms), available)
    return Offer(names, _stacked(names, functools.partial(phi, context), dim, dtype), slice(None))


def head_rows(
    context: Any, arms: Mapping[Any, Arm], available: Iterable[Hashable] | None, heads: int, dim: int, dtype: Any
) -> Offer:
    """Named arms that share a model with one output each: one context for all, followed by the number of the output."""
    names = _chosen(tuple(arms), available)
    shared, rows = vector("the context", context, dim - 1, dtype), np.empty((len(names), dim), dtype)
    for row, name in zip(rows, names, strict=True):
        check_has_output(name, arms[name].created, heads)
        row[:-1], row[-1] = shared, arms[name].created
    return Offer(names, rows, slice(None))


def slot_rows(
    context: Any, arms: Mapping[Any, Arm], available: Iterable[Hashable] | None, slots: int, dim: int, dtype: Any
) -> Offer:
    """Named arms with their own posteriors: one context for all arms, or a mapping from names to features."""
    names: Sequence[Hashable] = tuple(arms)
    if isinstance(context, Mapping):
        names = _chosen(names, context)
        features = dict(zip(names, _stacked(names, context.__getitem__, dim, dtype), strict=True))
    else:
        features = dict.fromkeys(names, vector("the context", context, dim, dtype))
    names = _chosen(names, available)
    where = np.asarray([arms[name].slot for name in names])
    rows = np.zeros((slots, dim), dtype)
    rows[where] = [features[name] for name in names]
    return Offer(names, rows, where)


def check_has_output(name: Hashable, created: int, heads: int) -> None:
    """Raise unless a model with an output for each of its first arms has one for this arm."""
    if created >= heads:
        raise ValueError(f"the model has {heads} outputs, and none for the new arm {validate.shown(name)}")


def check_outputs(rows: Float[np.ndarray, "rows dim"], heads: int) -> None:
    """Raise unless the last feature of each row is the number of an output of the model."""
    last = rows[:, -1]
    bad = (last < 0) | (last >= heads) | (last != np.floor(last))
    if bad.any():
        raise ValueError(
            f"the last feature of an arm must be its output, a whole number from 0 to {heads - 1}, "
            f"but is {last[bad.argmax()]:g}"
        )


def _stacked(
    names: Sequence[Hashable], features: Callable[[Hashable], Any], dim: int, dtype: Any
) -> Float[np.ndarray, "arms dim"]:
    """A row for each arm, copied before the next one is asked for: a function may return one array again and again."""
    rows = np.empty((len(names), dim), dtype)
    for row, name in zip(rows, names, strict=True):
        row[:] = vector(f"the features of arm {name!r}", features(name), dim, dtype)
    return rows


def _chosen(names: Sequence[Hashable], available: Iterable[Hashable] | None) -> Sequence[Hashable]:
    """The available names, each once, in the order given, or as known if a set; None stands for all, at least one."""
    if available is None:
        if not names:
            raise ValueError("there must be at least one arm to choose, but there is none")
        return names
    chosen = tuple(dict.fromkeys(_collection("available", "arms", available)))
    if not chosen:
        raise ValueError("available must name at least one arm, but is empty")
    is_range = isinstance(names, range)
    known = names if is_range else set(names)
    for name in chosen:
        # To Python True is 1, but a list of them is a mask and no list of rows.
        is_row = isinstance(name, (int, np.integer)) and not isinstance(name, bool)
        if name not in known or (is_range and not is_row):
            raise ValueError(f"unknown arm {validate.shown(name)}; known: {listed(names)}")
    if isinstance(available, (set, frozenset)):  # the order of a set differs from process to process
        return tuple(name for name in names if name in available)
    return chosen


def _has_masked(value: Any) -> bool:
    parts = value if isinstance(value, (list, tuple)) else (value,)
    return any(isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part) for part in parts)


def _has_others(array: Shaped[np.ndarray, "..."]) -> bool:
    """Whether there is text or None in an array of objects, which NumPy would turn into numbers."""
    return any(part is None or isinstance(part, (str, bytes)) for part in array.flat)


def is_iterable(values: Any) -> bool:
    """Whether there is a loop over the values; an array without axes only looks so."""
    try:
        iter(values)
    except TypeError:
        return False
    return True


def hashable(name: str, value: Any) -> Hashable:
    """The value, or an error if it cannot be the name of an arm."""
    try:
        hash(value)
    except TypeError:
        raise ValueError(f"{name} must be hashable, but is {validate.shown(value)}") from None
    return value


def _collection(name: str, of: str, values: Any) -> list[Hashable]:
    if isinstance(values, (str, bytes, bytearray)) or not is_iterable(values):
        raise ValueError(f"{name} must be a collection of {of}, but is {validate.shown(values)}")
    return [hashable(f"each of {name}", value) for value in values]


def checked_names(names: Iterable[Hashable]) -> list[Hashable]:
    """The names of an agent's arms, which must differ. Their order is part of the agent, and a set has none."""
    if isinstance(names, (set, frozenset)):
        raise ValueError(f"arms must be in an order, such as a list, but are {validate.shown(names)}")
    listing = _collection("arms", "names", names)
    if len(set(listing)) < len(listing):
        raise ValueError(f"arms must have different names, but are {listed(listing)}")
    return listing


def check_known(arms: Mapping[Hashable, Arm], name: Hashable) -> None:
    """Raise unless there is an arm of this name."""
    if hashable("the name of an arm", name) not in arms:
        raise ValueError(f"unknown arm {validate.shown(name)}; known: {listed(arms)}")


def listed(names: Iterable[Hashable], most: int = 10) -> str:
    """The first names as text, for messages."""
    texts = [validate.shown(name) for name in names]
    more = f", and {len(texts) - most} more" if len(texts) > most else ""
    return (", ".join(texts[:most]) + more) if texts else "none"
