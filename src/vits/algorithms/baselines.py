"""Baselines that every other algorithm should beat."""

from typing_extensions import Unpack

from vits import models, policies, potentials
from vits.algorithms.exact import mode_posterior
from vits.potentials import DataOptions
from vits.types import Scalar


@policies.preset
def greedy(
    model: models.RewardModel, *, prior_precision: Scalar | float = 1.0, **data: Unpack[DataOptions]
) -> policies.Greedy:
    """Plays the arm that is best under the posterior's mode.

    Arguments: see `vits.algorithms`.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.greedy(vits.models.logistic(3))
    """
    return policies.Greedy(model, mode_posterior(potentials.potential(model, 1.0, prior_precision, **data)))


@policies.preset
def uniform(model: models.RewardModel) -> policies.Uniform:
    """Plays any arm with the same probability, in every round.

    Args:
        model: not used.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.uniform(vits.models.linear(3))
    """
    return policies.Uniform()
