"""Comparing algorithms that played the same seeds, and verdicts that follow from it by rule.

The difference of two algorithms is taken seed by seed, so what is common to a seed cancels. Its mean gets a 95 %
confidence interval, and a verdict on a statement follows from where that interval lies: wholly where the statement is
true, `holds`; wholly where it is false, `fails`; across the border, `inconclusive`.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import special

from vits import catalogue
from vits.lab.summary import VERDICTS

HOLDS, FAILS, INCONCLUSIVE = VERDICTS

CONFIDENCE = 0.95
"""How often the intervals hold what they are about."""

ALIKE = 0.1
"""Two algorithms are alike if they differ by less than this part of the second one's mean."""


class Difference(NamedTuple):
    """The mean of `first - second` over paired seeds, with its 95 % interval."""

    mean: float
    low: float
    high: float
    reference: float
    """The mean of the second one, for a sense of proportion."""
    pairs: int

    def __str__(self) -> str:
        if self.pairs < 2:
            return f"too few pairs to tell ({self.pairs})"
        return f"{self.mean:+.1f} [{self.low:+.1f}, {self.high:+.1f}] against {self.reference:.1f}, {self.pairs} pairs"


class Claim(NamedTuple):
    """A statement of the paper, and what was found of it."""

    id: str
    claim: str
    verdict: str
    evidence: str


def claim(id: str, verdict: str, evidence: str) -> Claim:
    """What was found of the statement with this name."""
    return Claim(id, catalogue.CLAIMS[id], verdict, evidence)


def paired(first: Float[np.ndarray, " seeds"], second: Float[np.ndarray, " seeds"]) -> Difference:
    """The paired difference; seeds that failed in either (NaN) are left out."""
    both = np.isfinite(first) & np.isfinite(second)
    difference = first[both] - second[both]
    pairs = len(difference)
    if pairs < 2:
        return Difference(np.nan, -np.inf, np.inf, np.nan, pairs)
    mean, error = float(np.mean(difference)), float(np.std(difference, ddof=1) / np.sqrt(pairs))
    margin = half_width(error, pairs)
    return Difference(mean, mean - margin, mean + margin, float(np.mean(second[both])), pairs)


def half_width(error: float, count: int) -> float:
    """Half of the interval around a mean of `count` values with this standard error, by Student's t."""
    return float(error * special.stdtrit(count - 1, 0.5 * (1.0 + CONFIDENCE)))


def is_less(difference: Difference, margin: float = 0.0) -> str:
    """Verdict on: the first is smaller than the second by more than `margin`."""
    return _verdict(difference.high < -margin, difference.low >= -margin)


def is_alike(difference: Difference, part: float = ALIKE) -> str:
    """Verdict on: the two differ by less than a part of the second."""
    border = part * abs(difference.reference)
    inside = -border < difference.low and difference.high < border
    outside = difference.low >= border or difference.high <= -border
    return _verdict(inside, outside)


def is_not_worse(difference: Difference, part: float = ALIKE) -> str:
    """Verdict on: the first is at most a part above the second."""
    border = part * abs(difference.reference)
    return _verdict(difference.high < border, difference.low >= border)


def is_faster(first: float, second: float, part: float = ALIKE) -> str:
    """Verdict on: the first speed is the larger one; speeds that differ by less than a part are not told apart."""
    return _verdict(first > (1.0 + part) * second, second > (1.0 + part) * first)


def all_of(*verdicts: str) -> str:
    """A statement made of several holds if all hold, fails if one fails."""
    if FAILS in verdicts:
        return FAILS
    return HOLDS if all(verdict == HOLDS for verdict in verdicts) else INCONCLUSIVE


def _verdict(is_true: bool, is_false: bool) -> str:
    return HOLDS if is_true else FAILS if is_false else INCONCLUSIVE
