"""The paper's non-contextual linear bandit: ten fixed arms, the two best of them close."""

import dataclasses

from vits.lab.compare import Claim
from vits.lab.experiments import tuned
from vits.lab.experiments.bandit import Contender, Model, Statement, World, scored
from vits.lab.experiments.fixed_arms import FixedArmsExperiment
from vits.lab.results import Results

_POSTERIOR = {"inverse_temperature": 1.0, "prior_precision": 1.0}
_WORLD = "fixed-linear"
_TUNED = f"{_WORLD}, tuned"


@dataclasses.dataclass(frozen=True)
class FixedLinear(FixedArmsExperiment):
    """Fixed arms with linear rewards."""

    def claims(self, found: Results) -> list[Claim]:
        """VITS-I and VITS-II close to LinTS, better than LMC-TS and VTS, each at its best setting."""
        return scored(
            "fixed-linear",
            found,
            *(
                Statement(_TUNED, name, sign, rival)
                for name in ("vits_i", "vits_ii")
                for sign, rival in (("~", "lin_ts"), ("<", "lmc_ts"), ("<", "vts"))
            ),
        )


EXPERIMENT = FixedLinear(
    name="fixed-linear",
    title="Fixed arms, linear rewards",
    worlds=(World(_WORLD, "fixed_linear"), World(_TUNED, "fixed_linear", hyperparameters=tuned.FIXED_LINEAR)),
    contenders=(
        *(
            Contender(name, name, _POSTERIOR)
            for name in ("vits_i", "vits_ii", "vits_ii_hf", "vits_ng", "lin_ts", "lmc_ts")
        ),
        # Fewer members explore less than a posterior.
        Contender("ensemble_ts", "ensemble_ts", {**_POSTERIOR, "num_members": 100}),
        Contender("vts", "vts", {"num_arms": 10}),
        Contender("lin_ucb", "lin_ucb"),
        Contender("uniform", "uniform"),
    ),
    model=Model("linear", {"dim": 10}),
    horizon=1000,
    seeds=50,
)

PRESETS = {"paper": EXPERIMENT, "quick": dataclasses.replace(EXPERIMENT, seeds=20)}
