"""Results on disk: arrays and a summary, each written whole or not at all."""

import platform
import subprocess
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vits.files import Arrays as Arrays
from vits.files import load_arrays as load_arrays
from vits.files import save_arrays as save_arrays
from vits.files import unfinished as unfinished
from vits.files import write_atomically as write_atomically
from vits.files import write_json as write_json
from vits.lab import summary
from vits.simulation import Trace

SUMMARY = summary.SUMMARY
SETTINGS = "settings.json"


class Results(NamedTuple):
    """A run's folder, loaded: the summary, and the arrays by environment and algorithm."""

    folder: Path
    summary: dict[str, Any]
    cells: dict[tuple[str, str], Arrays]

    @property
    def environments(self) -> list[str]:
        """In the order they were run."""
        return list(dict.fromkeys(environment for environment, _ in self.cells))

    @property
    def algorithms(self) -> list[str]:
        """In the order they were run."""
        return list(dict.fromkeys(algorithm for _, algorithm in self.cells))


def join(chunks: Iterable[Arrays]) -> Arrays:
    """Chunks of seeds put together again."""
    parts = list(chunks)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def trace_arrays(trace: Trace) -> Arrays:
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
        "seconds": np.array([trace.seconds]),
    }


def cumulative(arrays: Arrays) -> Float[np.ndarray, "seeds horizon"]:
    """Regret summed up to each round, of the seeds that did not fail."""
    return np.cumsum(arrays["regret"][~arrays["failed"]], axis=1, dtype=np.float64)


def final_regret(arrays: Arrays) -> Float[np.ndarray, " seeds"]:
    """Cumulative regret at the end of every seed; NaN for the seeds that failed, so that seeds stay paired."""
    total = np.sum(arrays["regret"], axis=1, dtype=np.float64)
    return np.where(arrays["failed"], np.nan, total)


def row(
    environment: str,
    algorithm: str,
    hyperparameters: Mapping[str, Any],
    *,
    horizon: int,
    seeds: int,
    seconds: float,
    **columns: Any,
) -> dict[str, Any]:
    """One line of the summary; `columns` says what was found, and there is no regret unless it is among them."""
    return {
        "environment": environment,
        "algorithm": algorithm,
        "hyperparameters": dict(hyperparameters),
        "horizon": horizon,
        "seeds": seeds,
        "regret_mean": None,
        "regret_stderr": None,
        "regret_median": None,
        "seconds": seconds,
        "rounds_per_second": None,
        **columns,
    }


def regret_row(environment: str, algorithm: str, hyperparameters: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """A line about regret. Failed seeds are counted and left out of every average; null where none is left."""
    seeds, horizon = arrays["regret"].shape
    final = cumulative(arrays)[:, -1]
    seconds = float(np.sum(arrays["seconds"]))
    return row(
        environment,
        algorithm,
        hyperparameters,
        horizon=horizon,
        seeds=seeds,
        seconds=seconds,
        failed_seeds=int(np.sum(arrays["failed"])),
        regret_mean=float(np.mean(final)) if len(final) else None,
        regret_stderr=float(np.std(final, ddof=1) / np.sqrt(len(final))) if len(final) > 1 else None,
        regret_median=float(np.median(final)) if len(final) else None,
        rounds_per_second=seeds * horizon / seconds,
        rejected_updates=int(np.sum(arrays["rejected"])),
        capped_rounds=int(np.sum(arrays["step_capped"])),
        unstable_rounds=int(np.sum(arrays["unstable"])),
        refreshed_inverses=int(np.sum(arrays["refreshed"])),
    )


def versions() -> dict[str, str]:
    """The versions that a result depends on, and the commit if this is a checkout."""
    packages = {name: metadata.version(name) for name in ("vits-bandits", "jax", "jaxlib", "numpy", "equinox")}
    return {"python": platform.python_version(), **packages, "commit": _commit()}


def cell_file(folder: Path, environment: str, algorithm: str, chunk: str) -> Path:
    """Where one chunk of seeds of one cell is stored."""
    name = f"{environment}--{algorithm}--{chunk}.npz"
    return folder / name.replace("/", "-").replace(" ", "_")


def load_cell(path: Path) -> Arrays:
    """What was computed as one; cells from before the commit was kept with them have an unknown one."""
    return {"commit": np.array(["unknown"]), **load_arrays(path)}


def load(folder: str | Path) -> Results:
    """Load a finished run's folder, or say what is missing."""
    found, folder = summary.load(folder), Path(folder)
    cells = {}
    for row in found["rows"]:
        for name in row["files"]:
            if not (folder / name).is_file():
                raise ValueError(f"{folder} is incomplete: {name} is missing")
        cells[row["environment"], row["algorithm"]] = join(load_cell(folder / name) for name in row["files"])
    return Results(folder, found, cells)


def _commit() -> str:
    """The commit of this checkout, marked if files differ from it; unknown if this file is in no repository."""
    here = Path(__file__)
    if not _git("ls-files", here.name):  # a copy that was installed somewhere inside another repository
        return "unknown"
    changed = _git("status", "--porcelain", str(here.parent))
    return _git("rev-parse", "HEAD") + (" and changes" if changed else "")


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(Path(__file__).parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""
