"""Pages of the site that are made from the package: the reference of its modules and of its command line."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import get_origin

from sphinx.errors import ExtensionError
from sphinx.pycode import ModuleAnalyzer
from typer.main import get_command

import vits
from vits import cli


def public_modules(package: str) -> list[str]:
    """A module and the public modules below it, in alphabetical order."""
    module = importlib.import_module(package)
    below = pkgutil.walk_packages(getattr(module, "__path__", []), f"{package}.")
    return [package, *sorted(found.name for found in below if "._" not in found.name)]


def public_names(module: ModuleType) -> list[str]:
    """The names in `__all__` of a module, or else the public classes, functions and documented values it defines."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]
    values = {name for _, name in ModuleAnalyzer.for_module(module.__name__).find_attr_docs()}
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (name in values or (callable(value) and getattr(value, "__module__", None) == module.__name__))
    ]


def directive(module: ModuleType, name: str) -> str:
    """The autodoc directive for one name."""
    value = getattr(module, name)
    if inspect.isclass(value) and get_origin(value) is None:
        return f".. autoclass:: {name}\n   :members:\n"
    if callable(value) and hasattr(value, "__name__") and get_origin(value) is None:
        return f".. autofunction:: {name}\n"
    if ("", name) in ModuleAnalyzer.for_module(module.__name__).find_attr_docs():
        return f".. autodata:: {name}\n   :no-value:\n"
    return f".. py:data:: {name}\n"


def page(package: str) -> str:
    """The reference of a package: every name once, at its shortest path."""
    parts = [f"# {package}\n"]
    seen: set[int] = set()
    exported = public_names(importlib.import_module(package))
    for name in public_modules(package):
        module = importlib.import_module(name)
        own = [member for member in public_names(module) if id(getattr(module, member)) not in seen]
        seen |= {id(getattr(module, member)) for member in own}
        if hasattr(module, "__all__"):  # sorted by name, functions first, because most readers look for them
            own.sort(key=lambda member: inspect.isclass(getattr(module, member)))
        if name != package:
            parts.append(f"## {name}\n")
        parts.append(f"```{{eval-rst}}\n.. automodule:: {name}")
        if name.rpartition(".")[2] in exported:  # a function has the module's name, and the index has room for one
            parts.append("   :no-index:")
        parts += [
            f"\n.. currentmodule:: {name}\n",
            *(directive(module, member) for member in own),
            "```\n",
        ]
    return "\n".join(parts)


def commands() -> str:
    """The commands and their options, as the command line describes them."""
    parts = []
    for name, command in get_command(cli.app).commands.items():
        rows = []
        for parameter in command.params:
            label = max(parameter.opts, key=len) if parameter.param_type_name == "option" else parameter.name.upper()
            default = f" Default: `{parameter.default}`." if isinstance(parameter.default, int | float | str) else ""
            if label != "--help":
                rows.append(f"| `{label}` | {parameter.help}{default} |")
        parts += [f"## vits {name}\n", f"{command.help}\n"]
        parts += ["| argument | meaning |", "|---|---|", *rows, ""] if rows else []
    return "\n".join(parts)


def write(folder: Path) -> None:
    """Write a page for each public submodule and one for the commands; unchanged pages keep their date."""
    api = folder / "api"
    api.mkdir(exist_ok=True)
    pages = {api / f"{module.name}.md": page(f"vits.{module.name}") for module in pkgutil.iter_modules(vits.__path__)}
    for stale in set(api.glob("*.md")) - pages.keys():
        stale.unlink()
    for path, text in (pages | {folder / "commands.txt": commands()}).items():
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def undocumented(indexed: set[str]) -> Iterator[str]:
    """The public names that are in the index under no path."""
    seen: set[int] = set()
    modules = [name for module in pkgutil.iter_modules(vits.__path__) for name in public_modules(f"vits.{module.name}")]
    for name in sorted(modules, key=lambda name: name.count(".")):  # packages before what is in them
        module = importlib.import_module(name)
        for member in public_names(module):
            if f"{name}.{member}" in indexed:
                seen.add(id(getattr(module, member)))
            elif id(getattr(module, member)) not in seen:
                yield f"{name}.{member}"


def check(indexed: set[str]) -> None:
    """Raise an error that names what the index lacks."""
    if missing := list(undocumented(indexed)):
        raise ExtensionError(f"not in the reference: {', '.join(missing)}")
