"""Cumulative regret against rounds."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes

from vits.files import Arrays
from vits.lab.plots import style
from vits.lab.results import Key, Results, Summary, cumulative

OFF_SCALE = 3.0
"""A curve that ends this many times above the median of all is named in a corner instead of flattening the rest."""


class Curve(NamedTuple):
    """Mean cumulative regret at some rounds, and its standard error; no error of a single seed."""

    rounds: Int[np.ndarray, " points"]
    mean: Float[np.ndarray, " points"]
    error: Float[np.ndarray, " points"] | None


def curve(arrays: Arrays, points: int | None = None) -> Curve | None:
    """The curve of the seeds that did not fail, at all rounds or about `points` of them; None if all seeds failed."""
    regret = cumulative(arrays)
    horizon = regret.shape[1]
    at = np.arange(horizon) if points is None else np.unique(np.linspace(0, horizon - 1, points).astype(int))
    if not len(regret):
        return None
    error = regret[:, at].std(axis=0, ddof=1) / np.sqrt(len(regret)) if len(regret) > 1 else None
    return Curve(at + 1, regret[:, at].mean(axis=0), error)


def regret(results: Results, path: str | Path | None = None) -> Path:
    """Cumulative regret against rounds, one panel per environment, mean and a band of one standard error.

    Args:
        results: a loaded run.
        path: where the picture goes; `regret.png` in the run's folder by default.

    Returns:
        The path of the picture.
    """
    found = {key: curve(arrays) for key, arrays in results.cells.items() if "regret" in arrays}
    return draw(results.summary, found, Path(path) if path is not None else results.folder / "regret.png")


def draw(summary: Summary, curves: Mapping[Key, Curve | None], path: Path) -> Path:
    """Draw curves by environment and algorithm, one panel per environment."""
    environments, algorithms = (list(dict.fromkeys(names)) for names in zip(*curves, strict=True))
    colours = style.colours(algorithms)
    figure, panels = style.panels(len(environments))
    for environment, axes in zip(environments, panels, strict=True):
        _panel(axes, {name: found for (world, name), found in curves.items() if world == environment}, colours)
        axes.set_title(environment, loc="left", fontsize=11)
        axes.set_ylabel("cumulative regret")
    rows = [row for row in summary["rows"] if (row["environment"], row["algorithm"]) in curves]
    counts = sorted({row["seeds"] for row in rows})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    left_out = ", failed ones left out" if any(row["failed_seeds"] for row in rows) else ""
    title = f"{summary['settings']['title']}: mean of {seeds} seeds{left_out}, bands of one standard error"
    return style.finish(figure, panels, title, path)


def _panel(axes: Axes, curves: dict[str, Curve | None], colours: dict[str, str]) -> None:
    finals = {name: found.mean[-1] for name, found in curves.items() if found is not None}
    limit = OFF_SCALE * np.median(list(finals.values()))
    shown = [name for name, final in finals.items() if final <= limit]
    for name, dash in zip(shown, itertools.cycle(style.DASHES)):
        found = curves[name]
        assert found is not None
        axes.plot(found.rounds, found.mean, color=colours[name], label=name, linewidth=1.7, linestyle=dash)
        if found.error is not None:
            low, high = found.mean - found.error, found.mean + found.error
            axes.fill_between(found.rounds, low, high, color=colours[name], alpha=0.18, linewidth=0)
    notes = [f"{name}: {final:.0f} (off scale)" for name, final in finals.items() if name not in shown]
    notes += [f"{name}: every seed failed" for name in curves if name not in finals]
    axes.text(0.02, 0.97, "\n".join(notes), transform=axes.transAxes, va="top", fontsize=8.5, color=style.NOTE)
    axes.set_xlabel("round")
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    style.frame(axes)
