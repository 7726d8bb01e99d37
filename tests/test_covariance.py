"""Covariances that are diagonal or of low rank: against matrices, and against the full covariance."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits.inference.covariance import Precision
from vits.types import Observation

DIM = 8
P = Precision(jnp.arange(1.0, DIM + 1.0), jax.random.normal(jax.random.key(0), (3, DIM)))
MATRIX = np.asarray(P.matrix, float)


def test_a_structured_precision_is_the_matrix_that_it_stands_for():
    x = jax.random.normal(jax.random.key(1), (DIM,))
    np.testing.assert_allclose(P.times(x), MATRIX @ np.asarray(x), rtol=1e-5)
    np.testing.assert_allclose(P.solve(x), np.linalg.solve(MATRIX, np.asarray(x)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(P.variances, np.diagonal(np.linalg.inv(MATRIX)), rtol=1e-4)


def test_its_draws_have_its_covariance():
    draws = np.asarray(jax.vmap(P.draw)(jax.random.split(jax.random.key(0), 40_000)))
    np.testing.assert_allclose(np.cov(draws.T), np.linalg.inv(MATRIX), atol=0.02)


@pytest.mark.parametrize("rank", [0, 2, 5, DIM])
def test_a_mixture_has_the_right_diagonal_and_with_all_rows_it_is_exact(rank):
    rows = jax.random.normal(jax.random.key(2), (10, DIM))
    start = Precision(P.diagonal, jnp.zeros((rank, DIM)).at[:3].set(P.factor[:rank] if rank < 3 else P.factor))
    base = 0.3 * jnp.ones(DIM)
    mixed = np.asarray(start.mixed(jnp.asarray(0.25), base, rows).matrix)
    exact = 0.75 * np.asarray(start.matrix) + 0.25 * (0.3 * np.eye(DIM) + np.asarray(rows.T @ rows))
    np.testing.assert_allclose(np.diagonal(mixed), np.diagonal(exact), rtol=1e-4)
    if rank == DIM:
        np.testing.assert_allclose(mixed, exact, rtol=1e-3, atol=1e-3)


def linear_world(seed):
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(DIM, DIM)) / np.sqrt(DIM) + np.eye(DIM)
    features = rng.normal(size=(40, DIM)) @ mix
    return features, features @ rng.normal(size=DIM) + rng.normal(size=40)


def learned(features, rewards, **options):
    policy = vits.make("vits_ng", vits.models.linear(DIM), **options)
    state, update = policy.init(jax.random.key(0)), eqx.filter_jit(policy.update)
    for t, (phi, r) in enumerate(zip(features, rewards, strict=True)):
        state, info = update(jax.random.key(t), state, Observation(jnp.asarray(phi, float), jnp.asarray(r, float)))
        assert not info.rejected
    for t in range(60):  # features of zero say nothing: more steps on the same posterior
        state, _ = update(jax.random.key(100 + t), state, Observation(jnp.zeros(DIM), jnp.zeros(())))
    return policy, state


def divergence(precision, mean, truth, truth_mean):
    """KL of N(mean, precision^-1) from the truth."""
    relative = np.linalg.solve(precision, truth)
    away = mean - truth_mean
    return 0.5 * (np.trace(relative) - DIM - np.linalg.slogdet(relative)[1] + away @ truth @ away)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_on_linear_models_diagonal_is_optimal_and_rank_only_helps(seed):
    features, rewards = linear_world(seed)
    truth = np.eye(DIM) + features.T @ features
    mean = np.linalg.solve(truth, features.T @ rewards)
    found = {}
    for rank in (0, 1, 2, 4, 6, DIM):
        options = {"covariance": "diagonal"} if rank == 0 else {"covariance": "low_rank", "rank": rank}
        _, state = learned(features, rewards, **options)
        found[rank] = divergence(np.asarray(state.precision.matrix, float), np.asarray(state.mean, float), truth, mean)
        deviations = np.sqrt(np.diagonal(np.linalg.inv(truth)))
        assert np.max(np.abs(np.asarray(state.mean) - mean) / deviations) < 0.05
        if rank == 0:
            np.testing.assert_allclose(1.0 / state.diagonal, 1.0 / np.diagonal(truth), rtol=1e-4)
        if rank == DIM:
            np.testing.assert_allclose(state.precision.matrix, truth, rtol=1e-3, atol=1e-2)
    divergences = [found[rank] for rank in sorted(found)]
    assert all(later <= 1.02 * earlier + 1e-3 for earlier, later in itertools.pairwise(divergences))
    assert divergences[-1] < 1e-3


def test_a_network_of_fifty_thousand_parameters_learns_with_few_rows():
    policy = vits.make(
        "vits_ng",
        vits.models.mlp(20, hidden=(2300,)),
        inverse_temperature=10.0,
        prior_precision=200.0,
        covariance="low_rank",
        rank=5,
        minibatch=16,
        num_steps=3,
        capacity=64,
    )
    state, update = policy.init(jax.random.key(0)), eqx.filter_jit(policy.update)
    assert max(leaf.size for leaf in jax.tree.leaves(state)) <= 6 * policy.model.num_params

    def loss(theta):
        features = jax.random.normal(jax.random.key(7), (32, 20))
        outputs = jax.vmap(policy.model.output, (None, 0))(theta, features)
        return float(jnp.mean((outputs - features[:, 0]) ** 2))

    before = loss(state.mean)
    for t in range(30):
        features = jax.random.normal(jax.random.key(1000 + t), (20,))
        state, info = update(jax.random.key(t), state, Observation(features, features[0]))
        assert not info.rejected
    assert loss(state.mean) < 0.9 * before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"covariance": "low_rank", "rank": 5}, "rank must be at most the 3 parameters of the model, but is 5"),
        ({"covariance": "diagonal", "rank": 2}, "rank must be left out where the covariance is diagonal, but is 2"),
        ({"covariance": "lowrank"}, "unknown covariance 'lowrank'; did you mean 'low_rank'"),
        ({"covariance": "diagonal", "prior": (0.0, np.eye(3))}, "must be 'full' where the prior's covariance is a mat"),
    ],
)
def test_covariances_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        vits.make("vits_ng", vits.models.linear(3), **options)


def test_folded_observations_and_indefinite_curvature_are_refused():
    with pytest.raises(ValueError, match="must be 'full' where observations are folded, but is 'diagonal'"):
        vits.make("vits_ng", vits.models.logistic(3), covariance="diagonal", fold_after=9)
    with pytest.raises(ValueError, match="covariance 'diagonal' needs the curvature 'gauss_newton'"):
        vits.make("vits_ng", vits.models.mlp(3), covariance="diagonal", curvature="exact")


@pytest.mark.parametrize("algorithm", ["vits_ii", "vits_ii_hf"])
def test_algorithms_that_follow_a_square_root_keep_a_full_covariance(algorithm):
    with pytest.raises(ValueError, match=f"covariance must be 'full' for {algorithm}, .* use vits_ng"):
        vits.make(algorithm, vits.models.linear(3), covariance="diagonal")
