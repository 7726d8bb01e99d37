"""Presets that sample by Langevin Monte Carlo, and feel-good Thompson sampling, which may."""

from typing import Any

from vits import checks, models, policies, potentials, registry, steps
from vits.posteriors import draws, langevin, vits
from vits.posteriors.base import Posterior
from vits.posteriors.exact import Exact
from vits.potentials.feel_good import feel_good as feel_good_potential
from vits.types import Scalar


def lmc_ts(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    step_size: Scalar | float = 0.5,
    num_steps: int = 10,
    step_rule: str | steps.StepRule = "safe",
    preconditioner: str = "none",
    prior: tuple[Any, Any] | None = None,
    window: int | None = None,
    minibatch: int | None = None,
    capacity: int | None = None,
) -> policies.Thompson:
    """LMC-TS: Thompson sampling with a Langevin chain, warm-started from round to round.

        theta <- theta - h grad U(theta) + sqrt(2 h) xi,   xi ~ N(0, I)

    Args:
        model: the reward model.
        inverse_temperature: eta; the larger, the narrower the posterior.
        prior_precision: lambda; the prior is N(0, I / (lambda eta)).
        step_size: what `step_rule` makes a step from; for "safe", the fraction of the largest step that keeps the
            variance within a factor of two.
        num_steps: steps a round; the paper takes 10 and 50.
        step_rule: "safe", "constant", "per_observation" (h / (eta t); the authors' h / t with noise sqrt(2 h / (eta t))
            on U / eta), or a rule from `vits.steps`.
        preconditioner: "none"; or "design", which steps along (P0 + eta L sum phi phi')^-1 with L the largest second
            derivative of the loss, and needs a handful of steps whatever the condition number. It is for linear and
            logistic models, and for safe or constant steps: a step of 1 is as long as Newton's.
        prior: (mean, covariance) of a Gaussian prior to use instead; eta does not touch it.
        window: only the last so many observations count.
        minibatch: a step looks at so many observations, drawn at random, instead of all; safe steps are shorter by
            1 + t / minibatch.
        capacity: how many observations will come at most, for models that keep them; `simulate` knows.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.lmc_ts(vits.models.linear(3), inverse_temperature=10.0, num_steps=50)

    Reference:
        Xu, Zheng, Mazumdar, Azizzadenesheli and Anandkumar, "Langevin Monte Carlo for contextual bandits", ICML 2022.
    """
    checks.count("num_steps", num_steps)
    potential = potentials.potential(
        model,
        inverse_temperature=inverse_temperature,
        prior_precision=prior_precision,
        prior=prior,
        window=window,
        minibatch=minibatch,
        capacity=capacity,
    )
    rule = steps.resolve(step_rule, step_size)
    if preconditioner == "none":
        return policies.Thompson(model, _chain(model, potential, rule, num_steps))
    if preconditioner != "design":
        raise registry.unknown("preconditioner", preconditioner, ("none", "design"))
    if window is not None or minibatch is not None:
        raise ValueError("preconditioner must be 'none' with a window or a minibatch, but is 'design'")
    if isinstance(rule, (steps.PerObservation, steps.Theory)):
        raise ValueError(f"step_rule must be safe or constant with a preconditioner, but is {type(rule).__name__}")
    design = langevin.design_matrix(model, potential)
    return policies.Thompson(model, _chain(model, potential, rule, num_steps, design))


def fg_ts(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    feel_good: Scalar | float | None = None,
    cap: Scalar | float = 1000.0,
    smoothing: Scalar | float = 0.0,
    sampler: str = "langevin",
    step_size: Scalar | float = 0.5,
    num_steps: int = 10,
    step_rule: str | steps.StepRule = "safe",
    num_arms: int = 64,
    prior: tuple[Any, Any] | None = None,
    window: int | None = None,
    minibatch: int | None = None,
    capacity: int | None = None,
) -> policies.Thompson:
    """FG-TS: Thompson sampling from a posterior that leans towards parameters under which the past looked rewarding.

        U_fg(theta) = U(theta) - feel_good sum_s min(cap, max_a f(theta; x_s, a))

    Args:
        model: the reward model; f is its expected reward.
        inverse_temperature: eta; the larger, the narrower the posterior.
        prior_precision: lambda; the prior is N(0, I / (lambda eta)).
        feel_good: weight of the bonus. Rewards look better by about feel_good / eta, and at all times: from 0.3 on that
            costs more than it gains. By default eta / 100; with 0 the algorithm is its sampler on U.
        cap: what the bonus of a round can be at most, on the scale of the rewards.
        smoothing: temperature tau of the smoothed form, which takes tau log sum exp(f / tau) for the maximum and a
            softplus of the same temperature for the minimum; 0 is the plain form.
        sampler: "langevin" (as lmc_ts) or "vits" (as vits_ii; of the plain form it sees no curvature at the kinks).
        step_size: what `step_rule` makes a step from.
        num_steps: steps a round.
        step_rule: "safe", "constant", "per_observation", or a rule from `vits.steps`.
        num_arms: how many arms a round offers at most; all of them are remembered.
        prior: (mean, covariance) of a Gaussian prior to use instead; eta does not touch it.
        window: only the last so many observations count.
        minibatch: a step looks at so many observations, drawn at random, instead of all; safe steps are shorter by
            1 + t / minibatch.
        capacity: how many observations will come at most, for models that keep them; `simulate` knows.

    Returns:
        A policy. Its observations must carry `arms`, the features of all arms that were on offer.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.fg_ts(vits.models.linear(3), feel_good=0.1, smoothing=0.1, num_arms=10)

    Reference:
        Zhang, "Feel-good Thompson sampling for contextual bandits and reinforcement learning", SIAM Journal on
        Mathematics of Data Science, 2022.
    """
    checks.count("num_steps", num_steps)
    base = potentials.potential(
        model,
        inverse_temperature=inverse_temperature,
        prior_precision=prior_precision,
        prior=prior,
        window=window,
        minibatch=minibatch,
        capacity=capacity,
    )
    potential = feel_good_potential(
        base,
        model,
        weight=0.01 * base.inverse_temperature if feel_good is None else feel_good,
        cap=cap,
        smoothing=smoothing,
        num_arms=num_arms,
        window=window,
        minibatch=minibatch,
        capacity=capacity,
    )
    rule = steps.resolve(step_rule, step_size)
    if sampler == "langevin":
        posterior: Posterior = _chain(model, potential, rule, num_steps)
    elif sampler == "vits":
        posterior = vits.VITS(
            potential=potential,
            step_rule=rule,
            draws=draws.antithetic(),
            curvature=vits.exact_curvature,
            inverse=vits.first_order_inverse,
            num_steps=num_steps,
        )
    else:
        raise registry.unknown("sampler", sampler, ("langevin", "vits"))
    return policies.Thompson(model, posterior)


def _chain(
    model: models.RewardModel,
    potential: potentials.Potential,
    rule: steps.StepRule,
    num_steps: int,
    design: Exact | None = None,
) -> langevin.Langevin:
    # The Hessian of a network would cost more than all steps of a round.
    curvature = langevin.bounded if isinstance(model, models.Glm) else langevin.iterated
    return langevin.Langevin(potential, rule, num_steps, curvature, design)
