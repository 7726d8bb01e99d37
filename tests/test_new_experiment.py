"""docs/new-experiment.md, followed word for word on a copy of the package."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/new-experiment.md").read_text()
SMALLER = ["--horizon", "20", "--seeds", "2"]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package with the steps of the page taken."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "src/vits", folder / "src/vits", ignore=shutil.ignore_patterns("__pycache__"))
    steps = re.findall(r"^<!-- (new file|in): (.*?)(?:, below: (.*?))? -->\n```python\n(.*?)^```", PAGE, re.M | re.S)
    assert [kind for kind, *_ in steps] == ["new file", "in", "in"]
    for kind, file, anchor, code in steps:
        path = folder / file
        if kind == "new file":
            assert not path.exists()
            path.write_text(code)
        else:
            text = path.read_text()
            assert text.count(anchor + "\n") == 1
            path.write_text(text.replace(anchor + "\n", f"{anchor}\n{code}"))
    return folder


def vits(copy, *arguments):
    code = f"import vits.cli; assert vits.__file__.startswith({str(copy)!r}); vits.cli.main()"
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=copy, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_new_experiment_is_listed(copy):
    assert "linear bandit with more and more arms" in vits(copy, "list")


def test_the_commands_of_the_page_end_in_a_table_a_figure_and_a_report(copy):
    (commands,) = re.findall(r"^```console\n(.*?)^```", PAGE, re.M | re.S)
    first, second, _ = (shlex.split(line)[1:] for line in commands.splitlines())
    printed = vits(copy, *first, *SMALLER)
    assert "More and more arms (quick): regret after 20 rounds, 2 seeds" in printed
    folder = copy / "results/arms-quick"
    assert {path.name for path in folder.iterdir()} >= {"settings.json", "summary.json", "regret.png", "report.html"}
    rows = json.loads((folder / "summary.json").read_text())["rows"]
    assert [(row["environment"], row["algorithm"]) for row in rows] == [
        (world, name) for world in ("5 arms", "50 arms") for name in ("vits_ii", "lin_ts")
    ]
    assert all(0.0 <= row["late_share"] <= 1.0 for row in rows)
    report = (folder / "report.html").read_text()
    assert "the share of the regret in the last tenth of the rounds" in report
    assert "data:image/png;base64," in report
    other = vits(copy, *second[:-2], *SMALLER, "--out", "other")
    assert "greedy" in other
    assert "late_share" in (copy / "other/summary.json").read_text()
