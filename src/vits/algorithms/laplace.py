"""Laplace's approximation: a Gaussian at the posterior's mode, as wide as the curvature there says.

    mean = argmin U_t,    Sigma = (hess U_t(mean))^-1

The mode is followed by damped Newton steps, warm-started from the round before.

Reference: Chapelle and Li, "An empirical evaluation of Thompson sampling", NeurIPS 2011.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Key
from typing_extensions import Unpack

from vits import linalg, models, policies, potentials
from vits.algorithms.preset import preset
from vits.inference import newton
from vits.inference.base import GaussianPosterior
from vits.inference.guards import guarded, is_unresolved
from vits.potentials import Centre, Data, DataOptions, Potential
from vits.types import Info, Matrix, Observation, Reason, Scalar, Vector

TOLERANCE = 0.05
"""How far from the mode a round may end, in posterior standard deviations by Newton's own estimate."""


class LaplaceState(NamedTuple):
    """The posterior N(mean, B B') with B = sqrt_cov, and the data seen."""

    mean: Vector
    sqrt_cov: Matrix
    data: Data


class Laplace(GaussianPosterior):
    """The Gaussian at the mode, moved by one to K Newton steps after each observation.

    `step_capped` in its reports says that a step was damped, that a Hessian was not positive definite and had to be
    raised, or that K steps were too few to come within `TOLERANCE` of the mode. Where a round looks at a sample of the
    data it takes one step towards the sample's mode, as short as the sample's noise asks for.
    """

    potential: Potential
    num_steps: int
    num_matrices: ClassVar[int] = 5

    def init(self, key: Key[Array, ""]) -> LaplaceState:
        """The prior."""
        sqrt_cov = linalg.sqrt_of_inverse(linalg.cholesky(self.potential.prior.matrix))
        return LaplaceState(self.potential.start(key), sqrt_cov, self.potential.init())

    def update(self, key: Key[Array, ""], state: LaplaceState, observation: Observation) -> tuple[LaplaceState, Info]:
        """Add the observation, go to the mode, and look at the curvature there."""
        data = self.potential.observe(state.data, observation, Centre(state.mean))
        batch = self.potential.minibatch(key, data)
        size = 1.0 / self.potential.inflation(batch)
        descent = newton.minimum(
            lambda theta: newton.slopes(self.potential, batch, theta),
            state.mean,
            floor=self.potential.prior.matrix,
            share=newton.share_of(self.potential),
            tolerance=TOLERANCE,
            max_steps=jnp.where(size < 1.0, 1, self.num_steps),  # the mode of a mere sample is not to be reached
            size=size,
        )
        mode: newton.Minimum = descent.point
        return guarded(
            observation,
            state,
            LaplaceState(mode.theta, mode.sqrt_cov, data),
            parameters=(mode.theta, mode.sqrt_cov, mode.distance),
            failures={Reason.UNRESOLVED: is_unresolved(mode.theta, mode.sqrt_cov)},
            step=descent.smallest_step,
            step_capped=(descent.smallest_step < size) | mode.was_raised | (mode.distance > TOLERANCE),
        )


@preset
def laplace_ts(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    num_steps: int = 10,
    curvature: str | potentials.CurvatureForm | None = None,
    **data: Unpack[DataOptions],
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
            `vits.potentials.autodiff.exact`. By default "gauss_newton" for networks, and "exact" where the model has
            no such form.
        data: prior, window, fold_after, minibatch, capacity; see `vits.potentials.DataOptions`.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.make("laplace_ts", vits.models.linear(3), num_steps=1)

    Reference:
        Chapelle and Li, "An empirical evaluation of Thompson sampling", NeurIPS 2011.
    """
    potential = potentials.potential(model, inverse_temperature, prior_precision, curvature, **data)
    return policies.Thompson(model, Laplace(potential, num_steps))
