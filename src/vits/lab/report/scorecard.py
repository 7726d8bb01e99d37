"""The paper's claims with the verdicts of finished runs, one verdict for each claim."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from vits import catalogue
from vits.lab.results import BEST, READINGS, VERDICTS, WRITTEN, Summary, load_summary, outcome

NOT_RUN = "not run"

UNKNOWN = ("not recorded",)
"""The changes of a run that was started from Python, or before changes were recorded."""


class Score(NamedTuple):
    """A claim in one reading, and the verdict of the run that counts. Without one, `preset` and `folder` are empty."""

    id: str
    claim: str
    reading: str
    verdict: str
    evidence: str
    outcome: str
    experiment: str
    preset: str = ""
    folder: str = ""
    changes: tuple[str, ...] = ()
    """What that run changed of its preset."""
    others: tuple[str, ...] = ()
    """Other runs that score the claim but do not count, with their verdicts."""

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

    @property
    def key_finding(self) -> str:
        """The first piece of evidence with the verdict of the claim, or the first of all."""
        same = [piece for piece in self.findings if piece.endswith(f": {self.verdict}")]
        return next(iter(same or self.findings), "")


def scorecard(folders: Iterable[str | Path]) -> list[Score]:
    """Score every claim in both readings by finished runs. See `scores`."""
    return scores((str(folder), load_summary(folder)) for folder in dict.fromkeys(map(Path, folders)))


def scores(runs: Iterable[tuple[str, Summary]]) -> list[Score]:
    """Score every claim, in the paper's order and in both readings; claims that are not the paper's come last.

    If several runs score a claim, one counts. An unchanged preset has priority over a changed one, then the preset
    `paper` over `quick` and `quick` over others, then the run that is named later.

    Args:
        runs: names and summaries.

    Returns:
        Two scores per claim, `not run` where no run scores it.
    """
    found: dict[tuple[str, str], list[Score]] = {(name, each): [] for name in catalogue.CLAIMS for each in READINGS}
    texts = dict(catalogue.CLAIMS)
    for folder, run in runs:
        changes = run["record"]["changes"] if "record" in run else None
        for claim in run["claims"]:
            score = Score(
                claim["id"],
                claim["claim"],
                claim.get("reading", BEST),
                claim["verdict"],
                claim["evidence"],
                outcome(claim),
                experiment=run["experiment"],
                preset=run["preset"],
                folder=folder,
                changes=UNKNOWN if changes is None else tuple(changes),
            )
            for reading in READINGS:
                found.setdefault((score.id, reading), [])
            found[score.id, score.reading].append(score)
            texts[score.id] = score.claim
    return [_counting(name, texts[name], reading, each) for (name, reading), each in found.items()]


def _counting(name: str, text: str, reading: str, scores: list[Score]) -> Score:
    if not scores:
        return Score(name, text, reading, NOT_RUN, "", NOT_RUN, catalogue.EXPERIMENT_OF_CLAIM.get(name, ""))
    *others, chosen = sorted(scores, key=_weight)  # stable: the later one stays last
    return chosen._replace(others=tuple(f"{other.folder} ({other.run}): {other.verdict}" for other in others))


def _weight(score: Score) -> tuple[bool, int]:
    return not score.changes, {"paper": 2, "quick": 1}.get(score.preset, 0)


def tally(scores: Iterable[Score]) -> str:
    """The number of claims by verdict, one sentence for each reading."""
    scores = list(scores)
    words = dict(zip((*VERDICTS, NOT_RUN), ("hold", "fail", "undecided", "not run"), strict=True))
    counts = {reading: Counter(score.verdict for score in scores if score.reading == reading) for reading in READINGS}
    return " ".join(
        f"{reading.capitalize()}: {', '.join(f'{found[each]} {word}' for each, word in words.items() if found[each])}."
        for reading, found in counts.items()
    )


def paired(scores: Iterable[Score]) -> list[tuple[Score, Score]]:
    """The two readings of each claim."""
    by_claim: dict[str, dict[str, Score]] = {}
    for score in scores:
        by_claim.setdefault(score.id, {})[score.reading] = score
    return [(each[WRITTEN], each[BEST]) for each in by_claim.values()]


def markdown(scores: Iterable[Score], figures: Mapping[str, str] = MappingProxyType({})) -> str:
    """The scorecard as a table in Markdown: one row per claim, one column per reading, and why the two differ.

    `figures` are the figures of runs by folder.
    """
    lines = [f"| claim | {' | '.join(READINGS)} | evidence |", "|---|---|---|---|"]
    for pair in paired(scores):
        evidence = [f"*{score.reading}*: {score.key_finding}" for score in pair if score.key_finding]
        evidence += [f"*Why they differ*: {DIFFERS[pair[0].id]}"] if differ(*pair) and pair[0].id in DIFFERS else []
        links = dict.fromkeys(figures[score.folder] for score in pair if score.folder in figures)
        evidence += [", ".join(f"[figure]({link})" for link in links)] if links else []
        cells = (f"**{pair[0].id}** {pair[0].claim}", *(score.outcome for score in pair), "<br>".join(evidence))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def differ(written: Score, best: Score) -> bool:
    """Whether both readings of a claim are decided, with different verdicts."""
    return {written.verdict, best.verdict} == set(VERDICTS[:2])


DIFFERS = {
    "linear-vts": (
        "tuned, VTS has a stronger prior and expects less noise; it has a third less regret, and its second half costs "
        "less than its first."
    ),
    "kl-linear": (
        "as written, LMC is read from the path of one chain, whose averaging takes more steps than the approach to the "
        "target does; in law its steps grow like those of VI."
    ),
    "movielens-lints": (
        "as written, VITS takes steps h / (eta t) from a prior that is not tempered, and ends at the regret of LinTS; "
        "with safe steps and a tempered prior it has a third less."
    ),
    "fixed-logistic": (
        "at its best, VITS-II is also compared with Laplace, which is not in the paper's figure, and the two are alike."
    ),
}
"""Why the two readings of a claim end differently."""
