"""The paper's claims with the verdicts of finished runs, one verdict for each claim."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from vits import catalogue
from vits.lab.results import VERDICTS, load_summary

NOT_RUN = "not run"

UNKNOWN = ("not recorded",)
"""The changes of a run that was started from Python, or before changes were recorded."""


class Score(NamedTuple):
    """A claim and the verdict of the run that counts; `preset` and `folder` are empty where no run scores it."""

    id: str
    claim: str
    verdict: str
    evidence: str
    experiment: str
    preset: str = ""
    folder: str = ""
    changes: tuple[str, ...] = ()
    """What that run changed of its preset."""
    others: tuple[str, ...] = ()
    """Runs that score it too and do not count, with their verdicts."""

    @property
    def run(self) -> str:
        """The preset that was run, and whether something of it was changed."""
        if self.changes == UNKNOWN:
            return f"{self.preset}, changes unknown"
        return f"{self.preset}, changed" if self.changes else self.preset

    @property
    def findings(self) -> list[str]:
        """The evidence piece by piece."""
        return [piece for piece in self.evidence.split("; ") if piece]


def scorecard(folders: Iterable[str | Path]) -> list[Score]:
    """Score every claim, in the paper's order; claims that are not the paper's come last.

    Where several runs score a claim, one of a preset as it stands counts before one that changed something, the paper's
    preset before quick and quick before others, and of two that are alike in this the one that is named later.

    Args:
        folders: finished runs.

    Returns:
        One score per claim, `not run` where no run scores it.
    """
    found: dict[str, list[Score]] = {name: [] for name in catalogue.CLAIMS}
    for folder in dict.fromkeys(map(Path, folders)):
        run = load_summary(folder)
        changes = run["record"]["changes"] if "record" in run else None
        for claim in run["claims"]:
            score = Score(
                claim["id"],
                claim["claim"],
                claim["verdict"],
                claim["evidence"],
                experiment=run["experiment"],
                preset=run["preset"],
                folder=str(folder),
                changes=UNKNOWN if changes is None else tuple(changes),
            )
            found.setdefault(claim["id"], []).append(score)
    return [_counting(name, scores) for name, scores in found.items()]


def _counting(name: str, scores: list[Score]) -> Score:
    if not scores:
        return Score(name, catalogue.CLAIMS[name], NOT_RUN, "", catalogue.EXPERIMENT_OF_CLAIM[name])
    *others, chosen = sorted(scores, key=_weight)  # stable: the later one stays last
    return chosen._replace(others=tuple(f"{other.folder} ({other.run}): {other.verdict}" for other in others))


def _weight(score: Score) -> tuple[bool, int]:
    return not score.changes, {"paper": 2, "quick": 1}.get(score.preset, 0)


def tally(scores: Iterable[Score]) -> str:
    """How many claims hold, fail and so on, in one line."""
    counts = Counter(score.verdict for score in scores)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in (*VERDICTS, NOT_RUN) if counts[verdict])


def markdown(scores: Iterable[Score]) -> str:
    """The scorecard as a table in Markdown."""
    lines = ["| claim | verdict | evidence | run |", "|---|---|---|---|"]
    for score in scores:
        run = f"`{score.experiment}`" + (f", {score.run}" if score.run else "")
        cells = (f"**{score.id}** {score.claim}", score.verdict, "<br>".join(score.findings), run)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
