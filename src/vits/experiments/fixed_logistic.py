"""The paper's non-contextual logistic bandit: ten fixed arms, zeros and ones for rewards."""

import dataclasses

from vits.compare import Claim, all_of, is_less, paired
from vits.experiments.bandit import BanditExperiment, Contender, Model, World, final
from vits.results import Results

_POSTERIOR = {"inverse_temperature": 1.0, "prior_precision": 1.0}
_WORLD = "fixed-logistic"
_LINEAR = Model("linear", {"dim": 10})


@dataclasses.dataclass(frozen=True)
class FixedLogistic(BanditExperiment):
    """Fixed arms with logistic rewards."""

    def claims(self, found: Results) -> list[Claim]:
        """VITS better than all others."""
        rivals = [name for name in found.algorithms if not name.startswith("vits") and name != "uniform"]
        differences = {
            f"vits_ii - {rival}": paired(final(found, _WORLD, "vits_ii"), final(found, _WORLD, rival))
            for rival in rivals
            if (_WORLD, "vits_ii") in found.cells
        }
        verdicts = [is_less(difference) for difference in differences.values()]
        evidence = "; ".join(f"{name}: {difference}" for name, difference in differences.items())
        text = "VITS is better than all others"
        return [Claim("fixed-logistic", text, all_of(*verdicts), evidence)] if verdicts else []


EXPERIMENT = FixedLogistic(
    name="fixed-logistic",
    title="Fixed arms, logistic rewards",
    worlds=(World(_WORLD, "fixed_logistic"),),
    contenders=(
        *(
            Contender(name, name, _POSTERIOR)
            for name in ("vits_i", "vits_ii", "vits_ii_hf", "vits_ng", "laplace_ts", "lmc_ts", "ensemble_ts")
        ),
        Contender("lin_ts", "lin_ts", _POSTERIOR, _LINEAR),
        Contender("vts", "vts", {"num_arms": 10}, _LINEAR),
        Contender("uniform", "uniform"),
    ),
    model=Model("logistic", {"dim": 10}),
    horizon=1000,
    seeds=50,
)

PRESETS = {"paper": EXPERIMENT, "quick": dataclasses.replace(EXPERIMENT, seeds=10)}
