"""The fault campaign: every algorithm, every fault, in both precisions, plain, compiled and in a batch.

Every case must end in one of the first four ways, never in the fifth:

    right      the posterior is that of all data
    refused    a named error, before anything changed
    recovered  an update was rejected (the state is bit for bit as before) or repaired, which is counted, and the
               posterior is that of all other data
    reported   the posterior is wrong, and the diagnostics of the rounds say so: steps too long, or cut
    silent     the posterior is wrong, and nothing says so
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import vits
from trust.cases import ALGORITHMS, FAULTS, HALF, Fault, ordinary, played
from trust.oracles import Evidence, verdict
from vits import algorithms
from vits.types import Observation

OUTCOMES = ("right", "refused", "recovered", "reported", "silent")
PRECISIONS = (False, True)
MODES = ("plain", "jit", "vmap")
JAX_REFUSES = ("Error interpreting argument", "is not a valid JAX array type")
"""Errors of JAX for arguments that are not arrays of numbers."""

FORGET = 100
"""Compiled programs are dropped after this many cases, because a process can map only a limited number."""

CAPACITY = 64
BATCH = 3
"""Members of a batch; the fault is in the middle one."""


class Case(NamedTuple):
    """One cell of the campaign."""

    algorithm: str
    fault: Fault
    is_double: bool
    mode: str

    def __str__(self) -> str:
        precision = "float64" if self.is_double else "float32"
        return f"{self.algorithm}, {self.fault.name}, {precision}, {self.mode}"


class Result(NamedTuple):
    """How it ended, and why."""

    case: Case
    outcome: str
    reason: str


class Round(NamedTuple):
    """The diagnostics of an update, and whether it left the state bit for bit as it was."""

    info: Any
    unchanged: Any


def cases(algorithms: Iterable[str] = ALGORITHMS, faults: Iterable[Fault] = FAULTS) -> list[Case]:
    """All cases in which the fault applies."""
    grid = itertools.product(PRECISIONS, algorithms, faults, MODES)
    return [Case(a, fault, double, mode) for double, a, fault, mode in grid if fault.applies(a)]


def run(selected: Iterable[Case], build: Callable[..., Any] = vits.make) -> Iterator[Result]:
    """The outcome of every case; `build` makes the policies."""
    for number, case in enumerate(selected):
        if number % FORGET == FORGET - 1:
            jax.clear_caches()  # type: ignore[no-untyped-call]
        with jax.enable_x64(case.is_double):
            yield Result(case, *_outcome(case, build))


def table(results: Iterable[Result], by: Callable[[Result], str]) -> dict[str, Counter[str]]:
    """Outcomes counted by the key that `by` returns."""
    counts: dict[str, Counter[str]] = {}
    for result in results:
        counts.setdefault(by(result), Counter())[result.outcome] += 1
    return counts


def _outcome(case: Case, build: Callable[..., Any]) -> tuple[str, str]:
    fault = case.fault
    settings = dict(fault.settings(case.algorithm) or {})
    try:
        policy = build(case.algorithm, _model(fault), **settings, **_needed(case))
        found = _play(case, policy)
    except ValueError as error:
        return "refused", str(error)
    except TypeError as error:
        if any(words in str(error) for words in JAX_REFUSES):
            return "refused", str(error).splitlines()[0]
        return "silent", f"an error without a name: {str(error).splitlines()[0]}"
    return _judged(case, policy, found)


class Found(NamedTuple):
    """The result of a run: the rounds, the states at its start and end, and whether the neighbours were disturbed."""

    rounds: Round
    start: Any
    end: Any
    features: Any
    rewards: Any
    disturbed: bool
    choice: Any


def _play(case: Case, policy: Any) -> Found:
    clean = ordinary(case.fault.dim, case.fault.arms, case.fault.model)
    spoiled = case.fault.history(clean)
    keys = jax.random.split(jax.random.key(1), 2 * HALF + 1)
    start = _start(policy, jax.random.key(0))
    menu = clean.arms[-1] if case.fault.menu is None else case.fault.menu(clean.arms[-1])
    rows = _observations(spoiled)
    middle = _poisoned(case.fault, rows)
    if case.mode == "vmap":
        rounds, end, disturbed = _in_a_batch(policy, start, keys, rows, middle, _observations(clean))
    else:
        before, after = (jax.tree.map(lambda x, s=s: x[s], (keys, rows)) for s in (slice(HALF), slice(HALF + 1, None)))
        state, first = _learn(policy, start, *before)
        step = _step if case.mode == "plain" else _compiled_step
        state, second = step(policy, state, keys[HALF], middle)
        end, third = _learn(policy, state, *after)
        second = jax.tree.map(lambda x: jnp.asarray(x)[None], second)
        rounds, disturbed = jax.tree.map(lambda *x: jnp.concatenate(x), first, second, third), False
    features, rewards = np.array(rows.features, np.float64), np.array(rows.reward, np.float64)
    features[HALF], rewards[HALF] = (np.asarray(x, np.float64) for x in (middle.features, middle.reward))
    choice = _choose(policy, end, menu, compiled=case.mode != "plain")
    return Found(rounds, start, end, features, rewards, disturbed, choice)


def _in_a_batch(policy: Any, start: Any, keys: Any, rows: Any, middle: Any, clean: Any) -> tuple[Round, Any, bool]:
    """A batch with the fault in the middle; `disturbed` says that its neighbours differ from a run without it."""
    if jax.tree.map(jnp.shape, middle) != jax.tree.map(lambda x: x.shape[1:], rows) or not _all_floats(middle):
        _vmapped_step(policy, jax.tree.map(lambda x: jnp.stack([x] * BATCH), start), keys[HALF], _repeated(middle))
    poisoned = jax.tree.map(lambda all_rows, row: all_rows.at[HALF].set(jnp.asarray(row, all_rows.dtype)), rows, middle)
    starts = jax.tree.map(lambda x: jnp.stack([x] * BATCH), start)
    mixed, pure = (jax.tree.map(lambda a, b: jnp.stack([a, b, a]), clean, inner) for inner in (poisoned, clean))
    end, rounds = _learn_batch(policy, starts, keys, mixed)
    end_pure, rounds_pure = _learn_batch(policy, starts, keys, pure)
    with_it, without_it = (
        jax.tree.map(lambda x: x[np.array([0, 2])], tree) for tree in ((end, rounds), (end_pure, rounds_pure))
    )
    return *jax.tree.map(lambda x: x[1], (rounds, end)), not bool(_same(with_it, without_it))


def _judged(case: Case, policy: Any, found: Found) -> tuple[str, str]:
    info, unchanged = found.rounds
    rejected = np.asarray(info.rejected)
    unscored = int(found.choice.unscored)
    if found.disturbed:
        return "silent", "the neighbours in the batch were disturbed"
    if np.any(rejected & ~np.asarray(unchanged)):
        return "silent", "a rejected update changed the state"
    if case.algorithm != "uniform" and (case.fault.menu is not None) != (unscored > 0):
        return "silent", f"{unscored} arms without a score went unnoticed"
    if case.algorithm != "uniform" and 0 < unscored < case.fault.arms and int(found.choice.action) == 0:
        return "silent", "an arm without a score was played"
    kept = ~rejected
    history = case.fault.history(ordinary(case.fault.dim, case.fault.arms, case.fault.model))
    settings = dict(case.fault.settings(case.algorithm) or {})
    eta = settings.get("inverse_temperature", 1.0)
    seen = Evidence(
        features=found.features[kept],
        rewards=found.rewards[kept],
        actions=(np.arange(len(kept)) % case.fault.arms)[kept],
        rounds_arms=history.arms[kept],
        steps=np.asarray(info.step, np.float64)[kept],
        start=found.start,
        end=found.end,
        posterior=getattr(policy, "posterior", None),
        eta=eta,
        precision=eta * settings.get("prior_precision", 1.0),
        is_double=case.is_double,
        model=case.fault.model,
    )
    is_right, reason = verdict(case.algorithm, seen)
    told = np.any(np.asarray(info.step_capped) | (np.asarray(info.stiffness) >= 1.0))
    if not is_right:
        return ("reported" if told else "silent"), reason
    mended = np.any(rejected | np.asarray(info.refreshed)) or unscored > 0
    return ("recovered" if mended else "right"), reason


def _model(fault: Fault) -> Any:
    return vits.models.linear(fault.dim) if fault.model == "linear" else vits.models.logistic(fault.dim)


def _needed(case: Case) -> dict[str, Any]:
    """The hyperparameters that an algorithm requires."""
    sizes = {"num_arms": case.fault.arms, "capacity": CAPACITY}
    return {name: size for name, size in sizes.items() if name in algorithms.hyperparameters(case.algorithm)}


def _observations(history: Any) -> Observation:
    arms = jnp.asarray(history.arms, float)
    actions = jnp.arange(len(history.rewards)) % arms.shape[1]
    features = jnp.asarray(played(history.arms), float)
    return Observation(features, jnp.asarray(history.rewards, float), actions, arms)


def _poisoned(fault: Fault, rows: Observation) -> Observation:
    """The observation in the middle, with the fault."""
    row = jax.tree.map(lambda x: x[HALF], rows)
    if fault.observation is None:
        return row
    features, reward = fault.observation(np.asarray(row.features, np.float64), np.asarray(row.reward, np.float64))
    with np.errstate(over="ignore"):
        as_given = [x.astype(row.reward.dtype) if x.dtype == np.float64 else x for x in (features, np.asarray(reward))]
    arms = row.arms if features.shape != row.features.shape else row.arms.at[row.action].set(jnp.asarray(row.features))
    return row._replace(features=as_given[0], reward=as_given[1], arms=arms)


def _all_floats(observation: Observation) -> bool:
    return all(x.dtype.kind == "f" for x in (observation.features, observation.reward))


def _repeated(observation: Observation) -> Observation:
    return jax.tree.map(lambda x: np.stack([x] * BATCH), observation)


def _same(first: Any, second: Any) -> Any:
    """Whether two trees are equal bit for bit, NaN to NaN."""
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return jnp.all(jnp.asarray([True, *(jnp.array_equal(a, b, equal_nan=_is_float(a)) for a, b in pairs)]))


def _is_float(leaf: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(leaf), jnp.inexact))


def _step(policy: Any, state: Any, key: Any, observation: Any) -> tuple[Any, Round]:
    new, info = policy.update(key, state, observation)
    return new, Round(info, _same(new, state))


def _scan(policy: Any, state: Any, keys: Any, rows: Any) -> tuple[Any, Round]:
    return jax.lax.scan(lambda state, row: _step(policy, state, *row), state, (keys, rows))


_start = eqx.filter_jit(lambda policy, key: policy.init(key))
_learn = eqx.filter_jit(_scan)
_compiled_step = eqx.filter_jit(_step)
_vmapped_step = eqx.filter_vmap(_step, in_axes=(None, 0, None, 0))
_learn_batch = eqx.filter_jit(eqx.filter_vmap(_scan, in_axes=(None, 0, None, 0)))
_compiled_choose = eqx.filter_jit(lambda policy, state, menu: policy.choose(jax.random.key(2), state, menu))


def _choose(policy: Any, state: Any, menu: Any, *, compiled: bool) -> Any:
    arms = jnp.asarray(menu, float)
    return _compiled_choose(policy, state, arms) if compiled else policy.choose(jax.random.key(2), state, arms)
