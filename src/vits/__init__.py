"""Thompson sampling for contextual bandits with posteriors that can be trusted, on JAX."""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers; a test compares these imports with the public names
    from vits import agent as agent
    from vits import algorithms as algorithms
    from vits import catalogue as catalogue
    from vits import cli as cli
    from vits import datasets as datasets
    from vits import environments as environments
    from vits import files as files
    from vits import history as history
    from vits import inference as inference
    from vits import lab as lab
    from vits import linalg as linalg
    from vits import models as models
    from vits import offline as offline
    from vits import policies as policies
    from vits import potentials as potentials
    from vits import simulation as simulation
    from vits import steps as steps
    from vits import types as types
    from vits import validate as validate
    from vits.agent import Agent as Agent
    from vits.algorithms import make as make
    from vits.simulation import simulate as simulate

    __version__: str

__all__ = ["Agent", "make", "simulate"]

_HOMES = {"Agent": "agent", "make": "algorithms", "simulate": "simulation"}


if not TYPE_CHECKING:  # to a type checker every name would exist

    def __getattr__(name: str) -> Any:
        """Import a public name or submodule on first use, so that the command line starts without JAX."""
        if name in _HOMES:
            value = getattr(importlib.import_module(f"vits.{_HOMES[name]}"), name)
        elif name == "__version__":
            value = importlib.import_module("importlib.metadata").version("vits-bandits")
        elif not name.startswith("_") and importlib.util.find_spec(f"vits.{name}"):
            value = importlib.import_module(f"vits.{name}")
        else:
            raise AttributeError(f"module 'vits' has no attribute '{name}'")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        submodules = importlib.import_module("pkgutil").iter_modules(__path__)
        return sorted({*globals(), *_HOMES, "__version__", *(module.name for module in submodules)})
