"""Reading a run's summary: what it must hold, checked before anything is made of it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SUMMARY = "summary.json"

VERDICTS = ("holds", "fails", "inconclusive")

_FIELDS = {"experiment": str, "preset": str, "settings": dict, "versions": dict, "rows": list, "claims": list}
_ROW = {
    "environment": str,
    "algorithm": str,
    "hyperparameters": dict,
    "horizon": int,
    "seeds": int,
    "failed_seeds": int,
    "seconds": (int, float),
    "files": list,
}
_CLAIM = {"id": str, "claim": str, "verdict": str, "evidence": str}


def load(folder: str | Path) -> dict[str, Any]:
    """The summary of a finished run, or what is wrong with it."""
    path = Path(folder) / SUMMARY
    if not path.is_file():
        raise ValueError(f"{folder} holds no finished run: {SUMMARY} is missing")
    try:
        summary = json.loads(path.read_bytes())
    except ValueError as error:  # no JSON, or no text at all
        raise _refusal(path, str(error)) from None
    _expect(path, "the summary", summary, _FIELDS)
    _expect(path, "its settings", summary["settings"], {"title": str})
    for row in summary["rows"]:
        _expect(path, "a row", row, _ROW)
    for claim in summary["claims"]:
        _expect(path, "a claim", claim, _CLAIM)
        if claim["verdict"] not in VERDICTS:
            raise _refusal(path, f"a verdict is '{claim['verdict']}', not one of {', '.join(VERDICTS)}")
    if not summary["rows"]:
        raise _refusal(path, "it has no rows")
    return dict(summary)


def _expect(path: Path, what: str, found: Any, fields: Mapping[str, Any]) -> None:
    """Refuse what is not a mapping with these fields."""
    if not isinstance(found, dict):
        raise _refusal(path, f"{what} is not a mapping of names to values")
    for name, kind in fields.items():
        if name not in found:
            raise _refusal(path, f"{what} has no '{name}'")
        if not isinstance(found[name], kind):
            raise _refusal(path, f"'{name}' of {what} is {found[name]!r:.40}")


def _refusal(path: Path, reason: str) -> ValueError:
    return ValueError(f"{path} is not a summary of a run: {reason}")
