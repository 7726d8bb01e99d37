"""Ensemble sampling: M models, each at the mode of its own perturbed posterior; a draw is one of them.

Model m replaces the prior mean by a draw from the prior, and every reward by r + w, w ~ N(0, Var(r) / eta). Where the
loss is a function of f = phi' theta minus r f (Gaussian, Bernoulli and Poisson rewards) all of this is a tilt,

    U_m(theta) = U_t(theta) - tilt_m' theta,    tilt_m = P0 (theta0_m - m0) + eta sum_s w_ms phi_s,

so that the models can share one data set. The tilt's covariance is the curvature of U_t: for a linear model each
theta_m is an exact draw from the posterior, for the others one from Laplace's approximation, as far as U_t is
quadratic. Models of any other kind need a data set each.

References: Lu and Van Roy, "Ensemble sampling", NeurIPS 2017; Kveton et al., "Randomized exploration in generalized
linear bandits", AISTATS 2020 (GLM-FPL, rewards perturbed by Gaussian noise).
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key
from typing_extensions import Unpack, override

from vits import models, policies, potentials, validate
from vits.history import Undoable
from vits.inference import newton
from vits.inference.base import Marginals, Moments, Posterior
from vits.inference.guards import choose, guarded, is_unresolved, overflowed
from vits.linalg import normal
from vits.models import Glm, OutputModel, RewardModel
from vits.potentials import Centre, Data, DataOptions, Potential
from vits.potentials.curvature import times
from vits.types import Info, Observation, Reason, Scalar, Vector

TOLERANCE = 0.05
"""The largest distance of a model from its mode at the end of a round, in posterior standard deviations as estimated by
Newton's method."""


class MemberData(NamedTuple):
    """The data of the members in one round, the axis along which members differ, the factor by which steps must be
    shorter because the data are a sample, and a tilt for each member.
    """

    data: Data
    axis: int | None
    inflation: Scalar
    tilts: Float[Array, "members params"]


class Perturbation(eqx.Module):
    """The way in which the noise of each member enters its potential."""

    @abc.abstractmethod
    def init(self, potential: Potential, members: Float[Array, "members params"]) -> Any:
        """No observations and no noise yet."""

    @abc.abstractmethod
    def observe(
        self,
        key: Key[Array, ""],
        potential: Potential,
        seen: Any,
        members: Float[Array, "members params"],
        observation: Observation,
    ) -> Any:
        """Add one observation, with independent noise for each member."""

    @abc.abstractmethod
    def view(self, key: Key[Array, ""], potential: Potential, seen: Any) -> MemberData:
        """The data of one round."""


class TiltedData(NamedTuple):
    """The data that all members share, and the noise in them as a tilt for each member."""

    data: Data
    tilts: Float[Array, "members params"]


class Tilts(Perturbation):
    """Noisy rewards of a generalised linear model: one data set, one vector of noise per member."""

    model: Glm

    def init(self, potential: Potential, members: Float[Array, "members params"]) -> TiltedData:
        """No observations and no noise yet."""
        return TiltedData(potential.init(), jnp.zeros_like(members))

    def observe(
        self,
        key: Key[Array, ""],
        potential: Potential,
        seen: TiltedData,
        members: Float[Array, "members params"],
        observation: Observation,
    ) -> TiltedData:
        """tilt + eta w phi, w ~ N(0, l''(f, r) / eta): l'' is the variance of the reward under the model.

        If one of n observations has left a window, the variance of the noise so far is multiplied by (n - 1) / n: the
        noise of that observation is not stored, so it is removed on average. A folded observation keeps its noise.
        """
        mean, root = _spread(members)
        data = potential.observe(seen.data, observation, Centre(mean, root))
        before, after = (potential.count(d).astype(members.dtype) for d in (seen.data, data))
        kept = jnp.sqrt((after - 1.0) / jnp.maximum(before, 1.0))
        f = observation.features @ mean
        scale = jnp.sqrt(potential.inverse_temperature * self.model.d2loss(f, observation.reward))
        noise = scale * jax.random.normal(key, members.shape[:1], members.dtype)
        return TiltedData(data, kept * seen.tilts + jnp.outer(noise, observation.features))

    def view(self, key: Key[Array, ""], potential: Potential, seen: TiltedData) -> MemberData:
        """Shared data."""
        batch = potential.minibatch(key, seen.data)
        return MemberData(batch, None, potential.inflation(batch), seen.tilts)


class Copies(Undoable):
    """One data set per member, their leaves stacked."""

    leaves: list[Array]
    structure: Any = eqx.field(static=True)

    @property
    def data(self) -> Data:
        """The data sets in the form of the potential, with members along the first axis."""
        return jax.tree.unflatten(self.structure, self.leaves)

    @property
    def overflowed(self) -> Bool[Array, ""]:
        """Whether there was no room for the last observation."""
        return jnp.any(jax.vmap(overflowed)(self.data))

    def undo_unless(self, accepted: Bool[Array, ""], old: "Copies") -> "Copies":
        """These if accepted, else the old ones."""
        return _stacked(jax.vmap(choose, (None, 0, 0))(accepted, self.data, old.data))


def _stacked(data: Data) -> Copies:
    return Copies(*jax.tree.flatten(data))


class NoisyCopies(Perturbation):
    """Noisy rewards of any model: every member has its own data set."""

    model: RewardModel

    def init(self, potential: Potential, members: Float[Array, "members params"]) -> Copies:
        """No observations yet."""
        num_members, data = members.shape[0], potential.init()
        validate.memory(
            f"one data set for each of {num_members:,} members",
            float(num_members) * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(data)),
            "use fewer members, or a smaller window or capacity",
        )
        return _stacked(jax.tree.map(lambda x: jnp.broadcast_to(x, (num_members, *x.shape)), data))

    def observe(
        self,
        key: Key[Array, ""],
        potential: Potential,
        seen: Copies,
        members: Float[Array, "members params"],
        observation: Observation,
    ) -> Copies:
        """r + w, w ~ N(0, Var(r) / eta)."""
        variance = self._variance(jnp.mean(members, axis=0), observation) / potential.inverse_temperature
        w = jnp.sqrt(variance) * jax.random.normal(key, members.shape[:1], members.dtype)

        def observe(data: Data, w: Scalar) -> Data:
            return potential.observe(data, observation._replace(reward=observation.reward + w))

        return _stacked(jax.vmap(observe)(seen.data, w))

    def view(self, key: Key[Array, ""], potential: Potential, seen: Copies) -> MemberData:
        """One data set per member, without tilts; a minibatch takes the same rows of all."""
        data = jax.vmap(potential.minibatch, (None, 0))(key, seen.data)
        num_members = seen.leaves[0].shape[0]
        inflations = jax.vmap(potential.inflation, axis_size=num_members)(data)
        return MemberData(data, 0, inflations[0], jnp.zeros((num_members, self.model.num_params)))

    def _variance(self, theta: Vector, observation: Observation) -> Scalar:
        """The variance of a reward under the model.

        It is l_ff / l_fr^2 from the loss, which is the variance in every exponential family. Without a loss as a
        function of f, it is the squared residual (the wild bootstrap).
        """
        _, reward, *_ = observation
        if isinstance(self.model, OutputModel):
            f = self.model.output(theta, observation.features)
            slope = jax.grad(self.model.loss)
            return jax.grad(slope)(f, reward) / jnp.square(jax.grad(slope, 1)(f, reward))
        return jnp.square(reward - self.model.mean(theta, observation.features))


def _spread(members: Float[Array, "members params"]) -> tuple[Vector, Float[Array, "params members"]]:
    """The mean of the members, and B with B B' their covariance."""
    mean = jnp.mean(members, axis=0)
    return mean, (members - mean[None, :]).T / jnp.sqrt(jnp.asarray(len(members), mean.dtype))


class EnsembleState(NamedTuple):
    """The models, the tilts of their prior draws, and the data seen."""

    members: Float[Array, "members params"]
    prior_tilts: Float[Array, "members params"]
    seen: TiltedData | Copies


class Ensemble(Posterior):
    """`num_members` models, each updated towards its mode by at most K Newton steps after each observation.

    With more than `vits.potentials.WIDE` parameters no matrix is formed: Newton's directions come from conjugate
    gradients.

    In its `Info`, `step_capped` says that, for some member, a step was damped, a Hessian had to be raised, or K steps
    were too few to come within `TOLERANCE` of the mode.
    """

    potential: Potential
    perturbation: Perturbation
    num_members: int
    num_steps: int

    @override
    def footprint(self, num_params: int) -> float:
        matrices = 3.0 if num_params <= potentials.WIDE else 0.0
        return (matrices * num_params + 12.0) * self.num_members * num_params

    def init(self, key: Key[Array, ""]) -> EnsembleState:
        """Independent draws from the prior, around the starting point of the model."""
        start_key, prior_key = jax.random.split(key)
        starts = jax.vmap(self.potential.start)(jax.random.split(start_key, self.num_members))
        prior = self.potential.prior
        offsets = prior.spread(normal(prior_key, starts.shape, starts.dtype))
        members = starts + offsets
        tilts = times(prior.precision, offsets.T).T
        return EnsembleState(members, tilts, self.perturbation.init(self.potential, members))

    def update(self, key: Key[Array, ""], state: EnsembleState, observation: Observation) -> tuple[EnsembleState, Info]:
        """Add the observation, with independent noise for each member, and move every member to its mode."""
        noise_key, batch_key = jax.random.split(key)
        members, prior_tilts, seen = state
        seen = self.perturbation.observe(noise_key, self.potential, seen, members, observation)
        view = self.perturbation.view(batch_key, self.potential, seen)
        size = 1.0 / view.inflation

        def mode(data: Data, start: Vector, tilt: Vector) -> newton.Descent:
            def grad(theta: Vector) -> Vector:
                return self.potential.grad(data, theta) - tilt

            def slopes(theta: Vector) -> newton.Slopes:
                found = newton.slopes(self.potential, data, theta)
                return found._replace(grad=found.grad - tilt)

            max_steps = jnp.where(size < 1.0, 1, self.num_steps)  # do not move to the mode of a sample
            if is_wide:
                return newton.minimum_free(grad, start, tolerance=TOLERANCE, max_steps=max_steps, size=size)
            return newton.minimum(
                slopes,
                start,
                floor=self.potential.prior.matrix,
                share=newton.share_of(self.potential),
                tolerance=TOLERANCE,
                max_steps=max_steps,
                size=size,
            )

        is_wide = members.shape[1] > potentials.WIDE
        descents = jax.vmap(mode, (view.axis, 0, 0))(view.data, members, prior_tilts + view.tilts)
        modes: newton.Minimum | newton.FreeMinimum = descents.point
        unresolved = jnp.asarray(False)
        if isinstance(modes, newton.Minimum):
            unresolved = jnp.any(jax.vmap(is_unresolved)(modes.theta, modes.sqrt_cov))
        return guarded(
            observation,
            state,
            EnsembleState(modes.theta, prior_tilts, seen),
            parameters=(modes.theta, modes.distance),
            failures={Reason.UNRESOLVED: unresolved},
            step=jnp.min(descents.smallest_step),
            step_capped=jnp.any((descents.smallest_step < size) | modes.was_raised | (modes.distance > TOLERANCE)),
        )

    def sample(self, key: Key[Array, ""], state: EnsembleState) -> Vector:
        """One of the members, each with the same probability."""
        return state.members[jax.random.randint(key, (), 0, self.num_members)]

    def moments(self, state: EnsembleState) -> Moments:
        """Mean of the members, and a square root of their covariance."""
        mean, spread = _spread(state.members)
        root = jnp.linalg.qr(spread.T, mode="r")
        missing = mean.shape[0] - root.shape[0]
        return Moments(mean, jnp.pad(root, ((0, missing), (0, 0))).T)

    @override
    def marginals(self, state: EnsembleState) -> Marginals:
        return Marginals(jnp.mean(state.members, axis=0), jnp.var(state.members, axis=0))


@policies.preset
def ensemble_ts(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    num_members: int = 30,
    num_steps: int = 10,
    curvature: str | potentials.CurvatureForm | None = None,
    **data: Unpack[DataOptions],
) -> policies.Thompson:
    """Ensemble sampling: plays one of M models at random, each fitted to its own prior draw and noisy rewards.

        theta_m = argmin U_t(theta) - tilt_m' theta,   tilt_m = P0 (theta0_m - m0) + eta sum_s w_ms phi_s

    Args:
        model: the reward model. All but linear, logistic and Poisson models store `num_members` data sets, and their
            likelihood must accept noisy rewards.
        inverse_temperature: eta; the larger, the less the models differ.
        num_members: M.
        num_steps: the most Newton steps per round and model; one is usually enough. `info.step_capped` reports rounds
            in which a model ends away from its mode.

    Other arguments: see `vits.algorithms`.

    Example:
        >>> import vits
        >>> policy = vits.make("ensemble_ts", vits.models.linear(3), num_members=10)

    Reference:
        Lu and Van Roy, "Ensemble sampling", NeurIPS 2017.
    """
    potential = potentials.potential(model, inverse_temperature, prior_precision, curvature, matrix_free=True, **data)
    perturbation = Tilts(model) if isinstance(model, models.Glm) else NoisyCopies(model)
    return policies.Thompson(model, Ensemble(potential, perturbation, num_members, num_steps))
