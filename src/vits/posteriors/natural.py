"""VITS with natural gradients: the same Gaussian family and objective, steps that do not depend on conditioning.

The objective is F(mu, Sigma) = E U_t(theta) - 1/2 log det Sigma, theta ~ N(mu, Sigma). In the geometry of the family
its gradient step moves the natural parameters a fraction rho towards those of the Gaussian that fits U_t around q:

    P  <- (1 - rho) P + rho E[hess U(theta)]
    mu <- mu - rho P_new^-1 E[grad U(theta)]

For a quadratic U_t one step with rho = 1 is exact. Where a full step would overshoot, rho is halved until F agrees.

Reference: Khan and Rue, "The Bayesian learning rule", JMLR 2023, section 1.3.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from vits.posteriors import descent
from vits.posteriors.base import GaussianPosterior, guarded, is_unresolved
from vits.potentials import Data, Expectations, Potential
from vits.types import Info, Observation, Scalar


class Gaussian(NamedTuple):
    """N(mean, B B') with B = sqrt_cov, and precision P = (B B')^-1."""

    mean: Float[Array, " params"]
    sqrt_cov: Float[Array, "params params"]
    precision: Float[Array, "params params"]

    @property
    def cov(self) -> Float[Array, "params params"]:
        """B B'."""
        return self.sqrt_cov @ self.sqrt_cov.T


class NaturalState(NamedTuple):
    """The posterior N(mean, B B') with B = sqrt_cov and precision P = (B B')^-1, and the data seen."""

    mean: Float[Array, " params"]
    sqrt_cov: Float[Array, "params params"]
    precision: Float[Array, "params params"]
    data: Data


class Point(NamedTuple):
    """A Gaussian, E[grad U] and E[hess U] under it, and whether the latter had to be raised."""

    gaussian: Gaussian
    expected: Expectations
    was_raised: Bool[Array, ""]


class Natural(GaussianPosterior):
    """The variational posterior, moved by K natural-gradient steps after each observation, warm-started.

    `step_capped` in its reports says that a step was damped, or that the expected Hessian was not positive definite
    and had to be raised. Where a round looks at a sample of the data it takes one step, as short as the sample's noise
    asks for.
    """

    potential: Potential
    step_size: Scalar
    num_steps: int
    batch_size: int | None = None

    def init(self, key: Key[Array, ""]) -> NaturalState:
        """The prior."""
        precision = self.potential.prior.precision
        data = self.potential.init()
        return NaturalState(self.potential.start(key), descent.sqrt_of_inverse(precision), precision, data)

    def update(self, key: Key[Array, ""], state: NaturalState, observation: Observation) -> tuple[NaturalState, Info]:
        """Add the observation, then take K steps."""
        data = self.potential.observe(state.data, observation)
        batch_key, look_key = jax.random.split(key)
        batch = self.potential.minibatch(batch_key, data)
        size = descent.sample_step(self.potential.count(data), self.batch_size)
        rho, num_steps = self.step_size * size, jnp.where(size < 1.0, 1, self.num_steps)

        def look(q: Gaussian) -> Point:
            # One key for the whole round: noise that two points share does not mislead their comparison.
            grad, hessian = self.potential.expectations(look_key, batch, q.mean, q.sqrt_cov)
            curvature = descent.raised(hessian, self.potential.prior.precision)
            return Point(q, Expectations(grad, curvature.matrix), curvature.was_raised)

        def step(k: Array, carry: tuple[Point, Scalar, Bool[Array, ""]]) -> tuple[Point, Scalar, Bool[Array, ""]]:
            point, smallest, damped = carry
            step = descent.backtracked(point, rho, lambda rho: _trial(look, point, rho))
            return step.end, jnp.minimum(smallest, step.size), damped | step.cut | point.was_raised

        first = look(Gaussian(state.mean, state.sqrt_cov, state.precision)), rho, jnp.asarray(False)
        point, smallest, damped = jax.lax.fori_loop(0, num_steps, step, first)
        q = point.gaussian
        return guarded(
            observation,
            state,
            NaturalState(q.mean, q.sqrt_cov, q.precision, data),
            parameters=point,
            exploded=is_unresolved(q.mean, q.sqrt_cov),
            step=smallest,
            step_capped=damped,
        )


def _trial(look: Callable[[Gaussian], Point], start: Point, rho: Scalar) -> descent.Line:
    """A step of size rho, and the slopes of F along the chord between its two ends."""
    (mean, _, precision), (grad, hessian), _ = start
    new_precision = (1.0 - rho) * precision + rho * hessian
    sqrt_cov = descent.sqrt_of_inverse(new_precision)
    new_mean = mean - rho * sqrt_cov @ (sqrt_cov.T @ grad)
    end = look(Gaussian(new_mean, sqrt_cov, new_precision))
    d_mean, d_cov = new_mean - mean, end.gaussian.cov - start.gaussian.cov

    def slope(at: Point) -> Scalar:
        # dF = E[grad U]' dmu + 1/2 tr((E[hess U] - P) dSigma)
        return at.expected.grad @ d_mean + 0.5 * jnp.sum((at.expected.hessian - at.gaussian.precision) * d_cov)

    return descent.Line(end, slope(start), slope(end))
