"""Cumulative regret against rounds."""

import itertools
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from vits.lab.plots import style
from vits.lab.results import Results, cumulative

OFF_SCALE = 3.0
"""A curve that ends this many times above the median of all is named in a corner instead of flattening the rest."""


def regret(results: Results, path: str | Path | None = None) -> Path:
    """Cumulative regret against rounds, one panel per environment, mean and a band of one standard error.

    Args:
        results: a loaded run.
        path: where the picture goes; `regret.png` in the run's folder by default.

    Returns:
        The path of the picture.
    """
    cells = {cell: arrays for cell, arrays in results.cells.items() if "regret" in arrays}
    environments, algorithms = list(dict.fromkeys(environment for environment, _ in cells)), results.algorithms
    colours = style.colours(algorithms)
    figure, panels = style.panels(len(environments))
    for environment, axes in zip(environments, panels, strict=True):
        curves = {name: cumulative(cells[environment, name]) for name in algorithms if (environment, name) in cells}
        _panel(axes, curves, colours)
        axes.set_title(environment, loc="left", fontsize=11)
        axes.set_ylabel("cumulative regret")
    seeds = results.summary["rows"][0]["seeds"]
    left_out = ", failed ones left out" if any(row["failed_seeds"] for row in results.summary["rows"]) else ""
    title = f"{results.summary['settings']['title']}: mean of {seeds} seeds{left_out}, bands of one standard error"
    return style.finish(figure, panels, title, Path(path) if path is not None else results.folder / "regret.png")


def _panel(axes: Axes, curves: dict[str, Float[np.ndarray, "seeds horizon"]], colours: dict[str, str]) -> None:
    finals = {name: curve[:, -1].mean() for name, curve in curves.items() if len(curve)}
    limit = OFF_SCALE * np.median(list(finals.values()))
    shown = [name for name, final in finals.items() if final <= limit]
    for name, dash in zip(shown, itertools.cycle(style.DASHES)):
        curve = curves[name]
        rounds = np.arange(1, curve.shape[1] + 1)
        mean = curve.mean(axis=0)
        axes.plot(rounds, mean, color=colours[name], label=name, linewidth=1.7, linestyle=dash)
        if len(curve) > 1:
            error = curve.std(axis=0, ddof=1) / np.sqrt(len(curve))
            axes.fill_between(rounds, mean - error, mean + error, color=colours[name], alpha=0.18, linewidth=0)
    notes = [f"{name}: {final:.0f} (off scale)" for name, final in finals.items() if name not in shown]
    notes += [f"{name}: every seed failed" for name in curves if name not in finals]
    axes.text(0.02, 0.97, "\n".join(notes), transform=axes.transAxes, va="top", fontsize=8.5, color=style.NOTE)
    axes.set_xlabel("round")
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    style.frame(axes)
