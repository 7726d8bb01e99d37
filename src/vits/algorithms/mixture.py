"""A variational mixture of M linear regressions with normal-inverse-gamma factors.

The model of an arm's rewards, with the noise scale of every component unknown:

    y_i | z_i = k ~ N(x_i' w_k, sigma2_k),   z_i ~ pi,   pi ~ Dirichlet(gamma0),
    w_k | sigma2_k ~ N(u0_k, sigma2_k V0),   sigma2_k ~ InvGamma(alpha0, beta0)

Mean field, q = prod_i q(z_i) q(pi) prod_k q(w_k, sigma2_k), gives factors of the same forms. A sweep sets the
responsibilities r_ik = q(z_i = k) from the factors, and then the factors from the responsibilities.

A folded observation keeps the responsibilities that it had when it left the history, so sums stand for it.

Reference: Urteaga and Wiggins, "Variational inference for the multi-armed contextual bandit", AISTATS 2018.
"""

from functools import partial
from typing import ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma
from jaxtyping import Array, Float, Key
from typing_extensions import Unpack

from vits import linalg, models, policies, potentials, validate
from vits.algorithms.exact import shrunk
from vits.history import Buffer, History, SlidingHistory, buffer
from vits.inference.base import Posterior
from vits.inference.guards import guarded, is_unresolved
from vits.inference.per_arm import PerArm
from vits.linalg import normal
from vits.potentials import FoldOptions, Prior
from vits.types import Info, Observation, Reason, Scalar, Vector


class MixtureFactors(NamedTuple):
    """Dirichlet(weight) and, for every component, N(mean, sigma2 B B') InvGamma(shape, scale) with B = sqrt_cov.

    In the order of the literature: gamma, u, a square root of V, alpha and beta.
    """

    weight: Float[Array, " components"]
    mean: Float[Array, "components params"]
    sqrt_cov: Float[Array, "components params params"]
    shape: Float[Array, " components"]
    scale: Float[Array, " components"]


class Statistics(NamedTuple):
    """Sums over rows weighted by a component's responsibilities, with the residuals e = y - x'u of the last sweep.

    tr R, X'RX, X'Re and e'Re.
    """

    total: Float[Array, " components"]
    gram: Float[Array, "components params params"]
    cross: Float[Array, "components params"]
    square: Float[Array, " components"]

    def around(self, move: Float[Array, "components params"]) -> "Statistics":
        """The same sums with the residuals e - x' move, after every u has moved."""
        drift = jnp.einsum("kij,kj->ki", self.gram, move)
        cross = self.cross - drift
        square = self.square - jnp.sum(move * (self.cross + cross), axis=1)
        return self._replace(cross=cross, square=jnp.maximum(square, 0.0))


class MixtureState(NamedTuple):
    """The factors, the means of their priors, and the data seen; a single component stores no data.

    `folded` has the sums over folded observations, around the means of the factors.
    """

    factors: MixtureFactors
    prior_mean: Float[Array, "components params"]
    history: History | None
    folded: Statistics | None = None


class Mixture(Posterior):
    """The variational posterior, updated by `num_steps` sweeps after each observation from the last factors.

    The components' prior means are drawn `separation` prior standard deviations apart, around the prior mean:
    components that start at the same place would never separate.
    """

    prior: Prior
    prior_weight: Scalar
    prior_shape: Scalar
    prior_scale: Scalar
    separation: Scalar
    num_components: int
    num_steps: int
    buffer: Buffer
    folds: bool = False
    num_matrices: ClassVar[int] = 6

    def init(self, key: Key[Array, ""]) -> MixtureState:
        """The prior."""
        mean, precision = self.prior.mean, self.prior.matrix
        sqrt_cov = linalg.inverse_root(precision)
        eps = normal(key, (self.num_components, *mean.shape), mean.dtype)
        # Centred, so that the mixture's own mean is the prior mean.
        offsets = (eps - jnp.mean(eps, axis=0, keepdims=True)) @ sqrt_cov.T
        means = mean[None, :] + self.separation * jnp.sqrt(self.prior_scale / self.prior_shape) * offsets
        each = jnp.ones(self.num_components)
        factors = MixtureFactors(
            weight=self.prior_weight * each,
            mean=means,
            sqrt_cov=jnp.broadcast_to(sqrt_cov, (self.num_components, *sqrt_cov.shape)),
            shape=self.prior_shape * each,
            scale=self.prior_scale * each,
        )
        if self.num_components == 1:
            return MixtureState(factors, means, None)
        folded = Statistics(0.0 * each, jnp.zeros_like(factors.sqrt_cov), jnp.zeros_like(means), 0.0 * each)
        return MixtureState(factors, means, self.buffer.init(mean.shape[0]), folded if self.folds else None)

    def update(self, key: Key[Array, ""], state: MixtureState, observation: Observation) -> tuple[MixtureState, Info]:
        """Add the observation, then sweep; with one component the posterior has a closed form."""
        if state.history is None:
            new = state._replace(factors=conjugate_update(state.factors, observation))
        else:
            seen = state._replace(history=state.history.append(observation))
            if seen.folded is not None:
                seen = seen._replace(folded=self._fold(seen.factors, seen.folded, cast(SlidingHistory, seen.history)))
            new = jax.lax.fori_loop(0, self.num_steps, lambda _, each: self._swept(each), seen)
        # The noise estimate from before this reward, because an outlier would widen the new one until the check passes.
        noise = jnp.sqrt(state.factors.scale / state.factors.shape)
        failures = {Reason.UNRESOLVED: is_unresolved(new.factors.mean, noise[:, None, None] * new.factors.sqrt_cov)}
        return guarded(observation, state, new, parameters=new.factors, failures=failures)

    def sample(self, key: Key[Array, ""], state: MixtureState) -> Vector:
        """sum_k E[pi_k] w_k, with sigma2_k ~ InvGamma(alpha_k, beta_k) and w_k ~ N(u_k, sigma2_k V_k)."""
        weight, mean, sqrt_cov, shape, scale = state.factors
        noise_key, eps_key = jax.random.split(key)
        # sigma2 = beta / Gamma(alpha), by logarithms: for small alpha the gamma draw itself underflows.
        sigma = jnp.exp(0.5 * (jnp.log(scale) - jax.random.loggamma(noise_key, shape)))
        eps = normal(eps_key, mean.shape, mean.dtype)
        draws = mean + sigma[:, None] * jnp.einsum("kij,kj->ki", sqrt_cov, eps)
        return (weight / jnp.sum(weight)) @ draws

    def _swept(self, state: MixtureState) -> MixtureState:
        """A state after one sweep."""
        assert state.history is not None
        factors = self.sweep(state.factors, state.prior_mean, state.history, state.folded)
        folded = None if state.folded is None else state.folded.around(factors.mean - state.factors.mean)
        return state._replace(factors=factors, folded=folded)

    def _fold(self, factors: MixtureFactors, folded: Statistics, history: SlidingHistory) -> Statistics:
        """Add the row that has left the history, if the history was full."""
        x, y = history.evicted
        was_full = (history.seen > history.capacity).astype(y.dtype)
        return jax.tree.map(jnp.add, folded, statistics(factors, x[None], y[None], was_full[None]))

    def sweep(
        self,
        factors: MixtureFactors,
        prior_mean: Float[Array, "components params"],
        history: History,
        folded: Statistics | None = None,
    ) -> MixtureFactors:
        """One round of mean-field updates: responsibilities, then all factors.

        With a = u0 - u and d = V (X'Re + V0^-1 a) the new mean is u + d, and the textbook
        beta = beta0 + 1/2 (y'Ry + u0' V0^-1 u0 - u' V^-1 u), which cancels to nothing in single precision, is

            beta = beta0 + 1/2 (e'Re + a' V0^-1 a - d' V^-1 d),

        where d -> 0 as the sweeps converge, and the subtracted term never exceeds the sum before it.
        """

        total, gram, cross, square = history.sum(partial(statistics, factors), folded)
        prior_precision = self.prior.matrix
        away = prior_mean - factors.mean
        pull = cross + away @ prior_precision
        precision = gram + prior_precision[None, :, :]
        sqrt_cov = jax.vmap(linalg.inverse_root)(precision)
        whitened = jnp.einsum("kji,kj->ki", sqrt_cov, pull)  # d' V^-1 d = pull' V pull = |B' pull|^2
        before = square + jnp.einsum("ki,ij,kj->k", away, prior_precision, away)
        return MixtureFactors(
            weight=self.prior_weight + total,
            mean=factors.mean + jnp.einsum("kij,kj->ki", sqrt_cov, whitened),
            sqrt_cov=sqrt_cov,
            shape=self.prior_shape + 0.5 * total,
            scale=self.prior_scale + 0.5 * jnp.maximum(before - jnp.sum(whitened**2, axis=1), 0.0),
        )


def statistics(
    factors: MixtureFactors, x: Float[Array, "n d"], y: Float[Array, " n"], present: Float[Array, " n"]
) -> Statistics:
    """The sums over some rows; `present` is 0 for rows that are empty."""
    residuals = y[None, :] - factors.mean @ x.T
    r = jax.nn.softmax(log_responsibilities(factors, x, residuals), axis=0) * present[None, :]
    weighted = r[:, :, None] * x[None, :, :]
    return Statistics(
        total=jnp.sum(r, axis=1),
        gram=jnp.einsum("kni,nj->kij", weighted, x),
        cross=jnp.einsum("kni,kn->ki", weighted, residuals),
        square=jnp.sum(r * residuals**2, axis=1),
    )


def log_responsibilities(
    factors: MixtureFactors, x: Float[Array, "n d"], residuals: Float[Array, "components n"]
) -> Float[Array, "components n"]:
    """log r_ik up to a constant in k: E log pi_k - 1/2 E log sigma2_k - 1/2 E (y_i - x_i' w_k)^2 / sigma2_k."""
    weight, _, sqrt_cov, shape, scale = factors
    log_weight = digamma(weight) - digamma(jnp.sum(weight))
    log_noise = jnp.log(scale) - digamma(shape)
    spread = jnp.sum(jnp.einsum("nd,kde->kne", x, sqrt_cov) ** 2, axis=2)  # x' V_k x
    misfit = spread + residuals**2 * (shape / scale)[:, None]
    return (log_weight - 0.5 * log_noise)[:, None] - 0.5 * misfit


def conjugate_update(factors: MixtureFactors, observation: Observation) -> MixtureFactors:
    """The exact posterior of one component after an observation, by Potter's square-root update.

    With v = B'x, s = 1 + |v|^2 and e = y - x'u:

        u <- u + B v e / s,   B <- B (I - (1 - 1 / sqrt(s)) v v' / |v|^2),
        alpha <- alpha + 1/2,   beta <- beta + e^2 / (2 s)
    """
    weight, mean, sqrt_cov, shape, scale = factors
    x, B = observation.features, sqrt_cov[0]
    v = B.T @ x
    direction, s, e = B @ v, 1.0 + v @ v, observation.reward - mean[0] @ x
    return MixtureFactors(
        weight=weight + 1.0,
        mean=mean + (direction * (e / s))[None, :],
        sqrt_cov=shrunk(B, v, 1.0 / jnp.sqrt(s))[None, :, :],
        shape=shape + 0.5,
        scale=scale + 0.5 * e**2 / s,
    )


@policies.preset
def vts(
    model: models.RewardModel,
    *,
    num_arms: int,
    num_components: int = 2,
    num_steps: int = 10,
    prior_precision: Scalar | float = 1.0,
    prior_shape: Scalar | float = 1.0,
    prior_scale: Scalar | float = 1.0,
    prior_weight: Scalar | float = 1.0,
    separation: Scalar | float = 1.0,
    **data: Unpack[FoldOptions],
) -> policies.Thompson:
    """VTS: for every arm a variational mixture of linear regressions with unknown noise.

        sigma2_k ~ InvGamma(alpha_k, beta_k),   w_k ~ N(u_k, sigma2_k V_k),   a = argmax sum_k E[pi_k] phi_a' w_k

    Args:
        model: a linear model.
        num_arms: the number of arms, which must be the same in every round and in the same order.
        num_components: M, Gaussians in an arm's mixture; with 1 the posterior is exact and stores no data.
        num_steps: sweeps of mean-field updates per round.
        prior_precision: lambda; V0 = I / lambda, in units of the noise variance.
        prior_shape: alpha0.
        prior_scale: beta0; sqrt(beta0 / alpha0) is the expected noise, in the unit of the rewards.
        prior_weight: gamma0.
        separation: spread of the components' prior means around u0, in prior standard deviations.
        data: prior (u0, V0 in units of the noise variance), window (of an arm), fold_after (of an arm), capacity; see
            `vits.potentials.FoldOptions`.

    Example:
        >>> import vits
        >>> policy = vits.algorithms.vts(vits.models.linear(3), num_arms=5, num_components=2)

    Reference:
        Urteaga and Wiggins, "Variational inference for the multi-armed contextual bandit", AISTATS 2018.
    """
    if not isinstance(model, models.Linear):
        raise ValueError(
            f"vts needs a linear model, but got {type(model).__name__}; vits_ii, laplace_ts and lmc_ts take any model, "
            "with per_arm=num_arms if every arm is to have its own parameters"
        )
    positive = {"prior_shape": prior_shape, "prior_scale": prior_scale, "prior_weight": prior_weight}
    for name, value in (positive | {"separation": separation}).items():
        validate.positive(name, value)
    prior, window, fold_after = data.get("prior"), data.get("window"), data.get("fold_after")
    potentials.check_folding(fold_after, window=window, capacity=data.get("capacity"))
    if window is not None and num_components == 1:
        raise ValueError(f"window needs num_components of at least 2, since one keeps no data, but is {window}")
    ridge = potentials.ridge_prior(model.num_params, inverse_temperature=1.0, prior_precision=prior_precision)
    mixture = Mixture(
        prior=ridge if prior is None else potentials.gaussian_prior(model.num_params, *prior),
        **{name: jnp.asarray(value, float) for name, value in positive.items()},
        separation=jnp.asarray(separation, float),
        num_components=num_components,
        num_steps=num_steps,
        buffer=buffer(capacity=data.get("capacity"), window=window if fold_after is None else fold_after),
        folds=fold_after is not None,
    )
    return policies.Thompson(model, PerArm(mixture, num_arms))
