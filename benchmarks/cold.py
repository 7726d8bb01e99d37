"""Cold start: the time of imports and of the first results."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.timing import Measurement

MAIN = "from vits.cli import main; main()"
AGENT = """
import vits
agent = vits.Agent("vits_ii", model=vits.models.logistic(8))
{warm_up}
agent.learn(agent.decide([[1.0] * 8, [0.0] * 8]), 1.0)
"""
"""The README's agent until it has learned its first reward."""
WARM_UPS = {"without warm_up": "", "with warm_up(8)": "agent.warm_up(8)"}
RUN = ("run", "linear", "--preset", "quick", "--algorithms", "vits_ii", "--seeds", "2", "--horizon", "100")


def rows(*, repeats: int = 3) -> list[Measurement]:
    """Imports, and the first result of `vits run linear` with and without the cache of compiled programs."""
    with tempfile.TemporaryDirectory() as folder:
        base = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
        cached = base | {"XDG_CACHE_HOME": folder}
        plain = base | {"VITS_NO_COMPILATION_CACHE": "1"}
        jax = _seconds(["-c", "import jax"], base, repeats)
        library = _seconds(["-c", "import vits; vits.simulate"], base, repeats)
        command = _seconds(["-c", MAIN, "list"], base, repeats)
        kept = base | {
            "JAX_COMPILATION_CACHE_DIR": str(Path(folder) / "agent"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        agents = [_agent(name, warm_up, base, kept) for name, warm_up in WARM_UPS.items()]
        first = _run(cached)
        without, again = _run(plain), _run(cached)
        for _ in range(repeats - 1):
            without, again = min(without, _run(plain)), min(again, _run(cached))
    return [
        Measurement(
            "import vits; vits.simulate", f"{library:.2f} s", f"import jax {jax:.2f} s", f"{library / jax:.2f}x", ""
        ),
        Measurement("vits list", f"{command:.2f} s", "", "", ""),
        Measurement(
            "vits run linear, one algorithm, 2 seeds x 100 rounds: compiled programs from the cache",
            f"{again:.1f} s (filling it {first:.1f} s)",
            f"cache off {without:.1f} s",
            f"{without / again:.1f}x",
            "",
        ),
        *agents,
    ]


def _agent(name: str, warm_up: str, base: dict[str, str], kept: dict[str, str]) -> Measurement:
    code = ["-c", AGENT.format(warm_up=warm_up)]
    filling, again, without = (_seconds(code, environment, 1) for environment in (kept, kept, base))
    return Measurement(
        f"a new process until the README's agent has learned one reward, {name}: compiled programs from the cache",
        f"{again:.1f} s (filling it {filling:.1f} s)",
        f"no cache {without:.1f} s",
        f"{without / again:.1f}x",
        "",
    )


def _run(environment: dict[str, str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return _seconds(["-c", MAIN, *RUN, "--out", str(Path(folder) / "run")], environment, 1)


def _seconds(arguments: list[str], environment: dict[str, str], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], env=environment, check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    return min(seconds)
