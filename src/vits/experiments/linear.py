"""The paper's linear bandit (figure 1): contexts around a pool, ill-conditioned and well-conditioned."""

import dataclasses

from vits.experiments.bandit import BanditExperiment, Contender, Model, World

_POSTERIOR = {"inverse_temperature": 100.0, "prior_precision": 1.0}

EXPERIMENT = BanditExperiment(
    name="linear",
    title="Linear bandit",
    worlds=tuple(World(f"zeta={zeta:g}", "linear", {"zeta": zeta}) for zeta in (0.1, 1.0)),
    contenders=(
        *(Contender(name, name, _POSTERIOR) for name in ("vits_i", "vits_ii", "vits_ii_hf", "lin_ts")),
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
