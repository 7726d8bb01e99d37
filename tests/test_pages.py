"""The README, the pages of the site and the notebook: their code is executed here, and their links are followed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import vits
from vits import catalogue

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GENERATED = ("_build", "api")
PAGES = [path for path in sorted(DOCS.rglob("*.md")) if not set(path.relative_to(DOCS).parts) & set(GENERATED)]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
ELSEWHERE = ("new-algorithm.md", "new-experiment.md", "real-data.md")  # pages with tests of their own


def python_blocks(path):
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)


def run(blocks, name):
    names = {"__name__": name}
    for block in blocks:
        exec(compile(block, name, "exec"), names)
    return names


def name_of(path):
    return str(path.relative_to(ROOT))


WITH_CODE = [path for path in PAGES if python_blocks(path) and path.name not in ELSEWHERE]


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_the_code_of_a_page_runs_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(python_blocks(page), page.name)


def test_the_code_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first, *others = python_blocks(ROOT / "README.md")
    assert len([line for line in first.splitlines() if line.strip()]) <= 15
    for block in (first, *others):
        run([block], "README.md")
    assert "0 failed seeds" in capsys.readouterr().out


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name_of)
def test_every_cell_of_a_notebook_runs_in_order(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells if cell["cell_type"] == "code")
    names = run(code, notebook.name)
    plt.close("all")
    regret = names["regret"]
    assert sum(regret[200:]) < 0.7 * sum(regret[:100])


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "benchmarks/README.md", *PAGES], ids=name_of
)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)):
        if not target.startswith("http") and "api/" not in target:  # the reference is made by the build
            assert (page.parent / target).exists(), target


def test_the_table_of_windows_is_true():
    def takes(name, option):
        row = catalogue.ALGORITHMS[name]
        folds = option == "fold_after" and not row.linear_only  # linear models are mostly sums
        model = vits.models.logistic(2) if folds else vits.models.linear(2)
        if row.networks_only:
            model = vits.models.mlp(2, hidden=(2,))
        own = {"num_arms": 2} if row.own_posteriors else {}
        try:
            vits.make(name, model, **own, **{option: 5})
        except ValueError:
            return False
        return True

    page = (DOCS / "howto/windows.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("|")]
    (_, *options), _, *rows = (re.findall(r"(?<=\| )`?(\w*)`? *(?=\|)", line) for line in lines)
    said = {(name, option): cell == "yes" for name, *cells in rows for option, cell in zip(options, cells, strict=True)}
    assert said == {pair: takes(*pair) for pair in said}
    assert {name for name, _ in said} == catalogue.ALGORITHMS.keys()


def test_the_site_builds_without_a_warning_and_names_everything_public(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", tmp_path / "trees"]
    done = subprocess.run([*command, DOCS, tmp_path / "site"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    site = (tmp_path / "site/reference/api/agent.html").read_text()
    assert 'id="vits.agent.Agent.decide"' in site
    index = (tmp_path / "site/index.html").read_text()
    assert not re.search(r'src="https?://|<link [^>]*href="https?://', index)  # works offline


def test_the_map_of_the_architecture_names_every_module_and_nothing_else():
    named = set(re.findall(r"`([\w/]+\.py)`", (DOCS / "architecture.md").read_text()))
    modules = {str(path.relative_to(ROOT / "src/vits")) for path in (ROOT / "src/vits").rglob("*.py")}
    assert named == modules
