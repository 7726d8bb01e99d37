"""VITS: Gaussian variational inference by gradient steps on the mean and a square root of the covariance.

The family is N(mu, B B'). One step at theta = mu + B eps, with A the curvature of U_t there, is

    mu <- mu - h grad U(theta)
    B  <- (I - h A) B + h B^-T

The variants differ in two rules of `vits.inference.variational`: how A is computed, and how B^-T is updated. The
paper's C = B^-1 is stored as D = C', because D D' is the precision just as B B' is the covariance.

Reference: Clavier, Huix and Durmus, "VITS: Variational inference Thompson sampling for contextual bandits",
ICML 2024, algorithms 1 to 3.
"""

import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key
from typing_extensions import Unpack

from vits import linalg, models, policies, potentials, steps, validate
from vits.inference.base import GaussianPosterior
from vits.inference.covariance import rows_of, sampled
from vits.inference.guards import epsilon, exploded, guarded, is_drowned, is_unresolved
from vits.inference.square_root import SquareRoot, by_hessian, check_pattern
from vits.inference.variational import (
    CurvatureRule,
    Draws,
    InverseRule,
    Points,
    antithetic,
    exact_curvature,
    exact_inverse,
    first_order_inverse,
    frozen_inverse,
    plain,
)
from vits.potentials import Centre, Data, DataOptions, Potential
from vits.types import Info, Matrix, Observation, Reason, Scalar, Vector

INVERSE_TOLERANCE = 0.1
"""D is recomputed at the end of a round if D' B is further than this from the identity (Frobenius norm)."""

PATIENCE = 1e6
"""Steps must be long enough to learn the widest direction in this many rounds, or in the `patience` of the potential;
shorter ones are reported as capped."""

DRAWS = {"antithetic": antithetic, "single": plain}
INVERSES = {"first_order": first_order_inverse, "frozen": frozen_inverse}
STARTS = {"mean": False, "draw": True}


class VITSState(NamedTuple):
    """The posterior N(mean, B B') with B = sqrt_cov, D = sqrt_precision close to B^-T, and the data seen."""

    mean: Vector
    sqrt_cov: Matrix
    sqrt_precision: Matrix
    data: Data


class VITS(GaussianPosterior):
    """The variational posterior, updated by K steps after each observation from the posterior of the round before.

    `inflation` is the factor by which the curvature rule may overestimate the spectrum. The safe step for B is shorter
    by this factor; the mean, whose gradient is not inflated, has the full step.
    """

    potential: Potential
    step_rule: steps.StepRule
    draws: Draws
    curvature: CurvatureRule
    inverse: InverseRule
    num_steps: int
    inflation: float = 1.0
    random_start: bool = False
    num_matrices: ClassVar[int] = 6

    def init(self, key: Key[Array, ""]) -> VITSState:
        """The prior, B = P0^-1/2. The mean is the model's own start if it cannot learn from the prior mean.

        With `random_start` the mean is a draw from the prior, as in the paper's algorithm 1.
        """
        sqrt_precision = linalg.cholesky(self.potential.prior.matrix)
        mean = self.potential.drawn_start(key) if self.random_start else self.potential.start(key)
        return VITSState(mean, linalg.sqrt_of_inverse(sqrt_precision), sqrt_precision, self.potential.init())

    def update(self, key: Key[Array, ""], state: VITSState, observation: Observation) -> tuple[VITSState, Info]:
        """Add the observation, then take K steps."""
        keys, batch_keys = jnp.split(jax.random.split(key, 2 * self.num_steps), 2)
        data = self.potential.observe(state.data, observation, Centre(state.mean, state.sqrt_cov))
        plan = self._plan(state, self.potential.minibatch(batch_keys[0], data))
        # All draws of the round in one call: many small calls would take longer than the steps.
        eps = jax.vmap(lambda key: self.draws(key, state.mean.shape[0]))(keys)

        def step(k: Array | int, state: VITSState) -> VITSState:
            mu, B, D, data = state
            seen = self.potential.minibatch(batch_keys[k], data)
            grad, A = self.curvature.slope(self.potential, seen, self._points(eps[k], mu, B), D)
            mu = mu - plan.h * grad
            B = B - plan.h_B * A.times(B) + plan.h_B * D  # B <- (I - h A) B + h C'
            return VITSState(mu, B, self.inverse.step(B, D, A, plan.h_B), data)

        start = state._replace(data=data)
        first, refreshed = self._watched(start, step(0, start))
        last = jax.lax.fori_loop(1, plan.num_steps, step, first)
        return self._checked(observation, state, (start, first, last), plan, refreshed)

    def _plan(self, state: VITSState, seen: Data) -> steps.RoundPlan:
        """The steps of a round whose first step uses these data."""
        largest = self.potential.largest_curvature(seen, state.mean, state.sqrt_cov)
        geometry = steps.LocalGeometry(self.potential, seen, state.mean, largest)
        limits = {"inflation": self.inflation, "reach": self.inverse.reach}
        return steps.round_plan(self.step_rule, geometry, self.num_steps, **limits)

    def _points(self, eps: Float[Array, "directions params"], mean: Vector, sqrt_cov: Matrix) -> Points:
        """theta = mu + B eps, and the mirror images if the draws are mirrored."""
        offsets = (sqrt_cov @ eps.T).T  # in eps @ B.T, XLA would first copy B
        if self.draws.mirrored:
            offsets = jnp.concatenate([offsets, -offsets])
        return Points(eps, self.draws.mirrored, mean[None] + offsets)

    def _watched(self, old: VITSState, new: VITSState) -> tuple[VITSState, Bool[Array, ""]]:
        """The state after the first step, with D recomputed if it may be far from B^-T; and whether it was.

        Up to first order in the old error, D' B - I changes by dD' dB. If the norms of the two bound this by
        `INVERSE_TOLERANCE`, D is not checked; otherwise it is, because later steps depend on it.
        """
        if not self.inverse.drifts:
            return new, jnp.asarray(False)
        dB, dD = new.sqrt_cov - old.sqrt_cov, new.sqrt_precision - old.sqrt_precision
        doubtful = ~(jnp.linalg.norm(dD) * jnp.linalg.norm(dB) <= INVERSE_TOLERANCE)
        inverse = linalg.refreshed_inverse_if(doubtful, new.sqrt_cov, new.sqrt_precision, tolerance=INVERSE_TOLERANCE)
        return new._replace(sqrt_precision=inverse.inverse_transpose), inverse.refreshed

    def _checked(
        self,
        observation: Observation,
        old: VITSState,
        path: tuple[VITSState, VITSState, VITSState],
        plan: steps.RoundPlan,
        refreshed: Bool[Array, ""],
    ) -> tuple[VITSState, Info]:
        """The state at the end of the round if it is healthy, else the old one; and the `Info` of the update.

        `path` holds the state before the first step, after it, and after the last.
        """
        start, first, last = path
        later = _distance(first, last) / jnp.maximum(plan.real_num_steps - 1.0, 1.0)
        diverged = exploded(_distance(start, first), later, jnp.linalg.norm(old.sqrt_cov))
        D, error = self.inverse.finish(last.sqrt_cov, last.sqrt_precision)
        inverse = linalg.refreshed_inverse(
            last.sqrt_cov, D, error=error, tolerance=INVERSE_TOLERANCE, worthwhile=~diverged
        )
        new = last._replace(sqrt_precision=inverse.inverse_transpose)
        stuck = _is_stuck(plan.real_num_steps * plan.h, new.sqrt_cov, min(PATIENCE, self.potential.patience))
        return guarded(
            observation,
            old,
            new,
            parameters=new[:3],
            failures={
                Reason.DIVERGED: diverged,
                # Without convexity the curvature changes with the mean, and steps can leave a steep region.
                Reason.DROWNED: self.potential.is_convex & is_drowned(old.sqrt_cov, plan.curvature),
                Reason.UNRESOLVED: is_unresolved(new.mean, new.sqrt_cov),
                Reason.INVERSE: ~(inverse.error <= INVERSE_TOLERANCE),
            },
            step=plan.h,
            step_capped=plan.capped | self._is_blurred(new) | stuck,
            stiffness=plan.stiffness,
            inverse_error=inverse.error,
            refreshed=refreshed | inverse.refreshed,
        )

    def _is_blurred(self, state: VITSState) -> Bool[Array, ""]:
        """Whether rounding errors limit the effect of steps with this curvature rule on B.

        In a step, the rounding error of the widest direction of B enters the narrowest. Parameters are measured in
        their deviations, so the units of the features do not matter.
        """
        if math.isinf(self.curvature.max_blur):
            return jnp.asarray(False)
        deviations = jnp.linalg.norm(state.sqrt_cov, axis=1, keepdims=True)
        columns_of_B = jnp.linalg.norm(state.sqrt_cov / deviations, axis=0)
        columns_of_D = jnp.linalg.norm(state.sqrt_precision * deviations, axis=0)
        widest = jnp.max(columns_of_D) * jnp.max(columns_of_B)  # bounds every entry of |D|' |B|
        return ~(epsilon(state.mean) * jnp.square(widest) <= self.curvature.max_blur)


def _distance(old: VITSState, new: VITSState) -> Scalar:
    return jnp.linalg.norm(new.mean - old.mean) + jnp.linalg.norm(new.sqrt_cov - old.sqrt_cov)


def _is_stuck(way: Scalar, sqrt_cov: Matrix, patience: float) -> Bool[Array, ""]:
    """Whether the steps of a round, `way` = h K together, are too short to change the widest direction of B.

    A round makes up for the fraction h K / deviation^2 of the error in that direction. One feature of size 1e5 among
    others of size 1 is enough to make all steps that short.
    """
    return ~(patience * way >= jnp.max(jnp.sum(jnp.square(sqrt_cov), axis=1)))


@policies.preset
def vits_i(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    step_size: Scalar | float = 0.9,
    num_steps: int = 10,
    step_rule: str | steps.StepRule = "safe",
    draws: str = "antithetic",
    start: str = "mean",
    curvature: str | potentials.CurvatureForm | None = None,
    **data: Unpack[DataOptions],
) -> policies.Thompson:
    """VITS-I: Thompson sampling from a Gaussian variational posterior, with exact inverses.

        mu <- mu - h grad U(theta);   B <- (I - h hess U(theta)) B + h B^-T;   theta = mu + B eps

    Args:
        num_steps: steps per round; a cap under `steps.theory`.
        draws: "antithetic" (a mirrored pair) or "single" (the paper's).
        start: the first mean: the prior's ("mean"), or a draw from the prior ("draw", the paper's).

    Other arguments: see `vits.algorithms`.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.vits_i(vits.models.linear(3), inverse_temperature=10.0)

    Reference:
        Clavier, Huix and Durmus, ICML 2024, algorithm 2.
    """
    potential = potentials.potential(model, inverse_temperature, prior_precision, curvature, follows=True, **data)
    rule, scheme = steps.resolve(step_rule, step_size), validate.choice("draws", draws, DRAWS)()
    drawn = validate.choice("start", start, STARTS)
    posterior = VITS(potential, rule, scheme, exact_curvature, exact_inverse, num_steps, random_start=drawn)
    return policies.Thompson(model, posterior)


@policies.preset
def vits_ii(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    step_size: Scalar | float = 0.9,
    num_steps: int = 10,
    step_rule: str | steps.StepRule = "safe",
    draws: str = "antithetic",
    start: str = "mean",
    inverse: str = "first_order",
    curvature: str | potentials.CurvatureForm | None = None,
    covariance: str = "full",
    rank: int | None = None,
    **data: Unpack[DataOptions],
) -> policies.Thompson:
    """VITS-II: VITS-I with the inverse C = B^-1 followed to first order.

        B <- (I - h A) B + h C';   C <- C (I - h (C'C - A));   A = hess U(theta)

    Args:
        inverse: "first_order" (the paper's) or "frozen": C is constant within a round and repaired at its end, with one
            product per step instead of three. This is accurate while the steps of B in a round add up to at most
            1 / lmax; longer steps of B, but not of mu, are shortened, which `info.step_capped` reports.
        covariance: "full"; "low_rank", theta = mu + s eps + V' xi with deviations s and `rank` columns V; or
            "diagonal". The steps are those of B = [diag(s), V'] with an exact inverse (`vits.inference.square_root`).
            For networks no matrix of the parameters is stored, and each step uses 64 observations by default.
        rank: columns of a low-rank covariance, 20 by default.

    Other arguments: see `vits_i` and `vits.algorithms`.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.vits_ii(vits.models.linear(3), num_steps=2)

    Reference:
        Clavier, Huix and Durmus, ICML 2024, algorithm 3.
    """
    rows = rows_of(covariance, rank, model)
    if rows is not None:
        data = sampled(model, data)
    forms = {"follows": True, "by_layers": rows is not None}
    potential = potentials.potential(model, inverse_temperature, prior_precision, curvature, **forms, **data)
    rule, scheme = steps.resolve(step_rule, step_size), validate.choice("draws", draws, DRAWS)()
    inverse_rule = validate.choice("inverse", inverse, INVERSES)
    drawn = validate.choice("start", start, STARTS)
    if rows is not None:
        check_pattern(covariance, inverse, potential)
        pattern = SquareRoot(potential, rule, scheme, by_hessian, num_steps, rows, random_start=drawn)
        return policies.Thompson(model, pattern)
    posterior = VITS(potential, rule, scheme, exact_curvature, inverse_rule, num_steps, random_start=drawn)
    return policies.Thompson(model, posterior)
