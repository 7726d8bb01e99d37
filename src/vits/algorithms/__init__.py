"""Named presets: a reward model and hyperparameters in, a policy out.

Every number that a user may want to tune is a traced value: changing it does not compile anything anew. Numbers of
steps and of samples shape the program and do.
"""

import inspect
from collections.abc import Callable
from typing import Any

from vits import models, policies, registry
from vits.algorithms.baselines import greedy, lin_ts, lin_ucb, uniform
from vits.algorithms.langevin import fg_ts, lmc_ts
from vits.algorithms.natural import vits_ng
from vits.algorithms.per_arm import one_per_arm, vts
from vits.algorithms.rivals import ensemble_ts, laplace_ts
from vits.algorithms.variational import vits_i, vits_ii, vits_ii_hf

__all__ = [
    "ensemble_ts",
    "fg_ts",
    "greedy",
    "laplace_ts",
    "lin_ts",
    "lin_ucb",
    "lmc_ts",
    "make",
    "one_per_arm",
    "uniform",
    "vits_i",
    "vits_ii",
    "vits_ii_hf",
    "vits_ng",
    "vts",
]


def make(
    name: str, model: models.RewardModel, *, per_arm: int | None = None, **hyperparameters: Any
) -> policies.Policy:
    """The algorithm called `name` on a model.

    Args:
        name: one of `vits.registry.ALGORITHMS`; `vits list` prints them.
        model: the reward model.
        per_arm: the number of arms, if each is to have a posterior of its own; by default all arms share one.
        hyperparameters: as in the signature of the algorithm.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.make("vits_ii", vits.models.linear(3), inverse_temperature=10.0)
        >>> each_its_own = vits.make("vits_ii", vits.models.linear(3), per_arm=50)
    """
    entry = registry.lookup("algorithm", name, registry.ALGORITHMS)
    build: Callable[..., policies.Policy] = globals()[entry.name]
    known = [p for p in inspect.signature(build).parameters if p != "model"]
    for given in hyperparameters:
        if given not in known:
            raise registry.unknown(f"hyperparameter of {name}", given, known)
    policy = build(model, **hyperparameters)
    return policy if per_arm is None else one_per_arm(policy, per_arm)
