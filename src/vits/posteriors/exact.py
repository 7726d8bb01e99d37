"""The exact Gaussian posterior of a linear model, by square-root updates."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from vits.posteriors.base import GaussianPosterior, guarded
from vits.potentials import Quadratic
from vits.types import Info, Observation


class ExactState(NamedTuple):
    """The posterior N(mean, B B') with B = sqrt_cov."""

    mean: Float[Array, " params"]
    sqrt_cov: Float[Array, "params params"]


class Exact(GaussianPosterior):
    """N(V^-1 b, (eta V)^-1), updated in O(d^2) per observation.

    With B B' = (eta V)^-1, v = B' phi, s = 1/eta + |v|^2 and q = 1 / sqrt(eta s), one observation gives

        mean <- mean + B v (r - phi' mean) / s,    B <- B - B v v' / (s (1 + q)),

    Potter's square-root form of the Kalman update: no factorisation, and a covariance that stays positive.
    """

    potential: Quadratic

    def init(self, key: Key[Array, ""]) -> ExactState:
        """The prior."""
        mean, precision = self.potential.prior
        return ExactState(mean, jnp.linalg.inv(jnp.linalg.cholesky(precision)).T)

    def update(self, key: Key[Array, ""], state: ExactState, observation: Observation) -> tuple[ExactState, Info]:
        """One observation more; there is nothing to approximate and nothing to draw."""
        phi, noise_variance = observation.features, 1.0 / self.potential.inverse_temperature
        v = state.sqrt_cov.T @ phi
        direction = state.sqrt_cov @ v
        s = noise_variance + v @ v
        q = jnp.sqrt(noise_variance / s)
        new = ExactState(
            mean=state.mean + direction * ((observation.reward - phi @ state.mean) / s),
            sqrt_cov=state.sqrt_cov - jnp.outer(direction, v / (s * (1.0 + q))),
        )
        # Features whose square overflows make s infinite and the gain 0: finite, and wrong.
        return guarded(observation, state, new, parameters=(new, s))
