"""Presets with one posterior per arm: VTS, and any Thompson sampling algorithm made so."""

from typing import Any

import jax
import jax.numpy as jnp

from vits import checks, models, policies, potentials
from vits.history import buffer
from vits.posteriors.mixture import Mixture
from vits.posteriors.per_arm import PerArm
from vits.potentials.feel_good import FeelGood
from vits.types import Scalar


def one_per_arm(policy: policies.Policy, num_arms: int) -> policies.ThompsonPerArm:
    """The same algorithm with an independent posterior for every arm: a = argmax f(theta_a; phi_a).

    Only the arm that was played learns from its reward. All arms have the same prior and the same hyperparameters.
    `vits.make(name, model, per_arm=num_arms)` is short for this.

    Args:
        policy: a Thompson sampling policy with one posterior for all arms.
        num_arms: how many arms there are, in every round, in the same order.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> shared = vits.algorithms.vits_ii(vits.models.linear(3))
        >>> policy = vits.algorithms.one_per_arm(shared, num_arms=10)
    """
    checks.count("per_arm", num_arms)
    if isinstance(policy, policies.ThompsonPerArm):
        raise ValueError(f"per_arm must be left out for a policy that has one posterior per arm, but is {num_arms}")
    if not isinstance(policy, policies.Thompson):
        raise ValueError(f"per_arm needs a Thompson sampling algorithm, but got {type(policy).__name__}")
    if _has_feel_good(policy):
        raise ValueError("per_arm cannot go with fg_ts, whose bonus compares all arms under the same parameters")
    return policies.ThompsonPerArm(policy.model, PerArm(policy.posterior, num_arms))


def vts(
    model: models.RewardModel,
    *,
    num_arms: int,
    num_components: int = 2,
    num_steps: int = 10,
    prior_precision: Scalar | float = 1.0,
    prior: tuple[Any, Any] | None = None,
    prior_shape: Scalar | float = 1.0,
    prior_scale: Scalar | float = 1.0,
    prior_weight: Scalar | float = 1.0,
    separation: Scalar | float = 1.0,
    window: int | None = None,
    capacity: int | None = None,
) -> policies.ThompsonPerArm:
    """VTS: for every arm a variational mixture of linear regressions with unknown noise.

        sigma2_k ~ InvGamma(alpha_k, beta_k),   w_k ~ N(u_k, sigma2_k V_k),   a = argmax sum_k E[pi_k] phi_a' w_k

    Args:
        model: a linear model.
        num_arms: how many arms there are, in every round, in the same order.
        num_components: M, Gaussians in an arm's mixture; with 1 the posterior is exact and keeps no data.
        num_steps: sweeps of mean-field updates a round.
        prior_precision: lambda; V0 = I / lambda, in units of the noise variance.
        prior: (u0, V0) to use instead.
        prior_shape: alpha0.
        prior_scale: beta0; sqrt(beta0 / alpha0) is the noise to expect, in the unit of the rewards.
        prior_weight: gamma0.
        separation: how many prior standard deviations the components' prior means lie around u0.
        window: only the last so many observations of an arm count.
        capacity: how many observations will come at most; None leaves it to `simulate`.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.vts(vits.models.linear(3), num_arms=5, num_components=2)

    Reference:
        Urteaga and Wiggins, "Variational inference for the multi-armed contextual bandit", AISTATS 2018.
    """
    if not isinstance(model, models.Linear):
        raise ValueError(
            f"vts needs a linear model, but got {type(model).__name__}; vits_ii, laplace_ts and lmc_ts take any model, "
            "with per_arm=num_arms if every arm is to have its own parameters"
        )
    checks.count("num_arms", num_arms)
    checks.count("num_components", num_components)
    checks.count("num_steps", num_steps)
    positive = {"prior_shape": prior_shape, "prior_scale": prior_scale, "prior_weight": prior_weight}
    for name, value in (positive | {"separation": separation}).items():
        checks.positive(name, value)
    if window is not None and num_components == 1:
        raise ValueError(f"window needs num_components of at least 2, since one keeps no data, but is {window}")
    ridge = potentials.ridge_prior(model.num_params, inverse_temperature=1.0, prior_precision=prior_precision)
    mixture = Mixture(
        prior=ridge if prior is None else potentials.gaussian_prior(model.num_params, *prior),
        **{name: jnp.asarray(value, float) for name, value in positive.items()},
        separation=jnp.asarray(separation, float),
        num_components=num_components,
        num_steps=num_steps,
        buffer=buffer(capacity=capacity, window=window),
    )
    return policies.ThompsonPerArm(model, PerArm(mixture, num_arms))


def _has_feel_good(policy: policies.Policy) -> bool:
    nodes = jax.tree.leaves(policy, is_leaf=lambda node: isinstance(node, FeelGood))
    return any(isinstance(node, FeelGood) for node in nodes)
