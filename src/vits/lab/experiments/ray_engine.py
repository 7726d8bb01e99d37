"""Computes cells on a Ray cluster: one task per cell, the longest first, repeated if its worker or node is lost."""

import hashlib
import importlib
import logging
import math
import os
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from vits.files import Arrays
from vits.lab.experiments import ray_worker
from vits.lab.experiments.base import Cell
from vits.lab.experiments.ray_loopback import LOOPBACK, keep_loopback
from vits.lab.experiments.run import Engine, EngineError, Monitor
from vits.lab.results import counted
from vits.simulation.programs import current_shares

MOST_FAILURES = 3
"""Errors of a cell after which it is given up."""

MOST_LOSSES = 20
"""Lost workers after which a cell is given up: the cell itself may have ended them, for example by its memory."""

WAIT = 1.0
"""Seconds between two updates of the lines about nodes."""


class Waiting:
    """Cells that wait for a worker. The longest comes first, by the speeds measured so far.

    Algorithms without a measurement come before all others.

    Args:
        cells: the cells.
        seconds: the time of a unit of cost, by algorithm and by row; measurements are added.
    """

    def __init__(self, cells: Sequence[Cell], seconds: dict[Any, float]) -> None:
        self._cells, self._seconds = cells, seconds
        self._indices = list(range(len(cells)))

    def __len__(self) -> int:
        return len(self._indices)

    def pop(self) -> int:
        """The index of the next cell."""
        best = max(self._indices, key=lambda index: (self._estimate(index), self._cells[index].cost, -index))
        self._indices.remove(best)
        return best

    def push(self, index: int) -> None:
        """Put a cell back, to be computed again."""
        self._indices.append(index)

    def measured(self, index: int, seconds: float) -> None:
        """Store the speed of a finished cell."""
        cell = self._cells[index]
        self._seconds[cell.algorithm] = self._seconds[cell.key] = seconds / max(cell.cost, 1)

    def _estimate(self, index: int) -> float:
        cell = self._cells[index]
        return self._seconds.get(cell.key, self._seconds.get(cell.algorithm, math.inf)) * max(cell.cost, 1)


class Ray(Engine):
    """Computes cells on a Ray cluster.

    Args:
        address: address of the cluster; by default RAY_ADDRESS, or a new cluster on this machine.
        cores: number of cores, and of threads, of a task.
    """

    def __init__(self, address: str | None = None, *, cores: int = 1) -> None:
        self._cores = cores
        self._address = address or os.environ.get("RAY_ADDRESS") or "local"
        self._done: Counter[str] = Counter()
        self._seconds: dict[Any, float] = {}

    @override
    def compute(self, cells: Sequence[Cell], monitor: Monitor) -> Iterator[tuple[Cell, Arrays]]:
        if not cells:
            return
        ray = connect(self._address)
        order, pickled = _order(ray, cells, self._cores)
        content = ray.put(pickled)
        task = ray.remote(ray_worker.compute).options(
            num_cpus=self._cores, max_retries=0, runtime_env=_environment(self._cores)
        )
        waiting, running = Waiting(cells, self._seconds), dict[Any, int]()
        failures, losses = Counter[int](), Counter[int]()
        given_up: list[str] = []
        try:
            while waiting or running:
                while waiting and len(running) < _room(ray, self._cores):
                    index = waiting.pop()
                    monitor.cell(cells[index])
                    running[task.remote(content, order, index)] = index
                for ref in ray.wait(list(running), timeout=WAIT)[0]:
                    index = running.pop(ref)
                    cell = cells[index]
                    try:
                        done = ray.get(ref)
                    except ray.exceptions.RayTaskError as error:
                        if isinstance(error.cause, ray_worker.WrongSoftware):
                            raise EngineError(str(error.cause)) from None
                        times, most, reason = failures, MOST_FAILURES, f"{type(error.cause).__name__}: {error.cause}"
                    except ray.exceptions.RayError as error:  # its worker or its node is gone
                        times, most, reason = losses, MOST_LOSSES, f"its worker was lost {MOST_LOSSES} times: {error}"
                    else:
                        waiting.measured(index, done.seconds)
                        self._done[done.node] += 1
                        monitor.advance(cell.cost)
                        yield cell, done.arrays
                        continue
                    times[index] += 1
                    if times[index] < most:
                        waiting.push(index)
                    else:
                        given_up.append(f"{cell.environment}, {cell.algorithm}, {cell.chunk}: {reason}")
                monitor.nodes(self._lines(ray))
        finally:
            if running:  # an error, or Ctrl-C
                for ref in running:
                    ray.cancel(ref, force=True)
                ray.shutdown()
        if given_up:
            outcome = f"{len(given_up)} of {len(cells)} cells failed; the others are stored"
            raise EngineError("\n  ".join([f"{outcome}, and the same command tries again", *given_up]))

    def _lines(self, ray: Any) -> list[str]:
        """One line per node of the cluster; nodes that left are named if they computed a cell."""
        lines = []
        for node in ray.nodes():
            done, cores = self._done[node["NodeID"]], node["Resources"].get("CPU", 0)
            name = f"{node['NodeManagerHostname']}, node {node['NodeID'][:8]}"
            if node["Alive"]:
                lines.append(f"{name}: {counted(int(cores), 'core')}, {counted(done, 'cell')} done")
            elif done:
                lines.append(f"{name}: left after {counted(done, 'cell')}")
        return lines


def connect(address: str) -> Any:
    """Connect to the cluster at an address, and return the module `ray`; "local" starts a cluster on this machine.

    A cluster on this machine listens on 127.0.0.1 only. So must a cluster whose address is 127.0.0.1.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    arguments: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        if "RAY_AUTH_MODE" not in os.environ:
            os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
        arguments |= {"num_cpus": os.cpu_count(), "include_dashboard": False}
    ray = importlib.import_module("ray")
    if ray.is_initialized():
        return ray
    if address == "local" or address.startswith(f"{LOOPBACK}:"):
        keep_loopback()
        arguments["_node_ip_address"] = LOOPBACK
    try:
        ray.init(**arguments)
    except (ConnectionError, RuntimeError, ValueError) as error:
        sentence = str(error).splitlines()[0]
        raise EngineError(f"there is no connection to a Ray cluster at {address}: {sentence}") from None
    if address == "local" and (found := ray.nodes()[0]["NodeManagerAddress"]) != LOOPBACK:
        ray.shutdown()
        raise EngineError(f"this version of Ray starts its node on {found} instead of {LOOPBACK}; install another")
    return ray


def _order(ray: Any, cells: Sequence[Cell], cores: int) -> tuple[ray_worker.Order, Any]:
    """The order for the workers, and the pickled cells; objects that cells share are pickled once."""
    pickled = ray.cloudpickle.dumps(list(cells))
    checksum = hashlib.sha256(pickled).hexdigest()
    order = ray_worker.Order(current_shares().groups, cores, ray_worker.software(), checksum)
    return order, np.frombuffer(pickled, np.uint8)


def _environment(cores: int) -> dict[str, Any]:
    """Environment variables of the workers: the number of threads, and the settings of JAX from the driver.

    The folder of compiled programs is not among them: every machine has its own.
    """
    own = ("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE")
    chosen = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("JAX_", "XLA_")) and not name.startswith(own)
    }
    return {"env_vars": {**chosen, "NPROC": str(cores), "OPENBLAS_NUM_THREADS": str(cores)}}


def _room(ray: Any, cores: int) -> int:
    """The number of tasks to submit: one for every core, and a few more that start as soon as a core is free."""
    places = int(ray.cluster_resources().get("CPU", 0)) // cores
    return places + max(2, places // 8)
