"""How many observations an agent stores, for models whose posterior cannot be kept as sums.

An agent runs for as long as its application, so by default its storage is bounded: time and memory of an update stay
the same, and nothing is compiled again. `vits.make` and `vits.simulate` store all observations.
"""

from collections.abc import Mapping
from typing import Any

from vits import algorithms, models

FOLD_AFTER = 128
"""Observations kept as they are, where older ones can be folded into a quadratic form."""

WINDOW = 1024
"""Observations kept where older ones cannot be folded, and are forgotten."""


def bounded(algorithm: str, model: models.RewardModel, given: Mapping[str, Any]) -> dict[str, Any]:
    """The option that bounds the storage of an algorithm that stores observations, unless one of `given` does."""
    if given.get("window") is not None or given.get("fold_after") is not None:
        return {}
    known = algorithms.hyperparameters(algorithm)
    can_fold = isinstance(model, models.Glm) and model.max_d2loss is not None and given.get("minibatch") is None
    if can_fold and "fold_after" in known:
        return {"fold_after": FOLD_AFTER}
    return {"window": WINDOW} if "window" in known else {}


def described(given: Mapping[str, Any], *, grows: bool) -> str:
    """What an agent with these hyperparameters keeps of its observations, in words."""
    if given.get("fold_after") is not None:
        return f"the last {given['fold_after']} observations, and older ones as a quadratic form"
    if given.get("window") is not None:
        return f"the last {given['window']} observations"
    return "all observations" if grows else "sums over all observations"
