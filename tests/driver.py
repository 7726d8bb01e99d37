"""Run an experiment of `cells` on the cluster at RAY_ADDRESS: python driver.py FOLDER EXPRESSION [CORES]."""

import sys
from pathlib import Path

from rich.console import Console

import cells
from vits.lab.experiments import run
from vits.lab.experiments.ray_engine import Ray
from vits.lab.report.console import progress_bar

folder, expression, *cores = sys.argv[1:]
experiment = eval(expression, vars(cells))
with progress_bar(Console(stderr=True, force_terminal=True, width=120)) as monitor:
    run.run(experiment, Path(folder), preset="quick", engine=Ray(cores=int(*cores or "1")), monitor=monitor)
