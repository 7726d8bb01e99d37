"""The interface of a reward model."""

import abc
import math
from typing import ClassVar

import equinox as eqx
from jaxtyping import Array, Float, Key

from vits.types import Scalar, Vector


class RewardModel(eqx.Module):
    """The expected reward of an arm and the negative log likelihood of its reward."""

    dim: eqx.AbstractVar[int]
    num_params: eqx.AbstractVar[int]
    reward_range: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    """The smallest and the largest reward that the likelihood allows."""

    @property
    def num_heads(self) -> int | None:
        """The number of arms, for a model with one output for each; the last feature is then the arm."""
        return None

    @abc.abstractmethod
    def mean(self, theta: Vector, features: Float[Array, " dim"]) -> Scalar:
        """Expected reward of an arm."""

    @abc.abstractmethod
    def nll(self, theta: Vector, features: Float[Array, " dim"], reward: Scalar) -> Scalar:
        """Negative log likelihood of a reward, up to a constant."""

    def score(self, theta: Vector, features: Float[Array, " dim"]) -> Scalar:
        """The score that arms are ranked by: an increasing function of `mean` that does not saturate."""
        return self.mean(theta, features)

    def start(self, key: Key[Array, ""], prior_mean: Vector) -> Vector:
        """The start of a posterior's mean: the prior mean, if the model can learn from there."""
        return prior_mean

    def reward_rule(self) -> str:
        """The rule in words, for errors: "the reward of" + this + ", but is ..."."""
        least, largest = self.reward_range
        bounds = f"between {least:g} and {largest:g}" if largest < math.inf else f"{least:g} or more"
        return f"a {type(self).__name__.lower()} model must be {bounds}"


class OutputModel(RewardModel):
    """A model whose likelihood depends on the parameters through one number f(theta, phi).

    The functions of f work entry by entry.
    """

    @abc.abstractmethod
    def output(self, theta: Vector, features: Float[Array, " dim"]) -> Scalar:
        """f(theta, phi)."""

    def inverse_link(self, f: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Expected reward at f, increasing in f: f itself by default."""
        return f

    @abc.abstractmethod
    def loss(self, f: Float[Array, "*n"], reward: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Negative log likelihood at f."""

    def mean(self, theta: Vector, features: Float[Array, " dim"]) -> Scalar:
        """The inverse link of f."""
        return self.inverse_link(self.output(theta, features))

    def nll(self, theta: Vector, features: Float[Array, " dim"], reward: Scalar) -> Scalar:
        """The loss at f."""
        return self.loss(self.output(theta, features), reward)

    def score(self, theta: Vector, features: Float[Array, " dim"]) -> Scalar:
        """f itself: arms never tie because their means have saturated."""
        return self.output(theta, features)
