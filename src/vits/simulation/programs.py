"""The compiled programs of a simulation, and the threads that run them."""

import contextlib
import contextvars
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from vits import linalg, validate
from vits.environments.base import Environment, Params
from vits.policies import Policy
from vits.types import Info, Observation, Round, Scalar, State

SEGMENT = 100
"""Rounds between two reports of progress."""


class Shares(NamedTuple):
    """The seeds are split into at most `groups` groups of one size, which are played in `threads` threads.

    XLA compiles a program for the size of a group, and may sum in another order for another size. So the last bits of
    the results depend on the number of groups, but not on the number of threads.
    """

    groups: int
    threads: int


_SHARES: contextvars.ContextVar[Shares | None] = contextvars.ContextVar("shares", default=None)


def current_shares() -> Shares:
    """The numbers set by `shared`; by default as many groups and threads as there are cores."""
    return _SHARES.get() or Shares(os.cpu_count() or 1, os.cpu_count() or 1)


@contextlib.contextmanager
def shared(shares: Shares) -> Iterator[None]:
    """Use these numbers within the context, for example to repeat the results of another machine."""
    token = _SHARES.set(shares)
    try:
        yield
    finally:
        _SHARES.reset(token)


class Trace(NamedTuple):
    """The outcome of a simulation by seed and round. `regret` is the regret of each round, not the sum."""

    regret: Float[np.ndarray, "*seeds horizon"]
    action: Int[np.ndarray, "*seeds horizon"]
    reward: Float[np.ndarray, "*seeds horizon"]
    info: Info
    seconds: float
    """Computing time, without compilation."""

    @property
    def cumulative_regret(self) -> Float[np.ndarray, "*seeds horizon"]:
        """Regret summed up to each round, in double precision."""
        return np.cumsum(self.regret, axis=-1, dtype=np.float64)

    @property
    def failed(self) -> Bool[np.ndarray, "*seeds"]:
        """Seeds with a rejected update or a value that is not finite. They must be left out of averages."""
        broken = np.asarray(self.info.rejected) | ~np.asarray(self.info.is_finite) | ~np.isfinite(self.regret)
        return np.any(broken, axis=-1)


class Player(NamedTuple):
    """The state of one seed between two rounds."""

    world_key: Key[Array, ""]
    policy_key: Key[Array, ""]
    params: Params
    state: State


class Step(NamedTuple):
    """One round of one seed."""

    regret: Scalar
    action: Int[Array, ""]
    reward: Scalar
    info: Info


def run(
    key: Key[Array, ""],
    environment: Environment,
    policy: Policy,
    horizon: int,
    seeds: Int[np.ndarray, " seeds"],
    own_policies: bool,
    *,
    progress: Callable[[int], None] | None,
    shares: Shares,
) -> Trace:
    """Play all seeds in groups, each group in one thread.

    They share a policy, or seed i has the policy at index i of the first axis.
    """
    groups = _groups(len(seeds), shares.groups)
    games = []
    for group in groups:
        own = policy
        if own_policies:
            own = jax.tree.map(lambda leaf, i=group: leaf[i] if eqx.is_array(leaf) else leaf, policy)
        keys = _keys(key, jnp.asarray(seeds[group]))
        params, state = _init_worlds(environment, keys.init_world), _init_states(own, keys.init_policy, own_policies)
        games.append((own, Player(keys.world, keys.policy, params, state)))
    nothing = jnp.asarray(0)
    _play(environment, *games[0], nothing, nothing, own_policies)  # compile once, for all threads
    lock, stopped = threading.Lock(), threading.Event()
    started = time.perf_counter()

    def play_game(game: tuple[Policy, Player]) -> Step:
        own, player = game
        segments = []
        for first in range(0, horizon, SEGMENT):
            if stopped.is_set():  # another thread failed, or the user interrupted
                break
            num_rounds = min(SEGMENT, horizon - first)
            player, steps = _play(environment, own, player, jnp.asarray(first), jnp.asarray(num_rounds), own_policies)
            segments.append(jax.tree.map(lambda x, n=num_rounds: np.asarray(x)[:n], steps))
            if progress is not None:
                with lock:
                    progress(num_rounds * groups.shape[1])
        return jax.tree.map(lambda *parts: np.concatenate(parts), *segments)

    threads = min(len(games), shares.threads)
    if threads == 1 or _waits_for_others(environment, *games[0], own_policies):
        played = [play_game(game) for game in games]
    else:
        with ThreadPoolExecutor(threads) as pool:
            try:
                played = list(pool.map(play_game, games))
            except BaseException:
                stopped.set()
                raise
    step = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1)[:, : len(seeds)].T, *played)
    return Trace(step.regret, step.action, step.reward, step.info, time.perf_counter() - started)


def worlds(key: Key[Array, ""], environment: Environment, seeds: Int[np.ndarray, " seeds"], num_groups: int) -> Params:
    """The parameters that the environment draws for each seed, computed group by group as in `run`."""
    made = [
        _init_worlds(environment, _keys(key, jnp.asarray(seeds[group])).init_world)
        for group in _groups(len(seeds), num_groups)
    ]
    return jax.tree.map(lambda *parts: jnp.concatenate(parts)[: len(seeds)], *made)


def draw_rounds(
    key: Key[Array, ""], environment: Environment, seeds: Int[np.ndarray, " seeds"], params: Params, horizon: int
) -> Round:
    """All rounds of these seeds, with two leading axes."""
    return _draw_rounds(environment, _keys(key, jnp.asarray(seeds)).world, params, horizon)


@eqx.filter_jit
def _draw_rounds(environment: Environment, keys: Key[Array, " seeds"], params: Params, horizon: int) -> Round:
    def draw(key: Key[Array, ""], params: Params) -> Round:
        return jax.lax.map(lambda t: _round(environment, jax.random.fold_in(key, t), params, t), jnp.arange(horizon))

    return jax.vmap(draw)(keys, params)


def _round(environment: Environment, key: Key[Array, ""], params: Params, t: Int[Array, ""]) -> Round:
    """Round t of an environment. Other shapes than it says are refused: a column of means would make regret zero."""
    drawn = environment.draw(key, params, t)
    if not isinstance(drawn, Round):
        raise ValueError(f"draw of the environment must return a Round, but returns {validate.shown(drawn)}")
    validate.shape("arms of the environment", drawn.arms, (environment.num_arms, environment.dim))
    validate.shape("means of the environment", drawn.means, (environment.num_arms,))
    validate.shape("rewards of the environment", drawn.rewards, (environment.num_arms,))
    return drawn


class _Keys(NamedTuple):
    """The keys of a seed: for its world and its policy, once and in each round."""

    init_world: Key[Array, "*seeds"]
    world: Key[Array, "*seeds"]
    init_policy: Key[Array, "*seeds"]
    policy: Key[Array, "*seeds"]


@eqx.filter_jit
def _keys(key: Key[Array, ""], players: Int[Array, " players"]) -> _Keys:
    def split(player: Int[Array, ""]) -> _Keys:
        world_key, policy_key = jax.random.split(jax.random.fold_in(key, player))
        # Round t uses fold_in(key, t), t >= 0, so the keys for init must not be of that form.
        return _Keys(*jax.random.split(world_key), *jax.random.split(policy_key))

    return jax.vmap(split)(players)


@eqx.filter_jit
def _init_worlds(environment: Environment, keys: Key[Array, " seeds"]) -> Params:
    """Kept separate from the policy, so that all policies share the compiled program."""
    return jax.vmap(environment.init)(keys)


@eqx.filter_jit
def _init_states(policy: Policy, keys: Key[Array, " seeds"], own_policies: bool) -> State:
    return eqx.filter_vmap(lambda policy, key: policy.init(key), in_axes=(_policy_axis(own_policies), 0))(policy, keys)


@eqx.filter_jit
def _play(
    environment: Environment,
    policy: Policy,
    players: Player,
    first: Int[Array, ""],
    num_rounds: Int[Array, ""],
    own_policies: bool,
) -> tuple[Player, Step]:
    """Rounds first, ..., first + num_rounds - 1 for all players; steps have shape (SEGMENT, seeds)."""

    def play(policy: Policy, player: Player, t: Int[Array, ""]) -> tuple[Player, Step]:
        arms, means, rewards = _round(environment, jax.random.fold_in(player.world_key, t), player.params, t)
        act_key, update_key = jax.random.split(jax.random.fold_in(player.policy_key, t))
        action, unscored = policy.choose(act_key, player.state, arms)
        observation = Observation(arms[action], rewards[action], action, arms)
        state, info = policy.update(update_key, player.state, observation)
        info = info._replace(is_finite=info.is_finite & (unscored == 0))
        regret = jnp.max(means) - means[action]
        return player._replace(state=state), Step(regret, action, rewards[action], info)

    everyone = eqx.filter_vmap(play, in_axes=(_policy_axis(own_policies), 0, None))

    def play_round(i: Int[Array, ""], carry: tuple[Player, Step]) -> tuple[Player, Step]:
        players, steps = carry
        players, step = everyone(policy, players, first + i)
        return players, jax.tree.map(lambda rows, row: rows.at[i].set(row), steps, step)

    shapes = eqx.filter_eval_shape(everyone, policy, players, first)[1]
    steps = jax.tree.map(lambda x: jnp.zeros((SEGMENT, *x.shape), x.dtype), shapes)
    return jax.lax.fori_loop(0, num_rounds, play_round, (players, steps))


_WAITING: dict[Any, bool] = {}


def _waits_for_others(environment: Environment, policy: Policy, players: Player, own_policies: bool) -> bool:
    """Whether the program contains calls that must not run in two threads at the same time (see `vits.linalg`)."""
    arguments = (environment, policy, players, own_policies)
    leaves, structure = jax.tree.flatten(arguments)
    key = (structure, *((leaf.shape, leaf.dtype) if eqx.is_array(leaf) else leaf for leaf in leaves))
    if key not in _WAITING:
        nothing = jnp.asarray(0)
        program = cast(Any, _play).lower(environment, policy, players, nothing, nothing, own_policies).as_text()
        _WAITING[key] = linalg.calls_batched_lapack(program)
    return _WAITING[key]


def _policy_axis(own_policies: bool) -> Any:
    """The axis of policies for `vmap`: the first if each player has its own policy, none if all share one."""
    return eqx.if_array(0) if own_policies else None


def _groups(num_players: int, most_groups: int) -> Int[np.ndarray, "groups size"]:
    """Groups of one size, so that one compilation serves all. The last group is padded by repeating players."""
    size = -(-num_players // min(most_groups, num_players))
    num_groups = -(-num_players // size)
    return np.resize(np.arange(num_players), (num_groups, size))
