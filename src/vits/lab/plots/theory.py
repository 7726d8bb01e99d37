"""Regret against the number of rounds and against the dimension, beside the bound's growth."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from vits.lab.plots import style
from vits.lab.results import Results, columns

SLOPES = {"horizon": 0.5, "dim": 1.5}
"""The exponents of the bound, in the number of rounds and in the dimension."""

MARKERS = ("o", "s", "^")

Row = dict[str, Any]


def growth(results: Results) -> Path:
    """Final regret against T, a curve per dimension, and against d, a curve per horizon; log-log."""
    rows = [row for row in columns(results.summary) if row["regret_mean"] is not None]
    figure, panels = style.panels(2)
    _panel(panels[0], rows, results.algorithms, along="horizon", across="dim", name="d")
    _panel(panels[1], rows, results.algorithms, along="dim", across="horizon", name="T")
    panels[0].set(xlabel="rounds T", ylabel="cumulative regret")
    panels[1].set(xlabel="dimension d")
    panels[0].set_title("growth with T", loc="left", fontsize=11)
    panels[1].set_title("growth with d", loc="left", fontsize=11)
    title = f"{results.summary['settings']['title']}: means of {results.summary['settings']['seeds']} seeds, one s.e."
    return style.finish(figure, panels, title, results.folder / "growth.png")


def _panel(
    axes: Axes, rows: list[dict[str, Any]], algorithms: list[str], *, along: str, across: str, name: str
) -> None:
    values = sorted({row[across] for row in rows})
    colours = style.colours(str(value) for value in values)
    for value in values:
        for algorithm, marker, dash in zip(algorithms, itertools.cycle(MARKERS), itertools.cycle(style.DASHES)):
            line = sorted(
                (row for row in rows if row[across] == value and row["algorithm"] == algorithm), key=lambda r: r[along]
            )
            axes.errorbar(
                [row[along] for row in line],
                [row["regret_mean"] for row in line],
                yerr=[row["regret_stderr"] or 0.0 for row in line],
                color=colours[str(value)],
                marker=marker,
                markersize=4,
                linestyle=dash,
                linewidth=1.5,
                label=algorithm if value == values[0] and across == "dim" else None,
            )
            if line and algorithm == algorithms[0]:
                end = (line[-1][along], line[-1]["regret_mean"])
                axes.annotate(f"{name}={value}", end, (5, 0), textcoords="offset points", va="center", fontsize=8.5)
    ends = np.array([min(row[along] for row in rows), max(row[along] for row in rows)], float)
    top = max(row["regret_mean"] for row in rows if row[along] == ends[0])
    slope = SLOPES[along]
    variable = "T" if along == "horizon" else "d"
    bound = 1.6 * top * (ends / ends[0]) ** slope
    axes.plot(ends, bound, color=style.NOTE, linestyle="dotted", label=f"the bound's growth, {variable}^{slope:g}")
    axes.set(xscale="log", yscale="log")
    style.log_ticks(axes, sorted({row[along] for row in rows}))
    axes.margins(x=0.12)
    style.frame(axes)
