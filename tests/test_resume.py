"""A run that is killed, wherever it is, and started again ends with the bytes of one that was left alone."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from vits import files
from vits.lab import results

# Kills itself at the n-th file, when that is written under a temporary name and not yet under its own.
WORKER = """
import dataclasses, os, signal, sys
from pathlib import Path
from vits.lab.experiments import linear, run as runs
from vits.lab.experiments.run import Monitor

folder, last_file = Path(sys.argv[1]), int(sys.argv[2])
rename, files = os.replace, []

def replace(source, target):
    files.append(target)
    if len(files) == last_file:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)

class Printed(Monitor):
    def cell(self, cell):
        print(cell.key, flush=True)

os.replace = replace
experiment = dataclasses.replace(linear.EXPERIMENT, worlds=linear.EXPERIMENT.worlds[:2], horizon=30, seeds=24, chunk=2)
experiment = experiment.only(["lin_ts", "vits_ii", "uniform"])
runs.run(experiment, folder, preset="quick", monitor=Printed())
"""

CELLS = 2 * 3 * 12
NEVER = 0
TIMES = {"seconds", "rounds_per_second"}


def start(folder, last_file=NEVER):
    command = [sys.executable, "-c", WORKER, str(folder), str(last_file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(folder):
    with start(folder) as process:
        process.communicate()
    assert process.returncode == 0


def kill_while_writing(folder, last_file):
    with start(folder, last_file) as process:
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert [name for name in os.listdir(folder) if name.startswith(".")]


def kill_at(folder, num_cells, delay):
    """Kill `delay` seconds after this many cells were begun."""
    with start(folder) as process:
        for _ in range(num_cells):
            process.stdout.readline()
        time.sleep(delay)
        process.kill()
    assert process.returncode == -signal.SIGKILL, "the run was over before it could be killed"
    assert not (folder / results.SUMMARY).exists()


def content(folder):
    found = results.load(folder)
    arrays = {
        (*cell, name): (array.dtype, array.shape, array.tobytes())
        for cell, stored in found.cells.items()
        for name, array in stored.items()
        if name not in TIMES
    }
    rows = [{key: value for key, value in row.items() if key not in TIMES} for row in found.summary["rows"]]
    return arrays, json.dumps({**found.summary, "rows": rows})


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    finish(folder)
    assert len(list(folder.glob("*.npz"))) == CELLS
    return content(folder)


def test_killed_while_writing_its_first_file_in_the_middle_and_while_writing_its_last(tmp_path, uninterrupted):
    folder = tmp_path / "run"
    kill_while_writing(folder, last_file=1)  # the settings
    kill_at(folder, num_cells=9, delay=0.01)
    left = CELLS - len(list(folder.glob("*.npz")))
    kill_while_writing(folder, last_file=left + 1)  # the summary
    finish(folder)
    assert content(folder) == uninterrupted
    assert not [name for name in os.listdir(folder) if name.startswith(".")], "what was left half-written is swept up"


@pytest.mark.heavy
def test_killed_at_twenty_random_moments(tmp_path, uninterrupted):
    folder = tmp_path / "run"
    moments = random.Random(0)
    for i in range(20):
        if i % 5 == 0:
            kill_at(folder, num_cells=0, delay=moments.uniform(0.0, 2.0))  # while it imports and compiles
        elif i % 5 == 1:
            kill_while_writing(folder, last_file=moments.randint(1, 3))
        else:
            kill_at(folder, num_cells=moments.randint(1, 2), delay=moments.uniform(0.0, 0.02))
    finish(folder)
    assert content(folder) == uninterrupted
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


def test_a_crash_between_writing_and_renaming_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    files.write_json(path, {"a": 1})

    def crash(source, target):
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(OSError, match="no space left"):
        files.write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]
