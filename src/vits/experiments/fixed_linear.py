"""The paper's non-contextual linear bandit: ten fixed arms, the two best of them close."""

import dataclasses

from vits.compare import Claim, all_of, is_alike, is_less, paired
from vits.experiments.bandit import BanditExperiment, Contender, Model, World, final
from vits.results import Results

_POSTERIOR = {"inverse_temperature": 1.0, "prior_precision": 1.0}
_WORLD = "fixed-linear"


@dataclasses.dataclass(frozen=True)
class FixedLinear(BanditExperiment):
    """Fixed arms with linear rewards."""

    def claims(self, found: Results) -> list[Claim]:
        """VITS-I and VITS-II close to LinTS, better than LMC-TS and VTS."""
        differences = {
            f"{first} - {second}": paired(final(found, _WORLD, first), final(found, _WORLD, second))
            for first, second in (
                ("vits_i", "lin_ts"),
                ("vits_ii", "lin_ts"),
                ("vits_i", "lmc_ts"),
                ("vits_ii", "lmc_ts"),
                ("vits_i", "vts"),
                ("vits_ii", "vts"),
            )
            if {(_WORLD, first), (_WORLD, second)} <= set(found.cells)
        }
        verdicts = [
            is_alike(difference) if name.endswith("lin_ts") else is_less(difference)
            for name, difference in differences.items()
        ]
        evidence = "; ".join(f"{name}: {difference}" for name, difference in differences.items())
        text = "VITS-I and VITS-II are close to LinTS, and better than LMC-TS and VTS"
        return [Claim("fixed-linear", text, all_of(*verdicts), evidence)] if verdicts else []


EXPERIMENT = FixedLinear(
    name="fixed-linear",
    title="Fixed arms, linear rewards",
    worlds=(World(_WORLD, "fixed_linear"),),
    contenders=(
        *(
            Contender(name, name, _POSTERIOR)
            for name in ("vits_i", "vits_ii", "vits_ii_hf", "vits_ng", "lin_ts", "lmc_ts", "ensemble_ts")
        ),
        Contender("vts", "vts", {"num_arms": 10}),
        Contender("lin_ucb", "lin_ucb"),
        Contender("uniform", "uniform"),
    ),
    model=Model("linear", {"dim": 10}),
    horizon=1000,
    seeds=50,
)

PRESETS = {"paper": EXPERIMENT, "quick": dataclasses.replace(EXPERIMENT, seeds=10)}
