"""Histograms of the arms played."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from vits.lab.plots import style
from vits.lab.results import Results


def histogram(results: Results) -> Path:
    """How often each arm was played, from the best to the worst: a row per environment, a panel per algorithm.

    Bars are means over seeds, the whiskers one standard error.
    """
    environments, algorithms = results.environments, results.algorithms
    if any("plays" not in arrays for arrays in results.cells.values()):
        raise ValueError(f"{results.folder} does not say how often arms were played; run the experiment again")
    colours = style.colours(algorithms)
    figure, grid = plt.subplots(
        len(environments),
        len(algorithms),
        figsize=(1.55 * len(algorithms) + 0.6, 1.9 * len(environments) + 0.5),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for row, environment in zip(grid, environments, strict=True):
        for axes, name in zip(row, algorithms, strict=True):
            arrays = results.cells[environment, name]
            plays = arrays["plays"][~arrays["failed"]]
            share = plays / plays.sum(axis=1, keepdims=True)
            error = share.std(axis=0) / np.sqrt(len(share))
            rank = np.arange(1, share.shape[1] + 1)
            axes.bar(rank, share.mean(axis=0), yerr=error, color=colours[name], error_kw={"linewidth": 0.8})
            axes.set_title(name, fontsize=9, loc="left")
            style.frame(axes)
            axes.set_ylim(0.0, 1.0)
        row[0].set_ylabel(environment, fontsize=9)
    for axes in grid[-1]:
        axes.set_xticks([1, plays.shape[1]], ["best", "worst"], fontsize=8)
    seeds = results.summary["rows"][0]["seeds"]
    title = (
        f"{results.summary['settings']['title']}: share of rounds in which each arm was played, mean of {seeds} seeds"
    )
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    path = results.folder / "arms.png"
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path
