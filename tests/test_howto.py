"""The pages for practitioners and the notebook: all of their code is executed here."""

import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs/howto").glob("*.md"))
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def run(blocks, name):
    names = {"__name__": name}
    for block in blocks:
        exec(compile(block, name, "exec"), names)
    return names


def test_there_are_five_pages_and_they_lead_to_each_other():
    assert len(PAGES) == 5
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_snippet_of_a_page_runs_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 4
    run(blocks, page.name)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_every_cell_of_a_notebook_runs_in_order(notebook):
    cells = json.loads(notebook.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells if cell["cell_type"] == "code")
    names = run(code, notebook.name)
    plt.close("all")
    regret = names["regret"]
    assert sum(regret[200:]) < 0.7 * sum(regret[:100])
