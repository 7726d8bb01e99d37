"""Laplace's approximation with a covariance that is carried from round to round by products with vectors.

The posterior is N(mu, P^-1) with mu at the mode of U_t and P = P0 + eta sum_s l''_s j_s j_s' there, Gauss-Newton's
curvature with j = df/dtheta. Recomputing P in each round costs O(t p^2 + p^3). Here a round adds the curvature w w' of
its own observation to the square root B of the covariance,

    B <- B - c (B u) u',    u = B' w,    c = (1 - 1 / sqrt(1 + u'u)) / u'u

after which B B' is exactly (P + w w')^-1, at a cost of O(p^2). The curvature of older observations is kept until that
of all observations is recomputed at the current mean. This happens eight times while their number doubles, so that all
recomputations together cost as much as about nine of the last. The mean follows the mode by damped steps,

    mu <- mu - rho B B' grad U_t(mu)

Reference: Sherman and Morrison, 1950, for square roots; Puskorius and Feldkamp, "Neurocontrol of nonlinear dynamical
systems with Kalman filter trained recurrent networks", 1994, for the filter that never looks at old observations again.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from vits import linalg
from vits.history.base import batch_max
from vits.inference import newton
from vits.inference.base import GaussianPosterior
from vits.inference.guards import guarded, is_unresolved
from vits.models import OutputModel
from vits.potentials import Centre, Data
from vits.potentials.autodiff import AutodiffPotential
from vits.types import Info, Matrix, Observation, Reason, Scalar, Vector

OCTAVE = 8
"""Recomputations of the curvature while the number of observations doubles; a power of two."""


FARTHEST = 0.1
"""No parameter moves further than this in one step: beyond, the linearisation of a network is not valid."""


class RecursiveState(NamedTuple):
    """The posterior N(mean, B B') with B = sqrt_cov, and the data seen."""

    mean: Vector
    sqrt_cov: Matrix
    data: Data


class Point(NamedTuple):
    """A mean, the gradient of U there, and its length in posterior standard deviations."""

    mean: Vector
    grad: Vector
    distance: Scalar


class Recursive(GaussianPosterior):
    """The Gaussian at the mode, moved by one to K damped steps after each observation, warm-started.

    In its `Info`, `step_capped` says that a step was halved, and `refreshed` that the curvature was recomputed.
    """

    potential: AutodiffPotential
    step_size: Scalar
    num_steps: int
    tolerance: float
    num_matrices: ClassVar[int] = 4

    def init(self, key: Key[Array, ""]) -> RecursiveState:
        """The prior."""
        sqrt_cov = linalg.inverse_root(self.potential.prior.matrix)
        return RecursiveState(self.potential.start(key), sqrt_cov, self.potential.init())

    def update(
        self, key: Key[Array, ""], state: RecursiveState, observation: Observation
    ) -> tuple[RecursiveState, Info]:
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
        descent = newton.descend(look(state.mean), trial, size=rho, max_steps=max_steps, tolerance=self.tolerance)
        mean = descent.point.mean
        is_due = _is_due(batch_max(self.potential.count(data)))
        B = jax.lax.cond(is_due, lambda: self._recomputed(data, mean), lambda: B)
        return guarded(
            observation,
            state,
            RecursiveState(mean, B, data),
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
