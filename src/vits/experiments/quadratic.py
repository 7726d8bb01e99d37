"""The paper's quadratic bandit (figure 2): a reward that no linear model fits, and neural networks that can."""

import dataclasses

from vits.compare import Claim, all_of, is_less, paired
from vits.experiments.bandit import BanditExperiment, Contender, Model, World, final
from vits.results import Results

_LINEAR = Model("linear", {"dim": 20})
_SQUARE = Model("mlp", {"dim": 20, "hidden": (5,), "activation": "square"})
_TANH = Model("mlp", {"dim": 20, "hidden": (20, 20), "activation": "tanh"})
_NETWORK = {"inverse_temperature": 10.0, "prior_precision": 20.0}
_RIVALS = ("lmc_ts(10)", "lmc_ts(50)", "lin_ts")


@dataclasses.dataclass(frozen=True)
class Quadratic(BanditExperiment):
    """Contexts around a pool, rewards (x' theta)^2, at two condition numbers."""

    def claims(self, found: Results) -> list[Claim]:
        """VITS-II, then Hessian-free, then the rest; and a smaller gap to LMC-TS where contexts are diverse."""
        needed = {"vits_ii", "vits_ii_hf", *_RIVALS}
        if not needed <= set(found.algorithms) or len(found.environments) < 2:
            return []
        verdicts, evidence = [], []
        for world in found.environments:
            for first, second in [
                ("vits_ii", "vits_ii_hf"),
                *((name, rival) for name in ("vits_ii", "vits_ii_hf") for rival in _RIVALS),
            ]:
                difference = paired(final(found, world, first), final(found, world, second))
                verdicts.append(is_less(difference))
                evidence.append(f"{world}, {first} - {second}: {difference}")
        ill, well = (final(found, world, "lmc_ts(10)") - final(found, world, "vits_ii") for world in found.environments)
        gap = paired(well, ill)
        return [
            Claim(
                "quadratic-order",
                "VITS-II is slightly better than its Hessian-free form, both better than LMC-TS and LinTS",
                all_of(*verdicts),
                "; ".join(evidence),
            ),
            Claim(
                "quadratic-gap",
                "the gap to LMC-TS is smaller at zeta = 1 than at zeta = 0.1",
                is_less(gap),
                f"gap at zeta=1 minus gap at zeta=0.1: {gap}",
            ),
        ]


def _contenders(**network: object) -> tuple[Contender, ...]:
    return (
        Contender("vits_ii", "vits_ii", {**_NETWORK, **network}),
        Contender("vits_ii_hf", "vits_ii_hf", _NETWORK),
        Contender("vits_ng", "vits_ng", _NETWORK),
        Contender("lmc_ts(10)", "lmc_ts", {**_NETWORK, "num_steps": 10}),
        Contender("lmc_ts(50)", "lmc_ts", {**_NETWORK, "num_steps": 50}),
        Contender("lin_ts", "lin_ts", {"inverse_temperature": 10.0, "prior_precision": 1.0}, _LINEAR),
        Contender("uniform", "uniform"),
    )


EXPERIMENT = Quadratic(
    name="quadratic",
    title="Quadratic bandit, tanh network",
    worlds=tuple(World(f"zeta={zeta:g}", "quadratic", {"zeta": zeta}) for zeta in (0.1, 1.0)),
    contenders=_contenders(curvature="gauss_newton"),
    model=_TANH,
    horizon=1000,
    seeds=50,
    chunk=2,
)

PRESETS = {
    "paper": EXPERIMENT,
    "quick": dataclasses.replace(
        EXPERIMENT,
        title="Quadratic bandit, square network",
        contenders=_contenders(),
        model=_SQUARE,
        horizon=500,
        seeds=10,
        chunk=10,
    ),
}
