"""The wheel, installed as users install it: without pins, in an environment of its own, away from the sources."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.heavy
def test_the_wheel_installs_without_constraints_and_runs_the_readme(tmp_path):
    """Needs a package registry."""
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT)
    (wheel,) = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    programs = tmp_path / "venv/bin"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    outside = {"cwd": tmp_path, "env": environment}
    run(programs / "pip", "install", wheel, **outside)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    printed = [run(programs / "python", "-c", block, **outside) for block in blocks]
    assert "0 failed seeds" in printed[0]
    where = run(programs / "python", "-c", "import vits; print(vits.__file__, vits.__version__)", **outside)
    assert where.startswith(str(tmp_path / "venv"))
    assert "vits_ii" in run(programs / "vits", "list", **outside)
    run(programs / "vits", "run", "linear", "--algorithms", "uniform", "--seeds", "2", "--horizon", "10", **outside)
