"""Baselines: what every other algorithm has to beat."""

from vits import models, policies, potentials
from vits.algorithms.exact import Exact
from vits.algorithms.laplace import Laplace
from vits.types import Scalar


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
