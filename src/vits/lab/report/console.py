"""Tables, claims and progress on a terminal."""

import contextlib
import json
from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from vits.lab.experiments.base import Cell
from vits.lab.experiments.run import Monitor
from vits.lab.report import scorecard, tables
from vits.lab.report.scorecard import Score
from vits.lab.results import Finding

COLOURS = {"holds": "green", "fails": "red", "inconclusive": "yellow"}

_WIDEST = 10_000
"""No table has more columns of text."""


def print_table(out: Console, content: tables.Table) -> None:
    """Print a table; rows with the same first column are a group.

    A table that is wider than the terminal goes beyond its edge, because cells that are cut would lose digits.
    """
    table = Table(
        title=content.title,
        title_justify="left",
        header_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for i, name in enumerate(content.columns):
        table.add_column(name, no_wrap=True, justify="left" if i < content.texts else "right")
    group = None
    for first, *others in content.rows:
        if first != group and group is not None:
            table.add_section()
        table.add_row("" if first == group else first, *others)
        group = first
    whole = Measurement.get(out, out.options.update_width(_WIDEST), table).maximum
    table.width = whole if whole > out.width else None
    out.print(table, crop=False)


def _claims_json(out: Console, scores: list[Score]) -> None:
    print(json.dumps([score._asdict() for score in scores], indent=1))


def _claims_markdown(out: Console, scores: list[Score]) -> None:
    print(scorecard.markdown(scores))


def _claims_table(out: Console, scores: list[Score]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold", show_lines=True)
    table.add_column("claim", ratio=5)
    table.add_column("verdicts", no_wrap=True)
    table.add_column("evidence", ratio=6)
    pairs = scorecard.paired(scores)
    for pair in pairs:
        verdicts, evidence = Text(), []
        for score in pair:
            verdicts += Text(f"{score.reading}:\n", "dim")
            verdicts += Text(f"{score.verdict}\n", COLOURS.get(score.verdict, "dim"))
            pieces = [*score.findings, *(f"(changed: {change})" for change in score.changes)]
            pieces += [f"(not counted: {other})" for other in score.others]
            if pieces:
                evidence += [f"{score.reading} ({score.run}):", *(f"• {piece}" for piece in pieces)]
        if scorecard.differ(*pair) and pair[0].id in scorecard.DIFFERS:
            evidence += [f"They differ: {scorecard.DIFFERS[pair[0].id]}"]
        claim = Text(f"{pair[0].id}\n", "bold") + Text(pair[0].claim, "not bold")
        table.add_row(claim, verdicts, Text("\n".join(evidence)))
    out.print(table)
    out.print(f"{len(pairs)} claims. {scorecard.tally(scores)}", highlight=False)


FORMATS = {"table": _claims_table, "markdown": _claims_markdown, "json": _claims_json}
"""How claims can be printed."""


class _Lines(Progress):
    """A bar with lines of text under it."""

    lines: Sequence[str] = ()

    @override
    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        yield from (Text(f"  {line}") for line in self.lines)


class _Bar(Monitor):
    """A bar that appears when a run starts to compute."""

    def __init__(self, out: Console):
        columns = (TextColumn("{task.description:32}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        # The speeds of algorithms differ by far, so the time left comes from the last hour, not the last half minute.
        self.bar = _Lines(*columns, console=out, speed_estimate_period=3600.0)
        self.task = self.bar.add_task("starting")

    @override
    def start(self, total: int, found: int) -> None:
        self.bar.reset(self.task, total=total, completed=found)
        self.bar.start()

    @override
    def cell(self, cell: Cell) -> None:
        self.bar.update(self.task, description=f"{cell.algorithm}, {cell.environment}")

    @override
    def advance(self, cost: int) -> None:
        self.bar.advance(self.task, cost)

    @override
    def nodes(self, lines: Sequence[str]) -> None:
        self.bar.lines = lines

    @override
    def undecided(self, statements: Sequence[Finding], most_seeds: int) -> None:
        self.bar.print(f"undecided, with more seeds to come (at most {most_seeds:,}):", highlight=False)
        for each in statements:
            self.bar.print(f"  {each['text']}", highlight=False, soft_wrap=True)


@contextlib.contextmanager
def progress_bar(out: Console) -> Iterator[Monitor]:
    """A monitor that draws the progress of a run."""
    monitor = _Bar(out)
    try:
        yield monitor
        monitor.bar.update(monitor.task, description="done")
    finally:
        if monitor.bar.live.is_started:
            monitor.bar.stop()
