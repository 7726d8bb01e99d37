"""Jacobians with one row for each observation, known by their products.

The row of an observation is df / dtheta. A network's need not be formed: for a layer with the weights W, the input h
and the output z = W h + b it is the outer product of df / dz and h, so that n rows of p entries are kept as n times as
many numbers as the layers are wide. All products cost what they cost with the rows, and take memory for a few vectors
of parameters.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from typing_extensions import override

from vits.types import Vector


class Jacobian(eqx.Module):
    """A matrix J with a row for each observation and a column for each parameter."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """The number of rows."""

    @abc.abstractmethod
    def times(self, x: Float[Array, "columns params"]) -> Float[Array, "columns n"]:
        """J x, for each row x."""

    @abc.abstractmethod
    def mixtures(self, shares: Float[Array, "mixtures n"]) -> Float[Array, "mixtures params"]:
        """Sums of the rows with some shares of each."""

    @abc.abstractmethod
    def squares(self, weights: Float[Array, " n"]) -> Vector:
        """The diagonal of J' diag(weights) J."""

    @abc.abstractmethod
    def gram(self, scale: Vector | None = None) -> Float[Array, "n n"]:
        """J diag(scale) J'."""

    @abc.abstractmethod
    def scaled(self, weights: Float[Array, " n"]) -> "Jacobian":
        """diag(weights) J."""


class Stacked(Jacobian):
    """Rows that are formed."""

    rows: Float[Array, "n params"]

    @property
    @override
    def size(self) -> int:
        return len(self.rows)

    @override
    def times(self, x: Float[Array, "columns params"]) -> Float[Array, "columns n"]:
        return x @ self.rows.T

    @override
    def mixtures(self, shares: Float[Array, "mixtures n"]) -> Float[Array, "mixtures params"]:
        return shares @ self.rows

    @override
    def squares(self, weights: Float[Array, " n"]) -> Vector:
        return weights @ jnp.square(self.rows)

    @override
    def gram(self, scale: Vector | None = None) -> Float[Array, "n n"]:
        return (self.rows if scale is None else self.rows * scale[None, :]) @ self.rows.T

    @override
    def scaled(self, weights: Float[Array, " n"]) -> "Stacked":
        return Stacked(weights[:, None] * self.rows)


class Layer(NamedTuple):
    """For each observation, df / dz of a layer's outputs z before the activation, and the layer's inputs h."""

    slopes: Float[Array, "n outputs"]
    inputs: Float[Array, "n inputs"]


Part = tuple[Float[Array, "_ _"], Float[Array, " _"]]
"""What belongs to the weights and to the biases of a layer."""


class Layers(Jacobian):
    """The rows of a network with the parameters W, b of each layer in turn, never formed."""

    layers: tuple[Layer, ...]

    @property
    @override
    def size(self) -> int:
        return len(self.layers[0].slopes)

    @override
    def times(self, x: Float[Array, "columns params"]) -> Float[Array, "columns n"]:
        return jax.lax.map(self._times, x)

    @override
    def mixtures(self, shares: Float[Array, "mixtures n"]) -> Float[Array, "mixtures params"]:
        return jax.lax.map(self._mixture, shares)

    @override
    def squares(self, weights: Float[Array, " n"]) -> Vector:
        return Layers(tuple(Layer(*map(jnp.square, layer)) for layer in self.layers))._mixture(weights)

    @override
    def gram(self, scale: Vector | None = None) -> Float[Array, "n n"]:
        if scale is None:
            return jnp.sum(jnp.stack([(s @ s.T) * (h @ h.T + 1.0) for s, h in self.layers]), axis=0)

        parts = self._parts(scale)

        def of_row(row: tuple[Layer, ...]) -> Float[Array, " n"]:
            return self._sum([(W * s[:, None] * h[None, :], b * s) for (W, b), (s, h) in zip(parts, row, strict=True)])

        return jax.lax.map(of_row, self.layers)

    @override
    def scaled(self, weights: Float[Array, " n"]) -> "Layers":
        return Layers(tuple(layer._replace(slopes=weights[:, None] * layer.slopes) for layer in self.layers))

    def _times(self, x: Vector) -> Float[Array, " n"]:
        """J x."""
        return self._sum(self._parts(x))

    def _parts(self, x: Vector) -> list[Part]:
        """The weights and the biases of each layer."""
        parts, end = [], 0
        for slopes, inputs in self.layers:
            outputs, first = slopes.shape[1], end
            middle, end = first + outputs * inputs.shape[1], first + outputs * (inputs.shape[1] + 1)
            parts.append((x[first:middle].reshape(outputs, -1), x[middle:end]))
        return parts

    def _sum(self, parts: list[Part]) -> Float[Array, " n"]:
        """J x from the parts of x: of the two sums over a layer's weights, the one over its wider side comes first."""
        total = jnp.zeros(self.size, parts[0][0].dtype)
        for (slopes, inputs), (weights, biases) in zip(self.layers, parts, strict=True):
            if slopes.shape[1] >= inputs.shape[1]:
                product = jnp.sum((slopes @ weights) * inputs, axis=1)
            else:
                product = jnp.sum(slopes * (inputs @ weights.T), axis=1)
            total = total + product + slopes @ biases
        return total

    def _mixture(self, shares: Float[Array, " n"]) -> Vector:
        parts = []
        for slopes, inputs in self.layers:
            if slopes.shape[1] >= inputs.shape[1]:
                weights = slopes.T @ (shares[:, None] * inputs)
            else:
                weights = (shares[:, None] * slopes).T @ inputs
            parts += [weights.ravel(), shares @ slopes]
        return jnp.concatenate(parts)
