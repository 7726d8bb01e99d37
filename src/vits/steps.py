"""Step-size rules: the size and the number of steps of a posterior in one round.

A rule is a function of the potential after the round's observation. The recursion for B needs
h * lmax(hess U) < 1 to reach the right covariance; `safe`, the default, guarantees it.
"""

import abc
import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from vits import linalg, validate
from vits.potentials import Data, Potential
from vits.types import Scalar, Vector


class LocalGeometry(NamedTuple):
    """The place where a round takes its steps: the potential with its data, the mean at the start, and an upper
    estimate of the largest curvature along the steps.
    """

    potential: Potential
    data: Data
    mean: Vector
    curvature: Scalar


class Plan(NamedTuple):
    """The steps of one round: their size, their number, and whether a limit cut either of them."""

    size: Scalar
    num_steps: Int[Array, ""] | int
    capped: Bool[Array, ""] | bool = False


class StepRule(eqx.Module):
    """Turns the state of the potential into a plan for the round."""

    @abc.abstractmethod
    def __call__(self, geometry: LocalGeometry, num_steps: int) -> Plan:
        """The plan for a round of at most `num_steps` steps."""


class Constant(StepRule):
    """h."""

    step_size: Scalar

    def __call__(self, geometry: LocalGeometry, num_steps: int) -> Plan:
        """The same h in every round."""
        return Plan(self.step_size, num_steps)


class PerObservation(StepRule):
    """h / (eta t), the schedule of the paper's experiments."""

    step_size: Scalar

    def __call__(self, geometry: LocalGeometry, num_steps: int) -> Plan:
        """t is the number of observations, never the length of a buffer."""
        t = jnp.maximum(geometry.potential.count(geometry.data), 1).astype(geometry.mean.dtype)
        return Plan(self.step_size / (geometry.potential.inverse_temperature * t), num_steps)


class Safe(StepRule):
    """c / (an upper bound on the largest curvature), with 0 < c < 1."""

    step_size: Scalar

    def __call__(self, geometry: LocalGeometry, num_steps: int) -> Plan:
        """h lmax <= c in every round."""
        return Plan(self.step_size / geometry.curvature, num_steps)


class Theory(StepRule):
    """The values of the regret bound (appendix, "Hyperparameters choice and values"), for linear models.

        h_t = lmin(V) / (2 eta (lmin(V)^2 + 2 lmax(V)^2))
        K_t = 1 + 2 (1 + 2 kappa^2) log(2 R kappa d^2 T^2 log^2(3 T^3))

    K_t is very large for real condition numbers kappa, so `num_steps` caps it, and capped rounds are reported. With
    few rounds and little noise the logarithm is negative; then one step is taken.
    """

    horizon: Scalar
    noise: Scalar

    def __call__(self, geometry: LocalGeometry, num_steps: int) -> Plan:
        """From the exact eigenvalues of the Hessian eta V, in which eta cancels."""
        eigenvalues = linalg.eigenvalues(geometry.potential.hessian(geometry.data, geometry.mean))
        smallest, largest = eigenvalues[0], eigenvalues[-1]
        kappa, dim = largest / smallest, geometry.mean.shape[0]
        log_3t3 = math.log(3.0) + 3.0 * jnp.log(self.horizon)
        log_term = jnp.log(2.0 * self.noise * kappa) + 2.0 * jnp.log(dim * self.horizon * log_3t3)
        wanted = 1.0 + 2.0 * (1.0 + 2.0 * kappa**2) * log_term
        return Plan(
            size=smallest / (2.0 * (smallest**2 + 2.0 * largest**2)),
            num_steps=jnp.ceil(jnp.clip(wanted, 1.0, num_steps)).astype(int),
            capped=wanted > num_steps,
        )


class AtMost(StepRule):
    """A rule whose step never exceeds another rule's step; rounds in which it would are reported as capped."""

    rule: StepRule
    limit: StepRule

    def __call__(self, geometry: LocalGeometry, num_steps: int) -> Plan:
        """The smaller of the two steps."""
        plan = self.rule(geometry, num_steps)
        limit = self.limit(geometry, num_steps)
        return Plan(jnp.minimum(plan.size, limit.size), plan.num_steps, plan.capped | (plan.size > limit.size))


def constant(step_size: Scalar | float) -> Constant:
    """The same step h in every round."""
    validate.positive("step_size", step_size)
    return Constant(jnp.asarray(step_size, float))


def per_observation(step_size: Scalar | float) -> PerObservation:
    """The paper's h / (eta t). It can diverge in the first rounds: see `at_most`."""
    validate.positive("step_size", step_size)
    return PerObservation(jnp.asarray(step_size, float))


def safe(step_size: Scalar | float = 0.9) -> Safe:
    """The fraction `step_size` of the largest step that is certain to be stable."""
    validate.positive("step_size", step_size, below=1.0)
    return Safe(jnp.asarray(step_size, float))


def theory(*, horizon: int, noise: Scalar | float = 1.0) -> Theory:
    """The step and the number of steps of the regret bound; `num_steps` caps the number."""
    validate.count("horizon", horizon)
    validate.positive("noise", noise)
    return Theory(jnp.asarray(horizon, float), jnp.asarray(noise, float))


def theory_inverse_temperature(*, dim: int, horizon: int, prior_precision: float = 1.0, noise: float = 1.0) -> float:
    """The eta of the regret bound, 4 lambda^2 / (81 R^2 d log(3 T^3)).

    Example:
        >>> round(theory_inverse_temperature(dim=20, horizon=1000), 6)
        0.000113
    """
    validate.count("dim", dim)
    validate.count("horizon", horizon)
    validate.positive("prior_precision", prior_precision)
    validate.positive("noise", noise)
    return 4.0 * prior_precision**2 / (81.0 * noise**2 * dim * (math.log(3.0) + 3.0 * math.log(horizon)))


def at_most(rule: StepRule, limit: StepRule) -> AtMost:
    """`rule`, but never a larger step than `limit` gives."""
    return AtMost(rule, limit)


RULES: dict[str, Callable[[Scalar | float], StepRule]] = {
    "safe": safe,
    "constant": constant,
    "per_observation": per_observation,
}


def resolve(step_rule: str | StepRule, step_size: Scalar | float) -> StepRule:
    """The rule itself, or the named rule with this step size."""
    if isinstance(step_rule, StepRule):
        return step_rule
    return validate.choice("step_rule", step_rule, RULES)(step_size)


class RoundPlan(NamedTuple):
    """The steps of one round: h for the mean, h_B for B, their number, and the largest curvature along them."""

    h: Scalar
    h_B: Scalar
    num_steps: Int[Array, ""] | int
    curvature: Scalar
    stiffness: Scalar
    capped: Bool[Array, ""]

    @property
    def real_num_steps(self) -> Scalar:
        """The number of steps as a real number."""
        return jnp.asarray(self.num_steps, self.h.dtype)


def round_plan(
    rule: StepRule,
    geometry: LocalGeometry,
    num_steps: int,
    *,
    inflation: float = 1.0,
    reach: float = math.inf,
) -> RoundPlan:
    """The steps of a round of a Gaussian variational posterior.

    Args:
        rule: the step rule.
        geometry: where the steps are taken.
        num_steps: the most steps.
        inflation: the factor by which the curvature that moves B may be too large; h_B is shorter by this factor.
        reach: the limit for B in a round, as the sum of h_B times the largest curvature over its steps.
    """
    plan = rule(geometry, num_steps)
    inflated = inflation * geometry.curvature
    h, h_B = plan.size, rule(geometry._replace(curvature=inflated), num_steps).size
    longest = reach / (jnp.asarray(plan.num_steps, h.dtype) * inflated)
    capped, h_B = plan.capped | (h_B > longest), jnp.minimum(h_B, longest)
    stiffness = jnp.maximum(h * geometry.curvature, h_B * inflated)
    return RoundPlan(h, h_B, plan.num_steps, geometry.curvature, stiffness, capped)
