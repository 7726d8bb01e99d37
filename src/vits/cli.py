"""The command line. No logic: it parses, calls and prints. Heavy imports happen only when something runs."""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.exceptions import TyperException

from vits import catalogue, validate
from vits.datasets import paths
from vits.lab.report import tables

app = typer.Typer(
    help="Thompson sampling for contextual bandits with posteriors that can be trusted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
out = Console()
err = Console(stderr=True)


def _whole(name: str) -> Any:
    def parse(text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise typer.BadParameter(f"{name} must be a whole number, but is '{text}'") from None

    return parse


Folder = Annotated[Path, typer.Argument(help="Folder of a finished run.")]


@app.command(name="list", epilog="Example: [bold]vits list[/]")
def list_() -> None:
    """List the experiments and the algorithms."""
    table = Table("experiment", "what it shows", "in the paper", box=None, header_style="bold")
    for entry in catalogue.EXPERIMENTS.values():
        table.add_row(entry.name, entry.summary, entry.reference)
    out.print(table, "")
    table = Table("algorithm", "what it does", "reference", box=None, header_style="bold")
    for row in catalogue.ALGORITHMS.values():
        table.add_row(row.name, row.summary, row.reference)
    out.print(table)


Experiment = Annotated[str, typer.Argument(help="One of the experiments that `vits list` shows.")]
Preset = Annotated[str, typer.Option(help="quick, or paper: its own settings; quadratic has tanh and tuned too.")]
Algorithms = Annotated[str | None, typer.Option(help="Comma-separated names; all of the preset's by default.")]
Seeds = Annotated[
    int | None, typer.Option(parser=_whole("seeds"), metavar="N", help="How many seeds, in place of the preset's.")
]
Horizon = Annotated[
    int | None, typer.Option(parser=_whole("horizon"), metavar="T", help="How many rounds, in place of the preset's.")
]
Data = Annotated[
    Path | None, typer.Option(help="Folder of the data set; VITS_DATA, or where `vits data` puts it, by default.")
]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for the results.")]


@app.command(epilog="Example: [bold]vits run linear --preset quick --algorithms vits_ii,lin_ts --seeds 10[/]")
def run(
    experiment: Experiment,
    preset: Preset = "quick",
    algorithms: Algorithms = None,
    seeds: Seeds = None,
    horizon: Horizon = None,
    data: Data = None,
    folder: Out = None,
) -> None:
    """Run an experiment, store it, draw it and print its table. Started again, it goes on where it stopped."""
    settings = _settings(experiment, preset, seeds=seeds, horizon=horizon, data=data)
    _execute(settings, preset, algorithms, folder or Path("results") / f"{experiment}-{preset}")


@app.command(epilog="Example: [bold]vits tune linear --preset quick --algorithms vits_ii,lin_ts[/]")
def tune(
    experiment: Experiment,
    preset: Preset = "quick",
    algorithms: Algorithms = None,
    seeds: Seeds = None,
    horizon: Horizon = None,
    tuning_seeds: Annotated[
        int,
        typer.Option(parser=_whole("tuning_seeds"), metavar="N", help="Fresh seeds that the settings are compared on."),
    ] = 10,
    data: Data = None,
    folder: Out = None,
) -> None:
    """Try the paper's grids, choose each algorithm's best setting in each world, and report it on other seeds."""
    settings = _settings(experiment, preset, seeds=seeds, horizon=horizon, data=data)
    from vits.lab.experiments.tuning import tuning

    grids = tuning(settings, tuning_seeds=tuning_seeds)
    _execute(grids, preset, algorithms, folder or Path("results") / f"{experiment}-tuning-{preset}")


def _settings(experiment: str, preset: str, **changes: Any) -> Any:
    catalogue.experiment(experiment, preset)
    import dataclasses

    settings = catalogue.experiment_module(experiment).PRESETS[preset]
    changes = {name: value for name, value in changes.items() if value is not None}
    if "data" in changes and not hasattr(settings, "data"):
        raise ValueError(f"experiment '{experiment}' reads no data set; leave out --data, which is {changes['data']}")
    return dataclasses.replace(settings, **changes)


def _execute(settings: Any, preset: str, algorithms: str | None, folder: Path) -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from vits.lab import plots
    from vits.lab.experiments import base
    from vits.lab.report import page

    if algorithms is not None:
        settings = settings.only([name.strip() for name in algorithms.split(",")])
    columns = (TextColumn("{task.description:32}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    total = sum(cell.cost for cell in settings.cells())
    # Algorithms differ in speed by far, so the time left comes from the last hour, not from the last half minute.
    try:
        with Progress(*columns, console=err, speed_estimate_period=3600.0) as bar:
            task = bar.add_task("starting", total=total)
            results = base.run(
                settings,
                folder,
                preset=preset,
                progress=lambda rounds: bar.advance(task, rounds),
                resume=lambda rounds: bar.reset(task, completed=rounds),
                announce=lambda cell: bar.update(task, description=cell),
            )
            bar.update(task, description="done")
    except KeyboardInterrupt:
        err.print("interrupted: the same command goes on where it stopped")
        sys.stdout.flush()
        os._exit(130)  # at once: a program may still be running, and crashes if the interpreter is taken down under it
    _print_table(results.summary)
    pictures = plots.draw(results)
    _print_pictures(pictures)
    _print_report(page.write(results, pictures=pictures))
    if any(line["failed_seeds"] == line["seeds"] for line in results.summary["rows"]):
        err.print("error: an algorithm failed on every seed")
        raise typer.Exit(1)


@app.command(name="data", epilog="Example: [bold]vits data movielens --folder data[/]")
def data_(
    name: Annotated[str, typer.Argument(help="The data set: movielens.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where it is, or goes; VITS_DATA, or the user's cache folder, by default.")
    ] = None,
) -> None:
    """Check a data set; if it is not there, download it from its publisher first."""
    if name not in catalogue.DATA_SETS:
        raise validate.unknown("data set", name, catalogue.DATA_SETS)
    from vits.datasets import movielens

    try:
        path = movielens.ensure(folder)
    except movielens.DownloadError as error:
        err.print(f"error: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    ratings = movielens.load(path)
    users, movies = ratings.shape
    out.print(f"{path}: {len(ratings.entries.value):,} ratings of {movies:,} movies by {users:,} users", soft_wrap=True)
    out.print("For research only, not to be passed on; cite Harper and Konstan (2015), doi 10.1145/2827872.")


@app.command(epilog="Example: [bold]vits show results/linear-quick[/]")
def show(folder: Folder) -> None:
    """Print the table of a finished run."""
    from vits.lab import results

    _print_table(results.load(folder).summary)


@app.command(epilog="Example: [bold]vits plot results/linear-quick[/]")
def plot(folder: Folder) -> None:
    """Draw the pictures of a finished run again."""
    from vits.lab import plots, results

    _print_pictures(plots.draw(results.load(folder)))


@app.command(name="report", epilog="Example: [bold]vits report results/linear-quick --reference vits_ii[/]")
def report_(
    folder: Folder,
    reference: Annotated[
        str | None, typer.Option(help="The algorithm that others are compared with; lin_ts, or the first, by default.")
    ] = None,
) -> None:
    """Write a page with the pictures, tables and verdicts of a finished run, and how to run it again."""
    from vits.lab import results
    from vits.lab.report import page

    _print_report(page.write(results.load(folder), reference=reference))


@app.command(epilog="Example: [bold]vits claims results/linear-paper results/kl-paper[/]")
def claims(
    folders: Annotated[list[Path], typer.Argument(help="Folders of finished runs.")],
    form: Annotated[str, typer.Option("--format", help="table, markdown or json.")] = "table",
) -> None:
    """Print what the paper claims, and what these runs found of it."""
    if form not in _FORMATS:
        raise validate.unknown("format", form, _FORMATS)
    from vits.lab.report import scorecard

    _FORMATS[form](scorecard.scorecard(folders))


def _claims_json(scores: list[Any]) -> None:
    print(json.dumps([score._asdict() for score in scores], indent=1))


def _claims_markdown(scores: list[Any]) -> None:
    from vits.lab.report import scorecard

    print(scorecard.markdown(scores))


def _claims_table(scores: list[Any]) -> None:
    from vits.lab.report import scorecard

    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold", show_lines=True)
    table.add_column("claim", ratio=5)
    table.add_column("verdict", no_wrap=True)
    table.add_column("evidence", ratio=6)
    for score in scores:
        run = f"{score.experiment}\n{score.run}".strip()
        evidence = [*score.findings, *(f"(changed: {change})" for change in score.changes)]
        evidence += [f"(not counted: {other})" for other in score.others]
        verdict = Text(score.verdict, _COLOURS.get(score.verdict, "dim")) + Text(f"\n{run}", "dim")
        table.add_row(
            Text(f"{score.id}\n", "bold") + Text(score.claim, "not bold"),
            verdict,
            Text("\n".join(f"• {piece}" for piece in evidence)),
        )
    out.print(table)
    out.print(f"{len(scores)} claims: {scorecard.tally(scores)}", highlight=False)


_FORMATS = {"table": _claims_table, "markdown": _claims_markdown, "json": _claims_json}
_COLOURS = {"holds": "green", "fails": "red", "inconclusive": "yellow"}


@app.command(epilog="Example: [bold]vits check clicks.npz --model logistic --algorithm vits_ii[/]")
def check(
    data: Annotated[
        Path, typer.Argument(help="npz with features and rewards, or csv with rewards in the last column.")
    ],
    model: Annotated[str, typer.Option(help="linear, logistic, poisson, or package.module:attribute.")] = "logistic",
    algorithm: Annotated[str, typer.Option(help="One of the algorithms that `vits list` shows.")] = "vits_ii",
    inverse_temperature: Annotated[float | None, typer.Option(help="eta; 1 by default.")] = None,
    prior_precision: Annotated[float | None, typer.Option(help="lambda; 1 by default.")] = None,
    folder: Annotated[Path, typer.Option("--out", help="Folder for the picture.")] = Path("results/check"),
) -> None:
    """Compare an algorithm's posterior with a long run of NUTS, on your own model and data."""
    catalogue.algorithm(algorithm)
    from vits.lab import posterior_check
    from vits.lab.plots import posterior_check as pictures

    rows = posterior_check.load(data)
    given: dict[str, Any] = {"inverse_temperature": inverse_temperature, "prior_precision": prior_precision}
    found = posterior_check.check(
        posterior_check.resolve_model(model, rows.features.shape[1]),
        rows,
        algorithm,
        **{name: value for name, value in given.items() if value is not None},
    )
    _print_content(tables.posteriors(algorithm, len(rows.rewards), found.figures()))
    out.print(found.sentence, soft_wrap=True)
    _print_pictures([pictures.draw(found, folder / "check.png")])


def _print_pictures(paths: list[Path]) -> None:
    for path in paths:
        out.print(f"picture: {path}", soft_wrap=True)


def _print_report(path: Path) -> None:
    out.print(f"report: {path}", soft_wrap=True)


def _print_table(summary: dict[str, Any]) -> None:
    _print_content(tables.table(summary))


def _print_content(content: tables.Table) -> None:
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
    out.print(table)


def _keep_compiled_programs() -> None:
    """Let JAX keep compiled programs in the user's cache folder, unless told not to or to keep them elsewhere."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or os.environ.get("VITS_NO_COMPILATION_CACHE"):
        return
    folder = paths.cache() / "xla"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:  # nowhere to write: compile anew
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")


def main() -> None:
    """Run a command; bad input ends with one sentence and exit code 2."""
    # Seeds are shared out among the cores; a small factorisation on all of them as well is up to 20 times slower.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _keep_compiled_programs()
    try:
        sys.exit(app(standalone_mode=False))
    except (ValueError, TyperException) as error:
        if str(error):  # empty when the help was shown instead
            err.print(f"error: {error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
