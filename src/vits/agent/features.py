"""From what an application has at hand to rows of features, checked at the front door."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vits import validate

FeatureMap = Callable[[Any, Any], Any]
"""phi(context, arm): the features of an arm in a context."""

SMALLEST = 8
"""Arms are padded to this many, or to a power of two above."""


class Arm(NamedTuple):
    """A named arm: which posterior is its own, where each arm has one, and a number that no other arm ever had."""

    name: Hashable
    slot: int
    born: int


class Offer(NamedTuple):
    """Arms to choose among: their names, and which row of the padded features is whose."""

    names: Sequence[Hashable]
    rows: Float[np.ndarray, "rows dim"]
    where: Int[np.ndarray, " arms"] | slice

    @property
    def features(self) -> Float[np.ndarray, "arms dim"]:
        """The features of each arm."""
        return self.rows[self.where]


def numbers(name: str, value: Any, dtype: Any) -> Float[np.ndarray, "..."]:
    """Finite numbers from an array, a list, or anything that has `to_numpy`, such as a row of pandas or polars."""
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiubO":
            raise TypeError
        if array.dtype != dtype:
            with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
                array = array.astype(dtype)
    except (TypeError, ValueError):
        shown = " ".join(repr(value).split())
        raise ValueError(f"{name} must be numbers, but are {shown[:80]}") from None
    if not np.isfinite(array).all():
        validate.finite(name, array)
    return array


def vector(name: str, value: Any, dim: int, dtype: Any) -> Float[np.ndarray, " dim"]:
    """The `dim` features of one arm or context; a table of one row will do."""
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
    """A copy with rows of zeros up to a power of two, so that few shapes ever occur."""
    count, dim = rows.shape
    copy = np.zeros((1 << (max(count, SMALLEST) - 1).bit_length(), dim), rows.dtype)
    copy[:count] = rows
    return copy


def given_rows(arms: Any, available: Iterable[Hashable] | None, dim: int, dtype: Any) -> Offer:
    """Arms that are given by their features: a table, or a mapping from names to features."""
    names: Sequence[Hashable]
    if isinstance(arms, Mapping):
        names = tuple(arms)
        rows = _stacked([vector(f"the features of arm {name!r}", arms[name], dim, dtype) for name in names])
    else:
        rows = table("arms", arms, dim, dtype)
        names = range(len(rows))
    chosen = _chosen(names, available)
    if chosen is None:
        return Offer(names, padded(rows), slice(len(rows)))
    positions = {name: i for i, name in enumerate(names)}
    return Offer(chosen, padded(rows), np.asarray([positions[name] for name in chosen]))


def mapped_rows(
    context: Any, arms: Mapping[Any, Arm], available: Iterable[Hashable] | None, phi: FeatureMap, dim: int, dtype: Any
) -> Offer:
    """Named arms whose features in a context come from a feature map."""
    names = _chosen(tuple(arms), available) or tuple(arms)
    rows = [vector(f"the features of arm {name!r}", phi(context, name), dim, dtype) for name in names]
    return Offer(names, padded(_stacked(rows)), slice(len(rows)))


def slot_rows(
    context: Any, arms: Mapping[Any, Arm], available: Iterable[Hashable] | None, slots: int, dim: int, dtype: Any
) -> Offer:
    """Named arms with a posterior each: one context for all of them, or a mapping from names to features."""
    names: Sequence[Hashable] = tuple(arms)
    if isinstance(context, Mapping):
        names = _chosen(names, context) or ()
        features: Any = [vector(f"the features of arm {name!r}", context[name], dim, dtype) for name in names]
        features = dict(zip(names, features, strict=True))
    else:
        shared = vector("the context", context, dim, dtype)
        features = dict.fromkeys(names, shared)
    names = _chosen(names, available) or names
    if not names:
        raise _nothing()
    where = np.asarray([arms[name].slot for name in names])
    rows = np.zeros((slots, dim), dtype)
    rows[where] = [features[name] for name in names]
    return Offer(names, rows, where)


def _chosen(names: Sequence[Hashable], available: Iterable[Hashable] | None) -> tuple[Hashable, ...] | None:
    """Those of the names that are available, each once, in the order in which they are given; None for all."""
    if available is None:
        if not names:
            raise _nothing()
        return None
    if isinstance(available, (str, bytes)):
        raise ValueError(f"available must be a collection of arms, but is {available!r}")
    chosen = tuple(dict.fromkeys(available))
    if not chosen:
        raise ValueError("available must name at least one arm, but is empty")
    known = names if isinstance(names, range) else set(names)
    for name in chosen:
        if name not in known:
            raise ValueError(f"unknown arm {name!r}; known: {listed(names)}")
    return chosen


def listed(names: Iterable[Hashable], most: int = 10) -> str:
    """Names for an error message or a summary, not too many."""
    texts = [repr(name) for name in names]
    more = f", and {len(texts) - most} more" if len(texts) > most else ""
    return (", ".join(texts[:most]) + more) if texts else "none"


def _nothing() -> ValueError:
    return ValueError("there must be at least one arm to choose, but there is none")


def _stacked(rows: list[Any]) -> Float[np.ndarray, "arms dim"]:
    if not rows:
        raise _nothing()
    return np.stack(rows)
