"""The report of a run: one page with its results, and how to reproduce them."""

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from vits import catalogue, files, validate
from vits.lab import compare
from vits.lab.compare import Difference
from vits.lab.report import html, scorecard, views
from vits.lab.report.html import NOTHING, Markup, decimal, element
from vits.lab.report.tables import Row
from vits.lab.report.views import Picture
from vits.lab.results import TUNING, Key, Results, Summary, columns, counted, final_regret, span

REPORT = "report.html"

REFERENCE = "lin_ts"
"""The algorithm that the others are compared with, unless another is named or it was not run."""

BADGES = {"holds": "✓", "fails": "✕", "inconclusive": "?", scorecard.NOT_RUN: NOTHING}

OFF_SCALE = 3.0
"""Intervals that end more than this many times further out than the median one do not affect the scale."""

FOLDED = 40
"""A table of diagnostics with more rows than this is folded."""

OF_ROUNDS = ("capped_rounds", "unstable_rounds")


def write(found: Results, *, pictures: list[Picture] | None = None, reference: str | None = None) -> Path:
    """Write the report of a run into its folder.

    Args:
        found: the results of a run.
        pictures: its figures, if they are drawn already.
        reference: the algorithm that the others are compared with; LinTS by default, or the first.

    Returns:
        The path of the page, which needs no other file.
    """
    if reference is None:
        reference = REFERENCE if REFERENCE in found.algorithms else found.algorithms[0]
    elif reference not in found.algorithms:
        raise validate.unknown("algorithm of this run", reference, found.algorithms)
    page = render(found, views.draw(found) if pictures is None else pictures, reference)
    path = found.folder / REPORT
    files.write_atomically(path, page.encode())
    return path


def render(found: Results, pictures: list[Picture], reference: str) -> str:
    """The page as HTML."""
    summary = found.summary
    title = summary["settings"]["title"]
    compared = comparisons(found, reference)
    content, rows = views.table(summary), columns(summary)
    parts = [
        _section("The paper's claims", _claims(summary)),
        _section("Figures", *(html.picture(path, _description(found, text), text) for path, text in pictures)),
        _section("Results", html.table(content.title, content.columns, content.rows, texts=content.texts)),
        *([_section(f"Differences from {reference}", *_differences(compared, reference))] if compared else []),
        _section("Diagnostics", *diagnostics(rows, views.view(summary).diagnostics)),
        _section("Hyperparameters", _hyperparameters(rows)),
        _section("How to run it again", *_reproduce(summary)),
    ]
    style = resources.files("vits.lab.report").joinpath("style.css").read_text("utf-8")
    head = element(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", f"{title} ({summary['preset']}): report"),
        element("style", Markup(style)),
    )
    header = element(
        "header", element("p", "vits, report of a run", class_="kicker"), element("h1", title), *_opening(summary)
    )
    return f'<!doctype html>\n<html lang="en">{head}<body><main>{header}{"".join(parts)}</main></body></html>\n'


def _section(title: str, *content: str) -> Markup:
    return element("section", element("h2", title), *content)


def _opening(summary: Summary) -> list[Markup]:
    """What was run, in a paragraph, and warnings."""
    rows = columns(summary)
    entry = catalogue.EXPERIMENTS.get(summary["experiment"].removesuffix(TUNING))
    what = f"{entry.summary[0].upper()}{entry.summary[1:]} (the paper's {entry.reference})." if entry else ""
    has_regret = any(row["rounds_per_second"] is not None for row in rows)
    played = [row for row in rows if row["rounds_per_second"] is not None or not has_regret]
    algorithms, environments = (len({row[key] for row in played}) for key in ("algorithm", "environment"))
    who = f"{counted(algorithms, 'algorithm')} in {counted(environments, 'environment')}"
    seeds = f"{span({row['seeds'] for row in played})} seeds of"
    length = (
        f"{span({row['horizon'] for row in played})} rounds" if has_regret else f"at most {rows[0]['horizon']:,} steps"
    )
    same = "All algorithms had the same contexts and noise, seed by seed." if has_regret else ""
    time = f"Computing took {_duration(sum(row['seconds'] for row in rows))}, without compilation."
    paragraph = f"{what} {who}, {seeds} {length} each, preset “{summary['preset']}”. {same} {time}"
    changes = summary["record"]["changes"] if "record" in summary else None
    notes = [f"Changed from the preset: {'; '.join(changes)}."] if changes else []
    return [
        element("p", paragraph, class_="lead"),
        *(element("p", note, class_="warning") for note in (*notes, *_warnings(rows))),
    ]


def _warnings(rows: list[Row]) -> list[str]:
    failed = [
        f"{row['algorithm']} in {row['environment']}, {row['failed_seeds']} of {row['seeds']}"
        for row in rows
        if row["failed_seeds"]
    ]
    unstable = [f"{row['algorithm']} in {row['environment']}" for row in rows if row.get("unstable_rounds")]
    return [
        *([f"Seeds failed and are left out of every average: {'; '.join(failed)}."] if failed else []),
        *([f"Some steps were too long for a correct covariance: {'; '.join(unstable)}."] if unstable else []),
    ]


def _claims(summary: Summary) -> Markup:
    """The claims with their verdicts, and those of this experiment that were not scored."""
    claims = [(claim["id"], claim["claim"], claim["verdict"], claim["evidence"]) for claim in summary["claims"]]
    scored = {name for name, *_ in claims}
    missing = [
        (name, text, scorecard.NOT_RUN, "not everything that the claim is about was run")
        for name, text in catalogue.CLAIMS.items()
        if catalogue.EXPERIMENT_OF_CLAIM[name] == summary["experiment"] and name not in scored
    ]
    if not claims and not missing:
        return element("p", "The paper claims nothing that this run could score.")
    rows = [
        (
            element("span", text, element("span", name, class_="id")),
            element("span", f"{BADGES[verdict]} {verdict}", class_=f"badge {verdict.split()[0]}"),
            element("ul", *(element("li", piece) for piece in evidence.split("; "))),
        )
        for name, text, verdict, evidence in (*claims, *missing)
    ]
    caption = "Verdicts follow by rule from what was measured; “inconclusive” means that more seeds could decide"
    return element("div", html.table(caption, ("claim", "verdict", "evidence"), rows, texts=3), class_="claims")


def comparisons(found: Results, reference: str) -> dict[Key, Difference]:
    """The paired difference of every other algorithm from the reference, where there is regret."""
    final = {cell: final_regret(arrays) for cell, arrays in found.cells.items() if "regret" in arrays}
    return {
        (environment, algorithm): compare.paired(regret, final[environment, reference])
        for (environment, algorithm), regret in final.items()
        if algorithm != reference and (environment, reference) in final
    }


def _differences(compared: dict[Key, Difference], reference: str) -> list[Markup]:
    """The table of differences, each drawn on the scale of its environment."""
    scales = {world: _scale([d for (where, _), d in compared.items() if where == world]) for world, _ in compared}
    caption = f"Final regret less that of {reference}, seed by seed: mean and 95 % interval"
    columns = ("environment", "algorithm", "reading", "", "difference", "95 % interval", "relative", "pairs")
    widest = max(scales.values(), default=1.0)
    places = 0 if widest >= 1000.0 else 1 if widest >= 10.0 else 2 if widest >= 1.0 else 4
    rows = [(*key, *_difference(found, scales[key[0]], places)) for key, found in compared.items()]
    note = (
        "Negative is better than the reference. Each interval stands alone: none is adjusted for the number of"
        " comparisons. An arrow marks an interval that ends outside the scale of its environment."
    )
    table = element("div", html.table(caption, columns, rows, texts=3), class_="compact")
    return [table, element("p", note, class_="note")]


def _difference(found: Difference, scale: float, places: int) -> tuple[str, ...]:
    mean, low, high, base, pairs = found
    if pairs < 2:
        return ("too few seeds", "", NOTHING, NOTHING, NOTHING, str(pairs))
    return (
        "less regret" if high < 0 else "more regret" if low > 0 else "undecided",
        html.interval(low, mean, high, scale),
        decimal(mean, places, "+"),
        f"{decimal(low, places, '+')} to {decimal(high, places, '+')}",
        f"{decimal(100.0 * mean / base, 1, '+')} %" if base else NOTHING,
        str(pairs),
    )


def _scale(found: list[Difference]) -> float:
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


def _hyperparameters(rows: list[Row]) -> Markup:
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


def _description(found: Results, caption: str) -> str:
    where, who = (", ".join(names) for names in (found.environments, found.algorithms))
    return f"{caption} Environments: {where}. Algorithms: {who}. The tables below hold the numbers."


def _reproduce(summary: Summary) -> list[Markup]:
    record = summary.get("record")
    if record is None:
        how = element("p", "The run is from before commands were recorded; its settings are below.")
    elif record["command"] is None:
        how = element("p", "The run was started from Python, with the settings below.")
    else:
        how = element("pre", element("code", record["command"]))
    settings = json.dumps(summary["settings"], indent=2, ensure_ascii=False)
    return [
        how,
        element("p", "With the same versions on the same kind of machine, all numbers but times are the same bits."),
        html.table("Versions", ("package", "version"), list(summary["versions"].items()), texts=2),
        element("details", element("summary", "All settings"), element("pre", element("code", settings))),
    ]


def _duration(seconds: float) -> str:
    if seconds < 120.0:
        return f"{seconds:.1f} seconds"
    return f"{seconds / 60.0:.0f} minutes" if seconds < 7200.0 else f"{seconds / 3600.0:.1f} hours"
