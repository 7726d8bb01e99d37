"""The potential of a generalised linear model: sums of scalar functions of f = phi' theta, no autodiff."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key
from typing_extensions import override

from vits import linalg
from vits.history import Buffer, Rows
from vits.models import Glm
from vits.potentials.base import Centre, Derivatives, Expectations, Potential
from vits.potentials.curvature import Dense
from vits.potentials.prior import Prior
from vits.types import Observation, Scalar

REACH = 3.0
"""How many standard deviations of f a curvature that has no bound is looked at away from theta."""


class Folded(NamedTuple):
    """The prior and the observations that have left the history: 1/2 theta' precision theta - linear' theta."""

    precision: Float[Array, "params params"]
    linear: Float[Array, " params"]


class GlmData(NamedTuple):
    """The observations, and what goes with them where it can be accumulated or is asked for.

    `bound` is P0 + eta max l'' sum phi phi', which no Hessian exceeds; `folded` stands for the prior, and for whatever
    has left the history.
    """

    history: Rows
    bound: Float[Array, "params params"] | None = None
    folded: Folded | None = None


class GlmPotential(Potential):
    """U(theta) = eta sum_s l(phi_s' theta, r_s) + 1/2 (theta - m0)' P0 (theta - m0), so that

    grad = eta Phi' l' + P0 (theta - m0)   and   hess = eta Phi' diag(l'') Phi + P0.

    If it folds, an observation that leaves the window of its buffer is not forgotten: what stays is its expansion

        l(f) ~ l' (f - f0) + 1/2 l'' (f - f0)^2,   f0 = phi' mean,

    around the posterior of that time, with l' and l'' averaged over it.
    """

    model: Glm
    inverse_temperature: Scalar
    prior: Prior
    buffer: Buffer
    batch_size: int | None = None
    folds: bool = False

    def init(self) -> GlmData:
        """An empty history."""
        accumulated = self.model.max_d2loss is not None and self.buffer.window is None
        mean, precision = self.prior.mean, self.prior.matrix
        return GlmData(
            self.buffer.init(self.model.dim, by_columns=True),
            bound=precision if accumulated else None,
            folded=Folded(precision, precision @ mean) if self.folds else None,
        )

    def observe(self, data: GlmData, observation: Observation, centre: Centre | None = None) -> GlmData:
        """One row more, and phi phi' added to the bound; the row that leaves is folded."""
        bound, steepest = data.bound, self.model.max_d2loss
        if bound is not None and steepest is not None:
            bound = bound + jnp.outer(self.inverse_temperature * steepest * observation.features, observation.features)
        history = data.history.append(observation)
        if data.folded is None:
            return GlmData(history, bound)
        if centre is None:
            raise ValueError("centre must be given to a potential that folds observations, but is None")
        return GlmData(history, bound, self._fold(data.folded, history.evicted, centre))

    def count(self, data: GlmData) -> Int[Array, ""]:
        """How many observations are in the history, or were folded."""
        return data.history.count if data.folded is None else data.history.seen

    def minibatch(self, key: Key[Array, ""], data: GlmData) -> GlmData:
        """A sample of the history; its Hessian has a bound of its own, which can be larger."""
        if self.batch_size is None:
            return data
        return data._replace(history=data.history.minibatch(key, self.batch_size), bound=None)

    @override
    def inflation(self, data: GlmData) -> Scalar:
        return data.history.inflation

    def grad(self, data: GlmData, theta: Float[Array, " params"]) -> Float[Array, " params"]:
        """eta Phi' l'(Phi theta, r) + P0 (theta - m0)."""

        def term(phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]) -> Float[Array, " d"]:
            return phi.T @ (self.inverse_temperature * weight * self.model.dloss(phi @ theta, r))

        return data.history.sum(term, self._past_grad(data, theta))

    def derivatives(self, data: GlmData, thetas: Float[Array, "points params"]) -> Derivatives:
        """The gradient at each point, and eta Phi' diag(mean of l''(Phi theta, r)) Phi + P0: one product for all."""

        def term(phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]) -> Derivatives:
            f, eta = thetas @ phi.T, self.inverse_temperature
            rewards = jnp.broadcast_to(r, f.shape)
            grads = ((eta * weight)[None, :] * self.model.dloss(f, rewards)) @ phi
            gram = _gram(phi, eta * weight * jnp.mean(self.model.d2loss(f, rewards), axis=0))
            return Derivatives(grads, Dense(gram))

        past = jax.vmap(self._past_grad, (None, 0))(data, thetas)
        return data.history.sum(term, Derivatives(past, Dense(self._past_precision(data))))

    @property
    @override
    def sees_again(self) -> bool:
        return not self.folds

    @property
    @override
    def is_convex(self) -> bool:
        return True

    def expectations(
        self,
        key: Key[Array, ""],
        data: GlmData,
        mean: Float[Array, " params"],
        sqrt_cov: Float[Array, "params params"],
    ) -> Expectations:
        """By quadrature, without noise: f_s ~ N(phi_s' mean, |B' phi_s|^2), one dimension each."""
        deviations = _deviations(sqrt_cov)

        def term(phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]) -> Expectations:
            dloss, d2loss = self.model.expected_derivatives(phi @ mean, deviations(phi), r)
            tempered = self.inverse_temperature * weight
            return Expectations(phi.T @ (tempered * dloss), _gram(phi, tempered * d2loss))

        return data.history.sum(term, Expectations(self._past_grad(data, mean), self._past_precision(data)))

    def largest_curvature(
        self,
        data: GlmData,
        theta: Float[Array, " params"],
        sqrt_cov: Float[Array, "params params"] | None = None,
    ) -> Scalar:
        """A true upper bound where l'' has one; else lmax of the Hessian with l'' at its largest near each f.

        Near means within 1, and `REACH` standard deviations more if B is given. On a minibatch it is larger by the
        factor that keeps the noise of the sample down.
        """
        if data.bound is not None:
            return linalg.largest_eigenvalue_bound(data.bound)
        deviations = None if sqrt_cov is None else _deviations(sqrt_cov)

        def term(phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]) -> Float[Array, "d d"]:
            if self.model.max_d2loss is not None:
                return _gram(phi, weight * self.model.max_d2loss)
            f, reach = phi @ theta, jnp.ones_like(r)
            if deviations is not None:
                reach = reach + REACH * deviations(phi)
            nearby = [self.model.d2loss(f + offset, r) for offset in (-reach, jnp.zeros_like(f), reach)]
            return _gram(phi, weight * jnp.max(jnp.stack(nearby), axis=0))

        bound = self.inverse_temperature * data.history.sum(term) + self._past_precision(data)
        return self.inflation(data) * linalg.largest_eigenvalue_bound(bound)

    def _past_precision(self, data: GlmData) -> Float[Array, "params params"]:
        """Of the prior, and of what was folded into it."""
        return self.prior.matrix if data.folded is None else data.folded.precision

    def _past_grad(self, data: GlmData, theta: Float[Array, " params"]) -> Float[Array, " params"]:
        if data.folded is None:
            return self.prior.grad(theta)
        return data.folded.precision @ theta - data.folded.linear

    def _fold(self, folded: Folded, row: tuple[Float[Array, " params"], Scalar], centre: Centre) -> Folded:
        """Add one observation by its expansion; an empty row, phi = 0, adds nothing."""
        phi, reward = row
        f, r = (phi @ centre.mean)[None], reward[None]
        if centre.sqrt_cov is None:
            dloss, d2loss = self.model.dloss(f, r), self.model.d2loss(f, r)
        else:
            dloss, d2loss = self.model.expected_derivatives(f, jnp.linalg.norm(phi @ centre.sqrt_cov)[None], r)
        tempered = self.inverse_temperature * phi
        return Folded(
            precision=folded.precision + jnp.outer(d2loss * tempered, phi),
            linear=folded.linear + (d2loss * f - dloss) * tempered,
        )


def _deviations(sqrt_cov: Float[Array, "d d"]) -> Callable[[Float[Array, "n d"]], Float[Array, " n"]]:
    """|B' phi| of every row: the standard deviations of f."""
    # B' for its own sake: transposed within a product, it would make that run along first axes.
    transposed = jax.lax.optimization_barrier(sqrt_cov.T)  # type: ignore[no-untyped-call]
    return lambda phi: jnp.linalg.norm(transposed @ phi.T, axis=0)


def _gram(phi: Float[Array, "n d"], weights: Float[Array, " n"]) -> Float[Array, "d d"]:
    return (phi.T * weights[None, :]) @ phi  # not (W Phi)' Phi, which runs along first axes
