"""How each experiment is shown: its table, its figures with captions, what its columns mean, and the findings in words.

An experiment that is not listed here is shown as regret.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from vits import catalogue
from vits.lab.plots import curves, gaussian_target
from vits.lab.report import tables
from vits.lab.report.tables import Table
from vits.lab.results import BEST, READINGS, TUNING, VERDICTS, Claim, Results, Row, Summary


class Figure(NamedTuple):
    """A function that draws a figure into the run's folder, and the figure's caption."""

    draw: Callable[[Results], Path]
    caption: str


class Picture(NamedTuple):
    """A figure that was drawn."""

    path: Path
    caption: str


REGRET = Figure(
    curves.regret,
    "Cumulative regret against rounds, one panel for each environment. Lines are means over seeds, bands one standard"
    " error.",
)

DIAGNOSTICS = {
    "horizon": "",
    "seeds": "",
    "failed_seeds": "seeds with a rejected update; they are left out of every average",
    "seconds": "computing, for all seeds together, without compilation",
    "rejected_updates": "updates that were rejected; the posterior stayed as it was",
    "rejections": "why updates were rejected, and how many for each reason",
    "capped_rounds": "rounds in which a step, or the number of steps, was cut to what is safe or allowed",
    "unstable_rounds": "rounds in which step size times curvature reached 1; from there on the covariance is wrong",
    "refreshed_inverses": "updates after which the inverse had drifted and was repaired",
}


class View(NamedTuple):
    """The table, the figures, and the columns of the table of diagnostics with their meanings.

    A meaning may be empty, for a name that explains itself. Columns without a value in any row are left out.
    """

    table: Callable[[Summary], Table] = tables.regret
    figures: tuple[Figure, ...] = (REGRET,)
    diagnostics: Mapping[str, str] = DIAGNOSTICS


_FIXED_ARMS = View(
    figures=(
        REGRET,
        Figure(
            curves.arms,
            "How often each arm was played, from the best arm to the worst. Bars are means over seeds, whiskers one"
            " standard error.",
        ),
    )
)

_STEPS = {
    "steps_low": "the 10 % quantile over seeds",
    "steps_median": "",
    "steps_high": "the 90 % quantile over seeds",
    "reached": "",
    "not_reached": "seeds that did not reach the target within the cap on steps",
}

VIEWS = {
    "movielens": View(
        diagnostics={
            **DIAGNOSTICS,
            "logit_regret_mean": "regret measured in logits, as the authors do",
            "logit_regret_stderr": "",
            "logit_regret_median": "",
        },
    ),
    "fixed-linear": _FIXED_ARMS,
    "fixed-logistic": _FIXED_ARMS,
    "kl": View(
        table=tables.steps,
        figures=(
            Figure(
                gaussian_target.steps,
                "Steps until the target is reached, against its condition number, one panel for each step size.",
            ),
        ),
        diagnostics={
            **DIAGNOSTICS,
            **_STEPS,
            "diverged": "",
            "below_floor": "whether the accuracy is below what the algorithm can reach at this step size",
            "floor": "the KL that the algorithm settles around at this step size",
        },
    ),
    "compute": View(
        table=tables.times,
        figures=(
            Figure(gaussian_target.clock, "Distance from the target against the clock, one panel for each dimension."),
        ),
        diagnostics={
            **DIAGNOSTICS,
            **_STEPS,
            "seconds_per_step": "the best of all blocks that were timed",
            "seconds_per_step_median": "",
            "seconds_to_target": "",
        },
    ),
    "theory": View(
        figures=(
            Figure(
                curves.growth,
                "Final regret against the number of rounds and against the dimension, and the growth of the bound.",
            ),
        ),
    ),
    "tables": View(
        table=tables.beside_published,
        diagnostics={**DIAGNOSTICS, "rounds_per_second": "for one seed after the other, without compilation"},
    ),
    "comparison": View(
        table=tables.comparison,
        figures=(REGRET, Figure(curves.cost, "Time of a round, choosing and learning, against the dimension.")),
        diagnostics={
            **DIAGNOSTICS,
            "growth_with_rounds": "the exponent of T in the mean regret, from half the rounds to all of them",
            "seconds_per_round": "choosing and learning, the best of all blocks that were timed",
            "linear_only": "whether the algorithm refuses models that are not linear",
        },
    ),
}
"""By experiment."""

TUNED = View(
    table=tables.tuned,
    diagnostics={
        **DIAGNOSTICS,
        "settings_tried": "points of the grids and the default; the choice is reported on other seeds",
        "settings_with_failed_seeds": "points of the grids with a failed seed; they cannot be chosen",
    },
)


def view(summary: Summary) -> View:
    """How a run is shown."""
    name = summary["experiment"]
    return TUNED if name.endswith(TUNING) else VIEWS.get(name, View())


def table(summary: Summary) -> Table:
    """The table of a run."""
    return view(summary).table(summary)


def draw(found: Results) -> list[Picture]:
    """Draw the figures of a run into its folder."""
    return [Picture(figure.draw(found), figure.caption) for figure in view(found.summary).figures]


def sentences(summary: Summary) -> str:
    """The least and the most regret in each world, and the verdicts on the paper's claims; empty without regret."""
    worlds = dict.fromkeys(row["environment"] for row in summary["rows"] if row["regret_mean"] is not None)
    found = [_world(world, [row for row in summary["rows"] if row["environment"] == world]) for world in worlds]
    return " ".join(sentence for sentence in [*found, *_verdicts(summary)] if sentence)


def _world(world: str, rows: list[Row]) -> str:
    """Uniform play is not compared: it shows the regret of random choices."""
    means = {row["algorithm"]: row["regret_mean"] for row in rows if row["regret_mean"] is not None}
    uniform = means.pop("uniform", None)
    if len(means) < 2:
        return ""
    best, worst = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    more = 100.0 * (means[worst] / means[best] - 1.0) if means[best] else 0.0
    random = "" if uniform is None else f"; playing at random costs {uniform:,.0f}"
    return (
        f"At {world}, {best} has the least regret ({means[best]:,.0f}) and {worst} the most "
        f"({means[worst]:,.0f}, {more:.0f} % more){random}."
    )


def _verdicts(summary: Summary) -> list[str]:
    """The claims of the run by verdict."""
    claims = [claim for claim in summary["claims"] if claim["id"] in catalogue.CLAIMS]
    readings = [reading for reading in READINGS if any(_is_read(claim, reading) for claim in claims)]
    return [_verdicts_of(claims, reading, alone=len(readings) == 1) for reading in readings]


def _is_read(claim: Claim, reading: str) -> bool:
    return claim.get("reading", BEST) == reading


def _verdicts_of(claims: list[Claim], reading: str, *, alone: bool) -> str:
    named = [
        f"{', '.join(ids)} {verdict if verdict in VERDICTS[:2] and len(ids) == 1 else plural}"
        for verdict, plural in zip(
            VERDICTS, ("hold", "fail", "need more seeds (--until-decided adds them)"), strict=True
        )
        if (ids := [claim["id"] for claim in claims if claim["verdict"] == verdict and _is_read(claim, reading)])
    ]
    return f"Of the paper's claims{'' if alone else f' {reading}'}, {'; '.join(named)}."
