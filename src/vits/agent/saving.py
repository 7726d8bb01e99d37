"""Saved agents: arrays and JSON in one file, with a version and a checksum; nothing in it is executed.

The first line names the format, its version and the SHA-256 of everything after it, which is an npz file; its entry
`header` is the JSON.
"""

import hashlib
import io
import json
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Shaped

from vits import models
from vits.agent.arms import Arm, FeatureMap
from vits.agent.decisions import Ledger, Pending
from vits.agent.snapshot import Counts, Settings, Snapshot, assembled
from vits.files import Arrays, write_atomically
from vits.models.network import ACTIVATIONS

MAGIC = b"vits-agent"
VERSION = 2
LONGEST = 96
"""The first line is never longer than this."""

PLAIN = (bool, int, float, str, type(None))
MODELS: dict[type, str] = {models.Linear: "linear", models.Logistic: "logistic", models.Poisson: "poisson"}


def load(
    path: str | Path, model: models.RewardModel | None, features: FeatureMap | None, given: Mapping[str, Any]
) -> tuple[Snapshot, Ledger]:
    """The snapshot and the ledger of a saved agent."""
    header, arrays = read(path)
    precision = str(jnp.zeros(()).dtype)
    if header["precision"] != precision:
        raise ValueError(
            f"'{path}' was saved in {header['precision']}, but JAX computes in {precision} (jax_enable_x64)"
        )
    if header["has_features"] != (features is not None):
        needed = "give it, load(path, features=...)" if header["has_features"] else "there was none when it was saved"
        raise ValueError(f"a feature map is not saved with an agent: {needed}")
    settings = Settings(
        header["algorithm"],
        decoded_model(header["model"], model),
        decoded_settings(header["hyperparameters"], arrays, given),
        features,
        header["is_named"],
        header["when_full"],
        header["seed"],
    )
    return _restored(path, settings, header, arrays), _restored_ledger(header, arrays)


def encoded(snapshot: Snapshot, ledger: Ledger) -> tuple[dict[str, Any], Arrays]:
    """The header and the arrays of an agent."""
    settings, counts = snapshot.settings, snapshot.counts._asdict()
    hyperparameters, arrays = encoded_settings(settings.hyperparameters)
    pending, pending_arrays = _encoded_pending(ledger.waiting())
    header = {
        "algorithm": settings.algorithm,
        "model": encoded_model(settings.model),
        "hyperparameters": hyperparameters,
        "precision": str(settings.dtype),
        "seed": settings.seed,
        "is_named": settings.is_named,
        "per_arm": settings.per_arm,
        "has_features": settings.features is not None,
        "when_full": settings.when_full,
        "arms": [_encoded_arm(arm) for arm in snapshot.arms.values()],
        "slots": snapshot.slots,
        "capacity": snapshot.capacity,
        "rows": snapshot.rows,
        "counts": counts | {"next_born": counts.pop("arm_changes"), "by_arm": list(counts["by_arm"].items())},
        "book": {name: getattr(ledger, name) for name in ("tag", "limit", "issued", "expired", "horizon")},
        "pending": pending,
    }
    state = {f"state_{i}": np.asarray(array) for i, array in enumerate(snapshot.state_arrays)}
    return header, state | arrays | pending_arrays


def _restored(path: str | Path, settings: Settings, header: Mapping[str, Any], arrays: Arrays) -> Snapshot:
    policy = settings.policy(header["slots"], header["capacity"])
    like = jax.eval_shape(policy.init, jax.random.key(0))
    leaves, structure = jax.tree.flatten(like)
    found = [arrays.get(f"state_{i}") for i in range(len(leaves))]
    fits = f"state_{len(leaves)}" not in arrays and all(
        array is not None and array.shape == leaf.shape and array.dtype == leaf.dtype
        for array, leaf in zip(found, leaves, strict=True)
    )
    if not fits:
        raise ValueError(f"'{path}' holds another state than {settings.algorithm} has in this version of vits")
    state = jax.tree.unflatten(structure, [jnp.asarray(array) for array in found])
    arms = {arm.name: arm for arm in map(_decoded_arm, header["arms"])}
    counts = dict(header["counts"])
    counts |= {"arm_changes": counts.pop("next_born"), "by_arm": dict(counts["by_arm"])}
    return assembled(
        settings, header["slots"], header["capacity"], header["rows"], policy, state, arms, Counts(**counts)
    )


def _encoded_arm(arm: Arm | None) -> Any:
    return None if arm is None else [encoded_name(arm.name), arm.slot, arm.created]


def _decoded_arm(value: Any) -> Any:
    return None if value is None else Arm(decoded_name(value[0]), value[1], value[2])


def _encoded_pending(waiting: Mapping[str, Pending]) -> tuple[list[Any], Arrays]:
    entries = list(waiting.items())
    listed = [
        [name, [_encoded_arm(arm) for arm in one.arms], None if one.menu is None else len(one.menu)]
        for name, one in entries
    ]
    if not entries:
        return listed, {}
    arrays = {"pending_features": np.concatenate([one.features for _, one in entries])}
    menus = [one.menu for _, one in entries if one.menu is not None]
    return listed, arrays | ({"pending_menus": np.concatenate(menus)} if menus else {})


def _restored_ledger(header: Mapping[str, Any], arrays: Arrays) -> Ledger:
    saved = header["book"]
    ledger = Ledger(saved["tag"], saved["limit"])
    ledger.issued, ledger.expired, ledger.horizon = saved["issued"], saved["expired"], saved["horizon"]
    row = menu_row = 0
    for name, arms, menu_rows in header["pending"]:
        rows = arrays["pending_features"][row : row + len(arms)]
        row += len(arms)
        menu = None
        if menu_rows is not None:
            menu = arrays["pending_menus"][menu_row : menu_row + menu_rows]
            menu_row += menu_rows
        ledger.pending[name] = Pending(tuple(_decoded_arm(arm) for arm in arms), rows, menu)
    return ledger


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
