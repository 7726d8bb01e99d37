"""The command line of the campaigns. No logic: it calls and prints."""

from collections import Counter
from functools import partial
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
out, err = Console(width=None if Console().is_terminal else 140), Console(stderr=True)


@app.command()
def soak(scale: Annotated[float, typer.Option(help="Part of the full lengths.")] = 1.0) -> None:
    """A million rounds of LinTS and of windowed VITS-II, a hundred thousand of logistic VITS-II on all data."""
    from trust import soak

    names = ("run", "rounds", "not finite", "rejected", "refreshed", "|CB - I|", "mean, sd", "deviations")
    table = Table(*names, "memory, MiB", "seconds", "", box=SIMPLE_HEAD)
    outcomes = []
    with Progress(console=err) as bar:
        for each in soak.soaks(scale):
            task = bar.add_task(each.name, total=each.rounds)
            found = soak.run(each, partial(bar.advance, task))
            outcomes.append(found)
            counts = (found.not_finite, found.rejected, found.refreshed)
            figures = (found.inverse_error, found.distance.mean, found.distance.deviation)
            table.add_row(
                found.name,
                f"{found.rounds:,}",
                *(f"{count:,}" for count in counts),
                *(f"{figure:.2g}" for figure in figures),
                f"+{found.memory_growth:.1f}",
                f"{found.seconds:.0f}",
                "passed" if found.passed else "failed",
            )
    out.print(table)
    raise typer.Exit(0 if all(found.passed for found in outcomes) else 1)


@app.command()
def faults(
    algorithms: Annotated[str | None, typer.Option(help="Comma-separated names; all by default.")] = None,
) -> None:
    """Every algorithm, every fault, both precisions, plain, compiled and in a batch; no failure may be silent."""
    from trust import cases, faults

    selected = faults.cases(cases.ALGORITHMS if algorithms is None else algorithms.split(","))
    results = []
    with Progress(console=err) as bar:
        task = bar.add_task("cases", total=len(selected))
        for result in faults.run(selected):
            results.append(result)
            bar.update(task, advance=1, description=result.case.algorithm)
    by_fault = lambda result: result.case.fault.name  # noqa: E731
    for title, by in (("fault", by_fault), ("algorithm", lambda result: result.case.algorithm)):
        counts = faults.table(results, by)
        table = Table(title, "cases", *faults.OUTCOMES, box=SIMPLE_HEAD)
        for name, count in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
            table.add_row(name, str(count.total()), *(str(count[outcome] or "") for outcome in faults.OUTCOMES))
        out.print(table)
    silent = [result for result in results if result.outcome == "silent"]
    for result in silent:
        out.print(f"silent: {result.case}: {result.reason}", markup=False, soft_wrap=True)
    raise typer.Exit(1 if silent else 0)


@app.command()
def forgery(
    mutations: Annotated[int, typer.Option(help="How many files.")] = 11_000,
    seed: Annotated[int, typer.Option(help="Of the changes.")] = 0,
) -> None:
    """Saved agents, changed at random: each is refused in one sentence, or works."""
    from trust import forgery

    with Progress(console=err) as bar:
        task = bar.add_task("files", total=mutations)
        found = forgery.run(mutations, seed=seed, step=partial(bar.advance, task))
    table = Table("change", "files", *forgery.RESULTS, box=SIMPLE_HEAD)
    for kind, count in [*found.counts.items(), ("all", sum(found.counts.values(), Counter()))]:
        table.add_row(kind, f"{count.total():,}", *(f"{count[result]:,}" for result in forgery.RESULTS))
    out.print(table)
    out.print(f"peak memory grew by {found.memory_growth:.0f} MiB, {found.seconds:.0f} seconds")
    for failure in found.failures:
        out.print(f"{failure}", markup=False, soft_wrap=True)
    raise typer.Exit(0 if found.passed else 1)


@app.command()
def sbc(simulations: Annotated[int, typer.Option(help="How many, for each posterior.")] = 1000) -> None:
    """Simulation-based calibration of the exact, the variational and the Laplace posteriors."""
    from trust import sbc

    columns = ("model", "posterior", "simulations", "p of uniform ranks", "bias, sd", "width, sd", "rejected")
    table = Table(*columns, box=SIMPLE_HEAD)
    for model in ("linear", "logistic"):
        for algorithm in (*sbc.CONVERGED, *sbc.STRUCTURED):
            if model == "linear" or algorithm != "lin_ts":
                found = sbc.run(algorithm, model, simulations)
                figures = (f"{found.p_value:.3f}", f"{found.bias:+.3f}", f"{found.width:.3f}", str(found.rejected))
                table.add_row(model, algorithm, f"{simulations:,}", *figures)
    out.print(table)


@app.command()
def coverage(
    replications: Annotated[int, typer.Option(help="How many, for each law.")] = 40_000,
    seed: Annotated[int, typer.Option(help="Of the differences.")] = 1,
) -> None:
    """How often the intervals of verdicts miss the true mean at any look."""
    from trust import coverage

    table = Table("differences", *(f"{name}, {100 * level:.2g} %" for name, level in coverage.LEVELS.items()))
    for name, law in coverage.LAWS.items():
        found = coverage.missed(law, replications=replications, seed=seed)
        table.add_row(name, *(f"{100 * share:.2g} %" for share in found.values()))
    out.print(table)


@app.command()
def folding() -> None:
    """Posteriors with folded observations, against the best Gaussian for all of them."""
    from trust import folding

    labels = ("all data" if n is None else f"fold_after={n}" for n in folding.FOLDS)
    table = Table("d", "n", "length", "theta", "eta", "posterior", *labels, box=SIMPLE_HEAD)
    for problem in folding.PROBLEMS:
        for algorithm in folding.ALGORITHMS:
            found = [folding.run(problem, algorithm, n) for n in folding.FOLDS]
            cells = (f"{each.mean:.2f} sd, {100 * each.variance:.0f} %" for each in found)
            table.add_row(*(f"{value:g}" for value in problem), algorithm, *cells)
    out.print(table)


@app.command()
def storage() -> None:
    """Agents with the default storage, against agents that keep all observations."""
    from trust import storage

    columns = ("model", "d", "n", "length", "theta", "posterior", "storage", "mean", "variances", "error", "all data's")
    table = Table(*columns, box=SIMPLE_HEAD)
    for problem, algorithm, settings in storage.ROWS:
        found = storage.run(storage.Row(problem, algorithm, settings))
        name = ", ".join([algorithm, *(f"{option}={value}" for option, value in settings.items())])
        row = (problem.model, *(f"{value:g}" for value in problem[1:5]), name, found.storage)
        variances = f"{found.least:.2f} to {found.largest:.2f}"
        row += (f"{found.mean:.2f} sd", variances, f"{found.error:.4f}", f"{found.full_error:.4f}")
        table.add_row(*row)
        err.print(*row)
    out.print(table)


if __name__ == "__main__":
    app()
