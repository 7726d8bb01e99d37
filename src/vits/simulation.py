"""Playing a policy in an environment, many seeds at once. The only place where regret exists."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from vits import linalg, validate
from vits.environments.base import Environment, Params
from vits.history import with_capacity
from vits.policies import Policy, PosteriorPolicy
from vits.types import Info, Observation, Round, Scalar, State, as_key

SEGMENT = 100
"""Rounds between two reports of progress."""


class Trace(NamedTuple):
    """What happened, seed by seed and round by round. `regret` is that of each round, not yet summed."""

    regret: Float[np.ndarray, "*seeds horizon"]
    action: Int[np.ndarray, "*seeds horizon"]
    reward: Float[np.ndarray, "*seeds horizon"]
    info: Info
    seconds: float
    """How long the playing took, without compilation."""

    @property
    def cumulative_regret(self) -> Float[np.ndarray, "*seeds horizon"]:
        """Regret summed up to each round, in double precision."""
        return np.cumsum(self.regret, axis=-1, dtype=np.float64)

    @property
    def failed(self) -> Bool[np.ndarray, "*seeds"]:
        """Seeds in which an update was rejected, or something was not finite: they must not be averaged in."""
        broken = np.asarray(self.info.rejected) | ~np.asarray(self.info.is_finite) | ~np.isfinite(self.regret)
        return np.any(broken, axis=-1)


class Player(NamedTuple):
    """One seed between two rounds."""

    world_key: Key[Array, ""]
    policy_key: Key[Array, ""]
    params: Params
    state: State


class Step(NamedTuple):
    """One round of one seed, as it enters the trace."""

    regret: Scalar
    action: Int[Array, ""]
    reward: Scalar
    info: Info


def simulate(
    key: Key[Array, ""] | Array | int,
    environment: Environment,
    policy: Policy,
    horizon: int,
    *,
    seeds: int | Sequence[int] = 1,
    progress: Callable[[int], None] | None = None,
    workers: int | None = None,
) -> Trace:
    """Play a policy for `horizon` rounds with many seeds.

    The contexts, means and noise of seed i follow from `key` and i alone: every policy faces the same rounds, and a
    seed played alone gives the same curve as within a batch (up to rounding: XLA may sum in another order).

    Args:
        key: a random key, or an integer.
        environment: the world.
        policy: what plays; its hyperparameters are traced, so other values do not compile anew.
        horizon: rounds.
        seeds: how many, or which ones.
        progress: called with the number of rounds just played (summed over seeds), now and then.
        workers: threads among which the seeds are shared out; all cores by default.

    Returns:
        The trace: `.regret`, `.action`, `.reward` of shape (seeds, horizon), and `.info`.

    Example:
        >>> import vits
        >>> world = vits.environments.linear(zeta=1.0, dim=3, num_arms=4)
        >>> trace = vits.simulate(0, world, vits.make("lin_ts", vits.models.linear(3)), 20, seeds=2)
        >>> trace.regret.shape
        (2, 20)
    """
    return _run(key, environment, policy, horizon, _seed_indices(seeds), None, progress=progress, workers=workers)


def simulate_grid(
    key: Key[Array, ""] | Array | int,
    environment: Environment,
    policies: Policy,
    horizon: int,
    *,
    seeds: int | Sequence[int] = 1,
    progress: Callable[[int], None] | None = None,
    workers: int | None = None,
) -> Trace:
    """Play many settings of one algorithm with many seeds, as one batch of one compiled program.

    Args:
        key: a random key, or an integer.
        environment: the world.
        policies: one policy whose numbers have a leading axis of settings, as `eqx.filter_vmap` of a preset makes it.
        horizon: rounds.
        seeds: how many, or which ones; every setting plays the same.
        progress: called with the number of rounds just played (summed over settings and seeds), now and then.
        workers: threads; all cores by default.

    Returns:
        The trace, with arrays of shape (settings, seeds, horizon).

    Example:
        >>> import equinox as eqx, jax.numpy as jnp, vits
        >>> model = vits.models.linear(3)
        >>> build = lambda eta: vits.make("lin_ts", model, inverse_temperature=eta)
        >>> grid = eqx.filter_vmap(build)(jnp.array([1.0, 10.0]))
        >>> world = vits.environments.linear(zeta=1.0, dim=3, num_arms=4)
        >>> vits.simulation.simulate_grid(0, world, grid, 20, seeds=5).regret.shape
        (2, 5, 20)
    """
    num_settings, indices = _leading_axis(policies, "settings"), _seed_indices(seeds)
    settings, players = np.repeat(np.arange(num_settings), len(indices)), np.tile(indices, num_settings)
    flat = _run(key, environment, policies, horizon, players, settings, progress=progress, workers=workers)
    played = (flat.regret, flat.action, flat.reward, flat.info)
    regret, action, reward, info = jax.tree.map(lambda x: x.reshape(num_settings, -1, horizon), played)
    return Trace(regret, action, reward, info, flat.seconds)


def simulate_each(
    key: Key[Array, ""] | Array | int,
    environment: Environment,
    policies: Policy,
    horizon: int,
    *,
    seeds: int | Sequence[int],
    progress: Callable[[int], None] | None = None,
    workers: int | None = None,
) -> Trace:
    """Play every seed with a policy of its own, as one batch of one compiled program.

    Args:
        key: a random key, or an integer.
        environment: the world.
        policies: one policy whose numbers have a leading axis of seeds, as `eqx.filter_vmap` of a preset makes it.
        horizon: rounds.
        seeds: how many, or which ones; as many as there are policies.
        progress: called with the number of rounds just played (summed over seeds), now and then.
        workers: threads; all cores by default.

    Returns:
        The trace, as of `simulate`.

    Example:
        >>> import equinox as eqx, jax.numpy as jnp, vits
        >>> model, world = vits.models.linear(3), vits.environments.linear(zeta=1.0, dim=3, num_arms=4)
        >>> variance = jnp.var(vits.simulation.worlds(0, world, seeds=5).pool, axis=(1, 2))
        >>> policies = eqx.filter_vmap(lambda v: vits.make("lin_ts", model, prior_precision=1 / v))(variance)
        >>> vits.simulation.simulate_each(0, world, policies, 20, seeds=5).regret.shape
        (5, 20)
    """
    num_policies, indices = _leading_axis(policies, "seeds"), _seed_indices(seeds)
    if num_policies != len(indices):
        raise ValueError(f"there must be a policy for each of the {len(indices)} seeds, but there are {num_policies}")
    own = np.arange(num_policies)
    return _run(key, environment, policies, horizon, indices, own, progress=progress, workers=workers)


def worlds(key: Key[Array, ""] | Array | int, environment: Environment, *, seeds: int | Sequence[int]) -> Params:
    """What the environment fixes for each seed, with a leading axis of seeds: the worlds that `simulate` plays in."""
    indices = _seed_indices(seeds)
    groups = _groups(len(indices), os.cpu_count() or 1)  # those of `simulate`, which has them compiled
    made = [_init_worlds(environment, _keys(as_key(key), jnp.asarray(indices[group])).init_world) for group in groups]
    return jax.tree.map(lambda *parts: jnp.concatenate(parts)[: len(indices)], *made)


def rounds(
    key: Key[Array, ""] | Array | int, environment: Environment, horizon: int, *, seeds: int | Sequence[int] = 1
) -> Round:
    """The rounds that `simulate` plays with the same key and seeds, for use outside of this library.

    Args:
        key: a random key, or an integer.
        environment: the world.
        horizon: rounds.
        seeds: how many, or which ones.

    Returns:
        A round whose NumPy arrays have two leading axes: `arms` (seeds, horizon, arms, dim), `means` and `rewards`
        (seeds, horizon, arms).

    Example:
        >>> import vits
        >>> world = vits.environments.linear(zeta=1.0, dim=3, num_arms=4)
        >>> vits.simulation.rounds(0, world, 20, seeds=2).arms.shape
        (2, 20, 4, 3)
    """
    validate.count("horizon", horizon)
    keys = _keys(as_key(key), jnp.asarray(_seed_indices(seeds)))
    return jax.tree.map(
        np.asarray, _draw_rounds(environment, keys.world, worlds(key, environment, seeds=seeds), horizon)
    )


@eqx.filter_jit
def _draw_rounds(environment: Environment, keys: Key[Array, " seeds"], params: Params, horizon: int) -> Round:
    def draw(key: Key[Array, ""], params: Params) -> Round:
        return jax.lax.map(lambda t: environment.draw(jax.random.fold_in(key, t), params, t), jnp.arange(horizon))

    return jax.vmap(draw)(keys, params)


def _run(
    key: Key[Array, ""] | Array | int,
    environment: Environment,
    policy: Policy,
    horizon: int,
    players: Int[np.ndarray, " players"],
    own_policy: Int[np.ndarray, " players"] | None,
    *,
    progress: Callable[[int], None] | None,
    workers: int | None,
) -> Trace:
    """Play all players, given by their seeds, in at most `workers` groups, one a thread.

    They share a policy, or player i has the one at `own_policy[i]` of the leading axis.
    """
    validate.count("horizon", horizon)
    validate.finite("environment", _numbers(environment))
    validate.finite("policy", _numbers(policy))
    if isinstance(policy, PosteriorPolicy) and policy.model.dim != environment.dim:
        raise ValueError(f"the model takes {policy.model.dim} features, but the environment gives {environment.dim}")
    if workers is None:
        workers = os.cpu_count() or 1
    validate.count("workers", workers)
    policy = with_capacity(policy, horizon)
    groups = _groups(len(players), workers)
    has_own = own_policy is not None
    games = []
    for group in groups:
        own = policy
        if own_policy is not None:
            which = own_policy[group]
            own = jax.tree.map(lambda leaf, i=which: leaf[i] if eqx.is_array(leaf) else leaf, policy)
        keys = _keys(as_key(key), jnp.asarray(players[group]))
        params, state = _init_worlds(environment, keys.init_world), _init_states(own, keys.init_policy, has_own)
        games.append((own, Player(keys.world, keys.policy, params, state)))
    nothing = jnp.asarray(0)
    _play(environment, *games[0], nothing, nothing, has_own)  # compile once, for all threads
    lock, stopped = threading.Lock(), threading.Event()
    started = time.perf_counter()

    def play_game(game: tuple[Policy, Player]) -> Step:
        own, player = game
        segments = []
        for first in range(0, horizon, SEGMENT):
            if stopped.is_set():  # another thread failed, or the user has had enough
                break
            num_rounds = min(SEGMENT, horizon - first)
            player, steps = _play(environment, own, player, jnp.asarray(first), jnp.asarray(num_rounds), has_own)
            segments.append(jax.tree.map(lambda x, n=num_rounds: np.asarray(x)[:n], steps))
            if progress is not None:
                with lock:
                    progress(num_rounds * groups.shape[1])
        return jax.tree.map(lambda *parts: np.concatenate(parts), *segments)

    if len(games) == 1 or _waits_for_others(environment, *games[0], has_own):
        played = [play_game(game) for game in games]
    else:
        with ThreadPoolExecutor(len(games)) as pool:
            try:
                played = list(pool.map(play_game, games))
            except BaseException:
                stopped.set()
                raise
    step = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1)[:, : len(players)].T, *played)
    return Trace(step.regret, step.action, step.reward, step.info, time.perf_counter() - started)


class _Keys(NamedTuple):
    """What a seed draws from: once for its world and its policy, and in each round."""

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
    """In a program of its own, which all policies share: an environment takes longer to compile than to run."""
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
        arms, means, rewards = environment.draw(jax.random.fold_in(player.world_key, t), player.params, t)
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
    """Whether the program has something of a user's own in it that must not run side by side (`vits.linalg`)."""
    arguments = (environment, policy, players, own_policies)
    leaves, structure = jax.tree.flatten(arguments)
    key = (structure, *((leaf.shape, leaf.dtype) if eqx.is_array(leaf) else leaf for leaf in leaves))
    if key not in _WAITING:
        nothing = jnp.asarray(0)
        program = cast(Any, _play).lower(environment, policy, players, nothing, nothing, own_policies).as_text()
        _WAITING[key] = linalg.calls_batched_lapack(program)
    return _WAITING[key]


def _policy_axis(own_policies: bool) -> Any:
    """Whether each player has a policy of its own, or all share one."""
    return eqx.if_array(0) if own_policies else None


def _leading_axis(policies: Policy, name: str) -> int:
    """The length of the axis that every number of a batch of policies begins with."""
    shapes = [leaf.shape for leaf in jax.tree.leaves(eqx.filter(policies, eqx.is_array))]
    length = shapes[0][0] if shapes and shapes[0] else 0
    if length == 0 or any(shape[:1] != (length,) for shape in shapes):
        raise ValueError(f"policies must have one leading axis of {name}, but their numbers have shapes {shapes}")
    return int(length)


def _groups(num_players: int, workers: int) -> Int[np.ndarray, "groups size"]:
    """Who plays together: of one size, so that one compilation serves all; those that fill up the last come twice."""
    size = -(-num_players // min(workers, num_players))
    num_groups = -(-num_players // size)
    return np.resize(np.arange(num_players), (num_groups, size))


def _seed_indices(seeds: int | Sequence[int]) -> Int[np.ndarray, " seeds"]:
    if isinstance(seeds, (int, np.integer)):
        validate.count("seeds", seeds)
        return np.arange(seeds)
    if len(seeds) == 0:
        raise ValueError("seeds must name at least one seed, but is empty")
    for seed in seeds:
        validate.count("every seed", seed, least=0)
    return np.asarray(seeds)


def _numbers(module: eqx.Module) -> Float[np.ndarray, " numbers"]:
    leaves = jax.tree.leaves(eqx.filter(module, eqx.is_inexact_array))
    return np.concatenate([np.ravel(leaf) for leaf in leaves]) if leaves else np.zeros(0)
