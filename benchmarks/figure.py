"""The whole linear figure of the paper with its grids, from the command line: minutes, programs and memory.

Long, and so not part of `make bench`: `make bench-figure`.
"""

import re
import subprocess
import sys
import tempfile
import time

from benchmarks.timing import Measurement

CHILD = """
import pathlib, re, sys
from benchmarks.timing import Compilations
from vits import cli
compilations = Compilations()
try:
    cli.main()
finally:
    memory = re.findall(r"VmHWM:\\s*(\\d+) kB", pathlib.Path("/proc/self/status").read_text())[0]
    print("measured", compilations.count, memory, file=sys.stderr)
"""
"""A command that counts its compilations and looks at its memory when it is done."""


def rows(*, preset: str = "paper", options: tuple[str, ...] = ()) -> list[Measurement]:
    """`vits tune linear`, then `vits run linear`."""
    return [_command("tune", preset, options), _command("run", preset, options)]


def _command(verb: str, preset: str, options: tuple[str, ...]) -> Measurement:
    with tempfile.TemporaryDirectory() as folder:
        arguments = [verb, "linear", "--preset", preset, "--out", folder, *options]
        started = time.perf_counter()
        command = [sys.executable, "-c", CHILD, *arguments]
        done = subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        minutes = (time.perf_counter() - started) / 60.0
    compilations, memory = map(int, re.findall(r"measured (\d+) (\d+)", done.stderr)[0])
    ours = f"{minutes:.1f} min, {compilations} compilations, {memory / 2**20:.2f} GiB"
    return Measurement(f"vits {verb} linear --preset {preset}", ours, "", "", "")
