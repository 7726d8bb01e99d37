"""Files, each written whole or not at all."""

import io
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

Arrays = dict[str, Shaped[np.ndarray, "..."]]
"""What an npz file holds."""

UNFINISHED = ".unfinished"
"""How the name of a file ends while it is written."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees all of it or nothing, whenever the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def unfinished(folder: Path) -> list[Path]:
    """What processes that were killed while writing left in a folder."""
    return list(folder.glob(f".*{UNFINISHED}"))


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically; a NaN is refused, because JSON has none."""
    write_atomically(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to an npz file atomically."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue())


def load_arrays(path: Path) -> Arrays:
    """Read an npz file whole; a `ValueError` says what is wrong with one that is damaged."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
