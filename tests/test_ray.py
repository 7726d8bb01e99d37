"""The Ray engine on real clusters of this machine."""

import importlib.util
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cells import Trivial
from cluster import Cluster, environment, exposed, kill, watch
from vits.datasets import movielens
from vits.lab.experiments import run

MISSING = "Ray is not installed; pip install 'vits-bandits[ray]' installs it"
pytestmark = [pytest.mark.heavy, pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason=MISSING)]

ROOT = Path(__file__).parents[1]
DRIVER = Path(__file__).parent / "driver.py"
TIMING = {"seconds"}
"""Arrays that measure the computer."""


@pytest.fixture
def cluster(tmp_path):
    with_nodes = Cluster(tmp_path)
    yield with_nodes
    with_nodes.stop()


def contents(folder):
    """Every array of every cell, as bytes, except for timings."""
    found = {}
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as arrays:
            found[file.name] = {name: arrays[name].tobytes() for name in arrays.files if name not in TIMING}
    return found


def trivial(num_cells, seconds, broken=()):
    """An expression for the driver."""
    return f"Trivial('trivial', 'Trivial', {num_cells}, {seconds}, {broken})"


def local(folder, num_cells):
    run.run(Trivial("trivial", "Trivial", num_cells), folder, preset="quick")
    return contents(folder)


def vits(*arguments, log):
    """Run the command; nothing that it starts listens on another address than loopback."""
    command = [Path(sys.executable).parent / "vits", *map(str, arguments)]
    with log.open("w") as out:
        process = subprocess.Popen(command, env=environment(), stdout=out, stderr=subprocess.STDOUT)
        found = watch(process, timeout=900)
    assert process.returncode == 0, log.read_text()
    assert not exposed(found), exposed(found)
    return found


@pytest.mark.parametrize("experiment", ["linear", "fixed-logistic", "movielens"])
def test_a_run_on_ray_equals_the_local_one_bit_for_bit(experiment, tmp_path):
    if experiment == "movielens":
        try:
            movielens.find()
        except ValueError as error:
            pytest.skip(str(error))
    log = tmp_path / "log"
    assert not vits("run", experiment, "--out", tmp_path / "local", log=log)
    found = vits("run", experiment, "--engine", "ray", "--out", tmp_path / "ray", log=log)
    assert any("raylet" in owner for owner in found.values())
    expected = contents(tmp_path / "local")
    assert len(expected) >= 16
    assert contents(tmp_path / "ray") == expected
    started = time.monotonic()
    assert not vits("run", experiment, "--engine", "ray", "--out", tmp_path / "ray", log=log)  # no cluster is started
    assert time.monotonic() - started < 30.0  # draws the figures again


def test_kills_of_workers_nodes_and_drivers_change_nothing(cluster, tmp_path):
    rng = random.Random(0)
    kills = ["worker"] * 10 + ["node"] * 5 + ["driver"] * 4 + ["head"]
    rng.shuffle(kills)
    folder, num_cells = tmp_path / "run", 200

    def start():
        with (tmp_path / "driver.log").open("a") as log:
            return cluster.driver(str(DRIVER), str(folder), trivial(num_cells, 0.6), stdout=log, stderr=log)

    driver, drivers = start(), 1
    done = []
    try:
        for kind in kills:
            time.sleep(rng.uniform(0.5, 4.0))
            if driver.poll() is not None:  # it lost its node
                assert not (folder / "summary.json").exists(), f"finished after {done}"
                driver, drivers = start(), drivers + 1
            if kind == "worker":
                deadline = time.monotonic() + 30
                while not (workers := cluster.workers()) and time.monotonic() < deadline:
                    time.sleep(0.1)
                kill(rng.choice(workers))
            elif kind == "node":
                cluster.kill(1)
                time.sleep(rng.uniform(0.0, 2.0))
                cluster.add()
            elif kind == "driver":
                driver.kill()
                driver.wait()
            else:
                cluster.stop()
                cluster.add()
                cluster.add()
            done.append(kind)
            cluster.check_sockets()
        deadline = time.monotonic() + 600
        while driver.wait(timeout=max(1.0, deadline - time.monotonic())) != 0:
            driver, drivers = start(), drivers + 1
    finally:
        kill(driver.pid)
    assert len(done) == 20
    assert drivers >= 5
    assert contents(folder) == local(tmp_path / "local", num_cells)


def test_a_node_that_joins_later_is_used(tmp_path):
    cluster = Cluster(tmp_path, num_nodes=1)
    try:
        driver = cluster.driver(str(DRIVER), str(tmp_path / "run"), trivial(60, 0.5), stderr=subprocess.DEVNULL)
        while len(list((tmp_path / "run").glob("*.npz"))) < 5:
            assert driver.poll() is None
            time.sleep(0.1)
        cluster.add()
        time.sleep(8.0)
        assert driver.poll() is None
        busy = cluster.workers()
        assert len(busy) >= 2
        assert driver.wait(timeout=120) == 0
    finally:
        cluster.stop()
    assert contents(tmp_path / "run") == local(tmp_path / "local", 60)


def test_ctrl_c_stops_the_tasks_of_the_cluster(cluster, tmp_path):
    driver = cluster.driver(str(DRIVER), str(tmp_path / "run"), trivial(10, 600.0), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while computing(cluster) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(timeout=30) != 0
    deadline = time.monotonic() + 20
    while computing(cluster) > 0:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def computing(cluster):
    """How many workers have used a CPU for cells: Ray names them by their task."""
    names = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in cluster.workers() if Path(f"/proc/{pid}").exists()]
    return sum(name.startswith(b"ray::compute") for name in names)


def test_broken_cells_are_reported_with_their_error_and_the_rest_goes_on(cluster, tmp_path):
    """The bar meanwhile shows how much is done, the time that is left, and a line for each node."""
    folder, log = tmp_path / "run", tmp_path / "log"
    with log.open("w") as out:
        driver = cluster.driver(str(DRIVER), str(folder), trivial(24, 1.0, (3, 17)), stderr=out)
        assert driver.wait(timeout=120) == 1
    said = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", log.read_text())
    assert "2 of 24 cells failed; the others are stored, and the same command tries again" in said
    for broken in (3, 17):
        assert f"world, a{broken}, all: ArithmeticError: cell {broken} is broken" in said
    assert sorted(contents(folder)) == sorted(f"world--a{i}--all.npz" for i in range(24) if i not in (3, 17))
    done = {int(count) for count in re.findall(r"(\d+)/48 ", said)}
    assert max(done) == 48 - 1 - 3  # the costs of all but the broken ones
    assert len(done) > 10
    assert re.search(r"/48 0:00:\d\d", said)
    nodes = re.findall(r"node ([0-9a-f]{8}): 1 cores, (\d+) cells done", said)
    assert len({node for node, _ in nodes}) == 2
    assert sum(max(int(count) for name, count in nodes if name == node) for node in {name for name, _ in nodes}) == 22


@pytest.mark.parametrize("cores", [1, 2])
def test_a_task_has_as_many_threads_as_cores(cores, tmp_path):
    cluster = Cluster(tmp_path, num_nodes=1, cores=2)
    try:
        expression = "Threads('threads', 'Threads', 4)"
        driver = cluster.driver(str(DRIVER), str(tmp_path / "run"), expression, str(cores), stderr=subprocess.DEVNULL)
        assert driver.wait(timeout=120) == 0
    finally:
        cluster.stop()
    for file in (tmp_path / "run").glob("*.npz"):
        with np.load(file) as arrays:
            assert (int(arrays["xla"][0]), int(arrays["blas"][0])) == (cores, cores)


def test_two_hundred_busy_cells_take_little_longer_than_on_the_local_engine(monkeypatch, tmp_path):
    """The same cells on the same two cores: the local engine gives a cell both, Ray gives one to each of two cells.

    Both times begin with the start of a process, end when it has ended, and have all compilation in them.
    VITS_TEST_CELLS, a number of cells, makes it shorter.
    """
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "xla-ray"))
    work = f"busy({os.environ.get('VITS_TEST_CELLS', '200')})"
    script = "import sys; from pathlib import Path; import cells; from vits.lab.experiments import run\n"
    script += f"run.run(cells.{work}, Path(sys.argv[1]), preset='quick')"
    own = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "xla-local")}
    cluster = Cluster(tmp_path)
    try:
        started = time.monotonic()
        assert cluster.driver("-c", script, str(tmp_path / "local"), variables=own).wait() == 0
        on_local = time.monotonic() - started
        started = time.monotonic()
        assert cluster.driver(str(DRIVER), str(tmp_path / "ray"), work, stderr=subprocess.DEVNULL).wait() == 0
        on_ray = time.monotonic() - started
    finally:
        cluster.stop()
    cells = contents(tmp_path / "ray")
    assert cells == contents(tmp_path / "local")
    print(f"{len(cells)} cells: local {on_local:.1f} s, Ray {on_ray:.1f} s, ratio {on_ray / on_local:.3f}")
    assert on_ray <= 1.15 * on_local


def test_the_page_about_clusters_word_for_word(tmp_path):
    page = (ROOT / "docs/howto/cluster.md").read_text()
    first, *_ = re.findall(r"^```bash\n(.*?)^```", page, flags=re.M | re.S)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {name: value for name, value in environment().items() if not name.startswith("RAY_")}
    log = tmp_path / "log"
    with log.open("w") as out:
        shell = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", first],
            cwd=tmp_path,
            env={**variables, "PATH": path},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        found = watch(shell, timeout=600)
    assert shell.returncode == 0, log.read_text()
    assert ("127.0.0.1", 46379) in found
    assert not exposed(found), exposed(found)
    assert (tmp_path / "results/linear-quick/summary.json").exists()
