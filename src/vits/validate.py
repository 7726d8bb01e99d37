"""Checks of arguments. Errors are one sentence that names the value and what is allowed."""

import difflib
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Shaped

Value = TypeVar("Value")

MEMORY = "VITS_MEMORY_GB"
"""The environment variable that limits what an algorithm may allocate; half of the machine's memory by default."""

MOST_ROUNDS = 10**10
"""A run with more rounds is refused: at a million rounds a second it takes three hours."""

BYTES_PER_ROUND = 12
"""Memory that the results of a round take: regret, action and reward."""

LONGEST = 80
"""The most letters of a value in a message."""


def shown(value: object) -> str:
    """The value for a message: its `repr` in one line, cut if it is long."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python does not print integers of more than 4300 digits
        text = f"a value of type {type(value).__name__} that cannot be printed"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def unknown(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """The error for an unknown name: it suggests the nearest one and lists all."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name).lower().replace("-", "_"), names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return ValueError(f"unknown {kind} '{name}'; {hint}known: {', '.join(names)}")


def choice(kind: str, name: str, table: Mapping[str, Value]) -> Value:
    """The entry of a table with this name, or an error that suggests the nearest one."""
    if not isinstance(name, str) or name not in table:
        raise unknown(kind, name, table)
    return table[name]


def is_traced(value: object) -> bool:
    """Whether a value is known only when the compiled program runs."""
    import jax  # only here, so that names can be checked without waiting for JAX

    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value))


def positive(name: str, value: Any, *, below: float = float("inf")) -> None:
    """Raise unless `value` is a number in (0, below); a traced value is left to the run's diagnostics."""
    if is_traced(value):
        return
    array = _numbers(name, value)
    if not np.all((array > 0) & (array < below)):
        allowed = "a positive finite number" if below == float("inf") else f"between 0 and {below:g}, both excluded"
        raise ValueError(f"{name} must be {allowed}, but is {shown(np.asarray(value).tolist())}")


def share(name: str, value: Any) -> None:
    """Raise unless `value` is a number in (0, 1]; a traced value is left to the run's diagnostics."""
    if is_traced(value):
        return
    array = _numbers(name, value)
    if not np.all((array > 0) & (array <= 1)):
        raise ValueError(f"{name} must be above 0 and at most 1, but is {shown(np.asarray(value).tolist())}")


def not_negative(name: str, value: Any) -> None:
    """Raise unless `value` is a finite number of at least zero."""
    if is_traced(value):
        return
    array = _numbers(name, value)
    if not np.all((array >= 0) & np.isfinite(array)):
        raise ValueError(f"{name} must be zero or a positive finite number, but is {shown(np.asarray(value).tolist())}")


def numbers(name: str, value: Any) -> None:
    """Raise unless `value` is a real number or an array of them."""
    if not is_traced(value):
        _numbers(name, value)


def number(name: str, value: Any) -> None:
    """Raise unless `value` is one real number."""
    numbers(name, value)
    shape(name, value, ())


def count(name: str, value: Any, *, least: int = 1, most: int | None = None) -> int:
    """The value as a Python integer; raise unless it is at least `least`, and at most `most` if that is given."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, but is {shown(value)}")
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most:,}, but is {shown(value)}")
    return int(value)


def plain(value: Any) -> Any:
    """The value, but a NumPy integer as a Python one: programs would take a NumPy number as an array, not as a size."""
    return int(value) if isinstance(value, np.integer) else value


def seed(name: str, value: Any) -> int:
    """The value as a Python integer; raise unless it is a whole number from 0 to below 2^32."""
    number = count(name, value, least=0)
    if number >= 1 << 32:
        raise ValueError(f"{name} must be below 2^32, but is {shown(value)}")
    return number


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
    """Raise unless `value` holds real numbers, in any precision."""
    dtype = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    if dtype.kind not in "biuf" and dtype.name != "bfloat16":
        raise ValueError(f"{name} must hold real numbers, but is of type {dtype}")


def memory(what: str, num_bytes: float, instead: str) -> None:
    """Raise if `what` needs more memory than the limit; `instead` says what to use."""
    limit = _memory_limit()
    if num_bytes > limit:
        raise ValueError(
            f"{what} needs {num_bytes / 1e9:.3g} GB, more than the limit of {limit / 1e9:.3g} GB "
            f"(half of this machine's memory, or {MEMORY}): {instead}"
        )


def run_size(seeds: int, horizon: int, curves: int) -> None:
    """Raise if the results of a run do not fit into memory, or if it would take too long.

    Args:
        seeds: seeds of each curve.
        horizon: rounds of each seed.
        curves: pairs of an environment and an algorithm; all are in memory when the summary is written.
    """
    rounds, size = seeds * horizon * curves, f"{curves} curves of {seeds:,} seeds and {horizon:,} rounds"
    if rounds > MOST_ROUNDS:
        raise ValueError(
            f"{size} are {rounds:,} rounds, but at most {MOST_ROUNDS:,} can be run; "
            "use fewer seeds or a shorter horizon"
        )
    if BYTES_PER_ROUND * rounds > _machine_memory():
        raise ValueError(
            f"{size} need {BYTES_PER_ROUND * rounds / 1e9:,.0f} GB of memory, but this machine has "
            f"{_machine_memory() / 1e9:,.0f} GB; use fewer seeds or a shorter horizon"
        )


def _memory_limit() -> float:
    """Bytes that an algorithm may allocate."""
    given = os.environ.get(MEMORY)
    if given is None:
        return 0.5 * _machine_memory()
    try:
        gigabytes = float(given)
    except ValueError:
        raise ValueError(f"{MEMORY} must be a number of gigabytes, but is {given!r}") from None
    if not gigabytes > 0.0:
        raise ValueError(f"{MEMORY} must be positive, but is {given}")
    return 1e9 * gigabytes


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _numbers(name: str, value: Any) -> Shaped[np.ndarray, "..."]:
    try:
        # NumPy would read text and times as numbers, drop imaginary parts, and read what is below a mask.
        if np.asarray(value).dtype.kind not in "SUOMmc" and not np.ma.is_masked(value):
            return np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{name} must be a number, but is {shown(value)}")
