"""VITS-II without Hessians: the curvature of a step comes from gradients, by Stein's identity.

The posterior is that of `vits.algorithms.vits`; only its curvature rule and its draws differ.

Reference: Clavier, Huix and Durmus, ICML 2024, algorithm 3.
"""

from collections.abc import Callable

from typing_extensions import Unpack

from vits import models, policies, potentials, steps, validate
from vits.algorithms.vits import INVERSES, STARTS, VITS
from vits.inference.covariance import rows_of, sampled
from vits.inference.square_root import NOISE, SquareRoot, by_stein, check_pattern
from vits.inference.variational import Draws, antithetic, orthogonal, plain, stein, stein_plain
from vits.potentials import DataOptions
from vits.types import Scalar

FULL_CUBATURE = 64
"""Up to this many parameters, Hessian-free steps use every coordinate direction."""

FEWER_DIRECTIONS = 20
"""With more parameters, they use this many random orthogonal directions."""


@policies.preset
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
    start: str = "mean",
    inverse: str = "first_order",
    covariance: str = "full",
    rank: int | None = None,
    **data: Unpack[DataOptions],
) -> policies.Thompson:
    """VITS-II Hessian-free: the curvature comes from gradients by Stein's identity.

        A = mean over s of C' eps_s grad U(theta_s)'

    Args:
        step_size: as in `vits_i`; the largest stable step is smaller the fewer directions there are.
        num_samples: gradients per step. By default 20 for "plain" draws and 40 for "antithetic" ones; for "orthogonal"
            ones twice the number of parameters if there are at most 64, else 40.
        draws: "orthogonal" (mirrored orthogonal directions), "antithetic", or "plain" (the paper's).

    Other arguments: see `vits_ii` and `vits.algorithms`.

    Example:
        >>> import vits
        >>> policy = vits.make("vits_ii_hf", vits.models.linear(3), draws="plain", num_samples=20)

    Reference:
        Clavier, Huix and Durmus, ICML 2024, algorithm 3.
    """
    rows = rows_of(covariance, rank, model)
    if rows is not None:
        data = sampled(model, data)
    dim = model.num_params + (rows or 0)
    defaults: dict[str, tuple[Callable[[int], Draws], int]] = {
        "plain": (plain, 20),
        "antithetic": (antithetic, 2 * FEWER_DIRECTIONS),
        "orthogonal": (orthogonal, 2 * (dim if dim <= FULL_CUBATURE else FEWER_DIRECTIONS)),
    }
    scheme_of, usual = validate.choice("draws", draws, defaults)
    scheme = scheme_of(num_samples or usual)
    few = rows is not None
    potential = potentials.potential(model, inverse_temperature, prior_precision, follows=True, by_layers=few, **data)
    rule, inverse_rule = steps.resolve(step_rule, step_size), validate.choice("inverse", inverse, INVERSES)
    inflation, drawn = scheme.inflation(dim), validate.choice("start", start, STARTS)
    if rows is not None:
        check_pattern(covariance, inverse, potential)
        # With few columns the spectrum cannot be d / m times too large; only the noise of the estimate matters.
        shorter = min(inflation, NOISE)
        pattern = SquareRoot(potential, rule, scheme, by_stein, num_steps, rows, shorter, random_start=drawn)
        return policies.Thompson(model, pattern)
    posterior = VITS(
        potential=potential,
        step_rule=rule,
        draws=scheme,
        curvature=stein_plain if draws == "plain" else stein,
        inverse=inverse_rule,
        num_steps=num_steps,
        inflation=inflation,
        random_start=drawn,
    )
    return policies.Thompson(model, posterior)
