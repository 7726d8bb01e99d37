"""Wide generalised linear models start a round from what the last one found, and fold without decompositions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits import linalg
from vits.potentials import Centre
from vits.potentials.glm import NARROW
from vits.types import Observation

DIM, COUNT = NARROW + 16, 40
OPTIONS = [{}, {"fold_after": 1}, {"fold_after": 8}]


def observations(dim=DIM, count=COUNT):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(count, dim)) / np.sqrt(dim / 9.0)
    rewards = rng.random(count) < 1.0 / (1.0 + np.exp(-features @ rng.normal(size=dim)))
    return Observation(jnp.asarray(features, float), jnp.asarray(rewards, float))


def learned(name, count=COUNT, **options):
    """The posterior and its state after some observations, none of which was rejected."""
    posterior = vits.make(name, vits.models.logistic(DIM), **options).posterior
    step = eqx.filter_jit(lambda state, row: posterior.update(jax.random.key(1), state, Observation(*row)))
    state, rows = posterior.init(jax.random.key(0)), observations()
    for t in range(count):
        state, info = step(state, (rows.features[t], rows.reward[t]))
        assert info.reason == 0
    return posterior, state


@pytest.mark.parametrize("rank", [1, 5])
def test_a_root_is_updated_by_rank(rank):
    rng = np.random.default_rng(rank)
    B, rows, weights = rng.normal(size=(7, 7)), rng.normal(size=(rank, 7)), rng.random(rank)
    root = np.asarray(linalg.updated_root(*(jnp.asarray(x, float) for x in (B, rows, weights))), np.float64)
    precision = np.linalg.inv(B @ B.T) + rows.T @ np.diag(weights) @ rows
    np.testing.assert_allclose(root @ root.T @ precision, np.eye(7), atol=1e-3)


def test_an_update_that_rounding_would_drown_is_no_number():
    huge = 1e7 * jnp.eye(1, 5)
    assert not np.any(np.isfinite(linalg.updated_root(jnp.eye(5), huge, jnp.ones(1))))


@pytest.mark.parametrize("options", OPTIONS)
def test_laplace_knows_the_curvature_at_its_mode(options):
    posterior, state = learned("laplace_ts", **options)
    hessian = np.asarray(posterior.potential.hessian(state.data, state.mean), np.float64)
    B = np.asarray(state.sqrt_cov, np.float64)
    np.testing.assert_allclose(B @ B.T @ hessian, np.eye(DIM), atol=2e-4)


@pytest.mark.parametrize("options", OPTIONS)
def test_a_round_of_natural_gradients_starts_from_what_a_fresh_look_finds(options):
    posterior, state = learned("vits_ng", **options)
    centre = Centre(state.mean, state.sqrt_cov)
    new = Observation(jnp.ones(DIM) / 10.0, jnp.ones(()))
    data = posterior.potential.observe(state.data, new, centre)
    fresh = posterior.potential.expectations(jax.random.key(0), data, *centre)
    known = posterior._known(state, new, centre)
    np.testing.assert_allclose(known.hessian, fresh.hessian, atol=2e-5)
    np.testing.assert_allclose(known.grad, fresh.grad, atol=2e-5)


@pytest.mark.parametrize("fold_after", [1, 8])
def test_the_root_of_what_was_folded_is_kept(fold_after):
    _, state = learned("laplace_ts", fold_after=fold_after)
    precision, _, root = (np.asarray(x, np.float64) for x in state.data.folded)
    np.testing.assert_allclose(root @ root.T @ precision, np.eye(DIM), atol=1e-4)


@pytest.mark.parametrize("options", OPTIONS)
def test_a_rejected_update_changes_nothing(options):
    for name in ("laplace_ts", "vits_ng"):
        posterior, state = learned(name, count=3, **options)
        for features in (jnp.full(DIM, 1e20), jnp.full(DIM, jnp.nan)):
            after, info = posterior.update(jax.random.key(0), state, Observation(features, jnp.ones(())))
            assert info.reason > 0
            assert all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (state, after)), strict=True))


def test_folding_with_laplace_decomposes_nothing():
    def program(dim):
        posterior = vits.make("laplace_ts", vits.models.logistic(dim), fold_after=1).posterior
        state = posterior.init(jax.random.key(0))
        row = Observation(jnp.ones(dim), jnp.ones(()))
        return jax.jit(lambda *args: posterior.update(*args)).lower(jax.random.key(0), state, row).as_text()

    assert "potrf" in program(NARROW)
    assert "potrf" not in program(NARROW + 1)
    assert "trsm" not in program(NARROW + 1)


def test_narrow_models_keep_nothing_more():
    make = vits.make("vits_ng", vits.models.logistic(NARROW), fold_after=1).posterior
    state = make.init(jax.random.key(0))
    assert state.expected is None
    assert state.data.folded.root is None
