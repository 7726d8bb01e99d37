"""Curvatures and priors: products, bounds and draws against the matrices that they stand for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits.inference.variational import frozen_inverse
from vits.potentials import Dense, LowRank, Prior, curvature, gaussian_prior, potential, ridge_prior
from vits.potentials.jacobian import Stacked
from vits.types import Observation

DIM = 7
LEFT, RIGHT = jax.random.normal(jax.random.key(0), (2, 3, DIM))
ROOT = jax.random.normal(jax.random.key(1), (DIM, DIM))
X = jax.random.normal(jax.random.key(2), (DIM, DIM))
BASES = {"number": jnp.asarray(0.7), "diagonal": jnp.arange(1.0, DIM + 1.0), "matrix": ROOT @ ROOT.T, "none": None}


@pytest.mark.parametrize("base", BASES)
def test_a_low_rank_curvature_is_the_matrix_that_it_stands_for(base):
    A = LowRank(LEFT, RIGHT, BASES[base])
    matrix = LEFT.T @ RIGHT + (0.0 if base == "none" else curvature.as_matrix(BASES[base], DIM))
    np.testing.assert_allclose(A.matrix, matrix, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(A.times(X), matrix @ X, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(A.gap_times(X), (X @ X.T - matrix).T @ X, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("base", BASES)
def test_the_largest_curvature_is_bounded_and_not_by_much(base):
    A = LowRank(LEFT, RIGHT, BASES[base])
    parts = [np.linalg.norm(LEFT.T @ RIGHT, 2), 0.0 if base == "none" else np.linalg.norm(A.matrix - LEFT.T @ RIGHT, 2)]
    assert np.linalg.norm(A.matrix, 2) <= 1.0001 * float(A.largest()) <= 1.25 * sum(parts)
    symmetric = LowRank(LEFT, 2.0 * LEFT)
    assert float(symmetric.largest()) == pytest.approx(float(Dense(symmetric.matrix).largest()), rel=1e-4)


def test_no_curvature_at_all_has_a_bound_of_zero():
    assert float(LowRank(jnp.zeros((3, DIM)), jnp.zeros((3, DIM))).largest()) < 1e-9


@pytest.mark.parametrize("base", ["number", "diagonal", "matrix"])
def test_a_prior_in_any_form_is_the_same_gaussian(base):
    prior = Prior(jnp.ones(DIM), BASES[base])
    matrix = curvature.as_matrix(BASES[base], DIM)
    theta = jnp.arange(DIM) / DIM
    np.testing.assert_allclose(prior.matrix, matrix)
    np.testing.assert_allclose(prior.grad(theta), matrix @ (theta - 1.0), rtol=1e-5, atol=1e-5)
    root = prior.spread(jnp.eye(DIM)).T
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(np.asarray(matrix)), rtol=2e-3, atol=1e-4)


def test_priors_are_stored_as_numbers_or_diagonals_unless_a_matrix_is_given():
    assert ridge_prior(DIM, inverse_temperature=2.0, prior_precision=3.0).precision.shape == ()
    assert gaussian_prior(DIM, 0.0, 2.0).precision.shape == ()
    assert gaussian_prior(DIM, 0.0, np.ones(DIM)).precision.shape == (DIM,)
    assert gaussian_prior(DIM, 0.0, np.eye(DIM)).precision.shape == (DIM, DIM)


def test_the_rows_of_a_minibatch_make_the_same_curvature_as_the_matrix():
    model = vits.models.mlp(3, hidden=(8, 8))
    options = {"inverse_temperature": 2.0, "prior_precision": 3.0, "curvature": "gauss_newton", "capacity": 16}
    sampled, whole = potential(model, minibatch=16, **options), potential(model, **options)
    data, all_data = sampled.init(), whole.init()
    for t in range(10):
        features = jax.random.normal(jax.random.key(t), (3,))
        observation = Observation(features, features[0] ** 2)
        data, all_data = sampled.observe(data, observation), whole.observe(all_data, observation)
    seen = sampled.minibatch(jax.random.key(0), data)  # 16 hold all ten, with weights of 1 and 0
    thetas = jax.random.normal(jax.random.key(1), (2, model.num_params))
    found, expected = (U.derivatives(d, thetas[:1]) for U, d in ((sampled, seen), (whole, all_data)))
    assert isinstance(found.curvature, LowRank)
    assert isinstance(expected.curvature, Dense)
    np.testing.assert_allclose(found.grads, expected.grads, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.curvature.matrix, expected.curvature.matrix, rtol=1e-4, atol=1e-4)
    pair = [U.derivatives(d, thetas).curvature.matrix for U, d in ((sampled, seen), (whole, all_data))]
    np.testing.assert_allclose(*pair, rtol=1e-4, atol=1e-4)
    wide = jnp.eye(model.num_params)
    bounds = [float(U.largest_curvature(d, thetas[0], wide)) for U, d in ((sampled, seen), (whole, all_data))]
    assert bounds[0] == pytest.approx(bounds[1], rel=0.2)


def test_the_frozen_inverse_knows_a_bound_on_its_error():
    B = ROOT + 3.0 * jnp.eye(DIM)
    D = jnp.linalg.inv(B).T @ (jnp.eye(DIM) + 0.05 * X)
    finished = frozen_inverse.finish(B, D)
    error = np.linalg.norm(finished.sqrt_precision.T @ B - np.eye(DIM))
    assert 0.0 < error <= float(finished.error) < np.linalg.norm(D.T @ B - np.eye(DIM))


NETWORKS = {
    "hidden layers": vits.models.mlp(5, hidden=(30, 7)),
    "outputs": vits.models.mlp(5, hidden=(8,), outputs=30),
    "no hidden layer": vits.models.mlp(70, hidden=()),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_multiplies_by_layers_as_with_the_rows_of_its_observations(name):
    model = NETWORKS[name]
    options = {"inverse_temperature": 2.0, "prior_precision": 3.0, "minibatch": 16}
    by_rows, by_layers = (potential(model, **options, by_layers=by_layers) for by_layers in (False, True))
    data = by_rows.init()
    for t in range(20):
        x = jax.random.normal(jax.random.key(t), (model.dim,))
        x = x.at[-1].set(float(t)) if model.num_heads else x
        data = by_rows.observe(data, Observation(x, x[0]))
    seen = by_rows.minibatch(jax.random.key(0), data)
    thetas = 0.5 * jax.random.normal(jax.random.key(5), (2, model.num_params))
    expected, found = (U.derivatives(seen, thetas).curvature for U in (by_rows, by_layers))
    assert isinstance(expected, LowRank)
    assert isinstance(found, curvature.OfObservations)
    X = jax.random.normal(jax.random.key(6), (model.num_params, 3))
    np.testing.assert_allclose(found.matrix, expected.matrix, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.diagonal, expected.diagonal, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found.times(X), expected.times(X), rtol=1e-3, atol=1e-3)
    D = jnp.diag(jnp.linspace(0.5, 1.0, model.num_params))
    np.testing.assert_allclose(found.gap_times(D), expected.gap_times(D), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(found.largest(), expected.largest(), rtol=1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_products_of_layers_are_those_of_the_rows(name):
    model = NETWORKS[name]
    U = potential(model, inverse_temperature=2.0, prior_precision=3.0, minibatch=16, by_layers=True)
    data = U.init()
    for t in range(16):
        x = jax.random.normal(jax.random.key(t), (model.dim,)).at[-1].set(float(t))
        data = U.observe(data, Observation(x, x[0]))
    theta = 0.5 * jax.random.normal(jax.random.key(5), (1, model.num_params))
    layers = U.derivatives(U.minibatch(jax.random.key(0), data), theta).curvature.jacobian
    rows = np.asarray(layers.mixtures(jnp.eye(16)), float)
    scale, weights = np.linspace(0.5, 1.5, model.num_params), np.linspace(-1.0, 1.0, 16)
    for jacobian in (layers, Stacked(jnp.asarray(rows, float))):
        assert jacobian.size == 16
        np.testing.assert_allclose(jacobian.gram(), rows @ rows.T, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(
            jacobian.gram(jnp.asarray(scale, float)), rows * scale @ rows.T, rtol=1e-3, atol=1e-3
        )
        np.testing.assert_allclose(
            jacobian.squares(jnp.asarray(weights, float)), weights @ rows**2, rtol=1e-3, atol=1e-3
        )
        scaled = jacobian.scaled(jnp.asarray(weights, float))
        np.testing.assert_allclose(scaled.mixtures(jnp.eye(16)), weights[:, None] * rows, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(
            jacobian.times(jnp.asarray(scale, float)[None])[0], rows @ scale, rtol=1e-3, atol=1e-3
        )
