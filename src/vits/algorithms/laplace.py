"""Laplace's approximation: a Gaussian at the posterior's mode, with the inverse Hessian there as covariance.

    mean = argmin U_t,    Sigma = (hess U_t(mean))^-1

The mode is followed by damped Newton steps, warm-started from the round before.

Reference: Chapelle and Li, "An empirical evaluation of Thompson sampling", NeurIPS 2011.
"""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key
from typing_extensions import Unpack

from vits import linalg, models, policies, potentials, validate
from vits.inference import newton
from vits.inference.base import GaussianPosterior
from vits.inference.guards import guarded, is_unresolved
from vits.inference.recursive import Recursive
from vits.potentials import Centre, Data, DataOptions, Potential
from vits.potentials.autodiff import OfRows
from vits.types import Info, Matrix, Observation, Reason, Scalar, Vector

TOLERANCE = 0.05
"""The largest distance from the mode at the end of a round, in posterior standard deviations as Newton estimates it."""


class LaplaceState(NamedTuple):
    """The posterior N(mean, B B') with B = sqrt_cov, and the data seen."""

    mean: Vector
    sqrt_cov: Matrix
    data: Data


class Laplace(GaussianPosterior):
    """The Gaussian at the mode, updated by one to K Newton steps after each observation.

    In its `Info`, `step_capped` says that a step was damped, that a Hessian was not positive definite and had to be
    raised, or that K steps were too few to come within `TOLERANCE` of the mode. With a minibatch, a round takes one
    step towards the mode of the sample, shortened because of its noise.
    """

    potential: Potential
    num_steps: int
    num_matrices: ClassVar[int] = 5

    def init(self, key: Key[Array, ""]) -> LaplaceState:
        """The prior."""
        sqrt_cov = linalg.inverse_root(self.potential.prior.matrix)
        return LaplaceState(self.potential.start(key), sqrt_cov, self.potential.init())

    def update(self, key: Key[Array, ""], state: LaplaceState, observation: Observation) -> tuple[LaplaceState, Info]:
        """Add the observation, move to the mode, and compute the curvature there."""
        centre = Centre(state.mean)
        data = self.potential.observe(state.data, observation, centre)
        batch = self.potential.minibatch(key, data)
        size = 1.0 / self.potential.inflation(batch)
        descent = newton.minimum(
            lambda theta: newton.slopes(self.potential, batch, theta),
            self._start(state, data, observation, centre),
            floor=self.potential.prior.matrix,
            share=newton.share_of(self.potential),
            tolerance=TOLERANCE,
            max_steps=jnp.where(size < 1.0, 1, self.num_steps),  # do not move to the mode of a sample
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

    def _start(
        self, state: LaplaceState, data: Data, observation: Observation, centre: Centre
    ) -> Vector | newton.Minimum:
        """The old mode, and B there if a rank-one update gives it: the old Hessian plus the new observation's part."""
        if not self.potential.grows_by_rows:
            return state.mean
        weight = self.potential.news(observation, centre).weight
        sqrt_cov = linalg.updated_root(state.sqrt_cov, observation.features[None], weight[None])
        return newton.known(state.mean, self.potential.grad(data, state.mean), sqrt_cov)


@policies.preset
def laplace_ts(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    num_steps: int = 10,
    step_size: Scalar | float = 1.0,
    curvature: str | potentials.CurvatureForm | None = None,
    carried: bool = False,
    **data: Unpack[DataOptions],
) -> policies.Thompson:
    """Laplace-TS: Thompson sampling from the Gaussian at the posterior's mode.

        mean = argmin U_t,    Sigma = (hess U_t(mean))^-1

    Args:
        num_steps: the most Newton steps per round, from the mode of the round before; one is usually enough.
            `info.step_capped` reports rounds that end away from the mode.
        step_size: length of a full step, at most 1; only with `carried`.
        carried: for networks, add the curvature of the new observation to the covariance of the round before, and
            recompute the curvature of all observations only eight times while their number doubles. A round then costs
            O(p^2) for p parameters, and in between the posterior uses old curvatures.

    Other arguments: see `vits.algorithms`.

    Example:
        >>> import vits
        >>> policy = vits.make("laplace_ts", vits.models.linear(3), num_steps=1)
        >>> fast = vits.make("laplace_ts", vits.models.mlp(9, (50,), outputs=7), carried=True, minibatch=1024)

    Reference:
        Chapelle and Li, "An empirical evaluation of Thompson sampling", NeurIPS 2011.
    """
    validate.positive("step_size", step_size)
    potential = potentials.potential(model, inverse_temperature, prior_precision, curvature, **data)
    if carried:
        if not isinstance(potential, potentials.AutodiffPotential) or not isinstance(potential.curvature, OfRows):
            raise ValueError("carried needs a network, or a custom model with a loss, and the curvature 'gauss_newton'")
        if (window := data.get("window")) is not None:
            raise ValueError(f"carried must be False where old observations leave a window, but the window is {window}")
        return policies.Thompson(model, Recursive(potential, jnp.asarray(step_size, float), num_steps, TOLERANCE))
    if not validate.is_traced(step_size) and np.any(np.asarray(step_size) != 1.0):
        raise ValueError(f"step_size must be 1 unless the covariance is carried, but is {step_size}")
    return policies.Thompson(model, Laplace(potential, num_steps))
