"""What a user gets by `import vits`: names, types, a version, and dependencies that are true."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import vits
from vits.agent import compiled

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/vits"
SUBMODULES = sorted(module.name for module in pkgutil.iter_modules(vits.__path__))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def in_a_new_process(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_type_checkers_see_the_names_that_there_are():
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert all(alias.asname == alias.name for node in imports for alias in node.names)
    seen = {alias.name: node.module for node in imports for alias in node.names}
    homes = {name: f"vits.{module}" for name, module in vits._HOMES.items()}
    assert seen == {**dict.fromkeys(SUBMODULES, "vits"), **homes}
    assert sorted(vits.__all__) == sorted(vits._HOMES)


def test_every_public_submodule_works_after_import_vits_alone():
    code = f"import vits\nfor name in {SUBMODULES}: assert getattr(vits, name).__name__ == 'vits.' + name"
    in_a_new_process(code)
    for name in ("Agent", "make", "simulate"):
        in_a_new_process(f"import vits; assert callable(vits.{name})")
    assert {*SUBMODULES, *vits.__all__, "__version__"} <= set(dir(vits))


def test_names_that_do_not_exist_are_refused():
    for name in ("Agnet", "_agent", "no_such_module"):
        with pytest.raises(AttributeError, match=f"module 'vits' has no attribute '{name}'"):
            getattr(vits, name)


def test_importing_vits_imports_nothing_heavy():
    code = "import sys, vits; print(sorted(sys.modules.keys() & {'jax', 'numpy', 'equinox', 'scipy', 'matplotlib'}))"
    assert in_a_new_process(code) == "[]\n"


def texts():
    """The docstrings of the package and its pages, each with the file it is from."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield text, path
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        is_generated = {"_build", "api"} & set(path.parts)
        if not is_generated and not path.name.startswith("new-"):  # these name what the reader adds
            yield path.read_text(), path


def mentioned():
    """The dotted names that begin with `vits.`, each with the file that mentions it."""
    for text, path in texts():
        for match in re.finditer(r"(?<![\w./-])vits(?:\.[A-Za-z_]\w*)+(?![\w-])", text):
            yield match.group(), path.relative_to(ROOT)


def test_every_name_that_docstrings_and_pages_use_exists():
    missing = []
    for name, path in sorted(set(mentioned())):
        found = vits
        for part in name.split(".")[1:]:
            try:
                found = getattr(found, part)
            except AttributeError:
                try:
                    found = importlib.import_module(f"{found.__name__}.{part}")
                except (ImportError, AttributeError):
                    missing.append(f"{path}: {name}")
                    break
    assert missing == []


def test_the_version_has_one_source():
    assert vits.__version__ == metadata.version("vits-bandits")
    assert re.search(r"\d+\.\d+\.\d+", (SOURCE / "__init__.py").read_text()) is None


USER = """
import numpy as np
import vits

agent = vits.Agent("vits_ii", model=vits.models.logistic(8), seed=0)
decision = agent.decide(np.zeros((5, 8)))
agent.learn(decision.id, 1.0)
agent.lern(decision.id, 1.0)  # error: "Agent" has no attribute "lern"
decision.propensitty  # error: "Decision" has no attribute "propensitty"
decision.propensity() + "x"  # error: [operator]
agent.posterior().men  # error: has no attribute "men"
model = vits.models.linear(20)
vits.make(3, model)  # error: Argument 1 to "make" has incompatible type "int"
vits.make("lin_ts", 3)  # error: Argument 2 to "make" has incompatible type "int"
world = vits.environments.linear(zeta=0.1, dim=20, num_arms=50)
trace = vits.simulate(0, world, vits.make("lin_ts", model), horizon="x")  # error: Argument "horizon" to "simulate"
trace.regrets  # error: "Trace" has no attribute "regrets"
vits.Agnet  # error: Module has no attribute "Agnet"
vits.models.logistc  # error: Module has no attribute "logistc"
vits.simulation.simulat  # error: Module has no attribute "simulat"
print(vits.__version__.upper(), trace.cumulative_regret[:, -1].mean(), vits.types.Observation, vits.policies.Policy)
vits.Agent.load("a").save("b")
"""


def test_mypy_finds_exactly_the_planted_errors_of_a_user(tmp_path):
    script = tmp_path / "user.py"
    script.write_text(USER)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache/user"), "user.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    found = {int(line.split(":")[1]): line for line in done.stdout.splitlines() if ": error: " in line}
    planted = {i: line for i, line in enumerate(USER.splitlines(), 1) if "# error: " in line}
    assert found.keys() == planted.keys(), done.stdout + done.stderr
    for i, line in planted.items():
        assert line.split("# error: ")[1] in found[i]


def test_dependencies_are_the_imports():
    extras = PROJECT["optional-dependencies"]
    optional = {normalised(re.split(r"[<>=!~ \[]", line)[0]) for lines in extras.values() for line in lines}
    declared = {normalised(re.split(r"[<>=!~ ]", line)[0]) for line in PROJECT["dependencies"]}
    imported = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(node.module.split(".")[0])
    distributions = metadata.packages_distributions()
    third_party = imported - set(sys.stdlib_module_names) - {"vits"}
    used = {normalised(name) for module in third_party for name in distributions.get(module, [module])}
    assert declared <= used <= declared | optional


def test_the_lowest_versions_that_are_tested_are_those_that_are_promised():
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    tested = dict(line.split("==") for line in lines if not line.startswith("#"))
    promised = dict(line.split(">=") for line in PROJECT["dependencies"])
    assert tested.keys() == promised.keys()
    for name, version in promised.items():
        assert tested[name] in (version, f"{version}.0"), name


def test_a_compiler_option_that_xla_does_not_know_is_left_out(monkeypatch):
    assert compiled.supported_options() in ({}, compiled._SEQUENTIAL)
    monkeypatch.setattr(compiled, "_SEQUENTIAL", {"xla_no_such_option": "1"})
    assert compiled.supported_options.__wrapped__() == {}
