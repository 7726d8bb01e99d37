"""The VITS posterior by natural gradients."""

from typing import Any

import jax.numpy as jnp

from vits import checks, models, policies, potentials
from vits.posteriors.natural import Natural
from vits.types import Scalar


def vits_ng(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    step_size: Scalar | float | None = None,
    num_steps: int | None = None,
    tolerance: Scalar | float = 0.05,
    curvature: str | potentials.CurvatureForm = "exact",
    prior: tuple[Any, Any] | None = None,
    window: int | None = None,
    fold_after: int | None = None,
    minibatch: int | None = None,
    capacity: int | None = None,
) -> policies.Thompson:
    """VITS with natural gradients: the same posterior in one or two steps, whatever the condition number.

        P <- (1 - rho) P + rho E[hess U(theta)];   mu <- mu - rho P_new^-1 E[grad U(theta)];   theta ~ N(mu, P^-1)

    Args:
        model: the reward model.
        inverse_temperature: eta; the larger, the narrower the posterior.
        prior_precision: lambda; the prior is N(0, I / (lambda eta)).
        step_size: rho, at most 1; halved in rounds where it would overshoot, which `info.step_capped` reports. By
            default 1 for linear, logistic and Poisson models, whose expectations are exact, and 0.1 for all others,
            where each step estimates them from a pair of draws.
        num_steps: steps a round at most; by default 2, and 10 where observations are folded, which are not seen again.
        tolerance: after the first step, none is taken within so many posterior standard deviations of the optimum.
        curvature: Hessians of a model that is not generalised linear: "exact", "gauss_newton", or a function like
            `vits.potentials.autodiff.exact`.
        prior: (mean, covariance) of a Gaussian prior instead of the paper's, which eta does not touch; the covariance
            is a variance, one for each parameter, or a matrix.
        window: only the last so many observations count.
        fold_after: the last so many observations count as they are, older ones as quadratic expansions around what was
            believed when they became old; a round then costs the same at every t. For linear and logistic models.
        minibatch: a round looks at so many observations, drawn at random, instead of all, and takes one step that is
            shorter by 1 + t / minibatch, so that the mean jitters by no more than 0.7 posterior standard deviations.
        capacity: how many observations will come at most, for models that keep them; `simulate` knows.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.make("vits_ng", vits.models.linear(3), inverse_temperature=100.0)

    Reference:
        Khan and Rue, "The Bayesian learning rule", JMLR 2023; objective of Clavier, Huix and Durmus, ICML 2024.
    """
    if step_size is None:
        step_size = 1.0 if isinstance(model, models.Glm) else 0.1
    checks.positive("step_size", step_size)
    if not checks.is_traced(step_size) and jnp.any(jnp.asarray(step_size) > 1.0):
        raise ValueError(f"step_size must be at most 1 for natural gradients, but is {step_size}")
    if num_steps is None:
        num_steps = 2 if fold_after is None else 10
    checks.count("num_steps", num_steps)
    checks.not_negative("tolerance", tolerance)
    potential = potentials.potential(
        model,
        inverse_temperature=inverse_temperature,
        prior_precision=prior_precision,
        curvature=curvature,
        prior=prior,
        window=window,
        fold_after=fold_after,
        minibatch=minibatch,
        capacity=capacity,
    )
    rho, near = jnp.asarray(step_size, float), jnp.asarray(tolerance, float)
    return policies.Thompson(model, Natural(potential, rho, num_steps, minibatch, near))
