"""Where JAX keeps compiled programs: one folder for all processes of a machine."""

import os
import tempfile

from vits.datasets import paths


def keep_compiled_programs() -> None:
    """Let JAX keep compiled programs in the user's cache folder, unless told not to or to keep them elsewhere.

    JAX reads the settings when it is imported, so this comes first.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or os.environ.get("VITS_NO_COMPILATION_CACHE"):
        return
    folder = paths.cache() / "xla"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:  # nowhere to write: compile anew
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
