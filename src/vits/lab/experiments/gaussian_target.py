"""Approximating one Gaussian, for the KL study and the study of computing time.

The target N(mu*, P^-1) has a precision with log-spaced spectrum and largest eigenvalue 1, so a step size is a fraction
of 1 / lmax. All algorithms start at N(0, I). An algorithm approaches the target by updates on an empty observation
(features and reward are zero). Its distance from the target is that of N(m, S):

    KL = 1/2 (tr(P S) - d + (m - mu*)' P (m - mu*) - log det P - log det S).
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key
from typing_extensions import override

from vits import algorithms, models, steps, validate
from vits.inference.base import GaussianPosterior, Posterior
from vits.inference.variational import Plain
from vits.policies import PosteriorPolicy
from vits.potentials import Prior, Quadratic
from vits.types import Info, Observation, Scalar, State


def gaussian_target(seed: int, dim: int, condition_number: float) -> Quadratic:
    """The potential of N(Q 1, Q diag(1 / p) Q'), p log-spaced from 1 / condition_number to 1, Q a random frame."""
    validate.count("dim", dim)
    if not condition_number >= 1.0:
        raise ValueError(f"a condition number must be at least 1, but is {condition_number}")
    frame = jnp.linalg.qr(jax.random.normal(jax.random.key(seed), (dim, dim)))[0]
    spectrum = condition_number ** -jnp.linspace(0.0, 1.0, dim)
    precision = (frame * spectrum[None]) @ frame.T
    return Quadratic(jnp.ones(()), Prior(frame @ jnp.ones(dim), 0.5 * (precision + precision.T)))


def divergence(target: Prior, mean: Float[Array, " dim"], cov: Float[Array, "dim dim"]) -> Scalar:
    """KL(N(mean, cov), target); infinite where the covariance is singular."""
    offset = mean - target.mean
    kl = 0.5 * (
        jnp.sum(target.precision * cov)
        - mean.shape[0]
        + offset @ (target.precision @ offset)
        - _log_det(target.precision)
        - _log_det(cov)
    )
    return jnp.where(jnp.isnan(kl), jnp.inf, kl)


def _log_det(matrix: Float[Array, "dim dim"]) -> Scalar:
    return 2.0 * jnp.sum(jnp.log(jnp.diagonal(jnp.linalg.cholesky(matrix))))


class Approximation(eqx.Module):
    """A posterior that starts at N(0, I), approaches the target step by step, and is summarised as a Gaussian."""

    potential: Quadratic
    """The target."""
    posterior: Posterior
    """The algorithm with the target as its prior."""
    begin: Posterior
    """The algorithm with the start N(0, I) as its prior."""

    def first(self, key: Key[Array, ""]) -> State:
        """The algorithm's state at N(0, I), or at a draw from it, with the data of the target."""
        return self.begin.init(key)._replace(data=self.potential.init())

    def advance(self, key: Key[Array, ""], state: State) -> tuple[State, Info]:
        """One update of the algorithm."""
        dim = self.potential.prior.mean.shape[0]
        return self.posterior.update(key, state, Observation(jnp.zeros(dim), jnp.zeros(())))

    def start(self, key: Key[Array, ""]) -> State:
        """The start of the approximation: `first`, or what a summary of chains adds to it."""
        return self.first(key)

    def step(self, key: Key[Array, ""], state: State) -> tuple[State, Info]:
        """One step of the approximation."""
        return self.advance(key, state)

    @abc.abstractmethod
    def kl(self, state: State) -> Scalar:
        """How far the approximation is from the target."""


class Variational(Approximation):
    """A posterior that is a Gaussian."""

    @override
    def kl(self, state: State) -> Scalar:
        mean, sqrt_cov = cast(GaussianPosterior, self.posterior).moments(state)
        return divergence(self.potential.prior, mean, sqrt_cov @ sqrt_cov.T)


class Path(NamedTuple):
    """A chain, the number of its steps since the burn-in, and the moments of its path since then."""

    chain: State
    num_seen: Int[Array, ""]
    mean: Float[Array, " dim"]
    scatter: Float[Array, "dim dim"]


class Averaged(Approximation):
    """One chain, as the paper reads it: the moments of its path after `burn_in` steps."""

    burn_in: int

    @override
    def start(self, key: Key[Array, ""]) -> Path:
        chain = self.first(key)
        dim = self.potential.prior.mean.shape[0]
        return Path(chain, jnp.asarray(-self.burn_in), jnp.zeros(dim), jnp.zeros((dim, dim)))

    @override
    def step(self, key: Key[Array, ""], state: Path) -> tuple[Path, Info]:
        """One step of the chain; Welford's update of the moments once the burn-in is over."""
        chain, info = self.advance(key, state.chain)
        seen = state.num_seen + 1
        weight = jnp.where(seen > 0, 1.0 / jnp.maximum(seen, 1).astype(state.mean.dtype), 0.0)
        away = chain.theta - state.mean
        scatter = (1.0 - weight) * (state.scatter + weight * jnp.outer(away, away))
        return Path(chain, seen, state.mean + weight * away, scatter), info

    @override
    def kl(self, state: Path) -> Scalar:
        return divergence(self.potential.prior, state.mean, state.scatter)


class Chains(Approximation):
    """A chain in law: the distribution of its position after k steps, estimated by `num_chains` independent chains."""

    num_chains: int

    @override
    def start(self, key: Key[Array, ""]) -> State:
        return jax.vmap(self.first)(jax.random.split(key, self.num_chains))

    def step(self, key: Key[Array, ""], state: State) -> tuple[State, Info]:
        """One step of all chains. The info is the worst of all chains."""
        state, info = jax.vmap(self.advance)(jax.random.split(key, self.num_chains), state)
        worst = jax.tree.map(lambda leaf: jnp.max(leaf, axis=0), info)
        return state, worst._replace(is_finite=jnp.all(info.is_finite))

    def kl(self, state: State) -> Scalar:
        """An unbiased estimate of the law's KL from the N chains' moments m and S (S with N - 1 in its denominator).

        For Gaussian chains E log det S = log det Sigma + c, c = sum_i psi((N - i) / 2) + d log(2 / (N - 1)), and the
        noise of the mean adds tr(P Sigma) / N to its square. Both biases are subtracted.
        """
        target, n = self.potential.prior, self.num_chains
        mean = jnp.mean(state.theta, axis=0)
        away = state.theta - mean[None]
        cov = away.T @ away / (n - 1)
        dim = mean.shape[0]
        counts = 0.5 * (n - jnp.arange(1, dim + 1)).astype(mean.dtype)
        log_det_bias = jnp.sum(jax.scipy.special.digamma(counts)) + dim * jnp.log(2.0 / (n - 1))
        mean_bias = jnp.sum(target.precision * cov) / n
        return divergence(target, mean, cov) + 0.5 * (log_det_bias - mean_bias)


@dataclasses.dataclass(frozen=True)
class TargetContender:
    """An algorithm, its hyperparameters, and how its distribution is summarised."""

    label: str
    algorithm: str
    hyperparameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reading: str = "variational"
    """variational, averaged (over the path of one chain) or law (over parallel chains)."""
    look_every: int = 1
    """Updates between two looks at the KL."""
    max_seeds: int | None = None
    """The most seeds it needs: 1 if the algorithm is deterministic on a Gaussian target."""
    chains: int = 1000
    """Number of parallel chains, for the reading "law"."""
    burn_in: int = 1000
    """Steps left out of the moments of the path, for the reading "averaged"."""

    def num_seeds(self, seeds: int) -> int:
        """The number of the experiment's seeds that it plays."""
        return min(seeds, self.max_seeds or seeds)

    def chunks(self, seeds: int) -> list[range]:
        """Its seeds, in groups that are computed together: all of them, or each alone if a seed is many chains."""
        count = self.num_seeds(seeds)
        return [range(i, i + 1) for i in range(count)] if self.reading == "law" else [range(count)]


def approximation(contender: TargetContender, target: Quadratic, step_size: float) -> Approximation:
    """The contender and the target, with the step size h unless its hyperparameters set one.

    Target, step size and hyperparameters are traced, so one compilation serves all condition numbers and steps.
    """
    dim = target.prior.mean.shape[0]
    settings = {"num_steps": 1, **contender.hyperparameters}
    if "step_size" not in settings:
        settings["step_rule"] = steps.constant(step_size)
    policy = algorithms.make(contender.algorithm, models.linear(dim), **settings)
    if not isinstance(policy, PosteriorPolicy):
        raise ValueError(f"{contender.algorithm} keeps no posterior that could approach a target")
    begin = policy.posterior
    posterior = eqx.tree_at(lambda p: p.potential, begin, target)
    if contender.reading == "variational":
        if not isinstance(posterior, GaussianPosterior):
            raise ValueError(f"{contender.algorithm} is no Gaussian: its reading must be 'averaged' or 'law'")
        return Variational(target, posterior, begin)
    if contender.reading == "averaged":
        return Averaged(target, posterior, begin, contender.burn_in)
    if contender.reading == "law":
        return Chains(target, posterior, begin, contender.chains)
    raise validate.unknown("reading", contender.reading, ("variational", "averaged", "law"))


def floor(approximation: Approximation, step_size: float) -> float:
    """The KL that an algorithm settles around in the long run, where p are the eigenvalues of P.

    Langevin's variance along p is x = 1 / (1 - h p / 2) times too large, which gives sum (x - 1 - log x) / 2. With
    gradients at S draws that are not mirrored, the mean of a variational posterior jitters, which gives
    sum h p / (2 S (2 - h p)), about h tr(P) / (4 S). All others converge to the target.
    """
    h, p = step_size, np.linalg.eigvalsh(approximation.potential.prior.matrix).astype(float)
    if not isinstance(approximation, Variational):
        excess = 1.0 / (1.0 - 0.5 * h * p)
        return float(np.sum(0.5 * (excess - 1.0 - np.log(excess))))
    draws = getattr(approximation.posterior, "draws", None)
    if isinstance(draws, Plain) and not draws.mirrored:
        return float(np.sum(h * p / (2.0 - h * p))) / (2.0 * draws.num_samples)
    return 0.0
