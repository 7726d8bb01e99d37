"""How often the intervals of verdicts miss the true mean difference at any look.

The differences are our own regrets, resampled, and laws with light, heavy and skewed tails whose means are known.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vits.lab import compare

MOST, LOOK_EVERY = 2000, 10
"""Pairs of seeds; looks are closer than those of a run, which only makes misses more frequent."""

BATCH = 250
"""Replications that are computed together."""

_REGRETS = Path(__file__).parents[1] / "tests" / "fixtures" / "regrets.npz"
"""Final regret on the linear bandit at zeta = 0.1 (eta = 100, lambda = 1), 1000 seeds of each of three algorithms."""


class Law(NamedTuple):
    """Differences of paired seeds, and their mean."""

    mean: float
    draw: Callable[[np.random.Generator, tuple[int, ...]], Float[np.ndarray, "replications pairs"]]


def _resampled(first: str, second: str) -> Law:
    with np.load(_REGRETS) as regrets:
        differences = (regrets[first] - regrets[second]).astype(float)
    return Law(float(differences.mean()), lambda rng, shape: rng.choice(differences, shape))


LAWS = {
    "vits_ii - lin_ts": _resampled("vits_ii", "lin_ts"),
    "lmc10 - lin_ts": _resampled("lmc10", "lin_ts"),
    "lmc10 - vits_ii": _resampled("lmc10", "vits_ii"),
    "Gaussian": Law(0.0, lambda rng, shape: rng.normal(size=shape)),
    "log-normal": Law(np.exp(0.5), lambda rng, shape: rng.lognormal(size=shape)),
    "mirrored log-normal": Law(-np.exp(0.5), lambda rng, shape: -rng.lognormal(size=shape)),
    "difference of log-normals": Law(0.0, lambda rng, shape: rng.lognormal(size=shape) - rng.lognormal(size=shape)),
}

LEVELS = {
    "one comparison": compare.LEVEL,
    "a claim of one statement": compare.level(1),
    "one of four statements": compare.level(4),
}


def missed(law: Law, *, replications: int, seed: int) -> dict[str, float]:
    """The share of replications in which an interval misses the mean at any look, for each level."""
    rng, looks = np.random.default_rng(seed), np.arange(compare.FEWEST, MOST + 1, LOOK_EVERY)
    count = dict.fromkeys(LEVELS, 0)
    for _ in range(replications // BATCH):
        found = compare.moments(law.draw(rng, (BATCH, MOST)), looks)
        for name, alpha in LEVELS.items():
            low, high = compare.ends(*found, looks, alpha)
            count[name] += int(np.sum(np.any((law.mean < low) | (law.mean > high), axis=-1)))
    return {name: number / replications for name, number in count.items()}
