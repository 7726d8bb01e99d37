"""Argument checks: one sentence that names the value and what is allowed."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Shaped

Value = TypeVar("Value")


def unknown(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """The error for an unknown name: it suggests the nearest one and lists all."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name).lower().replace("-", "_"), names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return ValueError(f"unknown {kind} '{name}'; {hint}known: {', '.join(names)}")


def choice(kind: str, name: str, table: Mapping[str, Value]) -> Value:
    """The entry of a table with this name, or an error that suggests the nearest one."""
    if name not in table:
        raise unknown(kind, name, table)
    return table[name]


def is_traced(value: object) -> bool:
    """Whether a value is known only when the compiled program runs."""
    import jax  # only here, so that names can be checked without waiting for JAX

    return isinstance(value, jax.core.Tracer)


def positive(name: str, value: Any, *, below: float = float("inf")) -> None:
    """Raise unless `value` is a number in (0, below); a traced value is left to the run's diagnostics."""
    if is_traced(value):
        return
    array = _numbers(name, value)
    if not np.all((array > 0) & (array < below)):
        allowed = "a positive finite number" if below == float("inf") else f"between 0 and {below:g}, both excluded"
        raise ValueError(f"{name} must be {allowed}, but is {value}")


def not_negative(name: str, value: Any) -> None:
    """Raise unless `value` is a finite number of at least zero."""
    if is_traced(value):
        return
    array = _numbers(name, value)
    if not np.all((array >= 0) & np.isfinite(array)):
        raise ValueError(f"{name} must be zero or a positive finite number, but is {value}")


def count(name: str, value: Any, *, least: int = 1) -> None:
    """Raise unless `value` is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, but is {value!r}")


def finite(name: str, value: Any) -> None:
    """Raise unless every entry of `value` is finite."""
    if is_traced(value):
        return
    array = _numbers(name, value)
    if not np.all(np.isfinite(array)):
        bad = int(np.sum(~np.isfinite(array)))
        raise ValueError(f"{name} must be finite, but {bad} of its {array.size} entries are NaN or infinite")


def shape(name: str, value: Any, expected: tuple[int | str, ...]) -> None:
    """Raise unless `value` has the expected shape; a word stands for any length."""
    actual = tuple(np.shape(value))
    fits = len(actual) == len(expected) and all(
        isinstance(e, str) or a == e for a, e in zip(actual, expected, strict=True)
    )
    if not fits:
        wanted = "(" + ", ".join(str(e) for e in expected) + ("," if len(expected) == 1 else "") + ")"
        raise ValueError(f"{name} must have shape {wanted}, but has shape {actual}")


def real(name: str, value: Any) -> None:
    """Raise unless `value` holds real numbers, of whatever precision."""
    dtype = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    if dtype.kind not in "biuf" and dtype.name != "bfloat16":
        raise ValueError(f"{name} must hold real numbers, but is of type {dtype}")


def _numbers(name: str, value: Any) -> Shaped[np.ndarray, "..."]:
    try:
        if np.asarray(value).dtype.kind not in "SUO":  # NumPy would read text as numbers
            return np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{name} must be a number, but is {value!r}")
