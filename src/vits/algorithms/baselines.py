"""Baselines: what every other algorithm has to beat."""

from typing_extensions import Unpack

from vits import models, policies, potentials
from vits.algorithms.exact import mode_posterior
from vits.algorithms.preset import preset
from vits.potentials import DataOptions
from vits.types import Scalar


@preset
def greedy(
    model: models.RewardModel, *, prior_precision: Scalar | float = 1.0, **data: Unpack[DataOptions]
) -> policies.Greedy:
    """Plays the arm that looks best under the parameters that fit best: the posterior's mode.

    Args:
        model: the reward model.
        prior_precision: lambda.
        data: prior, window, fold_after, minibatch, capacity; see `vits.potentials.DataOptions`.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.greedy(vits.models.logistic(3))
    """
    return policies.Greedy(model, mode_posterior(potentials.potential(model, 1.0, prior_precision, **data)))


@preset
def uniform(model: models.RewardModel) -> policies.Uniform:
    """Plays any arm with the same probability, whatever happened.

    Args:
        model: not used.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.uniform(vits.models.linear(3))
    """
    return policies.Uniform()
