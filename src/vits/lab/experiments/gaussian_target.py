"""Approximating one Gaussian: shared by the KL study and the study of computing time.

The target N(mu*, P^-1) has a precision with largest eigenvalue 1 and log-spaced spectrum, so that a step size is a
fraction of 1 / lmax. All start at N(0, I). An algorithm of the library approaches the target by updates on an empty
observation (features and reward are zero), and its distance is that of N(m, S) from the target,

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
    """A posterior that starts at N(0, I) and approaches the target step by step, read as a Gaussian."""

    potential: Quadratic
    """The target."""
    posterior: Posterior
    """The algorithm, with the target for its prior."""
    begin: Posterior
    """The same with the start N(0, I) for its prior."""

    def first(self, key: Key[Array, ""]) -> State:
        """The algorithm at N(0, I), or at a draw from it, with the target for its potential."""
        return self.begin.init(key)._replace(data=self.potential.init())

    def advance(self, key: Key[Array, ""], state: State) -> tuple[State, Info]:
        """One update of the algorithm."""
        dim = self.potential.prior.mean.shape[0]
        return self.posterior.update(key, state, Observation(jnp.zeros(dim), jnp.zeros(())))

    def start(self, key: Key[Array, ""]) -> State:
        """The start of the approximation; where a law is read from chains, that is more than `first`."""
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
    """A chain, how many steps it took since the burn-in, and the moments of where it has been since."""

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
    """A chain in law: the distribution of where it is after k steps, seen in `num_chains` independent chains."""

    num_chains: int

    @override
    def start(self, key: Key[Array, ""]) -> State:
        return jax.vmap(self.first)(jax.random.split(key, self.num_chains))

    def step(self, key: Key[Array, ""], state: State) -> tuple[State, Info]:
        """What is reported is the worst of all chains."""
        state, info = jax.vmap(self.advance)(jax.random.split(key, self.num_chains), state)
        worst = jax.tree.map(lambda leaf: jnp.max(leaf, axis=0), info)
        return state, worst._replace(is_finite=jnp.all(info.is_finite))

    def kl(self, state: State) -> Scalar:
        """An unbiased estimate of the law's KL from the N chains' moments m and S (S with N - 1 in its denominator).

        For Gaussian chains E log det S = log det Sigma + c, c = sum_i psi((N - i) / 2) + d log(2 / (N - 1)), and the
        mean's own noise adds tr(P Sigma) / N to its square: both are taken out.
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
class Contender:
    """An algorithm of the library, its hyperparameters, and how its law is read."""

    label: str
    algorithm: str
    hyperparameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reading: str = "variational"
    """variational, averaged (over the path of one chain) or law (over parallel chains)."""
    look_every: int = 1
    """Updates between two looks at the KL."""
    max_seeds: int | None = None
    """More seeds than this would show nothing new: 1 where nothing is random on a Gaussian target."""
    chains: int = 1000
    """Parallel chains, where the law is read over them."""
    burn_in: int = 1000
    """Steps that do not count for the path's moments."""

    def num_seeds(self, seeds: int) -> int:
        """How many of the experiment's seeds it plays."""
        return min(seeds, self.max_seeds or seeds)


def approximation(contender: Contender, target: Quadratic, step_size: float) -> Approximation:
    """The contender facing the target, with the step size h unless its hyperparameters have one of their own.

    All of target, step size and hyperparameters are traced: one compilation serves every condition number and step.
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
    """The KL that an algorithm cannot get below in the long run, with p the eigenvalues of P.

    Langevin's variance along p is x = 1 / (1 - h p / 2) times too large: sum (x - 1 - log x) / 2. With gradients at S
    draws that are not mirrored the mean of a variational posterior jitters: sum h p / (2 S (2 - h p)), about
    h tr(P) / (4 S). All others converge.
    """
    h, p = step_size, np.linalg.eigvalsh(approximation.potential.prior.matrix).astype(float)
    if not isinstance(approximation, Variational):
        excess = 1.0 / (1.0 - 0.5 * h * p)
        return float(np.sum(0.5 * (excess - 1.0 - np.log(excess))))
    draws = getattr(approximation.posterior, "draws", None)
    if isinstance(draws, Plain) and not draws.mirrored:
        return float(np.sum(h * p / (2.0 - h * p))) / (2.0 * draws.num_samples)
    return 0.0
