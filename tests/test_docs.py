"""Docstrings, the README's table and the recipe for a new algorithm are executed here; pages in test_pages.py."""

import doctest
import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vits
from vits import catalogue

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
MODULES = sorted(module.name for module in pkgutil.walk_packages(vits.__path__, "vits.") if module.name != "vits.cli")


def test_the_table_of_the_readme_is_the_catalogue():
    rows = [
        f"| `{row.name}` | {row.summary} | {row.reference or '-'} | [{row.file}](src/vits/{row.file}) |"
        for row in catalogue.ALGORITHMS.values()
    ]
    assert re.findall(r"^\| `[a-z_]+` \|.*\[algorithms/.*$", README, re.MULTILINE) == rows
    assert all((ROOT / "src/vits" / row.file).is_file() for row in catalogue.ALGORITHMS.values())


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS).failed == 0


def follow(page, root):
    """Do what a page says, step by step: new files, and lines below a given one."""
    steps = re.findall(r"^<!-- (new file|in)[: ]+(.*?)(?:, below: (.*?))? -->\n```\w+\n(.*?)^```", page, re.M | re.S)
    for kind, file, anchor, text in steps:
        path = root / file
        if kind == "new file":
            assert not path.exists()
            path.write_text(text)
        else:
            before = path.read_text()
            assert before.count(anchor + "\n") == 1
            path.write_text(before.replace(anchor + "\n", f"{anchor}\n{text}"))
    return [(kind, file) for kind, file, *_ in steps]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the tree in which docs/new-algorithm.md was followed to its last step."""
    root = tmp_path_factory.mktemp("tree")
    for name in ("src/vits", "trust", "tests", "docs"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "_build"))
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    assert follow((ROOT / "docs/new-algorithm.md").read_text(), root) == [
        ("new file", "src/vits/algorithms/mean_field.py"),
        ("in", "src/vits/catalogue.py"),
        ("in", "README.md"),
        ("new file", "tests/test_mean_field.py"),
    ]
    return root


def run(root, *command):
    done = subprocess.run(
        [sys.executable, *command],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_on_new_algorithms_ends_in_a_green_contract(tree):
    tests = ("tests/test_contract.py", "tests/test_mean_field.py", "tests/test_docs.py")
    new = "mean_field or test_the_table_of_the_readme_is_the_catalogue"
    assert " 9 passed" in run(tree, "-m", "pytest", "-p", "no:cacheprovider", "-v", *tests, "-k", new)
    program = """
import vits
from vits.cli import app
from trust import faults
policy = vits.algorithms.mean_field_ts(vits.models.linear(3), inverse_temperature=5.0)
trace = vits.simulate(0, vits.environments.linear(zeta=1.0, dim=3, num_arms=5), policy, 30, seeds=3)
assert not trace.failed.any() and trace.regret[:, 20:].mean() < trace.regret[:, :10].mean()
chosen = [case for case in faults.cases(["mean_field_ts"]) if case.fault.name in ("nothing", "reward nan")]
results = list(faults.run([case for case in chosen if case.mode == "jit"]))
assert len(results) == 4 and {result.outcome for result in results} == {"right", "recovered"}, results
app(["list"], standalone_mode=False)
"""
    assert "mean_field_ts" in run(tree, "-c", program)


@pytest.mark.heavy
def test_a_new_algorithm_goes_through_the_check_and_the_whole_campaign(tree):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((100, 3))
    rewards = features @ [1.0, -1.0, 0.5] + rng.standard_normal(100)
    np.savez(tree / "data.npz", features=features, rewards=rewards)
    command = ["check", "data.npz", "--model", "linear", "--algorithm", "mean_field_ts"]
    program = f"from vits.cli import app; app({command!r}, standalone_mode=False)"
    assert "mean_field_ts" in run(tree, "-c", program)
    run(tree, "-m", "trust", "faults", "--algorithms", "mean_field_ts")
