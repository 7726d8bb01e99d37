"""Docstrings, the README's table and the recipe for a new algorithm are executed here; pages in test_pages.py."""

import doctest
import importlib
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import vits
from vits import catalogue

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
MODULES = sorted(module.name for module in pkgutil.walk_packages(vits.__path__, "vits.") if module.name != "vits.cli")


def test_the_table_of_the_readme_is_the_catalogue():
    for entry in catalogue.ALGORITHMS.values():
        row = f"| `{entry.name}` | {entry.summary} | {entry.reference or '-'} | [{entry.file}](src/vits/{entry.file}) |"
        assert row in README
        assert (ROOT / "src/vits" / entry.file).is_file()


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS).failed == 0


def test_the_page_on_new_algorithms_is_true_word_for_word(tmp_path):
    """Follows the page on a copy of the package, then plays the new algorithm."""
    page = (ROOT / "docs/new-algorithm.md").read_text()
    source = tmp_path / "src" / "vits"
    shutil.copytree(ROOT / "src/vits", source)
    steps = re.findall(r"^<!-- (new file|in)[: ]+(.*?)(?:, below: (.*?))? -->\n```python\n(.*?)^```", page, re.M | re.S)
    assert [kind for kind, *_ in steps] == ["new file", "new file", "in"]
    for kind, file, anchor, code in steps:
        path = tmp_path / file
        if kind == "new file":
            path.write_text(code)
        else:
            text = path.read_text()
            assert text.count(anchor + "\n") == 1
            path.write_text(text.replace(anchor + "\n", f"{anchor}\n{code}"))
    program = """
import jax.numpy as jnp, numpy as np, vits
from vits.cli import app
assert vits.__file__.startswith({root!r})
policy = vits.make("mean_field_ts", vits.models.linear(3), inverse_temperature=5.0)
trace = vits.simulate(0, vits.environments.linear(zeta=1.0, dim=3, num_arms=5), policy, 30, seeds=3)
assert not trace.failed.any() and trace.regret[:, 20:].mean() < trace.regret[:, :10].mean()
state = policy.init(None)
state, _ = policy.update(None, state, vits.types.Observation(jnp.array([1.0, 2.0, 0.0]), jnp.asarray(1.0)))
np.testing.assert_allclose(state.sd**-2, 5.0 * (1.0 + np.array([1.0, 4.0, 0.0])), rtol=1e-5)
app(["list"], standalone_mode=False)
"""
    done = subprocess.run(
        [sys.executable, "-c", program.format(root=str(tmp_path))],
        env={"PYTHONPATH": str(tmp_path / "src"), "PATH": "", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "mean_field_ts" in done.stdout
