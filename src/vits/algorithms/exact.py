"""The exact Gaussian posterior of a linear model: by square-root updates, or from the rows of a window.

References: Agrawal and Goyal, "Thompson sampling for contextual bandits with linear payoffs", ICML 2013; Li, Chu,
Langford and Schapire, "A contextual-bandit approach to personalized news article recommendation", WWW 2010.
"""

import math
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key
from typing_extensions import Unpack

from vits import linalg, models, policies, potentials, validate
from vits.algorithms.laplace import Laplace
from vits.inference.base import GaussianPosterior
from vits.inference.guards import epsilon, guarded, is_unresolved
from vits.potentials import Potential, Quadratic, WindowOptions
from vits.types import Info, Matrix, Observation, Reason, Scalar, Vector


class ExactState(NamedTuple):
    """The posterior N(mean, B B') with B = sqrt_cov, and the accumulated rounding error of the mean."""

    mean: Vector
    sqrt_cov: Matrix
    rounding: Vector


class Exact(GaussianPosterior):
    """N(V^-1 b, (eta V)^-1), updated in O(d^2) per observation.

    With B B' = (eta V)^-1, v = B' phi, s = 1/eta + |v|^2 and q = 1 / sqrt(eta s), one observation gives

        mean <- mean + B v (r - phi' mean) / s,    B <- B (I - v v' / |v|^2) + q B v v' / |v|^2,

    Potter's square-root form of the Kalman update: no factorisation, and a covariance that stays positive. The
    projection is applied twice: if one observation shrinks a wide prior a million times, the rounding error after the
    first projection is as large as the remaining deviation.
    """

    potential: Quadratic
    num_matrices: ClassVar[int] = 3

    def init(self, key: Key[Array, ""]) -> ExactState:
        """The prior."""
        mean, precision = self.potential.prior.mean, self.potential.prior.matrix
        return ExactState(mean, linalg.inverse_root(precision), jnp.zeros_like(mean))

    def update(self, key: Key[Array, ""], state: ExactState, observation: Observation) -> tuple[ExactState, Info]:
        """Add one observation; nothing is approximated or drawn."""
        phi, noise_variance = observation.features, 1.0 / self.potential.inverse_temperature
        v = state.sqrt_cov.T @ phi
        direction = state.sqrt_cov @ v
        s = noise_variance + v @ v
        q = jnp.sqrt(noise_variance / s)
        # Kahan's summation: over a million rounds, rounding errors would add up to a noticeable part of a deviation.
        move = direction * ((observation.reward - phi @ state.mean) / s) + state.rounding
        mean = state.mean + move
        new = ExactState(mean, shrunk(state.sqrt_cov, v, q), rounding=move - (mean - state.mean))
        failures = {
            Reason.DROWNED: _is_drowned(phi, state.sqrt_cov, q * jnp.linalg.norm(v)),
            Reason.UNRESOLVED: is_unresolved(new.mean, new.sqrt_cov),
        }
        # Features whose square overflows make s infinite and the gain 0, which is finite but wrong.
        return guarded(observation, state, new, parameters=(new, s), failures=failures)


def _is_drowned(phi: Float[Array, " d"], sqrt_cov: Float[Array, "d d"], deviation: Scalar) -> Bool[Array, ""]:
    """Whether the rounding error of the old B is larger than the deviation of phi' theta that the new B should have.

    This happens if the prior is wider than the posterior by 1e5 in single precision, by 1e9 in double. Then B cannot
    represent both; up to there, a deviation keeps almost half of its digits.
    """
    precision = epsilon(phi)
    rounding = precision * jnp.linalg.norm(phi * jnp.linalg.norm(sqrt_cov, axis=1))
    return ~(rounding <= 10.0 * math.sqrt(precision) * deviation)


def shrunk(sqrt_cov: Float[Array, "d d"], v: Float[Array, " d"], q: Scalar) -> Float[Array, "d d"]:
    """B (I - u u') + q B u u' with u = v / |v|, with the projection applied twice; B itself if v is zero."""
    length = jnp.linalg.norm(v)
    u = v / jnp.where(length > 0.0, length, 1.0)
    along = sqrt_cov @ u
    rest = sqrt_cov - jnp.outer(along, u)
    return rest + jnp.outer(q * along - rest @ u, u)


@policies.preset
def lin_ts(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    **data: Unpack[WindowOptions],
) -> policies.Thompson:
    """LinTS: Thompson sampling from the exact posterior of a linear model, N(V^-1 b, (eta V)^-1).

    Arguments: see `vits.algorithms`; the model must be linear.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.lin_ts(vits.models.linear(3), inverse_temperature=100.0)

    Reference:
        Agrawal and Goyal, "Thompson sampling for contextual bandits with linear payoffs", ICML 2013.
    """
    return policies.Thompson(model, _exact("lin_ts", model, inverse_temperature, prior_precision, **data))


@policies.preset
def lin_ucb(
    model: models.RewardModel,
    *,
    prior_precision: Scalar | float = 1.0,
    width: Scalar | float = 1.0,
    **data: Unpack[WindowOptions],
) -> policies.UCB:
    """LinUCB: argmax phi' V^-1 b + width sqrt(phi' V^-1 phi).

    Args:
        model: a linear model.
        prior_precision: lambda.
        width: the number of standard deviations added to the mean (beta or alpha in the literature).
        data: see `vits.algorithms`.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.lin_ucb(vits.models.linear(3), width=0.5)

    Reference:
        Li, Chu, Langford and Schapire, "A contextual-bandit approach to personalized news article
        recommendation", WWW 2010.
    """
    validate.not_negative("width", width)
    return policies.UCB(model, _exact("lin_ucb", model, 1.0, prior_precision, **data), jnp.asarray(width, float))


def _exact(
    name: str,
    model: models.RewardModel,
    inverse_temperature: Scalar | float,
    prior_precision: Scalar | float,
    **data: Unpack[WindowOptions],
) -> GaussianPosterior:
    if not isinstance(model, models.Linear):
        raise ValueError(f"{name} needs a linear model, but got {type(model).__name__}; vits_ii takes any model")
    return mode_posterior(potentials.potential(model, inverse_temperature, prior_precision, **data))


def mode_posterior(potential: Potential) -> GaussianPosterior:
    """The Gaussian at the posterior's mode: by square-root updates for a linear model on all data, else by Newton."""
    return Exact(potential) if isinstance(potential, Quadratic) else Laplace(potential, num_steps=10)
