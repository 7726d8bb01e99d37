"""The paper's quadratic bandit (figure 2): a reward that no linear model fits, and neural networks that can."""

import dataclasses

from vits.compare import Claim, is_less, paired
from vits.experiments.bandit import BanditExperiment, Contender, Model, Statement, World, final, scored
from vits.results import Results

_LINEAR = Model("linear", {"dim": 20})
_SQUARE = Model("mlp", {"dim": 20, "hidden": (5,), "activation": "square"})
_TANH = Model("mlp", {"dim": 20, "hidden": (20, 20), "activation": "tanh"})
_NETWORK = {"inverse_temperature": 10.0, "prior_precision": 20.0}
_WORLDS = ("zeta=0.1", "zeta=1")
_RIVALS = ("lmc_ts(10)", "lmc_ts(50)", "lin_ts")


@dataclasses.dataclass(frozen=True)
class Quadratic(BanditExperiment):
    """Contexts around a pool, rewards (x' theta)^2, at two condition numbers."""

    def claims(self, found: Results) -> list[Claim]:
        """VITS-II, then Hessian-free, then the rest; and a smaller gap to LMC-TS where contexts are diverse."""
        order = [
            Statement(world, first, "<", second)
            for world in _WORLDS
            for first, second in (
                ("vits_ii", "vits_ii_hf"),
                *((name, rival) for name in ("vits_ii", "vits_ii_hf") for rival in _RIVALS),
            )
        ]
        gaps = [Statement(world, "vits_ii", "<", "lmc_ts(10)") for world in _WORLDS]
        return [
            *scored("quadratic-order", found, *order),
            *scored("quadratic-gap", found, *gaps, also=lambda: _is_smaller_gap(found)),
        ]


def _is_smaller_gap(found: Results) -> dict[str, str]:
    ill, well = (final(found, world, "lmc_ts(10)") - final(found, world, "vits_ii") for world in _WORLDS)
    difference = paired(well, ill)
    return {f"gap at zeta=1 < gap at zeta=0.1, {difference}": is_less(difference)}


def _contenders() -> tuple[Contender, ...]:
    return (
        Contender("vits_ii", "vits_ii", {**_NETWORK, "curvature": "gauss_newton"}),
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
    contenders=_contenders(),
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
        model=_SQUARE,
        horizon=500,
        seeds=10,
        chunk=10,
    ),
}
