"""An algorithm's posterior and the reference's, parameter by parameter."""

from pathlib import Path

import numpy as np

from vits.lab.plots import style
from vits.lab.posterior_check import PosteriorComparison

SHOWN = 20
"""Parameters in the picture, the worst ones."""


def draw(check: PosteriorComparison, path: Path) -> Path:
    """Left: the worst parameters, in standard deviations of the reference. Right: the density of the worst one."""
    figure, (left, right) = style.panels(2)
    shown = check.worst[:SHOWN]
    places = np.arange(len(shown))
    left.axhspan(-2.0, 2.0, color="#e9e9e9", label="NUTS, 2 sd", zorder=0)
    left.axhline(0.0, color=style.NOTE, linewidth=0.8)
    left.errorbar(
        places,
        check.distance[shown],
        yerr=2.0 * check.ratio[shown],
        fmt="o",
        color=style.COLOURS[0],
        capsize=3,
        markersize=4,
        label=f"{check.algorithm}, 2 sd",
    )
    left.set_xticks(places, [str(i) for i in shown])
    left.set_xlabel("parameter, worst first" if len(shown) > 1 else "parameter")
    left.set_ylabel("standard deviations of NUTS")
    worst = shown[0]
    draws = check.draws[:, worst]
    right.hist(draws, bins=60, density=True, color="#cccccc", label="NUTS")
    mean, deviation = check.mean[worst], check.deviation[worst]
    at = np.linspace(min(draws.min(), mean - 4.0 * deviation), max(draws.max(), mean + 4.0 * deviation), 300)
    height = np.exp(-0.5 * np.square((at - mean) / deviation)) / (deviation * np.sqrt(2.0 * np.pi))
    right.plot(at, height, color=style.COLOURS[0], label=check.algorithm)
    right.set_xlabel(f"parameter {worst}")
    right.set_ylabel("density")
    for axes in (left, right):
        style.frame(axes)
    path.parent.mkdir(parents=True, exist_ok=True)
    return style.finish(figure, (left, right), f"{check.algorithm} against NUTS", path)
