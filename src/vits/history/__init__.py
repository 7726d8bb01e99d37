"""Observation buffers for potentials without sufficient statistics.

A history is a buffer of fixed size and a count. Sums over it run over as many blocks as are filled, in a loop whose
bound is traced. So one compilation serves every round, and the cost of a round depends on its data, not on the
capacity.
"""

from vits.history.base import BLOCK, Minibatch, Rows, Undoable
from vits.history.buffer import DEFAULT_CAPACITY, Buffer, History, SlidingHistory, buffer, with_capacity

__all__ = [
    "BLOCK",
    "DEFAULT_CAPACITY",
    "Buffer",
    "History",
    "Minibatch",
    "Rows",
    "SlidingHistory",
    "Undoable",
    "buffer",
    "with_capacity",
]
