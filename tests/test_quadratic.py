"""What the paper says of the quadratic bandit, scored on made-up regret."""

from pathlib import Path

import numpy as np
import pytest

from vits.lab import results
from vits.lab.experiments import quadratic

NAMES = ("vits_ii", "vits_ii_hf", "lmc_ts(10)", "lmc_ts(50)", "lin_ts")
ORDERED = dict(zip(NAMES, (10, 20, 30, 40, 50), strict=True))


def found_with(regret: dict[str, dict[str, float]]) -> results.Results:
    """Results with these mean regrets, by world and algorithm; seeds differ a little, and in the same way for all."""
    cells = {
        (world, name): {"regret": mean + np.resize([-1.0, 0.0, 1.0], (120, 1)), "failed": np.zeros(120, bool)}
        for world, means in regret.items()
        for name, mean in means.items()
    }
    return results.Results(Path(), {}, cells)


def verdicts(regret: dict[str, dict[str, float]], preset: str = "paper") -> dict[str, str]:
    return {claim["id"]: claim["verdict"] for claim in quadratic.PRESETS[preset].claims(found_with(regret))}


@pytest.mark.parametrize(
    ("gap_at_01", "gap_at_1", "verdict"), [(20, 5, "holds"), (5, 20, "fails"), (-5, 20, "fails"), (20, -5, "fails")]
)
def test_the_gap_to_langevin_is_smaller_where_contexts_are_diverse(
    gap_at_01: float, gap_at_1: float, verdict: str
) -> None:
    worlds = {"zeta=0.1": gap_at_01, "zeta=1": gap_at_1}
    regret = {world: {**ORDERED, "lmc_ts(10)": ORDERED["vits_ii"] + gap} for world, gap in worlds.items()}
    assert verdicts(regret)["quadratic-gap"] == verdict


def test_the_best_settings_count_where_the_preset_has_them() -> None:
    swapped = {**ORDERED, "vits_ii": 60}
    common = {"zeta=0.1": swapped, "zeta=1": swapped}
    everything = {**common, "zeta=0.1, tuned": ORDERED, "zeta=1, tuned": ORDERED}
    assert verdicts(everything)["quadratic-order"] == "fails"
    assert verdicts(everything, "tuned")["quadratic-order"] == "holds"
    assert verdicts({**common, "zeta=1, tuned": ORDERED}, "tuned") == {}


def test_nothing_is_claimed_of_one_world_alone() -> None:
    assert verdicts({"zeta=1": ORDERED}) == {}
