"""The steps of one round of a Gaussian variational posterior."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from vits import steps
from vits.types import Scalar


class RoundPlan(NamedTuple):
    """The steps of one round: h for the mean and h_B for B, their number, and the largest curvature they may meet."""

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
    rule: steps.StepRule,
    geometry: steps.LocalGeometry,
    num_steps: int,
    *,
    inflation: float = 1.0,
    reach: float = math.inf,
) -> RoundPlan:
    """The plan of a step rule.

    Args:
        rule: the step rule.
        geometry: where the steps are taken.
        num_steps: their number at most.
        inflation: how many times too large the curvature that moves B may be; h_B is that much shorter.
        reach: how far B may go in a round, as the sum of h_B times the largest curvature over its steps.
    """
    plan = rule(geometry, num_steps)
    inflated = inflation * geometry.curvature
    h, h_B = plan.size, rule(geometry._replace(curvature=inflated), num_steps).size
    longest = reach / (jnp.asarray(plan.num_steps, h.dtype) * inflated)
    capped, h_B = plan.capped | (h_B > longest), jnp.minimum(h_B, longest)
    stiffness = jnp.maximum(h * geometry.curvature, h_B * inflated)
    return RoundPlan(h, h_B, plan.num_steps, geometry.curvature, stiffness, capped)
