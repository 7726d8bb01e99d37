"""VITS on a square root of the covariance that has a pattern: a diagonal, or a diagonal and few columns.

The objective is that of VITS, F(mu, B) = E U(mu + B e) - 1/2 log det(B B'), e ~ N(0, I). Its gradient with respect to B
is (A - Sigma^-1) B with A = E hess U, which for a square B is the paper's step,

    B <- B - h (A - Sigma^-1) B = (I - h A) B + h B^-T.

Here B = [diag(s), V'], so that theta = mu + s eps + V' xi, and only these entries change:

    s_i <- (1 - h A_ii) s_i + h (Sigma^-1)_ii s_i,    V' <- (I - h A) V' + h Sigma^-1 V'.

These are gradient steps on the same objective over fewer parameters. Without V the fixed point of the first line is
s_i^2 = 1 / A_ii, the best diagonal Gaussian. Sigma^-1 is exact, by Woodbury's identity. The gradient of E U with
respect to B is E[grad U(theta) e'] too, which is the Hessian-free form.

Where V explains a parameter, the best s_i can be zero, as in factor analysis (a Heywood case). So s_i is kept above
sqrt(h): below it the step is too long for Sigma^-1. That excludes no optimum of the full family, whose variances are at
least 1 / lmax(A) > h in every direction.

References: Clavier, Huix and Durmus, ICML 2024; Lambert, Chewi, Bach, Bonnabel and Rigollet, "Variational inference via
Wasserstein gradient flows", NeurIPS 2022; Ong, Nott and Smith, "Gaussian variational approximation with a factor
covariance structure", JCGS 2018.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key
from typing_extensions import override

from vits import linalg, steps
from vits.inference.base import Marginals, Moments, Posterior
from vits.inference.covariance import Root, check_structure, footprint
from vits.inference.guards import RESOLUTION, epsilon, exploded, guarded
from vits.inference.variational import Draws
from vits.potentials import AutodiffPotential, Data, Potential
from vits.types import Info, Observation, Reason, Scalar, Vector

SHARE = 0.1
"""The share of the prior variance that the columns V have at the start, in random directions: at V = 0 the gradient
with respect to V is zero."""

NOISE = 16.0
"""The steps of B are this many times shorter where only some directions are sampled, as in `Orthogonal`."""


class SquareRootState(NamedTuple):
    """The posterior N(mean, diag(deviations)^2 + factor' factor), and the data seen."""

    mean: Vector
    deviations: Vector
    factor: Float[Array, "rank params"]
    data: Data

    @property
    def root(self) -> Root:
        """B."""
        return Root(self.deviations, self.factor)


Slope = Callable[[Potential, Data, Vector, Root, Float[Array, "directions columns"], bool], tuple[Vector, Root]]
"""`slope(potential, data, mean, B, e, mirrored)` evaluates U at mean + B e, and at mean - B e if mirrored. It returns
the mean gradient and the entries of A B on the pattern."""


def by_hessian(
    potential: Potential, data: Data, mean: Vector, root: Root, e: Float[Array, "directions columns"], mirrored: bool
) -> tuple[Vector, Root]:
    """A is the mean Hessian over the points."""
    grads, A = potential.derivatives(data, _points(mean, root, e, mirrored))
    columns = A.times(root.factor.T).T if len(root.factor) else root.factor
    return jnp.mean(grads, axis=0), Root(A.diagonal * root.deviations, columns)


def by_stein(
    potential: Potential, data: Data, mean: Vector, root: Root, e: Float[Array, "directions columns"], mirrored: bool
) -> tuple[Vector, Root]:
    """A B = E[grad U(theta) e'], by Stein's identity."""
    grads = jax.vmap(potential.grad, (None, 0))(data, _points(mean, root, e, mirrored))
    odd = 0.5 * (grads[: len(e)] - grads[len(e) :]) if mirrored else grads
    dim = mean.size
    return jnp.mean(grads, axis=0), Root(jnp.mean(odd * e[:, :dim], axis=0), e[:, dim:].T @ odd / len(e))


def _points(
    mean: Vector, root: Root, e: Float[Array, "directions columns"], mirrored: bool
) -> Float[Array, "points params"]:
    offsets = root.times(e)
    return mean[None] + (jnp.concatenate([offsets, -offsets]) if mirrored else offsets)


class SquareRoot(Posterior):
    """The variational posterior with a patterned B, updated by K warm-started steps after each observation.

    Rank 0 is the diagonal family. `inflation` is as in `vits.algorithms.vits.VITS`. In its `Info`, `step_capped` is
    also set if a noisy curvature would have made a deviation negative.
    """

    potential: Potential
    step_rule: steps.StepRule
    draws: Draws
    slope: Slope
    num_steps: int
    rank: int
    inflation: float = 1.0
    random_start: bool = False

    @override
    def footprint(self, num_params: int) -> float:
        directions = len(jax.eval_shape(lambda key: self.draws(key, num_params + self.rank), jax.random.key(0)))
        # All draws of a step are evaluated at once, and before that the points among which the steepest is found.
        return footprint(self.rank, self.potential, num_params, vectors=max(14.0 * directions, 110.0))

    def init(self, key: Key[Array, ""]) -> SquareRootState:
        """The prior: its variances are exact, and the columns correlate the parameters a little."""
        mean = self.potential.drawn_start(key) if self.random_start else self.potential.start(key)
        deviations = jnp.broadcast_to(1.0 / jnp.sqrt(self.potential.prior.precision), mean.shape)
        if self.rank == 0:
            return SquareRootState(mean, deviations, jnp.zeros((0, mean.size), mean.dtype), self.potential.init())
        frame = linalg.random_frame(jax.random.fold_in(key, 1), mean.size, self.rank)
        factor = SHARE**0.5 * frame * deviations[None, :]
        rest = deviations * jnp.sqrt(1.0 - SHARE * jnp.sum(jnp.square(frame), axis=0))
        return SquareRootState(mean, rest, factor, self.potential.init())

    def update(
        self, key: Key[Array, ""], state: SquareRootState, observation: Observation
    ) -> tuple[SquareRootState, Info]:
        """Add the observation, then take K steps."""
        keys, batch_keys = jnp.split(jax.random.split(key, 2 * self.num_steps), 2)
        data = self.potential.observe(state.data, observation)
        plan = self._plan(state, self.potential.minibatch(batch_keys[0], data))
        Carry = tuple[SquareRootState, Bool[Array, ""]]

        def step(k: Array | int, carry: Carry) -> Carry:
            (mu, s, V, data), capped = carry
            seen, e = self.potential.minibatch(batch_keys[k], data), self.draws(keys[k], s.size + len(V))
            grad, AB = self.slope(self.potential, seen, mu, Root(s, V), e, self.draws.mirrored)
            D = Root(s, V).precision_times()
            shrunk = s - plan.h_B * AB.deviations
            mu = mu - plan.h * grad
            s = jnp.maximum(shrunk + plan.h_B * D.deviations, jnp.sqrt(plan.h_B))  # B <- (I - h A) B + h Sigma^-1 B
            V = V - plan.h_B * AB.factor + plan.h_B * D.factor
            return SquareRootState(mu, s, V, data), capped | jnp.any(shrunk < 0.0)

        start = state._replace(data=data)
        first, capped = step(0, (start, jnp.asarray(False)))
        last, capped = jax.lax.fori_loop(1, plan.num_steps, step, (first, capped))
        later = _distance(first, last) / jnp.maximum(plan.real_num_steps - 1.0, 1.0)
        spread = jnp.sqrt(jnp.sum(state.root.variances))
        deviations = jnp.sqrt(last.root.variances)
        return guarded(
            observation,
            state,
            last,
            parameters=last[:3],
            failures={
                Reason.DIVERGED: exploded(_distance(start, first), later, spread) | ~jnp.all(last.deviations > 0.0),
                Reason.UNRESOLVED: jnp.any(~(epsilon(last.mean) * jnp.abs(last.mean) <= RESOLUTION * deviations)),
            },
            step=plan.h,
            step_capped=plan.capped | capped,
            stiffness=plan.stiffness,
        )

    def sample(self, key: Key[Array, ""], state: SquareRootState) -> Vector:
        """theta = mean + B e, e ~ N(0, I)."""
        columns = state.deviations.size + len(state.factor)
        return state.mean + state.root.times(linalg.normal(key, (columns,), state.mean.dtype))

    @override
    def moments(self, state: SquareRootState) -> Moments:
        B = state.root.matrix
        return Moments(state.mean, linalg.cholesky(B @ B.T))

    @override
    def marginals(self, state: SquareRootState) -> Marginals:
        return Marginals(state.mean, state.root.variances)

    def _plan(self, state: SquareRootState, seen: Data) -> steps.RoundPlan:
        """The steps of a round whose first step uses these data."""
        root = state.root
        is_matrix = self.rank > 0 and not isinstance(self.potential, AutodiffPotential)
        spread = root.matrix if is_matrix else jnp.sqrt(root.variances)
        largest = self.potential.largest_curvature(seen, state.mean, spread)
        geometry = steps.LocalGeometry(self.potential, seen, state.mean, largest)
        return steps.round_plan(self.step_rule, geometry, self.num_steps, inflation=self.inflation)


def _distance(old: SquareRootState, new: SquareRootState) -> Scalar:
    return sum((jnp.linalg.norm(a - b) for a, b in zip(new[:3], old[:3], strict=True)), jnp.zeros(()))


def check_pattern(covariance: str, inverse: str, potential: Potential) -> None:
    """Refuse options that such a posterior does not support."""
    check_structure(covariance, potential)
    if inverse != "first_order":
        raise ValueError(f"inverse must be left out where the covariance is {covariance}, whose inverse is exact")
