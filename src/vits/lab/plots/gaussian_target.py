"""Figures of the Gaussian target: steps against the condition number, and KL against the clock."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from vits.lab.plots import style
from vits.lab.results import Results, columns

CAP = "#C00000"
"""The colour of the paper's red line."""


def steps(results: Results) -> Path:
    """Median steps until KL <= epsilon against the condition number, one panel per step size.

    It needs the summary only. If most seeds did not arrive, there is a hollow triangle on the line of the cap; above it
    there is a square if the accuracy is below the algorithm's floor, and a cross if the algorithm diverged.
    """
    rows, settings = columns(results.summary), results.summary["settings"]
    algorithms = list(dict.fromkeys(row["algorithm"] for row in rows))
    looks = style.looks(algorithms)
    step_sizes = list(dict.fromkeys(row["step_size"] for row in rows))
    figure, panels = style.panels(len(step_sizes))
    for step_size, axes in zip(step_sizes, panels, strict=True):
        for i, (name, look) in enumerate(looks.items()):
            line = [row for row in rows if row["step_size"] == step_size and row["algorithm"] == name]
            # Marks side by side: many algorithms can miss the same target.
            shift = 1.08 ** (i - 0.5 * (len(algorithms) - 1))
            # Each line is thinner than the one before, so that coinciding curves are visible.
            _steps_line(axes, line, shift, linewidth=max(3.4 - 0.3 * i, 1.0), **look)
        axes.axhline(settings["horizon"], color=CAP, linestyle="dashed", linewidth=1.2, zorder=1)
        axes.set(xscale="log", yscale="log", xlabel="condition number")
        axes.set_ylim(1.0, 8.0 * settings["horizon"])
        axes.set_title(f"step size {step_size:g} / λmax", loc="left", fontsize=11)
        style.frame(axes)
    panels[0].set_ylabel(f"steps until KL ≤ {settings['epsilon']:g}")
    for marker, text in (("v", "not reached"), ("s", "below its floor"), ("x", "diverged")):
        panels[0].plot([], [], marker, color=style.NOTE, markerfacecolor="none", label=text)
    panels[0].plot([], [], color=CAP, linestyle="dashed", linewidth=1.2, label=f"cap, {settings['horizon']:,} steps")
    title = f"{settings['title']}: d = {settings['dim']}, medians, bars from the 10 % to the 90 % quantile"
    return style.finish(figure, panels, title, results.folder / "steps.png")


def _steps_line(axes: Axes, rows: list[dict[str, Any]], shift: float, **look: Any) -> None:
    kappa = np.array([row["condition_number"] for row in rows])
    low, median, high = (
        np.array([np.nan if row[f"steps_{part}"] is None else row[f"steps_{part}"] for row in rows])
        for part in ("low", "median", "high")
    )
    top = np.where(np.isnan(high), np.array([row["horizon"] for row in rows]), high)
    bars = np.where(np.isnan(median), np.nan, np.stack([median - low, top - median]))
    axes.errorbar(kappa, median, yerr=bars, marker="o", markersize=3.5, elinewidth=0.9, **look)
    for row in rows:
        if row["steps_median"] is not None:
            continue
        marker, height = _mark(row)
        axes.plot(
            row["condition_number"] * shift,
            row["horizon"] * height,
            marker,
            color=look["color"],
            markerfacecolor="none",
            markersize=5.5,
            clip_on=False,
            zorder=3,
        )


def _mark(row: dict[str, Any]) -> tuple[str, float]:
    """The marker for an algorithm that did not arrive, and its height as a multiple of the cap."""
    if row["below_floor"]:
        return "s", 4.0
    return ("x", 2.0) if row["diverged"] > row["not_reached"] else ("v", 1.0)


def clock(results: Results) -> Path:
    """KL against seconds, one panel per dimension: medians, and bands from the 10 % to the 90 % quantile of seeds."""
    settings = results.summary["settings"]
    looks = style.looks(results.algorithms)
    figure, panels = style.panels(len(results.environments))
    for environment, axes in zip(results.environments, panels, strict=True):
        for name, look in looks.items():
            arrays = results.cells[environment, name]
            kl = np.where(np.isfinite(arrays["kl"]), arrays["kl"], np.nan)
            seen = np.any(np.isfinite(kl), axis=0)
            if not np.any(seen):
                axes.plot([], [], **{**look, "label": f"{name} (never finite)"})
                continue
            steps = arrays["stride"][0] * (1.0 + np.arange(kl.shape[1])[seen])
            seconds = steps * np.min(arrays["seconds_per_step"])
            low, median, high = np.nanquantile(kl[:, seen], (0.1, 0.5, 0.9), axis=0)
            axes.plot(seconds, median, linewidth=1.7, **look)
            style.band(axes, seconds, low, high, look)
        axes.axhline(settings["epsilon"], color=CAP, linestyle="dashed", linewidth=1.2, zorder=1)
        axes.set(xscale="log", yscale="log", xlabel="seconds")
        axes.set_title(environment, loc="left", fontsize=11)
        style.frame(axes)
    panels[0].set_ylabel("KL to the target")
    panels[0].plot([], [], color=CAP, linestyle="dashed", linewidth=1.2, label=f"KL = {settings['epsilon']:g}")
    target = f"condition number {settings['condition_number']:g}, step size {settings['step_size']:g} / λmax"
    title = f"{settings['title']}: {target}, medians, bands from 10 % to 90 %"
    return style.finish(figure, panels, title, results.folder / "kl.png")
