"""Run all benchmarks and print one table: `make bench`."""

from rich.console import Console
from rich.table import Table

from benchmarks import network, simulation

table = Table("what", "ours", "reference", "ratio", "goal")
for rows in (simulation.rows, network.rows):
    for measurement in rows():
        table.add_row(*measurement)
Console().print(table)
