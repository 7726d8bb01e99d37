"""VITS presets: the paper's three algorithms."""

from typing import Any

from vits import checks, models, policies, potentials, registry, steps
from vits.posteriors import draws as drawing
from vits.posteriors import vits
from vits.types import Scalar

FULL_CUBATURE = 64
"""Up to this many parameters, Hessian-free steps look along every coordinate direction."""

FEWER_DIRECTIONS = 20
"""Beyond that, they look along this many random orthogonal directions."""

INVERSES = {"first_order": vits.first_order_inverse, "frozen": vits.frozen_inverse}


def vits_i(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    step_size: Scalar | float = 0.9,
    num_steps: int = 10,
    step_rule: str | steps.StepRule = "safe",
    draws: str = "antithetic",
    curvature: str | potentials.CurvatureForm = "exact",
    prior: tuple[Any, Any] | None = None,
    window: int | None = None,
    fold_after: int | None = None,
    minibatch: int | None = None,
    capacity: int | None = None,
) -> policies.Thompson:
    """VITS-I: Thompson sampling from a Gaussian variational posterior, with exact inverses.

        mu <- mu - h grad U(theta);   B <- (I - h hess U(theta)) B + h B^-T;   theta = mu + B eps

    Args:
        model: the reward model.
        inverse_temperature: eta; the larger, the narrower the posterior.
        prior_precision: lambda; the prior is N(0, I / (lambda eta)).
        step_size: what `step_rule` makes a step from; for "safe", the fraction of the largest stable step.
        num_steps: steps a round; a cap under `steps.theory`.
        step_rule: "safe", "constant", "per_observation", or a rule from `vits.steps`.
        draws: "antithetic" (a mirrored pair) or "single" (the paper's).
        curvature: Hessians of a model that is not generalised linear: "exact", "gauss_newton", or a function like
            `vits.potentials.autodiff.exact`.
        prior: (mean, covariance) of a Gaussian prior instead of the paper's, which eta does not touch; the covariance
            is a variance, one for each parameter, or a matrix.
        window: only the last so many observations count.
        fold_after: the last so many observations count as they are, older ones as quadratic expansions around what was
            believed when they became old; a round then costs the same at every t. For linear and logistic models.
        minibatch: a step looks at so many observations, drawn at random, instead of all; safe steps are shorter by
            1 + t / minibatch, so that the noise stays that of a single draw.
        capacity: how many observations will come at most, for models that keep them; `simulate` knows.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.vits_i(vits.models.linear(3), inverse_temperature=10.0)

    Reference:
        Clavier, Huix and Durmus, ICML 2024, algorithm 2.
    """
    return _vits(
        model,
        inverse_temperature=inverse_temperature,
        prior_precision=prior_precision,
        prior=prior,
        window=window,
        fold_after=fold_after,
        minibatch=minibatch,
        capacity=capacity,
        hessian=curvature,
        step_rule=steps.resolve(step_rule, step_size),
        num_steps=num_steps,
        draws=_pair_or_single(draws),
        curvature=vits.exact_curvature,
        inverse=vits.exact_inverse,
    )


def vits_ii(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    step_size: Scalar | float = 0.9,
    num_steps: int = 10,
    step_rule: str | steps.StepRule = "safe",
    draws: str = "antithetic",
    inverse: str = "first_order",
    curvature: str | potentials.CurvatureForm = "exact",
    prior: tuple[Any, Any] | None = None,
    window: int | None = None,
    fold_after: int | None = None,
    minibatch: int | None = None,
    capacity: int | None = None,
) -> policies.Thompson:
    """VITS-II: VITS-I with the inverse C = B^-1 followed to first order.

        B <- (I - h A) B + h C';   C <- C (I - h (C'C - A));   A = hess U(theta)

    Args:
        model: the reward model.
        inverse_temperature: eta; the larger, the narrower the posterior.
        prior_precision: lambda; the prior is N(0, I / (lambda eta)).
        step_size: what `step_rule` makes a step from; for "safe", the fraction of the largest stable step.
        num_steps: steps a round; a cap under `steps.theory`.
        step_rule: "safe", "constant", "per_observation", or a rule from `vits.steps`.
        draws: "antithetic" (a mirrored pair) or "single" (the paper's).
        inverse: "first_order" (the paper's) or "frozen": C stays through the round and is repaired at its end, one
            product a step instead of three. It holds while B goes no further than 1 / lmax in a round; longer steps of
            B, but not those of mu, are shortened to that, which `info.step_capped` reports.
        curvature: Hessians of a model that is not generalised linear: "exact", "gauss_newton", or a function like
            `vits.potentials.autodiff.exact`.
        prior: (mean, covariance) of a Gaussian prior instead of the paper's, which eta does not touch; the covariance
            is a variance, one for each parameter, or a matrix.
        window: only the last so many observations count.
        fold_after: the last so many observations count as they are, older ones as quadratic expansions around what was
            believed when they became old; a round then costs the same at every t. For linear and logistic models.
        minibatch: a step looks at so many observations, drawn at random, instead of all; safe steps are shorter by
            1 + t / minibatch, so that the noise stays that of a single draw.
        capacity: how many observations will come at most, for models that keep them; `simulate` knows.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.vits_ii(vits.models.linear(3), num_steps=2)

    Reference:
        Clavier, Huix and Durmus, ICML 2024, algorithm 3.
    """
    return _vits(
        model,
        inverse_temperature=inverse_temperature,
        prior_precision=prior_precision,
        prior=prior,
        window=window,
        fold_after=fold_after,
        minibatch=minibatch,
        capacity=capacity,
        hessian=curvature,
        step_rule=steps.resolve(step_rule, step_size),
        num_steps=num_steps,
        draws=_pair_or_single(draws),
        curvature=vits.exact_curvature,
        inverse=_inverse(inverse),
    )


def vits_ii_hf(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    step_size: Scalar | float = 0.9,
    num_steps: int = 10,
    num_samples: int | None = None,
    step_rule: str | steps.StepRule = "safe",
    draws: str = "orthogonal",
    inverse: str = "first_order",
    prior: tuple[Any, Any] | None = None,
    window: int | None = None,
    fold_after: int | None = None,
    minibatch: int | None = None,
    capacity: int | None = None,
) -> policies.Thompson:
    """VITS-II Hessian-free: the curvature comes from gradients by Stein's identity.

        A = mean over s of C' eps_s grad U(theta_s)'

    Args:
        model: the reward model.
        inverse_temperature: eta; the larger, the narrower the posterior.
        prior_precision: lambda; the prior is N(0, I / (lambda eta)).
        step_size: what `step_rule` makes a step from; for "safe", the fraction of the largest stable step, which
            is smaller the fewer directions there are.
        num_steps: steps a round; a cap under `steps.theory`.
        num_samples: gradients a step. By default twice the number of parameters up to 64 of them, 40 beyond, and
            20 for plain draws.
        step_rule: "safe", "constant", "per_observation", or a rule from `vits.steps`.
        draws: "orthogonal" (mirrored orthogonal directions), "antithetic", or "plain" (the paper's).
        inverse: "first_order" (the paper's) or "frozen": C stays through the round and is repaired at its end, one
            product a step instead of three. It holds while B goes no further than 1 / lmax in a round; longer steps of
            B, but not those of mu, are shortened to that, which `info.step_capped` reports.
        prior: (mean, covariance) of a Gaussian prior instead of the paper's, which eta does not touch; the covariance
            is a variance, one for each parameter, or a matrix.
        window: only the last so many observations count.
        fold_after: the last so many observations count as they are, older ones as quadratic expansions around what was
            believed when they became old; a round then costs the same at every t. For linear and logistic models.
        minibatch: a step looks at so many observations, drawn at random, instead of all; safe steps are shorter by
            1 + t / minibatch, so that the noise stays that of a single draw.
        capacity: how many observations will come at most, for models that keep them; `simulate` knows.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.make("vits_ii_hf", vits.models.linear(3), draws="plain", num_samples=20)

    Reference:
        Clavier, Huix and Durmus, ICML 2024, algorithm 3.
    """
    dim = model.num_params
    if draws == "plain":
        scheme: drawing.Draws = drawing.plain(num_samples or 20)
    elif draws == "antithetic":
        scheme = drawing.antithetic(num_samples or 2 * FEWER_DIRECTIONS)
    elif draws == "orthogonal":
        scheme = drawing.orthogonal(num_samples or 2 * (dim if dim <= FULL_CUBATURE else FEWER_DIRECTIONS))
    else:
        raise registry.unknown("draws", draws, ("orthogonal", "antithetic", "plain"))
    return _vits(
        model,
        inverse_temperature=inverse_temperature,
        prior_precision=prior_precision,
        prior=prior,
        window=window,
        fold_after=fold_after,
        minibatch=minibatch,
        capacity=capacity,
        # Only for the size of the steps.
        hessian="gauss_newton" if isinstance(model, models.OutputModel) else "exact",
        step_rule=steps.resolve(step_rule, step_size),
        num_steps=num_steps,
        draws=scheme,
        curvature=vits.stein_plain if draws == "plain" else vits.stein,
        inverse=_inverse(inverse),
        inflation=scheme.inflation(dim),
    )


def _vits(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float,
    prior_precision: Scalar | float,
    prior: tuple[Any, Any] | None,
    window: int | None,
    fold_after: int | None,
    minibatch: int | None,
    capacity: int | None,
    hessian: str | potentials.CurvatureForm,
    num_steps: int,
    **parts: Any,
) -> policies.Thompson:
    checks.count("num_steps", num_steps)
    potential = potentials.potential(
        model,
        inverse_temperature=inverse_temperature,
        prior_precision=prior_precision,
        prior=prior,
        curvature=hessian,
        window=window,
        fold_after=fold_after,
        minibatch=minibatch,
        capacity=capacity,
    )
    return policies.Thompson(model, vits.VITS(potential=potential, num_steps=num_steps, **parts))


def _pair_or_single(draws: str) -> drawing.Draws:
    schemes = {"antithetic": drawing.antithetic, "single": drawing.plain}
    if draws not in schemes:
        raise registry.unknown("draws", draws, schemes)
    return schemes[draws]()


def _inverse(inverse: str) -> vits.InverseRule:
    if inverse not in INVERSES:
        raise registry.unknown("inverse", inverse, INVERSES)
    return INVERSES[inverse]
