"""References for the fault campaign: each algorithm is compared with a known result.

| algorithms | on the linear model | on the logistic model |
|---|---|---|
| lin_ts, lin_ucb, greedy, vits_ng, laplace_ts | the posterior from all data at once | its best Gaussian |
| vits_i, vits_ii, vits_ii_hf | the paper's recursion in double precision | the best Gaussian, roughly |
| lmc_ts, fg_ts | the law of the chain, a Gaussian | plausible under the best Gaussian |
| ensemble_ts | members are draws from the posterior | the same, roughly |
| vts | sums over components, which do not depend on how the data are shared out | |
| any other in the catalogue | every number of the state is finite | the same |

Observations that were rejected are not among the data.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from scipy import stats

from trust import reference
from trust.reference import Gaussian, Rows, Vector
from vits.algorithms.laplace import TOLERANCE as NEWTON
from vits.inference.variational import exact_inverse

RARE = 1e-7
"""A draw that is less probable than this counts as wrong: about one false alarm in a thousand campaigns."""

FIRST_ORDER = 0.35
"""Largest relative error of deviations, against the recursion with exact inverses, for a first-order inverse."""


class Evidence(NamedTuple):
    """The input of an oracle: the data accepted, the steps taken, and the state at the start and at the end."""

    features: Rows
    rewards: Vector
    actions: Vector
    rounds_arms: Float[np.ndarray, "n arms d"]
    steps: Vector
    start: Any
    end: Any
    posterior: Any
    eta: float
    precision: float
    """Of the prior: lambda eta."""
    is_double: bool
    model: str


def verdict(algorithm: str, seen: Evidence) -> tuple[bool, str]:
    """Whether a posterior is right, and its errors. Without a reference it does not count as right."""
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
            errors = ORACLES.get(algorithm, finite)(seen)
            worst = max(errors, key=lambda name: np.nan_to_num(np.divide(*errors[name]), nan=np.inf), default=None)
    except (reference.NotConverged, np.linalg.LinAlgError) as error:
        return False, f"there is no reference: {error}"
    if worst is None:
        return True, ""
    found, allowed = errors[worst]
    return bool(found <= allowed < np.inf), f"{worst} {found:.2g} (allowed: {allowed:.2g})"


Errors = dict[str, tuple[float, float]]
"""What was found and what is allowed, by name."""


def exact(seen: Evidence) -> Errors:
    """Mean and deviations against those from all data at once."""
    tolerance = 1e-6 if seen.is_double else 0.02
    truth = _best(seen, variational=False)
    if seen.model == "logistic":
        tolerance = 0.02
    return _compared(seen, truth, mean=tolerance, deviation=tolerance)


def newton(seen: Evidence) -> Errors:
    """As `exact`, but for the distance from the mode at which Newton's method stops."""
    tolerance = 0.02 if seen.model == "logistic" or not seen.is_double else 1e-6
    return _compared(seen, _best(seen, variational=False), mean=NEWTON + tolerance, deviation=NEWTON + tolerance)


def natural(seen: Evidence) -> Errors:
    """Against the recursion in double precision; two steps a round lag a little where the model is not linear."""
    if seen.model == "logistic":
        return _compared(seen, _best(seen, variational=True), mean=0.1, deviation=0.1)
    dim, tolerance = seen.features.shape[1], 1e-6 if seen.is_double else 0.02
    if np.all(seen.steps == 1.0):
        # Full steps arrive; all data at once also when the first few leave a wide prior singular.
        return _compared(seen, _best(seen, variational=False), mean=tolerance, deviation=tolerance)
    H, linear = seen.precision * np.eye(dim), np.zeros(dim)
    P, mean = H, np.zeros(dim)
    for phi, r, rho in zip(seen.features, seen.rewards, seen.steps, strict=True):
        H, linear = H + seen.eta * np.outer(phi, phi), linear + seen.eta * r * phi
        for _ in range(seen.posterior.num_steps):
            P = (1.0 - rho) * P + rho * H
            mean = mean - rho * np.linalg.solve(P, H @ mean - linear)
    return _compared(seen, Gaussian(mean, np.linalg.cholesky(P).T), mean=tolerance, deviation=tolerance)


def recursion(seen: Evidence) -> Errors:
    """Against the paper's recursion in double precision, with the steps that were reported."""
    if seen.model == "logistic":
        return _on_the_way(seen, _best(seen, variational=True))
    dim = seen.features.shape[1]
    P, linear = seen.precision * np.eye(dim), np.zeros(dim)
    mean, B = np.zeros(dim), np.eye(dim) / np.sqrt(seen.precision)
    for phi, r, h in zip(seen.features, seen.rewards, seen.steps, strict=True):
        P, linear = P + seen.eta * np.outer(phi, phi), linear + seen.eta * r * phi
        for _ in range(seen.posterior.num_steps):
            mean = mean - h * (P @ mean - linear)
            B = B - h * P @ B + h * np.linalg.inv(B).T
    has_exact_inverse = seen.posterior.inverse.step == exact_inverse.step
    tolerance = 1e-5 if seen.is_double else 0.03
    truth, deviation = Gaussian(mean, np.linalg.inv(B)), tolerance if has_exact_inverse else FIRST_ORDER
    return _compared(seen, truth, mean=tolerance, deviation=deviation)


def chain(seen: Evidence) -> Errors:
    """A draw from the law of the chain, which is Gaussian on the linear model, but for what the bonus adds."""
    dim, theta = seen.features.shape[1], np.asarray(seen.end.theta, np.float64)
    allowed = float(np.sqrt(stats.chi2.ppf(1.0 - RARE, dim)))
    if seen.model == "logistic":
        best = _best(seen, variational=True)
        away, at_first = (
            float(np.linalg.norm(best.root @ (np.asarray(place, np.float64) - best.mean)))
            for place in (theta, seen.start.theta)
        )
        return {"draw": (away, 1.5 * allowed + at_first)}
    P, linear = seen.precision * np.eye(dim), np.zeros(dim)
    mean, cov, shift = np.asarray(seen.start.theta, np.float64), np.zeros((dim, dim)), 0.0
    weight = float(getattr(seen.posterior.potential, "weight", 0.0))
    pull = 0.0
    for phi, r, h, arms in zip(seen.features, seen.rewards, seen.steps, seen.rounds_arms, strict=True):
        P, linear = P + seen.eta * np.outer(phi, phi), linear + seen.eta * r * phi
        pull += weight * float(np.max(np.linalg.norm(arms, axis=1)))
        forget = np.eye(dim) - h * P
        for _ in range(seen.posterior.num_steps):
            mean, cov = forget @ mean + h * linear, forget @ cov @ forget.T + 2.0 * h * np.eye(dim)
            shift = float(np.linalg.norm(forget, 2) * shift + h * pull)
    if len(seen.rewards) == 0:
        return {"draw": (float(np.linalg.norm(theta - mean)), 1e-9)}
    spectrum, axes = np.linalg.eigh(cov)
    off = np.linalg.norm((axes.T @ (theta - mean)) / np.sqrt(spectrum))
    rounding = 0.0 if seen.is_double else 0.1
    return {"draw": (float(off), allowed + rounding + shift / float(np.sqrt(spectrum[0])))}


def ensemble(seen: Evidence) -> Errors:
    """Members are independent draws from the posterior: none is far off, their mean is close, their spread is right."""
    members = np.asarray(seen.end.members, np.float64)
    count, dim = members.shape
    best = _best(seen, variational=False)
    whitened = (members - best.mean) @ best.root.T
    furthest = float(np.sqrt(stats.chi2.ppf(1.0 - RARE / count, dim)))
    rough = 1.0 if seen.model == "logistic" else NEWTON
    low, high = stats.chi2.ppf([RARE, 1.0 - RARE], count * dim) / (count * dim)
    spread = float(np.mean(np.square(whitened)))
    middle = float(np.linalg.norm(np.mean(whitened, axis=0)))
    return {
        "member": (float(np.max(np.linalg.norm(whitened, axis=1))), furthest * (1.0 + rough)),
        "mean of members": (middle, float(np.sqrt(stats.chi2.ppf(1.0 - RARE, dim) / count)) + rough),
        "spread": (abs(spread - 1.0), max(high - 1.0, 1.0 - low) + 2.0 * rough),
    }


def mixture(seen: Evidence) -> Errors:
    """Per arm, sum_k (V_k^-1 - V0^-1) = X'X and sum_k (V_k^-1 u_k - V0^-1 u0_k) = X'y, however rows are shared out."""
    factors, starts = seen.end.factors, np.asarray(seen.end.prior_mean, np.float64)
    dim, tolerance, errors = seen.features.shape[1], 1e-6 if seen.is_double else 0.02, {}
    for arm in range(starts.shape[0]):
        mine = seen.actions == arm
        truth = reference.linear(seen.features[mine], seen.rewards[mine], eta=1.0, precision=seen.precision)
        roots = np.linalg.inv(np.asarray(factors.sqrt_cov[arm], np.float64))
        precisions = np.einsum("kji,kjl->kil", roots, roots)
        means = np.asarray(factors.mean[arm], np.float64)
        gram = np.sum(precisions, axis=0) - len(means) * seen.precision * np.eye(dim)
        cross = np.einsum("kij,kj->i", precisions, means) - seen.precision * np.sum(starts[arm], axis=0)
        total = gram + seen.precision * np.eye(dim)
        try:
            # Not by eigenvalues: next to one of 1e20, rounding hides the others.
            root = np.linalg.cholesky(total)
        except np.linalg.LinAlgError:
            return {f"precision of arm {arm}": (np.inf, tolerance)}
        found = reference.distance(np.linalg.solve(total, cross), np.linalg.inv(root).T, truth)
        errors[f"mean of arm {arm}"] = found.mean, tolerance
        errors[f"deviations of arm {arm}"] = found.deviation, tolerance
        weights = float(np.sum(np.asarray(factors.weight[arm], np.float64)))
        errors[f"weights of arm {arm}"] = abs(weights - len(means) - np.sum(mine)), 1e-3
    return errors


def indifferent(seen: Evidence) -> Errors:
    """Nothing is learned, so there is nothing to compare."""
    return {}


def finite(seen: Evidence) -> Errors:
    """For an algorithm without a reference: no number of its state may be infinite or NaN."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(seen.end)]
    bad = sum(int(np.sum(~np.isfinite(leaf))) for leaf in leaves if leaf.dtype.kind == "f")
    return {"numbers that are not finite": (float(bad), 0.0)}


ORACLES: dict[str, Callable[[Evidence], Errors]] = {
    "vits_i": recursion,
    "vits_ii": recursion,
    "vits_ii_hf": recursion,
    "vits_ng": natural,
    "lin_ts": exact,
    "lin_ucb": exact,
    "lmc_ts": chain,
    "fg_ts": chain,
    "vts": mixture,
    "laplace_ts": newton,
    "ensemble_ts": ensemble,
    "greedy": newton,
    "uniform": indifferent,
}


def _best(seen: Evidence, *, variational: bool) -> Gaussian:
    if seen.model == "linear":
        return reference.linear(seen.features, seen.rewards, eta=seen.eta, precision=seen.precision)
    return reference.logistic(
        seen.features, seen.rewards, eta=seen.eta, precision=seen.precision, variational=variational
    )


def _on_the_way(seen: Evidence, truth: Gaussian) -> Errors:
    """First-order steps need not have converged; a twentieth of the divergence from the truth may remain."""
    dim = len(truth.mean)
    mean, sqrt_cov = (np.asarray(x, np.float64) for x in seen.posterior.moments(seen.end))
    left = reference.divergence(mean, sqrt_cov, truth)
    at_first = reference.divergence(np.zeros(dim), np.eye(dim) / np.sqrt(seen.precision), truth)
    return {"divergence": (left, 0.3 + 0.05 * at_first)}


def _compared(seen: Evidence, truth: Gaussian, *, mean: float, deviation: float) -> Errors:
    found_mean, sqrt_cov = (np.asarray(x, np.float64) for x in seen.posterior.moments(seen.end))
    if not (np.all(np.isfinite(found_mean)) and np.all(np.isfinite(sqrt_cov))):
        return {"posterior": (np.inf, mean)}
    found = reference.distance(found_mean, sqrt_cov, truth)
    return {"mean": (found.mean, mean), "deviations": (found.deviation, deviation)}
