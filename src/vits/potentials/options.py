"""Options of all algorithms about the prior and the data, declared and documented once.

An algorithm takes the options of one of these classes as keyword arguments, `**data: Unpack[DataOptions]`, and refuses
the others.
"""

from typing import Any, TypedDict


class WindowOptions(TypedDict, total=False):
    """Options of an algorithm that needs no buffer unless there is a window."""

    prior: tuple[Any, Any] | None
    """(mean, covariance) of a Gaussian prior to use instead of N(0, I / (lambda eta)), not scaled by eta. The
    covariance is one variance, one for each parameter, or a matrix."""

    window: int | None
    """Use only the last `window` observations."""


class BufferOptions(WindowOptions, total=False):
    """Options of an algorithm that may store observations."""

    capacity: int | None
    """Buffer size for models that store data; `vits.simulate` sets it from its horizon, an agent as data arrive."""


class SampleOptions(BufferOptions, total=False):
    """Options of an algorithm that can also work on a sample of the data."""

    minibatch: int | None
    """Use this many observations, drawn at random, in a step instead of all; steps are shorter by 1 + t / minibatch,
    so that their noise stays below that of a posterior draw. Newton and natural-gradient algorithms take one step a
    round then, and need many times more observations than parameters in a minibatch."""


class DataOptions(SampleOptions, total=False):
    """All options: those of an algorithm that can also fold old observations."""

    fold_after: int | None
    """Keep the last `fold_after` observations as they are and older ones as quadratic expansions around the posterior
    of the time when they became old; a round then costs the same at every t. Exact for linear models and close for
    logistic and Poisson models. For other models it is as good as the posterior was when they became old, so keep
    enough of them to train the model (agents keep 1024)."""
