"""What a run found, in a few sentences."""

from vits.lab.results import VERDICTS, Row, Summary


def sentences(summary: Summary) -> str:
    """The least and the most regret in each world, and the verdicts on the paper's claims; empty without regret."""
    worlds = dict.fromkeys(row["environment"] for row in summary["rows"] if row["regret_mean"] is not None)
    found = [_world(world, [row for row in summary["rows"] if row["environment"] == world]) for world in worlds]
    return " ".join(sentence for sentence in [*found, *_verdicts(summary)] if sentence)


def _world(world: str, rows: list[Row]) -> str:
    """Uniform play is no contender: it says how much there is to lose."""
    means = {row["algorithm"]: row["regret_mean"] for row in rows if row["regret_mean"] is not None}
    aimless = means.pop("uniform", None)
    if len(means) < 2:
        return ""
    best, worst = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    more = 100.0 * (means[worst] / means[best] - 1.0) if means[best] else 0.0
    beside = "" if aimless is None else f"; playing at random costs {aimless:,.0f}"
    return (
        f"At {world}, {best} has the least regret ({means[best]:,.0f}) and {worst} the most "
        f"({means[worst]:,.0f}, {more:.0f} % more){beside}."
    )


def _verdicts(summary: Summary) -> list[str]:
    """The claims of the run by verdict."""
    claims = summary["claims"]
    if not claims:
        return []
    named = [
        f"{', '.join(ids)} {verdict if verdict in VERDICTS[:2] and len(ids) == 1 else plural}"
        for verdict, plural in zip(
            VERDICTS, ("hold", "fail", "need more seeds (--until-decided adds them)"), strict=True
        )
        if (ids := [claim["id"] for claim in claims if claim["verdict"] == verdict])
    ]
    return [f"Of the paper's claims, {'; '.join(named)}."]
