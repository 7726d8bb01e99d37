"""The report of a run: one page with everything that was found, and how to find it again."""

import json
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

from vits import catalogue, validate
from vits.lab import again, plots, results
from vits.lab.report import html, scorecard, sections, tables
from vits.lab.report.html import Markup, element
from vits.lab.results import Results

REPORT = "report.html"

REFERENCE = "lin_ts"
"""Everybody is compared with it, unless another one is named or it was not run."""

CAPTIONS = {
    "regret": "Cumulative regret against rounds, one panel for each environment. Lines are means over seeds, bands one"
    " standard error.",
    "arms": "How often each arm was played, from the best arm to the worst. Bars are means over seeds, whiskers one"
    " standard error.",
    "steps": "Steps until the target is met, against its condition number, one panel for each step size.",
    "kl": "Distance from the target against the clock, one panel for each dimension.",
    "cost": "Time of a round, choosing and learning, against the dimension.",
    "growth": "Final regret against the number of rounds and against the dimension, beside the growth of the bound.",
}
"""By the name of the picture's file."""

BADGES = {"holds": "✓", "fails": "✕", "inconclusive": "?", scorecard.NOT_RUN: html.NOTHING}

Summary = dict[str, Any]


def write(found: Results, *, pictures: Iterable[Path] | None = None, reference: str | None = None) -> Path:
    """Write the report of a run into its folder.

    Args:
        found: a loaded run.
        pictures: the run's pictures, if they are drawn already.
        reference: the algorithm that the others are compared with; LinTS by default, or the first.

    Returns:
        The path of the page, which needs no other file.
    """
    if reference is None:
        reference = REFERENCE if REFERENCE in found.algorithms else found.algorithms[0]
    elif reference not in found.algorithms:
        raise validate.unknown("algorithm of this run", reference, found.algorithms)
    page = render(found, list(pictures) if pictures is not None else plots.draw(found), reference)
    path = found.folder / REPORT
    results.write_atomically(path, page.encode())
    return path


def render(found: Results, pictures: list[Path], reference: str) -> str:
    """The page itself."""
    summary = found.summary
    title = summary["settings"]["title"]
    compared = sections.comparisons(found, reference)
    content = tables.table(summary)
    parts = [
        _section("The paper's claims", _claims(summary)),
        _section("Figures", *(html.picture(path, _description(found, path), _caption(path)) for path in pictures)),
        _section("Results", html.table(content.title, content.columns, content.rows, texts=content.texts)),
        *([_section(f"Differences from {reference}", *sections.differences(compared, reference))] if compared else []),
        _section("Diagnostics", *sections.diagnostics(summary["rows"])),
        _section("Hyperparameters", sections.hyperparameters(summary["rows"])),
        _section("How to run it again", *_again(summary)),
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
    """What was run, in a paragraph, and what a reader should know first."""
    rows = summary["rows"]
    entry = catalogue.EXPERIMENTS.get(summary["experiment"].removesuffix("-tuning"))
    what = f"{entry.summary[0].upper()}{entry.summary[1:]} (the paper's {entry.reference})." if entry else ""
    has_regret = any(row["regret_mean"] is not None for row in rows)
    played = [row for row in rows if row["regret_mean"] is not None or not has_regret]
    algorithms, environments = (len({row[key] for row in played}) for key in ("algorithm", "environment"))
    who = f"{_count(algorithms, 'algorithm')} in {_count(environments, 'environment')}"
    seeds = f"{_range(row['seeds'] for row in played)} seeds of"
    length = (
        f"{_range(row['horizon'] for row in played)} rounds" if has_regret else f"at most {rows[0]['horizon']:,} steps"
    )
    same = "All algorithms met the same contexts and noise, seed by seed." if has_regret else ""
    time = f"Computing took {_duration(sum(row['seconds'] for row in rows))}, without compilation."
    paragraph = f"{what} {who}, {seeds} {length} each, preset “{summary['preset']}”. {same} {time}"
    changed = again.changes(summary)
    notes = [f"Not the preset as it stands: {'; '.join(changed)}."] if changed else []
    return [
        element("p", paragraph, class_="lead"),
        *(element("p", note, class_="warning") for note in (*notes, *_warnings(rows))),
    ]


def _warnings(rows: list[dict[str, Any]]) -> list[str]:
    failed = [
        f"{row['algorithm']} in {row['environment']}, {row['failed_seeds']} of {row['seeds']}"
        for row in rows
        if row["failed_seeds"]
    ]
    unstable = [f"{row['algorithm']} in {row['environment']}" for row in rows if row.get("unstable_rounds")]
    return [
        *([f"Seeds failed and are left out of every average: {'; '.join(failed)}."] if failed else []),
        *([f"Some steps were too long for a right covariance: {'; '.join(unstable)}."] if unstable else []),
    ]


def _claims(summary: Summary) -> Markup:
    """The scorecard, with the claims that belong to this experiment and were not scored."""
    claims = [(claim["id"], claim["claim"], claim["verdict"], claim["evidence"]) for claim in summary["claims"]]
    scored = {name for name, *_ in claims}
    missing = [
        (name, text, scorecard.NOT_RUN, "this run does not hold what the claim speaks of")
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


def _caption(path: Path) -> str:
    return CAPTIONS.get(path.stem, f"{path.stem.replace('_', ' ').capitalize()}.")


def _description(found: Results, path: Path) -> str:
    where, who = (", ".join(names) for names in (found.environments, found.algorithms))
    return f"{_caption(path)} Environments: {where}. Algorithms: {who}. The tables below hold the numbers."


def _again(summary: Summary) -> list[Markup]:
    typed = again.command(summary)
    how = (
        element("pre", element("code", typed))
        if typed
        else element("p", "The run was started from Python, with the settings below.")
    )
    settings = json.dumps(summary["settings"], indent=2, ensure_ascii=False)
    return [
        how,
        element("p", "All but times is the same, bit for bit, with the same versions on the same kind of machine."),
        html.table("Versions", ("package", "version"), list(summary["versions"].items()), texts=2),
        element("details", element("summary", "All settings"), element("pre", element("code", settings))),
    ]


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}" + ("" if number == 1 else "s")


def _range(values: Iterable[int]) -> str:
    found = sorted(set(values))
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"


def _duration(seconds: float) -> str:
    if seconds < 120.0:
        return f"{seconds:.1f} seconds"
    return f"{seconds / 60.0:.0f} minutes" if seconds < 7200.0 else f"{seconds / 3600.0:.1f} hours"
