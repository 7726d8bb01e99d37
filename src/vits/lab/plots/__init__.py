"""Figures, drawn from what is stored."""

from collections.abc import Callable
from pathlib import Path

from vits.lab.plots import arms, cost, gaussian_target, theory
from vits.lab.plots.curves import regret
from vits.lab.results import Results

__all__ = ["draw", "regret"]

FIGURES: dict[str, tuple[Callable[[Results], Path], ...]] = {
    "kl": (gaussian_target.steps,),
    "compute": (gaussian_target.clock,),
    "theory": (theory.growth,),
    "comparison": (regret, cost.rounds),
    **dict.fromkeys(("fixed-linear", "fixed-logistic"), (regret, arms.histogram)),
}
"""The figures of each experiment; one that is not named here has its regret drawn."""


def draw(results: Results) -> list[Path]:
    """Draw everything that a run shows, into its folder.

    Args:
        results: a loaded run.

    Returns:
        The paths of the pictures.
    """
    return [figure(results) for figure in FIGURES.get(results.summary["experiment"], (regret,))]
