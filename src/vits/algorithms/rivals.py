"""Thompson sampling by other approximations of the posterior: at the mode, and by an ensemble."""

from typing import Any

from vits import checks, models, policies, potentials
from vits.posteriors.ensemble import Ensemble, NoisyCopies, Tilts
from vits.posteriors.laplace import Laplace
from vits.types import Scalar


def laplace_ts(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    num_steps: int = 10,
    curvature: str | potentials.CurvatureForm = "exact",
    prior: tuple[Any, Any] | None = None,
    window: int | None = None,
    fold_after: int | None = None,
    minibatch: int | None = None,
    capacity: int | None = None,
) -> policies.Thompson:
    """Laplace-TS: Thompson sampling from the Gaussian at the posterior's mode.

        mean = argmin U_t,    Sigma = (hess U_t(mean))^-1

    Args:
        model: the reward model.
        inverse_temperature: eta; the larger, the narrower the posterior.
        prior_precision: lambda; the prior is N(0, I / (lambda eta)).
        num_steps: Newton steps a round at most, from the mode of the round before; mostly one is enough. Rounds that
            end away from the mode are reported by `info.step_capped`.
        curvature: Hessians of a model that is not generalised linear: "exact", "gauss_newton", or a function like
            `vits.potentials.autodiff.exact`.
        prior: (mean, covariance) of a Gaussian prior instead of the paper's, which eta does not touch; the covariance
            is a variance, one for each parameter, or a matrix.
        window: only the last so many observations count.
        fold_after: the last so many observations count as they are, older ones as quadratic expansions around what was
            believed when they became old; a round then costs the same at every t. For linear and logistic models.
        minibatch: a round looks at so many observations, drawn at random, instead of all, and takes one step that is
            shorter by 1 + t / minibatch; many times the number of parameters, or the covariance is noisy.
        capacity: how many observations will come at most, for models that keep them; `simulate` knows.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.make("laplace_ts", vits.models.linear(3), num_steps=1)

    Reference:
        Chapelle and Li, "An empirical evaluation of Thompson sampling", NeurIPS 2011.
    """
    checks.count("num_steps", num_steps)
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
    return policies.Thompson(model, Laplace(potential, num_steps, minibatch))


def ensemble_ts(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    num_members: int = 30,
    num_steps: int = 10,
    curvature: str | potentials.CurvatureForm = "exact",
    prior: tuple[Any, Any] | None = None,
    window: int | None = None,
    minibatch: int | None = None,
    capacity: int | None = None,
) -> policies.Thompson:
    """Ensemble sampling: plays one of M models at random, each fitted to its own prior draw and noisy rewards.

        theta_m = argmin U_t(theta) - tilt_m' theta,   tilt_m = P0 (theta0_m - m0) + eta sum_s w_ms phi_s

    Args:
        model: the reward model; all but linear, logistic and Poisson models keep `num_members` data sets, and their
            likelihood has to accept rewards with noise.
        inverse_temperature: eta; the larger, the less the models differ.
        prior_precision: lambda; the prior is N(0, I / (lambda eta)).
        num_members: M.
        num_steps: Newton steps a round and model at most; mostly one is enough. Rounds in which a model ends away from
            its mode are reported by `info.step_capped`.
        curvature: Hessians of a model that is not generalised linear: "exact", "gauss_newton", or a function like
            `vits.potentials.autodiff.exact`.
        prior: (mean, covariance) of a Gaussian prior instead of the paper's, which eta does not touch; the covariance
            is a variance, one for each parameter, or a matrix.
        window: only the last so many observations count.
        minibatch: a round looks at so many observations, drawn at random, instead of all, and takes one step that is
            shorter by 1 + t / minibatch; many times the number of parameters, or the covariance is noisy.
        capacity: how many observations will come at most, for models that keep them; `simulate` knows.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.make("ensemble_ts", vits.models.linear(3), num_members=10)

    Reference:
        Lu and Van Roy, "Ensemble sampling", NeurIPS 2017.
    """
    checks.count("num_members", num_members)
    checks.count("num_steps", num_steps)
    potential = potentials.potential(
        model,
        inverse_temperature=inverse_temperature,
        prior_precision=prior_precision,
        curvature=curvature,
        prior=prior,
        window=window,
        minibatch=minibatch,
        capacity=capacity,
    )
    perturbation = Tilts(model) if isinstance(model, models.Glm) else NoisyCopies(model)
    return policies.Thompson(model, Ensemble(potential, perturbation, num_members, num_steps, minibatch))
