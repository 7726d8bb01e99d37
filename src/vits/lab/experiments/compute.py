"""KL against the clock (appendix, "Computation complexity"): which algorithm comes close to a Gaussian target first?

The time of a step is measured separately, after compilation, in rounds of ten steps as in the bandits. The fastest of
several blocks counts, because other work on the machine can only add time. The KL comes from a run with many seeds that
is not timed. Averaging a chain's path and computing the KL do not count as time.

The paper does not state the target. Here kappa = 10 and h = 0.1 / lmax, in 20 and in 50 dimensions. A chain is read in
both ways of the KL study: over its path, as in the paper, and in law, which is what Thompson sampling with one draw per
round needs. `vits_ii_frozen` and `natural` are not in the paper.
"""

import dataclasses
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from typing_extensions import override

from vits import validate
from vits.files import Arrays
from vits.lab import compare
from vits.lab.experiments import gaussian_target
from vits.lab.experiments.base import Advance, Cell
from vits.lab.experiments.gaussian_target import Approximation, TargetContender
from vits.lab.experiments.target import COMMON, TargetExperiment, in_law
from vits.lab.results import BEST, WRITTEN, Claim, Results, Row, columns, finite
from vits.types import State

ROUND = 10
"""Steps per round when the time of a step is measured."""

CONTENDERS = (
    TargetContender("vits_i", "vits_i", max_seeds=1),
    TargetContender("vits_ii", "vits_ii", max_seeds=1),
    TargetContender("vits_ii_hf", "vits_ii_hf", max_seeds=1),
    TargetContender("vits_ii_frozen", "vits_ii", {"inverse": "frozen", "num_steps": ROUND}, max_seeds=1),
    *COMMON,
)
LITERAL = (
    TargetContender("vits_i_one_draw", "vits_i", {"draws": "single"}, max_seeds=20),
    TargetContender("vits_ii_one_draw", "vits_ii", {"draws": "single"}, max_seeds=20),
    TargetContender("vits_ii_hf_plain", "vits_ii_hf", {"draws": "plain", "num_samples": 20}, max_seeds=20),
)

READ = {
    WRITTEN: ("vits_i_one_draw", "vits_ii_one_draw", "vits_ii_hf_plain", "lmc_averaged"),
    BEST: ("vits_i", "vits_ii", "vits_ii_hf", "lmc_law"),
}
"""VITS-I, VITS-II, its Hessian-free form and Langevin: with the paper's draws and the path of one chain; or with exact
gradients and in law."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComputeExperiment(TargetExperiment):
    """Dimensions, and one condition number and step size."""

    available = (*CONTENDERS, *LITERAL)

    dims: tuple[int, ...]
    condition_number: float
    step_size: float
    blocks: int
    """How often the time of a step is measured; the best counts."""

    @override
    def cells(self) -> list[Cell]:
        self.check()
        validate.count("blocks", self.blocks)
        validate.positive("step_size", self.step_size, below=1.0)
        return [self._cell(dim, contender) for dim in self.dims for contender in self.contenders]

    def _cell(self, dim: int, contender: TargetContender) -> Cell:
        target = gaussian_target.gaussian_target(self.seed, dim, self.condition_number)

        def compute(progress: Advance) -> Arrays:
            approximation = gaussian_target.approximation(contender, target, self.step_size)
            found = self.follow(contender, approximation)
            in_rounds = dataclasses.replace(
                contender, hyperparameters={**contender.hyperparameters, "num_steps": ROUND}
            )
            timed = gaussian_target.approximation(in_rounds, target, self.step_size)
            progress(1)
            return {
                "kl": found.kl,
                "steps": found.steps,
                "diverged": found.diverged,
                "stride": np.full(len(found.steps), found.stride),
                "seconds": np.array([found.seconds]),
                "seconds_per_step": seconds_per_step(timed, self.blocks),
            }

        return self.cell(
            f"d={dim}",
            contender,
            compute,
            step_size=self.step_size,
            dim=dim,
            condition_number=self.condition_number,
            blocks=self.blocks,
        )

    @override
    def row(self, cell: Cell, arrays: Arrays) -> Row:
        """Steps, time of a step, and time to the target; null where most seeds did not reach it."""
        steps, step_time = arrays["steps"], float(np.min(arrays["seconds_per_step"]))
        median = float(np.quantile(steps, 0.5, method="nearest"))
        return self.line(
            cell,
            arrays,
            failed_seeds=int(np.sum(arrays["diverged"])),
            steps_median=finite(median),
            not_reached=int(np.sum(np.isinf(steps))),
            seconds_per_step=step_time,
            seconds_per_step_median=float(np.median(arrays["seconds_per_step"])),
            seconds_to_target=finite(median * step_time),
        )

    @override
    def claims(self, found: Results) -> list[Claim]:
        """VITS-II and its Hessian-free form before LMC, and VITS-I after all of them, in every dimension.

        A time is the median number of steps times the time of one step. An algorithm that does not arrive takes at
        least as long as the cap on steps. `x before y` holds if x takes less than 1 / 1.1 of y's time, and fails if it
        takes more than 1.1 times as long.
        """
        times: dict[str, dict[str, tuple[float | None, float]]] = {}
        for row in columns(found.summary):
            took = row["seconds_to_target"], row["horizon"] * row["seconds_per_step"]
            times.setdefault(row["environment"], {})[row["algorithm"]] = took
        scored = (_scored(times, reading) for reading in READ)
        return [claim for claim in scored if claim is not None]


def _scored(times: dict[str, dict[str, tuple[float | None, float]]], reading: str) -> Claim | None:
    """The claim in one reading; None if no pair that it compares was run."""
    slowest, fast, free, chain = READ[reading]
    order = [(fast, chain), (free, chain), (fast, slowest), (free, slowest), (chain, slowest)]
    verdicts: list[str] = []
    evidence = []
    for environment, here in times.items():
        compared = {(a, b): _is_before(here[a], here[b]) for a, b in order if a in here and b in here}
        verdicts += compared.values()
        shown = ", ".join(f"{name} {_milliseconds(*here[name])} ms" for name in READ[reading] if name in here)
        listed = ", ".join(f"{a} before {b} {verdict}" for (a, b), verdict in compared.items())
        evidence.append(f"{environment}: {listed} ({shown})")
    if not verdicts:
        return None
    return compare.claim("compute-order", compare.all_of(*verdicts), "; ".join(evidence), reading)


def seconds_per_step(approximation: Approximation, blocks: int, rounds: int = 50) -> Float[np.ndarray, " blocks"]:
    """Time of a step in each of several blocks of `rounds` rounds, one posterior or chain, after compilation."""
    key = jax.random.key(0)
    state = approximation.first(key)
    times = []
    for block in range(blocks + 1):
        started = time.perf_counter()
        jax.tree.map(np.asarray, _rounds(approximation, jax.random.fold_in(key, block), state, jnp.asarray(rounds)))
        times.append((time.perf_counter() - started) / (rounds * ROUND))
    return np.array(times[1:])  # the first one compiled


@eqx.filter_jit
def _rounds(approximation: Approximation, key: Key[Array, ""], state: State, num_rounds: Int[Array, ""]) -> State:
    def play(k: Array, state: State) -> State:
        # The algorithm alone, without the moments of a chain.
        return approximation.advance(jax.random.fold_in(key, k), state)[0]

    return jax.lax.fori_loop(0, num_rounds, play, state)


def _is_before(first: tuple[float | None, float], second: tuple[float | None, float]) -> str:
    """Verdict on: the first takes less time. Each is the time to the target, if it arrived, and the time at the cap."""
    (took, at_least), (other_took, other_at_least) = first, second
    longer = 1.0 + compare.ALIKE
    if took is not None and took * longer < (other_took or other_at_least):
        return compare.HOLDS
    if other_took is not None and (took or at_least) > other_took * longer:
        return compare.FAILS
    return compare.INCONCLUSIVE


def _milliseconds(took: float | None, at_least: float) -> str:
    return f"> {1e3 * at_least:.2g}" if took is None else f"{1e3 * took:.2g}"


EXPERIMENT = ComputeExperiment(
    name="compute",
    title="KL against computing time",
    dims=(20, 50),
    condition_number=10.0,
    step_size=0.1,
    epsilon=0.1,
    contenders=(*CONTENDERS, *LITERAL),
    horizon=10_000,
    seeds=1000,
    blocks=50,
)

PRESETS = {
    "paper": EXPERIMENT,
    "quick": dataclasses.replace(
        EXPERIMENT,
        contenders=in_law(CONTENDERS, max_seeds=2),
        seeds=20,
        blocks=30,
    ),
}
