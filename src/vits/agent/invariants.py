"""Properties of every possible state of an agent, checked when a state is loaded from a file.

The checks use the names of fields, so they apply to new algorithms too. They allow for rounding: a state that an agent
has learned is never refused.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from vits.agent.container import Damaged
from vits.algorithms.ensemble import Copies
from vits.algorithms.mixture import Statistics
from vits.history import History, SlidingHistory
from vits.history.paged import PagedHistory
from vits.policies import Policy
from vits.potentials import Prior
from vits.types import State

POSITIVE = ("weight", "shape", "scale")
"""Fields of positive numbers: the parameters of Dirichlet and inverse gamma distributions."""

PRECISIONS = ("precision", "bound")
"""Fields of symmetric, positive definite matrices."""

PLACES = ("theta", "members")
"""Fields of parameters themselves."""

SLACK = 100.0
"""The largest rounding error of parameters, in prior standard deviations. Updates are rejected long before."""

WIDER = 1e6
"""The largest width of a posterior relative to the prior's. With a log-concave likelihood it is below 1."""

SYMMETRY = 1e-3
"""Relative asymmetry that rounding may cause."""

OVERCOUNT = 2.0
"""The largest factor by which rounding can raise a sum of responsibilities."""

PROBES = 4


def check(
    state: State, policy: Policy, *, observations: int, rows: int, dim: int, reward_range: tuple[float, float]
) -> None:
    """Raise `Damaged` unless an agent can be in this state.

    Args:
        state: the state, its leaves NumPy arrays.
        policy: the policy of the state.
        observations: the number of observations that the agent has learned.
        rows: the number of them that it stores, if it stores all.
        dim: the number of features.
        reward_range: the rewards that the model allows.
    """
    precisions, deviations = _scale(policy)
    for name, node in list(_nodes("the state", state)):  # all numbers are known to be finite before any is used
        if isinstance(node, History):
            longest_menu = node.features.shape[-2 if node.by_columns else -1] // dim
            ranges = {"rounds": (1.0, float(longest_menu)), "copies": (-np.inf, np.inf)}
            _check_history(node, rows, ranges.get(name, reward_range))
        parts = _parts(node)
        seen = parts.get("seen")
        if isinstance(seen, np.ndarray) and not np.all((seen >= 0) & (seen <= observations)):
            raise Damaged(f"the state counts other observations than the {observations} that were learned")
        if {"mean", "sqrt_cov"} <= set(parts) and "scale" not in parts:
            _check_resolved(parts["mean"], np.linalg.norm(parts["sqrt_cov"].astype(float), axis=-1), deviations)
        if {"mean", "deviations", "factor"} <= set(parts):
            _check_columns(parts["mean"], parts["deviations"], parts["factor"], deviations)
        if {"diagonal", "factor"} <= set(parts):
            diagonal = parts["diagonal"]
            if not np.all(diagonal > 0):
                raise Damaged("the diagonal of a precision must be positive")
            mean = parts.get("mean", np.zeros_like(diagonal))
            _check_resolved(mean, 1.0 / np.sqrt(diagonal.astype(float)), deviations)
        if {"history", "folded"} <= set(parts) and isinstance(parts["folded"], Statistics):
            _check_folded(parts["folded"], parts["history"], precisions)
        if {"base", "rounds"} <= set(parts) and len({int(count) for count in _counts(node)}) > 1:
            raise Damaged("the rounds of a state must be those of its observations")
        if {"count", "mu", "nu"} <= set(parts) and not (np.all(parts["count"] >= 0) and np.all(parts["nu"] >= 0)):
            raise Damaged("the steps and the squared gradients of an optimiser must not be negative")
        if {"sqrt_cov", "sqrt_precision"} <= set(parts):
            _check_inverse(parts["sqrt_cov"], parts["sqrt_precision"])
        if {"sqrt_cov", "precision"} <= set(parts):
            _check_inverse(parts["sqrt_cov"], parts["precision"].astype(float) @ parts["sqrt_cov"])
        for field in set(parts) & set(PLACES):
            _check_place(parts[field], deviations)
        if {"mean", "rounding"} <= set(parts):
            _check_place(parts["rounding"], deviations)
        if {"precision", "linear"} <= set(parts):
            diagonal = np.diagonal(parts["precision"], axis1=-2, axis2=-1)
            _check_linear(diagonal.astype(float), parts["linear"], deviations)
        if "prior_tilts" in parts:
            _check_linear(precisions, parts["prior_tilts"], deviations)
        for field in set(parts) & set(PRECISIONS):
            if parts[field] is not None:
                _check_positive_definite(parts[field])
        for field in set(parts) & set(POSITIVE):
            if not np.all(parts[field] > 0):
                raise Damaged(f"{field} must be positive")


def _nodes(name: str, node: Any) -> Iterator[tuple[str, Any]]:
    """All named tuples and histories of a state, with the field each is in. All numbers are checked to be finite."""
    if isinstance(node, np.ndarray):
        largest = np.sqrt(np.finfo(node.dtype).max) if node.dtype.kind == "f" else np.inf
        if not np.all(np.abs(node) < largest):  # false for a NaN
            raise Damaged(f"{name} must be finite, and so must be its square")
        return
    if isinstance(node, Copies):
        yield from _nodes("copies", node.data)
        return
    parts = _parts(node)
    if parts:
        yield name, node
    elif isinstance(node, (tuple, list)):
        parts = {f"{name} {i}": part for i, part in enumerate(node)}
    for field, part in parts.items():
        inherited = name if name == "copies" else field
        yield from _nodes(inherited, part)


def _counts(state: Any) -> Iterator[Any]:
    """The numbers of observations that the parts of a state have seen."""
    for _, node in _nodes("the state", state):
        if isinstance(seen := _parts(node).get("seen"), np.ndarray):
            yield seen


def _parts(node: Any) -> dict[str, Any]:
    if isinstance(node, tuple) and hasattr(node, "_asdict"):
        return dict(node._asdict())
    return dict(vars(node)) if isinstance(node, History) else {}


class _Scale(NamedTuple):
    """The diagonal of a policy's prior precision, and the standard deviation of each parameter under the prior."""

    precisions: Float[np.ndarray, " params"]
    deviations: Float[np.ndarray, " params"]


def _scale(policy: Policy) -> _Scale:
    """The scale of the parameters; empty for a policy without a prior."""
    found = [node for node in jax.tree.leaves(policy, is_leaf=_is_prior) if _is_prior(node)]
    if not found:
        return _Scale(np.zeros(0), np.zeros(0))
    mean, precision = np.asarray(found[0].mean), np.asarray(found[0].precision, float)
    if precision.ndim < 2:
        if not np.all(precision > 0):
            raise Damaged("the precisions of a prior must be positive")
        diagonal = np.broadcast_to(precision, mean.shape)
        return _Scale(diagonal, np.sqrt(1.0 / diagonal))
    _check_positive_definite(precision)
    diagonal = np.diagonal(precision)
    try:
        variances = np.diagonal(np.linalg.inv(precision))
    except np.linalg.LinAlgError:
        raise Damaged("its prior is singular") from None
    return _Scale(diagonal, np.sqrt(np.maximum(variances, 1.0 / diagonal)))


def _is_prior(node: Any) -> bool:
    return isinstance(node, Prior)


def _check_resolved(
    mean: Float[np.ndarray, "*n params"],
    deviations: Float[np.ndarray, "*n params"],
    prior: Float[np.ndarray, " params"],
) -> None:
    if not np.all((deviations > 0) & (np.finfo(mean.dtype).eps * np.abs(mean) <= deviations)):
        raise Damaged("the deviations of a posterior must be positive, and not lost in the rounding of its mean")
    if not np.all(deviations <= WIDER * np.max(prior)):
        raise Damaged("a posterior is much wider than the prior")


def _check_columns(
    mean: Float[np.ndarray, "*n params"],
    deviations: Float[np.ndarray, "*n params"],
    factor: Float[np.ndarray, "*n rank params"],
    prior: Float[np.ndarray, " params"],
) -> None:
    """A covariance that is a diagonal plus few columns."""
    if not np.all(deviations > 0):
        raise Damaged("the deviations of a posterior must be positive")
    variances = np.square(deviations.astype(float)) + np.sum(np.square(factor.astype(float)), axis=-2)
    _check_resolved(mean, np.sqrt(variances), prior)


def _check_place(theta: Float[np.ndarray, "*n params"], prior: Float[np.ndarray, " params"]) -> None:
    """Parameters so far out that their rounding is larger than the whole prior cannot be learned."""
    if not np.all(np.finfo(theta.dtype).eps * np.abs(theta) <= SLACK * prior):
        raise Damaged("parameters are farther out than their precision allows")


def _check_linear(
    precisions: Float[np.ndarray, "*m params"],
    linear: Float[np.ndarray, "*n params"],
    prior: Float[np.ndarray, " params"],
) -> None:
    """The same for a mode P^-1 b: |b_i| <= sqrt(P_ii) sum_j sqrt(P_jj) |theta_j|."""
    roots = np.sqrt(np.maximum(precisions, 0.0))
    farthest = SLACK / np.finfo(linear.dtype).eps * np.sum(roots * prior, axis=-1, keepdims=True)
    if not np.all(np.abs(linear) <= roots * farthest):
        raise Damaged("the mode of a posterior is farther out than its precision allows")


def _check_inverse(
    sqrt_cov: Float[np.ndarray, "*n params params"], transposed: Float[np.ndarray, "*n params params"]
) -> None:
    """D' B must be near the identity. A few products with random vectors show that without forming D' B."""
    B, D = sqrt_cov.astype(float), transposed.astype(float)
    probes = np.random.default_rng(0).standard_normal((B.shape[-1], PROBES))
    error = np.swapaxes(D, -1, -2) @ (B @ probes) - probes
    if not np.all(np.linalg.norm(error, axis=-2) <= np.linalg.norm(probes, axis=-2)):
        raise Damaged("the covariance and the precision of a posterior must belong together")


def _check_folded(folded: Statistics, history: SlidingHistory, precisions: Float[np.ndarray, " params"]) -> None:
    """Sums over the observations that have left a history, each with responsibilities that add up to 1."""
    count = np.maximum(np.asarray(history.seen) - history.capacity, 0)
    total, square, diagonal = (np.asarray(x) for x in (folded.total, folded.square, folded.gram))
    diagonal = np.diagonal(diagonal, axis1=-2, axis2=-1)
    if not (np.all(total >= 0) and np.all(square >= 0) and np.all(diagonal >= 0)):
        raise Damaged("sums of responsibilities and of squares must not be negative")
    if not np.all(np.sum(total, axis=-1, dtype=float) <= OVERCOUNT * count):
        raise Damaged("the responsibilities of an observation must add up to 1")
    # With the prior: where responsibilities underflow, rounding is larger than the sums.
    _check_positive_definite(np.asarray(folded.gram, float) + np.diag(precisions))


def _check_positive_definite(matrix: Float[np.ndarray, "*n params params"]) -> None:
    """Check symmetry and the minors of two rows, which takes time proportional to the size of the matrix."""
    matrix = matrix.astype(float)
    diagonal = np.diagonal(matrix, axis1=-2, axis2=-1)
    largest = np.sqrt(np.maximum(diagonal, 0.0))
    bound = largest[..., :, None] * largest[..., None, :]
    symmetric = np.abs(matrix - np.swapaxes(matrix, -1, -2)) <= SYMMETRY * bound
    if not (np.all(diagonal > 0) and np.all(symmetric) and np.all(np.abs(matrix) <= (1 + SYMMETRY) * bound)):
        raise Damaged("a precision matrix must be symmetric and positive definite")


def _check_history(history: History, rows: int, reward_range: tuple[float, float]) -> None:
    seen: Any = history.seen
    if np.any(seen < 0) or (not isinstance(history, SlidingHistory) and np.any(seen > history.capacity)):
        raise Damaged("a history must hold between no and all of its rows")
    if isinstance(history, PagedHistory):
        _check_pages(history)
        filled = _filled_pages(history)
    else:
        count = np.minimum(seen, history.capacity)
        filled = np.arange(history.rewards.shape[-1]) < np.asarray(count)[..., None]
    held = np.sum(seen) if isinstance(history, PagedHistory) else seen
    if not isinstance(history, SlidingHistory) and np.any(held != rows):
        raise Damaged(f"its histories must hold the {rows} observations that are stored")
    _check_rows(history, filled, reward_range)


def _check_rows(history: History, filled: Bool[np.ndarray, "*n rows"], reward_range: tuple[float, float]) -> None:
    """Empty rows are zero, and others hold features whose squares are finite and rewards that the model allows."""
    rewards: Any = history.rewards
    features: Any = np.swapaxes(history.features, -1, -2) if history.by_columns else history.features
    with np.errstate(over="ignore"):
        lengths = np.sum(np.square(features), axis=-1, dtype=features.dtype)
    least, most = reward_range
    allowed = np.isfinite(lengths) & (rewards >= least) & (rewards <= most)
    if not np.all(np.where(filled, allowed, (lengths == 0) & (rewards == 0))):
        raise Damaged("a history must hold possible observations in its filled rows, and zeros in all others")


def _check_pages(history: PagedHistory) -> None:
    """The rows of every arm must be on its own pages, linked from the last one to the first."""
    block, pages = history.block, len(history.owner)
    parts = (history.seen, history.last, history.arm, history.owner, history.start, history.previous)
    seen, last, arm, owner, start, previous = (np.asarray(part, np.int64) for part in parts)
    used = int(history.used)
    in_range = 0 <= used <= pages and all(np.all((x >= 0) & (x < pages)) for x in (last, previous))
    if not (in_range and np.all((owner >= 0) & (owner < len(seen))) and np.array_equal(arm, np.arange(len(seen)))):
        raise Damaged("the pages of a history must exist")
    if not np.all(start[used:] >= history.capacity):
        raise Damaged("pages that are not used must be empty")
    order = np.lexsort((start[:used], owner[:used]))
    owners = owner[order]
    needed = -(-seen // block)
    first = np.cumsum(needed) - needed
    rank = np.arange(used) - first[owners] if used else order
    links = np.where(rank == 0, order, np.concatenate([order[:1], order[:-1]]))
    if (
        not np.array_equal(np.bincount(owners, minlength=len(seen)), needed)
        or not np.array_equal(start[order], rank * block)
        or not np.array_equal(previous[order], links)
        or not np.array_equal(last[seen > 0], order[(first + needed - 1)[seen > 0]])
    ):
        raise Damaged("the pages of a history must hold the rows of its arms")


def _filled_pages(history: PagedHistory) -> Bool[np.ndarray, " rows"]:
    start, owner, seen = (np.asarray(part, np.int64) for part in (history.start, history.owner, history.seen))
    page: Int[np.ndarray, " pages"] = np.arange(len(owner))
    rows: Shaped[np.ndarray, "pages block"] = start[:, None] + np.arange(history.block)[None, :]
    return ((page < int(history.used))[:, None] & (rows < seen[owner][:, None])).ravel()
