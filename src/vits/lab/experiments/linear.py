"""The paper's linear bandit (figure 1): contexts around a pool, ill-conditioned and well-conditioned."""

import dataclasses

import numpy as np
from typing_extensions import override

from vits.lab.compare import is_less, is_not_worse, paired
from vits.lab.experiments import tuned
from vits.lab.experiments.bandit import BanditExperiment, Contender, Model, Statement, World, cheaper, final, scored
from vits.lab.results import Claim, Results, final_regret

POSTERIOR = {"inverse_temperature": 100.0, "prior_precision": 1.0}
_ILL, _WELL = "zeta=0.1, tuned", "zeta=1, tuned"


@dataclasses.dataclass(frozen=True)
class Linear(BanditExperiment):
    """Contexts around a pool, rewards linear in them, at two condition numbers."""

    @override
    def claims(self, found: Results) -> list[Claim]:
        """What the paper says of figure 1, scored where every algorithm has its best setting."""
        return [
            *scored(
                "linear-well",
                found,
                *(Statement(_WELL, name, "~", "lin_ts") for name in ("vits_ii", "vits_ii_hf", "lmc_ts(50)")),
                Statement(_WELL, "lin_ts", "<", "lmc_ts(10)"),
            ),
            *scored(
                "linear-ill",
                found,
                Statement(_ILL, "vits_ii", "<", "lmc_ts(10)"),
                Statement(_ILL, "vits_ii", "<", "lmc_ts(50)"),
                Statement(_ILL, "vits_ii", "~", "lin_ts"),
            ),
            *scored(
                "linear-hf",
                found,
                *(Statement(world, "vits_ii", "<", "vits_ii_hf") for world in (_ILL, _WELL)),
                also=lambda: cheaper(found, (_ILL, _WELL), ["vits_ii_hf"], "vits_ii"),
            ),
            *scored("linear-vits1", found, *(Statement(w, "vits_i", "~", "vits_ii") for w in (_ILL, _WELL))),
            *scored("linear-vts", found, Statement(_ILL, "lin_ts", "<", "vts"), also=lambda: _is_linear(found, "vts")),
        ]


def _is_linear(found: Results, name: str) -> dict[str, str]:
    """Whether the second half of the rounds costs as much as the first, and more than twice what LinTS costs in all."""
    arrays = found.cells[_ILL, name]
    half = arrays["regret"].shape[1] // 2
    first, second = (
        np.where(arrays["failed"], np.nan, part.sum(axis=1, dtype=np.float64))
        for part in (arrays["regret"][:, :half], arrays["regret"][:, half:])
    )
    growth, height = paired(first, second), paired(2 * final(found, _ILL, "lin_ts"), final_regret(arrays))
    return {
        f"first half of {name} at most a tenth above the second, {growth}": is_not_worse(growth),
        f"twice lin_ts < {name}, {height}": is_less(height),
    }


EXPERIMENT = Linear(
    name="linear",
    title="Linear bandit",
    worlds=(
        *(World(f"zeta={zeta:g}", "linear", {"zeta": zeta}) for zeta in (0.1, 1.0)),
        *(World(f"zeta={zeta:g}, tuned", "linear", {"zeta": zeta}, tuned.LINEAR[zeta]) for zeta in (0.1, 1.0)),
    ),
    contenders=(
        *(Contender(name, name, POSTERIOR) for name in ("vits_i", "vits_ii", "vits_ii_hf", "vits_ng", "lin_ts")),
        *(Contender(f"lmc_ts({k})", "lmc_ts", {**POSTERIOR, "num_steps": k}) for k in (10, 50)),
        Contender("vts", "vts", {"num_arms": 50}),
        Contender("lin_ucb", "lin_ucb", {"prior_precision": 1.0, "width": 1.0}),
        Contender("uniform", "uniform"),
    ),
    model=Model("linear", {"dim": 20}),
    horizon=1000,
    seeds=50,
)

PRESETS = {
    "paper": EXPERIMENT,
    "quick": dataclasses.replace(EXPERIMENT, seeds=20),
}
