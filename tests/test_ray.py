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
import yaml

from cluster import Cluster, environment, exposed, kill, watch
from vits.datasets import movielens

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


COMMAND = "from vits import cli; cli.main()"
"""A program that is the command `vits`."""

LOCAL = """
import sys; from pathlib import Path; import cells; from vits.lab.experiments import run
run.run(eval(sys.argv[2], vars(cells)), Path(sys.argv[1]), preset="quick")
"""
"""A program that runs an experiment of `cells` on the local engine: FOLDER EXPRESSION."""


def local(folder, expression):
    """What an experiment gives on the local engine."""
    subprocess.run([sys.executable, "-c", LOCAL, str(folder), expression], env=environment(), check=True)
    return contents(folder)


def vits(*arguments, log):
    """Run the command; nothing that it starts listens on another address than loopback."""
    return watched([Path(sys.executable).parent / "vits", *map(str, arguments)], log)


def watched(command, log):
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


def test_a_tuning_on_ray_equals_the_local_one_bit_for_bit(tmp_path):
    few = ("--algorithms", "lin_ts", "--seeds", "4", "--horizon", "20", "--tuning-seeds", "8")
    for engine in ("local", "ray"):
        vits("tune", "linear", *few, "--engine", engine, "--out", tmp_path / engine, log=tmp_path / "log")
    expected = contents(tmp_path / "local")
    assert len(expected) > 2 * 18  # the grid in both worlds, and the heats after the first
    assert contents(tmp_path / "ray") == expected


PAPER = """
import dataclasses
from vits import cli
from vits.lab.experiments import comparison, fixed_arms
from vits.lab.report import paper
judged = fixed_arms.LINEAR["quick"].only(["vits_i", "vits_ii", "lin_ts", "lmc_ts", "vts"])
fixed_arms.LINEAR["quick"] = dataclasses.replace(judged, horizon=20)
one = comparison.PRESETS["quick"].only(["lin_ts"])
comparison.PRESETS["quick"] = dataclasses.replace(one, horizon=20, seeds=2, dims=(3,), blocks=1)
paper.JOBS = (paper.Job("fixed-linear", "quick", 150, 0.1), paper.Job("comparison", "quick", None, 0.1))
cli.main()
"""
"""`vits paper` with two short jobs, one of which adds seeds."""


def test_the_reproduction_on_ray_equals_the_local_one_and_what_measures_time_stays_on_this_machine(tmp_path):
    for engine in ("local", "ray"):
        folders = ("--out", str(tmp_path / engine), "--keep", str(tmp_path / f"kept-{engine}"))
        watched([sys.executable, "-c", PAPER, "paper", "--engine", engine, *folders], tmp_path / f"log-{engine}")
    found, expected = (contents(tmp_path / engine / "fixed-linear-quick") for engine in ("ray", "local"))
    assert len(expected) > 10  # seeds were added
    assert found == expected
    said = "comparison measures computing time, so it runs in this process and not on ray"
    assert said in (tmp_path / "log-ray").read_text()
    assert said not in (tmp_path / "log-local").read_text()
    assert (tmp_path / "kept-ray/comparison-quick.json").exists()


def test_make_paper_takes_the_engine():
    made = subprocess.run(
        ["make", "--dry-run", "paper", "paper-linear", "ENGINE=ray"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "bin/vits paper --engine ray\n" in made.stdout
    assert "bin/vits paper linear --engine ray\n" in made.stdout


def test_movielens_is_needed_only_where_the_command_is_started(tmp_path):
    """The nodes have no data, no folder where it could be found, and none of it afterwards."""
    try:
        data = movielens.find()
    except ValueError as error:
        pytest.skip(str(error))
    home, few = tmp_path / "home", ("--seeds", "4", "--horizon", "50")
    home.mkdir()
    folders = {"HOME": str(home), "XDG_CACHE_HOME": str(home), "VITS_DATA": str(home)}
    cluster = Cluster(tmp_path, variables={**folders, "JAX_COMPILATION_CACHE_DIR": None})
    try:
        arguments = ("run", "movielens", *few, "--data", str(data), "--engine", "ray", "--out", str(tmp_path / "ray"))
        driver = cluster.driver("-c", COMMAND, *arguments)
        assert driver.wait(timeout=300) == 0
    finally:
        cluster.stop()
    vits("run", "movielens", *few, "--data", data, "--out", tmp_path / "local", log=tmp_path / "log")
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    assert {path.name for path in home.iterdir()} == {"vits"}
    assert {path.name for path in (home / "vits").iterdir()} == {"xla"}


def test_workers_of_a_machine_share_compiled_programs(tmp_path):
    """Every driver has workers of its own: those of the second find what those of the first have compiled."""
    variables = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    cluster = Cluster(tmp_path, variables={**variables, "JAX_COMPILATION_CACHE_DIR": None})
    found = []
    try:
        for folder in (tmp_path / "first", tmp_path / "second"):
            work = "Compiling('compiling', 'Compiling', 2)"
            assert cluster.driver(str(DRIVER), str(folder), work, stderr=subprocess.DEVNULL).wait(timeout=120) == 0
            for file in folder.glob("*.npz"):
                with np.load(file) as arrays:
                    found.append(int(arrays["found"][0]))
    finally:
        cluster.stop()
    assert len(found) == 4
    # The two workers of the first driver may find programs of each other, but one of them had something to compile.
    assert min(found[:2]) < min(found[2:])


def test_kills_of_workers_nodes_and_drivers_change_nothing(cluster, tmp_path):
    """Cells are those of the linear bandit. Every worker that is killed is computing one."""
    rng = random.Random(0)
    kills = ["worker"] * 10 + ["node"] * 5 + ["driver"] * 4 + ["head"]
    rng.shuffle(kills)
    folder, work = tmp_path / "run", "busy(200, chunk=10)"

    def start():
        with (tmp_path / "driver.log").open("a") as log:
            return cluster.driver(str(DRIVER), str(folder), work, stdout=log, stderr=log)

    driver, drivers = start(), 1
    done = []
    try:
        for kind in kills:
            time.sleep(rng.uniform(0.5, 4.0))
            if driver.poll() is not None:  # it lost its node
                assert not (folder / "summary.json").exists(), f"finished after {done}"
                driver, drivers = start(), drivers + 1
            if kind == "worker":
                deadline = time.monotonic() + 120
                while not (workers := cluster.workers()):
                    assert driver.poll() is None
                    assert time.monotonic() < deadline
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
    found = contents(folder)
    assert len(found) == 200
    assert found == local(tmp_path / "local", work)
    print(f"{len(found)} cells after kills of {', '.join(done)}: the same as on the local engine; {drivers} drivers")


def test_a_node_that_joins_later_is_used(tmp_path):
    cluster = Cluster(tmp_path, num_nodes=1)
    try:
        driver = cluster.driver(str(DRIVER), str(tmp_path / "run"), trivial(60, 0.5), stderr=subprocess.DEVNULL)
        while len(list((tmp_path / "run").glob("*.npz"))) < 5:
            assert driver.poll() is None
            time.sleep(0.1)
        cluster.add()
        while len(cluster.workers()) < 2:
            assert driver.poll() is None
            time.sleep(0.1)
        assert driver.wait(timeout=120) == 0
    finally:
        cluster.stop()
    assert contents(tmp_path / "run") == local(tmp_path / "local", trivial(60, 0.0))


def test_ctrl_c_stops_the_tasks_of_the_cluster(cluster, tmp_path):
    arguments = ("run", "quadratic", "--preset", "paper", "--engine", "ray", "--out", str(tmp_path / "run"))
    with (tmp_path / "log").open("w") as log:
        driver = cluster.driver("-c", COMMAND, *arguments, stderr=log)
    try:
        deadline = time.monotonic() + 120
        while len(cluster.workers()) < 2:
            assert driver.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        driver.send_signal(signal.SIGINT)
        assert driver.wait(timeout=30) == 130
    finally:
        kill(driver.pid)
        driver.wait()
    assert "interrupted; run the same command again to resume" in (tmp_path / "log").read_text()
    deadline = time.monotonic() + 20
    while cluster.workers():
        assert time.monotonic() < deadline
        time.sleep(0.2)


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
    nodes = re.findall(r"node ([0-9a-f]{8}): 1 core, (\d+) cells? done", said)
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
    own = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "xla-local")}
    cluster = Cluster(tmp_path)
    try:
        started = time.monotonic()
        assert cluster.driver("-c", LOCAL, str(tmp_path / "local"), work, variables=own).wait() == 0
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


def test_the_files_for_real_clusters_on_the_page_are_what_ray_takes():
    """Ray checks the file of `ray up` itself. That of KubeRay has the fields that its operator asks for."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    page = (ROOT / "docs/howto/cluster.md").read_text()
    launched, kubernetes = (
        yaml.safe_load(each) for each in re.findall(r"^```yaml\n(.*?)^```", page, flags=re.M | re.S)
    )
    complete = prepare_config(launched)
    validate_config(complete)
    assert any("ray start --head" in command for command in complete["head_start_ray_commands"])
    assert any("ray start --address" in command for command in complete["worker_start_ray_commands"])
    assert (kubernetes["apiVersion"], kubernetes["kind"]) == ("ray.io/v1", "RayCluster")
    spec = kubernetes["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        assert {"name", "image", "resources"} <= set(container)
