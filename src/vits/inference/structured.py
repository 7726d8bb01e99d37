"""Natural gradients for a Gaussian whose precision is a diagonal plus a matrix of low rank.

The objective is that of `vits_ng`, F(mu, Sigma) = E U(theta) - 1/2 log det Sigma, over a smaller family. A step moves
the precision towards the expected curvature and brings it back to the family,

    P  <- the nearest of (1 - rho) P + rho E[hess U(theta)]
    mu <- mu - rho / max(1, lmax(P^-1 A)) P^-1 E[grad U(theta)]

where A is the curvature that the step saw: outside the family, P can be smaller than A, and a full step would
overshoot.

References: Mishkin, Kunstner, Nielsen, Schmidt and Khan, "SLANG", NeurIPS 2018; Chang, Duran-Martin, Shestopaloff,
Jones and Murphy, "Low-rank extended Kalman filtering for online learning of neural networks", CoLLAs 2023.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key
from typing_extensions import override

from vits import linalg
from vits.inference.base import Marginals, Moments, Posterior
from vits.inference.covariance import Precision, footprint, positive_rows
from vits.inference.guards import epsilon, guarded
from vits.potentials import Data, Potential
from vits.potentials.leading import power_iteration
from vits.types import Info, Observation, Reason, Scalar, Vector

OVERSHOOT = 1.5
"""Safety factor: the curvature in units of P may be this many times larger than the power iteration finds."""

FARTHEST = 3.0
"""A step moves the mean by at most this many times sqrt(p) posterior standard deviations in all."""


class StructuredState(NamedTuple):
    """The posterior N(mean, P^-1) with P = diag(diagonal) + factor' factor, and the data seen."""

    mean: Vector
    diagonal: Vector
    factor: Float[Array, "rank params"]
    data: Data

    @property
    def precision(self) -> Precision:
        """P."""
        return Precision(self.diagonal, self.factor)


class Structured(Posterior):
    """The low-rank variational posterior, updated by K warm-started natural-gradient steps after each observation.

    Rank 0 is the diagonal family. In its `Info`, `step_capped` says that a step would have moved the mean too far.
    """

    potential: Potential
    step_size: Scalar
    num_steps: int
    rank: int

    @override
    def footprint(self, num_params: int) -> float:
        return footprint(self.rank, self.potential, num_params)

    def init(self, key: Key[Array, ""]) -> StructuredState:
        """The prior."""
        mean = self.potential.start(key)
        diagonal = jnp.broadcast_to(self.potential.prior.precision, mean.shape)
        return StructuredState(mean, diagonal, jnp.zeros((self.rank, mean.size), mean.dtype), self.potential.init())

    def update(
        self, key: Key[Array, ""], state: StructuredState, observation: Observation
    ) -> tuple[StructuredState, Info]:
        """Add the observation, then take K steps."""
        data = self.potential.observe(state.data, observation)
        keys = jax.random.split(key, self.num_steps)

        def step(k: Array, carry: tuple[StructuredState, Bool[Array, ""]]) -> tuple[StructuredState, Bool[Array, ""]]:
            at, capped = carry
            batch_key, draw_key = jax.random.split(keys[k])
            new, too_far = self._stepped(draw_key, at, self.potential.minibatch(batch_key, data))
            return new, capped | too_far

        start = state._replace(data=data), jnp.asarray(False)
        new, capped = jax.lax.fori_loop(0, self.num_steps, step, start)
        deviations = jnp.sqrt(1.0 / new.diagonal)
        return guarded(
            observation,
            state,
            new,
            parameters=new[:3],
            failures={
                Reason.DIVERGED: ~jnp.all(new.diagonal > 0.0),
                Reason.DROWNED: new.precision.is_drowned,
                Reason.UNRESOLVED: jnp.any(~(epsilon(new.mean) * jnp.abs(new.mean) <= deviations)),
            },
            step=self.step_size,
            step_capped=capped,
        )

    def sample(self, key: Key[Array, ""], state: StructuredState) -> Vector:
        """theta = mean + a draw from N(0, P^-1)."""
        return state.mean + state.precision.draw(key)

    @override
    def moments(self, state: StructuredState) -> Moments:
        return Moments(state.mean, linalg.inverse_root(state.precision.matrix))

    @override
    def marginals(self, state: StructuredState) -> Marginals:
        return Marginals(state.mean, state.precision.variances)

    def _stepped(
        self, key: Key[Array, ""], state: StructuredState, data: Data
    ) -> tuple[StructuredState, Bool[Array, ""]]:
        offset = state.precision.draw(key)
        grads, curvature = self.potential.derivatives(data, jnp.stack([state.mean + offset, state.mean - offset]))
        rho = self.step_size / self.potential.inflation(data)
        prior = jnp.broadcast_to(self.potential.prior.precision, state.mean.shape)
        P = state.precision.mixed(rho, *positive_rows(curvature, prior))
        inverse = P.solver
        excess = power_iteration(lambda x: inverse.times(curvature.times(x[:, None])[:, 0]), state.mean)
        direction = inverse.times(jnp.mean(grads, axis=0))
        move = rho / jnp.maximum(1.0, OVERSHOOT * excess) * direction
        length = jnp.sqrt(move @ P.times(move))
        farthest = FARTHEST * jnp.sqrt(jnp.asarray(state.mean.size, move.dtype))
        too_far = length > farthest
        mean = state.mean - jnp.where(too_far, farthest / jnp.where(too_far, length, 1.0), 1.0) * move
        return StructuredState(mean, P.diagonal, P.factor, state.data), too_far
