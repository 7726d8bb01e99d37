"""The compiled programs of agents, shared by all agents with the same settings, and the noise of decisions.

An application asks for one decision at a time, so the fixed cost of a call matters. A program takes only plain arrays;
everything else is fixed when it is compiled. A choice gets only the arrays that it depends on, never the history.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vits import linalg
from vits.inference.base import draws_by_noise
from vits.models import Glm
from vits.policies import Policy, Thompson
from vits.types import Observation, State

Arrays = tuple[Any, ...]
Shapes = tuple[tuple[tuple[int, ...], str], ...]

PROGRAMS = 256
"""The number of programs of each kind that are kept; the least recently used ones are dropped."""

WIDE = 10_000
"""With more parameters draws are made one after the other: many at once would not fit into memory."""

ROWS, NUMBERS = 128, 1 << 16
"""The largest number of decisions whose noise is drawn at once, and the largest number of normals drawn at once."""

LAPACK = threading.RLock()
"""Held by programs of which only one may run at a time: those that call LAPACK for batches, or may (`vits.linalg`)."""

_NO_LOCK = contextlib.nullcontext()

_SEQUENTIAL = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


@functools.cache
def supported_options() -> dict[str, str]:
    """The compiler options that this version of XLA knows: all of `_SEQUENTIAL`, or none."""
    try:
        jax.jit(lambda x: x, compiler_options=_SEQUENTIAL).lower(0.0).compile()
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        return {}
    return _SEQUENTIAL


def one_by_one(function: Callable[..., Any]) -> Any:
    """Compile a function to run its operations one after the other, because each is too short for another thread."""
    return jax.jit(function, compiler_options=supported_options())


_HOLE = object()


class Skeleton(NamedTuple):
    """A pytree without its arrays: what a program is compiled for."""

    structure: Any
    fixed: tuple[Any, ...]

    def filled(self, arrays: Sequence[Any]) -> Any:
        """The pytree with these arrays."""
        rest = iter(arrays)
        return jax.tree.unflatten(self.structure, [next(rest) if part is _HOLE else part for part in self.fixed])


def take_apart(tree: Any) -> tuple[Skeleton, Arrays]:
    """The skeleton and the arrays of a pytree."""
    leaves, structure = jax.tree.flatten(tree)
    skeleton = Skeleton(structure, tuple(_HOLE if eqx.is_array(leaf) else leaf for leaf in leaves))
    return skeleton, tuple(leaf for leaf in leaves if eqx.is_array(leaf))


def shapes_of(arrays: Sequence[Any]) -> Shapes:
    """The shapes and dtypes of arrays, as a hashable value."""
    return tuple((tuple(array.shape), str(array.dtype)) for array in arrays)


@eqx.filter_jit
def _init(policy: Policy, key: Array) -> State:
    return policy.init(key)


def initial_state(policy: Policy, key: Array) -> State:
    """The state of a policy before the first round."""
    with LAPACK:
        state = _init(policy, key)
        for leaf in jax.tree.leaves(state):
            leaf.block_until_ready()
        return state


class Chooser(NamedTuple):
    """The compiled programs that score arms.

    `reads` are the positions, among the arrays of policy and state, of those that a score depends on: the `view`.
    `score(view, key, number, features)` scores arms under the posterior draw of decision `number`;
    `draws(view, key, number, features, samples)` under many draws. `gaussian` are the positions of mean and square root
    of the covariance in the view, where a score is phi' (mean + B eps): NumPy computes that in less time than the call
    of a compiled program takes.
    """

    reads: tuple[int, ...]
    score: Callable[..., Any]
    draws: Callable[..., Any]
    gaussian: tuple[int, int] | None

    def view(self, policy: Arrays, state: Arrays) -> Arrays:
        """The arrays that scores depend on."""
        everything = (*policy, *state)
        return tuple(everything[i] for i in self.reads)


INDIFFERENT = Chooser(
    reads=(),
    score=lambda view, key, number, features: np.zeros(len(features), features.dtype),
    draws=lambda view, key, number, features, samples: np.zeros((samples, len(features))),
    gaussian=None,
)
"""For a policy without scores: all arms have the same score."""


@functools.lru_cache(maxsize=PROGRAMS)
def chooser(policy: Skeleton, state: Skeleton, shapes: Shapes, rows: tuple[int, int]) -> Chooser:
    """The programs for a policy and a state of this build, whose arrays have these shapes."""
    num_policy = policy.fixed.count(_HOLE)
    dtype = str(jnp.zeros(()).dtype)

    def parts(arrays: Sequence[Any]) -> tuple[Any, State]:
        return policy.filled(arrays[:num_policy]), state.filled(arrays[num_policy:])

    def scores(arrays: Sequence[Any], key: Array, features: Array) -> Array:
        agent, now = parts(arrays)
        return agent.scores(key, now, features)

    like = _like(shapes)
    traced = jax.make_jaxpr(scores)(like, jax.random.key(0), *_like(((rows, dtype),))).jaxpr
    used = {id(variable) for equation in traced.eqns for variable in equation.invars}
    reads = tuple(i for i, variable in enumerate(traced.invars[: len(like)]) if id(variable) in used)

    def whole(view: Sequence[Any]) -> list[Any]:
        arrays: list[Any] = [jnp.zeros(shape, name) for shape, name in shapes]  # unused
        for i, array in zip(reads, view, strict=True):
            arrays[i] = array
        return arrays

    @one_by_one
    def score(view: Arrays, key: Array, number: Array, features: Array) -> Array:
        return scores(whole(view), decision_key(key, number), features)

    @functools.partial(jax.jit, static_argnums=4)
    def draws(view: Arrays, key: Array, number: Array, features: Array, samples: int) -> Array:
        keys = jax.random.split(decision_key(key, number), samples)

        def under(key: Array) -> Array:
            return scores(whole(view), key, features)

        return jax.lax.map(under, keys) if agent.model.num_params > WIDE else jax.vmap(under)(keys)

    agent, _ = parts(like)
    gaussian = None
    if isinstance(agent, Thompson) and isinstance(agent.model, Glm) and draws_by_noise(agent.posterior):
        positions = state.filled(range(num_policy, len(shapes)))
        gaussian = reads.index(positions.mean), reads.index(positions.sqrt_cov)
    return Chooser(reads, score, draws, gaussian)


def as_number(number: int) -> np.uint32:
    """The number of a decision or of an update as programs take it."""
    return np.uint32(number & 0xFFFFFFFF)


def decision_key(key: Array, number: Array) -> Array:
    """The key of the decision, or the update, of this number, from the data of an agent's key."""
    return jax.random.fold_in(jax.random.wrap_key_data(key), number)


class Block(NamedTuple):
    """The noise of decision `first` and of those after it, one in each row."""

    first: int
    rows: Float[np.ndarray, "rows params"]


class Noise:
    """eps ~ N(0, I) for every decision of an agent, from the key of its decisions.

    It depends on the number of the decision and not on the posterior, so it is drawn for many decisions at once.
    """

    def __init__(self, key: Array, num_params: int, dtype: Any) -> None:
        self.key = key
        self._shape = min(ROWS, max(1, NUMBERS // num_params)), num_params
        self._dtype = str(dtype)
        self._block = Block(-1, np.zeros((0, num_params)))

    def of(self, number: int) -> Float[np.ndarray, " params"]:
        """The noise of one decision. Threads need no lock: a block has the same numbers whenever it is drawn."""
        first = number - number % self._shape[0]
        block = self._block
        if block.first != first:
            rows = _noise_program(*self._shape, self._dtype)(self.key, as_number(first))
            block = self._block = Block(first, np.asarray(rows))
        return block.rows[number - first]


@functools.lru_cache(maxsize=PROGRAMS)
def _noise_program(rows: int, num_params: int, dtype: str) -> Any:
    @one_by_one
    def noise(key: Array, first: Array) -> Array:
        keys = jax.vmap(lambda i: decision_key(key, first + i))(jnp.arange(rows, dtype=jnp.uint32))
        return jax.vmap(lambda key: jax.random.normal(key, (num_params,), dtype))(keys)

    return noise


class Batch(NamedTuple):
    """Observations to learn from, row by row.

    `actions` are the posteriors that they belong to, if each arm has its own. `menus` are all arms of each round, and
    `offered` is their number.
    """

    features: Any
    rewards: Any
    actions: Any = None
    menus: Any = None
    offered: Any = None

    def chunk(self, first: int, size: int) -> "Batch":
        """`size` rows from `first` on, padded with zeros."""

        def cut(rows: Any) -> Any:
            part = rows[first : first + size]
            return np.concatenate([part, np.zeros((size - len(part), *part.shape[1:]), part.dtype)])

        return jax.tree.map(cut, self)

    def row(self, i: Any) -> Observation:
        """One observation."""
        action = 0 if self.actions is None else self.actions[i]
        menu, offered = (None, None) if self.menus is None else (self.menus[i], self.offered[i])
        return Observation(self.features[i], self.rewards[i], action, menu, offered)


class Report(NamedTuple):
    """How many updates were rejected, capped or repaired; the first row that was rejected (-1 if none was), and why."""

    rejected: int
    step_capped: int
    refreshed: int
    first_rejected: int
    reason: int

    def plus(self, other: "Report", first: int) -> "Report":
        """This report and the next one, which begins with row `first`."""
        bad = other.first_rejected if other.first_rejected < 0 else first + other.first_rejected
        return Report(
            rejected=self.rejected + other.rejected,
            step_capped=self.step_capped + other.step_capped,
            refreshed=self.refreshed + other.refreshed,
            first_rejected=self.first_rejected if self.first_rejected >= 0 else bad,
            reason=self.reason or other.reason,
        )


class Learner:
    """Updates: `one` takes a batch of one row, `many` the first `count` rows of a batch."""

    def __init__(self, one: Any, many: Any) -> None:
        self.one, self.many = one, many
        self._calls_batched_lapack: bool | None = None

    def __call__(
        self, policy: Arrays, state: Arrays, key: Array, number: Any, batch: Batch, count: Any = None
    ) -> tuple[Arrays, Report]:
        """The arrays of the state after the first `count` rows of a batch, or its only row, and the report."""
        arguments = policy, state, key, number, batch
        if self._calls_batched_lapack is None:
            first = jax.tree.map(lambda rows: rows[:1], batch)
            program = self.one.lower(*arguments[:-1], first).as_text()
            self._calls_batched_lapack = linalg.calls_batched_lapack(program)
        with LAPACK if self._calls_batched_lapack else _NO_LOCK:
            arrays, numbers = self.one(*arguments) if count is None else self.many(*arguments, count)
            return arrays, Report(*np.asarray(numbers).tolist())


@functools.lru_cache(maxsize=PROGRAMS)
def learner(policy: Skeleton, state: Skeleton) -> Learner:
    """The updates of a policy of this build."""

    def update(
        policy_arrays: Arrays, old: State, key: Array, number: Array, row: Observation
    ) -> tuple[State, Array, Array]:
        agent: Policy = policy.filled(policy_arrays)
        new, info = agent.update(decision_key(key, number), old, row)
        counts = jnp.stack([flag.astype(int) for flag in (info.rejected, info.step_capped, info.refreshed)])
        return new, counts, info.reason

    @one_by_one
    def one(
        policy_arrays: Arrays, state_arrays: Arrays, key: Array, number: Array, batch: Batch
    ) -> tuple[Arrays, Array]:
        new, found, reason = update(policy_arrays, state.filled(state_arrays), key, number, batch.row(0))
        return take_apart(new)[1], jnp.append(found, jnp.stack([-1 + found[0], reason]))

    @one_by_one
    def many(
        policy_arrays: Arrays, state_arrays: Arrays, key: Array, number: Array, batch: Batch, count: Array
    ) -> tuple[Arrays, Array]:
        def learn(i: Array, carry: tuple[State, Array, Array]) -> tuple[State, Array, Array]:
            old, total, first = carry
            new, found, reason = update(policy_arrays, old, key, number + i.astype(number.dtype), batch.row(i))
            failure = jnp.stack([i.astype(first.dtype), reason])
            return new, total + found, jnp.where((first[0] < 0) & (reason > 0), failure, first)

        start = state.filled(state_arrays), jnp.zeros(3, int), jnp.asarray([-1, 0])
        new, total, first = jax.lax.fori_loop(0, count, learn, start)
        return take_apart(new)[1], jnp.append(total, first)

    return Learner(one, many)


def _like(shapes: Shapes) -> tuple[Any, ...]:
    structs: Any = jax.ShapeDtypeStruct
    return tuple(structs(shape, name) for shape, name in shapes)
