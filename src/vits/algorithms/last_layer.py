"""Neural-Linear: a network trained by gradient steps, with an exact Gaussian posterior on its last layer.

With h(x) the last hidden layer of a network and a 1 for the bias, the reward of an arm is w' h(x) plus Gaussian noise.
Given the body, the posterior of w is that of a linear model,

    P = P0 + eta sum_s h_s h_s',    mean = P^-1 (P0 m0 + eta sum_s r_s h_s)

The hidden layers (the body) follow the mode of all parameters by steps of Adam. These steps change all h_s, so the
posterior is recomputed from the stored observations. With one output per arm, each arm has its own posterior.

The body is a point, or has a Gaussian of its own around it: the hidden layers' part of N(theta, Q^-1), where Q is a
diagonal plus a matrix of low rank that follows the Gauss-Newton curvature of all parameters.

References: Riquelme, Tucker and Snoek, "Deep Bayesian bandits showdown", ICLR 2018. For the body: Chang, Duran-Martin,
Shestopaloff, Jones and Murphy, "Low-rank extended Kalman filtering for online learning of neural networks", 2023.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, Shaped
from typing_extensions import Unpack, override

from vits import linalg, models, policies, potentials, validate
from vits.inference.base import Marginals, Moments, Posterior
from vits.inference.covariance import MINIBATCH, Precision, footprint, positive_rows, rows_of
from vits.inference.guards import guarded
from vits.models.network import Mlp, unflatten
from vits.potentials import Data, Potential, SampleOptions
from vits.types import Info, Observation, Reason, Scalar

FARTHEST = 1e6
"""The body has diverged if its parameters are larger than this."""


class LastLayerState(NamedTuple):
    """All parameters, square roots of the covariance of each output's weights, Adam's moments, and the data seen.

    `spread` is Q, if the body has a Gaussian.
    """

    theta: Float[Array, " params"]
    last_sqrt_cov: Float[Array, "outputs width width"]
    optimiser: Any
    data: Data
    spread: Precision | None = None


class LastLayer(Posterior):
    """The Gaussian on the last layer of a network, whose body is trained by K steps after each observation."""

    potential: Potential
    model: Mlp
    learning_rate: Scalar
    num_steps: int
    rank: int | None = None

    @override
    def footprint(self, num_params: int) -> float:
        outputs, width, _ = self._shape
        body = 20.0 * num_params if self.rank is None else footprint(self.rank, self.potential, num_params)
        return 4.0 * outputs * width**2 + body

    def init(self, key: Key[Array, ""]) -> LastLayerState:
        """The prior of the last layer, on a body with random weights."""
        theta = self.potential.start(key)
        spread = None
        if self.rank is not None:
            spread = Precision(self._prior(theta), jnp.zeros((self.rank, theta.size), theta.dtype))
        state = LastLayerState(theta, jnp.zeros(self._shape), self._adam.init(theta), self.potential.init(), spread)
        weights, roots = self._fitted(state)
        return state._replace(theta=self._joined(theta, weights), last_sqrt_cov=roots)

    def update(
        self, key: Key[Array, ""], state: LastLayerState, observation: Observation
    ) -> tuple[LastLayerState, Info]:
        """Add the observation, train the body, and recompute the posterior of the last layer."""
        data = self.potential.observe(state.data, observation)
        keys = jax.random.split(key, self.num_steps)

        def step(k: Array, carry: tuple[Float[Array, " params"], Any]) -> tuple[Float[Array, " params"], Any]:
            theta, optimiser = carry
            seen = self.potential.minibatch(keys[k], data)
            # Divided by the number of observations, so that the steps do not grow with the data.
            count = jnp.maximum(self.potential.count(data), 1).astype(theta.dtype)
            grad = self.potential.grad(seen, theta) / count
            with jax.numpy_dtype_promotion("standard"):  # Optax multiplies by whole numbers
                move, optimiser = self._adam.update(grad, optimiser, theta)
            return theta + self.learning_rate * move, optimiser

        theta, optimiser = jax.lax.fori_loop(0, self.num_steps, step, (state.theta, state.optimiser))
        new = state._replace(theta=theta, optimiser=optimiser, data=data)
        weights, roots = self._fitted(new)
        new = new._replace(theta=self._joined(theta, weights), last_sqrt_cov=roots)
        if state.spread is not None:
            new = new._replace(spread=self._followed(new, state.spread, self.potential.minibatch(keys[-1], data)))
        return guarded(
            observation,
            state,
            new,
            parameters=(new.theta, new.last_sqrt_cov, new.spread, jax.tree.map(jnp.square, new.optimiser)),
            failures={
                Reason.DIVERGED: ~(jnp.max(jnp.abs(new.theta)) <= FARTHEST),
                Reason.DROWNED: jnp.asarray(False) if new.spread is None else new.spread.is_drowned,
            },
            step=self.learning_rate,
        )

    def sample(self, key: Key[Array, ""], state: LastLayerState) -> Float[Array, " params"]:
        """A draw of the last layer's weights, and the body or a draw of it."""
        theta = state.theta
        if state.spread is not None:
            key, body_key = jax.random.split(key)
            theta = theta + state.spread.draw(body_key)
        outputs, width, _ = self._shape
        eps = linalg.normal(key, (outputs, width), theta.dtype)
        weights = self._split(state.theta) + jnp.einsum("aij,aj->ai", state.last_sqrt_cov, eps)
        return self._joined(theta, weights)

    @override
    def moments(self, state: LastLayerState) -> Moments:
        """The body, the last layer, and the weights of different outputs are independent."""
        places = self._split(jnp.arange(state.theta.size))
        zero = jnp.zeros((state.theta.size, state.theta.size), state.theta.dtype)
        root = zero.at[places[:, :, None], places[:, None, :]].set(state.last_sqrt_cov)
        if state.spread is not None:
            body = linalg.inverse_root(state.spread.matrix)[: -places.size]
            root = root.at[: len(body), : len(body)].set(linalg.cholesky(body @ body.T))
        return Moments(state.theta, root)

    @override
    def marginals(self, state: LastLayerState) -> Marginals:
        body = jnp.zeros_like(state.theta) if state.spread is None else state.spread.variances
        return Marginals(state.theta, self._joined(body, jnp.sum(jnp.square(state.last_sqrt_cov), axis=2)))

    def _followed(self, state: LastLayerState, spread: Precision, seen: Data) -> Precision:
        """Q moved towards the curvature at the new parameters: as far as the sample is a share of the data."""
        curvature = self.potential.derivatives(seen, state.theta[None]).curvature
        rho = 1.0 / self.potential.inflation(seen)
        return spread.mixed(rho, *positive_rows(curvature, self._prior(state.theta)))

    def _prior(self, theta: Float[Array, " params"]) -> Float[Array, " params"]:
        """The diagonal of the prior's precision."""
        return jnp.broadcast_to(self.potential.prior.precision, theta.shape)

    @property
    def _adam(self) -> optax.GradientTransformation:
        return optax.chain(optax.scale_by_adam(), optax.scale(-1.0))

    @property
    def _shape(self) -> tuple[int, int, int]:
        """Outputs, and the number of weights and the bias of each, twice."""
        last = self.model.network.layers[-1]
        width = last.weight.shape[1] + 1
        return self.model.num_heads or 1, width, width

    def _split(self, theta: Shaped[Array, " params"]) -> Shaped[Array, "outputs width"]:
        """The weights and the bias of each output: the last entries of the flat parameters."""
        outputs, width, _ = self._shape
        last = theta[-outputs * width :]
        return jnp.concatenate([last[:-outputs].reshape(outputs, width - 1), last[-outputs:, None]], axis=1)

    def _joined(
        self, theta: Float[Array, " params"], weights: Float[Array, "outputs width"]
    ) -> Float[Array, " params"]:
        """The parameters with another last layer."""
        body = theta[: -weights.size]
        return jnp.concatenate([body, weights[:, :-1].ravel(), weights[:, -1]])

    def _fitted(
        self, state: LastLayerState
    ) -> tuple[Float[Array, "outputs width"], Float[Array, "outputs width width"]]:
        """Mean and square root of the covariance of the last layer, given the body and all data."""
        outputs = self._shape[0]
        network = unflatten(self.model.network, state.theta)
        prior = self.potential.prior
        precision = self._split(self._prior(state.theta))

        def term(
            phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]
        ) -> tuple[Float[Array, "outputs width width"], Float[Array, "outputs width"]]:
            contexts = phi[:, :-1] if self.model.num_heads else phi
            hidden = jax.vmap(network.hidden)(contexts)
            hidden = jnp.concatenate([hidden, jnp.ones((len(hidden), 1), hidden.dtype)], axis=1)
            played = jnp.zeros(len(r), int) if self.model.num_heads is None else phi[:, -1].astype(int)
            tempered = self.potential.inverse_temperature * weight
            shares = jax.nn.one_hot(played, outputs, dtype=r.dtype).T * tempered[None, :]
            grams = jax.vmap(lambda share: (hidden.T * share[None, :]) @ hidden)(shares)
            return grams, (shares * r[None, :]) @ hidden

        start = jax.vmap(jnp.diag)(precision), precision * self._split(prior.mean)
        grams, linear = state.data.history.sum(term, start)
        roots = jax.vmap(linalg.inverse_root)(grams)
        means = jnp.einsum("aij,akj,ak->ai", roots, roots, linear)
        return means, roots


@policies.preset
def last_layer_ts(
    model: models.RewardModel,
    *,
    inverse_temperature: Scalar | float = 1.0,
    prior_precision: Scalar | float = 1.0,
    learning_rate: Scalar | float = 0.01,
    num_steps: int = 10,
    rank: int | None = None,
    **data: Unpack[SampleOptions],
) -> policies.Thompson:
    """Thompson sampling with an exact Gaussian on the last layer of a trained network.

        w ~ N(mean, P^-1),    P = P0 + eta sum_s h_s h_s',    h = the last hidden layer and a 1

    Args:
        model: a network with a hidden layer, `vits.models.mlp(...)`.
        learning_rate: the step of Adam, which trains all parameters.
        num_steps: steps of Adam per round.
        rank: give the body a Gaussian whose precision is a diagonal plus a matrix of this rank. By default draws have
            the trained body itself.
        data: prior, window, minibatch, capacity; see `vits.potentials.SampleOptions`. By default each step of Adam uses
            64 observations. The posterior of the last layer uses all stored observations.

    Other arguments: see `vits.algorithms`.

    Example:
        >>> import vits
        >>> policy = vits.make("last_layer_ts", vits.models.mlp(9, hidden=(50,), outputs=7))

    Reference:
        Riquelme, Tucker and Snoek, "Deep Bayesian bandits showdown", ICLR 2018.
    """
    validate.positive("learning_rate", learning_rate)
    if not isinstance(model, Mlp) or len(model.network.layers) < 2:
        raise ValueError(
            f"last_layer_ts needs a network with a hidden layer, vits.models.mlp(...), but got {type(model).__name__}"
        )
    data.setdefault("minibatch", MINIBATCH)
    rank = None if rank is None else rows_of("low_rank", rank, model)
    potential = potentials.potential(model, inverse_temperature, prior_precision, by_layers=rank is not None, **data)
    if potential.prior.precision.ndim == 2:
        raise ValueError("last_layer_ts needs a prior with one variance, or one for each parameter, but got a matrix")
    return policies.Thompson(model, LastLayer(potential, model, jnp.asarray(learning_rate, float), num_steps, rank))
