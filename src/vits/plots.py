"""Figures, drawn from what is stored."""

from collections.abc import Iterable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from vits.results import Curves, Results

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F", "#8C564B")
"""Okabe and Ito's palette and a few more: told apart by colour-blind readers and in print."""

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
    environments = list(dict.fromkeys(environment for environment, _ in results.curves))
    algorithms = list(dict.fromkeys(algorithm for _, algorithm in results.curves))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(algorithms)}
    figure, panels = plt.subplots(
        1, len(environments), figsize=(5.2 * len(environments), 3.9), squeeze=False, layout="constrained"
    )
    for environment, axes in zip(environments, panels[0], strict=True):
        curves = {name: results.curves[environment, name] for name in algorithms}
        _regret_panel(axes, curves, colours)
        axes.set_title(environment, loc="left", fontsize=11)
    panels[0][0].set_ylabel("cumulative regret")
    handles, labels = _legend(panels[0])
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6), frameon=False, fontsize=9)
    seeds = len(next(iter(results.curves.values())).regret)
    title = f"{results.summary['settings']['title']}: mean of {seeds} seeds, bands of one standard error"
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    path = Path(path) if path is not None else results.folder / "regret.png"
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _regret_panel(axes: Axes, curves: dict[str, Curves], colours: dict[str, str]) -> None:
    finals = {name: c.cumulative[:, -1].mean() for name, c in curves.items() if len(c.cumulative)}
    limit = OFF_SCALE * np.median(list(finals.values()))
    shown = [name for name, final in finals.items() if final <= limit]
    for name in shown:
        cumulative = curves[name].cumulative
        rounds = np.arange(1, cumulative.shape[1] + 1)
        mean = cumulative.mean(axis=0)
        axes.plot(rounds, mean, color=colours[name], label=name, linewidth=1.6)
        if len(cumulative) > 1:
            error = cumulative.std(axis=0, ddof=1) / np.sqrt(len(cumulative))
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
