"""Arm names, reward models and hyperparameters as JSON and arrays, and back again with every value checked."""

import itertools
import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from vits import algorithms, catalogue, models, validate
from vits.agent.container import DTYPES, Damaged
from vits.files import Arrays
from vits.models.network import ACTIVATIONS
from vits.policies import MOST_STEPS, kinds

PLAIN = (bool, int, float, str, type(None))
MODELS: dict[type, str] = {models.Linear: "linear", models.Logistic: "logistic", models.Poisson: "poisson"}
MAKERS: dict[str, Any] = {"linear": models.linear, "logistic": models.logistic, "poisson": models.poisson}

MOST = 1 << 62
"""The largest count."""

STORED = ("window", "fold_after", "capacity", "num_arms")
"""Hyperparameters that are sizes of arrays in the file."""

MOST_LAYERS = 100

MODEL_BYTES = 1 << 28
"""The most memory for model parameters that a small file may request; some algorithms store no array of that size."""


def fields(value: Any, what: str, *names: str) -> list[Any]:
    """The values of a JSON object that must have exactly these names."""
    if not isinstance(value, dict) or set(value) != set(names):
        raise Damaged(f"{what} must have the fields {', '.join(names)}")
    return [value[name] for name in names]


def entries(value: Any, what: str, length: int | None = None) -> list[Any]:
    """A JSON list, of a given length."""
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise Damaged(f"{what} must be a list" + ("" if length is None else f" of {length} entries"))
    return value


def whole(value: Any, what: str, *, least: int = 0, most: int = MOST) -> int:
    """A whole number within bounds."""
    if type(value) is not int or not least <= value <= most:
        raise Damaged(f"{what} must be a whole number from {least} to {most}")
    return value


def flag(value: Any, what: str) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise Damaged(f"{what} must be true or false")
    return value


def one_of(value: Any, what: str, known: Any) -> str:
    """One of some names."""
    if type(value) is not str or value not in known:
        raise Damaged(f"{what} must be one of {', '.join(known)}")
    return value


def encoded_name(name: Hashable) -> Any:
    """The name of an arm in JSON."""
    if isinstance(name, np.generic):
        name = name.item()
    if isinstance(name, tuple):
        return {"tuple": [encoded_name(part) for part in name]}
    if _is_plain(name):
        return name
    raise ValueError(f"arm {name!r} cannot be saved: names must be text, finite numbers, None or tuples of these")


def decoded_name(value: Any) -> Hashable:
    """The name of an arm from JSON."""
    if isinstance(value, dict):
        (parts,) = fields(value, "the name of an arm", "tuple")
        return tuple(decoded_name(part) for part in entries(parts, "the name of an arm"))
    if not _is_plain(value):
        raise Damaged("the name of an arm must be text, a finite number, null or a tuple of these")
    return value


def encoded_model(model: models.RewardModel) -> dict[str, Any]:
    """A description from which a model can be made, or compared with the one that the caller gives."""
    built: dict[str, Any] = {"dim": model.dim, "num_params": model.num_params}
    kind: type = type(model)
    if kind in MODELS:
        return built | {"name": MODELS[kind]}
    if isinstance(model, models.Mlp):
        names = [name for name, function in ACTIVATIONS.items() if function is model.network.activation]
        if names:
            hidden = [layer.out_features for layer in model.network.layers[:-1]]
            heads = {} if model.num_heads is None else {"outputs": model.num_heads}
            return built | {"name": "mlp", "hidden": hidden, "activation": names[0]} | heads
    return built | {"name": None}


def decoded_model(
    value: Any, given: models.RewardModel | None, algorithm: str, itemsize: int, nbytes: int
) -> models.RewardModel:
    """The model of a saved agent: made from its description, or the given one if it matches.

    Its parameters may take as much memory as the file, `nbytes`, or as `MODEL_BYTES`. A network allocates them, and an
    algorithm that learns has stored them, so those of a network must be in the file.
    """
    _check_model(value)
    if given is not None:
        if not isinstance(given, models.RewardModel):
            raise ValueError(f"model must be a reward model, but is {validate.shown(given)}")
        found = encoded_model(given)
        if found != value:
            raise ValueError(f"the model must match the saved one, {_described(value)}, but is {_described(found)}")
        return given
    name, num_params = value["name"], value["num_params"]
    if name is None:
        raise ValueError(
            f"the agent was saved with a model of your own, {_described(value)}: give it, load(path, model=...)"
        )
    if name == "mlp" and catalogue.algorithm(algorithm).learns and num_params * itemsize > nbytes:
        raise Damaged(f"it is too small to hold the {num_params:,} parameters of its network")
    if num_params * itemsize > max(nbytes, MODEL_BYTES):
        raise ValueError(
            f"the saved model, {_described(value)}, needs {num_params * itemsize / 1e9:.3g} GB, more than its file: "
            "if that is right, give the model, load(path, model=...)"
        )
    if name == "mlp":
        outputs = value.get("outputs")
        return models.mlp(value["dim"] - (outputs is not None), value["hidden"], value["activation"], outputs=outputs)
    model: models.RewardModel = MAKERS[name](value["dim"])
    return model


def encoded_settings(settings: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
    """Hyperparameters in JSON, and those that are arrays. Other objects are not saved: `load` takes them again."""
    plain: dict[str, Any] = {}
    arrays: Arrays = {}
    for name, value in settings.items():
        if _is_plain(value):
            plain[name] = {"value": value}
        elif isinstance(value, (tuple, list)) and all(_is_numeric(part) for part in value):
            plain[name] = {"tuple": len(value)}
            arrays |= {f"setting_{name}_{i}": np.asarray(part) for i, part in enumerate(value)}
        elif _is_numeric(value):
            plain[name] = {"array": True}
            arrays[f"setting_{name}"] = np.asarray(value)
        else:
            plain[name] = {"object": type(value).__name__}
    return plain, arrays


def decoded_settings(
    algorithm: str, plain: Any, arrays: Arrays, given: Mapping[str, Any], nbytes: int
) -> dict[str, Any]:
    """The hyperparameters of an algorithm; the caller gives those that could not be saved, and no others.

    The arrays that belong to them are taken out of `arrays`. No size may be above `nbytes`, the size of the file.
    """
    if not isinstance(plain, dict) or not all(isinstance(value, dict) and len(value) == 1 for value in plain.values()):
        raise Damaged("hyperparameters must be a value, an array, a tuple or an object each")
    for name in given:
        if "object" not in plain.get(name, {}):
            raise ValueError(f"{name} was saved with the agent and cannot be given, but is {given[name]!r}")
    known = algorithms.hyperparameters(algorithm)
    settings: dict[str, Any] = dict(given)
    for name, value in plain.items():
        if name not in known:
            raise Damaged(f"'{name[:40]}' is not a hyperparameter of {algorithm}")
        ((form, content),) = value.items()
        if form == "object" and name not in given:
            kind = content if isinstance(content, str) and content.isidentifier() else "Python object"
            raise ValueError(f"{name} was a {kind}, which cannot be saved: give it, load(path, {name}=...)")
        if form == "value":
            settings[name] = _checked_value(name, content, known[name], nbytes)
        elif form == "tuple":
            count = whole(content, f"the length of {name}", most=16)
            settings[name] = tuple(_taken(arrays, f"setting_{name}_{i}") for i in range(count))
        elif form == "array":
            settings[name] = _taken(arrays, f"setting_{name}")
            if float in kinds(known[name]) and settings[name].shape != ():
                raise Damaged(f"hyperparameter {name} must be one number")
        elif form != "object":
            raise Damaged(f"hyperparameter {name} has an unknown form")
    return settings


def _check_model(value: Any) -> None:
    is_mlp = isinstance(value, dict) and value.get("name") == "mlp"
    mlp = ("hidden", "activation", *(["outputs"] if "outputs" in value else [])) if is_mlp else ()
    dim, num_params, name, *network = fields(value, "the model", "dim", "num_params", "name", *mlp)
    whole(dim, "the number of features", least=1)
    whole(num_params, "the number of parameters", least=1)
    expected = dim
    if name == "mlp":
        hidden, activation, *heads = network
        widths = [whole(width, "a width of the network", least=1) for width in entries(hidden, "the network's layers")]
        whole(len(widths), "the number of layers", most=MOST_LAYERS)
        one_of(activation, "the activation", ACTIVATIONS)
        outputs = [whole(count, "the number of outputs", least=1) for count in heads]
        sizes = [whole(dim - len(heads), "the number of inputs", least=1), *widths, *(outputs or [1])]
        expected = sum((inputs + 1) * outputs for inputs, outputs in itertools.pairwise(sizes))
    elif name is not None:
        one_of(name, "the model", [*MAKERS, "mlp"])
    if name is not None and num_params != expected:
        raise Damaged(f"a {name} model with {dim} features must have {expected} parameters")


def _checked_value(name: str, value: Any, annotation: Any, nbytes: int) -> Any:
    allowed = {kind for kind in kinds(annotation) if kind in PLAIN}
    fits = not allowed or type(value) in allowed or (type(value) is int and float in allowed)
    if not fits or not _is_plain(value):
        raise Damaged(f"hyperparameter {name} has a value of the wrong kind")
    if type(value) is int and float not in allowed:
        return whole(value, f"hyperparameter {name}", most=nbytes if name in STORED else MOST_STEPS)
    return value


def _taken(arrays: Arrays, name: str) -> Any:
    array = arrays.pop(name, None)
    if array is None or not np.all(np.isfinite(array)):
        raise Damaged(f"array '{name}' must be there and finite")
    return array


def _is_plain(value: Any) -> bool:
    return type(value) in PLAIN and not (isinstance(value, float) and not math.isfinite(value))


def _is_numeric(value: Any) -> bool:
    if callable(value) or isinstance(value, str):
        return False
    return np.asarray(value).dtype.newbyteorder("<").str in DTYPES


def _described(value: Mapping[str, Any]) -> str:
    return f"{value['name'] or 'custom'} with {value['dim']} features and {value['num_params']} parameters"
