"""Walking towards a Gaussian target with many seeds, until all have arrived: one compiled loop per algorithm."""

import time
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from vits.lab.experiments.gaussian_target import Approximation, Contender
from vits.types import Scalar, State


class Walk(NamedTuple):
    """How far each seed was from the target at each look, and what happened on the way.

    The KL is infinite after the last look. Seeds with an update that was refused are `diverged`: infinitely far from
    then on. `refreshed` counts repairs of an inverse.
    """

    kl: Float[Array, "looks seeds"]
    num_looks: Int[Array, ""]
    diverged: Bool[Array, " seeds"]
    refreshed: Int[Array, " seeds"]


@eqx.filter_jit
def walk(
    approximation: Approximation,
    keys: Key[Array, " seeds"],
    epsilon: Scalar,
    max_looks: Int[Array, ""],
    *,
    look_every: int,
    room: int,
) -> Walk:
    """Walk until every seed was once within epsilon, or has diverged, for at most `max_looks` <= `room` looks."""
    states = jax.vmap(approximation.start)(keys)
    nobody = jnp.zeros(keys.shape, bool)

    def unfinished(carry: tuple[Walk, State, Bool[Array, " seeds"]]) -> Bool[Array, ""]:
        so_far, _, arrived = carry
        return (so_far.num_looks < max_looks) & ~jnp.all(arrived | so_far.diverged)

    def look(carry: tuple[Walk, State, Bool[Array, " seeds"]]) -> tuple[Walk, State, Bool[Array, " seeds"]]:
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
        new = Walk(so_far.kl.at[so_far.num_looks].set(kl), so_far.num_looks + 1, diverged, refreshed)
        return new, states, arrived | (kl <= epsilon)

    nowhere = jnp.full((room, *keys.shape), jnp.inf)
    first = (Walk(nowhere, jnp.asarray(0), nobody, nobody.astype(int)), states, nobody)
    return jax.lax.while_loop(unfinished, look, first)[0]


class Course(NamedTuple):
    """A walk on the host: KL by look, the steps between two looks, the steps to the target (infinite if not met)."""

    kl: Float[np.ndarray, "seeds looks"]
    stride: int
    steps: Float[np.ndarray, " seeds"]
    diverged: Bool[np.ndarray, " seeds"]
    refreshed: Int[np.ndarray, " seeds"]
    seconds: float
    """Without compilation."""


def course(
    contender: Contender, approximation: Approximation, *, seed: int, seeds: int, epsilon: float, cap: int
) -> Course:
    """Walk with the contender's seeds, for `cap` steps at most (rounded up to a look)."""
    stride = contender.look_every * int(contender.hyperparameters.get("num_steps", 1))
    looks = -(-cap // stride)
    keys = jax.random.split(jax.random.key(seed), contender.num_seeds(seeds))

    def go(max_looks: int) -> Walk:
        limit, every = jnp.asarray(max_looks), contender.look_every
        walked = walk(approximation, keys, jnp.asarray(epsilon, float), limit, look_every=every, room=looks)
        return jax.tree.map(lambda x: x.block_until_ready(), walked)

    go(0)  # compiles
    started = time.perf_counter()
    walked = go(looks)
    seconds = time.perf_counter() - started
    kl = np.asarray(walked.kl)[: int(walked.num_looks)].T
    near = kl <= epsilon
    steps_taken = np.where(np.any(near, axis=1), (np.argmax(near, axis=1) + 1.0) * stride, np.inf)
    return Course(kl, stride, steps_taken, np.asarray(walked.diverged), np.asarray(walked.refreshed), seconds)
