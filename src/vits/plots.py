"""Figures, drawn from what is stored."""

import itertools
from collections.abc import Iterable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from vits.results import Results, cumulative

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F", "#8C564B")
"""Okabe and Ito's palette and a few more: told apart by colour-blind readers and in print."""

DASHES = ("solid", (0, (6, 2)), (0, (2, 1.5)))
"""So that curves that coincide are both seen."""

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
    environments, algorithms = results.environments, results.algorithms
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(algorithms)}
    figure, panels = plt.subplots(
        1, len(environments), figsize=(5.2 * len(environments), 3.9), squeeze=False, layout="constrained"
    )
    for environment, axes in zip(environments, panels[0], strict=True):
        curves = {name: cumulative(results.cells[environment, name]) for name in algorithms}
        _regret_panel(axes, curves, colours)
        axes.set_title(environment, loc="left", fontsize=11)
    panels[0][0].set_ylabel("cumulative regret")
    handles, labels = _legend(panels[0])
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6), frameon=False, fontsize=9)
    seeds = results.summary["rows"][0]["seeds"]
    title = f"{results.summary['settings']['title']}: mean of {seeds} seeds, bands of one standard error"
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    path = Path(path) if path is not None else results.folder / "regret.png"
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _regret_panel(axes: Axes, curves: dict[str, Float[np.ndarray, "seeds horizon"]], colours: dict[str, str]) -> None:
    finals = {name: curve[:, -1].mean() for name, curve in curves.items() if len(curve)}
    limit = OFF_SCALE * np.median(list(finals.values()))
    shown = [name for name, final in finals.items() if final <= limit]
    for name, dash in zip(shown, itertools.cycle(DASHES)):
        curve = curves[name]
        rounds = np.arange(1, curve.shape[1] + 1)
        mean = curve.mean(axis=0)
        axes.plot(rounds, mean, color=colours[name], label=name, linewidth=1.7, linestyle=dash)
        if len(curve) > 1:
            error = curve.std(axis=0, ddof=1) / np.sqrt(len(curve))
            axes.fill_between(rounds, mean - error, mean + error, color=colours[name], alpha=0.18, linewidth=0)
    notes = [f"{name}: {final:.0f} (off scale)" for name, final in finals.items() if name not in shown]
    notes += [f"{name}: every seed failed" for name in curves if name not in finals]
    axes.text(0.02, 0.97, "\n".join(notes), transform=axes.transAxes, va="top", fontsize=8.5, color="#555555")
    axes.set_xlabel("round")
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e5e5e5", linewidth=0.7)
    axes.set_axisbelow(True)


def _legend(panels: Iterable[Axes]) -> tuple[list[Artist], list[str]]:
    found: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)
