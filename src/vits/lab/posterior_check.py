"""The distance of an algorithm's posterior from the exact one, on a user's own model and data.

The reference is a long run of NUTS, by BlackJAX, on the same prior and likelihood. Distances are in standard deviations
of the reference, so they can be compared between models and parameters.
"""

import importlib
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from vits import algorithms, catalogue, files, models, validate
from vits.history import with_capacity
from vits.inference.base import Posterior
from vits.policies import PosteriorPolicy
from vits.types import Info, Observation, State, reason_counts

MODELS = ("linear", "logistic", "poisson")

RUNS = 200
"""Number of independent runs that estimate a posterior whose moments are not available."""

Draws = Float[np.ndarray, "draws params"]


class Rows(NamedTuple):
    """Observations: a row of features and a reward each."""

    features: Float[np.ndarray, "n dim"]
    rewards: Float[np.ndarray, " n"]


class PosteriorComparison(NamedTuple):
    """Both posteriors, parameter by parameter; `draws` are the reference's."""

    algorithm: str
    draws: Draws
    mean: Float[np.ndarray, " params"]
    deviation: Float[np.ndarray, " params"]
    rejections: dict[str, int]
    """Rejected updates by reason."""
    agreement: float
    """The largest distance between the means of two chains of the reference, in standard deviations."""

    @property
    def distance(self) -> Float[np.ndarray, " params"]:
        """Difference of the means, in standard deviations of the reference."""
        return (self.mean - self.draws.mean(axis=0)) / self.draws.std(axis=0)

    @property
    def ratio(self) -> Float[np.ndarray, " params"]:
        """The algorithm's standard deviation divided by the reference's."""
        return self.deviation / self.draws.std(axis=0)

    @property
    def sentence(self) -> str:
        """The largest distances, and how far the reference can be trusted."""
        mean, ratio = float(np.max(np.abs(self.distance))), float(np.max(np.abs(self.ratio - 1.0)))
        rejected = "".join(f"; {count:,} updates were rejected: {why}" for why, count in self.rejections.items())
        return (
            f"Means are within {mean:.2f} standard deviations of NUTS, deviations within {ratio:.0%}{rejected}. "
            f"The chains of NUTS agree to {self.agreement:.2f} standard deviations."
        )

    @property
    def figures(self) -> Float[np.ndarray, "params 6"]:
        """For each parameter, the reference's mean and standard deviation, the algorithm's, the distance, the ratio."""
        means, deviations = self.draws.mean(axis=0), self.draws.std(axis=0)
        return np.column_stack([means, deviations, self.mean, self.deviation, self.distance, self.ratio])

    @property
    def worst(self) -> list[int]:
        """The parameters, from the worst to the best."""
        return [int(i) for i in np.argsort(-np.maximum(np.abs(self.distance), np.abs(np.log(self.ratio))))]


def load(path: Path) -> Rows:
    """Data from a file: npz with `features` and `rewards`, or csv with the rewards in the last column."""
    if not path.is_file():
        raise ValueError(f"there is no file '{path}'")
    if path.suffix == ".npz":
        try:
            arrays = files.load_arrays(path)
        except OSError as error:
            raise ValueError(f"'{path}' cannot be read: {error.strerror}") from None
        missing = [name for name in ("features", "rewards") if name not in arrays]
        if missing:
            raise ValueError(f"'{path}' must hold features and rewards, but holds {', '.join(arrays) or 'nothing'}")
        features, rewards = arrays["features"], arrays["rewards"]
    elif path.suffix == ".csv":
        features, rewards = _table(path)
    else:
        raise ValueError(f"the data must be an npz or a csv file, but are in '{path}'")
    validate.real("features", features)
    validate.real("rewards", rewards)
    validate.shape("features", features, ("n", "dim"))
    validate.shape("rewards", rewards, (len(features),))
    if features.size == 0:
        raise ValueError(f"'{path}' must hold observations, but features have shape {features.shape}")
    rows = Rows(np.asarray(features, float), np.asarray(rewards, float))
    validate.finite("features", rows.features)
    validate.finite("rewards", rows.rewards)
    return rows


def resolve_model(name: str, dim: int) -> models.RewardModel:
    """A model by its name, or 'package.module:attribute': a model, or a function that makes one from `dim`."""
    if name in MODELS:
        return cast(models.RewardModel, getattr(models, name)(dim))
    module_name, colon, attribute = name.partition(":")
    if not colon:
        raise validate.unknown("model", name, (*MODELS, "package.module:attribute"))
    # Where a script would find it: in the current folder.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"there is no model '{name}': {error}") from None
    model = found if isinstance(found, models.RewardModel) else found(dim)
    if not isinstance(model, models.RewardModel):
        raise ValueError(f"'{name}' must be a reward model or make one, but gives {type(model).__name__}")
    if model.dim != dim:
        raise ValueError(f"the model '{name}' takes {model.dim} features, but the data have {dim}")
    return model


def check(
    model: models.RewardModel,
    rows: Rows,
    algorithm: str,
    *,
    seed: int = 0,
    num_draws: int = 1000,
    chains: int = 4,
    **hyperparameters: Any,
) -> PosteriorComparison:
    """The distance of an algorithm's posterior from NUTS, after one pass over the data.

    Args:
        model: the reward model.
        rows: the data.
        algorithm: one of `vits list`, with a posterior that all arms share.
        seed: of all randomness.
        num_draws: of each chain of NUTS.
        chains: of NUTS.
        hyperparameters: as in the signature of the algorithm; eta and the prior hold for the reference too.

    Returns:
        Both posteriors.
    """
    least, largest = model.reward_range
    outside = rows.rewards[~((rows.rewards >= least) & (rows.rewards <= largest))]
    if len(outside):
        raise ValueError(f"rewards of {model.reward_rule()}, but one is {outside[0]:g}")
    known = catalogue.algorithm(algorithm)
    if known.own_posteriors or not known.learns:
        raise ValueError(f"check needs an algorithm with one posterior for all arms, but got {algorithm}")
    policy = with_capacity(algorithms.make(algorithm, model, **hyperparameters), len(rows.rewards))
    assert isinstance(policy, PosteriorPolicy)
    run_key, nuts_key = jax.random.split(jax.random.key(seed))
    mean, deviation, rejections = _posterior(policy.posterior, run_key, rows)
    draws = nuts(nuts_key, model, rows, policy.posterior, num_draws=num_draws, chains=chains)
    agreement = float(np.max(np.ptp(draws.mean(axis=1), axis=0) / draws.std(axis=(0, 1))))
    return PosteriorComparison(algorithm, draws.reshape(-1, draws.shape[-1]), mean, deviation, rejections, agreement)


def nuts(
    key: Key[Array, ""],
    model: models.RewardModel,
    rows: Rows,
    posterior: Posterior,
    *,
    num_draws: int,
    chains: int,
) -> Float[np.ndarray, "chains draws params"]:
    """Draws from exp(-U) by NUTS, its step and mass matrix found by BlackJAX's window adaptation."""
    try:
        import blackjax  # type: ignore[import-untyped]
    except ImportError:
        raise ValueError("check needs BlackJAX, which is not installed: pip install 'vits-bandits[check]'") from None
    potential = cast(Any, posterior).potential
    features, rewards = (jnp.asarray(x, float) for x in rows)
    prior, eta = potential.prior, potential.inverse_temperature

    def log_density(theta: Float[Array, " params"]) -> Float[Array, ""]:
        losses = jax.vmap(model.nll, (None, 0, 0))(theta, features, rewards)
        offset = theta - prior.mean
        return -eta * jnp.sum(losses) - 0.5 * offset @ prior.grad(theta)

    def chain(key: Key[Array, ""]) -> Float[Array, "draws params"]:
        start_key, warm_key, draw_key = jax.random.split(key, 3)
        warmup = blackjax.window_adaptation(blackjax.nuts, log_density)
        adapted, _ = warmup.run(warm_key, potential.start(start_key), num_steps=500)
        kernel = blackjax.nuts(log_density, **adapted.parameters)

        def step(state: Any, key: Key[Array, ""]) -> tuple[Any, Array]:
            state, _ = kernel.step(key, state)
            return state, state.position

        return jax.lax.scan(step, adapted.state, jax.random.split(draw_key, num_draws))[1]

    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        draws = jax.jit(lambda keys: jax.lax.map(chain, keys))(jax.random.split(key, chains))
    found = np.asarray(draws, np.float64)
    if not np.all(np.isfinite(found)):
        raise ValueError("NUTS produced non-finite draws on this model, so there is no reference")
    return found


def _posterior(
    posterior: Posterior, key: Key[Array, ""], rows: Rows
) -> tuple[Float[np.ndarray, " params"], Float[np.ndarray, " params"], dict[str, int]]:
    """Mean and standard deviations after one pass: the posterior's own, or those over many runs."""
    observations = Observation(jnp.asarray(rows.features, float), jnp.asarray(rows.rewards, float))

    @eqx.filter_jit
    def learn(posterior: Posterior, key: Key[Array, ""]) -> tuple[State, Info]:
        def update(state: State, row: tuple[Array, Float[Array, " dim"], Array]) -> tuple[State, Info]:
            key, features, reward = row
            return posterior.update(key, state, Observation(features, reward, arms=features[None]))

        keys = jax.random.split(key, len(rows.rewards) + 1)
        each = (keys[1:], observations.features, observations.reward)
        return jax.lax.scan(update, posterior.init(keys[0]), each)

    if jax.eval_shape(posterior.moments, jax.eval_shape(posterior.init, key)) is not None:
        state, info = learn(posterior, key)
        mean, sqrt_cov = (np.asarray(x, np.float64) for x in posterior.moments(state) or ())
        return mean, np.linalg.norm(sqrt_cov, axis=1), reason_counts(info.reason)
    states, infos = jax.lax.map(lambda key: learn(posterior, key), jax.random.split(key, RUNS))
    draws = np.asarray(jax.vmap(posterior.sample)(jax.random.split(key, RUNS), states), np.float64)
    return draws.mean(axis=0), draws.std(axis=0), reason_counts(infos.reason)


def _table(path: Path) -> tuple[Any, Any]:
    """Features and rewards of a csv file, with or without a line of names."""
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    first = lines[0].split(",") if lines else []
    has_names = any(not _is_number(cell) for cell in first)
    cells = [line.split(",") for line in lines[has_names:]]
    for number, row in enumerate(cells, 1 + has_names):
        bad = [cell for cell in row if not _is_number(cell)]
        if bad:
            raise ValueError(f"line {number} of '{path}' must hold numbers, but has '{bad[0].strip()}'")
        if len(row) != len(first):
            raise ValueError(f"line {number} of '{path}' must have {len(first)} columns, but has {len(row)}")
    if len(first) < 2 or not cells:
        raise ValueError(f"'{path}' must have rows of features and a last column of rewards, but has none")
    table = np.asarray(cells, float)
    return table[:, :-1], table[:, -1]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
