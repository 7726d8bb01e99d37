"""The tables of a report: regret beside the reference's, what was counted on the way, what was set."""

from typing import Any, NamedTuple

import numpy as np

from vits.lab import compare, results
from vits.lab.report import html
from vits.lab.report.html import NOTHING, Markup, decimal, element
from vits.lab.results import Results

Row = dict[str, Any]

OFF_SCALE = 3.0
"""An interval that ends this many times further out than the median one does not set the scale."""

ELSEWHERE = {
    *("environment", "algorithm", "hyperparameters", "files", "step_size", "condition_number", "dim"),
    *("regret_mean", "regret_stderr", "regret_median", "rounds_per_second"),
}
"""What a row holds that the first columns, or other tables, show."""

FOLDED = 40
"""A table of diagnostics with more lines than this is folded away until it is asked for."""

OF_ROUNDS = ("capped_rounds", "unstable_rounds")

MEANINGS = {
    "failed_seeds": "seeds with a rejected update; they are left out of every average",
    "rejected_updates": "updates that would have ended in numbers that are not finite; the posterior stayed as it was",
    "capped_rounds": "rounds in which a step, or the number of steps, was cut to what is safe or allowed",
    "unstable_rounds": "rounds in which step size times curvature reached 1, beyond which a covariance is not right",
    "refreshed_inverses": "updates after which the inverse had drifted and was repaired",
    "below_floor": "whether the accuracy is below what the algorithm can reach at this step size",
    "floor": "the KL that the algorithm settles around at this step size",
    "steps_low": "the 10 % quantile over seeds",
    "steps_high": "the 90 % quantile over seeds",
    "not_reached": "seeds that did not meet the target within the cap on steps",
    "seconds": "computing, for all seeds together, without compilation",
    "seconds_per_step": "the best of all blocks that were timed",
    "seconds_per_round": "choosing and learning, the best of all blocks that were timed",
    "growth_with_rounds": "the exponent of T in the mean regret, from half the rounds to all of them",
    "linear_only": "whether the algorithm refuses models that are not linear",
    "settings_tried": "points of the grids; the best on the tuning seeds is reported on other seeds",
    "settings_with_failed_seeds": "points of the grids with a failed seed, which are out of the race",
}
"""What the columns of the table of diagnostics mean."""


class Comparison(NamedTuple):
    """The final regret of an algorithm less that of the reference, seed by seed, in one environment."""

    environment: str
    algorithm: str
    difference: compare.Difference


def comparisons(found: Results, reference: str) -> list[Comparison]:
    """Everybody against the reference, where there is regret."""
    final = {cell: results.final_regret(arrays) for cell, arrays in found.cells.items() if "regret" in arrays}
    return [
        Comparison(environment, algorithm, compare.paired(regret, final[environment, reference]))
        for (environment, algorithm), regret in final.items()
        if algorithm != reference and (environment, reference) in final
    ]


def differences(compared: list[Comparison], reference: str) -> list[Markup]:
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


def _difference(compared: Comparison, scale: float, places: int) -> tuple[str, ...]:
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


def diagnostics(rows: list[Row]) -> list[Markup]:
    """Everything else that the rows hold, and what it means."""
    keys = [
        key
        for key in dict.fromkeys(key for row in rows for key in row)
        if key not in ELSEWHERE and any(row.get(key) is not None for row in rows)
    ]
    cells = [(row["environment"], row["algorithm"], *(_cell(row, key) for key in keys)) for row in rows]
    columns = ("environment", "algorithm", *(key.replace("_", " ") for key in keys))
    terms = [
        part
        for key in keys
        if key in MEANINGS
        for part in (element("dt", key.replace("_", " ")), element("dd", MEANINGS[key]))
    ]
    table = html.table("What was counted and timed along the way, over all seeds", columns, cells, texts=2)
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
    return html.number(value) if isinstance(value, int | float) else str(value)
