"""Ensemble sampling: M models, each at the mode of its own perturbed posterior; a draw is one of them.

Model m replaces the prior mean by a draw from the prior, and every reward by r + w, w ~ N(0, Var(r) / eta). Where the
loss is linear in the reward times f = phi' theta, as for Gaussian, Bernoulli and Poisson rewards, all of this is a tilt

    U_m(theta) = U_t(theta) - tilt_m' theta,    tilt_m = P0 (theta0_m - m0) + eta sum_s w_ms phi_s,

so that the models share one data set. The tilt's covariance is the curvature of U_t: for a linear model each theta_m
is an exact draw from the posterior, for the others one from Laplace's approximation, as far as U_t is quadratic.

References: Lu and Van Roy, "Ensemble sampling", NeurIPS 2017; Kveton et al., "Randomized exploration in generalized
linear bandits", AISTATS 2020 (rewards perturbed by Gaussian noise, GLM-FPL).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from vits.models import Glm
from vits.posteriors import descent
from vits.posteriors.base import Moments, Posterior, guarded
from vits.potentials import Data, Potential
from vits.types import Info, Observation

TOLERANCE = 0.05
"""How far from its mode a model may end a round, in posterior standard deviations by Newton's own estimate."""


class EnsembleState(NamedTuple):
    """The models, what tilts the potential of each (from its prior draw, from its noise), and the data seen."""

    members: Float[Array, "members params"]
    prior_tilts: Float[Array, "members params"]
    noise_tilts: Float[Array, "members params"]
    data: Data


class Ensemble(Posterior):
    """`num_members` models, each moved to its mode by at most K Newton steps after each observation.

    `step_capped` in its reports says, of any member, that a step was damped, that a Hessian had to be raised, or that
    K steps were too few to come within `TOLERANCE` of the mode.
    """

    model: Glm
    potential: Potential
    num_members: int
    num_steps: int

    def init(self, key: Key[Array, ""]) -> EnsembleState:
        """Independent draws from the prior."""
        precision = self.potential.prior.precision
        eps = jax.random.normal(key, (self.num_members, precision.shape[0]), precision.dtype)
        offsets = eps @ descent.sqrt_of_inverse(precision).T
        members = self.potential.prior.mean[None, :] + offsets
        return EnsembleState(members, offsets @ precision, jnp.zeros_like(members), self.potential.init())

    def update(self, key: Key[Array, ""], state: EnsembleState, observation: Observation) -> tuple[EnsembleState, Info]:
        """Add the observation, with noise of its own for each member, and let every member go to its mode."""
        noise_key, batch_key = jax.random.split(key)
        data = self.potential.observe(state.data, observation)
        noise_tilts = self._forgotten(state, data) + self._noise(noise_key, state, observation)
        batch = self.potential.minibatch(batch_key, data)

        def mode(start: Float[Array, " params"], tilt: Float[Array, " params"]) -> descent.Minimum:
            return descent.minimum(
                lambda theta: self.potential.grad(batch, theta) - tilt,
                lambda theta: self.potential.hessian(batch, theta),
                start,
                floor=self.potential.prior.precision,
                tolerance=TOLERANCE,
                max_steps=self.num_steps,
            )

        modes = jax.vmap(mode)(state.members, state.prior_tilts + noise_tilts)
        return guarded(
            observation,
            state,
            EnsembleState(modes.theta, state.prior_tilts, noise_tilts, data),
            parameters=(modes.theta, noise_tilts, modes.distance),
            step=jnp.min(modes.smallest_step),
            step_capped=jnp.any(modes.damped | (modes.distance > TOLERANCE)),
        )

    def sample(self, key: Key[Array, ""], state: EnsembleState) -> Float[Array, " params"]:
        """One of the members, each with the same probability."""
        return state.members[jax.random.randint(key, (), 0, self.num_members)]

    def moments(self, state: EnsembleState) -> Moments:
        """Mean of the members, and a square root of their covariance."""
        mean = jnp.mean(state.members, axis=0)
        spread = (state.members - mean[None, :]) / jnp.sqrt(jnp.asarray(self.num_members, mean.dtype))
        root = jnp.linalg.qr(spread, mode="r")
        missing = mean.shape[0] - root.shape[0]
        return Moments(mean, jnp.pad(root, ((0, missing), (0, 0))).T)

    def _noise(
        self, key: Key[Array, ""], state: EnsembleState, observation: Observation
    ) -> Float[Array, "members params"]:
        """eta w phi, w ~ N(0, l''(f, r) / eta): l'' is the variance of the reward under the model."""
        f = observation.features @ jnp.mean(state.members, axis=0)
        scale = jnp.sqrt(self.potential.inverse_temperature * self.model.d2loss(f, observation.reward))
        w = scale * jax.random.normal(key, (self.num_members,), scale.dtype)
        return jnp.outer(w, observation.features)

    def _forgotten(self, state: EnsembleState, data: Data) -> Float[Array, "members params"]:
        """The noise so far; where a window has pushed out one of n observations, shrunk to n - 1 parts of its variance.

        Which noise came with that observation is not kept: the tilt loses it on average.
        """
        before, after = self.potential.count(state.data), self.potential.count(data)
        kept = (after - 1).astype(state.members.dtype) / jnp.maximum(before, 1).astype(state.members.dtype)
        return jnp.sqrt(kept) * state.noise_tilts
