"""One contract for every algorithm on every model it claims."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits import catalogue
from vits.types import Observation

DIM, ARMS, HISTORY = 3, 4, 12


def gaussian_nll(theta, features, reward):
    return 0.5 * jnp.square(jnp.tanh(features @ theta) - reward)


MODELS = {
    "linear": lambda: vits.models.linear(DIM),
    "logistic": lambda: vits.models.logistic(DIM),
    "poisson": lambda: vits.models.poisson(DIM),
    "mlp": lambda: vits.models.mlp(DIM, hidden=(4,)),
    "custom": lambda: vits.models.custom(
        lambda theta, features: jnp.tanh(features @ theta), gaussian_nll, dim=DIM, num_params=DIM
    ),
}

CLAIMED = [
    (name, model)
    for name, row in catalogue.ALGORITHMS.items()
    for model in MODELS
    if (model == "mlp" if row.networks_only else model == "linear" or not row.linear_only)
]
REFUSED = [
    (name, model)
    for name, row in catalogue.ALGORITHMS.items()
    for model in MODELS
    if row.linear_only and model != "linear"
]


def policy_of(name, model):
    own = {"num_arms": ARMS} if catalogue.algorithm(name).own_posteriors else {}
    return vits.make(name, MODELS[model](), **own)


def observation(i, model="linear", reward=None):
    arms = jax.random.normal(jax.random.fold_in(jax.random.key(7), i), (ARMS, DIM))
    rewards = {"logistic": float(i % 2), "poisson": float(i % 3)}
    value = rewards.get(model, 0.5 - 0.1 * i) if reward is None else reward
    return Observation(arms[i % ARMS], jnp.asarray(value), jnp.asarray(i % ARMS), arms)


class Played(NamedTuple):
    """All that the contract looks at, from one compiled program per algorithm and model."""

    state: Any
    infos: Any
    action: Any
    looped: Any
    looped_infos: Any
    batched: Any


@eqx.filter_jit
def play(policy, key, history, branches, arms):
    """Learn the history; then each branch by itself from there, one after the other and all at once."""
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(HISTORY))
    branch_keys = jax.random.split(jax.random.fold_in(key, 98), 2)[jnp.array([0, 0, 1])]

    def learn(state, row):
        is_past, key, observation = row
        new, info = policy.update(key, state, observation)
        return jax.tree.map(lambda x, y: jnp.where(is_past, x, y), new, state), (new, info)

    is_past = jnp.arange(HISTORY + len(branch_keys)) < HISTORY
    rows = jax.tree.map(lambda *parts: jnp.concatenate(parts), (keys, history), (branch_keys, branches))
    state, learnt = jax.lax.scan(learn, policy.init(key), (is_past, *rows))
    (_, infos), (looped, looped_infos) = (
        jax.tree.map(lambda x, s=s: x[s], learnt) for s in (slice(HISTORY), slice(HISTORY, None))
    )
    return Played(
        state=state,
        infos=infos,
        action=policy.act(jax.random.fold_in(key, 99), state, arms),
        looped=looped,
        looped_infos=looped_infos,
        batched=jax.vmap(policy.update, (0, None, 0))(branch_keys, state, branches)[0],
    )


def played(name, model):
    rows = [observation(i, model) for i in range(HISTORY)]
    fresh, poisoned = observation(HISTORY, model), observation(HISTORY, model, reward=jnp.nan)
    history, branches = (
        jax.tree.map(lambda *parts: jnp.stack(parts), *several) for several in (rows, [poisoned, fresh, fresh])
    )
    return play(policy_of(name, model), jax.random.key(0), history, branches, fresh.arms)


def floats(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]


def same(first, second):
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def close(first, second):
    pairs = zip(floats(first), floats(second), strict=True)
    return all(np.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in pairs)


LONG_TO_COMPILE = {
    ("vits_i", "mlp"),
    ("vits_i", "custom"),
    ("vits_i", "poisson"),
    ("vits_i", "logistic"),
    ("vits_ii", "custom"),
    ("vits_ii", "poisson"),
    ("vits_ii_hf", "mlp"),
    ("vits_ii_hf", "custom"),
    ("vits_ii_hf", "poisson"),
    ("vits_ii_hf", "logistic"),
    ("ensemble_ts", "mlp"),
    ("ensemble_ts", "custom"),
    ("ensemble_ts", "poisson"),
    ("ensemble_ts", "logistic"),
    ("fg_ts", "mlp"),
    ("fg_ts", "custom"),
    ("fg_ts", "poisson"),
    ("fg_ts", "logistic"),
    ("lmc_ts", "mlp"),
    ("lmc_ts", "custom"),
    ("vits_ng", "mlp"),
    ("vits_ng", "custom"),
    ("vits_ng", "poisson"),
    ("greedy", "mlp"),
}
"""Combinations whose parts all are tested in others too: they wait for the long run."""


@pytest.mark.parametrize(
    ("name", "model"),
    [pytest.param(*pair, marks=pytest.mark.heavy if tuple(pair) in LONG_TO_COMPILE else ()) for pair in CLAIMED],
)
def test_contract(name, model):
    found = played(name, model)
    # Finite, no update rejected, an arm that exists.
    assert all(np.isfinite(leaf).all() for leaf in floats(found.state))
    assert not np.any(found.infos.rejected)
    assert 0 <= int(found.action) < ARMS
    # Deterministic by key.
    assert same(played(name, model), found)
    # A poisoned observation leaves the state bitwise as it was and is reported; another one changes it.
    poisoned, fresh, _ = (jax.tree.map(lambda x, i=i: x[i], found.looped) for i in range(3))
    assert same(poisoned, found.state)
    assert bool(found.looped_infos.rejected[0])
    assert not bool(found.looped_infos.is_finite[0])
    assert same(fresh, found.state) != catalogue.algorithm(name).learns
    # (fresh, found.state)
    # vmap equals a loop, to rounding.
    assert close(found.batched, found.looped)


@pytest.mark.parametrize(("name", "model"), REFUSED)
def test_a_combination_that_is_not_defined_is_refused_with_alternatives(name, model):
    with pytest.raises(ValueError, match="needs a linear model") as error:
        policy_of(name, model)
    assert "vits_ii" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", list(catalogue.ALGORITHMS))
def test_unknown_hyperparameters_are_refused_with_the_nearest_name(name):
    with pytest.raises(ValueError, match=f"unknown hyperparameter of {name} 'inverse_temprature'"):
        vits.make(name, MODELS["linear"](), inverse_temprature=1.0)


def test_unknown_algorithms_are_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="unknown algorithm 'vits_iii'; did you mean 'vits_ii'"):
        vits.make("vits_iii", MODELS["linear"]())


@pytest.mark.parametrize(
    ("hyperparameters", "message"),
    [
        ({"inverse_temperature": 0.0}, "inverse_temperature must be a positive finite number, but is 0.0"),
        ({"prior_precision": -1.0}, "prior_precision must be a positive finite number, but is -1.0"),
        ({"prior_precision": float("nan")}, "prior_precision must be a positive finite number, but is nan"),
        ({"step_size": 0.0}, "step_size must be between 0 and 1, both excluded, but is 0.0"),
        ({"step_size": 1.5}, "step_size must be between 0 and 1, both excluded, but is 1.5"),
        ({"num_steps": 0}, "num_steps must be a whole number of at least 1, but is 0"),
        ({"draws": "antithetical"}, "unknown draws 'antithetical'; did you mean 'antithetic'"),
        ({"step_rule": "save"}, "unknown step_rule 'save'; did you mean 'safe'"),
    ],
)
def test_bad_hyperparameters_are_refused_with_their_value(hyperparameters, message):
    with pytest.raises(ValueError, match=message):
        vits.make("vits_ii", MODELS["linear"](), **hyperparameters)
