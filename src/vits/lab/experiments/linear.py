"""The paper's linear bandit (figure 1): contexts around a pool, ill-conditioned and well-conditioned."""

import dataclasses

import numpy as np
from jaxtyping import Float
from typing_extensions import override

from vits.lab import compare
from vits.lab.experiments import tuned
from vits.lab.experiments.bandit import BanditExperiment, Contender, Model, World, as_written
from vits.lab.experiments.statements import Statement, alike, cheaper, final, less, scored
from vits.lab.results import Claim, Results

ZETAS = (0.1, 1.0)
POSTERIOR = {"inverse_temperature": 100.0, "prior_precision": 1.0}


@dataclasses.dataclass(frozen=True)
class LinearExperiment(BanditExperiment):
    """Contexts around a pool, rewards linear in them, at two condition numbers."""

    @override
    def claims(self, found: Results) -> list[Claim]:
        if len(self.judged) != 2:
            return []
        ill, well = self.judged
        slightly = compare.SLIGHT
        return [
            *scored(
                "linear-well",
                found,
                *(alike(well, name, "lin_ts") for name in ("vits_ii", "vits_ii_hf", "lmc_ts(50)")),
                less(well, "lin_ts", "lmc_ts(10)", margin=slightly),
            ),
            *scored(
                "linear-ill",
                found,
                less(ill, "vits_ii", "lmc_ts(10)"),
                less(ill, "vits_ii", "lmc_ts(50)"),
                alike(ill, "vits_ii", "lin_ts"),
            ),
            *scored(
                "linear-hf",
                found,
                *(less(world, "vits_ii", "vits_ii_hf", margin=slightly) for world in (ill, well)),
                also=lambda: cheaper(found, (ill, well), ["vits_ii_hf"], "vits_ii"),
            ),
            *scored("linear-vits1", found, *(alike(world, "vits_i", "vits_ii") for world in (ill, well))),
            *scored("linear-vts", found, *_high_and_linear(ill, "vts", "lin_ts")),
        ]


def _high_and_linear(world: str, name: str, reference: str) -> list[Statement]:
    """More than twice the regret of the reference, and at most a tenth more in the first half than in the second."""
    key, other = (world, name), (world, reference)

    def halves(found: Results) -> tuple[Float[np.ndarray, " seeds"], Float[np.ndarray, " seeds"]]:
        arrays = found.cells[key]
        half = arrays["regret"].shape[1] // 2
        first = np.asarray(np.sum(arrays["regret"][:, :half], axis=1, dtype=np.float64))
        return first, final(found, key) - first

    def heights(found: Results) -> tuple[Float[np.ndarray, " seeds"], Float[np.ndarray, " others"]]:
        return 2.0 * final(found, other), final(found, key)

    return [
        Statement(f"{world}: twice {reference} < {name}", compare.less, (other, key), heights),
        Statement(f"{world}: first half of {name} at most a tenth above the second", compare.not_above, (key,), halves),
    ]


EXPERIMENT = LinearExperiment(
    name="linear",
    title="Linear bandit",
    worlds=(
        *(World(f"zeta={zeta:g}", "linear", {"zeta": zeta}) for zeta in ZETAS),
        *(
            World(f"zeta={zeta:g}, tuned", "linear", {"zeta": zeta}, tuned.settings("linear", f"zeta={zeta:g}"))
            for zeta in ZETAS
        ),
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

FIGURE = dataclasses.replace(EXPERIMENT, worlds=EXPERIMENT.worlds[:2], seeds=100).only(
    ["vits_ii", "vits_ii_hf", "lin_ts", "lmc_ts(10)", "lmc_ts(50)"]
)
"""The paper's figure and its contenders: about a minute, with enough seeds to decide the clear cases."""

WRITTEN = as_written(
    EXPERIMENT.only(["vits_i", "vits_ii", "vits_ii_hf", "lin_ts", "lmc_ts(10)", "lmc_ts(50)", "vts", "uniform"])
)
"""The paper's algorithms to the letter. The paper has no grid for VTS, which keeps its defaults."""

PRESETS = {
    "paper": EXPERIMENT,
    "written": WRITTEN,
    "quick": dataclasses.replace(EXPERIMENT, seeds=20),
    "figure": FIGURE,
}
