"""Langevin Monte Carlo: a chain over the parameters whose law follows the posterior from round to round.

    theta <- theta - h M grad U(theta) + sqrt(2 h) M^1/2 xi,   xi ~ N(0, I)

M is the identity, or a preconditioner that is held fixed within a round. With M = I and a Gaussian posterior of
precision P the chain settles at N(mean, (P - h P^2 / 2)^-1): along a direction of curvature p the variance is
1 / (1 - h p / 2) times too large, the chain forgets by 1 - h p in a step, and h p >= 2 diverges.

Reference: Xu, Zheng, Mazumdar, Azizzadenesheli and Anandkumar, "Langevin Monte Carlo for contextual bandits",
ICML 2022.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key
from typing_extensions import Unpack, override

from vits import linalg, models, policies, potentials, steps, validate
from vits.algorithms.exact import Exact, ExactState
from vits.inference.base import Posterior
from vits.inference.guards import RESOLUTION, epsilon, exploded, guarded
from vits.models import Glm, RewardModel
from vits.potentials import Centre, Data, DataOptions, Potential, Quadratic
from vits.potentials.autodiff import MARGIN
from vits.potentials.leading import power_iteration
from vits.types import Info, Matrix, Observation, Reason, Scalar, Vector, all_finite, first_reason, new_info

PATIENCE = 1e5
"""The accumulated noise of this many steps must reach the size of the parameters; shorter steps count as capped."""


class LangevinState(NamedTuple):
    """The position of the chain, which is the posterior draw; the preconditioner, if there is one; the data seen."""

    theta: Vector
    design: ExactState | None
    data: Data


class Chain(NamedTuple):
    """The position of a chain within a round, and the lengths of its first and its latest drift."""

    theta: Vector
    first: Scalar
    last: Scalar


class Move(NamedTuple):
    """The end of the steps of a round, whether they failed, and their diagnostics."""

    theta: Vector
    failures: dict[Reason, Bool[Array, ""]]
    diagnostics: dict[str, Any]


class Flat(NamedTuple):
    """M = I, and an upper estimate of the largest curvature of U."""

    curvature: Scalar

    def downhill(self, grad: Vector) -> Vector:
        """M grad."""
        return grad

    def spread(self, xi: Float[Array, "steps params"]) -> Float[Array, "steps params"]:
        """M^1/2 xi, row by row."""
        return xi


class Whitened(NamedTuple):
    """M = S S', and an upper bound on the largest curvature of U in its units, lmax(S' hess U S)."""

    sqrt: Matrix
    curvature: Scalar

    def downhill(self, grad: Vector) -> Vector:
        """M grad."""
        return self.sqrt @ (grad @ self.sqrt)

    def spread(self, xi: Float[Array, "steps params"]) -> Float[Array, "steps params"]:
        """M^1/2 xi, row by row."""
        return xi @ self.sqrt.T


def design_matrix(model: RewardModel, potential: Potential) -> Exact:
    """The preconditioner M = (P0 + eta L sum phi phi')^-1, where L bounds the loss' second derivative in phi' theta.

    M^-1 bounds the Hessian everywhere, so every h < 1 is stable, and where the second derivative of the loss is L the
    chain converges at the same rate in all directions. (The Hessian at theta is no such bound: where a likelihood is
    saturated, it sends the chain far away.) M is the posterior covariance of a linear model with inverse temperature
    eta L, whose square root is updated in O(d^2) operations per round.
    """
    largest = model.max_d2loss if isinstance(model, Glm) else None
    if largest is None:
        raise ValueError(f"preconditioner 'design' needs a linear or logistic model, but got {type(model).__name__}")
    return Exact(Quadratic(potential.inverse_temperature * largest, potential.prior))


CurvatureRule = Callable[[Potential, Data, Vector], Scalar]


def bounded(potential: Potential, data: Data, theta: Vector) -> Scalar:
    """The potential's own bound on its curvature."""
    return potential.largest_curvature(data, theta)


def iterated(potential: Potential, data: Data, theta: Vector) -> Scalar:
    """`MARGIN` times the largest |eigenvalue| of the Hessian at theta by power iteration, for potentials of networks.

    A product with the Hessian costs about two gradients, and no matrix is formed.
    """

    def product(direction: Vector) -> Vector:
        return jax.jvp(lambda theta: potential.grad(data, theta), (theta,), (direction,))[1]

    return MARGIN * potential.inflation(data) * power_iteration(product, theta)


class Langevin(Posterior):
    """One chain that takes K steps after each observation, from its position in the round before."""

    is_chain: ClassVar[bool] = True

    potential: Potential
    step_rule: steps.StepRule
    num_steps: int
    curvature: CurvatureRule
    design: Exact | None = None

    @override
    def footprint(self, num_params: int) -> float:
        design = 0.0 if self.design is None else self.design.footprint(num_params)
        return design + (5.0 * self.num_steps + 10.0) * num_params  # all noise of a round is drawn at once

    def init(self, key: Key[Array, ""]) -> LangevinState:
        """A draw from the prior."""
        design = None if self.design is None else self.design.init(key)
        return LangevinState(self.potential.drawn_start(key), design, self.potential.init())

    def update(self, key: Key[Array, ""], state: LangevinState, observation: Observation) -> tuple[LangevinState, Info]:
        """Add the observation, then take K steps."""
        design, lost = state.design, None
        if self.design is not None and design is not None:
            design, info = self.design.update(key, design, observation)
            lost = info.reason
        data = self.potential.observe(state.data, observation, Centre(state.theta))
        learnt = LangevinState(state.theta, design, data)
        theta, failures, diagnostics = self._moved(key, learnt)
        if lost is not None:  # without the observation, the preconditioner is not a bound
            failures = {reason: (lost == reason) | failures.get(reason, False) for reason in Reason if reason}
        new = learnt._replace(theta=theta)
        return guarded(observation, state, new, parameters=theta, failures=failures, **diagnostics)

    @override
    def advance(self, key: Key[Array, ""], state: LangevinState) -> tuple[LangevinState, Info]:
        theta, failures, diagnostics = self._moved(key, state)
        is_finite = all_finite(theta)
        reason = first_reason((Reason.PARAMETERS, ~is_finite), *failures.items())
        moved = state._replace(theta=jnp.where(reason > 0, state.theta, theta))
        return moved, new_info(is_finite=is_finite, reason=reason, **diagnostics)

    def sample(self, key: Key[Array, ""], state: LangevinState) -> Vector:
        """The position of the chain, which is itself random."""
        return state.theta

    def _moved(self, key: Key[Array, ""], state: LangevinState) -> Move:
        """K steps on the data of a state."""
        batch_key, noise_key = jax.random.split(key)
        batch_keys = jax.random.split(batch_key, self.num_steps)
        seen = self.potential.minibatch(batch_keys[0], state.data)
        metric = self._metric(seen, state)
        geometry = steps.LocalGeometry(self.potential, seen, state.theta, metric.curvature)
        plan = self.step_rule(geometry, self.num_steps)
        h = plan.size
        # All noise of the round in one call: many small calls would take longer than the steps.
        noise = metric.spread(linalg.normal(noise_key, (self.num_steps, *state.theta.shape), state.theta.dtype))

        def step(k: Array, chain: Chain) -> Chain:
            grad = self.potential.grad(self.potential.minibatch(batch_keys[k], state.data), chain.theta)
            drift = h * metric.downhill(grad)
            length = jnp.linalg.norm(drift)
            first = jnp.where(k == 0, length, chain.first)
            return Chain(chain.theta - drift + jnp.sqrt(2.0 * h) * noise[k], first, length)

        zero = jnp.zeros((), state.theta.dtype)
        theta, first, last = jax.lax.fori_loop(0, plan.num_steps, step, Chain(state.theta, zero, zero))
        spread = jnp.sqrt(2.0 * h) * jnp.linalg.norm(noise[0])
        size = jnp.max(jnp.abs(theta))
        failures = {
            Reason.DIVERGED: exploded(first, last, spread),
            # A chain does not move if it is so far out that its noise is smaller than the rounding error.
            Reason.UNRESOLVED: ~(epsilon(theta) * size <= RESOLUTION * spread),
        }
        capped = plan.capped | ~(size <= PATIENCE * spread)
        return Move(theta, failures, {"step": h, "step_capped": capped, "stiffness": h * metric.curvature})

    def _metric(self, data: Data, state: LangevinState) -> Flat | Whitened:
        if state.design is None:
            return Flat(self.curvature(self.potential, data, state.theta))
        return Whitened(state.design.sqrt_cov, jnp.ones((), state.theta.dtype))


@policies.preset
def lmc_ts(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    step_size: Scalar | float = 0.5,
    num_steps: int = 10,
    step_rule: str | steps.StepRule = "safe",
    preconditioner: str = "none",
    **data: Unpack[DataOptions],
) -> policies.Thompson:
    """LMC-TS: Thompson sampling with a Langevin chain, warm-started from round to round.

        theta <- theta - h grad U(theta) + sqrt(2 h) xi,   xi ~ N(0, I)

    Args:
        step_size: what `step_rule` makes a step from; for "safe", the fraction of the largest step that keeps the
            variance within a factor of two.
        num_steps: steps per round; the paper uses 10 and 50.
        step_rule: "safe", "constant", "per_observation" (h / (eta t); the authors' h / t with noise sqrt(2 h / (eta t))
            on U / eta), or a rule from `vits.steps`.
        preconditioner: "none"; or "design", which multiplies steps by (P0 + eta L sum phi phi')^-1 with L the largest
            second derivative of the loss, and needs only a few steps at any condition number. It is for linear and
            logistic models with safe or constant steps, where a step of 1 is as long as Newton's.

    Other arguments: see `vits.algorithms`.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.lmc_ts(vits.models.linear(3), inverse_temperature=10.0, num_steps=50)

    Reference:
        Xu, Zheng, Mazumdar, Azizzadenesheli and Anandkumar, "Langevin Monte Carlo for contextual bandits", ICML 2022.
    """
    is_flat = preconditioner == "none"
    potential = potentials.potential(model, inverse_temperature, prior_precision, matrix_free=is_flat, **data)
    rule = steps.resolve(step_rule, step_size)
    if is_flat:
        return policies.Thompson(model, chain(model, potential, rule, num_steps))
    if preconditioner != "design":
        raise validate.unknown("preconditioner", preconditioner, ("none", "design"))
    if any(data.get(option) is not None for option in ("window", "minibatch", "fold_after")):
        raise ValueError("preconditioner must be 'none' with a window, a minibatch or fold_after, but is 'design'")
    if isinstance(rule, (steps.PerObservation, steps.Theory)):
        raise ValueError(f"step_rule must be safe or constant with a preconditioner, but is {type(rule).__name__}")
    design = design_matrix(model, potential)
    return policies.Thompson(model, chain(model, potential, rule, num_steps, design))


def chain(
    model: models.RewardModel,
    potential: potentials.Potential,
    rule: steps.StepRule,
    num_steps: int,
    design: Exact | None = None,
) -> Langevin:
    """A chain with the cheapest estimate of curvature that the model allows."""
    # The Hessian of a network would take longer than all steps of a round.
    curvature = bounded if isinstance(model, models.Glm) else iterated
    return Langevin(potential, rule, num_steps, curvature, design)
