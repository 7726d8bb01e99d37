"""The tables of a report: differences from a reference, diagnostics and hyperparameters."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from vits.lab import compare, results
from vits.lab.report import html
from vits.lab.report.html import NOTHING, Markup, decimal, element
from vits.lab.report.tables import Row
from vits.lab.results import Results

OFF_SCALE = 3.0
"""An interval that ends this many times further out than the median one does not set the scale."""

FOLDED = 40
"""A table of diagnostics with more lines than this is folded away until it is asked for."""

OF_ROUNDS = ("capped_rounds", "unstable_rounds")


class Paired(NamedTuple):
    """The final regret of an algorithm less that of the reference, seed by seed, in one environment."""

    environment: str
    algorithm: str
    difference: compare.Difference


def comparisons(found: Results, reference: str) -> list[Paired]:
    """The paired difference of every other algorithm from the reference, where there is regret."""
    final = {cell: results.final_regret(arrays) for cell, arrays in found.cells.items() if "regret" in arrays}
    return [
        Paired(environment, algorithm, compare.paired(regret, final[environment, reference]))
        for (environment, algorithm), regret in final.items()
        if algorithm != reference and (environment, reference) in final
    ]


def differences(compared: list[Paired], reference: str) -> list[Markup]:
    """The table of differences, each drawn on the scale of its environment."""
    scales = {
        environment: _scale([c.difference for c in compared if c.environment == environment])
        for environment in dict.fromkeys(c.environment for c in compared)
    }
    caption = f"Final regret less that of {reference}, seed by seed: mean and 95 % interval"
    columns = ("environment", "algorithm", "reading", "", "difference", "95 % interval", "relative", "pairs")
    widest = max(scales.values(), default=1.0)
    places = 0 if widest >= 1000.0 else 1 if widest >= 10.0 else 2 if widest >= 1.0 else 4
    rows = [_difference(c, scales[c.environment], places) for c in compared]
    note = (
        "Negative is better than the reference. Each interval stands alone: none is adjusted for the number of"
        " comparisons. An arrow marks an interval that goes on beyond the scale of its environment."
    )
    table = element("div", html.table(caption, columns, rows, texts=3), class_="compact")
    return [table, element("p", note, class_="note")]


def _difference(compared: Paired, scale: float, places: int) -> tuple[str, ...]:
    mean, low, high, base, pairs = compared.difference
    if pairs < 2:
        nothing = ("", NOTHING, NOTHING, NOTHING, str(pairs))
        return (compared.environment, compared.algorithm, "too few seeds", *nothing)
    return (
        compared.environment,
        compared.algorithm,
        "less regret" if high < 0 else "more regret" if low > 0 else "undecided",
        html.interval(low, mean, high, scale),
        decimal(mean, places, "+"),
        f"{decimal(low, places, '+')} to {decimal(high, places, '+')}",
        f"{decimal(100.0 * mean / base, 1, '+')} %" if base else NOTHING,
        str(pairs),
    )


def _scale(found: list[compare.Difference]) -> float:
    ends = [max(abs(d.low), abs(d.high)) for d in found if d.pairs >= 2]
    inside = [end for end in ends if end <= OFF_SCALE * np.median(ends)]
    return max(inside, default=0.0) or 1.0


def diagnostics(rows: list[Row], meanings: Mapping[str, str]) -> list[Markup]:
    """The columns that have meanings, and what they mean."""
    keys = [key for key in meanings if any(row.get(key) not in (None, {}) for row in rows)]
    cells = [(row["environment"], row["algorithm"], *(_cell(row, key) for key in keys)) for row in rows]
    columns = ("environment", "algorithm", *(key.replace("_", " ") for key in keys))
    terms = [
        part
        for key in keys
        if meanings[key]
        for part in (element("dt", key.replace("_", " ")), element("dd", meanings[key]))
    ]
    table = html.table("Counts and times, over all seeds", columns, cells, texts=2)
    if len(rows) > FOLDED:
        table = element("details", element("summary", f"All {len(rows)} lines"), table)
    return [table, element("dl", *terms, class_="note")]


def _cell(row: Row, key: str) -> str:
    value = row.get(key)
    if value is None:
        return NOTHING
    if key in OF_ROUNDS and value:
        return f"{value:,} ({100.0 * value / (row['seeds'] * row['horizon']):.1f} %)"
    return _value(value)


def hyperparameters(rows: list[Row]) -> Markup:
    """One line for each algorithm and setting, with the environments that share it."""
    everywhere = list(dict.fromkeys(row["environment"] for row in rows))
    shared: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        setting = ", ".join(f"{name} = {_value(value)}" for name, value in row["hyperparameters"].items())
        shared.setdefault(row["algorithm"], {}).setdefault(setting or NOTHING, []).append(row["environment"])
    cells = [
        (algorithm, setting, "all" if where == everywhere else "; ".join(where))
        for algorithm, settings in shared.items()
        for setting, where in settings.items()
    ]
    caption = "What was set; everything else is the algorithm's default"
    return html.table(caption, ("algorithm", "hyperparameters", "environments"), cells, texts=3)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_value(part)}" for name, part in value.items()) or NOTHING
    return html.number(value) if isinstance(value, int | float) else str(value)
