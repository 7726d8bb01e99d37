"""Agents on disk: arrays and JSON in one file, with a version and a checksum, and nothing that is executed.

The first line names the format, its version and the SHA-256 of everything after it, which is an npz file; its entry
`header` is the JSON.
"""

import hashlib
import io
import json
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from vits import models
from vits.files import Arrays, write_atomically
from vits.models.network import ACTIVATIONS

MAGIC = b"vits-agent"
VERSION = 2
LONGEST = 96
"""The first line is never longer than this."""

PLAIN = (bool, int, float, str, type(None))
MODELS: dict[type, str] = {models.Linear: "linear", models.Logistic: "logistic", models.Poisson: "poisson"}


def write(path: str | Path, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write an agent whole or not at all."""
    text = np.frombuffer(json.dumps(header, allow_nan=False).encode(), np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, header=text, **arrays)
    content = buffer.getvalue()
    first = b"%s %d %s\n" % (MAGIC, VERSION, hashlib.sha256(content).hexdigest().encode())
    write_atomically(Path(path), first + content, private=True)


def read(path: str | Path) -> tuple[dict[str, Any], Arrays]:
    """The header and the arrays of a file, or an error that says what is wrong with it."""
    raw = Path(path).read_bytes()
    first, newline, content = raw.partition(b"\n") if b"\n" in raw[:LONGEST] else (raw[:LONGEST], b"", b"")
    words = first.split(b" ")
    if words[0] != MAGIC or len(words) != 3 or not newline:
        raise ValueError(f"'{path}' is not a saved agent, or has lost its beginning")
    if words[1] != b"%d" % VERSION:
        version = words[1].decode(errors="replace")
        raise ValueError(f"'{path}' has format version {version}, but this version of vits reads version {VERSION}")
    if words[2] != hashlib.sha256(content).hexdigest().encode():
        raise ValueError(f"'{path}' is damaged: its content does not fit its checksum")
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return json.loads(arrays.pop("header").tobytes()), arrays


def encoded_name(name: Hashable) -> Any:
    """The name of an arm in JSON."""
    if isinstance(name, np.generic):
        name = name.item()
    if isinstance(name, tuple):
        return {"tuple": [encoded_name(part) for part in name]}
    if type(name) in PLAIN and name == name and abs(name if isinstance(name, float) else 0.0) != float("inf"):
        return name
    raise ValueError(f"arm {name!r} cannot be saved: names must be text, finite numbers, None or tuples of these")


def decoded_name(value: Any) -> Hashable:
    """The name of an arm from JSON."""
    return tuple(decoded_name(part) for part in value["tuple"]) if isinstance(value, dict) else value


def encoded_model(model: models.RewardModel) -> dict[str, Any]:
    """What is needed to make a model again, or to know it again when the caller brings it."""
    built: dict[str, Any] = {"dim": model.dim, "num_params": model.num_params}
    kind: type = type(model)
    if kind in MODELS:
        return built | {"name": MODELS[kind]}
    if isinstance(model, models.Mlp):
        names = [name for name, function in ACTIVATIONS.items() if function is model.network.activation]
        if names:
            hidden = [layer.out_features for layer in model.network.layers[:-1]]
            return built | {"name": "mlp", "hidden": hidden, "activation": names[0]}
    return built | {"name": None}


def decoded_model(value: Mapping[str, Any], given: models.RewardModel | None) -> models.RewardModel:
    """The model of a saved agent: made again, or the one that the caller gives if it fits."""
    name = value["name"]
    if given is not None:
        found = encoded_model(given)
        if found != value:
            raise ValueError(f"the model must fit the saved one, {_described(value)}, but is {_described(found)}")
        return given
    if name is None:
        raise ValueError(
            f"the agent was saved with a model of your own, {_described(value)}: give it, load(path, model=...)"
        )
    if name == "mlp":
        return models.mlp(value["dim"], value["hidden"], value["activation"])
    return {"linear": models.linear, "logistic": models.logistic, "poisson": models.poisson}[name](value["dim"])


def encoded_settings(settings: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
    """Hyperparameters in JSON, and those that are arrays; an object of Python's is left for the caller to bring."""
    plain: dict[str, Any] = {}
    arrays: Arrays = {}
    for name, value in settings.items():
        if type(value) in PLAIN:
            plain[name] = {"value": value}
        elif isinstance(value, tuple) and all(_is_numeric(part) for part in value):
            plain[name] = {"tuple": len(value)}
            arrays |= {f"setting_{name}_{i}": np.asarray(part) for i, part in enumerate(value)}
        elif _is_numeric(value):
            plain[name] = {"array": True}
            arrays[f"setting_{name}"] = np.asarray(value)
        else:
            plain[name] = {"object": type(value).__name__}
    return plain, arrays


def decoded_settings(
    plain: Mapping[str, Any], arrays: Mapping[str, Shaped[np.ndarray, "..."]], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Hyperparameters as they were; the caller must bring those that could not be saved, and no others."""
    missing = {name for name, value in plain.items() if "object" in value}
    for name in given:
        if name not in missing:
            raise ValueError(f"{name} was saved with the agent and cannot be given, but is {given[name]!r}")
    settings: dict[str, Any] = dict(given)
    for name, value in plain.items():
        if "value" in value:
            settings[name] = value["value"]
        elif "tuple" in value:
            settings[name] = tuple(arrays[f"setting_{name}_{i}"] for i in range(value["tuple"]))
        elif "array" in value:
            settings[name] = arrays[f"setting_{name}"]
        elif name not in given:
            raise ValueError(f"{name} was a {value['object']}, which cannot be saved: give it, load(path, {name}=...)")
    return settings


def _is_numeric(value: Any) -> bool:
    if callable(value) or isinstance(value, str):
        return False
    array = np.asarray(value)
    return array.dtype.kind in "fiub"


def _described(value: Mapping[str, Any]) -> str:
    kind = value["name"] or "custom"
    return f"{kind} with {value['dim']} features and {value['num_params']} parameters"
