"""Comparing algorithms that played the same seeds, and the rule for verdicts.

Two algorithms are compared by their differences seed by seed, so the effects of a seed that both share cancel. The rule
below was fixed before the runs that it judges.

**Interval.** Seeds are added until a statement is decided, so the interval must be valid at every look. It is the
asymptotic normal-mixture confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas ("Time-uniform central
limit theory and asymptotic confidence sequences", Annals of Statistics 2024). After n pairs with mean d and standard
deviation s the interval is d -/+ t s / sqrt(n), where

    t^2 = 2 (1 + 1 / (n rho^2)) log(sqrt(n rho^2 + 1) / alpha),    rho^2 = (-2 log alpha + log(1 - 2 log alpha)) / 500,

narrowest near 500 pairs. Regret is skewed, and the mean of skewed values tends to be off towards the short tail. So the
end on the side of the long tail is moved out by

    s / sqrt(n) * |g| (2 t^2 + 1) / (3 sqrt(n)),    g the sample skewness,

twice the first term of Johnson's and Hall's correction. It only ever widens the interval. Nothing is decided before 100
pairs; looks are at 100, 150, 200, ... pairs.

**Verdict.** The margin m is 10 % of the mean of B, unless the statement sets another. "A has less regret than B"
*holds* if the interval lies below 0 and reaches below -m, and *fails* if it lies above 0 or inside (-m, m). "A and B
are alike" *holds* if the interval lies inside (-m, m), and *fails* if all of it lies beyond m or -m. The first look
that decides counts.

**Level.** 5 % for all claims in one reading: each claim has 5 % / 16, shared equally by its statements (Bonferroni). A
claim made of several statements holds if all hold and fails if one fails.

The mean decides, because the paper reports means. The median, the mean of the middle half and the share of seeds won
are reported with it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from vits import catalogue
from vits.lab.results import BEST, VERDICTS, Claim

HOLDS, FAILS, INCONCLUSIVE = VERDICTS

LEVEL = 0.05
"""The probability that any verdict of a reading is wrong is at most about this."""

CONFIDENCE = 1.0 - LEVEL
"""Coverage of single intervals."""

ALIKE = 0.1
"""The usual margin: two algorithms are alike if they differ by less than this fraction of the second one's mean."""

SLIGHT = 0.05
"""The margin of claims that say "slightly", where seeds are cheap."""

FEWEST, LOOK_EVERY, NARROWEST_AT = 100, 50, 500
"""Pairs before the first look, between looks, and where the interval is narrowest for its level."""

_MOST_NEEDED = 10_000_000
"""Estimates of needed seeds stop here."""


class Difference(NamedTuple):
    """The mean of `first - second` over paired seeds, with an interval."""

    mean: float
    low: float
    high: float
    reference: float
    """The mean of the second one, to which the difference can be compared."""
    pairs: int

    def __str__(self) -> str:
        if self.pairs < 2:
            return f"too few pairs to tell ({self.pairs})"
        return f"{self.mean:+.1f} [{self.low:+.1f}, {self.high:+.1f}] against {self.reference:.1f}, {self.pairs} pairs"


class PairedVerdict(NamedTuple):
    """A verdict on one statement about paired seeds, and the numbers behind it."""

    verdict: str
    difference: Difference
    """At the look that decided, or with all pairs if none did; unbounded before the first look."""
    median: float
    middle_mean: float
    """The mean of the middle half of the differences."""
    won: float
    """Share of seeds in which the first has less than the second; ties count half."""
    needed: int | None
    """About how many pairs would decide it if mean and spread stay as they are; None if more than ten million."""
    expected: str
    """The verdict after that many pairs."""

    def __str__(self) -> str:
        mean, low, high, reference, pairs = self.difference
        if pairs < 2:
            return f"{pairs} pairs are too few"
        bounds = f" [{low:+.1f}, {high:+.1f}]" if np.isfinite(low) else ""
        text = f"{mean:+.1f}{bounds} against {reference:.1f} after {pairs:,} seeds, {100.0 * self.won:.0f} % won"
        outlook = "more than ten million" if self.needed is None else f"about {self.needed:,}"
        return text if self.verdict != INCONCLUSIVE else f"{text}, {outlook} seeds would decide"


def claim(id: str, verdict: str, evidence: str, reading: str = BEST) -> Claim:
    """The verdict on the statement of the paper with this name, in one reading of the paper."""
    return Claim(id=id, claim=catalogue.CLAIMS[id], verdict=verdict, evidence=evidence, reading=reading)


def level(statements: int) -> float:
    """The level of each of several statements of one claim."""
    return LEVEL / (len(catalogue.CLAIMS) * statements)


# --- the confidence sequence ------------------------------------------------------------------------------------


def boundary(pairs: Int[np.ndarray, " looks"], alpha: float) -> Float[np.ndarray, " looks"]:
    """The half width in standard errors, t(n)."""
    rho2 = (-2.0 * np.log(alpha) + np.log1p(-2.0 * np.log(alpha))) / NARROWEST_AT
    spread = pairs * rho2
    return np.asarray(np.sqrt(2.0 * (1.0 + 1.0 / spread) * np.log(np.sqrt(spread + 1.0) / alpha)))


def ends(
    mean: Float[np.ndarray, "*batch looks"],
    deviation: Float[np.ndarray, "*batch looks"],
    skewness: Float[np.ndarray, "*batch looks"],
    pairs: Int[np.ndarray, " looks"],
    alpha: float,
) -> tuple[Float[np.ndarray, "*batch looks"], Float[np.ndarray, "*batch looks"]]:
    """The interval at each look, from the moments of the pairs seen until then."""
    t, error = boundary(pairs, alpha), deviation / np.sqrt(pairs)
    tail = (2.0 * t * t + 1.0) / (3.0 * np.sqrt(pairs))
    low = mean - error * (t + np.maximum(-skewness, 0.0) * tail)
    high = mean + error * (t + np.maximum(skewness, 0.0) * tail)
    return low, high


def moments(
    values: Float[np.ndarray, "*batch pairs"], looks: Int[np.ndarray, " looks"]
) -> tuple[Float[np.ndarray, "*batch looks"], Float[np.ndarray, "*batch looks"], Float[np.ndarray, "*batch looks"]]:
    """Mean, standard deviation and skewness of the first n values, for every look n."""
    centre = np.mean(values, axis=-1, keepdims=True)  # sums of cubes lose digits far from the mean
    first, second, third = (
        np.take(np.cumsum((values - centre) ** power, axis=-1), looks - 1, axis=-1) / looks for power in (1, 2, 3)
    )
    variance = np.maximum(second - first**2, 0.0)
    cubes = third - 3.0 * first * second + 2.0 * first**3
    skewness = np.divide(cubes, variance**1.5, out=np.zeros_like(cubes), where=variance > 0.0)
    return centre + first, np.sqrt(variance * looks / np.maximum(looks - 1, 1)), skewness


# --- verdicts ---------------------------------------------------------------------------------------------------

Ends = Callable[[float, float, float], str]
"""A verdict from the ends of an interval and a margin, both in the same unit."""


def less(low: float, high: float, margin: float) -> str:
    """Verdict on: the first is smaller."""
    return _verdict(high < 0.0 and low <= -margin, low > 0.0 or (-margin < low and high < margin))


def alike(low: float, high: float, margin: float) -> str:
    """Verdict on: the two differ by less than the margin."""
    return _verdict(-margin < low and high < margin, low >= margin or high <= -margin)


def not_above(low: float, high: float, margin: float) -> str:
    """Verdict on: the first is above the second by less than the margin."""
    return _verdict(high < margin, low >= margin)


def decide(
    statement: Ends,
    first: Float[np.ndarray, " seeds"],
    second: Float[np.ndarray, " others"],
    *,
    alpha: float,
    margin: float = ALIKE,
) -> PairedVerdict:
    """The verdict on a statement about `first - second` at the first look that decides it.

    Args:
        statement: `less`, `alike` or `not_above`.
        first: one value for each seed, from seed 0 on.
        second: the same for the other algorithm. Seeds that failed (NaN) in either, and those that only one has, are
            left out.
        alpha: the level of the interval, see `level`.
        margin: as a fraction of the mean of the second.

    Returns:
        The decision and the numbers behind it.
    """
    values, references = _differences(first, second)
    pairs = len(values)
    if pairs < 2:
        nothing = Difference(np.nan, -np.inf, np.inf, np.nan, pairs)
        return PairedVerdict(INCONCLUSIVE, nothing, np.nan, np.nan, np.nan, None, INCONCLUSIVE)
    looks = np.unique([*range(FEWEST, pairs + 1, LOOK_EVERY), pairs])
    mean, deviation, skewness = moments(values, looks)
    low, high = ends(mean, deviation, skewness, looks, alpha)
    reference = np.cumsum(references)[looks - 1] / looks
    verdict, chosen = INCONCLUSIVE, len(looks) - 1
    for look in (int(index) for index in np.flatnonzero(looks >= FEWEST)):
        verdict = statement(float(low[look]), float(high[look]), margin * abs(float(reference[look])))
        if verdict != INCONCLUSIVE:
            chosen = look
            break
    n = int(looks[chosen])
    known, seen = n >= FEWEST, values[:n]
    outlook: tuple[int | None, str] = n, verdict
    if verdict == INCONCLUSIVE:
        last = float(mean[-1]), float(deviation[-1]), float(skewness[-1])
        outlook = needed(statement, *last, alpha, margin * abs(float(reference[-1])), least=n + 1)
    return PairedVerdict(
        verdict,
        Difference(
            float(mean[chosen]),
            float(low[chosen]) if known else -np.inf,
            float(high[chosen]) if known else np.inf,
            float(reference[chosen]),
            n,
        ),
        float(np.median(seen)),
        float(np.mean(np.sort(seen)[n // 4 : n - n // 4])),
        float(np.mean((seen < 0.0) + 0.5 * (seen == 0.0))),
        *outlook,
    )


def needed(
    statement: Ends, mean: float, deviation: float, skewness: float, alpha: float, margin: float, *, least: int = FEWEST
) -> tuple[int | None, str]:
    """The first look that would decide if the moments stayed the same, and its verdict.

    The look is None if there is none up to ten million.
    """
    first = max(-(-least // LOOK_EVERY), FEWEST // LOOK_EVERY)
    looks = LOOK_EVERY * np.unique(np.geomspace(first, _MOST_NEEDED // LOOK_EVERY, 400).astype(int))
    same = np.ones(len(looks))
    lows, highs = ends(mean * same, deviation * same, skewness * same, looks, alpha)
    for n, low, high in zip(looks, lows, highs, strict=True):
        verdict = statement(float(low), float(high), margin)
        if verdict != INCONCLUSIVE:
            return int(n), verdict
    return None, INCONCLUSIVE


# --- single intervals, and other verdicts -----------------------------------------------------------------------


def paired(first: Float[np.ndarray, " seeds"], second: Float[np.ndarray, " others"]) -> Difference:
    """The paired difference with an interval for one look.

    Seeds that failed in either (NaN), and those that only one has, are left out.
    """
    differences, references = _differences(first, second)
    reference = float(np.mean(references)) if len(references) else np.nan
    return Difference(*interval(differences), reference, len(differences))


def _differences(
    first: Float[np.ndarray, " seeds"], second: Float[np.ndarray, " others"]
) -> tuple[Float[np.ndarray, " pairs"], Float[np.ndarray, " pairs"]]:
    """The differences over seeds that both have and that failed in neither, and the second's values there."""
    first, second = (values[: min(len(first), len(second))] for values in (first, second))
    both = np.isfinite(first) & np.isfinite(second)
    return first[both] - second[both], second[both]


def interval(values: Float[np.ndarray, " values"]) -> tuple[float, float, float]:
    """Mean, lower and upper end of Student's interval, which is unbounded with fewer than two values."""
    count = len(values)
    if count < 2:
        return float(values[0]) if count else np.nan, -np.inf, np.inf
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(count))
    half = float(error * special.stdtrit(count - 1, 0.5 * (1.0 + CONFIDENCE)))
    return mean, mean - half, mean + half


def is_faster(first: float, second: float) -> str:
    """Verdict on: the first speed exceeds the second by more than the usual margin."""
    return HOLDS if first > (1.0 + ALIKE) * second else FAILS


def all_of(*verdicts: str) -> str:
    """The verdict on several statements together: holds if all hold, fails if one fails."""
    if FAILS in verdicts:
        return FAILS
    return HOLDS if all(verdict == HOLDS for verdict in verdicts) else INCONCLUSIVE


def _verdict(is_true: bool, is_false: bool) -> str:
    return HOLDS if is_true else FAILS if is_false else INCONCLUSIVE
