"""What a round costs, against the dimension."""

import itertools
from pathlib import Path

from vits.lab.plots import style
from vits.lab.results import Results, columns


def rounds(results: Results) -> Path:
    """Microseconds of a round, choosing and learning, against d; log-log."""
    rows = [row for row in columns(results.summary) if "seconds_per_round" in row]
    colours = style.colours(results.algorithms)
    figure, (axes,) = style.panels(1)
    for name, dash in zip(results.algorithms, itertools.cycle(style.DASHES)):
        line = [row for row in rows if row["algorithm"] == name]
        axes.plot(
            [row["dim"] for row in line],
            [1e6 * row["seconds_per_round"] for row in line],
            color=colours[name],
            label=name,
            linestyle=dash,
            marker="o",
            markersize=4,
            linewidth=1.7,
        )
    axes.set(xscale="log", yscale="log", xlabel="dimension d", ylabel="µs a round")
    style.log_ticks(axes, sorted({row["dim"] for row in rows}))
    style.frame(axes)
    title = f"{results.summary['settings']['title']}: time of a round, the best of those that were timed"
    return style.finish(figure, [axes], title, results.folder / "cost.png")
