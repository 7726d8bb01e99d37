"""How a run differs from its preset, and what to type to get it again."""

import dataclasses
import json
import shlex
from typing import Any, NamedTuple

from vits import catalogue
from vits.lab.experiments.tuning import tuning

Summary = dict[str, Any]


class Preset(NamedTuple):
    """The experiment that a run came from, its settings as the preset has them, and as they were run."""

    experiment: str
    verb: str
    usual: dict[str, Any]
    run: dict[str, Any]


def preset(summary: Summary) -> Preset | None:
    """Where the settings of a run came from; None if no preset of the library has its name."""
    name, run = summary["experiment"], summary["settings"]
    experiment = name.removesuffix("-tuning")
    if experiment not in catalogue.EXPERIMENTS:
        return None
    usual = catalogue.experiment_module(experiment).PRESETS.get(summary["preset"])
    if usual is None:
        return None
    verb = "run"
    if name != experiment:
        usual, run, verb = tuning(usual).experiment, run["experiment"], "tune"
    return Preset(experiment, verb, json.loads(json.dumps(dataclasses.asdict(usual), default=str)), run)


def command(summary: Summary) -> str | None:
    """What to type to get this run again; None if it was started from Python."""
    found = preset(summary)
    if found is None:
        return None
    words = ["vits", found.verb, found.experiment, "--preset", summary["preset"]]
    if found.verb == "tune":
        words += ["--tuning-seeds", str(summary["settings"]["tuning_seeds"])]
    for key in ("seeds", "horizon"):
        if found.run[key] != found.usual[key]:
            words += [f"--{key}", str(found.run[key])]
    if _names(found.run) != _names(found.usual):
        words += ["--algorithms", ",".join(_names(found.run))]
    return shlex.join(words)


def changes(summary: Summary) -> list[str]:
    """What of the preset was changed, in words."""
    found = preset(summary)
    if found is None:
        return []
    numbers = [
        f"{key} {found.run[key]:,} in place of {found.usual[key]:,}"
        for key in ("seeds", "horizon")
        if found.run[key] != found.usual[key]
    ]
    missing = [name for name in _names(found.usual) if name not in _names(found.run)]
    added = [name for name in _names(found.run) if name not in _names(found.usual)]
    typed = {"seeds", "horizon", "data", *(("algorithms", "contenders") if missing or added else ())}
    others = [
        key
        for key in found.usual
        if key not in typed and _unordered(found.run.get(key)) != _unordered(found.usual[key])
    ]
    return [
        *numbers,
        *([f"without {', '.join(missing)}"] if missing else []),
        *([f"with {', '.join(added)}"] if added else []),
        *([f"with other {', '.join(others)} than the preset has now"] if others else []),
    ]


def _unordered(value: Any) -> Any:
    """The order in which algorithms or worlds are named decides nothing."""
    return sorted(value, key=str) if isinstance(value, list) else value


def _names(settings: dict[str, Any]) -> list[str]:
    return list(settings.get("algorithms") or [contender["label"] for contender in settings["contenders"]])
