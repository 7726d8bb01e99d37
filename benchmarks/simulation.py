"""How fast whole simulations run: 50 seeds x 1000 rounds of the linear bandit, d = 20, 50 arms."""

import vits
from benchmarks import plain_numpy
from benchmarks.timing import Measurement, best_seconds

SEEDS, HORIZON, DIM, ARMS, ZETA = 50, 1000, 20, 50, 0.1
SETTINGS = {"inverse_temperature": 100.0, "prior_precision": 1.0, "step_size": 0.9, "num_steps": 10}
NUMPY_SEEDS = 3
"""Plain NumPy takes its seeds one by one, so a few of them give its speed."""


def rows() -> list[Measurement]:
    """Rounds a second of VITS-II, against plain NumPy doing the same."""
    world = vits.environments.linear(zeta=ZETA, dim=DIM, num_arms=ARMS)
    policy = vits.make("vits_ii", vits.models.linear(DIM), **SETTINGS)
    ours = SEEDS * HORIZON / best_seconds(lambda: vits.simulate(0, world, policy, HORIZON, seeds=SEEDS))

    def numpy_run() -> None:
        for seed in range(NUMPY_SEEDS):
            plain_numpy.vits_ii(seed, horizon=HORIZON, dim=DIM, num_arms=ARMS, zeta=ZETA, **SETTINGS)

    reference = NUMPY_SEEDS * HORIZON / best_seconds(numpy_run)
    return [
        Measurement(
            what="vits_ii, 10 steps, d=20, 50 arms, 50 seeds",
            ours=f"{ours:,.0f} rounds/s",
            reference=f"plain NumPy {reference:,.0f} rounds/s",
            ratio=f"{ours / reference:.1f}x",
            goal=">= 10x",
        )
    ]
