"""The shared part of all histories: sums over rows, minibatches, and undoing an update."""

import abc
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from vits.types import Scalar

BLOCK = 128
"""Rows per block of a sum, for models whose rows are cheap."""

Total = TypeVar("Total", bound=PyTree[Any])
Term = Callable[[Float[Array, "rows dim"], Float[Array, " rows"], Float[Array, " rows"]], Total]
"""A sum over some rows, given their features, rewards and weights; an empty row has weight 0."""

Rows = Any
"""A history, or a sample of one: anything with `count` and `sum`."""


class Undoable(eqx.Module):
    """A large part of a state that is changed in place, and can undo its last change instead of being copied."""

    @property
    @abc.abstractmethod
    def overflowed(self) -> Bool[Array, ""]:
        """Whether there was no room for the last change, so that it has to be undone."""

    @abc.abstractmethod
    def undo_unless(self, accepted: Bool[Array, ""], old: Any) -> Any:
        """`self` if accepted, else `old` bit for bit, where `self` is `old` after one change."""


class Minibatch(eqx.Module):
    """A random sample of a history whose sums are unbiased: each of its m rows weighs count / m, on average."""

    features: Float[Array, "rows dim"]
    rewards: Float[Array, " rows"]
    weights: Float[Array, " rows"]
    count: Int[Array, ""]

    @property
    def inflation(self) -> Scalar:
        """The factor by which steps must be shorter than on all data: 1 + t / m for m of t observations, 1 for all.

        The gradient of m out of t observations has noise with t / m times the variance of the noise of single draws, so
        gradient steps that are shorter by this factor jitter no more than those with a single draw. Newton steps of
        size s turn the noise into a jitter of s / (2 - s) t / m posterior variances, at most one half. The 1 accounts
        for the spectra of other samples, which differ most when the sample is nearly all of the data.
        """
        size = self.rewards.shape[0]
        return jnp.where(self.count > size, 1.0 + self.count / size, 1.0)

    def sum(self, term: Term[Total], start: Total | None = None) -> Total:
        """An unbiased estimate of the sum of a term over all observations, onto `start`."""
        return onto(start, term(self.features, self.rewards, self.weights))


def onto(start: Total | None, total: Total) -> Total:
    """`total` added to `start`; None counts as zero."""
    return total if start is None else jax.tree.map(jnp.add, start, total)


def zeros_like(function: Callable[..., Total], *args: Array) -> Total:
    """Zeros in the shape of what a function returns."""
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function, *args))


@jax.custom_batching.custom_vmap
def batch_max(bound: Int[Array, ""]) -> Int[Array, ""]:
    """The largest loop bound of a batch."""
    # A loop bound that differs within a batch would turn every slice into a gather and every sum into a select;
    # the weights already mask what lies beyond a history's own count, so all may run to the largest.
    return bound


@batch_max.def_vmap
def _batch_max_rule(axis_size: int, in_batched: list[bool], bound: Int[Array, " batch"]) -> tuple[Array, bool]:
    return batch_max(jnp.max(bound)), False
