"""The exact Gaussian posterior of a linear model, by square-root updates."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from vits import linalg
from vits.posteriors.base import GaussianPosterior, epsilon, guarded, is_unresolved
from vits.potentials import Quadratic
from vits.types import Info, Observation, Scalar


class ExactState(NamedTuple):
    """The posterior N(mean, B B') with B = sqrt_cov, and what rounding has taken from the mean so far."""

    mean: Float[Array, " params"]
    sqrt_cov: Float[Array, "params params"]
    rounding: Float[Array, " params"]


class Exact(GaussianPosterior):
    """N(V^-1 b, (eta V)^-1), updated in O(d^2) per observation.

    With B B' = (eta V)^-1, v = B' phi, s = 1/eta + |v|^2 and q = 1 / sqrt(eta s), one observation gives

        mean <- mean + B v (r - phi' mean) / s,    B <- B (I - v v' / |v|^2) + q B v v' / |v|^2,

    Potter's square-root form of the Kalman update: no factorisation, and a covariance that stays positive. The
    projection is done twice: where one observation shrinks a wide prior a million times, what rounding leaves of
    the first is as large as the deviation that is to remain.
    """

    potential: Quadratic

    def init(self, key: Key[Array, ""]) -> ExactState:
        """The prior."""
        mean, precision = self.potential.prior
        return ExactState(mean, linalg.sqrt_of_inverse(linalg.cholesky(precision)), jnp.zeros_like(mean))

    def update(self, key: Key[Array, ""], state: ExactState, observation: Observation) -> tuple[ExactState, Info]:
        """One observation more; there is nothing to approximate and nothing to draw."""
        phi, noise_variance = observation.features, 1.0 / self.potential.inverse_temperature
        v = state.sqrt_cov.T @ phi
        direction = state.sqrt_cov @ v
        s = noise_variance + v @ v
        q = jnp.sqrt(noise_variance / s)
        # Kahan's summation: over a million rounds, what each rounds away would add up to a part of a deviation.
        move = direction * ((observation.reward - phi @ state.mean) / s) + state.rounding
        mean = state.mean + move
        new = ExactState(mean, shrunk(state.sqrt_cov, v, q), rounding=move - (mean - state.mean))
        lost = is_unresolved(new.mean, new.sqrt_cov) | _is_drowned(phi, state.sqrt_cov, q * jnp.linalg.norm(v))
        # Features whose square overflows make s infinite and the gain 0: finite, and wrong.
        return guarded(observation, state, new, parameters=(new, s), exploded=lost)


def _is_drowned(phi: Float[Array, " d"], sqrt_cov: Float[Array, "d d"], deviation: Scalar) -> Bool[Array, ""]:
    """Whether rounding the rows of the old B drowns the deviation of phi' theta that the new one is to give.

    So it is where a prior is much wider than what the data leave: by 1e5 in single precision, by 1e9 in double. Beyond,
    B cannot hold both; up to there, a deviation keeps almost half of the digits.
    """
    precision = epsilon(phi)
    rounding = precision * jnp.linalg.norm(phi * jnp.linalg.norm(sqrt_cov, axis=1))
    return ~(rounding <= 10.0 * math.sqrt(precision) * deviation)


def shrunk(sqrt_cov: Float[Array, "d d"], v: Float[Array, " d"], q: Scalar) -> Float[Array, "d d"]:
    """B (I - u u') + q B u u' with u = v / |v|, the projection done twice; B itself where v is zero."""
    length = jnp.linalg.norm(v)
    u = v / jnp.where(length > 0.0, length, 1.0)
    along = sqrt_cov @ u
    rest = sqrt_cov - jnp.outer(along, u)
    return rest + jnp.outer(q * along - rest @ u, u)
