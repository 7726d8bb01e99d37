"""Playing a policy in an environment, many seeds at once. The only place where regret exists."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from typing_extensions import override

from vits import validate
from vits.environments.base import Environment, Params
from vits.history import with_capacity
from vits.policies import Policy, PosteriorPolicy
from vits.simulation import programs
from vits.simulation.programs import SEGMENT, Shares, Trace
from vits.types import Info, Observation, Round, new_info

__all__ = ["SEGMENT", "Trace", "replay", "rounds", "simulate", "simulate_each", "worlds"]


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

    The contexts, means and noise of seed i depend only on `key` and i: every policy faces the same rounds, and a seed
    played alone gives the same curve as within a batch (up to rounding: XLA may sum in another order).

    Args:
        key: a random key, or an integer.
        environment: the world.
        policy: chooses the arms; its hyperparameters are traced, so other values need no new compilation.
        horizon: rounds.
        seeds: how many, or which ones; they must differ.
        progress: called from time to time with the number of rounds just played, summed over seeds.
        workers: number of threads that share the seeds; all cores by default (see `programs.Shares`).

    Returns:
        The trace: `.regret`, `.action`, `.reward` of shape (seeds, horizon), and `.info`.

    Example:
        >>> import vits
        >>> world = vits.environments.linear(zeta=1.0, dim=3, num_arms=4)
        >>> trace = vits.simulate(0, world, vits.make("lin_ts", vits.models.linear(3)), 20, seeds=2)
        >>> trace.regret.shape
        (2, 20)
    """
    policy, shares = _checked(environment, policy, horizon, workers)
    indices = _different(seeds)
    _check_run(len(indices), horizon, progress)
    return programs.run(_key(key), environment, policy, horizon, indices, False, progress=progress, shares=shares)


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
    """Play every seed with its own policy, as one batch of one compiled program.

    Args:
        key: a random key, or an integer.
        environment: the world.
        policies: one policy whose numbers have a leading axis of seeds, as `eqx.filter_vmap` of a preset makes it.
        horizon: rounds.
        seeds: how many, or which ones; one for each policy. A seed may be played by several policies.
        progress: called from time to time with the number of rounds just played, summed over seeds.
        workers: number of threads; all cores by default (see `programs.Shares`).

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
    policies, shares = _checked(environment, policies, horizon, workers)
    num_policies, indices = _leading_axis(policies), _seed_indices(seeds)
    _check_run(len(indices), horizon, progress)
    if num_policies != len(indices):
        raise ValueError(f"there must be a policy for each of the {len(indices)} seeds, but there are {num_policies}")
    return programs.run(_key(key), environment, policies, horizon, indices, True, progress=progress, shares=shares)


class _Recorded(Policy):
    """Plays recorded actions; its state is the round."""

    actions: Int[Array, "*seeds horizon"]

    @override
    def init(self, key: Key[Array, ""]) -> Int[Array, ""]:
        return jnp.asarray(0)

    @override
    def act(self, key: Key[Array, ""], state: Int[Array, ""], arms: Float[Array, "arms dim"]) -> Int[Array, ""]:
        return self.actions[state]

    @override
    def update(
        self, key: Key[Array, ""], state: Int[Array, ""], observation: Observation
    ) -> tuple[Int[Array, ""], Info]:
        return state + 1, new_info(is_finite=jnp.isfinite(observation.reward))


def replay(
    key: Key[Array, ""] | Array | int,
    environment: Environment,
    actions: Int[np.ndarray, "seeds horizon"],
    *,
    seeds: int | Sequence[int],
) -> Trace:
    """Play given actions again, for example to measure their regret in another unit.

    Args:
        key: the key of the simulation that the actions come from.
        environment: the same world, or one that draws the same rounds and measures them differently.
        actions: the arm played by each seed in each round.
        seeds: those of the simulation.

    Returns:
        The trace, as of `simulate`.

    Example:
        >>> import numpy as np, vits
        >>> world = vits.environments.linear(zeta=1.0, dim=3, num_arms=4)
        >>> trace = vits.simulate(0, world, vits.make("lin_ts", vits.models.linear(3)), 20, seeds=2)
        >>> bool(np.allclose(replay(0, world, trace.action, seeds=2).regret, trace.regret))
        True
    """
    _check_environment(environment)
    validate.shape("actions", actions, ("seeds", "horizon"))
    played = np.asarray(actions)
    if played.dtype.kind not in "iu" or not np.all((played >= 0) & (played < environment.num_arms)):
        most = environment.num_arms - 1
        raise ValueError(f"actions must be whole numbers from 0 to {most}, but are {validate.shown(actions)}")
    recorded = _Recorded(jnp.asarray(played, int))
    return simulate_each(key, environment, recorded, played.shape[1], seeds=seeds)


def worlds(key: Key[Array, ""] | Array | int, environment: Environment, *, seeds: int | Sequence[int]) -> Params:
    """The parameters that the environment draws for each seed of `simulate`, along the first axis."""
    _check_environment(environment)
    return programs.worlds(_key(key), environment, _seed_indices(seeds), programs.current_shares().groups)


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
    horizon = validate.count("horizon", horizon)
    indices = _different(seeds)
    validate.run_size(len(indices), horizon, 1)
    params = worlds(key, environment, seeds=seeds)
    return jax.tree.map(np.asarray, programs.draw_rounds(_key(key), environment, indices, params, horizon))


def _checked(environment: Environment, policy: Policy, horizon: int, workers: int | None) -> tuple[Policy, Shares]:
    """The policy with room for all rounds, and the groups and threads for the seeds; bad arguments are refused."""
    horizon = validate.count("horizon", horizon)
    _check_environment(environment)
    if not isinstance(policy, Policy):
        raise ValueError(f"policy must be a policy, as vits.make gives one, but is {validate.shown(policy)}")
    validate.finite("environment", _numbers(environment))
    validate.finite("policy", _numbers(policy))
    heads = policy.model.num_heads if isinstance(policy, PosteriorPolicy) else None
    if heads is not None and heads != environment.num_arms:
        raise ValueError(f"the model has {heads} outputs, one for each arm, but there are {environment.num_arms} arms")
    if isinstance(policy, PosteriorPolicy) and policy.model.dim != environment.dim:
        raise ValueError(f"the model takes {policy.model.dim} features, but the environment gives {environment.dim}")
    if workers is None:
        return with_capacity(policy, horizon), programs.current_shares()
    workers = validate.count("workers", workers)
    return with_capacity(policy, horizon), Shares(workers, workers)


def _check_environment(environment: Any) -> None:
    if not isinstance(environment, Environment):
        raise ValueError(
            f"environment must be one of vits.environments, or a subclass, but is {validate.shown(environment)}"
        )


def _check_run(seeds: int, horizon: int, progress: Any) -> None:
    validate.run_size(seeds, horizon, 1)
    if progress is not None and not callable(progress):
        raise ValueError(f"progress must be a function of a number of rounds, but is {validate.shown(progress)}")


def _key(key: Any) -> Key[Array, ""]:
    """A typed random key from a typed key, an old-style pair of numbers or a whole number."""
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        try:
            return jax.random.key(int(key))
        except OverflowError:
            raise ValueError(f"key must be below 2**64, but is {key}") from None
    if isinstance(key, jax.Array | np.ndarray):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ():
            return jnp.asarray(key)
        if key.dtype == np.uint32 and key.shape == (2,):
            return jax.random.wrap_key_data(jnp.asarray(key))
    raise ValueError(f"key must be a random key of JAX or a whole number, but is {validate.shown(key)}")


def _different(seeds: int | Sequence[int]) -> Int[np.ndarray, " seeds"]:
    indices = _seed_indices(seeds)
    values, counts = np.unique(indices, return_counts=True)
    if len(values) < len(indices):
        raise ValueError(f"seeds must differ, but {values[np.argmax(counts)]} is among them {np.max(counts)} times")
    return indices


def _leading_axis(policies: Policy) -> int:
    """The length of the leading axis that all numbers of a batch of policies share."""
    shapes = [leaf.shape for leaf in jax.tree.leaves(eqx.filter(policies, eqx.is_array))]
    length = shapes[0][0] if shapes and shapes[0] else 0
    if length == 0 or any(shape[:1] != (length,) for shape in shapes):
        raise ValueError(f"policies must have one leading axis of seeds, but their numbers have shapes {shapes}")
    return int(length)


def _seed_indices(seeds: int | Sequence[int]) -> Int[np.ndarray, " seeds"]:
    if isinstance(seeds, (int, np.integer)):
        seeds = validate.count("seeds", seeds)
        validate.memory(f"a list of {seeds:,} seeds", 8.0 * seeds, "use fewer seeds")
        return np.arange(seeds)
    if not isinstance(seeds, (Sequence, np.ndarray)) or np.ndim(seeds) == 0:
        raise ValueError(f"seeds must be a number of seeds or a list of them, but is {validate.shown(seeds)}")
    if len(seeds) == 0:
        raise ValueError("seeds must name at least one seed, but is empty")
    for seed in seeds:
        validate.seed("every seed", seed)
    return np.asarray(seeds)


def _numbers(module: eqx.Module) -> Float[np.ndarray, " numbers"]:
    leaves = jax.tree.leaves(eqx.filter(module, eqx.is_inexact_array))
    return np.concatenate([np.ravel(leaf) for leaf in leaves]) if leaves else np.zeros(0)
