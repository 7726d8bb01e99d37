"""Run all benchmarks and print one table: `make bench`."""

from rich.console import Console
from rich.table import Table

from benchmarks import simulation

table = Table("what", "ours", "reference", "ratio", "goal")
for measurement in simulation.rows():
    table.add_row(*measurement)
Console().print(table)
