"""The paper's comparison table (section 4), with measurements instead of marks.

The paper gives LinTS, LinUCB, FG-TS, VITS, its Hessian-free form, LMC-TS and VTS marks from ++ to - for three things:
the known regret bound, the complexity, and the robustness against conditioning. It also says which of them are for
linear rewards only. A bound cannot be measured. Here all algorithms play the linear bandit of figure 1, untuned, at
both condition numbers, and the growth of their regret in T is measured. The time of a round (choosing and learning) is
measured separately in several dimensions. Algorithms that refuse other models are called linear.
"""

import dataclasses
import time
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from typing_extensions import override

from vits import catalogue, environments, models, validate
from vits.files import Arrays
from vits.history import with_capacity
from vits.lab import results
from vits.lab.experiments import linear
from vits.lab.experiments.bandit import BanditExperiment, Contender, World, named_policy, regret_row
from vits.lab.experiments.base import Advance, Cell
from vits.lab.results import Row
from vits.policies import Policy
from vits.types import Observation, Round, State

WARM = 100
"""Rounds played before the timed ones, for algorithms whose cost grows with the data."""

BLOCK = 100
"""Rounds timed together. They are always the same, because later rounds cost more for some algorithms."""

CALLS = 20
"""How often a call that plays no round is timed; the fastest counts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparisonExperiment(BanditExperiment):
    """The linear bandit, and the dimensions in which a round is timed."""

    dims: tuple[int, ...]
    blocks: int
    """How often a round is timed; the fastest counts, because other work on the machine can only add time."""

    @override
    def cells(self) -> list[Cell]:
        """The cells of the bandit, and one per dimension and contender for the time of a round."""
        validate.count("blocks", self.blocks)
        if not self.dims:
            raise ValueError("dims must name at least one dimension, but is empty")
        costs = [self._cost(dim, contender) for dim in self.dims for contender in self.contenders]
        return [*super().cells(), *costs]

    @override
    def tuning_worlds(self) -> tuple[World, ...]:
        """None: the bandit is that of figure 1, which is tuned there."""
        return ()

    def _cost(self, dim: int, contender: Contender) -> Cell:
        policy = named_policy(contender, models.linear(dim))
        weight = self.seeds * self.horizon // 4

        def compute(progress: Advance) -> Arrays:
            cost = round_cost(policy, dim, seed=self.seed, blocks=self.blocks)
            progress(weight)
            return {
                "seconds_per_round": cost.seconds,
                "rejected": np.array([cost.rejected]),
                "seconds": np.array([BLOCK * np.sum(cost.seconds)]),
            }

        return Cell(
            environment=f"d={dim}",
            algorithm=contender.label,
            chunk="all",
            hyperparameters=contender.hyperparameters,
            cost=weight,
            settings=[dataclasses.asdict(contender), dim, self.blocks, self.seed],
            compute=compute,
            coordinates={"dim": dim, "linear_only": catalogue.algorithm(contender.algorithm).linear_only},
        )

    @override
    def row(self, cell: Cell, arrays: Arrays) -> Row:
        if "regret" in arrays:
            growth = _growth_with_rounds(arrays)
            return regret_row(*cell.key, cell.hyperparameters, arrays, growth_with_rounds=growth)
        return results.row(
            *cell.key,
            cell.hyperparameters,
            horizon=WARM + BLOCK,
            seeds=1,
            seconds=float(arrays["seconds"][0]),
            failed_seeds=0,
            dim=cell.coordinates["dim"],
            seconds_per_round=float(np.min(arrays["seconds_per_round"])),
            rejected_updates=int(arrays["rejected"][0]),
            linear_only=cell.coordinates["linear_only"],
        )


def _growth_with_rounds(arrays: Arrays) -> float | None:
    """The exponent of T in the mean regret between half the rounds and all of them: 0.5 for sqrt(T), 1 for T."""
    curve = results.cumulative(arrays)
    horizon = curve.shape[1]
    if not len(curve) or horizon < 2:
        return None
    half, whole = np.mean(curve[:, horizon // 2 - 1]), np.mean(curve[:, -1])
    return float(np.log(whole / half) / np.log(horizon / (horizon // 2))) if half > 0.0 else None


class Cost(NamedTuple):
    """The time of a round in each block, and the number of updates rejected before and during the first block."""

    seconds: Float[np.ndarray, " blocks"]
    rejected: int


def round_cost(policy: Policy, dim: int, *, seed: int, blocks: int) -> Cost:
    """Time of a round, choosing and learning, for one player and after compilation.

    The rounds come from the linear bandit at zeta = 1. They are drawn beforehand, so the time of the environment is not
    counted. The time of a call that plays no round is subtracted.
    """
    world = environments.linear(zeta=1.0, dim=dim)
    world_key, policy_key = jax.random.split(jax.random.key(seed))
    offered = _draw(world, world_key, WARM + BLOCK)
    policy = with_capacity(policy, WARM + BLOCK)
    state, before = _rounds(policy, policy_key, policy.init(policy_key), offered, jnp.asarray(0), jnp.asarray(WARM))

    def timed(num_rounds: int) -> tuple[float, int]:
        first, end = jnp.asarray(WARM), jnp.asarray(WARM + num_rounds)
        started = time.perf_counter()
        played, rejected = _rounds(policy, policy_key, state, offered, first, end)
        jax.tree.map(lambda x: x.block_until_ready(), played)
        return time.perf_counter() - started, int(rejected)

    call = min(timed(0)[0] for _ in range(CALLS))
    found = [timed(BLOCK) for _ in range(blocks)]
    return Cost(np.array([(took - call) / BLOCK for took, _ in found]), int(before) + found[0][1])


@eqx.filter_jit
def _draw(world: environments.Environment, key: Key[Array, ""], num_rounds: int) -> Round:
    init_key, key = jax.random.split(key)
    params = world.init(init_key)
    return jax.vmap(lambda t: world.draw(jax.random.fold_in(key, t), params, t))(jnp.arange(num_rounds))


@eqx.filter_jit
def _rounds(
    policy: Policy, key: Key[Array, ""], state: State, offered: Round, first: Int[Array, ""], end: Int[Array, ""]
) -> tuple[State, Int[Array, ""]]:
    """The state after rounds first, ..., end - 1, and how many of their updates were rejected."""

    def play(t: Int[Array, ""], carry: tuple[State, Int[Array, ""]]) -> tuple[State, Int[Array, ""]]:
        state, rejected = carry
        arms, _, rewards = jax.tree.map(lambda x: x[t], offered)
        act_key, update_key = jax.random.split(jax.random.fold_in(key, t))
        action = policy.act(act_key, state, arms)
        observation = Observation(arms[action], rewards[action], action, arms)
        state, info = policy.update(update_key, state, observation)
        return state, rejected + info.rejected.astype(int)

    return jax.lax.fori_loop(first, end, play, (state, jnp.asarray(0)))


EXPERIMENT = ComparisonExperiment(
    name="comparison",
    title="Comparison table",
    worlds=linear.EXPERIMENT.worlds[:2],
    contenders=(
        *(contender for contender in linear.EXPERIMENT.contenders if contender.label != "uniform"),
        Contender("fg_ts", "fg_ts", {**linear.POSTERIOR, "num_arms": 50}),
    ),
    model=linear.EXPERIMENT.model,
    horizon=linear.EXPERIMENT.horizon,
    seeds=linear.EXPERIMENT.seeds,
    dims=(20, 40, 80, 160),
    blocks=10,
)

PRESETS = {
    "paper": EXPERIMENT,
    "quick": dataclasses.replace(EXPERIMENT, horizon=500, seeds=10, dims=(20, 80), blocks=5),
}
