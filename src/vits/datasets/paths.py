"""Where data sets and what was computed from them are kept."""

import os
from pathlib import Path


def cache() -> Path:
    """`vits` in the user's cache folder. Everything in it can be deleted: it is computed or downloaded again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vits"


def data() -> Path:
    """The folder of data sets: the environment variable VITS_DATA, or `data` in the cache folder."""
    return Path(os.environ.get("VITS_DATA") or cache() / "data")
