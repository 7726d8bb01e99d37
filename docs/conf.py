"""The documentation site: `make docs` builds it into docs/_build."""

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import generate

project = "vits"
author = "The VITS developers"
release = metadata.version("vits-bandits")
copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
root_doc = "index"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"vits {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
pygments_style = "friendly"

default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88


def plain_text(_app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with `code`: stars, bars and trailing underscores mean nothing else."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith(">>>"):
            pieces = re.split(r"(`[^`]*`)", line)
            pieces[::2] = [re.sub(r"(?<!\\)([*|]|_(?=\W|$))", r"\\\1", piece) for piece in pieces[::2]]
            lines[i] = "".join(pieces)


def short_types(
    _app: Any, _what: str, _name: str, _obj: Any, _options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """Name arrays as the sources do, not by where JAX keeps them."""
    short = [text and re.sub(r"\bjaxlib\.[\w.]*Array\b", "Array", text) for text in (signature, returns)]
    return short[0], short[1]


def write_pages(_app: Any) -> None:
    """Write the pages that are made from the package."""
    generate.write(Path(__file__).parent / "reference")


def check_pages(app: Any, error: Exception | None) -> None:
    """Fail the build if a public name of any module is not in the reference."""
    if error is None and app.builder.name == "html":
        generate.check(set(app.env.get_domain("py").objects))


def setup(app: Any) -> None:
    """Connect the functions above."""
    app.connect("builder-inited", write_pages)
    app.connect("build-finished", check_pages)
    app.connect("autodoc-process-signature", short_types)
    app.connect("autodoc-process-docstring", plain_text, priority=400)  # before napoleon
