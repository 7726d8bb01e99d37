"""Laplace's approximation: a Gaussian at the posterior's mode, as wide as the curvature there says.

    mean = argmin U_t,    Sigma = (hess U_t(mean))^-1

The mode is followed by damped Newton steps, warm-started from the round before.

Reference: Chapelle and Li, "An empirical evaluation of Thompson sampling", NeurIPS 2011.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from vits.posteriors import descent
from vits.posteriors.base import GaussianPosterior, guarded
from vits.potentials import Data, Potential
from vits.types import Info, Observation, Scalar

TOLERANCE = 0.1
"""How far from the mode, in posterior standard deviations, a round may end without being reported."""


class LaplaceState(NamedTuple):
    """The posterior N(mean, B B') with B = sqrt_cov, and the data seen."""

    mean: Float[Array, " params"]
    sqrt_cov: Float[Array, "params params"]
    data: Data


class Laplace(GaussianPosterior):
    """The Gaussian at the mode, moved by at most K Newton steps after each observation.

    `step_capped` in its reports says that a step was damped, that the Hessian was not positive definite and had to be
    raised, or that K steps left the mean further than `TOLERANCE` from the mode (by Newton's own estimate).
    """

    potential: Potential
    num_steps: int

    def init(self, key: Key[Array, ""]) -> LaplaceState:
        """The prior."""
        sqrt_cov = descent.sqrt_of_inverse(self.potential.prior.precision)
        return LaplaceState(self.potential.start(key), sqrt_cov, self.potential.init())

    def update(self, key: Key[Array, ""], state: LaplaceState, observation: Observation) -> tuple[LaplaceState, Info]:
        """Add the observation, go to the mode, and look at the curvature there."""
        data = self.potential.observe(state.data, observation)
        batch = self.potential.minibatch(key, data)
        floor = self.potential.prior.precision

        def grad(theta: Float[Array, " params"]) -> Float[Array, " params"]:
            return self.potential.grad(batch, theta)

        def hessian(theta: Float[Array, " params"]) -> Float[Array, "params params"]:
            return self.potential.hessian(batch, theta)

        Carry = tuple[Float[Array, " params"], Scalar, Bool[Array, ""]]

        def step(k: Array, carry: Carry) -> Carry:
            theta, smallest, damped = carry
            newton = descent.newton_step(grad, hessian, theta, floor)
            return newton.theta, jnp.minimum(smallest, newton.size), damped | newton.damped

        first = (state.mean, jnp.ones((), state.mean.dtype), jnp.asarray(False))
        mean, smallest, damped = jax.lax.fori_loop(0, self.num_steps, step, first)
        precision = descent.raised(hessian(mean), floor)
        new = LaplaceState(mean, descent.sqrt_of_inverse(precision.matrix), data)
        distance = jnp.linalg.norm(new.sqrt_cov.T @ grad(mean))  # |H^-1/2 grad|, the Newton decrement
        return guarded(
            observation,
            state,
            new,
            parameters=(new.mean, new.sqrt_cov, distance),
            step=smallest,
            step_capped=damped | precision.was_raised | (distance > TOLERANCE),
        )
