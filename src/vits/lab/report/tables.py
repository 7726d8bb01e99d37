"""Tables as text in rows and columns. The command line and the report print them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vits.lab.results import DEFAULT, GRID, Summary, columns, span

Row = dict[str, Any]
"""A row of a summary, with the columns of its experiment."""


class Table(NamedTuple):
    """A title, the names of the columns and the rows; the first `texts` columns are words, the rest numbers.

    Rows that have the same first column belong together.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    texts: int = 2


def regret(summary: Summary) -> Table:
    """Cumulative regret at the end; its mean in logits too, where that was measured."""
    rows = columns(summary)
    seeds = span({row["seeds"] for row in rows})
    also = {"logits": "logit_regret_mean"} if "logit_regret_mean" in rows[0] else {}
    medians = {"median": "regret_median", **also}
    return Table(
        _title(summary, f"regret after {span({row['horizon'] for row in rows})} rounds, {seeds} seeds"),
        ("environment", "algorithm", "mean ± s.e.", *medians, "failed", "rounds/s"),
        [
            (
                row["environment"],
                row["algorithm"],
                _mean(row["regret_mean"], row["regret_stderr"]),
                *("" if row[name] is None else f"{row[name]:.1f}" for name in medians.values()),
                str(row["failed_seeds"]),
                f"{row['rounds_per_second']:,.0f}",
            )
            for row in rows
        ],
    )


def beside_published(summary: Summary) -> Table:
    """Regret at the rounds for which others have published theirs, or at the end if there is no such round."""
    cells: list[tuple[str, ...]] = []
    for row in columns(summary):
        end = {"rounds": row["horizon"], "published": "", **{key: row[key] for key in ("regret_mean", "regret_stderr")}}
        cells += [
            (
                row["environment"],
                row["algorithm"],
                each["published"],
                f"{each['rounds']:,}",
                _mean(each["regret_mean"], each["regret_stderr"]),
                str(row["seeds"]),
                str(row["failed_seeds"]),
            )
            for each in row["beside"] or [end]
        ]
    names = ("environment", "algorithm", "published", "rounds", "mean ± s.e.", "seeds", "failed")
    return Table(_title(summary, "regret and published figures"), names, cells, texts=3)


SYMBOLS = {"inverse_temperature": "eta", "prior_precision": "lambda", "step_size": "h", "num_steps": "K"}
"""What the paper calls the hyperparameters."""


def tuned(summary: Summary) -> Table:
    """The chosen settings, their regret on fresh seeds, and that of the default."""
    rows = [row for row in columns(summary) if not row["algorithm"].endswith(GRID)]
    defaults = {(row["environment"], row["algorithm"]): row for row in rows if row["algorithm"].endswith(DEFAULT)}
    cells: list[tuple[str, ...]] = []
    for row in rows:
        if not row["algorithm"].endswith(DEFAULT):
            default = defaults.get((row["environment"], row["algorithm"] + DEFAULT))
            shown = "chosen" if default is None else _mean(default["regret_mean"], default["regret_stderr"])
            cells.append(
                (
                    row["environment"],
                    row["algorithm"],
                    setting(row["hyperparameters"]),
                    _mean(row["regret_mean"], row["regret_stderr"]),
                    shown,
                    str(row["failed_seeds"]),
                )
            )
    names = ("environment", "algorithm", "chosen setting", "mean ± s.e.", "default", "failed")
    return Table(_title(summary, f"regret on {span({row['seeds'] for row in rows})} seeds"), names, cells, texts=3)


def setting(hyperparameters: Mapping[str, Any]) -> str:
    """The numbers among hyperparameters, by the paper's symbols."""
    numbers = {name: value for name, value in hyperparameters.items() if _is_number(value)}
    return ", ".join(f"{SYMBOLS.get(name, name)}={value:g}" for name, value in numbers.items())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def posteriors(algorithm: str, count: int, shown: Sequence[int], figures: Float[np.ndarray, "params 6"]) -> Table:
    """An algorithm's posterior and a reference, parameter by parameter, for those that are shown."""
    return Table(
        f"{algorithm} against NUTS, {count:,} observations, worst parameters first",
        ("", "", "NUTS", "sd", "here", "sd", "apart, sd", "sd ratio"),
        [("parameter", str(i), *(f"{figure:.3g}" for figure in figures[i])) for i in shown],
    )


def steps(summary: Summary) -> Table:
    """Median steps to the target, one column per condition number."""
    rows = columns(summary)
    by_setting = {(row["step_size"], row["algorithm"], row["condition_number"]): row for row in rows}
    kappas = list(dict.fromkeys(row["condition_number"] for row in rows))
    lines = dict.fromkeys((row["step_size"], row["algorithm"]) for row in rows)
    return Table(
        _title(summary, f"median steps until KL ≤ {summary['settings']['epsilon']:g}, by condition number"),
        ("step", "algorithm", *(f"{kappa:g}" for kappa in kappas)),
        [
            (f"{step_size:g}", name, *(_steps(by_setting[step_size, name, kappa]) for kappa in kappas))
            for step_size, name in lines
        ],
    )


def times(summary: Summary) -> Table:
    """Steps to the target, time of a step, and their product."""
    return Table(
        _title(summary, f"time until KL ≤ {summary['settings']['epsilon']:g}"),
        ("target", "algorithm", "steps", "µs a step", "ms", "seeds", "missed"),
        [
            (
                row["environment"],
                row["algorithm"],
                f"> {row['horizon']:,}" if row["steps_median"] is None else f"{row['steps_median']:,.0f}",
                f"{1e6 * row['seconds_per_step']:.1f}",
                _milliseconds(row),
                str(row["seeds"]),
                str(row["not_reached"]),
            )
            for row in columns(summary)
        ],
    )


def comparison(summary: Summary) -> Table:
    """One line per algorithm: regret in each world, the time of a round, and the growth of both."""
    lines, rows = [], columns(summary)
    worlds = list(dict.fromkeys(row["environment"] for row in rows if "dim" not in row))
    dims = sorted({row["dim"] for row in rows if "dim" in row})
    for name in dict.fromkeys(row["algorithm"] for row in rows):
        played = [row for row in rows if row["algorithm"] == name and "dim" not in row]
        costs = sorted((row for row in rows if row["algorithm"] == name and "dim" in row), key=lambda row: row["dim"])
        lines.append(
            (
                "linear" if costs[0]["linear_only"] else "any",
                name,
                *(_mean(row["regret_mean"], row["regret_stderr"]) for row in played),
                str(sum(row["failed_seeds"] for row in played)),
                _exponent(played[-1]["growth_with_rounds"]),
                f"{1e6 * costs[0]['seconds_per_round']:,.0f}",
                _exponent(growth_with_dim(costs)),
            )
        )
    return Table(
        _title(summary, f"regret, and its exponent in T at {worlds[-1]}; time of a round, and its exponent in d"),
        ("models", "algorithm", *worlds, "failed", "in T", f"µs, d={dims[0]}", "in d"),
        sorted(lines, key=lambda line: line[0]),
    )


def growth_with_dim(costs: list[Row]) -> float | None:
    """The exponent of d in the time of a round, between the two largest dimensions; none if one took no time."""
    ends = [row for row in sorted(costs, key=lambda row: row["dim"])[-2:] if row["seconds_per_round"] > 0.0]
    if len(ends) < 2:
        return None
    small, large = ends
    return math.log(large["seconds_per_round"] / small["seconds_per_round"]) / math.log(large["dim"] / small["dim"])


def _title(summary: Summary, what: str) -> str:
    return f"{summary['settings']['title']} ({summary['preset']}): {what}"


def _mean(mean: float | None, error: float | None) -> str:
    if mean is None:
        return "none finished"
    return f"{mean:.1f}" if error is None else f"{mean:.1f} ± {error:.1f}"


def _exponent(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _steps(row: Row) -> str:
    if row["below_floor"]:
        return f"floor {row['floor']:.2g}"
    if row["steps_median"] is not None:
        return f"{row['steps_median']:,.0f}"
    return "diverged" if row["diverged"] > row["not_reached"] else f"> {row['horizon']:,}"


def _milliseconds(row: Row) -> str:
    if row["seconds_to_target"] is None:
        return f"> {1e3 * row['horizon'] * row['seconds_per_step']:.2f}"
    return f"{1e3 * row['seconds_to_target']:.2f}"
