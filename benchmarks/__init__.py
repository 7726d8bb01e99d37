"""Measurements; see README.md in this folder."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does, and better for the peers too
