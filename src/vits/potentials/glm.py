"""The potential of a generalised linear model: sums of scalar functions of f = phi' theta, no autodiff."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key
from typing_extensions import override

from vits import linalg
from vits.history import Rows
from vits.history.base import BLOCK
from vits.models import Glm
from vits.potentials import folding, leading
from vits.potentials.base import Centre, Derivatives, Expectations, News
from vits.potentials.curvature import Dense, Updated, largest, times
from vits.potentials.folding import Folded, HistoryPotential
from vits.potentials.leading import Leading
from vits.types import Matrix, Observation, Scalar, Spread, Vector

REACH = 3.0
"""An unbounded curvature is evaluated this many standard deviations of f away from theta."""


NARROW = 64
"""Up to this many parameters the largest curvature is bounded by products of matrices; beyond, without a matrix."""


FEW = 0.25
"""Up to this many rows in the window for each parameter, a wide potential that folds keeps a root of what it folded."""


class GlmData(NamedTuple):
    """The observations, and what goes with them where it can be accumulated or is asked for.

    `bound` is P0 + eta max l'' sum phi phi', which no Hessian exceeds; `folded` holds the prior and the observations
    that have left the history.
    """

    history: Rows
    bound: Matrix | None = None
    folded: Folded | None = None
    leading: Leading | None = None


class GlmPotential(HistoryPotential):
    """U(theta) = eta sum_s l(phi_s' theta, r_s) + 1/2 (theta - m0)' P0 (theta - m0), so that

    grad = eta Phi' l' + P0 (theta - m0)   and   hess = eta Phi' diag(l'') Phi + P0.

    If it folds, an observation that leaves the window of its buffer is not forgotten: what stays is its expansion

        l(f) ~ l' (f - f0) + 1/2 l'' (f - f0)^2,   f0 = phi' mean,

    around the posterior of that time, with l' and l'' averaged over it.
    """

    model: Glm
    follows: bool

    def init(self) -> GlmData:
        """An empty history."""
        is_bounded, is_narrow = self.model.max_d2loss is not None, self.model.num_params <= NARROW
        follows = self.follows and is_bounded and not is_narrow
        return GlmData(
            self.buffer.init(self.model.dim, by_columns=True),
            bound=self.prior.matrix if is_bounded and is_narrow and self.buffer.window is None else None,
            folded=self._nothing_folded() if self.folds else None,
            leading=leading.unknown(self.model.num_params, largest(self.prior.precision)) if follows else None,
        )

    def observe(self, data: GlmData, observation: Observation, centre: Centre | None = None) -> GlmData:
        """Append the row and add phi phi' to the bound; the row that leaves the window is folded."""
        bound, steepest = data.bound, self.model.max_d2loss
        if bound is not None and steepest is not None:
            bound = bound + jnp.outer(self.inverse_temperature * steepest * observation.features, observation.features)
        data = data._replace(history=data.history.append(observation), bound=bound)
        if data.folded is not None:
            data = data._replace(folded=self._fold(data.folded, data.history.evicted, folding.required(centre)))
        if data.leading is not None:
            data = data._replace(leading=self._followed(data, data.leading, observation.features))
        return data

    def minibatch(self, key: Key[Array, ""], data: GlmData) -> GlmData:
        """A sample of the history, with its own bound on the Hessian, which can be larger."""
        if self.batch_size is None:
            return data
        return data._replace(history=data.history.minibatch(key, self.batch_size), bound=None, leading=None)

    def grad(self, data: GlmData, theta: Vector) -> Vector:
        """eta Phi' l'(Phi theta, r) + P0 (theta - m0)."""

        def term(phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]) -> Float[Array, " d"]:
            return phi.T @ (self.inverse_temperature * weight * self.model.dloss(_outputs(phi, theta), r))

        return data.history.sum(term, self.past(data).grad(theta))

    def derivatives(self, data: GlmData, thetas: Float[Array, "points params"]) -> Derivatives:
        """The gradient at each point, and eta Phi' diag(mean of l''(Phi theta, r)) Phi + P0: one product for all."""

        def row_terms(
            phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]
        ) -> tuple[Float[Array, "points d"], Float[Array, "n d"], Float[Array, " n"]]:
            f, eta = thetas @ phi.T, self.inverse_temperature
            rewards = jnp.broadcast_to(r, f.shape)
            grads = ((eta * weight)[None, :] * self.model.dloss(f, rewards)) @ phi
            return grads, phi, eta * weight * jnp.mean(self.model.d2loss(f, rewards), axis=0)

        def term(phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]) -> Derivatives:
            grads, _, weights = row_terms(phi, r, weight)
            return Derivatives(grads, Dense(_gram(phi, weights)))

        past = jax.vmap(self.past(data).grad)(thetas)
        if data.folded is not None and data.folded.root is not None:
            grads, rows, weights = data.history.sum(row_terms)
            return Derivatives(past + grads, Updated(data.folded.precision, data.folded.root, rows, weights))
        return data.history.sum(term, Derivatives(past, Dense(self.past(data).matrix)))

    @property
    @override
    def patience(self) -> float:
        # Where curvature has no bound, an expansion around a posterior that is still wide can be off by any factor.
        if self.buffer.window is None or not self.folds or self.model.max_d2loss is not None:
            return math.inf
        return float(self.buffer.window)

    @property
    @override
    def is_convex(self) -> bool:
        return True

    @property
    @override
    def grows_by_rows(self) -> bool:
        forgets = self.buffer.window is not None and not self.folds
        return self.model.num_params > NARROW and self.batch_size is None and not forgets

    @override
    def news(self, observation: Observation, centre: Centre) -> News:
        dloss, d2loss = self._expanded(observation.features, observation.reward, centre)[1:]
        return News(self.inverse_temperature * dloss[0], self.inverse_temperature * d2loss[0])

    def expectations(self, key: Key[Array, ""], data: GlmData, mean: Vector, sqrt_cov: Matrix) -> Expectations:
        """By quadrature, without noise: f_s ~ N(phi_s' mean, |B' phi_s|^2), one dimension each."""
        deviations = _deviations(sqrt_cov)

        def term(phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]) -> Expectations:
            dloss, d2loss = self.model.expected_derivatives(_outputs(phi, mean), deviations(phi), r)
            tempered = self.inverse_temperature * weight
            return Expectations(phi.T @ (tempered * dloss), _gram(phi, tempered * d2loss))

        return data.history.sum(term, Expectations(self.past(data).grad(mean), self.past(data).matrix))

    def largest_curvature(self, data: GlmData, theta: Vector, sqrt_cov: Spread | None = None) -> Scalar:
        """A true upper bound where l'' has one; else lmax of the Hessian with l'' at its largest near each f.

        Near means within 1, and `REACH` standard deviations more if B is given. On a minibatch it is larger by the
        factor that keeps the noise of the sample down. With more than `NARROW` parameters it is an upper estimate,
        followed or by power iteration.
        """
        if data.bound is not None:
            return linalg.largest_eigenvalue_bound(data.bound)
        if data.leading is not None:
            return data.leading.limit
        deviations = None if sqrt_cov is None else _deviations(sqrt_cov)

        def steepest(phi: Float[Array, "n d"], r: Float[Array, " n"]) -> Float[Array, " n"]:
            if self.model.max_d2loss is not None:
                return jnp.full_like(r, self.model.max_d2loss)
            f, reach = _outputs(phi, theta), jnp.ones_like(r)
            if deviations is not None:
                reach = reach + REACH * deviations(phi)
            nearby = [self.model.d2loss(f + offset, r) for offset in (-reach, jnp.zeros_like(f), reach)]
            return jnp.max(jnp.stack(nearby), axis=0)

        def gram(phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]) -> Float[Array, "d d"]:
            return _gram(phi, weight * steepest(phi, r))

        if self.model.num_params <= NARROW:
            bound = self.inverse_temperature * data.history.sum(gram) + self.past(data).matrix
            return self.inflation(data) * linalg.largest_eigenvalue_bound(bound)

        def product(x: Float[Array, " d"]) -> Float[Array, " d"]:
            def term(phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]) -> Float[Array, " d"]:
                return phi.T @ (self.inverse_temperature * weight * steepest(phi, r) * (phi @ x))

            return data.history.sum(term, times(self.past(data).precision, x))

        return self.inflation(data) * leading.MARGIN * leading.power_iteration(product, theta)

    def _followed(self, data: GlmData, known: Leading, row: Vector) -> Leading:
        """The leading directions of P0 + eta max l'' sum phi phi', which no Hessian exceeds."""
        assert self.model.max_d2loss is not None
        steepness = self.inverse_temperature * self.model.max_d2loss

        def images_of(rows: Float[Array, "k d"]) -> tuple[Float[Array, "k d"], Scalar]:
            def term(
                phi: Float[Array, "n d"], r: Float[Array, " n"], weight: Float[Array, " n"]
            ) -> tuple[Float[Array, "k d"], Scalar]:
                tempered = steepness * weight
                return ((rows @ phi.T) * tempered[None, :]) @ phi, tempered @ jnp.sum(jnp.square(phi), axis=1)

            past = largest(self.prior.precision) if data.folded is None else jnp.trace(data.folded.precision)
            return data.history.sum(term, (times(self.past(data).precision, rows.T).T, past))

        return leading.followed(known, row, images_of)

    def _nothing_folded(self) -> Folded:
        few = FEW * self.model.num_params
        is_narrow = self.buffer.window is not None and self.buffer.window <= min(few, BLOCK)
        return folding.nothing(self.prior, keeps_root=self.grows_by_rows and is_narrow)

    def _fold(self, folded: Folded, row: tuple[Vector, Scalar], centre: Centre) -> Folded:
        """Add one observation by its expansion; an empty row, phi = 0, adds nothing."""
        phi, reward = row
        f, dloss, d2loss = self._expanded(phi, reward, centre)
        tempered = self.inverse_temperature * phi
        root = folded.root
        if root is not None:
            root = linalg.updated_root(root, phi[None], self.inverse_temperature * d2loss)
        return Folded(
            precision=folded.precision + jnp.outer(d2loss * tempered, phi),
            linear=folded.linear + (d2loss * f - dloss) * tempered,
            root=root,
        )

    def _expanded(
        self, phi: Vector, reward: Scalar, centre: Centre
    ) -> tuple[Float[Array, " 1"], Float[Array, " 1"], Float[Array, " 1"]]:
        """f, l' and l'' of one observation at the centre, the last two averaged over it if it has a spread."""
        f, r = (phi @ centre.mean)[None], reward[None]
        if centre.sqrt_cov is None:
            return f, self.model.dloss(f, r), self.model.d2loss(f, r)
        return f, *self.model.expected_derivatives(f, jnp.linalg.norm(phi @ centre.sqrt_cov)[None], r)


def _deviations(sqrt_cov: Spread) -> Callable[[Float[Array, "n d"]], Float[Array, " n"]]:
    """|B' phi| of every row: the standard deviations of f."""
    if sqrt_cov.ndim == 1:
        return lambda phi: jnp.linalg.norm(phi * sqrt_cov[None, :], axis=1)
    # Transposed before the product: within it, the product would run along first axes, which is slower.
    transposed = jax.lax.optimization_barrier(sqrt_cov.T)  # type: ignore[no-untyped-call]
    return lambda phi: jnp.linalg.norm(transposed @ phi.T, axis=0)


def _outputs(phi: Float[Array, "n d"], theta: Float[Array, " d"]) -> Float[Array, " n"]:
    """f = Phi theta for Phi stored by columns, without copying long columns to rows first."""
    return phi @ theta if phi.shape[1] <= NARROW else theta @ phi.T


def _gram(phi: Float[Array, "n d"], weights: Float[Array, " n"]) -> Float[Array, "d d"]:
    return (phi.T * weights[None, :]) @ phi  # not (W Phi)' Phi, which runs along first axes
