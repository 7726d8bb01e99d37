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
from cluster import Cluster, environment, kill
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


def local(folder, num_cells):
    run.run(Trivial("trivial", "Trivial", num_cells), folder, preset="quick")
    return contents(folder)


def vits(*arguments, **variables):
    command = [Path(sys.executable).parent / "vits", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**environment(), **variables}, timeout=900)


@pytest.mark.parametrize("experiment", ["linear", "fixed-logistic", "movielens"])
def test_a_run_on_ray_equals_the_local_one_bit_for_bit(experiment, tmp_path):
    if experiment == "movielens":
        try:
            movielens.find()
        except ValueError as error:
            pytest.skip(str(error))
    done = vits("run", experiment, "--out", tmp_path / "local")
    assert done.returncode == 0, done.stderr
    done = vits("run", experiment, "--engine", "ray", "--out", tmp_path / "ray")
    assert done.returncode == 0, done.stderr
    expected = contents(tmp_path / "local")
    assert len(expected) >= 16
    assert contents(tmp_path / "ray") == expected
    started = time.monotonic()
    assert vits("run", experiment, "--engine", "ray", "--out", tmp_path / "ray").returncode == 0
    assert time.monotonic() - started < 30.0  # draws the figures again


def test_kills_of_workers_nodes_and_drivers_change_nothing(cluster, tmp_path):
    rng = random.Random(0)
    kills = ["worker"] * 10 + ["node"] * 5 + ["driver"] * 4 + ["head"]
    rng.shuffle(kills)
    folder, num_cells = tmp_path / "run", 200

    def start():
        with (tmp_path / "driver.log").open("a") as log:
            return cluster.driver(str(DRIVER), str(folder), str(num_cells), "0.6", stdout=log, stderr=log)

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
        driver = cluster.driver(str(DRIVER), str(tmp_path / "run"), "60", "0.5")
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
    driver = cluster.driver(str(DRIVER), str(tmp_path / "run"), "10", "600.0", stderr=subprocess.DEVNULL)
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


def test_two_hundred_cells_take_little_longer_than_on_the_local_engine(cluster, tmp_path):
    """Cells that keep a core busy for two seconds: on the local engine, two processes have a half each."""
    num_cells = 200
    script = (
        "import sys; from pathlib import Path; from cells import Trivial; from vits.lab.experiments import run\n"
        f"run.run(Trivial('trivial', 'Trivial', {num_cells // 2}, 2.0, busy=True), Path(sys.argv[1]), preset='quick')"
    )
    started = time.monotonic()
    halves = [cluster.driver("-c", script, str(tmp_path / f"half-{i}")) for i in range(2)]
    assert [half.wait() for half in halves] == [0, 0]
    on_local = time.monotonic() - started
    started = time.monotonic()
    assert cluster.driver(str(DRIVER), str(tmp_path / "run"), str(num_cells), "2.0", "busy").wait() == 0
    on_ray = time.monotonic() - started
    print(f"local {on_local:.1f} s, Ray {on_ray:.1f} s, ratio {on_ray / on_local:.3f}")
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
        code = shell.wait(timeout=600)
    assert code == 0, log.read_text()
    assert (tmp_path / "results/linear-quick/summary.json").exists()
