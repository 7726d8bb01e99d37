"""Memory that is asked for before it is allocated.

The limit is half of the machine's memory, or what the environment variable `VITS_MEMORY_GB` says.
"""

import os

VARIABLE = "VITS_MEMORY_GB"
SHARE = 0.5


def limit() -> float:
    """How many bytes an algorithm may ask for."""
    given = os.environ.get(VARIABLE)
    if given is None:
        return SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        gigabytes = float(given)
    except ValueError:
        raise ValueError(f"{VARIABLE} must be a number of gigabytes, but is {given!r}") from None
    if not gigabytes > 0.0:
        raise ValueError(f"{VARIABLE} must be positive, but is {given}")
    return 1e9 * gigabytes


def check(what: str, num_bytes: float, instead: str) -> None:
    """Refuse what needs more than the limit, with the size, the limit and what to use instead."""
    if num_bytes > limit():
        raise ValueError(
            f"{what} needs {num_bytes / 1e9:.3g} GB, more than the limit of {limit() / 1e9:.3g} GB "
            f"(half of this machine's memory, or {VARIABLE}): {instead}"
        )
