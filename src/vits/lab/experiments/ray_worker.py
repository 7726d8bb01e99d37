"""Code that runs on the workers of a cluster: it computes one of the cells that the driver sent."""

import hashlib
import pickle
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from vits.files import Arrays, keep_compiled_programs


class WrongSoftware(Exception):
    """The software of a node differs from that of the driver, so its results could differ."""


class Order(NamedTuple):
    """Settings that all tasks of a run share."""

    groups: int
    """The number of groups of seeds on the driver's machine: their size decides the last bits of the results."""
    threads: int
    """The number of threads: that of the cores of a task."""
    software: dict[str, str]
    """The versions on the driver's machine."""
    checksum: str
    """SHA-256 of the pickled cells."""


class Done(NamedTuple):
    """The arrays of a cell, the node that computed it, and the seconds it took, compilation included."""

    arrays: Arrays
    node: str
    seconds: float


_cells: dict[str, list[Any]] = {}
"""The cells of the last order, so that a worker unpickles them once."""


def compute(pickled: UInt8[np.ndarray, " bytes"], order: Order, index: int) -> Done:
    """Compute a cell.

    Args:
        pickled: all cells, from the object store of the node.
        order: settings of the run.
        index: the cell to compute.
    """
    keep_compiled_programs()
    started = time.perf_counter()
    if order.checksum not in _cells:
        _check_software(order.software)
        _cells.clear()
        _cells[order.checksum] = pickle.loads(pickled.data)
    from vits.simulation.programs import Shares, shared

    with shared(Shares(order.groups, order.threads)):
        arrays = _cells[order.checksum][index].compute(lambda cost: None)
    found = {name: np.asarray(array) for name, array in arrays.items()}
    return Done(found, _node(), time.perf_counter() - started)


def software() -> dict[str, str]:
    """Software that must be the same on all nodes: the libraries, the precision, and the sources of this package."""
    import jax.numpy as jnp

    from vits.lab.experiments.run import libraries

    return {**libraries(), "precision": str(jnp.asarray(0.0).dtype), "vits sources": _sources()}


def _sources() -> str:
    """A hash of the package's Python files."""
    found = hashlib.sha256()
    folder = Path(__file__).parents[2]
    for file in sorted(folder.rglob("*.py")):
        found.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def _check_software(wanted: dict[str, str]) -> None:
    own = software()
    different = [f"{name} {own.get(name)} instead of {value}" for name, value in wanted.items() if own[name] != value]
    if different:
        raise WrongSoftware(f"node {_node()} has {', '.join(different)}; install what the driver has")


def _node() -> str:
    import ray

    return str(ray.get_runtime_context().get_node_id())
