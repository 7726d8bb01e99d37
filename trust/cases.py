"""The cases of the fault campaign: a history of ordinary rounds with one fault.

A fault may change the whole history, one observation in its middle, the menu of the round after it, or a
hyperparameter. Everything is made by NumPy in double precision, and rounded to the working precision later.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vits import algorithms, catalogue

DIM, ARMS, HALF = 4, 3, 12
"""Features, arms on offer, and rounds before and after the one in the middle."""

TINY = 1e-42
"""Smaller than every normal number of single precision."""


class History(NamedTuple):
    """All rounds: the arms on offer, and the reward of the one played, which is arm t modulo their number."""

    arms: Float[np.ndarray, "rounds arms dim"]
    rewards: Float[np.ndarray, " rounds"]


class Fault(NamedTuple):
    """One fault in a run."""

    name: str
    history: Callable[[History], History] = lambda history: history
    observation: Callable[[Any, Any], tuple[Any, Any]] | None = None
    """Replaces features and reward of the observation in the middle."""
    menu: Callable[[Float[np.ndarray, "arms dim"]], Any] | None = None
    """Replaces the arms on offer after the last round."""
    settings: Callable[[str], dict[str, Any] | None] = lambda name: {}
    """Hyperparameters for an algorithm; None if the fault does not apply to it."""
    model: str = "linear"
    dim: int = DIM
    arms: int = ARMS

    def applies(self, algorithm: str) -> bool:
        """Whether the fault applies to an algorithm."""
        row = catalogue.algorithm(algorithm)
        if self.model == "logistic" and (row.linear_only or not row.learns):
            return False
        return self.settings(algorithm) is not None


def ordinary(dim: int, arms: int, model: str) -> History:
    """Standard normal features, and rewards that follow the model."""
    rng = np.random.default_rng(5)
    features = rng.standard_normal((2 * HALF + 1, arms, dim))
    theta = np.linspace(-1.0, 1.0, dim) if dim > 1 else np.ones(1)
    f = played(features) @ theta
    if model == "logistic":
        return History(features, (rng.random(len(f)) < 1.0 / (1.0 + np.exp(-f))).astype(float))
    return History(features, f + rng.standard_normal(len(f)))


def played(arms: Float[np.ndarray, "rounds arms dim"]) -> Float[np.ndarray, "rounds dim"]:
    """The features of the arms played."""
    rounds = np.arange(len(arms))
    return arms[rounds, rounds % arms.shape[1]]


def _has(algorithm: str, *names: str) -> bool:
    return set(names) <= set(algorithms.hyperparameters(algorithm))


def _value(**values: Any) -> Callable[[str], dict[str, Any] | None]:
    return lambda algorithm: dict(values) if _has(algorithm, *values) else None


def _scaled_step(factor: float) -> Callable[[str], dict[str, Any] | None]:
    return lambda name: {"step_size": factor * _default_step(name)} if _has(name, "step_size") else None


def _default_step(name: str) -> float:
    default = inspect.signature(algorithms.builder(name)).parameters["step_size"].default
    return 1.0 if default is None else float(default)


def _constant_step(factor: float) -> Callable[[str], dict[str, Any] | None]:
    # The largest curvature of the ordinary history is near 40.
    return lambda name: {"step_rule": "constant", "step_size": factor / 40.0} if _has(name, "step_rule") else None


def _feature(value: float) -> Callable[[Any, Any], tuple[Any, Any]]:
    return lambda phi, r: (np.where(np.arange(len(phi)) == len(phi) - 1, value, phi), r)


def _reward(value: float) -> Callable[[Any, Any], tuple[Any, Any]]:
    return lambda phi, r: (phi, np.asarray(value))


def _columns(scales: Any) -> Callable[[History], History]:
    return lambda history: history._replace(arms=history.arms * np.asarray(scales, float))


def _rewards(rule: Callable[[Any, Any], Any]) -> Callable[[History], History]:
    return lambda history: history._replace(rewards=rule(played(history.arms), history.rewards))


def _spoiled_arm(value: float) -> Callable[[Any], Any]:
    return lambda arms: np.concatenate([np.full((1, arms.shape[1]), value), arms[1:]])


def _separable(features: Any, rewards: Any) -> Any:
    return (features[:, 0] > 0.0).astype(float)


def _repeated(history: History) -> History:
    return history._replace(arms=np.broadcast_to(history.arms[:1, :1], history.arms.shape))


def _conditioned(power: float) -> Callable[[History], History]:
    return _columns(np.logspace(-power / 4.0, power / 4.0, DIM))


FAULTS = (
    Fault("nothing"),
    *(Fault(f"reward {v}", observation=_reward(float(v))) for v in ("nan", "inf", "-inf", "1e38", "-1e38", "1e-38")),
    *(
        Fault(f"feature {v}", observation=_feature(float(v)))
        for v in ("nan", "inf", "-inf", "1e38", "1e20", "1e10", "1e-38")
    ),
    Fault("feature subnormal", observation=_feature(TINY)),
    Fault("reward subnormal", observation=_reward(TINY)),
    Fault("zero vector", observation=lambda phi, r: (np.zeros_like(phi), r)),
    Fault("all vectors zero", history=_columns(np.zeros(DIM))),
    Fault("an arm of nan", menu=_spoiled_arm(np.nan)),
    Fault("an arm of inf", menu=_spoiled_arm(np.inf)),
    Fault("all arms nan", menu=lambda arms: np.full_like(arms, np.nan)),
    Fault("one context again and again", history=_repeated),
    *(Fault(f"condition 1e{p}", history=_conditioned(float(p))) for p in (4, 8, 12)),
    Fault("mixed units", history=_columns([1e-3, 1.0, 1e2, 1e3])),
    Fault("features too many", observation=lambda phi, r: (np.append(phi, 1.0), r)),
    Fault("one feature for all", observation=lambda phi, r: (phi[:1], r)),
    Fault("features in a column", observation=lambda phi, r: (phi[:, None], r)),
    Fault("reward in a vector", observation=lambda phi, r: (phi, np.asarray([r, r]))),
    Fault("arms of another length", menu=lambda arms: np.concatenate([arms, arms], axis=1)),
    Fault("whole numbers", observation=lambda phi, r: (np.round(phi).astype(int), np.asarray(1))),
    Fault("half precision", observation=lambda phi, r: (phi.astype(np.float16), r.astype(np.float16))),
    Fault("complex numbers", observation=lambda phi, r: (phi.astype(complex), r)),
    Fault("words", observation=lambda phi, r: (np.asarray([str(x) for x in phi]), r)),
    Fault("constant rewards", history=_rewards(lambda phi, r: np.ones_like(r))),
    Fault("separable rewards", history=_rewards(_separable)),
    Fault("one feature", dim=1),
    Fault("one arm", arms=1),
    *(Fault(f"lambda {v}", settings=_value(prior_precision=float(v))) for v in ("1e-3", "1e-6", "1e-12", "1e-60")),
    Fault("lambda 1e-30", settings=_value(prior_precision=1e-30)),
    *(Fault(f"eta {v}", settings=_value(inverse_temperature=float(v))) for v in ("1e-3", "1e-1", "1e2", "1e4")),
    *(Fault(f"step x {f:g}", settings=_scaled_step(f)) for f in (0.01, 0.1, 10.0, 100.0)),
    *(Fault(f"constant step x {f:g}", settings=_constant_step(f)) for f in (0.01, 0.5, 10.0, 100.0)),
    Fault("logistic", model="logistic"),
    Fault("logistic, separable", history=_rewards(_separable), model="logistic"),
    Fault("logistic, constant rewards", history=_rewards(lambda phi, r: np.ones_like(r)), model="logistic"),
    Fault("logistic, reward nan", observation=_reward(np.nan), model="logistic"),
    *(
        Fault(f"logistic, feature {v}", observation=_feature(float(v)), model="logistic")
        for v in ("1e10", "1e38", "1e200")
    ),
    Fault("logistic, eta 1e-3", settings=_value(inverse_temperature=1e-3), model="logistic"),
    Fault("logistic, eta 1e2", settings=_value(inverse_temperature=1e2), model="logistic"),
    Fault("logistic, lambda 1e-3", settings=_value(prior_precision=1e-3), model="logistic"),
)

ALGORITHMS = tuple(name for name, row in catalogue.ALGORITHMS.items() if not row.networks_only)
