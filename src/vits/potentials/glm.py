"""The potential of a generalised linear model: sums of scalar functions of f = phi' theta, no autodiff."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from vits import linalg
from vits.history import Buffer, Rows
from vits.models import Glm
from vits.potentials.base import Derivatives, Expectations, Potential, Prior
from vits.types import Observation, Scalar

REACH = 3.0
"""How many standard deviations of f a curvature that has no bound is looked at away from theta."""


class GlmData(NamedTuple):
    """The observations, and the bound P0 + eta max l'' sum phi phi' on the Hessian where it can be accumulated."""

    history: Rows
    bound: Float[Array, "params params"] | None


class GlmPotential(Potential):
    """U(theta) = eta sum_s l(phi_s' theta, r_s) + 1/2 (theta - m0)' P0 (theta - m0), so that

    grad = eta Phi' l' + P0 (theta - m0)   and   hess = eta Phi' diag(l'') Phi + P0.
    """

    model: Glm
    inverse_temperature: Scalar
    prior: Prior
    buffer: Buffer
    batch_size: int | None = None

    def init(self) -> GlmData:
        """An empty history."""
        accumulated = self.model.max_d2loss is not None and self.buffer.window is None
        return GlmData(self.buffer.init(self.model.dim), self.prior.precision if accumulated else None)

    def observe(self, data: GlmData, observation: Observation) -> GlmData:
        """One row more, and phi phi' added to the bound."""
        bound, steepest = data.bound, self.model.max_d2loss
        if bound is not None and steepest is not None:
            bound = bound + jnp.outer(self.inverse_temperature * steepest * observation.features, observation.features)
        return GlmData(data.history.append(observation), bound)

    def count(self, data: GlmData) -> Int[Array, ""]:
        """How many observations are in the history."""
        return data.history.count

    def minibatch(self, key: Key[Array, ""], data: GlmData) -> GlmData:
        """A sample of the history; its Hessian has a bound of its own, which can be larger."""
        if self.batch_size is None:
            return data
        return GlmData(data.history.minibatch(key, self.batch_size), None)

    def grad(self, data: GlmData, theta: Float[Array, " params"]) -> Float[Array, " params"]:
        """eta Phi' l'(Phi theta, r) + P0 (theta - m0)."""

        def term(phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]) -> Float[Array, " d"]:
            return phi.T @ (self.inverse_temperature * weight * self.model.dloss(phi @ theta, r))

        return data.history.sum(term, self._prior_grad(theta))

    def derivatives(self, data: GlmData, thetas: Float[Array, "points params"]) -> Derivatives:
        """The gradient at each point, and eta Phi' diag(mean of l''(Phi theta, r)) Phi + P0: one product for all."""

        def term(phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]) -> Derivatives:
            f, eta = thetas @ phi.T, self.inverse_temperature
            rewards = jnp.broadcast_to(r, f.shape)
            grads = ((eta * weight)[None, :] * self.model.dloss(f, rewards)) @ phi
            return Derivatives(grads, _gram(phi, eta * weight * jnp.mean(self.model.d2loss(f, rewards), axis=0)))

        return data.history.sum(term, Derivatives(jax.vmap(self._prior_grad)(thetas), self.prior.precision))

    @property
    def is_convex(self) -> bool:
        """Every loss of these models is."""
        return True

    def expectations(
        self,
        key: Key[Array, ""],
        data: GlmData,
        mean: Float[Array, " params"],
        sqrt_cov: Float[Array, "params params"],
    ) -> Expectations:
        """By quadrature, without noise: f_s ~ N(phi_s' mean, |B' phi_s|^2), one dimension each."""

        def term(phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]) -> Expectations:
            deviation = jnp.linalg.norm(phi @ sqrt_cov, axis=1)
            dloss, d2loss = self.model.expected_derivatives(phi @ mean, deviation, r)
            tempered = self.inverse_temperature * weight
            return Expectations(phi.T @ (tempered * dloss), _gram(phi, tempered * d2loss))

        return data.history.sum(term, Expectations(self._prior_grad(mean), self.prior.precision))

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

        def term(phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]) -> Float[Array, "d d"]:
            if self.model.max_d2loss is not None:
                return _gram(phi, weight * self.model.max_d2loss)
            f, reach = phi @ theta, jnp.ones_like(r)
            if sqrt_cov is not None:
                reach = reach + REACH * jnp.linalg.norm(phi @ sqrt_cov, axis=1)
            nearby = [self.model.d2loss(f + offset, r) for offset in (-reach, jnp.zeros_like(f), reach)]
            return _gram(phi, weight * jnp.max(jnp.stack(nearby), axis=0))

        bound = self.inverse_temperature * data.history.sum(term) + self.prior.precision
        return data.history.inflation * linalg.largest_eigenvalue_bound(bound)

    def _prior_grad(self, theta: Float[Array, " params"]) -> Float[Array, " params"]:
        return self.prior.precision @ (theta - self.prior.mean)


def _gram(phi: Float[Array, "n d"], weights: Float[Array, " n"]) -> Float[Array, "d d"]:
    return (phi * weights[:, None]).T @ phi
