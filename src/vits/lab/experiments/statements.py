"""Claims of the paper as statements about regret, each decided by the rule of `vits.lab.compare`."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vits.lab import compare, results
from vits.lab.compare import ALIKE, FAILS, INCONCLUSIVE, Ends
from vits.lab.results import BEST, Claim, Finding, Key, Results, finite

Values = Callable[[Results], tuple[Float[np.ndarray, " seeds"], Float[np.ndarray, " others"]]]
"""Two values of every seed, from a run."""


def final(found: Results, key: Key) -> Float[np.ndarray, " seeds"]:
    """Cumulative regret at the end, seed by seed; NaN for seeds that failed."""
    return results.final_regret(found.cells[key])


class Statement(NamedTuple):
    """Part of a claim: a value of each seed compared with another value of the same seed.

    `keys` are the rows of the run (environment and algorithm) that the values come from.
    """

    text: str
    rule: Ends
    keys: tuple[Key, ...]
    values: Values
    margin: float = ALIKE


def less(world: str, first: str, second: str, *, margin: float = ALIKE) -> Statement:
    """In a world, the first algorithm has less final regret than the second."""
    return _regrets("<", compare.less, world, first, second, margin)


def alike(world: str, first: str, second: str) -> Statement:
    """In a world, two algorithms have about the same final regret."""
    return _regrets("~", compare.alike, world, first, second)


def _regrets(sign: str, rule: Ends, world: str, first: str, second: str, margin: float = ALIKE) -> Statement:
    keys = (world, first), (world, second)
    values = lambda found: (final(found, keys[0]), final(found, keys[1]))  # noqa: E731
    return Statement(f"{world}: {first} {sign} {second}", rule, keys, values, margin)


def scored(id: str, found: Results, *statements: Statement, also: Callable[[], dict[str, str]] = dict) -> list[Claim]:
    """Score a claim. The list is empty if a row that the claim is about was not run.

    Args:
        id: the claim.
        found: the run.
        statements: what has to hold; all share the level of the claim.
        also: returns evidence that does not depend on seeds, with a verdict on each; called only if all rows were run.
    """
    if any(key not in found.cells for statement in statements for key in statement.keys):
        return []
    alpha = compare.level(len(statements))
    findings = [_finding(statement, found, alpha) for statement in statements]
    others = also()
    verdict = compare.all_of(*(finding["verdict"] for finding in findings), *others.values())
    pieces = [f"{finding['text']}: {finding['verdict']}" for finding in findings]
    pieces += [f"{text}: {each}" for text, each in others.items()]
    reading = found.summary.get("settings", {}).get("reading", BEST)
    claim = compare.claim(id, verdict, "; ".join(pieces), reading)
    claim["statements"] = findings
    same = [finding for finding in findings if finding["verdict"] == verdict]
    if deciding := _first_to_fail(same) or same:
        claim["seeds"] = max(finding["seeds"] for finding in deciding)
    if verdict == INCONCLUSIVE:
        needed = [finding["needed"] for finding in deciding]
        known = [count for count in needed if count is not None]
        claim["needed"] = max(known) if len(known) == len(needed) else None
    return [claim]


def _first_to_fail(findings: Iterable[Finding]) -> list[Finding]:
    """The finding that fails, or is expected to fail, after the fewest seeds. It is enough to decide a claim."""
    failing = [finding for finding in findings if finding["expected"] == FAILS]
    return sorted(failing, key=lambda finding: finding["needed"] or 0)[:1]


def _finding(statement: Statement, found: Results, alpha: float) -> Finding:
    first, second = statement.values(found)
    decision = compare.decide(statement.rule, first, second, alpha=alpha, margin=statement.margin)
    pairs = min(len(first), len(second))
    failed = int(np.sum(~(np.isfinite(first[:pairs]) & np.isfinite(second[:pairs]))))
    left_out = f", {failed:,} of {pairs:,} seeds failed and are left out" if failed else ""
    mean, low, high, reference, compared = decision.difference
    return Finding(
        text=f"{statement.text}, {decision}{left_out}",
        verdict=decision.verdict,
        rows=[list(key) for key in statement.keys],
        seeds=compared,
        needed=decision.needed,
        expected=decision.expected,
        margin=statement.margin,
        mean=finite(mean),
        low=finite(low),
        high=finite(high),
        reference=finite(reference),
        median=finite(decision.median),
        middle_mean=finite(decision.middle_mean),
        won=finite(decision.won),
    )


def cheaper(found: Results, worlds: Sequence[str], firsts: Sequence[str], second: str) -> dict[str, str]:
    """Evidence and verdicts on: in every world, each of `firsts` plays more rounds per second than `second`."""
    speed = {(row["environment"], row["algorithm"]): row["rounds_per_second"] or 0.0 for row in found.summary["rows"]}
    pairs = [(world, first, speed[world, first], speed[world, second]) for world in worlds for first in firsts]
    return {
        f"{world}: {first} {fast:,.0f} rounds/s, {second} {slow:,.0f}": compare.is_faster(fast, slow)
        for world, first, fast, slow in pairs
    }


def unsettled(found: Results, most: int) -> list[Finding]:
    """The statements of undecided claims that should get more seeds, where rows may have up to `most`.

    A claim needs only the statement that is expected to fail first. If none is, it needs all of them.
    """
    seeds = {(row["environment"], row["algorithm"]): row["seeds"] for row in found.summary["rows"]}
    chosen = []
    for claim in found.summary["claims"]:
        if claim["verdict"] == INCONCLUSIVE:
            undecided = [each for each in claim.get("statements", []) if each["verdict"] == INCONCLUSIVE]
            open_ones = [each for each in undecided if any(seeds[row[0], row[1]] < most for row in each["rows"])]
            chosen += _first_to_fail(open_ones) or open_ones
    return chosen
