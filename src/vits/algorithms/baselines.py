"""Presets that explore by the exact posterior of a linear model, or not at all."""

from typing import Any

import jax.numpy as jnp

from vits import checks, models, policies, potentials
from vits.posteriors.exact import Exact
from vits.posteriors.laplace import Laplace
from vits.types import Scalar


def lin_ts(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    prior: tuple[Any, Any] | None = None,
) -> policies.Thompson:
    """LinTS: Thompson sampling from the exact posterior of a linear model, N(V^-1 b, (eta V)^-1).

    Args:
        model: a linear model.
        inverse_temperature: eta.
        prior_precision: lambda.
        prior: (mean, covariance) of a Gaussian prior to use instead; eta does not touch it.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.lin_ts(vits.models.linear(3), inverse_temperature=100.0)

    Reference:
        Agrawal and Goyal, "Thompson sampling for contextual bandits with linear payoffs", ICML 2013.
    """
    return policies.Thompson(model, _exact("lin_ts", model, inverse_temperature, prior_precision, prior))


def lin_ucb(
    model: models.RewardModel, *, prior_precision: Scalar | float = 1.0, width: Scalar | float = 1.0
) -> policies.UCB:
    """LinUCB: argmax phi' V^-1 b + width sqrt(phi' V^-1 phi).

    Args:
        model: a linear model.
        prior_precision: lambda.
        width: how many standard deviations of optimism (beta or alpha in the literature).

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.lin_ucb(vits.models.linear(3), width=0.5)

    Reference:
        Li, Chu, Langford and Schapire, "A contextual-bandit approach to personalized news article
        recommendation", WWW 2010.
    """
    checks.not_negative("width", width)
    return policies.UCB(model, _exact("lin_ucb", model, 1.0, prior_precision), jnp.asarray(width, float))


def greedy(model: models.RewardModel, *, prior_precision: Scalar | float = 1.0) -> policies.Greedy:
    """Plays the arm that looks best under the parameters that fit best: the posterior's mode.

    Args:
        model: the reward model.
        prior_precision: lambda.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.greedy(vits.models.logistic(3))
    """
    potential = potentials.potential(model, inverse_temperature=1.0, prior_precision=prior_precision)
    posterior = Exact(potential) if isinstance(potential, potentials.Quadratic) else Laplace(potential, num_steps=10)
    return policies.Greedy(model, posterior)


def uniform(model: models.RewardModel) -> policies.Uniform:
    """Plays any arm, whatever happened: what every other algorithm has to beat.

    Args:
        model: not used.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.uniform(vits.models.linear(3))
    """
    return policies.Uniform()


def _exact(
    name: str,
    model: models.RewardModel,
    inverse_temperature: Scalar | float,
    prior_precision: Scalar | float,
    prior: tuple[Any, Any] | None = None,
) -> Exact:
    potential = potentials.potential(
        model, inverse_temperature=inverse_temperature, prior_precision=prior_precision, prior=prior
    )
    if not isinstance(potential, potentials.Quadratic):
        raise ValueError(f"{name} needs a linear model, but got {type(model).__name__}; vits_ii takes any model")
    return Exact(potential)
