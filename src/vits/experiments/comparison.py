"""The paper's comparison table (section 4), with a measurement in place of every mark.

The paper gives LinTS, LinUCB, FG-TS, VITS, its Hessian-free form, LMC-TS and VTS marks from ++ to - for their regret,
their complexity and their robustness against conditioning, and says which are for linear rewards alone. Here all of
them play the linear bandit of figure 1 with the settings they share there, at both condition numbers, and the time of a
round, choosing and learning, is measured alone in several dimensions.
"""

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from vits import checks, environments, models, results
from vits.experiments import linear
from vits.experiments.bandit import BanditExperiment, Contender, named_policy
from vits.experiments.base import Cell, Progress
from vits.history import with_capacity
from vits.policies import Policy
from vits.results import Arrays
from vits.types import Observation, Round, State

WARM = 100
"""Rounds that are played before those that are timed: who looks at all data again has some to look at."""

BLOCK = 200
"""Rounds that are timed at once, at most: fewer if they take longer than `ENOUGH` seconds."""

ENOUGH = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison(BanditExperiment):
    """The linear bandit, and the dimensions in which a round is timed."""

    dims: tuple[int, ...]
    blocks: int
    """How often a round is timed; the best counts, because whatever else the machine does can only add."""

    def cells(self) -> list[Cell]:
        """Those of the bandit, and one per dimension and contender for what a round costs."""
        checks.count("blocks", self.blocks)
        if not self.dims:
            raise ValueError("dims must name at least one dimension, but is empty")
        costs = [self._cost(dim, contender) for dim in self.dims for contender in self.contenders]
        return [*super().cells(), *costs]

    def _cost(self, dim: int, contender: Contender) -> Cell:
        policy = named_policy(contender, models.linear(dim))

        def compute(progress: Progress) -> Arrays:
            started = time.perf_counter()
            found = seconds_per_round(policy, dim, seed=self.seed, blocks=self.blocks)
            progress(WARM)
            return {
                "seconds_per_round": found,
                "dim": np.array([dim]),
                "linear_only": np.array([_is_linear_only(contender)]),
                "seconds": np.array([time.perf_counter() - started]),
            }

        return Cell(
            environment=f"d={dim}",
            algorithm=contender.label,
            chunk="all",
            hyperparameters=contender.hyperparameters,
            cost=WARM,
            settings=[dataclasses.asdict(contender), dim, self.blocks, self.seed],
            compute=compute,
        )

    def row(
        self, environment: str, algorithm: str, hyperparameters: Mapping[str, Any], arrays: Arrays
    ) -> dict[str, Any]:
        """Regret and how it grows, or what a round costs."""
        if "regret" in arrays:
            found = results.regret_row(environment, algorithm, hyperparameters, arrays)
            return {**found, "growth_with_rounds": _growth_with_rounds(arrays)}
        return {
            "environment": environment,
            "algorithm": algorithm,
            "hyperparameters": dict(hyperparameters),
            "horizon": WARM + BLOCK,
            "seeds": 1,
            "failed_seeds": 0,
            "regret_mean": None,
            "regret_stderr": None,
            "regret_median": None,
            "seconds": float(arrays["seconds"][0]),
            "rounds_per_second": None,
            "dim": int(arrays["dim"][0]),
            "seconds_per_round": float(np.min(arrays["seconds_per_round"])),
            "linear_only": bool(arrays["linear_only"][0]),
        }


def _growth_with_rounds(arrays: Arrays) -> float | None:
    """The exponent of T between half the rounds and all of them, of the mean over seeds: 0.5 for sqrt(T), 1 for T."""
    curve = results.cumulative(arrays)
    horizon = curve.shape[1]
    if not len(curve) or horizon < 2:
        return None
    half, whole = np.mean(curve[:, horizon // 2 - 1]), np.mean(curve[:, -1])
    return float(np.log(whole / half) / np.log(horizon / (horizon // 2))) if half > 0.0 else None


def _is_linear_only(contender: Contender) -> bool:
    """Whether the algorithm refuses a model of another kind."""
    try:
        named_policy(contender, models.logistic(2))
    except ValueError:
        return True
    return False


def seconds_per_round(policy: Policy, dim: int, *, seed: int, blocks: int) -> Float[np.ndarray, " blocks"]:
    """Time of a round, choosing and learning, in each of several blocks, for one player and after compilation.

    The rounds come from the linear bandit at zeta = 1 and are drawn before: the world's time is not counted.
    """
    world = environments.linear(zeta=1.0, dim=dim)
    world_key, policy_key = jax.random.split(jax.random.key(seed))
    offered = _draw(world, world_key, WARM + BLOCK)
    policy = with_capacity(policy, WARM + BLOCK)
    start, warm = jnp.asarray(0), jnp.asarray(WARM)
    state = _rounds(policy, policy_key, policy.init(policy_key), offered, start, warm)

    def timed(num_rounds: int) -> float:
        started = time.perf_counter()
        ended = _rounds(policy, policy_key, state, offered, warm, warm + num_rounds)
        jax.tree.map(lambda x: x.block_until_ready(), ended)
        return (time.perf_counter() - started) / num_rounds

    num_rounds = int(np.clip(ENOUGH / timed(1), 1, BLOCK))
    return np.array([timed(num_rounds) for _ in range(blocks)])


@eqx.filter_jit
def _draw(world: environments.Environment, key: Key[Array, ""], num_rounds: int) -> Round:
    init_key, key = jax.random.split(key)
    params = world.init(init_key)
    return jax.vmap(lambda t: world.draw(jax.random.fold_in(key, t), params, t))(jnp.arange(num_rounds))


@eqx.filter_jit
def _rounds(
    policy: Policy, key: Key[Array, ""], state: State, offered: Round, first: Int[Array, ""], end: Int[Array, ""]
) -> State:
    def play(t: Int[Array, ""], state: State) -> State:
        arms, _, rewards = jax.tree.map(lambda x: x[t], offered)
        act_key, update_key = jax.random.split(jax.random.fold_in(key, t))
        action = policy.act(act_key, state, arms)
        return policy.update(update_key, state, Observation(arms[action], rewards[action], action, arms))[0]

    return jax.lax.fori_loop(first, end, play, state)


EXPERIMENT = Comparison(
    name="comparison",
    title="Comparison table",
    worlds=linear.EXPERIMENT.worlds[:2],
    contenders=(
        *(contender for contender in linear.EXPERIMENT.contenders if contender.label != "uniform"),
        Contender("fg_ts", "fg_ts", linear.POSTERIOR),
    ),
    model=linear.EXPERIMENT.model,
    horizon=linear.EXPERIMENT.horizon,
    seeds=linear.EXPERIMENT.seeds,
    dims=(20, 40, 80, 160, 320),
    blocks=20,
)

PRESETS = {
    "paper": EXPERIMENT,
    "quick": dataclasses.replace(EXPERIMENT, horizon=500, seeds=10, dims=(20, 80), blocks=5),
}
