"""Verdicts on paired seeds: the interval covers at every look, and the ends are what the rule says."""

import numpy as np
import pytest
from trust import coverage

from vits.lab import compare
from vits.lab.compare import FAILS, HOLDS, INCONCLUSIVE


@pytest.mark.parametrize("name", coverage.LAWS)
def test_the_interval_misses_at_any_look_at_most_as_often_as_it_says(name):
    missed = coverage.missed(coverage.LAWS[name], replications=6000, seed=0)
    assert all(missed[level] <= coverage.LEVELS[level] for level in ("one comparison", "a claim of one statement"))


@pytest.mark.heavy
@pytest.mark.parametrize("name", coverage.LAWS)
def test_the_interval_covers_at_the_level_of_a_statement_too(name):
    """At one of four statements of a claim misses are rare: 40,000 replications."""
    missed = coverage.missed(coverage.LAWS[name], replications=40_000, seed=1)
    assert all(missed[level] <= alpha for level, alpha in coverage.LEVELS.items())


def test_without_the_term_for_skewness_the_interval_would_miss_too_often():
    """What the term is for: otherwise log-normal differences are missed more often than the level says."""
    mean, draw = coverage.LAWS["log-normal"]
    looks = np.arange(compare.FEWEST, coverage.MOST + 1, coverage.LOOK_EVERY)
    middle, deviation, skewness = compare.moments(draw(np.random.default_rng(0), (1000, coverage.MOST)), looks)
    low, high = compare.ends(middle, deviation, 0.0 * skewness, looks, compare.LEVEL)
    assert np.mean(np.any((mean < low) | (mean > high), axis=-1)) > compare.LEVEL


def test_moments_are_those_of_the_first_values():
    values = np.random.default_rng(0).lognormal(size=300)
    mean, deviation, skewness = compare.moments(values, np.array([100, 300]))
    for i, n in enumerate((100, 300)):
        first = values[:n]
        np.testing.assert_allclose(mean[i], first.mean())
        np.testing.assert_allclose(deviation[i], first.std(ddof=1))
        np.testing.assert_allclose(skewness[i], np.mean((first - first.mean()) ** 3) / first.std() ** 3)


def test_the_half_width_is_that_of_the_published_formula():
    """Written out for n = 500 and alpha = 0.05: 3.0 standard errors, against 1.96 for a single look."""
    rho2 = (5.991465 + np.log(6.991465)) / 500
    expected = np.sqrt(2 * (500 * rho2 + 1) / (500 * rho2) * np.log(np.sqrt(500 * rho2 + 1) / 0.05))
    np.testing.assert_allclose(compare.boundary(np.array([500]), 0.05), expected, rtol=1e-6)
    assert 2.9 < expected < 3.1


@pytest.mark.parametrize(
    ("low", "high", "less", "alike"),
    [
        (-30.0, -5.0, HOLDS, INCONCLUSIVE),
        (-30.0, -11.0, HOLDS, FAILS),
        (-9.0, -5.0, FAILS, HOLDS),  # smaller, but alike within the margin
        (-9.0, 9.0, FAILS, HOLDS),
        (5.0, 30.0, FAILS, INCONCLUSIVE),
        (11.0, 30.0, FAILS, FAILS),
        (-30.0, 5.0, INCONCLUSIVE, INCONCLUSIVE),
        (-5.0, 30.0, INCONCLUSIVE, INCONCLUSIVE),
    ],
)
def test_three_ends(low, high, less, alike):
    assert compare.less(low, high, 10.0) == less
    assert compare.alike(low, high, 10.0) == alike


def sample(mean, deviation, count, seed=0):
    second = np.random.default_rng(seed).normal(100.0, 20.0, count)
    return second + np.random.default_rng(seed + 1).normal(mean, deviation, count), second


@pytest.mark.parametrize(
    ("mean", "statement", "verdict"),
    [
        (-20.0, compare.less, HOLDS),
        (20.0, compare.less, FAILS),
        (0.0, compare.less, FAILS),
        (0.0, compare.alike, HOLDS),
        (20.0, compare.alike, FAILS),
        (-20.0, compare.not_above, HOLDS),
        (20.0, compare.not_above, FAILS),
    ],
)
def test_enough_seeds_decide(mean, statement, verdict):
    decision = compare.decide(statement, *sample(mean, 30.0, 4000), alpha=compare.level(3))
    assert decision.verdict == verdict
    assert decision.needed == decision.difference.pairs < 4000
    assert decision.difference.low <= mean <= decision.difference.high


def test_nothing_is_decided_before_a_hundred_pairs():
    first, second = sample(-50.0, 1.0, 99)
    decision = compare.decide(compare.less, first, second, alpha=compare.LEVEL)
    assert decision.verdict == INCONCLUSIVE
    assert decision.needed == 100
    assert np.isinf(decision.difference.low)
    assert "about 100 seeds would decide" in str(decision)


def test_the_first_look_that_decides_counts_whatever_comes_later():
    first, second = sample(-8.0, 20.0, 20_000)
    early = compare.decide(compare.less, first, second, alpha=compare.level(1))
    assert early.verdict == HOLDS
    again = compare.decide(compare.less, first[: early.needed], second[: early.needed], alpha=compare.level(1))
    assert again == early
    mean, deviation, skewness = compare.moments(first - second, np.array([20_000]))
    low, high = compare.ends(mean, deviation, skewness, np.array([20_000]), compare.level(1))
    assert compare.less(float(low[0]), float(high[0]), 10.0) == FAILS  # by then the interval is inside the margin


def test_failed_seeds_are_left_out():
    first, second = sample(-20.0, 30.0, 400)
    first[::10] = np.nan
    decision = compare.decide(compare.less, first, second, alpha=compare.LEVEL)
    rest = compare.decide(compare.less, np.delete(first, np.s_[::10]), np.delete(second, np.s_[::10]), alpha=0.05)
    assert decision == rest
    assert np.isfinite(decision.difference.mean)


def test_figures_beside_the_mean():
    second = np.zeros(200)
    first = np.concatenate([np.full(150, -1.0), np.full(40, 0.0), np.full(10, 1000.0)])
    np.random.default_rng(0).shuffle(first)
    decision = compare.decide(compare.less, first, second, alpha=compare.LEVEL)
    assert decision.median == -1.0
    assert decision.middle_mean == pytest.approx(-1.0)
    assert decision.won == pytest.approx(0.85)
    assert decision.difference.mean == pytest.approx(49.25)


def test_how_many_seeds_would_decide_is_about_right():
    """The estimate of 200 seeds is met within a factor of two by the seed at which it is decided."""
    first, second = sample(-5.0, 40.0, 20_000, seed=3)
    estimate = compare.decide(compare.less, first[:200], second[:200], alpha=compare.level(3)).needed
    found = compare.decide(compare.less, first, second, alpha=compare.level(3)).difference.pairs
    assert 0.5 * found <= estimate <= 2.0 * found


@pytest.mark.parametrize(("mean", "verdict"), [(-20.0, HOLDS), (20.0, FAILS), (0.0, FAILS)])
def test_the_expected_verdict_is_that_of_the_same_mean_with_more_seeds(mean, verdict):
    """A difference of nothing makes the two alike, so that none is less."""
    first, second = sample(mean, 100.0, 60, seed=1)
    shift = mean - float(np.mean(first - second))
    decision = compare.decide(compare.less, first + shift, second, alpha=compare.level(3))
    assert (decision.verdict, decision.expected) == (INCONCLUSIVE, verdict)
    decided = compare.decide(compare.less, *sample(mean, 100.0, 20_000, seed=1), alpha=compare.level(3))
    assert (decided.verdict, decided.expected) == (verdict, verdict)


def test_what_no_number_of_seeds_decides_says_so():
    """A difference of exactly the margin stays on the border of likeness."""
    assert compare.needed(compare.alike, 10.0, 30.0, 0.0, 0.05, 10.0) == (None, INCONCLUSIVE)


def test_two_seeds_or_fewer_are_no_error():
    for count in (0, 1, 2):
        decision = compare.decide(compare.less, *sample(-20.0, 30.0, count), alpha=compare.LEVEL)
        assert decision.verdict == INCONCLUSIVE
        assert str(decision)
