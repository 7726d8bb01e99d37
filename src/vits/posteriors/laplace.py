"""Laplace's approximation: a Gaussian at the posterior's mode, as wide as the curvature there says.

    mean = argmin U_t,    Sigma = (hess U_t(mean))^-1

The mode is followed by damped Newton steps, warm-started from the round before.

Reference: Chapelle and Li, "An empirical evaluation of Thompson sampling", NeurIPS 2011.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from vits import linalg
from vits.posteriors import descent
from vits.posteriors.base import GaussianPosterior, guarded, is_unresolved
from vits.potentials import Belief, Data, Potential
from vits.types import Info, Observation

TOLERANCE = 0.05
"""How far from the mode a round may end, in posterior standard deviations by Newton's own estimate."""


class LaplaceState(NamedTuple):
    """The posterior N(mean, B B') with B = sqrt_cov, and the data seen."""

    mean: Float[Array, " params"]
    sqrt_cov: Float[Array, "params params"]
    data: Data


class Laplace(GaussianPosterior):
    """The Gaussian at the mode, moved by one to K Newton steps after each observation.

    `step_capped` in its reports says that a step was damped, that a Hessian was not positive definite and had to be
    raised, or that K steps were too few to come within `TOLERANCE` of the mode. Where a round looks at a sample of the
    data it takes one step towards the sample's mode, as short as the sample's noise asks for.
    """

    potential: Potential
    num_steps: int
    batch_size: int | None = None

    def init(self, key: Key[Array, ""]) -> LaplaceState:
        """The prior."""
        sqrt_cov = linalg.sqrt_of_inverse(linalg.cholesky(self.potential.prior.precision))
        return LaplaceState(self.potential.start(key), sqrt_cov, self.potential.init())

    def update(self, key: Key[Array, ""], state: LaplaceState, observation: Observation) -> tuple[LaplaceState, Info]:
        """Add the observation, go to the mode, and look at the curvature there."""
        data = self.potential.observe(state.data, observation, Belief(state.mean))
        batch = self.potential.minibatch(key, data)
        size = descent.sample_step(self.potential.count(data), self.batch_size)
        walk = descent.minimum(
            lambda theta: descent.slopes(self.potential, batch, theta),
            state.mean,
            floor=self.potential.prior.precision,
            share=descent.share_of(self.potential),
            tolerance=TOLERANCE,
            max_steps=jnp.where(size < 1.0, 1, self.num_steps),  # the mode of a mere sample is not to be reached
            size=size,
        )
        mode: descent.Minimum = walk.point
        return guarded(
            observation,
            state,
            LaplaceState(mode.theta, mode.sqrt_cov, data),
            parameters=(mode.theta, mode.sqrt_cov, mode.distance),
            exploded=is_unresolved(mode.theta, mode.sqrt_cov),
            step=walk.smallest_step,
            step_capped=(walk.smallest_step < size) | mode.was_raised | (mode.distance > TOLERANCE),
        )
