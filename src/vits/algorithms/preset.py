"""What all presets share: checks that come before anything is built."""

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax.numpy as jnp

from vits import memory, validate
from vits.models import RewardModel
from vits.policies import PosteriorPolicy

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def preset(build: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A preset that refuses, in one sentence, what is not a model, hyperparameters that it does not have, and counts
    (`num_steps` and the like) that are none.
    """
    known = hyperparameters(build)

    @functools.wraps(build)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        model = args[0] if args else kwargs.get("model")
        if not isinstance(model, RewardModel):
            raise ValueError(f"model must be a reward model such as vits.models.linear(3), but is {model!r}")
        for name in kwargs:
            if name != "model" and name not in known:
                raise validate.unknown(f"hyperparameter of {build.__name__}", name, known)
            if name.startswith("num_") and kwargs[name] is not None:
                validate.count(name, kwargs[name])
        if kwargs.get("prior") is not None and "prior_precision" in kwargs:
            raise ValueError(
                f"prior_precision must be left out when there is a prior, but is {kwargs['prior_precision']}"
            )
        policy = build(*args, **kwargs)
        check_memory(build.__name__, policy, model)
        return policy

    return checked


def check_memory(name: str, policy: Any, model: RewardModel) -> None:
    """Refuse a policy whose matrices would not fit, before any of them is allocated."""
    matrices = policy.posterior.num_matrices if isinstance(policy, PosteriorPolicy) else 0
    memory.check(
        f"{name} on a model with {model.num_params:,} parameters",
        matrices * jnp.zeros(()).itemsize * float(model.num_params) ** 2,
        "use a smaller model, or lmc_ts, which keeps no matrix",
    )


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
