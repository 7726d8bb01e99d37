"""The settings that `vits tune` found, kept as data: by experiment, reading, world and contender.

They are in `tuned.json`, each with the command and the commit that found it, and with the outcome of its check on fresh
seeds. To write finished tunings there, run in a checkout:

    python -m vits.lab.experiments.tuned results/linear-tuning-paper ...
"""

import functools
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict

from vits import files
from vits.lab import results
from vits.lab.results import BEST, DEFAULT, GRID, TUNING

FILE = Path(__file__).with_name("tuned.json")


class Setting(TypedDict):
    """The hyperparameters of a contender in a world, and where they come from."""

    hyperparameters: dict[str, Any]
    command: str
    commit: str
    check: str
    """The outcome of its comparison with the default on fresh seeds."""


Shipped = dict[str, dict[str, dict[str, dict[str, Setting]]]]
"""Settings by experiment, reading, world and contender."""


@functools.cache
def shipped() -> Shipped:
    """All settings that come with the package."""
    found: Shipped = json.loads(FILE.read_bytes())
    return found


def settings(experiment: str, world: str, reading: str = BEST) -> dict[str, dict[str, Any]]:
    """The hyperparameters of the contenders in a world of an experiment."""
    return {name: found["hyperparameters"] for name, found in shipped()[experiment][reading][world].items()}


def store(folders: Iterable[Path], file: Path = FILE) -> None:
    """Write the choices of finished tunings to a file. Settings of other contenders stay."""
    known: Shipped = json.loads(file.read_bytes()) if file.is_file() else {}
    for folder in folders:
        summary = results.load_summary(folder)
        name = summary["experiment"]
        if not name.endswith(TUNING):
            raise ValueError(f"{folder} holds a run of '{name}', which is no tuning")
        reading = summary["settings"]["experiment"].get("reading", BEST)
        record = summary.get("record")
        checks = {claim["id"]: results.outcome(claim) for claim in summary["claims"]}
        worlds = known.setdefault(name.removesuffix(TUNING), {}).setdefault(reading, {})
        for row in summary["rows"]:
            world, label = row["environment"], row["algorithm"]
            if not label.endswith((GRID, DEFAULT)):
                worlds.setdefault(world, {})[label] = Setting(
                    hyperparameters=row["hyperparameters"],
                    command=(record and record["command"]) or "from Python",
                    commit=summary["versions"]["commit"],
                    check=checks.get(f"{world}: {label}", "the default" if reading == BEST else "least mean"),
                )
    files.write_json(file, known)


if __name__ == "__main__":
    store(map(Path, sys.argv[1:]))
