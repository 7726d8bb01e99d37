"""Run `cells.Trivial` on the cluster at RAY_ADDRESS: python driver.py FOLDER NUM_CELLS SECONDS [busy]."""

import sys
from pathlib import Path

from cells import Trivial
from vits.lab.experiments import run
from vits.lab.experiments.ray_engine import Ray

folder, num_cells, seconds, *busy = sys.argv[1:]
experiment = Trivial("trivial", "Trivial", int(num_cells), float(seconds), busy=bool(busy))
run.run(experiment, Path(folder), preset="quick", engine=Ray())
