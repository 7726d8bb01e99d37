"""Laplace's approximation: a Gaussian at the posterior's mode, with the inverse Hessian there as covariance.

    mean = argmin U_t,    Sigma = (hess U_t(mean))^-1

The mode is followed by damped Newton steps, warm-started from the round before. The Hessian is computed anew in each
round (`Laplace`), or carried from round to round (`Recursive`).

References: Chapelle and Li, "An empirical evaluation of Thompson sampling", NeurIPS 2011. For `Recursive`: Sherman and
Morrison, 1950, for square roots; Puskorius and Feldkamp, "Neurocontrol of nonlinear dynamical systems with Kalman
filter trained recurrent networks", 1994, for the filter that never looks at old observations again.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key
from typing_extensions import Unpack

from vits import linalg, models, policies, potentials, validate
from vits.history.base import batch_max
from vits.inference import newton
from vits.inference.base import GaussianPosterior
from vits.inference.guards import guarded, is_unresolved
from vits.models import OutputModel
from vits.potentials import AutodiffPotential, Centre, Data, DataOptions, Potential
from vits.potentials.autodiff import OfRows
from vits.types import Info, Matrix, Observation, Reason, Scalar, Vector

TOLERANCE = 0.05
"""The largest distance from the mode at the end of a round, in posterior standard deviations as Newton estimates it."""

OCTAVE = 8
"""Recomputations of the curvature while the number of observations doubles; a power of two."""

FARTHEST = 0.1
"""No parameter moves further than this in one step: beyond, the linearisation of a network is not valid."""


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


class Point(NamedTuple):
    """A mean, the gradient of U there, and its length in posterior standard deviations."""

    mean: Vector
    grad: Vector
    distance: Scalar


class Recursive(GaussianPosterior):
    """The Gaussian at the mode, with a covariance that is carried from round to round by products with vectors.

    The posterior is N(mu, P^-1) with mu at the mode of U_t and P = P0 + eta sum_s l''_s j_s j_s' there, Gauss-Newton's
    curvature with j = df/dtheta. Recomputing P in each round costs O(t p^2 + p^3). Here a round adds the curvature w w'
    of its own observation to the square root B of the covariance,

        B <- B - c (B u) u',    u = B' w,    c = (1 - 1 / sqrt(1 + u'u)) / u'u

    after which B B' is exactly (P + w w')^-1, at a cost of O(p^2). The curvature of older observations is kept until
    that of all observations is recomputed at the current mean. This happens eight times while their number doubles, so
    that all recomputations together cost as much as about nine of the last. The mean follows the mode by damped steps,

        mu <- mu - rho B B' grad U_t(mu)

    It takes one to K of them after each observation, from the mean of the round before. In its `Info`, `step_capped`
    says that a step was halved, and `refreshed` that the curvature was recomputed.
    """

    potential: AutodiffPotential
    step_size: Scalar
    num_steps: int
    num_matrices: ClassVar[int] = 4

    def init(self, key: Key[Array, ""]) -> LaplaceState:
        """The prior."""
        sqrt_cov = linalg.inverse_root(self.potential.prior.matrix)
        return LaplaceState(self.potential.start(key), sqrt_cov, self.potential.init())

    def update(self, key: Key[Array, ""], state: LaplaceState, observation: Observation) -> tuple[LaplaceState, Info]:
        """Add the observation to the data and to the covariance, then move the mean."""
        data = self.potential.observe(state.data, observation, Centre(state.mean))
        batch = self.potential.minibatch(key, data)
        rho = self.step_size / self.potential.inflation(batch)
        B = with_row(state.sqrt_cov, self._row(state.mean, observation))

        def look(mean: Vector) -> Point:
            grad = self.potential.grad(batch, mean)
            return Point(mean, grad, jnp.linalg.norm(B.T @ grad))

        def trial(start: Point, rho: Scalar) -> newton.Line:
            direction = -(B @ (B.T @ start.grad))
            move = direction * jnp.minimum(rho, FARTHEST / jnp.maximum(jnp.max(jnp.abs(direction)), FARTHEST))
            end = look(start.mean + move)
            return newton.Line(end, start.grad @ move, end.grad @ move)

        max_steps = jnp.where(rho < self.step_size, 1, self.num_steps)  # one step on a sample, whose mode is not wanted
        descent = newton.descend(look(state.mean), trial, size=rho, max_steps=max_steps, tolerance=TOLERANCE)
        mean = descent.point.mean
        is_due = _is_due(batch_max(self.potential.count(data)))
        B = jax.lax.cond(is_due, lambda: self._recomputed(data, mean), lambda: B)
        return guarded(
            observation,
            state,
            LaplaceState(mean, B, data),
            parameters=(mean, B),
            failures={Reason.UNRESOLVED: is_unresolved(mean, B)},
            step=descent.smallest_step,
            step_capped=descent.smallest_step < rho,
            refreshed=is_due,
        )

    def _row(self, mean: Vector, observation: Observation) -> Vector:
        """w, with w w' the curvature of one observation."""
        model, eta = self.potential.model, self.potential.inverse_temperature
        assert isinstance(model, OutputModel)
        f, slope = jax.value_and_grad(model.output)(mean, observation.features)
        return jnp.sqrt(eta * jnp.maximum(jax.grad(jax.grad(model.loss))(f, observation.reward), 0.0)) * slope

    def _recomputed(self, data: Data, mean: Vector) -> Matrix:
        """B from the curvature of all observations at the mean."""
        return linalg.inverse_root(self.potential.hessian(data, mean))


def with_row(B: Matrix, w: Vector) -> Matrix:
    """A square root of (P + w w')^-1, given the square root B of P^-1."""
    u = B.T @ w
    square = u @ u
    c = (1.0 - 1.0 / jnp.sqrt(1.0 + square)) / jnp.where(square > 0.0, square, 1.0)
    return B - c * jnp.outer(B @ u, u)


def _is_due(count: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether the count is one of 2^k (1 + i / OCTAVE)."""
    octave = jnp.left_shift(1, 31 - jax.lax.clz(count))
    return count % jnp.maximum(octave // OCTAVE, 1) == 0


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
    validate.share("step_size", step_size)
    potential = potentials.potential(model, inverse_temperature, prior_precision, curvature, **data)
    if carried:
        if not isinstance(potential, AutodiffPotential) or not isinstance(potential.curvature, OfRows):
            raise ValueError("carried needs a network, or a custom model with a loss, and the curvature 'gauss_newton'")
        if (window := data.get("window")) is not None:
            raise ValueError(f"carried must be False where old observations leave a window, but the window is {window}")
        return policies.Thompson(model, Recursive(potential, jnp.asarray(step_size, float), num_steps))
    if not validate.is_traced(step_size) and np.any(np.asarray(step_size) != 1.0):
        raise ValueError(f"step_size must be 1 unless the covariance is carried, but is {step_size}")
    return policies.Thompson(model, Laplace(potential, num_steps))
