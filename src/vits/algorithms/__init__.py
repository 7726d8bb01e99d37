"""Named presets: a reward model and hyperparameters in, a policy out.

Hyperparameters are traced, so other values need no new compilation. Numbers of steps and of samples are static: other
values compile again.

Arguments that presets share:

- `model`: the reward model.
- `inverse_temperature`: eta; the larger, the narrower the posterior.
- `prior_precision`: lambda; the prior is N(0, I / (lambda eta)).
- `step_size`: what `step_rule` makes a step from; for "safe", the fraction of the largest stable step.
- `step_rule`: "safe", "constant", "per_observation", or a rule from `vits.steps`.
- `num_steps`: steps in a round.
- `curvature`: Hessians of a model that is not generalised linear: "exact", "gauss_newton", or a function like
  `vits.potentials.autodiff.exact`. By default "gauss_newton" for networks and custom models with a `loss`, and "exact"
  for those with an `nll`.
- `data`: options of `vits.potentials.DataOptions`, or of the smaller class in the signature: prior, window, capacity,
  minibatch, fold_after.
"""

from collections.abc import Callable
from typing import Any

from vits import catalogue, models, policies
from vits.algorithms.baselines import greedy, uniform
from vits.algorithms.ensemble import ensemble_ts
from vits.algorithms.exact import lin_ts, lin_ucb
from vits.algorithms.feel_good import fg_ts
from vits.algorithms.hessian_free import vits_ii_hf
from vits.algorithms.langevin import lmc_ts
from vits.algorithms.laplace import laplace_ts
from vits.algorithms.mixture import vts
from vits.algorithms.natural import vits_ng
from vits.algorithms.vits import vits_i, vits_ii
from vits.policies import one_per_arm

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
        name: one of `vits.catalogue.ALGORITHMS`; `vits list` prints them.
        model: the reward model.
        per_arm: the number of arms, to give each arm its own posterior; by default all arms share one.
        hyperparameters: as in the signature of the algorithm and in its data options (`vits.potentials.DataOptions`).

    Example:
        >>> import vits
        >>> policy = vits.make("vits_ii", vits.models.linear(3), inverse_temperature=10.0)
        >>> each_its_own = vits.make("vits_ii", vits.models.linear(3), per_arm=50)
    """
    policy = builder(name)(model, **hyperparameters)
    return policy if per_arm is None else one_per_arm(policy, per_arm)


def builder(name: str) -> Callable[..., policies.Policy]:
    """The function that makes the algorithm called `name`, from the file named in the catalogue."""
    row = catalogue.algorithm(name)
    build: Callable[..., policies.Policy] = getattr(catalogue.module(row), row.name)
    return build


def hyperparameters(name: str) -> dict[str, Any]:
    """The types of the hyperparameters of the algorithm called `name`, by their names."""
    return policies.hyperparameters(builder(name))


def __getattr__(name: str) -> Any:
    # Algorithms in the catalogue need no import above.
    if name not in catalogue.ALGORITHMS:
        raise AttributeError(f"module 'vits.algorithms' has no attribute '{name}'")
    return builder(name)
