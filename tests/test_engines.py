import collections
import functools
import importlib.util
import pickle
import sys
import types

import jax
import numpy as np
import pytest

import vits
from cells import Trivial
from vits import cli
from vits.lab.experiments import ray_engine, ray_worker, run
from vits.lab.experiments.ray_engine import MOST_FAILURES, Ray, Waiting
from vits.lab.experiments.run import EngineError, Local, Monitor
from vits.simulation.programs import Shares, current_shares, shared


def test_the_number_of_groups_decides_the_bits_and_the_number_of_threads_does_not():
    world = vits.environments.linear(zeta=1.0, dim=3, num_arms=4)
    policy = vits.make("lin_ts", vits.models.linear(3))
    with shared(Shares(groups=3, threads=3)):
        first = vits.simulate(0, world, policy, 20, seeds=6)
    with shared(Shares(groups=3, threads=1)):
        assert current_shares() == Shares(3, 1)
        second = vits.simulate(0, world, policy, 20, seeds=6)
    assert first.regret.tobytes() == second.regret.tobytes()
    named = vits.simulate(0, world, policy, 20, seeds=6, workers=3)
    assert first.regret.tobytes() == named.regret.tobytes()
    with shared(Shares(groups=3, threads=1)):
        one = vits.simulation.worlds(0, world, seeds=5)
    assert jax.tree.leaves(one)[0].shape[0] == 5


def test_engines_have_names():
    assert isinstance(run.engine("local"), Local)
    with pytest.raises(ValueError, match=r"'rai'.*did you mean 'ray'"):
        run.engine("rai")
    with pytest.raises(ValueError, match="an address is for --engine ray, but it is here:1 and the engine is local"):
        run.engine("local", "here:1")


def test_without_ray_the_option_says_how_to_get_it(monkeypatch, capsys, tmp_path):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "ray" else found(name, *more))
    monkeypatch.setattr(sys, "argv", ["vits", "run", "linear", "--engine", "ray", "--out", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert "pip install 'vits-bandits[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_longest_cell_is_next_by_what_was_measured():
    cells = Trivial("trivial", "Trivial", 6).cells()  # costs 1, 2, 3, 1, 2, 3
    waiting = Waiting(cells, {})
    assert [waiting.pop() for _ in range(3)] == [2, 5, 1]
    waiting.measured(2, 3.0)  # one second a unit of cost
    waiting.measured(5, 30.0)
    for index in (2, 5, 1):
        waiting.push(index)
    assert [waiting.pop() for _ in range(6)] == [1, 4, 0, 3, 5, 2]  # unknown ones first, then 30 s, then 3 s
    assert not waiting


class Lost(Exception):
    pass


class Failed(Exception):
    def __init__(self, cause):
        self.cause = cause


class Reference(tuple):
    """The index of a cell and the arguments of its task."""

    __slots__ = ()

    def __hash__(self):
        return hash(self[0])

    def __eq__(self, other):
        return self is other


class FakeRay:
    """What the engine needs of Ray, with tasks that run when they are waited for. `fate` may end a task."""

    exceptions = types.SimpleNamespace(RayError=Lost, RayTaskError=Failed)
    cloudpickle = pickle

    def __init__(self, fate=lambda index, attempt: None):
        self.fate, self.attempts, self.order = fate, collections.Counter(), []
        self.canceled, self.most, self.stored = [], 0, []

    def put(self, value):
        self.stored.append(len(value))
        return value

    def remote(self, function):
        task = types.SimpleNamespace(remote=lambda *arguments: Reference((arguments[2], arguments)))
        return types.SimpleNamespace(options=lambda **options: task)

    def cluster_resources(self):
        return {"CPU": 2.0}

    def nodes(self):
        alive = {"NodeID": "node", "NodeManagerHostname": "here", "Resources": {"CPU": 2.0}, "Alive": True}
        return [alive, {**alive, "NodeID": "gone", "Resources": {}, "Alive": False}]

    def wait(self, references, timeout):
        self.most = max(self.most, len(references))
        return [references[0]], references[1:]

    def get(self, reference):
        index, arguments = reference
        self.order.append(index)
        self.attempts[index] += 1
        if (end := self.fate(index, self.attempts[index])) is not None:
            raise end
        return ray_worker.compute(*arguments)

    def cancel(self, reference, force):
        self.canceled.append(reference[0])

    def shutdown(self):
        self.canceled.append("all")


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(ray_worker, "_node", lambda: "node")

    def make(fate=lambda index, attempt: None):
        cluster = FakeRay(fate)
        monkeypatch.setattr(ray_engine, "connect", lambda address: cluster)
        return cluster

    return make


class Watch(Monitor):
    def __init__(self):
        self.done, self.lines = 0, []

    def advance(self, cost):
        self.done += cost

    def nodes(self, lines):
        self.lines.append(list(lines))


EXPERIMENT = Trivial("trivial", "Trivial", 6)


def numbers(found):
    return {key: arrays["numbers"].tobytes() for key, arrays in found.cells.items()}


def test_a_cluster_gives_what_the_local_engine_gives(fake, tmp_path):
    cluster, watch = fake(), Watch()
    local = run.run(EXPERIMENT, tmp_path / "local", preset="quick")
    found = run.run(EXPERIMENT, tmp_path / "ray", preset="quick", engine=Ray(), monitor=watch)
    assert numbers(found) == numbers(local)
    assert watch.done == sum(cell.cost for cell in EXPERIMENT.cells())
    assert watch.lines[-1] == ["here, node node: 2 cores, 6 cells done"]
    assert cluster.most == 4  # two cores, and two tasks that are ready
    again = fake()
    run.run(EXPERIMENT, tmp_path / "ray", preset="quick", engine=Ray())
    assert again.order == []


def test_a_lost_worker_costs_a_retry_and_no_more(fake, tmp_path):
    cluster = fake(lambda index, attempt: Lost("gone") if attempt <= 2 * (index % 3) else None)
    found = run.run(EXPERIMENT, tmp_path / "run", preset="quick", engine=Ray())
    assert numbers(found) == numbers(run.run(EXPERIMENT, tmp_path / "local", preset="quick"))
    assert cluster.attempts == {i: 1 + 2 * (i % 3) for i in range(6)}


@pytest.mark.parametrize(
    ("end", "attempts", "reason"),
    [
        (Failed(ArithmeticError("bad luck")), MOST_FAILURES, "world, a4, all: ArithmeticError: bad luck"),
        (Lost("out of memory"), ray_engine.MOST_LOSSES, "world, a4, all: its worker was lost 20 times: out of memory"),
    ],
)
def test_a_cell_that_fails_is_reported_and_the_rest_goes_on(fake, tmp_path, end, attempts, reason):
    cluster = fake(lambda index, attempt: end if index == 4 else None)
    with pytest.raises(EngineError, match="1 of 6 cells failed; the others are stored") as error:
        run.run(EXPERIMENT, tmp_path / "run", preset="quick", engine=Ray())
    assert reason in str(error.value)
    assert cluster.attempts[4] == attempts
    assert len(list((tmp_path / "run").glob("*.npz"))) == 5
    second = fake()
    run.run(EXPERIMENT, tmp_path / "run", preset="quick", engine=Ray())
    assert second.order == [0]  # the one that is missing


def test_an_interruption_stops_all_tasks(fake, tmp_path):
    cluster = fake(lambda index, attempt: KeyboardInterrupt() if index == 4 else None)
    with pytest.raises(KeyboardInterrupt):
        run.run(EXPERIMENT, tmp_path / "run", preset="quick", engine=Ray())
    assert cluster.canceled[-1] == "all"
    assert len(cluster.canceled) >= 2


def test_an_interruption_while_a_cell_is_stored_stops_all_tasks(fake, tmp_path, monkeypatch):
    def interrupted(path, arrays):
        raise KeyboardInterrupt

    cluster = fake()
    monkeypatch.setattr(run.files, "save_arrays", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.run(EXPERIMENT, tmp_path / "run", preset="quick", engine=Ray())
    assert cluster.canceled[-1] == "all"
    assert len(cluster.canceled) >= 2


def _length(data, advance):
    return {"numbers": np.array([len(data)]), "seconds": np.zeros(1)}


class Sharing(Trivial):
    """Cells that share an array."""

    def cells(self):
        data = np.zeros(100_000)
        return [cell._replace(compute=functools.partial(_length, data)) for cell in super().cells()]


def test_what_cells_share_is_stored_once(fake, tmp_path):
    cluster = fake()
    run.run(Sharing("sharing", "Sharing", 20), tmp_path / "run", preset="quick", engine=Ray())
    (size,) = cluster.stored
    assert 800_000 < size < 810_000


def test_experiments_that_measure_time_stay_in_this_process(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(run, "engine", lambda name, address: None)  # it would be used otherwise
    arguments = ["run", "comparison", "--algorithms", "lin_ts", "--seeds", "2", "--horizon", "4", "--engine", "ray"]
    monkeypatch.setattr(sys, "argv", ["vits", *arguments, "--out", str(tmp_path / "run")])
    monkeypatch.setattr(run, "run", lambda *_, engine, **__: sys.exit(f"the engine is {type(engine).__name__}"))
    with pytest.raises(SystemExit, match="the engine is Local"):
        cli.main()
    assert "comparison measures computing time, so it runs in this process and not on ray" in capsys.readouterr().err


def test_a_node_with_other_software_is_refused(fake, tmp_path):
    wanted = {**ray_worker.software(), "jax": "0.0.1"}
    order = ray_worker.Order(2, 1, wanted, "other")
    with pytest.raises(ray_worker.WrongSoftware, match=r"node node has jax .* instead of 0.0.1; install"):
        ray_worker.compute(np.zeros(1, np.uint8), order, 0)
    fake(lambda index, attempt: Failed(ray_worker.WrongSoftware("node a has jax 1 instead of 2")))
    with pytest.raises(EngineError, match="node a has jax 1 instead of 2"):
        run.run(EXPERIMENT, tmp_path / "run", preset="quick", engine=Ray())


def test_workers_get_their_threads_and_the_settings_of_jax(monkeypatch):
    for variable, value in {"JAX_ENABLE_X64": "0", "XLA_FLAGS": "--a", "JAX_COMPILATION_CACHE_DIR": "/here"}.items():
        monkeypatch.setenv(variable, value)
    variables = ray_engine._environment(3)["env_vars"]
    assert variables["NPROC"] == variables["OPENBLAS_NUM_THREADS"] == "3"
    assert (variables["JAX_ENABLE_X64"], variables["XLA_FLAGS"]) == ("0", "--a")
    assert "JAX_COMPILATION_CACHE_DIR" not in variables  # every machine has its own
