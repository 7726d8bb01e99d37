"""What all presets share: checks that come before anything is built."""

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from vits import validate
from vits.models import RewardModel

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def preset(build: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A preset that refuses, in one sentence, what is not a model and hyperparameters that it does not have."""
    known = hyperparameters(build)

    @functools.wraps(build)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        model = args[0] if args else kwargs.get("model")
        if not isinstance(model, RewardModel):
            raise ValueError(f"model must be a reward model such as vits.models.linear(3), but is {model!r}")
        for name in kwargs:
            if name != "model" and name not in known:
                raise validate.unknown(f"hyperparameter of {build.__name__}", name, known)
        if kwargs.get("prior") is not None and "prior_precision" in kwargs:
            raise ValueError(
                f"prior_precision must be left out when there is a prior, but is {kwargs['prior_precision']}"
            )
        return build(*args, **kwargs)

    return checked


def hyperparameters(build: Callable[..., Any]) -> dict[str, Any]:
    """The types of all hyperparameters of a preset by name, those of its data options included."""
    types: dict[str, Any] = {}
    for parameter in inspect.signature(build).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            (options,) = typing.get_args(parameter.annotation)
            types |= options.__annotations__
        elif parameter.name != "model":
            types[parameter.name] = parameter.annotation
    return types
