"""The command line: it parses, calls and prints. Heavy imports happen only when something runs."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.exceptions import TyperException

from vits import catalogue, files, validate

if TYPE_CHECKING:
    from vits.lab.experiments.base import Request
    from vits.lab.results import Results

app = typer.Typer(
    help="Thompson sampling for contextual bandits with posteriors that can be trusted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
out = Console(markup=False, emoji=False)  # a folder may be called "[b]" or ":b:"
err = Console(stderr=True, markup=False, emoji=False)


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
Preset = Annotated[str, typer.Option(help="quick, paper, or another that the experiment has, such as written.")]
Algorithms = Annotated[
    list[str] | None,
    typer.Option(metavar="A,B", help="Comma-separated names; the preset's by default. Given twice, the names add up."),
]
Seeds = Annotated[
    int | None, typer.Option(parser=_whole("seeds"), metavar="N", help="Number of seeds; the preset's by default.")
]
Horizon = Annotated[
    int | None, typer.Option(parser=_whole("horizon"), metavar="T", help="Number of rounds; the preset's by default.")
]
Data = Annotated[
    Path | None, typer.Option(help="Folder of the data set; VITS_DATA, or the folder of `vits data`, by default.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="Folder for the results; in results/, named after experiment and preset, by default."),
]
EngineName = Annotated[
    str, typer.Option("--engine", help="Where it is computed: local, in this process, or ray, on a cluster.")
]
Address = Annotated[
    str | None,
    typer.Option(help="With --engine ray: the cluster; RAY_ADDRESS, or a new one on this machine, by default."),
]


@app.command(epilog="Example: [bold]vits run linear --preset quick --algorithms vits_ii,lin_ts --seeds 10[/]")
def run(
    experiment: Experiment,
    preset: Preset = "quick",
    algorithms: Algorithms = None,
    seeds: Seeds = None,
    horizon: Horizon = None,
    until_decided: Annotated[
        bool, typer.Option("--until-decided", help="Add seeds where a claim needs them until all claims are decided.")
    ] = False,
    max_seeds: Annotated[
        int | None,
        typer.Option(parser=_whole("max_seeds"), metavar="N", help="With --until-decided: stop here; 2000 by default."),
    ] = None,
    data: Data = None,
    folder: Out = None,
    engine: EngineName = "local",
    address: Address = None,
) -> None:
    """Run an experiment, store it, draw it and print its table. The same command resumes an interrupted run."""
    from vits.lab.experiments.base import MOST_SEEDS, Request

    if max_seeds is not None and not until_decided:
        raise ValueError("--max-seeds is for --until-decided; the number of seeds of a plain run is --seeds")
    most = (MOST_SEEDS if max_seeds is None else max_seeds) if until_decided else None
    if most is not None:
        validate.count("max_seeds", most)
    request = Request(experiment, preset, _names(algorithms), seeds, horizon, data, most_seeds=most)
    _execute(request, folder or Path("results") / f"{experiment}-{preset}", engine, address)


@app.command(epilog="Example: [bold]vits tune linear --preset quick --algorithms vits_ii,lin_ts[/]")
def tune(
    experiment: Experiment,
    preset: Preset = "quick",
    algorithms: Algorithms = None,
    seeds: Seeds = None,
    horizon: Horizon = None,
    tuning_seeds: Annotated[
        int,
        typer.Option(
            parser=_whole("tuning_seeds"),
            metavar="N",
            help="Number of seeds that settings are compared on; below 100 defaults stay.",
        ),
    ] = 400,
    data: Data = None,
    folder: Out = None,
    engine: EngineName = "local",
    address: Address = None,
) -> None:
    """Choose each algorithm's setting in each world from grids, and compare it with the default on other seeds.

    With the preset "written" only the paper's grids are used, and the least mean is chosen.
    """
    from vits.lab.experiments.base import Request
    from vits.lab.results import TUNING

    request = Request(experiment, preset, _names(algorithms), seeds, horizon, data, tuning_seeds)
    _execute(request, folder or Path("results") / f"{experiment}{TUNING}-{preset}", engine, address)


def _names(algorithms: list[str] | None) -> list[str] | None:
    """All names of all options, once each."""
    if not algorithms:
        return None
    return list(dict.fromkeys(name.strip() for names in algorithms for name in names.split(",")))


def _execute(request: "Request", folder: Path, engine: str, address: str | None) -> "Results":
    from vits.lab import results
    from vits.lab.experiments import run
    from vits.lab.experiments.base import plan
    from vits.lab.report import console, page, views

    where = run.engine(engine, address)
    if engine != "local" and catalogue.experiment(request.experiment).timed:
        err.print(f"{request.experiment} measures computing time, so it runs in this process and not on {engine}")
        where = run.Local()
    experiment, record = plan(request)
    try:
        with console.progress_bar(err) as monitor:
            found = run.run(
                experiment,
                folder,
                preset=request.preset,
                record=record,
                engine=where,
                monitor=monitor,
                most_seeds=request.most_seeds,
            )
    except run.EngineError as error:
        err.print(f"error: {error}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        err.print("interrupted; run the same command again to resume")
        sys.stdout.flush()
        os._exit(130)  # at once, because a running program would crash while the interpreter shuts down
    console.print_table(out, views.table(found.summary))
    if request.most_seeds is not None or request.tuning_seeds is not None:
        for claim in found.summary["claims"]:
            out.print(f"{claim['id']}: {results.outcome(claim)}", highlight=False, soft_wrap=True)
    if request.most_seeds is not None and not found.summary["claims"]:
        err.print("no claim of the paper can be scored by this run, so no seeds were added")
    pictures = views.draw(found)
    _print_pictures(picture.path for picture in pictures)
    out.print(f"report: {page.write(found, pictures=pictures)}", soft_wrap=True)
    if said := views.sentences(found.summary):
        out.print(f"\n{said}", highlight=False)
    if any(row["failed_seeds"] == row["seeds"] for row in found.summary["rows"]):
        err.print("error: an algorithm failed on every seed")
        raise typer.Exit(1)
    return found


@app.command(epilog="Example: [bold]vits paper linear fixed-linear[/]")
def paper(
    experiments: Annotated[list[str] | None, typer.Argument(help="Experiments; all by default.")] = None,
    data: Data = None,
    folder: Annotated[Path, typer.Option("--out", help="Folder for the runs.")] = Path("results/paper"),
    keep: Annotated[Path, typer.Option(help="Folder for summaries and curves.")] = Path("paper"),
    engine: EngineName = "local",
    address: Address = None,
) -> None:
    """Run all experiments of the paper until its claims are decided. The same command resumes an interrupted run."""
    from vits.lab.experiments.base import Request
    from vits.lab.report import paper

    for name in experiments or ():
        catalogue.experiment(name)
    jobs = [job for job in paper.JOBS if not experiments or job.experiment in experiments]
    for i, job in enumerate(jobs, 1):
        left = sum(each.hours for each in jobs[i - 1 :])
        row = catalogue.experiment(job.experiment)
        out.print(f"{i}/{len(jobs)}: {job.name}, about {job.hours:g} h; all that is left about {left:.1f} h")
        source = data if row.data_set is not None else None
        request = Request(job.experiment, job.preset, data=source, most_seeds=job.most_seeds)
        found = _execute(request, folder / job.name, engine, address)
        paper.keep(found, keep / f"{job.name}.json")
        out.print(f"kept: {keep / job.name}.json", soft_wrap=True)


@app.command(name="data", epilog="Example: [bold]vits data movielens --folder data[/]")
def data_(
    name: Annotated[str, typer.Argument(help="The data set: movielens, or uci (mushroom and shuttle).")],
    folder: Annotated[
        Path | None, typer.Option(help="Where it is, or goes; VITS_DATA, or the user's cache folder, by default.")
    ] = None,
) -> None:
    """Check a data set. MovieLens is downloaded from its publisher if it is not there."""
    if name not in catalogue.DATA_SETS:
        raise validate.unknown("data set", name, catalogue.DATA_SETS)
    if name == "uci":
        from vits.datasets import uci

        out.print(f"mushroom: {len(uci.mushroom(folder).labels):,} rows, shuttle: {len(uci.shuttle(folder).labels):,}")
        out.print("From the UCI repository; cite Dua and Graff (2019).")
        return
    from vits.datasets import movielens

    try:
        path = movielens.ensure(folder)
    except movielens.DownloadError as error:
        err.print(f"error: {error}", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from None
    ratings = movielens.load(path)
    users, movies = ratings.shape
    out.print(f"{path}: {len(ratings.entries.value):,} ratings of {movies:,} movies by {users:,} users", soft_wrap=True)
    out.print("For research only, not to be passed on; cite Harper and Konstan (2015), doi 10.1145/2827872.")


@app.command(epilog="Example: [bold]vits show results/linear-quick[/]")
def show(folder: Folder) -> None:
    """Print the table of a finished run."""
    from vits.lab import results
    from vits.lab.report import console, views

    console.print_table(out, views.table(results.load(folder).summary))


@app.command(epilog="Example: [bold]vits plot results/linear-quick[/]")
def plot(folder: Folder) -> None:
    """Draw the pictures of a finished run again."""
    from vits.lab import results
    from vits.lab.report import views

    _print_pictures(picture.path for picture in views.draw(results.load(folder)))


@app.command(name="report", epilog="Example: [bold]vits report results/linear-quick --reference vits_ii[/]")
def report_(
    folder: Folder,
    reference: Annotated[
        str | None, typer.Option(help="The algorithm that others are compared with; lin_ts, or the first, by default.")
    ] = None,
) -> None:
    """Write a page with the figures, tables and verdicts of a finished run, and how to reproduce it."""
    from vits.lab import results
    from vits.lab.report import page

    out.print(f"report: {page.write(results.load(folder), reference=reference)}", soft_wrap=True)


@app.command(epilog="Example: [bold]vits claims results/linear-paper results/kl-paper[/]")
def claims(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Folders of finished runs; the results shipped with vits by default.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="table, markdown or json.")] = "table",
) -> None:
    """Print the paper's claims and the verdicts of these runs in both readings."""
    from vits.lab.report import console, paper, scorecard

    printed = validate.choice("format", form, console.FORMATS)
    printed(out, scorecard.scorecard(folders) if folders else paper.shipped_scores())


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
    from vits.lab.report import console, tables

    rows = posterior_check.load(data)
    given: dict[str, Any] = {"inverse_temperature": inverse_temperature, "prior_precision": prior_precision}
    found = posterior_check.check(
        posterior_check.resolve_model(model, rows.features.shape[1]),
        rows,
        algorithm,
        **{name: value for name, value in given.items() if value is not None},
    )
    console.print_table(out, tables.posteriors(algorithm, len(rows.rewards), found.worst[:10], found.figures))
    out.print(found.sentence, soft_wrap=True)
    _print_pictures([pictures.draw(found, folder / "check.png")])


def _print_pictures(paths: Iterable[Path]) -> None:
    for path in paths:
        out.print(f"picture: {path}", soft_wrap=True)


def main() -> None:
    """Run a command. Exit code 2 is for bad usage, told in one sentence, and 1 for a damaged run or a disk error."""
    # Seeds are spread over the cores; a small factorisation that also uses all of them is up to 20 times slower.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    files.keep_compiled_programs()
    try:
        sys.exit(app(standalone_mode=False))
    except (ValueError, OSError, TyperException) as error:
        if str(error):  # empty when the help was shown instead
            err.print(f"error: {error}", highlight=False, soft_wrap=True)
        sys.exit(_exit_code(error))


def _exit_code(error: Exception) -> int:
    if isinstance(error, OSError):
        return 1
    if not isinstance(error, ValueError):
        return 2
    from vits.lab.results import DamagedRun

    return 1 if isinstance(error, DamagedRun) else 2
