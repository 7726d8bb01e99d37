"""VITS with natural gradients: the same Gaussian family and objective, steps that do not depend on conditioning.

The objective is F(mu, Sigma) = E U_t(theta) - 1/2 log det Sigma, theta ~ N(mu, Sigma). In the geometry of the family
its gradient step moves the natural parameters a fraction rho towards those of the Gaussian that fits U_t around q:

    P  <- (1 - rho) P + rho E[hess U(theta)]
    mu <- mu - rho P_new^-1 E[grad U(theta)]

For a quadratic U_t one step with rho = 1 is exact. Where a full step would overshoot, rho is halved until F agrees.

Reference: Khan and Rue, "The Bayesian learning rule", JMLR 2023, section 1.3.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from vits.posteriors import descent
from vits.posteriors.base import GaussianPosterior, guarded
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


class Progress(NamedTuple):
    """Where the steps of a round have led, the smallest of them, and whether any had to be damped."""

    gaussian: Gaussian
    smallest_step: Scalar
    damped: Bool[Array, ""]
    grad: Float[Array, " params"]


class Natural(GaussianPosterior):
    """The variational posterior, moved by K natural-gradient steps after each observation, warm-started."""

    potential: Potential
    step_size: Scalar
    num_steps: int

    def init(self, key: Key[Array, ""]) -> NaturalState:
        """The prior."""
        precision = self.potential.prior.precision
        data = self.potential.init()
        return NaturalState(self.potential.start(key), descent.sqrt_of_inverse(precision), precision, data)

    def update(self, key: Key[Array, ""], state: NaturalState, observation: Observation) -> tuple[NaturalState, Info]:
        """Add the observation, then take K steps."""
        data = self.potential.observe(state.data, observation)
        batch_key, step_key = jax.random.split(key)
        batch = self.potential.minibatch(batch_key, data)
        keys = jax.random.split(step_key, self.num_steps)

        def step(k: Array, progress: Progress) -> Progress:
            return self._step(keys[k], batch, progress)

        first = Progress(Gaussian(*state[:3]), self.step_size, jnp.asarray(False), jnp.zeros_like(state.mean))
        last = jax.lax.fori_loop(0, self.num_steps, step, first)
        return guarded(
            observation,
            state,
            NaturalState(*last.gaussian, data),
            parameters=(last.gaussian, last.grad),
            step=last.smallest_step,
            step_capped=last.damped,
        )

    def _step(self, key: Key[Array, ""], data: Data, progress: Progress) -> Progress:
        q = progress.gaussian

        def look(q: Gaussian) -> tuple[Expectations, Bool[Array, ""]]:
            # The same key at both ends of a step: noise that they share does not mislead the comparison.
            grad, hessian = self.potential.expectations(key, data, q.mean, q.sqrt_cov)
            curvature = descent.raised(hessian, self.potential.prior.precision)
            return Expectations(grad, curvature.matrix), curvature.was_raised

        here, was_raised = look(q)

        def trial(rho: Scalar) -> descent.Line:
            precision = (1.0 - rho) * q.precision + rho * here.hessian
            sqrt_cov = descent.sqrt_of_inverse(precision)
            new = Gaussian(q.mean - rho * sqrt_cov @ (sqrt_cov.T @ here.grad), sqrt_cov, precision)
            there, _ = look(new)
            d_mean, d_cov = new.mean - q.mean, new.cov - q.cov

            def slope(expected: Expectations, at: Gaussian) -> Scalar:
                # dF = E[grad U]' dmu + 1/2 tr((E[hess U] - P) dSigma)
                return expected.grad @ d_mean + 0.5 * jnp.sum((expected.hessian - at.precision) * d_cov)

            return descent.Line(new, slope(here, q), slope(there, new))

        step = descent.backtracked(q, self.step_size, trial)
        smallest_step = jnp.minimum(progress.smallest_step, step.size)
        return Progress(step.end, smallest_step, progress.damped | step.cut | was_raised, here.grad)
