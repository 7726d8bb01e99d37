"""Langevin Monte Carlo: a chain over the parameters whose law follows the posterior from round to round.

    theta <- theta - h M grad U(theta) + sqrt(2 h) M^1/2 xi,   xi ~ N(0, I)

M is the identity, or a preconditioner that is held fixed within a round. With M = I and a Gaussian posterior of
precision P the chain settles at N(mean, (P - h P^2 / 2)^-1): along a direction of curvature p the variance is
1 / (1 - h p / 2) times too large, the chain forgets by 1 - h p in a step, and h p >= 2 diverges.

Reference: Xu, Zheng, Mazumdar, Azizzadenesheli and Anandkumar, "Langevin Monte Carlo for contextual bandits",
ICML 2022.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from vits.models import Glm, RewardModel
from vits.posteriors.base import Posterior, guarded
from vits.posteriors.exact import Exact, ExactState
from vits.potentials import Data, Potential, Quadratic
from vits.steps import StepRule, Terrain
from vits.types import Info, Observation, Scalar, all_finite, report


class LangevinState(NamedTuple):
    """Where the chain stands, which is the draw to be played, what the preconditioner keeps, and the data seen."""

    theta: Float[Array, " params"]
    design: ExactState | None
    data: Data


class Flat(NamedTuple):
    """M = I, and an upper estimate of the largest curvature of U."""

    curvature: Scalar

    def downhill(self, grad: Float[Array, " params"]) -> Float[Array, " params"]:
        """M grad."""
        return grad

    def spread(self, xi: Float[Array, "steps params"]) -> Float[Array, "steps params"]:
        """M^1/2 xi, row by row."""
        return xi


class Whitened(NamedTuple):
    """M = S S', and an upper bound on the largest curvature of U in its units, lmax(S' hess U S)."""

    sqrt: Float[Array, "params params"]
    curvature: Scalar

    def downhill(self, grad: Float[Array, " params"]) -> Float[Array, " params"]:
        """M grad."""
        return self.sqrt @ (grad @ self.sqrt)

    def spread(self, xi: Float[Array, "steps params"]) -> Float[Array, "steps params"]:
        """M^1/2 xi, row by row."""
        return xi @ self.sqrt.T


class Preconditioner(eqx.Module):
    """Where M comes from."""

    @abc.abstractmethod
    def init(self, key: Key[Array, ""]) -> ExactState | None:
        """What it keeps, before any observation."""

    @abc.abstractmethod
    def observe(self, key: Key[Array, ""], kept: ExactState | None, observation: Observation) -> ExactState | None:
        """What it keeps, with one observation more."""

    @abc.abstractmethod
    def metric(
        self, kept: ExactState | None, potential: Potential, data: Data, theta: Float[Array, " params"]
    ) -> Flat | Whitened:
        """M for one round."""


class Identity(Preconditioner):
    """M = I: the softest direction takes about lmax / lmin steps to forget where it was."""

    def init(self, key: Key[Array, ""]) -> None:
        """Nothing to keep."""

    def observe(self, key: Key[Array, ""], kept: ExactState | None, observation: Observation) -> None:
        """Nothing to keep."""

    def metric(self, kept: ExactState | None, potential: Potential, data: Data, theta: Float[Array, " params"]) -> Flat:
        """I."""
        return Flat(potential.largest_curvature(data, theta))


class Design(Preconditioner):
    """M = (P0 + eta L sum phi phi')^-1, where L bounds the second derivative of the loss in phi' theta.

    M^-1 bounds the Hessian wherever the chain goes, so that h < 1 is stable, and all directions forget at the same
    rate, as fast as the softest one if the losses are as curved as L. (The Hessian at theta itself is no bound: where
    a likelihood is saturated it sends the chain far off.) M is the covariance of a linear model with inverse
    temperature eta L, which keeps a square root of it in O(d^2) operations a round.
    """

    surrogate: Exact

    def init(self, key: Key[Array, ""]) -> ExactState:
        """The prior."""
        return self.surrogate.init(key)

    def observe(self, key: Key[Array, ""], kept: ExactState | None, observation: Observation) -> ExactState:
        """phi phi' more."""
        assert kept is not None
        return self.surrogate.update(key, kept, observation)[0]

    def metric(
        self, kept: ExactState | None, potential: Potential, data: Data, theta: Float[Array, " params"]
    ) -> Whitened:
        """The surrogate's covariance."""
        sqrt_cov = self.surrogate.moments(kept).sqrt_cov
        return Whitened(sqrt_cov, jnp.ones((), sqrt_cov.dtype))


def design(model: RewardModel, potential: Potential) -> Design:
    """The preconditioner for a model whose loss is of bounded curvature in phi' theta, with all its data."""
    largest = model.max_d2loss if isinstance(model, Glm) else None
    if largest is None:
        raise ValueError(f"preconditioner 'design' needs a linear or logistic model, but got {type(model).__name__}")
    return Design(Exact(Quadratic(potential.inverse_temperature * largest, potential.prior)))


class Langevin(Posterior):
    """One chain, moved by K steps after each observation, warm-started from the round before."""

    potential: Potential
    step_rule: StepRule
    preconditioner: Preconditioner
    num_steps: int

    def init(self, key: Key[Array, ""]) -> LangevinState:
        """A draw from the prior."""
        start_key, draw_key = jax.random.split(key)
        start = self.potential.start(start_key)
        eps = jax.random.normal(draw_key, start.shape, start.dtype)
        sqrt_precision = jnp.linalg.cholesky(self.potential.prior.precision)
        offset = jax.scipy.linalg.solve_triangular(sqrt_precision, eps, trans="T", lower=True)
        return LangevinState(start + offset, self.preconditioner.init(key), self.potential.init())

    def update(self, key: Key[Array, ""], state: LangevinState, observation: Observation) -> tuple[LangevinState, Info]:
        """Add the observation, then take K steps."""
        kept = self.preconditioner.observe(key, state.design, observation)
        learnt = LangevinState(state.theta, kept, self.potential.observe(state.data, observation))
        theta, diagnostics = self._walk(key, learnt)
        return guarded(observation, state, learnt._replace(theta=theta), parameters=theta, **diagnostics)

    def advance(self, key: Key[Array, ""], state: LangevinState) -> tuple[LangevinState, Info]:
        """K steps with no observation more: a new draw for an arm that was not played."""
        theta, diagnostics = self._walk(key, state)
        is_finite = all_finite(theta)
        moved = state._replace(theta=jnp.where(is_finite, theta, state.theta))
        return moved, report(is_finite=is_finite, **diagnostics)

    def sample(self, key: Key[Array, ""], state: LangevinState) -> Float[Array, " params"]:
        """Where the chain stands: the randomness was spent on getting there."""
        return state.theta

    def _walk(self, key: Key[Array, ""], state: LangevinState) -> tuple[Float[Array, " params"], dict[str, Any]]:
        batch_key, noise_key = jax.random.split(key)
        data = self.potential.minibatch(batch_key, state.data)
        metric = self.preconditioner.metric(state.design, self.potential, data, state.theta)
        plan = self.step_rule(Terrain(self.potential, data, state.theta, metric.curvature), self.num_steps)
        h = plan.size
        # All noise of the round in one call: many small ones would cost more than the steps.
        noise = metric.spread(jax.random.normal(noise_key, (self.num_steps, *state.theta.shape), state.theta.dtype))

        def step(k: Array, theta: Float[Array, " params"]) -> Float[Array, " params"]:
            return theta - h * metric.downhill(self.potential.grad(data, theta)) + jnp.sqrt(2.0 * h) * noise[k]

        theta = jax.lax.fori_loop(0, plan.num_steps, step, state.theta)
        return theta, {"step": h, "step_capped": plan.capped, "stiffness": h * metric.curvature}
