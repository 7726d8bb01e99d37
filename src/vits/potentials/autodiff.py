"""The potential of any model, by automatic differentiation of its likelihood."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key
from typing_extensions import override

from vits.history import BLOCK, Minibatch, Rows
from vits.models import Mlp, OutputModel, RewardModel
from vits.potentials import folding
from vits.potentials.base import Centre, Derivatives, Expectations
from vits.potentials.curvature import Curvature, Dense, LowRank, OfObservations, Operator, times
from vits.potentials.folding import Folded, HistoryPotential
from vits.potentials.jacobian import Layer, Layers
from vits.types import Matrix, Observation, Scalar, Spread, Vector

MARGIN = 4.0
"""Safety factor: the curvature along the steps may be this many times larger than at the points where it is evaluated.
With 2, some runs of a quadratic bandit with networks and the prior N(0, I) ended with every update rejected; with 4,
none did."""

MANY = 256
"""From this many parameters on, blocks have four times as many rows: adding Hessians costs more than padding wastes."""

SIGN_VECTORS = 6
"""Number of directions, each with both signs, in which the potential is evaluated to find where it is steep."""

CurvatureForm = Callable[
    [RewardModel, Float[Array, "m p"], Float[Array, "m n d"], Float[Array, "m n"], Float[Array, "m n"]],
    Float[Array, "p p"],
]
"""The weighted sum of the loss's Hessian, or of an approximation, over m groups of n rows, each group with its own
theta; given model, thetas, features, rewards and weights."""


class AutodiffData(NamedTuple):
    """The observations; `folded` stands for the prior, and for whatever has left the history."""

    history: Rows
    folded: Folded | None = None


def exact(
    model: RewardModel,
    thetas: Float[Array, "m p"],
    phi: Float[Array, "m n d"],
    reward: Float[Array, "m n"],
    weight: Float[Array, "m n"],
) -> Float[Array, "p p"]:
    """The Hessian itself, which may be indefinite."""

    def loss(
        theta: Float[Array, " p"], phi: Float[Array, "n d"], r: Float[Array, " n"], w: Float[Array, " n"]
    ) -> Scalar:
        return w @ jax.vmap(model.nll, (None, 0, 0))(theta, phi, r)

    return jnp.sum(jax.vmap(jax.hessian(loss))(thetas, phi, reward, weight), axis=0)


class OfRows(eqx.Module):
    """A curvature left' right with one row of each for every observation, given by the function `rows`.

    Called like any other form it is the product; on a minibatch the product need not be formed.
    """

    rows: Callable[
        [RewardModel, Float[Array, "m p"], Float[Array, "m n d"], Float[Array, "m n"], Float[Array, "m n"]],
        tuple[Float[Array, "mn p"], Float[Array, "mn p"]],
    ]

    def __call__(self, model: RewardModel, *groups: Float[Array, "m ..."]) -> Float[Array, "p p"]:
        """The sum over all rows of these groups: thetas, features, rewards and weights."""
        left, right = self.rows(model, *groups)
        return left.T @ right

    def unformed(self, model: RewardModel, *groups: Float[Array, "m ..."], base: Operator) -> Curvature:
        """The sum over all rows and a base, as an operator."""
        return LowRank(*self.rows(model, *groups), base)


def _gauss_newton_rows(
    model: RewardModel,
    thetas: Float[Array, "m p"],
    phi: Float[Array, "m n d"],
    reward: Float[Array, "m n"],
    weight: Float[Array, "m n"],
) -> tuple[Float[Array, "mn p"], Float[Array, "mn p"]]:
    assert isinstance(model, OutputModel)
    f, jacobian = jax.vmap(jax.vmap(jax.value_and_grad(model.output), (None, 0)))(thetas, phi)
    d2loss = jax.vmap(jax.grad(jax.grad(model.loss)))(f.ravel(), reward.ravel())
    # One product for all groups: XLA fuses a sum over a batch of products into loops that are ten times slower.
    jacobian = jacobian.reshape(-1, thetas.shape[1])
    return jacobian * (weight.ravel() * d2loss)[:, None], jacobian


gauss_newton = OfRows(_gauss_newton_rows)
"""J' diag(l''(f, r)) J with J = df / dtheta: never indefinite for a convex loss, and one gradient for each row."""


class OfLayers(OfRows):
    """The same of a network, with rows that are not formed: for algorithms that keep no matrix."""

    @override
    def unformed(self, model: RewardModel, *groups: Float[Array, "m ..."], base: Operator) -> Curvature:
        assert isinstance(model, Mlp)
        thetas, phi, reward, weight = groups
        f, slopes, inputs = jax.vmap(jax.vmap(model.by_layers, (None, 0)))(thetas, phi)
        d2loss = jax.vmap(jax.grad(jax.grad(model.loss)))(f.ravel(), reward.ravel())
        flat = ((x.reshape(-1, x.shape[-1]) for x in xs) for xs in (slopes, inputs))
        layers = tuple(Layer(s, h) for s, h in zip(*flat, strict=True))
        return OfObservations(Layers(layers), weight.ravel() * d2loss, base)


gauss_newton_by_layers = OfLayers(_gauss_newton_rows)
"""`gauss_newton` for networks, without its rows."""


CURVATURES: dict[str, CurvatureForm] = {"exact": exact, "gauss_newton": gauss_newton}


class AutodiffPotential(HistoryPotential):
    """U(theta) = eta sum_s nll(theta; phi_s, r_s) + 1/2 (theta - m0)' P0 (theta - m0), differentiated by JAX.

    If it folds, an observation that leaves the window of its buffer is not forgotten: what stays is its expansion

        nll(theta) ~ g' (theta - mu) + 1/2 (theta - mu)' H (theta - mu)

    around the mean mu of the posterior of that time, with H the positive part of the curvature there.
    """

    curvature: CurvatureForm

    def init(self) -> AutodiffData:
        """An empty history."""
        history = self.buffer.init(self.model.dim, 4 * BLOCK if self.model.num_params >= MANY else BLOCK)
        return AutodiffData(history, folding.nothing(self.prior) if self.folds else None)

    @override
    def start(self, key: Key[Array, ""]) -> Vector:
        return self.model.start(key, self.prior.mean)

    def observe(self, data: AutodiffData, observation: Observation, centre: Centre | None = None) -> AutodiffData:
        """Append a row; the row that leaves is folded."""
        history = data.history.append(observation)
        if data.folded is None:
            return AutodiffData(history)
        return AutodiffData(history, self._fold(data.folded, history, folding.required(centre)))

    def minibatch(self, key: Key[Array, ""], data: AutodiffData) -> AutodiffData:
        """A sample of the history."""
        if self.batch_size is None:
            return data
        return data._replace(history=data.history.minibatch(key, self.batch_size))

    def grad(self, data: AutodiffData, theta: Vector) -> Vector:
        """eta sum_s grad nll + P0 (theta - m0)."""

        def term(phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]) -> Float[Array, " p"]:
            return self._loss_grad(theta, phi, r, self.inverse_temperature * weight)

        return data.history.sum(term, self.past(data).grad(theta))

    def derivatives(self, data: AutodiffData, thetas: Float[Array, "points params"]) -> Derivatives:
        """Gradients, and an estimate of the mean Hessian, or of its approximation, for the cost of one Hessian.

        Every row is evaluated at one of the points, and each point gets an equal share of every block of rows. If a
        block cannot be divided, every point gets all of it, which gives the exact average. For identically distributed
        points the estimate is unbiased, and odd terms of a mirrored pair still cancel between the rows.
        """
        if isinstance(data.history, Minibatch) and self._is_low_rank(len(data.history.rewards), len(thetas)):
            return data.history.sum(lambda *rows: self._of_rows(thetas, *rows))

        def term(phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]) -> Derivatives:
            tempered = self.inverse_temperature * weight
            grads = jax.vmap(self._loss_grad, (0, None, None, None))(thetas, phi, r, tempered)
            groups = _shared_out(len(thetas), phi, r, tempered)
            return Derivatives(grads, Dense(self.curvature(self.model, thetas, *groups)))

        past = self.past(data)
        return data.history.sum(term, Derivatives(jax.vmap(past.grad)(thetas), Dense(past.matrix)))

    @property
    def numbers_per_parameter(self) -> float:
        """How many numbers for each parameter the curvature of a step holds at once, about.

        It is a matrix unless the step uses a sample that is small enough; then it is that sample's rows, if they are
        formed.
        """
        if self.batch_size is None or not self._is_low_rank(self.batch_size, points=2):
            return 5.0 * self.model.num_params
        return 0.0 if isinstance(self.curvature, OfLayers) else 5.0 * self.batch_size

    def _is_low_rank(self, rows: int, points: int) -> bool:
        """Whether products with the rows of a sample cost less than a product with the matrix that they make."""
        seen_from = rows * points if rows % points else rows
        return isinstance(self.curvature, OfRows) and 2 * seen_from < self.model.num_params

    def _of_rows(
        self,
        thetas: Float[Array, "points params"],
        phi: Float[Array, "n d"],
        r: Float[Array, " n"],
        weight: Float[Array, " n"],
    ) -> Derivatives:
        assert isinstance(self.curvature, OfRows)
        tempered = self.inverse_temperature * weight
        grads = jax.vmap(self._loss_grad, (0, None, None, None))(thetas, phi, r, tempered)
        groups = _shared_out(len(thetas), phi, r, tempered)
        curvature = self.curvature.unformed(self.model, thetas, *groups, base=self.prior.precision)
        return Derivatives(grads + jax.vmap(self.prior.grad)(thetas), curvature)

    def expectations(self, key: Key[Array, ""], data: AutodiffData, mean: Vector, sqrt_cov: Matrix) -> Expectations:
        """The average over one antithetic pair of draws: unbiased, and free of odd noise."""
        offset = sqrt_cov @ jax.random.normal(key, mean.shape, mean.dtype)
        pair = jnp.stack([mean + offset, mean - offset])
        grads, curvature = self.derivatives(data, pair)
        return Expectations(jnp.mean(grads, axis=0), curvature.matrix)

    def largest_curvature(self, data: AutodiffData, theta: Vector, sqrt_cov: Spread | None = None) -> Scalar:
        """`MARGIN` times a bound on the largest |eigenvalue| of the Hessian at theta.

        Given B, or one deviation for each parameter, it is taken at the steepest of theta and some points theta +- B s,
        where s is a vector of signs: these points are as far from theta as draws from N(theta, B B'). The steepest
        point has the longest product of its Hessian with a vector of signs. On a minibatch the bound is multiplied by
        `inflation`, which limits the noise of the sample.
        """
        if sqrt_cov is not None:
            bits = (jnp.arange(theta.shape[0])[None, :] >> jnp.arange(SIGN_VECTORS)[:, None]) & 1
            signs = 1.0 - 2.0 * bits.astype(theta.dtype)
            offsets = signs @ sqrt_cov.T if sqrt_cov.ndim == 2 else signs * sqrt_cov[None, :]
            points = theta[None] + jnp.concatenate([jnp.zeros_like(offsets[:1]), offsets, -offsets])
            products = jax.vmap(self._hessian_times, (None, 0, None))(data, points, signs[-1])
            theta = points[jnp.argmax(jnp.linalg.norm(products, axis=1))]
        return MARGIN * self.inflation(data) * self.derivatives(data, theta[None]).curvature.largest()

    def _loss_grad(
        self, theta: Float[Array, " p"], phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]
    ) -> Float[Array, " p"]:
        return jax.grad(lambda theta: weight @ jax.vmap(self.model.nll, (None, 0, 0))(theta, phi, r))(theta)

    def _hessian_times(self, data: AutodiffData, theta: Vector, vector: Vector) -> Vector:
        def term(phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]) -> Float[Array, " p"]:
            tempered = self.inverse_temperature * weight
            return jax.jvp(lambda theta: self._loss_grad(theta, phi, r, tempered), (theta,), (vector,))[1]

        return data.history.sum(term, times(self.past(data).precision, vector))

    def _fold(self, folded: Folded, history: Rows, centre: Centre) -> Folded:
        """Add the observation that has left the history, if one has, by its expansion at the mean."""
        features, reward = history.evicted
        has_left = (history.seen > history.capacity).astype(reward.dtype)
        row, weight = (features[None], reward[None]), (self.inverse_temperature * has_left)[None]
        grad = self._loss_grad(centre.mean, *row, weight)
        H = self._positive_curvature(centre.mean, *row, weight)
        return Folded(folded.precision + H, folded.linear + H @ centre.mean - grad)

    def _positive_curvature(
        self, theta: Float[Array, " p"], phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]
    ) -> Float[Array, "p p"]:
        """What stands for the Hessian of one row, without negative eigenvalues: a loss need not be convex."""
        group = theta[None], phi[None], r[None], weight[None]
        if not isinstance(self.curvature, OfRows):
            return folding.positive_part(self.curvature(self.model, *group))
        left, right = self.curvature.rows(self.model, *group)
        return jnp.where(jnp.sum(left * right) > 0.0, left.T @ right, 0.0)


def _shared_out(
    points: int, phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]
) -> tuple[Float[Array, "m rows d"], Float[Array, "m rows"], Float[Array, "m rows"]]:
    """The rows divided into one group per point, or all rows for each point if they cannot be divided."""
    if phi.shape[0] % points:
        rows = phi, r, weight / points
        return tuple(jnp.broadcast_to(x, (points, *x.shape)) for x in rows)  # type: ignore[return-value]
    return tuple(x.reshape(points, -1, *x.shape[1:]) for x in (phi, r, weight))  # type: ignore[return-value]
