"""How each experiment is shown: table, figures with captions, meanings of columns, and the findings in words.

An experiment that is not listed here is shown by its regret.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from vits import catalogue
from vits.lab.plots import curves, gaussian_target
from vits.lab.report import tables
from vits.lab.report.tables import Table
from vits.lab.results import BEST, READINGS, TUNING, VERDICTS, Claim, Results, Summary


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
    """The findings of a run in at most three sentences: regret in the worlds that count, and verdicts on claims."""
    means: dict[str, dict[str, float]] = {}
    for row in summary["rows"]:
        if row["regret_mean"] is not None:
            means.setdefault(row["environment"], {})[row["algorithm"]] = row["regret_mean"]
    tuned = [world["label"] for world in summary["settings"].get("worlds", ()) if world["hyperparameters"]]
    counted = {world: means[world] for world in tuned if world in means} or means
    found = [_world(*each) for each in counted.items()] if len(counted) <= 2 else [_worlds(counted)]
    return " ".join(sentence for sentence in [*found, _verdicts(summary)] if sentence)


def _world(world: str, means: Mapping[str, float]) -> str:
    """The least and the most regret in a world, and that of random play, which is not compared."""
    ranked = sorted((name for name in means if name != "uniform"), key=means.__getitem__)
    if len(ranked) < 2:
        return ""
    best, worst = ranked[0], ranked[-1]
    random = f"; playing at random costs {means['uniform']:,.0f}" if "uniform" in means else ""
    return (
        f"At {world}, {best} has the least mean regret ({means[best]:,.0f}) and {worst} the most "
        f"({means[worst]:,.0f}){random}."
    )


def _worlds(worlds: Mapping[str, Mapping[str, float]]) -> str:
    """The algorithm that has the least regret most often in many worlds, and the distance of the others from it."""
    ranked = [sorted((mean, name) for name, mean in means.items() if name != "uniform") for means in worlds.values()]
    ranked = [each for each in ranked if len(each) > 1]
    if not ranked:
        return ""
    best, times = Counter(each[0][1] for each in ranked).most_common(1)[0]
    often = f"all {times}" if times == len(ranked) else f"{times} of {len(ranked)}"
    said = f"{best} has the least mean regret in {often} environments"
    above = [100.0 * (each[-1][0] / each[0][0] - 1.0) for each in ranked if each[0][0] > 0.0]
    if len(above) < len(ranked):  # nothing is a percentage above no regret
        return f"{said}."
    return f"{said}; the largest mean is {min(above):.1f} % to {max(above):.1f} % above the least."


def _verdicts(summary: Summary) -> str:
    """The claims by verdict; readings with the same verdicts are named together."""
    claims = [claim for claim in summary["claims"] if claim["id"] in catalogue.CLAIMS]
    by_seeds = any("needed" in claim for claim in claims)
    hint = " (--until-decided adds seeds)" if by_seeds and not summary["settings"].get("until_decided") else ""
    by_reading = {reading: _by_verdict(claims, reading, hint) for reading in READINGS}
    found = {reading: text for reading, text in by_reading.items() if text}
    if len(set(found.values())) == 1:
        both = " in both readings" if len(found) == 2 else ""
        return f"Of the paper's claims, {next(iter(found.values()))}{both}."
    parts = "; ".join(f"{reading}, {text}" for reading, text in found.items())
    return f"Of the paper's claims, {parts}." if parts else ""


def _by_verdict(claims: list[Claim], reading: str, hint: str) -> str:
    """The claims of one reading by verdict, such as "kl-alike holds and kl-linear, kl-fewer fail"."""
    open_ones = f"is undecided{hint}", f"are undecided{hint}"
    words = dict(zip(VERDICTS, (("holds", "hold"), ("fails", "fail"), open_ones), strict=True))
    named = [
        f"{', '.join(ids)} {words[verdict][len(ids) > 1]}"
        for verdict in VERDICTS
        if (ids := [c["id"] for c in claims if c["verdict"] == verdict and c.get("reading", BEST) == reading])
    ]
    return " and ".join(named) if len(named) < 3 else f"{named[0]}, {named[1]} and {named[2]}"
