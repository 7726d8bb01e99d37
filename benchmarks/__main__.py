"""Run all benchmarks and print one table: `make bench`, or `python -m benchmarks simulation growth` for some."""

import importlib
import sys

from rich.console import Console
from rich.table import Table

NAMES = ("simulation", "peers", "growth", "cold", "network")

if __name__ == "__main__":
    table = Table("what", "ours", "reference", "ratio", "goal", show_lines=True)
    for name in sys.argv[1:] or NAMES:
        for measurement in importlib.import_module(f"benchmarks.{name}").rows():
            table.add_row(*measurement)
            print("  ".join(part for part in measurement if part), file=sys.stderr, flush=True)
    Console(width=max(Console().width, 140)).print(table)
