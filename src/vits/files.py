"""Atomic writes that are on disk when the call returns, and the folders of the user."""

import contextlib
import io
import json
import os
import secrets
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from vits import validate

Arrays = dict[str, Shaped[np.ndarray, "..."]]
"""The content of an npz file."""

UNFINISHED = ".unfinished"
"""Suffix of a file that is being written."""

KINDS = (
    (stat.S_ISREG, "a regular file"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def checked_path(path: Any) -> Path:
    """The path, or an error if it cannot be one."""
    if not isinstance(path, (str, os.PathLike)) or "\0" in str(path):
        raise ValueError(f"path must be the name of a file, but is {validate.shown(path)}")
    return Path(path)


def write_atomically(path: Path, content: bytes, *, private: bool = False) -> None:
    """Write a file so that readers see the old content or the new one, even after a crash.

    The file and its folder are synced to disk before the call returns. Permissions follow the umask.

    Args:
        path: the file; folders that are missing are made.
        content: what to write.
        private: only the owner may read the file.

    Raises:
        ValueError: there is something at `path` that is not a regular file. It is left alone.
    """
    with contextlib.suppress(FileNotFoundError):
        check_regular(path, os.lstat(path).st_mode)
    missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}{UNFINISHED}"
    # The kernel applies the umask to a new file. Python can only read the umask by changing it, for all threads.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)  # an interrupt may come after it was renamed
        raise
    for folder in (path.parent, *(folder.parent for folder in missing)):
        _sync_folder(folder)


def check_regular(path: Path, mode: int) -> None:
    """Raise unless the mode of a file is that of a regular one."""
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in KINDS if is_kind(mode)), "of an unknown kind")
        raise ValueError(f"'{path}' must be a regular file, but is {kind}")


def unfinished(folder: Path) -> list[Path]:
    """Files in a folder that a killed process did not finish."""
    return list(folder.glob(f".*{UNFINISHED}"))


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically. NaN is refused, because JSON has none."""
    write_atomically(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to an npz file atomically."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue())


def load_arrays(path: Path) -> Arrays:
    """Read all arrays of an npz file; a `ValueError` says what is wrong with a damaged one."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from None


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # Windows cannot open a folder
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_folder() -> Path:
    """`vits` in the user's cache folder. Everything in it can be deleted: it is computed or downloaded again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vits"


def data_folder() -> Path:
    """The folder of data sets: the environment variable VITS_DATA, or `data` in the cache folder."""
    return Path(os.environ.get("VITS_DATA") or cache_folder() / "data")


def keep_compiled_programs() -> None:
    """Let JAX keep compiled programs in the cache folder, unless the environment says otherwise.

    JAX reads the settings when it is imported, so this must be called before.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or os.environ.get("VITS_NO_COMPILATION_CACHE"):
        return
    folder = cache_folder() / "xla"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:  # the folder is not writable: programs are compiled in every process
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
