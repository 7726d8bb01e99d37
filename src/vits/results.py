"""Results on disk: curves and a summary, written whole or not at all."""

import io
import json
import os
import platform
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Shaped

from vits.simulation import Trace

SUMMARY = "summary.json"
SETTINGS = "settings.json"


class Curves(NamedTuple):
    """One cell of an experiment: an algorithm in an environment, all seeds."""

    regret: Float[np.ndarray, "seeds horizon"]
    failed: Bool[np.ndarray, " seeds"]
    arrays: dict[str, Shaped[np.ndarray, "..."]]
    """Everything stored beside: actions, rewards, counts of diagnostics, seconds."""

    @property
    def cumulative(self) -> Float[np.ndarray, "seeds horizon"]:
        """Regret summed up to each round, of the seeds that did not fail."""
        return np.cumsum(self.regret[~self.failed], axis=1, dtype=np.float64)


class Results(NamedTuple):
    """A run's folder, loaded: the summary and the curves by environment and algorithm."""

    folder: Path
    summary: dict[str, Any]
    curves: dict[tuple[str, str], Curves]


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees all of it or nothing, whenever the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_json(path: Path, content: Any) -> None:
    """Write JSON atomically; a NaN is refused, because JSON has none."""
    write_atomically(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def save_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Write arrays to an npz file atomically."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue())


def load_arrays(path: Path) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Read an npz file whole."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def trace_arrays(trace: Trace) -> dict[str, Any]:
    """What of a trace goes to disk: the curves in full, the diagnostics as counts per seed."""
    info = trace.info
    return {
        "regret": trace.regret,
        "action": np.asarray(trace.action, np.int32),
        "reward": trace.reward,
        "failed": trace.failed,
        "rejected": np.sum(info.rejected, axis=1),
        "step_capped": np.sum(info.step_capped, axis=1),
        "unstable": np.sum(np.asarray(info.stiffness) >= 1.0, axis=1),
        "refreshed": np.sum(info.refreshed, axis=1),
        "inverse_error": np.max(info.inverse_error, axis=1),
        "seconds": trace.seconds,
    }


def curves_of(arrays: dict[str, Shaped[np.ndarray, "..."]]) -> Curves:
    """The curves among stored arrays."""
    return Curves(arrays["regret"], arrays["failed"], arrays)


def row(environment: str, algorithm: str, hyperparameters: Mapping[str, Any], curves: Curves) -> dict[str, Any]:
    """One line of the summary. Failed seeds are counted and left out of every average; null where none is left."""
    seeds, horizon = curves.regret.shape
    final = curves.cumulative[:, -1]
    seconds = float(curves.arrays["seconds"])
    return {
        "environment": environment,
        "algorithm": algorithm,
        "hyperparameters": dict(hyperparameters),
        "horizon": horizon,
        "seeds": seeds,
        "failed_seeds": int(np.sum(curves.failed)),
        "regret_mean": float(np.mean(final)) if len(final) else None,
        "regret_stderr": float(np.std(final, ddof=1) / np.sqrt(len(final))) if len(final) > 1 else None,
        "regret_median": float(np.median(final)) if len(final) else None,
        "seconds": seconds,
        "rounds_per_second": seeds * horizon / seconds,
        "rejected_updates": int(np.sum(curves.arrays["rejected"])),
        "unstable_rounds": int(np.sum(curves.arrays["unstable"])),
        "refreshed_inverses": int(np.sum(curves.arrays["refreshed"])),
    }


def versions() -> dict[str, str]:
    """The versions that a result depends on."""
    packages = {name: metadata.version(name) for name in ("vits-bandits", "jax", "jaxlib", "numpy", "equinox")}
    return {"python": platform.python_version(), **packages}


def curve_file(folder: Path, environment: str, algorithm: str) -> Path:
    """Where the curves of one cell are stored."""
    return folder / f"{environment}--{algorithm}.npz".replace("/", "-").replace(" ", "_")


def load(folder: str | Path) -> Results:
    """Load a run's folder, or say what is missing."""
    folder = Path(folder)
    path = folder / SUMMARY
    if not path.is_file():
        raise ValueError(f"{folder} holds no finished run: {SUMMARY} is missing")
    try:
        summary = json.loads(path.read_text())
        cells = [(line["environment"], line["algorithm"]) for line in summary["rows"]]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a summary of a run: {error}") from None
    curves = {}
    for cell in cells:
        file = curve_file(folder, *cell)
        if not file.is_file():
            raise ValueError(f"{folder} is incomplete: {file.name} is missing")
        curves[cell] = curves_of(load_arrays(file))
    return Results(folder, summary, curves)
