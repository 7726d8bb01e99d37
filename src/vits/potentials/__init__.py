"""U_t, the negative log posterior of the data seen so far, up to a constant.

    U_t(theta) = eta * sum_s nll(theta; phi_s, r_s) + 1/2 (theta - m0)' P0 (theta - m0)

A posterior sees a potential only through its gradient and its Hessian, or their means under a Gaussian.

Options about the prior and the data are declared and documented here, once for all algorithms. An algorithm takes those
of one of the classes as keyword arguments, `**data: Unpack[DataOptions]`, and refuses the others.
"""

from typing import Any, TypedDict

import jax.numpy as jnp
from typing_extensions import Unpack

from vits import models, validate
from vits.history import buffer
from vits.potentials.autodiff import (
    CURVATURES,
    AutodiffPotential,
    CurvatureForm,
    exact,
    gauss_newton,
    gauss_newton_by_layers,
)
from vits.potentials.base import (
    Centre,
    Data,
    Derivatives,
    Expectations,
    Potential,
    Prior,
    gaussian_prior,
    ridge_prior,
)
from vits.potentials.curvature import Curvature, Dense, LowRank
from vits.potentials.glm import GlmPotential
from vits.potentials.quadratic import Quadratic
from vits.types import Scalar

__all__ = [
    "AutodiffPotential",
    "BufferOptions",
    "Centre",
    "Curvature",
    "CurvatureForm",
    "Data",
    "DataOptions",
    "Dense",
    "Derivatives",
    "Expectations",
    "FoldOptions",
    "GlmPotential",
    "LowRank",
    "Potential",
    "Prior",
    "Quadratic",
    "SampleOptions",
    "WindowOptions",
    "gaussian_prior",
    "potential",
    "ridge_prior",
]

WIDE = 1024
"""A linear model with more parameters than this stores no matrix if the algorithm stores none."""


class WindowOptions(TypedDict, total=False):
    """Options of an algorithm that needs no buffer unless there is a window."""

    prior: tuple[Any, Any] | None
    """(mean, covariance) of a Gaussian prior to use instead of N(0, I / (lambda eta)), not scaled by eta. The
    covariance is one variance, one for each parameter, or a matrix."""

    window: int | None
    """Use only the last `window` observations."""


class BufferOptions(WindowOptions, total=False):
    """Options of an algorithm that may store observations."""

    capacity: int | None
    """Buffer size for models that store data; `vits.simulate` sets it from its horizon, an agent as data arrive."""


class FoldOptions(BufferOptions, total=False):
    """Options of an algorithm that can also fold old observations."""

    fold_after: int | None
    """Keep the last `fold_after` observations as they are and older ones as quadratic expansions around the posterior
    of the time when they became old; a round then costs the same at every t. Exact for linear models and close for
    logistic and Poisson models. For other models it is as good as the posterior was when they became old, so keep
    enough of them to train the model (agents keep 1024)."""


class SampleOptions(BufferOptions, total=False):
    """Options of an algorithm that can also work on a sample of the data."""

    minibatch: int | None
    """Use this many observations, drawn at random, in a step instead of all; steps are shorter by 1 + t / minibatch,
    so that their noise stays below that of a posterior draw. Newton and natural-gradient algorithms with a full
    covariance take one step a round then, and need many times more observations than parameters in a minibatch."""


class DataOptions(SampleOptions, FoldOptions, total=False):
    """All options."""


def potential(
    model: models.RewardModel,
    inverse_temperature: Scalar | float,
    prior_precision: Scalar | float,
    curvature: str | CurvatureForm | None = None,
    *,
    follows: bool = False,
    matrix_free: bool = False,
    by_layers: bool = False,
    **data: Unpack[DataOptions],
) -> Potential:
    """The potential of a model, in the cheapest form the model allows.

    Args:
        model: the reward model.
        inverse_temperature: eta.
        prior_precision: lambda, for the paper's prior N(0, I / (lambda eta)).
        curvature: what `hessian` returns for a model that is not generalised linear: "exact", "gauss_newton", or a
            function like `vits.potentials.autodiff.exact`. By default "gauss_newton" where the model allows it.
        follows: whether the algorithm needs the largest curvature in every round, so that it is worth tracking.
        matrix_free: whether the algorithm stores no matrix. A wide linear model then stores its observations instead of
            a matrix.
        by_layers: whether the algorithm multiplies curvatures by few vectors only, so that a network needs no Jacobian
            row for each observation.
        data: see `DataOptions`.

    Returns:
        A quadratic potential for a linear model, sums over the observations for all others.
    """
    prior, window, fold_after = data.get("prior"), data.get("window"), data.get("fold_after")
    minibatch, capacity = data.get("minibatch"), data.get("capacity")
    gaussian = ridge_prior(model.num_params, inverse_temperature=inverse_temperature, prior_precision=prior_precision)
    eta = jnp.asarray(inverse_temperature, float)
    if prior is not None:
        gaussian = gaussian_prior(model.num_params, *prior)
    if minibatch is not None:
        validate.count("minibatch", minibatch)
    form = _curvature_form(curvature, model)
    if by_layers and form is gauss_newton and isinstance(model, models.Mlp):
        form = gauss_newton_by_layers
    check_folding(fold_after, window=window, minibatch=minibatch, capacity=capacity)
    if fold_after is not None and matrix_free and not (isinstance(model, models.Glm) and model.num_params <= WIDE):
        raise ValueError(
            "fold_after must be left out, because an algorithm without matrices folds only generalised linear models "
            f"with at most {WIDE:,} parameters, but is {fold_after}"
        )
    store = buffer(capacity=capacity, window=window if fold_after is None else fold_after)
    is_summed = window is None and minibatch is None and not (matrix_free and model.num_params > WIDE)
    if isinstance(model, models.Linear) and is_summed:
        return Quadratic(eta, gaussian)
    if isinstance(model, models.Glm):
        return GlmPotential(
            model=model,
            inverse_temperature=eta,
            prior=gaussian,
            buffer=store,
            batch_size=minibatch,
            folds=fold_after is not None,
            follows=follows or matrix_free,
        )
    return AutodiffPotential(
        model=model,
        inverse_temperature=eta,
        prior=gaussian,
        buffer=store,
        curvature=form,
        batch_size=minibatch,
        folds=fold_after is not None,
    )


def check_folding(fold_after: int | None, **others: int | None) -> None:
    """Refuse what does not go with folding, if there is any."""
    if fold_after is None:
        return
    validate.count("fold_after", fold_after)
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"{name} must be left out where observations are folded, but is {value}")


def _curvature_form(curvature: str | CurvatureForm | None, model: models.RewardModel) -> CurvatureForm:
    """The form with this name, if the model allows it; None means Gauss-Newton if possible, otherwise exact."""
    if callable(curvature):
        return curvature
    if curvature is None:
        return gauss_newton if isinstance(model, models.OutputModel) else exact
    form = validate.choice("curvature", curvature, CURVATURES)
    if curvature == "gauss_newton" and not isinstance(model, models.OutputModel):
        raise ValueError(
            "curvature 'gauss_newton' needs a likelihood that depends on the parameters through the mean: "
            "give custom(mean, loss=...) instead of nll, or use 'exact'"
        )
    return form
