"""The shared part of experiments with a Gaussian target: contenders approach it until all seeds are close."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key
from typing_extensions import override

from vits import validate
from vits.files import Arrays
from vits.lab import results
from vits.lab.experiments.base import Advance, Cell, Experiment
from vits.lab.experiments.gaussian_target import Approximation, TargetContender
from vits.lab.results import Row
from vits.types import Scalar, State

COMMON = (
    TargetContender("natural", "vits_ng", {"step_size": 0.5}, max_seeds=1),
    TargetContender("lmc_averaged", "lmc_ts", reading="averaged", look_every=50),
    TargetContender("lmc_law", "lmc_ts", reading="law", max_seeds=10),
)
"""Natural gradients, and a Langevin chain in both readings."""


def in_law(contenders: tuple[TargetContender, ...], max_seeds: int) -> tuple[TargetContender, ...]:
    """The same contenders, with at most `max_seeds` seeds where each seed is a thousand chains."""
    return tuple(
        dataclasses.replace(contender, max_seeds=max_seeds) if contender.reading == "law" else contender
        for contender in contenders
    )


class Trajectory(NamedTuple):
    """KL by look, the steps between two looks, and the steps to the target (infinite if it was not reached)."""

    kl: Float[np.ndarray, "seeds looks"]
    stride: int
    steps: Float[np.ndarray, " seeds"]
    diverged: Bool[np.ndarray, " seeds"]
    refreshed: Int[np.ndarray, " seeds"]
    seconds: float
    """Without compilation."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TargetExperiment(Experiment):
    """Contenders, an accuracy, a cap on steps and seeds."""

    available: ClassVar[tuple[TargetContender, ...]]
    """Contenders that can be asked for by name, in the preset or not."""

    contenders: tuple[TargetContender, ...]
    epsilon: float
    horizon: int
    """The cap on steps."""
    seeds: int
    seed: int = 0

    @property
    @override
    def labels(self) -> tuple[str, ...]:
        return tuple(contender.label for contender in self.contenders)

    def check(self) -> None:
        """Refuse bad settings."""
        validate.count("horizon", self.horizon)
        validate.count("seeds", self.seeds)
        validate.positive("epsilon", self.epsilon)
        validate.run_size(self.seeds, self.horizon, 1)

    def follow(self, contender: TargetContender, approximation: Approximation, only: range | None = None) -> Trajectory:
        """The path of the contender's seeds (or `only` these) to the target: `horizon` steps, rounded up to a look."""
        stride = contender.look_every * int(contender.hyperparameters.get("num_steps", 1))
        looks = -(-self.horizon // stride)
        keys = jax.random.split(jax.random.key(self.seed), contender.num_seeds(self.seeds))
        keys = keys if only is None else keys[only.start : only.stop]

        def go(max_looks: int) -> Looks:
            limit, every = jnp.asarray(max_looks), contender.look_every
            found = approach(approximation, keys, jnp.asarray(self.epsilon, float), limit, look_every=every, room=looks)
            return jax.tree.map(lambda x: x.block_until_ready(), found)

        go(0)  # compiles
        started = time.perf_counter()
        found = go(looks)
        seconds = time.perf_counter() - started
        kl = np.asarray(found.kl)[: int(found.num_looks)].T
        near = kl <= self.epsilon
        steps = np.where(np.any(near, axis=1), (np.argmax(near, axis=1) + 1.0) * stride, np.inf)
        return Trajectory(kl, stride, steps, np.asarray(found.diverged), np.asarray(found.refreshed), seconds)

    def cell(
        self,
        environment: str,
        contender: TargetContender,
        compute: Callable[[Advance], Arrays],
        *,
        chunk: str = "all",
        step_size: float,
        **coordinates: Any,
    ) -> Cell:
        """The cell of a contender at one point of the experiment, whose position is given by `coordinates`."""
        shared = {"epsilon": self.epsilon, "horizon": self.horizon, "seeds": self.seeds, "seed": self.seed}
        return Cell(
            environment=environment,
            algorithm=contender.label,
            chunk=chunk,
            hyperparameters={"h": step_size, **contender.hyperparameters},
            cost=1,
            settings={"contender": dataclasses.asdict(contender), "step_size": step_size, **shared, **coordinates},
            compute=compute,
            coordinates={"step_size": step_size, **coordinates},
        )

    def line(self, cell: Cell, arrays: Arrays, **columns: Any) -> Row:
        """A row of the summary without regret."""
        return results.row(
            *cell.key,
            cell.hyperparameters,
            horizon=self.horizon,
            seeds=len(arrays["steps"]),
            seconds=float(np.sum(arrays["seconds"])),
            **columns,
        )

    @override
    def only(self, names: list[str]) -> "TargetExperiment":
        """The same experiment with these contenders, of this preset or another."""
        known = {contender.label: contender for contender in (*self.available, *self.contenders)}
        chosen = tuple(validate.choice("algorithm", name, known) for name in dict.fromkeys(names))
        return dataclasses.replace(self, contenders=chosen)


class Looks(NamedTuple):
    """The distance of each seed from the target at each look.

    The KL is infinite after the last look. A seed with a rejected update is `diverged`, and its KL is infinite from
    then on. `refreshed` counts repairs of an inverse.
    """

    kl: Float[Array, "looks seeds"]
    num_looks: Int[Array, ""]
    diverged: Bool[Array, " seeds"]
    refreshed: Int[Array, " seeds"]


@eqx.filter_jit
def approach(
    approximation: Approximation,
    keys: Key[Array, " seeds"],
    epsilon: Scalar,
    max_looks: Int[Array, ""],
    *,
    look_every: int,
    room: int,
) -> Looks:
    """Take steps until every seed has been within epsilon or has diverged, for at most `max_looks` <= `room` looks."""
    states = jax.vmap(approximation.start)(keys)
    none = jnp.zeros(keys.shape, bool)

    def unfinished(carry: tuple[Looks, State, Bool[Array, " seeds"]]) -> Bool[Array, ""]:
        so_far, _, arrived = carry
        return (so_far.num_looks < max_looks) & ~jnp.all(arrived | so_far.diverged)

    def look(carry: tuple[Looks, State, Bool[Array, " seeds"]]) -> tuple[Looks, State, Bool[Array, " seeds"]]:
        so_far, states, arrived = carry

        def step(
            i: Array, carry: tuple[State, Bool[Array, " seeds"], Int[Array, " seeds"]]
        ) -> tuple[State, Bool[Array, " seeds"], Int[Array, " seeds"]]:
            states, diverged, refreshed = carry
            k = so_far.num_looks * look_every + i
            states, info = jax.vmap(approximation.step)(jax.vmap(jax.random.fold_in, (0, None))(keys, k), states)
            return states, diverged | info.rejected, refreshed + info.refreshed.astype(int)

        first = (states, so_far.diverged, so_far.refreshed)
        states, diverged, refreshed = jax.lax.fori_loop(0, look_every, step, first)
        kl = jnp.where(diverged, jnp.inf, jax.vmap(approximation.kl)(states))
        new = Looks(so_far.kl.at[so_far.num_looks].set(kl), so_far.num_looks + 1, diverged, refreshed)
        return new, states, arrived | (kl <= epsilon)

    nowhere = jnp.full((room, *keys.shape), jnp.inf)
    first = (Looks(nowhere, jnp.asarray(0), none, none.astype(int)), states, none)
    return jax.lax.while_loop(unfinished, look, first)[0]
