"""How fast whole simulations run: the linear bandit with many seeds, against plain NumPy and the machine's peak."""

from typing import Any

import vits
from benchmarks import plain_numpy
from benchmarks.timing import PEAK, Measurement, best_seconds, peak_flops, peak_work

ZETA, STEPS = 0.1, 10
REPEATS = 5
"""Number of turns; several, because a shared machine is rarely idle for a second on all cores."""
COMMON = {"inverse_temperature": 100.0, "prior_precision": 1.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "vits_ii": {"step_size": 0.9, "num_steps": STEPS},
    "vits_ii_hf": {"num_steps": STEPS},
    "vits_ng": {},
    "lin_ts": {},
    "lmc_ts": {"num_steps": STEPS},
}


def products(algorithm: str, dim: int, arms: int) -> float:
    """Floating-point operations of the products in the equations of a round; README.md lists them."""
    d = float(dim)
    recursion = {
        "vits_ii": STEPS * (6.0 * d**3 + 6.0 * d**2),
        "vits_ii_hf": STEPS * 16.0 * d**3,
        "vits_ng": 2.0 * d**3 / 3.0,
        "lin_ts": 10.0 * d**2,
        "lmc_ts": STEPS * 2.0 * d**2,
    }
    return recursion[algorithm] + 4.0 * d**2 + 2.0 * arms * d


def rows(*, seeds: int = 50, horizon: int = 1000, numpy_seeds: int = 1, large_dim: int = 200) -> list[Measurement]:
    """Rounds per second of each algorithm at d = 20, and of VITS-II at a large d."""
    small = throughput(list(SETTINGS), dim=20, arms=50, seeds=seeds, horizon=horizon, numpy_seeds=numpy_seeds)
    # Beyond t = d: before, every observation is in a new direction, and repairs of the inverse take most of the time.
    horizon = max(2, 2 * horizon // 5)
    return small + throughput(["vits_ii"], dim=large_dim, arms=50, seeds=min(seeds, 4), horizon=horizon, numpy_seeds=0)


def throughput(
    algorithms: list[str], *, dim: int, arms: int, seeds: int, horizon: int, numpy_seeds: int
) -> list[Measurement]:
    """Two rows for VITS-II where NumPy plays too, one for every other algorithm."""
    world = vits.environments.linear(zeta=ZETA, dim=dim, num_arms=arms)

    def ours(name: str) -> Any:
        policy = vits.make(name, vits.models.linear(dim), **COMMON, **SETTINGS[name])
        return lambda: vits.simulate(0, world, policy, horizon, seeds=seeds)

    def in_numpy() -> None:
        """One seed after the other, so a few of them give the speed."""
        for seed in range(numpy_seeds):
            plain_numpy.vits_ii(
                seed, horizon=horizon, dim=dim, num_arms=arms, zeta=ZETA, **COMMON, **SETTINGS["vits_ii"]
            )

    works = {name: ours(name) for name in algorithms} | {PEAK: peak_work()}
    seconds = best_seconds(works | ({"NumPy": in_numpy} if numpy_seeds else {}), REPEATS)
    peak, found = peak_flops(seconds[PEAK]), []
    for name in algorithms:
        speed = seeds * horizon / seconds[name]
        share = speed * products(name, dim, arms) / peak
        what = f"{name}, d={dim}, {seeds} seeds x {horizon} rounds"
        if name == "vits_ii" and numpy_seeds:
            plain = numpy_seeds * horizon / seconds["NumPy"]
            reference, ratio = f"plain NumPy {plain:,.0f} rounds/s", f"{speed / plain:.1f}x"
            found.append(Measurement(what, f"{speed:,.0f} rounds/s", reference, ratio, ">= 10x"))
        goal = "" if name != "vits_ii" else ">= 25 %" if dim < 100 else ">= 60 %"
        ours_text = f"{speed:,.0f} rounds/s, {speed * products(name, dim, arms) / 1e9:.1f} Gflop/s"
        found.append(Measurement(what, ours_text, f"peak {peak / 1e9:.0f} Gflop/s", f"{100 * share:.1f} %", goal))
    return found
