"""The style of all figures: colours, dashes, the frame of a panel, the legend."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, ScalarFormatter

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F", "#8C564B", "#5D3A9B")
"""Okabe and Ito's palette and a few more colours, which colour-blind readers can tell apart."""

DASHES = ("solid", (0, (6, 2)), (0, (2, 1.5)))
"""Dashes that differ keep coinciding curves visible."""

NOTE = "#555555"
"""The colour of remarks inside a panel."""


def looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The colour, the dashes and the label of the line of every name."""
    return {
        name: {"color": colour, "linestyle": dash, "label": name}
        for name, colour, dash in zip(names, itertools.cycle(COLOURS), itertools.cycle(DASHES))
    }


def band(axes: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, look: dict[str, Any]) -> None:
    """A band in the colour of a line."""
    axes.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)


def panels(count: int) -> tuple[Figure, list[Axes]]:
    """Up to three panels in one row, more in two rows, so that they stay readable on a page."""
    rows = 1 if count <= 3 else 2
    columns = -(-count // rows)
    size = (max(5.2 * columns, 7.0), 3.6 * rows + 0.3)
    figure, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for spare in grid.flat[count:]:
        spare.set_visible(False)
    return figure, list(grid.flat[:count])


def frame(axes: Axes) -> None:
    """A light grid behind the curves, and no box around them."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e5e5e5", linewidth=0.7)
    axes.set_axisbelow(True)


def log_ticks(axes: Axes, ticks: Sequence[int]) -> None:
    """Ticks of logarithmic axes: these on the x axis, and 1, 2, 5, 10, ... as plain numbers on the y axis."""
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.minorticks_off()


def finish(figure: Figure, axes: Iterable[Axes], title: str, path: Path) -> Path:
    """One legend for all panels, the title, and the file."""
    found: dict[str, Artist] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        look = {"ncols": min(len(found), 6), "frameon": False, "fontsize": 9}
        figure.legend(list(found.values()), list(found), loc="outside lower center", **look)
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path
