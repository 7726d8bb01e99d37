"""Run the benchmarks and print one table: `make bench`, or `python -m benchmarks [--markdown] growth cold` for some."""

import importlib
import sys

from rich.console import Console
from rich.table import Table

from benchmarks.timing import Measurement

NAMES = ("simulation", "peers", "agent", "growth", "cold", "network", "wide", "scale")


def as_markdown(rows: list[Measurement]) -> str:
    """A table for README.md."""
    lines = [Measurement._fields, ["---"] * len(Measurement._fields), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    names = [argument for argument in sys.argv[1:] if argument != "--markdown"]
    rows = []
    for name in names or NAMES:
        for row in importlib.import_module(f"benchmarks.{name}").rows():
            print("  ".join(part for part in row if part), file=sys.stderr, flush=True)
            rows.append(row)
    if "--markdown" in sys.argv:
        print(as_markdown(rows))
    else:
        table = Table(*Measurement._fields, show_lines=True)
        for row in rows:
            table.add_row(*row)
        Console(width=max(Console().width, 140)).print(table)
