"""Figures of regret experiments: curves, arms played, the cost of a round, and growth against the bound."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float, Int
from matplotlib.axes import Axes

from vits.files import Arrays
from vits.lab.plots import style
from vits.lab.results import Key, Results, Summary, columns, cumulative, span

OFF_SCALE = 3.0
"""A curve that ends above this many times the median of the others is named in a corner, or it would flatten them."""

SLOPES = {"horizon": 0.5, "dim": 1.5}
"""The exponents of the regret bound, in the number of rounds and in the dimension."""


class Curve(NamedTuple):
    """Mean cumulative regret at some rounds, and its standard error, which is None for a single seed."""

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
    """
    found = {key: curve(arrays) for key, arrays in results.cells.items() if "regret" in arrays}
    return draw(results.summary, found, Path(path) if path is not None else results.folder / "regret.png")


def draw(summary: Summary, curves: Mapping[Key, Curve | None], path: Path) -> Path:
    """Draw curves by environment and algorithm, one panel per environment."""
    environments, algorithms = (list(dict.fromkeys(names)) for names in zip(*curves, strict=True))
    looks = style.looks(algorithms)
    figure, panels = style.panels(len(environments))
    for environment, axes in zip(environments, panels, strict=True):
        _panel(axes, {name: found for (world, name), found in curves.items() if world == environment}, looks)
        axes.set_title(environment, loc="left", fontsize=11)
        axes.set_ylabel("cumulative regret")
    rows = [row for row in summary["rows"] if (row["environment"], row["algorithm"]) in curves]
    seeds = span({row["seeds"] for row in rows})
    left_out = ", failed ones left out" if any(row["failed_seeds"] for row in rows) else ""
    title = f"{summary['settings']['title']}: mean of {seeds} seeds{left_out}, bands of one standard error"
    return style.finish(figure, panels, title, path)


def _panel(axes: Axes, curves: dict[str, Curve | None], looks: dict[str, dict[str, Any]]) -> None:
    drawn = {name: found for name, found in curves.items() if found is not None}
    finals = {name: found.mean[-1] for name, found in drawn.items()}
    limit = OFF_SCALE * np.median([final for name, final in finals.items() if name != "uniform"] or [np.inf])
    shown = [name for name, final in finals.items() if final <= limit]
    for name in shown:
        rounds, mean, error = drawn[name]
        axes.plot(rounds, mean, linewidth=1.7, **looks[name])
        if error is not None:
            style.band(axes, rounds, mean - error, mean + error, looks[name])
    notes = [f"{name}: {final:.0f} (off scale)" for name, final in finals.items() if name not in shown]
    notes += [f"{name}: every seed failed" for name in curves if name not in finals]
    axes.text(0.02, 0.97, "\n".join(notes), transform=axes.transAxes, va="top", fontsize=8.5, color=style.NOTE)
    axes.set_xlabel("round")
    axes.locator_params(axis="x", nbins=5)
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    style.frame(axes)


def arms(results: Results) -> Path:
    """How often each arm was played, from the best to the worst: a row per environment, a panel per algorithm.

    Bars are means over seeds, and whiskers are one standard error.
    """
    environments, algorithms = results.environments, results.algorithms
    if any("plays" not in arrays for arrays in results.cells.values()):
        raise ValueError(f"{results.folder} does not say how often arms were played; run the experiment again")
    looks = style.looks(algorithms)
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
            axes.bar(rank, share.mean(axis=0), yerr=error, color=looks[name]["color"], error_kw={"linewidth": 0.8})
            axes.set_title(name, fontsize=9, loc="left")
            style.frame(axes)
            axes.set_ylim(0.0, 1.0)
        row[0].set_ylabel(environment, fontsize=9)
    for axes in grid[-1]:
        axes.set_xticks([1, plays.shape[1]], ["best", "worst"], fontsize=8)
    seeds = span({row["seeds"] for row in results.summary["rows"]})
    share_of = f"share of rounds in which each arm was played, mean of {seeds} seeds"
    return style.finish(figure, [], f"{results.summary['settings']['title']}: {share_of}", results.folder / "arms.png")


def cost(results: Results) -> Path:
    """Microseconds of a round, choosing and learning, against d; log-log."""
    rows = [row for row in columns(results.summary) if "seconds_per_round" in row]
    figure, (axes,) = style.panels(1)
    for name, look in style.looks(results.algorithms).items():
        dims = [row["dim"] for row in rows if row["algorithm"] == name]
        times = [1e6 * row["seconds_per_round"] for row in rows if row["algorithm"] == name]
        axes.plot(dims, times, marker="o", markersize=4, linewidth=1.7, **look)
    axes.set(xscale="log", yscale="log", xlabel="dimension d", ylabel="µs a round")
    style.log_ticks(axes, sorted({row["dim"] for row in rows}))
    style.frame(axes)
    title = f"{results.summary['settings']['title']}: time of a round, the best of those that were timed"
    return style.finish(figure, [axes], title, results.folder / "cost.png")


def growth(results: Results) -> Path:
    """Final regret against T, a curve per dimension, and against d, a curve per horizon; log-log, with the bound."""
    rows = [row for row in columns(results.summary) if row["regret_mean"] is not None]
    figure, panels = style.panels(2)
    _growth(panels[0], rows, results.algorithms, along="horizon", across="dim", name="T", other="d")
    _growth(panels[1], rows, results.algorithms, along="dim", across="horizon", name="d", other="T")
    panels[0].set(xlabel="rounds T", ylabel="cumulative regret")
    panels[1].set(xlabel="dimension d")
    title = f"{results.summary['settings']['title']}: means of {results.summary['settings']['seeds']} seeds, one s.e."
    return style.finish(figure, panels, title, results.folder / "growth.png")


def _growth(
    axes: Axes, rows: list[dict[str, Any]], algorithms: list[str], *, along: str, across: str, name: str, other: str
) -> None:
    values = sorted({row[across] for row in rows})
    looks = style.looks(algorithms)
    for value, colour in zip(values, itertools.cycle(style.COLOURS)):
        for algorithm, marker in zip(algorithms, itertools.cycle("os^")):
            line = [row for row in rows if row[across] == value and row["algorithm"] == algorithm]
            line.sort(key=lambda row: row[along])
            axes.errorbar(
                [row[along] for row in line],
                [row["regret_mean"] for row in line],
                yerr=[row["regret_stderr"] or 0.0 for row in line],
                color=colour,
                marker=marker,
                markersize=4,
                linestyle=looks[algorithm]["linestyle"],
                linewidth=1.5,
                label=algorithm if value == values[0] and across == "dim" else None,
            )
            if line and algorithm == algorithms[0]:
                end = (line[-1][along], line[-1]["regret_mean"])
                axes.annotate(f"{other}={value}", end, (5, 0), textcoords="offset points", va="center", fontsize=8.5)
    ends = np.array([min(row[along] for row in rows), max(row[along] for row in rows)], float)
    bound = 1.6 * max(row["regret_mean"] for row in rows if row[along] == ends[0]) * (ends / ends[0]) ** SLOPES[along]
    label = f"the bound's growth, {name}^{SLOPES[along]:g}"
    axes.plot(ends, bound, color=style.NOTE, linestyle="dotted", label=label)
    axes.set(xscale="log", yscale="log")
    axes.set_title(f"growth with {name}", loc="left", fontsize=11)
    style.log_ticks(axes, sorted({row[along] for row in rows}))
    axes.margins(x=0.12)
    style.frame(axes)
