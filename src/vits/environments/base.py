"""The interface of an environment."""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Int, Key

from vits.types import Round

Params = Any
"""The quantities that are fixed for one seed, such as the true parameters and the pool of contexts."""


class Environment(eqx.Module):
    """A source of rounds. Regret is computed by the simulation, not here."""

    num_arms: eqx.AbstractVar[int]
    dim: eqx.AbstractVar[int]

    @abc.abstractmethod
    def init(self, key: Key[Array, ""]) -> Params:
        """Draw the quantities that are fixed for one seed."""

    @abc.abstractmethod
    def draw(self, key: Key[Array, ""], params: Params, t: Int[Array, ""]) -> Round:
        """Round t: contexts, expected rewards and the rewards that each arm would pay."""
