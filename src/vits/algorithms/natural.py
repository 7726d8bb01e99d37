"""VITS with natural gradients: the same Gaussian family and objective, with steps independent of conditioning.

The objective is F(mu, Sigma) = E U_t(theta) - 1/2 log det Sigma, theta ~ N(mu, Sigma). In the geometry of the family
its gradient step moves the natural parameters a fraction rho towards those of the Gaussian that fits U_t around q:

    P  <- (1 - rho) P + rho E[hess U(theta)]
    mu <- mu - rho P_new^-1 E[grad U(theta)]

For a quadratic U_t one step with rho = 1 is exact. If a full step would overshoot, rho is halved until F decreases.

Reference: Khan and Rue, "The Bayesian learning rule", JMLR 2023, section 1.3.
"""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key
from typing_extensions import Unpack

from vits import linalg, models, policies, potentials, validate
from vits.inference import newton
from vits.inference.base import GaussianPosterior
from vits.inference.covariance import check_structure, rows_of, sampled
from vits.inference.guards import guarded, is_unresolved
from vits.inference.structured import Structured
from vits.potentials import Centre, Data, DataOptions, Expectations, Potential
from vits.types import Info, Matrix, Observation, Reason, Scalar, Vector

TOLERANCE = 0.05
"""Default distance from the optimum, in posterior standard deviations, at which the steps of a round stop."""


class Gaussian(NamedTuple):
    """N(mean, B B') with B = sqrt_cov, and precision P = (B B')^-1."""

    mean: Vector
    sqrt_cov: Matrix
    precision: Matrix

    @property
    def cov(self) -> Matrix:
        """B B'."""
        return self.sqrt_cov @ self.sqrt_cov.T


class NaturalState(NamedTuple):
    """The posterior N(mean, B B') with B = sqrt_cov and precision P = (B B')^-1, and the data seen.

    `expected` are the expectations under it, stored if the next round only needs to add an observation to them.
    """

    mean: Vector
    sqrt_cov: Matrix
    precision: Matrix
    data: Data
    expected: Expectations | None = None


class Point(NamedTuple):
    """A Gaussian, E[grad U] and E[hess U] under it, and whether anything had to be raised on the way there.

    `distance` is the length of the gradient of F in the geometry of the family: the distance of the mean from the
    optimum in standard deviations, and the relative distance of the standard deviations.
    """

    gaussian: Gaussian
    expected: Expectations
    was_raised: Bool[Array, ""]
    distance: Scalar


class Natural(GaussianPosterior):
    """The variational posterior, updated by at most K warm-started natural-gradient steps after each observation.

    The first step is always taken, the others until the optimum is within `tolerance` posterior standard deviations. In
    its `Info`, `step_capped` says that a step was damped, that the expected Hessian was not positive definite and had
    to be raised, or that K steps were too few for an observation that no later round uses. With a minibatch, a round
    takes one step, shortened because of the noise of the sample.
    """

    potential: Potential
    step_size: Scalar
    num_steps: int
    tolerance: Scalar | float = 0.0
    num_matrices: ClassVar[int] = 8

    def init(self, key: Key[Array, ""]) -> NaturalState:
        """The prior."""
        precision = self.potential.prior.matrix
        data = self.potential.init()
        sqrt_cov, mean = linalg.inverse_root(precision), self.potential.start(key)
        expected = Expectations(self.potential.prior.grad(mean), precision) if self.potential.grows_by_rows else None
        return NaturalState(mean, sqrt_cov, precision, data, expected)

    def update(self, key: Key[Array, ""], state: NaturalState, observation: Observation) -> tuple[NaturalState, Info]:
        """Add the observation, then take the steps."""
        centre = Centre(state.mean, state.sqrt_cov)
        data = self.potential.observe(state.data, observation, centre)
        batch_key, look_key = jax.random.split(key)
        batch = self.potential.minibatch(batch_key, data)
        size = 1.0 / self.potential.inflation(batch)
        rho, num_steps = self.step_size * size, jnp.where(size < 1.0, 1, self.num_steps)

        def look(q: Gaussian, was_raised: Bool[Array, ""]) -> Point:
            # One key for the whole round: noise that two points share does not affect their comparison.
            grad, hessian = self.potential.expectations(look_key, batch, q.mean, q.sqrt_cov)
            if not self.potential.is_convex:
                curvature = newton.raised(hessian, floor, share=newton.HALF)
                hessian, was_raised = curvature.matrix, was_raised | curvature.was_raised
            return _point(q, Expectations(grad, hessian), was_raised)

        def trial(start: Point, rho: Scalar) -> newton.Line:
            """A step of size rho, and the slopes of F along the chord between its two ends."""
            (mean, _, precision), (grad, hessian) = start.gaussian, start.expected
            P = newton.raised((1.0 - rho) * precision + rho * hessian, floor)
            B = linalg.sqrt_of_inverse(P.factor)
            end = look(Gaussian(mean - rho * B @ (B.T @ grad), B, P.matrix), start.was_raised | P.was_raised)
            d_mean, d_cov = end.gaussian.mean - mean, end.gaussian.cov - start.gaussian.cov

            def slope(at: Point) -> Scalar:
                # dF = E[grad U]' dmu + 1/2 tr((E[hess U] - P) dSigma)
                return at.expected.grad @ d_mean + 0.5 * jnp.sum((at.expected.hessian - at.gaussian.precision) * d_cov)

            return newton.Line(end, slope(start), slope(end))

        floor = self.potential.prior.matrix
        q, unraised = Gaussian(state.mean, state.sqrt_cov, state.precision), jnp.asarray(False)
        known = self._known(state, observation, centre)
        first = look(q, unraised) if known is None else _point(q, known, unraised)
        descent = newton.descend(first, trial, size=rho, max_steps=num_steps, tolerance=self.tolerance)
        point: Point = descent.point
        q = point.gaussian
        return guarded(
            observation,
            state,
            NaturalState(q.mean, q.sqrt_cov, q.precision, data, None if known is None else point.expected),
            parameters=point,
            failures={Reason.UNRESOLVED: is_unresolved(q.mean, q.sqrt_cov)},
            step=descent.smallest_step,
            step_capped=(descent.smallest_step < rho) | point.was_raised | self._is_late(point),
        )

    def _known(self, state: NaturalState, observation: Observation, centre: Centre) -> Expectations | None:
        """Expectations under the old posterior with the new observation: the old ones plus the observation's part."""
        if state.expected is None:
            return None
        (grad, hessian), phi = state.expected, observation.features
        slope, weight = self.potential.news(observation, centre)
        return Expectations(grad + slope * phi, hessian + jnp.outer(weight * phi, phi))

    def _is_late(self, point: Point) -> Bool[Array, ""]:
        # Where expectations are estimated from draws, the distance is mostly their noise.
        is_seen_once = self.potential.is_convex and not self.potential.sees_again
        return point.distance > self.tolerance if is_seen_once else jnp.asarray(False)


def _point(q: Gaussian, expected: Expectations, was_raised: Bool[Array, ""]) -> Point:
    grad, hessian = expected
    gap, Sigma = hessian - q.precision, q.cov
    relative = gap @ Sigma
    distance = jnp.sqrt(grad @ (Sigma @ grad) + 0.5 * jnp.sum(relative * relative.T))
    return Point(q, expected, was_raised, distance)


@policies.preset
def vits_ng(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    step_size: Scalar | float | None = None,
    num_steps: int | None = None,
    tolerance: Scalar | float | None = None,
    curvature: str | potentials.CurvatureForm | None = None,
    covariance: str = "full",
    rank: int | None = None,
    **data: Unpack[DataOptions],
) -> policies.Thompson:
    """VITS with natural gradients: the same posterior in one or two steps, whatever the condition number.

        P <- (1 - rho) P + rho E[hess U(theta)];   mu <- mu - rho P_new^-1 E[grad U(theta)];   theta ~ N(mu, P^-1)

    Args:
        step_size: rho, at most 1; halved in rounds where it would overshoot, which `info.step_capped` reports. By
            default 1 for linear, logistic and Poisson models, whose expectations are exact, and 0.1 for all others,
            where each step estimates them from a pair of draws.
        num_steps: the most steps per round. By default 2; and 10 if observations of a linear, logistic or Poisson model
            are folded, because folded ones are not used again, or if the covariance is not full.
        tolerance: distance from the optimum, in posterior standard deviations, at which steps after the first stop. By
            default 0.05; only with a full covariance.
        covariance: "full"; "low_rank", whose precision is a diagonal plus `rank` rows; or "diagonal". For networks, the
            last two store no matrix of the parameters, and each step uses a minibatch, of 64 by default.
        rank: rows of a low-rank precision, 20 by default.

    Other arguments: see `vits.algorithms`.

    Example:
        >>> import vits
        >>> policy = vits.make("vits_ng", vits.models.linear(3), inverse_temperature=100.0)
        >>> large = vits.make("vits_ng", vits.models.mlp(100, (500,)), covariance="low_rank", rank=10)

    Reference:
        Khan and Rue, "The Bayesian learning rule", JMLR 2023; objective of Clavier, Huix and Durmus, ICML 2024.
    """
    if step_size is None:
        step_size = 1.0 if isinstance(model, models.Glm) else 0.1
    validate.share("step_size", step_size)
    rows = rows_of(covariance, rank, model)
    if num_steps is None:
        is_seen_once = data.get("fold_after") is not None and isinstance(model, models.Glm)
        num_steps = 10 if is_seen_once or rows is not None else 2
    if rows is not None:
        if tolerance is not None:
            raise ValueError(f"tolerance must be left out where the covariance is {covariance}, but is {tolerance}")
        data = sampled(model, data)
    tolerance = TOLERANCE if tolerance is None else tolerance
    validate.not_negative("tolerance", tolerance)
    few = rows is not None
    potential = potentials.potential(model, inverse_temperature, prior_precision, curvature, by_layers=few, **data)
    rho, near = jnp.asarray(step_size, float), jnp.asarray(tolerance, float)
    if rows is None:
        return policies.Thompson(model, Natural(potential, rho, num_steps, near))
    check_structure(covariance, potential)
    return policies.Thompson(model, Structured(potential, rho, num_steps, rows))
