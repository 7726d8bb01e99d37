"""`vits paper` that is killed again and again ends with what a run that was left alone gives."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from vits.lab import results

# Two short runs, one of which adds seeds until its claims are decided.
WORKER = """
import dataclasses, sys
from vits import cli
from vits.lab.experiments import fixed_arms, linear
from vits.lab.report import paper

linear.PRESETS["figure"] = dataclasses.replace(
    linear.PRESETS["paper"], worlds=linear.PRESETS["paper"].worlds[:2], horizon=20, seeds=20, chunk=10
).only(["vits_i", "vits_ii", "lin_ts"])
fixed_arms.LINEAR["quick"] = dataclasses.replace(
    fixed_arms.LINEAR["quick"], horizon=20, seeds=20, chunk=4
).only(["lin_ts", "uniform"])
paper.JOBS = (paper.Job("linear", "figure", 150, 0.1), paper.Job("fixed-linear", "quick", None, 0.1))
sys.argv = ["vits", "paper", "--out", sys.argv[1] + "/runs", "--keep", sys.argv[1] + "/kept"]
cli.main()
"""

TIMES = {"seconds", "rounds_per_second"}


def start(folder):
    return subprocess.Popen([sys.executable, "-c", WORKER, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def cells(folder):
    return len(list(folder.glob("runs/*/*.npz")))


def content(folder):
    """Everything in the folders but the time that it took."""
    arrays = {
        (run.name, *key, name): array.tobytes()
        for run in sorted(folder.glob("runs/*"))
        for key, stored in results.load(run).cells.items()
        for name, array in stored.items()
        if name not in TIMES
    }
    kept = {path.name: json.loads(path.read_bytes()) for path in sorted(folder.glob("kept/*"))}
    for run in kept.values():
        run["rows"] = [{key: value for key, value in row.items() if key not in TIMES} for row in run["rows"]]
    return arrays, kept


@pytest.mark.heavy
def test_killed_at_twenty_random_moments(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with start(whole) as process:
        process.communicate()
    assert process.returncode == 0
    total, moments = cells(whole), random.Random(1)
    assert total > 60
    for i in range(20):
        with start(killed) as process:
            # In turn while it starts, and when some more cells are finished.
            goal = cells(killed) + (moments.randint(1, 3) if i % 4 else 0)
            until = time.monotonic() + (60.0 if i % 4 else moments.uniform(0.0, 3.0))
            while time.monotonic() < until and process.poll() is None and (cells(killed) < goal or not i % 4):
                time.sleep(0.005)
            time.sleep(moments.uniform(0.0, 0.1))
            process.kill()
        assert process.returncode == -signal.SIGKILL, "the run was over before it could be killed"
    assert cells(killed) < total
    with start(killed) as process:
        process.communicate()
    assert process.returncode == 0
    assert content(killed) == content(whole)
    assert not [name for run in killed.glob("runs/*") for name in os.listdir(run) if name.startswith(".")]
