"""The paper's non-contextual logistic bandit: ten fixed arms, zeros and ones for rewards."""

import dataclasses

from vits.lab.compare import Claim
from vits.lab.experiments import tuned
from vits.lab.experiments.bandit import Contender, Model, Statement, World, scored
from vits.lab.experiments.fixed_arms import FixedArmsExperiment
from vits.lab.results import Results

_POSTERIOR = {"inverse_temperature": 1.0, "prior_precision": 1.0}
_LINEAR = Model("linear", {"dim": 10})
_WORLD = "fixed-logistic"
_TUNED = f"{_WORLD}, tuned"


@dataclasses.dataclass(frozen=True)
class FixedLogistic(FixedArmsExperiment):
    """Fixed arms with logistic rewards."""

    def claims(self, found: Results) -> list[Claim]:
        """VITS better than all others, each at its best setting."""
        rivals = ("laplace_ts", "lmc_ts", "ensemble_ts", "lin_ts", "vts")
        return scored("fixed-logistic", found, *(Statement(_TUNED, "vits_ii", "<", rival) for rival in rivals))


EXPERIMENT = FixedLogistic(
    name="fixed-logistic",
    title="Fixed arms, logistic rewards",
    worlds=(World(_WORLD, "fixed_logistic"), World(_TUNED, "fixed_logistic", hyperparameters=tuned.FIXED_LOGISTIC)),
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

PRESETS = {"paper": EXPERIMENT, "quick": dataclasses.replace(EXPERIMENT, seeds=20)}
