"""Thompson sampling for contextual bandits with posteriors that can be trusted, on JAX."""

import importlib
from typing import Any

_MODULES = ("algorithms", "environments", "history", "lab", "models", "posteriors", "potentials", "steps")
_NAMES = {"Agent": "agent", "make": "algorithms", "simulate": "simulation"}

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "algorithms",
    "environments",
    "history",
    "lab",
    "make",
    "models",
    "posteriors",
    "potentials",
    "simulate",
    "steps",
]


def __getattr__(name: str) -> Any:
    # Imported on first use, so that the command line answers without waiting for JAX.
    if name in _NAMES:
        value = getattr(importlib.import_module(f"vits.{_NAMES[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"vits.{name}")
    else:
        raise AttributeError(f"module 'vits' has no attribute '{name}'")
    globals()[name] = value
    return value
