"""What a regret experiment is: worlds, contenders, a horizon and seeds; and how it is run and resumed."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vits import algorithms, checks, environments, models, registry, results
from vits.results import Curves, Results
from vits.simulation import simulate


@dataclasses.dataclass(frozen=True)
class World:
    """An environment and the arguments it is made with."""

    label: str
    environment: str
    arguments: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Contender:
    """An algorithm and its hyperparameters."""

    label: str
    algorithm: str
    hyperparameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class BanditExperiment:
    """Every contender plays in every world, with the same seeds."""

    name: str
    title: str
    worlds: tuple[World, ...]
    contenders: tuple[Contender, ...]
    model: str
    model_arguments: Mapping[str, Any]
    horizon: int
    seeds: int
    seed: int = 0

    def __post_init__(self) -> None:
        checks.count("horizon", self.horizon)
        checks.count("seeds", self.seeds)

    @property
    def num_rounds(self) -> int:
        """Rounds of the whole experiment, over all seeds: what a progress bar counts."""
        return len(self.worlds) * len(self.contenders) * self.seeds * self.horizon

    def only(self, names: list[str]) -> "BanditExperiment":
        """The same experiment with these contenders; an algorithm that is not among them joins at its defaults."""
        known = {contender.label: contender for contender in self.contenders}
        for name in names:
            if name not in known and name not in registry.ALGORITHMS:
                raise registry.unknown("algorithm", name, {*known, *registry.ALGORITHMS})
        chosen = tuple(known.get(name, Contender(name, name)) for name in dict.fromkeys(names))
        return dataclasses.replace(self, contenders=chosen)

    def settings(self) -> dict[str, Any]:
        """Everything needed to run it again, as JSON."""
        return dict(json.loads(json.dumps(dataclasses.asdict(self))))


def run(
    experiment: BanditExperiment,
    folder: Path,
    *,
    preset: str,
    progress: Callable[[int], None] = lambda rounds: None,
    announce: Callable[[str], None] = lambda message: None,
) -> Results:
    """Run what is not in the folder yet, store each cell when it is finished, and write the summary last.

    Args:
        experiment: what to run.
        folder: where results go; a folder with another experiment's results is refused.
        preset: the name under which the settings are stored.
        progress: called with the number of rounds just played or found.
        announce: called with the name of each cell before it runs.

    Returns:
        The results, as stored.
    """
    settings = experiment.settings()
    _claim(folder, settings)
    model = getattr(models, experiment.model)(**experiment.model_arguments)
    policies = {c.label: algorithms.make(c.algorithm, model, **c.hyperparameters) for c in experiment.contenders}
    worlds = {w.label: getattr(environments, w.environment)(**w.arguments) for w in experiment.worlds}
    curves: dict[tuple[str, str], Curves] = {}
    rows = []
    for world in experiment.worlds:
        for contender in experiment.contenders:
            cell = (world.label, contender.label)
            announce(f"{contender.label}, {world.label}")
            file = results.curve_file(folder, *cell)
            mark = fingerprint(experiment, world, contender)
            arrays = _stored(file, mark)
            if arrays is None:
                trace = simulate(
                    experiment.seed,
                    worlds[world.label],
                    policies[contender.label],
                    experiment.horizon,
                    seeds=experiment.seeds,
                    progress=progress,
                )
                results.save_arrays(file, {**results.trace_arrays(trace), "fingerprint": mark})
                arrays = results.load_arrays(file)
            else:
                progress(experiment.seeds * experiment.horizon)
            curves[cell] = results.curves_of(arrays)
            rows.append(results.row(*cell, contender.hyperparameters, curves[cell]))
    summary = {
        "experiment": experiment.name,
        "preset": preset,
        "settings": settings,
        "versions": results.versions(),
        "rows": rows,
        "claims": [],
    }
    results.write_json(folder / results.SUMMARY, summary)
    return Results(folder, summary, curves)


def fingerprint(experiment: BanditExperiment, world: World, contender: Contender) -> str:
    """A hash of everything that decides one cell's curves."""
    parts = {
        "world": dataclasses.asdict(world),
        "contender": dataclasses.asdict(contender),
        "model": [experiment.model, dict(experiment.model_arguments)],
        "run": [experiment.name, experiment.horizon, experiment.seeds, experiment.seed],
        "versions": results.versions(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _claim(folder: Path, settings: dict[str, Any]) -> None:
    """Make the folder ours, unless it holds something else."""
    path = folder / results.SETTINGS
    if path.is_file():
        found = json.loads(path.read_text())
        different = sorted(key for key in settings if found.get(key) != settings[key])
        if different:
            raise ValueError(
                f"{folder} holds a run of '{found.get('name')}' with another {different[0]}; choose another folder"
            )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is not an empty folder and holds no run; choose another folder")
    else:
        results.write_json(path, settings)


def _stored(file: Path, mark: str) -> dict[str, Any] | None:
    if not file.is_file():
        return None
    arrays = results.load_arrays(file)
    return arrays if str(arrays["fingerprint"]) == mark else None
