"""VITS: Gaussian variational inference by gradient steps on the mean and a square root of the covariance.

The family is N(mu, B B'). One step at theta = mu + B eps, with A the curvature of U_t there, is

    mu <- mu - h grad U(theta)
    B  <- (I - h A) B + h B^-T

Its variants differ in two functions: where A comes from (`curvature`) and how B^-T is followed (`inverse`).
The paper's C = B^-1 is kept as D = C', because D D' is the precision just as B B' is the covariance.

Reference: Clavier, Huix and Durmus, "VITS: Variational inference Thompson sampling for contextual bandits",
ICML 2024, algorithms 1 to 3.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from vits import linalg, models, policies, potentials, steps, validate
from vits.inference import draws as drawing
from vits.inference.base import GaussianPosterior
from vits.inference.draws import Draws
from vits.inference.guards import epsilon, exploded, guarded, is_drowned, is_unresolved
from vits.potentials import Belief, Data, Potential
from vits.steps import StepRule, Terrain
from vits.types import Info, Observation, Scalar

BLUR = 0.01
"""How large rounding errors in B may be, relative to its narrowest direction, where curvature is made of gradients."""

INVERSE_TOLERANCE = 0.1
"""How far D' B may be from the identity (Frobenius norm) at the end of a round before D is recomputed."""

PATIENCE = 1e6
"""Rounds after which steps must have reached the widest direction; shorter steps are reported as cut."""


class VITSState(NamedTuple):
    """The posterior N(mean, B B') with B = sqrt_cov, D = sqrt_precision close to B^-T, and the data seen."""

    mean: Float[Array, " params"]
    sqrt_cov: Float[Array, "params params"]
    sqrt_precision: Float[Array, "params params"]
    data: Data


class Draw(NamedTuple):
    """The points of one step: theta = mean + B eps. Mirrored: theta = mean -+ B eps too."""

    eps: Float[Array, "directions params"]
    mirrored: bool
    thetas: Float[Array, "points params"]


class Dense(NamedTuple):
    """A symmetric matrix that is worth forming."""

    matrix: Float[Array, "params params"]

    def times(self, sqrt_cov: Float[Array, "params params"]) -> Float[Array, "params params"]:
        """A B."""
        return self.matrix @ sqrt_cov

    def gap_times(self, sqrt_precision: Float[Array, "params params"]) -> Float[Array, "params params"]:
        """(D D' - A) D: zero when the precision D D' is the curvature."""
        return (sqrt_precision @ sqrt_precision.T - self.matrix) @ sqrt_precision


class Factored(NamedTuple):
    """A = left' right of low rank, never formed."""

    left: Float[Array, "rank params"]
    right: Float[Array, "rank params"]

    def times(self, sqrt_cov: Float[Array, "params params"]) -> Float[Array, "params params"]:
        """left' (right B)."""
        return self.left.T @ (self.right @ sqrt_cov)

    def gap_times(self, sqrt_precision: Float[Array, "params params"]) -> Float[Array, "params params"]:
        """D D' D - right' (left D)."""
        D = sqrt_precision
        return D @ D.T @ D - self.right.T @ (self.left @ D)


Curvature = Dense | Factored
"""The curvature A of a step, known by what it does to the two square roots."""


class Slope(NamedTuple):
    """What a step sees from its points: the mean of grad U, and the curvature."""

    grad: Float[Array, " params"]
    curvature: Curvature


CurvatureRule = Callable[[Potential, Data, Draw, Float[Array, "params params"]], Slope]


class InverseRule(NamedTuple):
    """How D follows B^-T: `step(new B, old D, A, h)` within a round, `finish(B, D)` once at its end.

    `reach` is how far B may go in a round, as the sum of h lmax over its steps, before D has lost it. A D that
    `drifts` can be lost in a single step; the first of a round, which meets the new observation, is the longest.
    """

    step: Callable[
        [Float[Array, "params params"], Float[Array, "params params"], Curvature, Scalar],
        Float[Array, "params params"],
    ]
    finish: Callable[[Float[Array, "params params"], Float[Array, "params params"]], Float[Array, "params params"]]
    reach: float = math.inf
    drifts: bool = False


def exact_curvature(
    potential: Potential, data: Data, draw: Draw, sqrt_precision: Float[Array, "params params"]
) -> Slope:
    """A = the mean of hess U over the points."""
    grads, hessian = potential.derivatives(data, draw.thetas)
    return Slope(jnp.mean(grads, axis=0), Dense(hessian))


def stein_factors(
    potential: Potential, data: Data, draw: Draw, sqrt_precision: Float[Array, "params params"]
) -> tuple[Float[Array, " params"], Factored]:
    """Stein's identity, E[hess U] = E[Sigma^-1 (theta - mu) grad U'] = E[D eps grad U'], averaged over the points."""
    grads = jax.vmap(potential.grad, (None, 0))(data, draw.thetas)
    directions = draw.eps.shape[0]
    odd = 0.5 * (grads[:directions] - grads[directions:]) if draw.mirrored else grads
    # Transposed twice, so that the product with it runs along last axes: along first ones it takes three times as long.
    return jnp.mean(grads, axis=0), Factored((sqrt_precision @ draw.eps.T).T, odd / directions)


def stein_plain(potential: Potential, data: Data, draw: Draw, sqrt_precision: Float[Array, "params params"]) -> Slope:
    """The paper's Hessian-free A, as it stands: of low rank and not symmetric."""
    return Slope(*stein_factors(potential, data, draw, sqrt_precision))


def stein(potential: Potential, data: Data, draw: Draw, sqrt_precision: Float[Array, "params params"]) -> Slope:
    """The symmetric part of the Hessian-free A, formed only where its rank is too high to save work."""
    grad, (left, right) = stein_factors(potential, data, draw, sqrt_precision)
    rank, dim = left.shape
    if 2 * rank < dim:
        return Slope(grad, Factored(jnp.concatenate([left, right]), 0.5 * jnp.concatenate([right, left])))
    product = left.T @ right
    return Slope(grad, Dense(0.5 * (product + product.T)))


def _solved(
    new_sqrt_cov: Float[Array, "params params"],
    sqrt_precision: Float[Array, "params params"],
    curvature: Curvature,
    step: Scalar,
) -> Float[Array, "params params"]:
    """D = B^-T, by solving."""
    return linalg.inverse(new_sqrt_cov).T


def _first_order(
    new_sqrt_cov: Float[Array, "params params"],
    sqrt_precision: Float[Array, "params params"],
    curvature: Curvature,
    step: Scalar,
) -> Float[Array, "params params"]:
    """C <- C (I - h (C'C - A)), transposed: D <- D - h (D D' - A)' D."""
    return sqrt_precision - step * curvature.gap_times(sqrt_precision)  # VITS-II, C step


def _unmoved(
    new_sqrt_cov: Float[Array, "params params"],
    sqrt_precision: Float[Array, "params params"],
    curvature: Curvature,
    step: Scalar,
) -> Float[Array, "params params"]:
    """The D that the round began with."""
    return sqrt_precision


def _as_it_is(
    sqrt_cov: Float[Array, "params params"], sqrt_precision: Float[Array, "params params"]
) -> Float[Array, "params params"]:
    """Nothing to make up for."""
    return sqrt_precision


def _newton_schulz(
    sqrt_cov: Float[Array, "params params"], sqrt_precision: Float[Array, "params params"]
) -> Float[Array, "params params"]:
    """C <- 2 C - C (B C), transposed: D <- 2 D - D B' D, which squares the error I - D' B."""
    return 2.0 * sqrt_precision - sqrt_precision @ (sqrt_cov.T @ sqrt_precision)


exact_inverse = InverseRule(_solved, _as_it_is)
"""VITS-I: one inversion a step."""

first_order_inverse = InverseRule(_first_order, _as_it_is, drifts=True)
"""VITS-II: three products a step."""

frozen_inverse = InverseRule(_unmoved, _newton_schulz, reach=1.0)
"""D stays through the round and is repaired at its end: one product a step.

On a quadratic potential of curvature a, a round of K steps multiplies a small deviation of sqrt(a) B from 1 by
2 (1 - h a)^K - 1. That is -0.26 at h a K = 1 and goes to -1, a covariance that swings forever, beyond: hence `reach`.
"""


class VITS(GaussianPosterior):
    """The variational posterior, moved by K steps after each observation, warm-started from the round before.

    `inflation` says how many times too large the spectrum of the curvature rule may be. The safe step for B is that
    much shorter; the mean, whose gradient is not inflated, keeps the full one.
    """

    potential: Potential
    step_rule: StepRule
    draws: Draws
    curvature: CurvatureRule
    inverse: InverseRule
    num_steps: int
    inflation: float = 1.0

    def init(self, key: Key[Array, ""]) -> VITSState:
        """The prior, B = P0^-1/2; the mean of a model that cannot learn from the prior's is its own start."""
        sqrt_precision = linalg.cholesky(self.potential.prior.precision)
        mean = self.potential.start(key)
        return VITSState(mean, linalg.sqrt_of_inverse(sqrt_precision), sqrt_precision, self.potential.init())

    def update(self, key: Key[Array, ""], state: VITSState, observation: Observation) -> tuple[VITSState, Info]:
        """Add the observation, then take K steps."""
        keys, batch_keys = jnp.split(jax.random.split(key, 2 * self.num_steps), 2)
        data = self.potential.observe(state.data, observation, Belief(state.mean, state.sqrt_cov))
        seen = self.potential.minibatch(batch_keys[0], data)
        largest = self.potential.largest_curvature(seen, state.mean, state.sqrt_cov)
        terrain = Terrain(self.potential, seen, state.mean, largest)
        plan = self.step_rule(terrain, self.num_steps)
        inflated = self.inflation * largest
        h, h_B = plan.size, self.step_rule(terrain._replace(curvature=inflated), self.num_steps).size
        num_steps = jnp.asarray(plan.num_steps, h.dtype)
        longest = self.inverse.reach / (num_steps * inflated)
        out_of_reach, h_B = h_B > longest, jnp.minimum(h_B, longest)
        # All draws of the round in one call: many small ones would cost more than the steps.
        eps = jax.vmap(lambda key: self.draws(key, state.mean.shape[0]))(keys)

        def step(k: Array | int, state: VITSState) -> VITSState:
            mu, B, D, data = state
            seen = self.potential.minibatch(batch_keys[k], data)
            grad, A = self.curvature(self.potential, seen, self._draw(eps[k], mu, B), D)
            mu = mu - h * grad
            B = B - h_B * A.times(B) + h_B * D  # B <- (I - h A) B + h C'
            return VITSState(mu, B, self.inverse.step(B, D, A, h_B), data)

        start = state._replace(data=data)
        after, refreshed = self._watched(start, step(0, start))
        new = jax.lax.fori_loop(1, plan.num_steps, step, after)
        first, others = _distance(start, after), _distance(after, new) / jnp.maximum(num_steps - 1.0, 1.0)
        D = self.inverse.finish(new.sqrt_cov, new.sqrt_precision)
        burst = exploded(first, others, jnp.linalg.norm(state.sqrt_cov))
        inverse = linalg.refreshed_inverse(new.sqrt_cov, D, tolerance=INVERSE_TOLERANCE, worthwhile=~burst)
        new = new._replace(sqrt_precision=inverse.inverse_transpose)
        return guarded(
            observation,
            state,
            new,
            parameters=new[:3],
            exploded=burst
            | ~(inverse.error <= INVERSE_TOLERANCE)
            | is_unresolved(new.mean, new.sqrt_cov)
            # Elsewhere curvature comes and goes with the mean, and steps can leave what is steep.
            | (self.potential.is_convex & is_drowned(state.sqrt_cov, largest)),
            step=h,
            step_capped=plan.capped | out_of_reach | self._is_blurred(new) | _is_stuck(num_steps * h, new.sqrt_cov),
            stiffness=jnp.maximum(h * largest, h_B * inflated),
            inverse_error=inverse.error,
            refreshed=refreshed | inverse.refreshed,
        )

    def _watched(self, old: VITSState, new: VITSState) -> tuple[VITSState, Bool[Array, ""]]:
        """The state after the first step, with D recomputed where it may have lost B; and whether it was.

        Up to what is of first order in the old error, D' B - I changes by dD' dB. Where the norms of the two bound
        that by `INVERSE_TOLERANCE`, nobody need look; where they do not, later steps must not rest on such a D.
        """
        if not self.inverse.drifts:
            return new, jnp.asarray(False)
        dB, dD = new.sqrt_cov - old.sqrt_cov, new.sqrt_precision - old.sqrt_precision
        doubtful = ~(jnp.linalg.norm(dD) * jnp.linalg.norm(dB) <= INVERSE_TOLERANCE)
        inverse = linalg.refreshed_inverse_if(doubtful, new.sqrt_cov, new.sqrt_precision, tolerance=INVERSE_TOLERANCE)
        return new._replace(sqrt_precision=inverse.inverse_transpose), inverse.refreshed

    def _is_blurred(self, state: VITSState) -> Bool[Array, ""]:
        """Whether rounding cuts short what steps with a curvature made of gradients can do to B.

        Such a curvature has the rounding error of D' B, and in a step the widest direction of B carries it into the
        narrowest. Entry by entry, so that the units of the features do not matter.
        """
        if self.curvature is exact_curvature:
            return jnp.asarray(False)
        widest = jnp.max(jnp.abs(state.sqrt_precision).T @ jnp.abs(state.sqrt_cov))
        return ~(epsilon(state.mean) * jnp.square(widest) <= BLUR)

    def _draw(
        self,
        eps: Float[Array, "directions params"],
        mean: Float[Array, " params"],
        sqrt_cov: Float[Array, "params params"],
    ) -> Draw:
        offsets = eps @ sqrt_cov.T
        if self.draws.mirrored:
            offsets = jnp.concatenate([offsets, -offsets])
        return Draw(eps, self.draws.mirrored, mean[None] + offsets)


def _distance(old: VITSState, new: VITSState) -> Scalar:
    return jnp.linalg.norm(new.mean - old.mean) + jnp.linalg.norm(new.sqrt_cov - old.sqrt_cov)


def _is_stuck(way: Scalar, sqrt_cov: Float[Array, "params params"]) -> Bool[Array, ""]:
    """Whether a round's steps, `way` = h K together, are as good as none for the widest direction of B.

    Of what is left to learn there, 1 / deviation^2 being its precision, a round takes the part h K / deviation^2. One
    feature of 1e5 among others of 1 shortens all steps that far.
    """
    return ~(PATIENCE * way >= jnp.max(jnp.sum(jnp.square(sqrt_cov), axis=1)))


FULL_CUBATURE = 64
"""Up to this many parameters, Hessian-free steps look along every coordinate direction."""

FEWER_DIRECTIONS = 20
"""Beyond that, they look along this many random orthogonal directions."""

INVERSES = {"first_order": first_order_inverse, "frozen": frozen_inverse}


def vits_i(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    step_size: Scalar | float = 0.9,
    num_steps: int = 10,
    step_rule: str | steps.StepRule = "safe",
    draws: str = "antithetic",
    curvature: str | potentials.CurvatureForm = "exact",
    prior: tuple[Any, Any] | None = None,
    window: int | None = None,
    fold_after: int | None = None,
    minibatch: int | None = None,
    capacity: int | None = None,
) -> policies.Thompson:
    """VITS-I: Thompson sampling from a Gaussian variational posterior, with exact inverses.

        mu <- mu - h grad U(theta);   B <- (I - h hess U(theta)) B + h B^-T;   theta = mu + B eps

    Args:
        model: the reward model.
        inverse_temperature: eta; the larger, the narrower the posterior.
        prior_precision: lambda; the prior is N(0, I / (lambda eta)).
        step_size: what `step_rule` makes a step from; for "safe", the fraction of the largest stable step.
        num_steps: steps a round; a cap under `steps.theory`.
        step_rule: "safe", "constant", "per_observation", or a rule from `vits.steps`.
        draws: "antithetic" (a mirrored pair) or "single" (the paper's).
        curvature: Hessians of a model that is not generalised linear: "exact", "gauss_newton", or a function like
            `vits.potentials.autodiff.exact`.
        prior: (mean, covariance) of a Gaussian prior instead of the paper's, which eta does not touch; the covariance
            is a variance, one for each parameter, or a matrix.
        window: only the last so many observations count.
        fold_after: the last so many observations count as they are, older ones as quadratic expansions around what was
            believed when they became old; a round then costs the same at every t. For linear and logistic models.
        minibatch: a step looks at so many observations, drawn at random, instead of all; safe steps are shorter by
            1 + t / minibatch, so that the noise stays that of a single draw.
        capacity: how many observations will come at most, for models that keep them; `simulate` knows.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.vits_i(vits.models.linear(3), inverse_temperature=10.0)

    Reference:
        Clavier, Huix and Durmus, ICML 2024, algorithm 2.
    """
    return _vits(
        model,
        inverse_temperature=inverse_temperature,
        prior_precision=prior_precision,
        prior=prior,
        window=window,
        fold_after=fold_after,
        minibatch=minibatch,
        capacity=capacity,
        hessian=curvature,
        step_rule=steps.resolve(step_rule, step_size),
        num_steps=num_steps,
        draws=_pair_or_single(draws),
        curvature=exact_curvature,
        inverse=exact_inverse,
    )


def vits_ii(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    step_size: Scalar | float = 0.9,
    num_steps: int = 10,
    step_rule: str | steps.StepRule = "safe",
    draws: str = "antithetic",
    inverse: str = "first_order",
    curvature: str | potentials.CurvatureForm = "exact",
    prior: tuple[Any, Any] | None = None,
    window: int | None = None,
    fold_after: int | None = None,
    minibatch: int | None = None,
    capacity: int | None = None,
) -> policies.Thompson:
    """VITS-II: VITS-I with the inverse C = B^-1 followed to first order.

        B <- (I - h A) B + h C';   C <- C (I - h (C'C - A));   A = hess U(theta)

    Args:
        model: the reward model.
        inverse_temperature: eta; the larger, the narrower the posterior.
        prior_precision: lambda; the prior is N(0, I / (lambda eta)).
        step_size: what `step_rule` makes a step from; for "safe", the fraction of the largest stable step.
        num_steps: steps a round; a cap under `steps.theory`.
        step_rule: "safe", "constant", "per_observation", or a rule from `vits.steps`.
        draws: "antithetic" (a mirrored pair) or "single" (the paper's).
        inverse: "first_order" (the paper's) or "frozen": C stays through the round and is repaired at its end, one
            product a step instead of three. It holds while B goes no further than 1 / lmax in a round; longer steps of
            B, but not those of mu, are shortened to that, which `info.step_capped` reports.
        curvature: Hessians of a model that is not generalised linear: "exact", "gauss_newton", or a function like
            `vits.potentials.autodiff.exact`.
        prior: (mean, covariance) of a Gaussian prior instead of the paper's, which eta does not touch; the covariance
            is a variance, one for each parameter, or a matrix.
        window: only the last so many observations count.
        fold_after: the last so many observations count as they are, older ones as quadratic expansions around what was
            believed when they became old; a round then costs the same at every t. For linear and logistic models.
        minibatch: a step looks at so many observations, drawn at random, instead of all; safe steps are shorter by
            1 + t / minibatch, so that the noise stays that of a single draw.
        capacity: how many observations will come at most, for models that keep them; `simulate` knows.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.vits_ii(vits.models.linear(3), num_steps=2)

    Reference:
        Clavier, Huix and Durmus, ICML 2024, algorithm 3.
    """
    return _vits(
        model,
        inverse_temperature=inverse_temperature,
        prior_precision=prior_precision,
        prior=prior,
        window=window,
        fold_after=fold_after,
        minibatch=minibatch,
        capacity=capacity,
        hessian=curvature,
        step_rule=steps.resolve(step_rule, step_size),
        num_steps=num_steps,
        draws=_pair_or_single(draws),
        curvature=exact_curvature,
        inverse=_inverse(inverse),
    )


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
    inverse: str = "first_order",
    prior: tuple[Any, Any] | None = None,
    window: int | None = None,
    fold_after: int | None = None,
    minibatch: int | None = None,
    capacity: int | None = None,
) -> policies.Thompson:
    """VITS-II Hessian-free: the curvature comes from gradients by Stein's identity.

        A = mean over s of C' eps_s grad U(theta_s)'

    Args:
        model: the reward model.
        inverse_temperature: eta; the larger, the narrower the posterior.
        prior_precision: lambda; the prior is N(0, I / (lambda eta)).
        step_size: what `step_rule` makes a step from; for "safe", the fraction of the largest stable step, which
            is smaller the fewer directions there are.
        num_steps: steps a round; a cap under `steps.theory`.
        num_samples: gradients a step. By default twice the number of parameters up to 64 of them, 40 beyond, and
            20 for plain draws.
        step_rule: "safe", "constant", "per_observation", or a rule from `vits.steps`.
        draws: "orthogonal" (mirrored orthogonal directions), "antithetic", or "plain" (the paper's).
        inverse: "first_order" (the paper's) or "frozen": C stays through the round and is repaired at its end, one
            product a step instead of three. It holds while B goes no further than 1 / lmax in a round; longer steps of
            B, but not those of mu, are shortened to that, which `info.step_capped` reports.
        prior: (mean, covariance) of a Gaussian prior instead of the paper's, which eta does not touch; the covariance
            is a variance, one for each parameter, or a matrix.
        window: only the last so many observations count.
        fold_after: the last so many observations count as they are, older ones as quadratic expansions around what was
            believed when they became old; a round then costs the same at every t. For linear and logistic models.
        minibatch: a step looks at so many observations, drawn at random, instead of all; safe steps are shorter by
            1 + t / minibatch, so that the noise stays that of a single draw.
        capacity: how many observations will come at most, for models that keep them; `simulate` knows.

    Returns:
        A policy.

    Example:
        >>> import vits
        >>> policy = vits.make("vits_ii_hf", vits.models.linear(3), draws="plain", num_samples=20)

    Reference:
        Clavier, Huix and Durmus, ICML 2024, algorithm 3.
    """
    dim = model.num_params
    if draws == "plain":
        scheme: drawing.Draws = drawing.plain(num_samples or 20)
    elif draws == "antithetic":
        scheme = drawing.antithetic(num_samples or 2 * FEWER_DIRECTIONS)
    elif draws == "orthogonal":
        scheme = drawing.orthogonal(num_samples or 2 * (dim if dim <= FULL_CUBATURE else FEWER_DIRECTIONS))
    else:
        raise validate.unknown("draws", draws, ("orthogonal", "antithetic", "plain"))
    return _vits(
        model,
        inverse_temperature=inverse_temperature,
        prior_precision=prior_precision,
        prior=prior,
        window=window,
        fold_after=fold_after,
        minibatch=minibatch,
        capacity=capacity,
        # Only for the size of the steps.
        hessian="gauss_newton" if isinstance(model, models.OutputModel) else "exact",
        step_rule=steps.resolve(step_rule, step_size),
        num_steps=num_steps,
        draws=scheme,
        curvature=stein_plain if draws == "plain" else stein,
        inverse=_inverse(inverse),
        inflation=scheme.inflation(dim),
    )


def _vits(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float,
    prior_precision: Scalar | float,
    prior: tuple[Any, Any] | None,
    window: int | None,
    fold_after: int | None,
    minibatch: int | None,
    capacity: int | None,
    hessian: str | potentials.CurvatureForm,
    num_steps: int,
    **parts: Any,
) -> policies.Thompson:
    validate.count("num_steps", num_steps)
    potential = potentials.potential(
        model,
        inverse_temperature=inverse_temperature,
        prior_precision=prior_precision,
        prior=prior,
        curvature=hessian,
        window=window,
        fold_after=fold_after,
        minibatch=minibatch,
        capacity=capacity,
    )
    return policies.Thompson(model, VITS(potential=potential, num_steps=num_steps, **parts))


def _pair_or_single(draws: str) -> drawing.Draws:
    schemes = {"antithetic": drawing.antithetic, "single": drawing.plain}
    if draws not in schemes:
        raise validate.unknown("draws", draws, schemes)
    return schemes[draws]()


def _inverse(inverse: str) -> InverseRule:
    if inverse not in INVERSES:
        raise validate.unknown("inverse", inverse, INVERSES)
    return INVERSES[inverse]
