"""Covariances that are diagonal or of low rank: against matrices, and against the full covariance."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits.inference.covariance import Precision, Root
from vits.inference.square_root import by_hessian, by_stein
from vits.potentials.jacobian import Stacked
from vits.types import Observation, Reason

DIM = 8
P = Precision(jnp.arange(1.0, DIM + 1.0), jax.random.normal(jax.random.key(0), (3, DIM)))
MATRIX = np.asarray(P.matrix, float)


def test_a_structured_precision_is_the_matrix_that_it_stands_for():
    x = jax.random.normal(jax.random.key(1), (DIM,))
    np.testing.assert_allclose(P.times(x), MATRIX @ np.asarray(x), rtol=1e-5)
    np.testing.assert_allclose(P.solver.times(x), np.linalg.solve(MATRIX, np.asarray(x)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(P.variances, np.diagonal(np.linalg.inv(MATRIX)), rtol=1e-4)


def test_its_draws_have_its_covariance():
    draws = np.asarray(jax.vmap(P.draw)(jax.random.split(jax.random.key(0), 40_000)))
    np.testing.assert_allclose(np.cov(draws.T), np.linalg.inv(MATRIX), atol=0.02)


@pytest.mark.parametrize("rank", [0, 2, 5, DIM])
def test_a_mixture_has_the_right_diagonal_and_with_all_rows_it_is_exact(rank):
    rows = jax.random.normal(jax.random.key(2), (10, DIM))
    start = Precision(P.diagonal, jnp.zeros((rank, DIM)).at[:3].set(P.factor[:rank] if rank < 3 else P.factor))
    base = 0.3 * jnp.ones(DIM)
    mixed = np.asarray(start.mixed(jnp.asarray(0.25), base, Stacked(rows)).matrix)
    exact = 0.75 * np.asarray(start.matrix) + 0.25 * (0.3 * np.eye(DIM) + np.asarray(rows.T @ rows))
    np.testing.assert_allclose(np.diagonal(mixed), np.diagonal(exact), rtol=1e-4)
    if rank == DIM:
        np.testing.assert_allclose(mixed, exact, rtol=1e-3, atol=1e-3)


def mixed(rng):
    return rng.normal(size=(40, DIM)) @ (rng.normal(size=(DIM, DIM)) / np.sqrt(DIM) + np.eye(DIM))


def fewer_rows_than_parameters(rng):
    return rng.normal(size=(DIM // 2, DIM))


def different_units(rng):
    return mixed(rng) * 10.0 ** rng.uniform(-0.4, 0.4, size=DIM)


def a_common_factor(rng):
    return rng.normal(size=(20, DIM)) + 2.0 * rng.normal(size=(20, 1))


# The projection of `vits_ng` was chosen on the first three worlds, and on no other.
WORLDS = [(mixed, seed) for seed in (0, 1, 2)] + [
    (world, seed)
    for world in (mixed, fewer_rows_than_parameters, different_units, a_common_factor)
    for seed in (100, 101, 102)
]
ROUNDS = 700  # those after the data have features of zero, which say nothing: more steps on the same posterior


def linear_worlds():
    """Features (worlds, rounds, dim) and rewards (worlds, rounds), padded with zeros."""
    features, rewards = np.zeros((len(WORLDS), ROUNDS, DIM)), np.zeros((len(WORLDS), ROUNDS))
    for i, (world, seed) in enumerate(WORLDS):
        rng = np.random.default_rng(seed)
        phi = world(rng)
        features[i, : len(phi)], rewards[i, : len(phi)] = phi, phi @ rng.normal(size=DIM) + rng.normal(size=len(phi))
    return features, rewards


@eqx.filter_jit
def learned(policy, features, rewards):
    """Means, covariances, and how many updates were rejected, in each world."""

    def learn(state, row):
        state, info = policy.update(row[0], state, Observation(row[1], row[2]))
        return state, info.rejected

    def one(features, rewards):
        keys = jax.random.split(jax.random.key(1), len(rewards))
        state, rejected = jax.lax.scan(learn, policy.init(jax.random.key(0)), (keys, features, rewards))
        if hasattr(state, "root"):
            covariance = state.root.matrix @ state.root.matrix.T
        else:
            covariance = jnp.linalg.inv(state.precision.matrix)
        return state.mean, covariance, jnp.sum(rejected)

    return jax.lax.map(lambda world: one(*world), (features, rewards))


def divergence(covariance, mean, truth, truth_mean):
    """KL of N(mean, covariance) from the truth."""
    relative, away = covariance @ truth, mean - truth_mean
    return 0.5 * (np.trace(relative) - DIM - np.linalg.slogdet(relative)[1] + away @ truth @ away)


@pytest.mark.parametrize(
    ("algorithm", "ranks", "rounds"),
    [
        ("vits_ng", (0, 2, DIM), 110),
        ("vits_ii", (0, 2, DIM), ROUNDS),
        ("vits_ii_hf", (0, 3), ROUNDS),
        pytest.param("vits_ng", (0, 1, 2, 4, 6, DIM), 110, marks=pytest.mark.heavy),
        pytest.param("vits_ii", (0, 1, 2, 4, 6, DIM), ROUNDS, marks=pytest.mark.heavy),
    ],
)
def test_on_linear_models_diagonal_is_optimal_and_rank_only_helps(algorithm, ranks, rounds):
    features, rewards = (x[:, :rounds] for x in linear_worlds())
    truth = np.eye(DIM) + np.swapaxes(features, 1, 2) @ features
    means = np.linalg.solve(truth, np.swapaxes(features, 1, 2) @ rewards[:, :, None])[:, :, 0]
    deviations = np.sqrt(np.diagonal(np.linalg.inv(truth), axis1=1, axis2=2))
    divergences = []
    for rank in ranks:
        options = {"covariance": "diagonal"} if rank == 0 else {"covariance": "low_rank", "rank": rank}
        policy = vits.make(algorithm, vits.models.linear(DIM), **options)
        mean, covariance, rejected = (
            np.asarray(x, float) for x in learned(policy, jnp.asarray(features, float), jnp.asarray(rewards, float))
        )
        assert not rejected.any()
        assert np.max(np.abs(mean - means) / deviations) < 0.05
        if rank == 0:
            variances = np.diagonal(covariance, axis1=1, axis2=2)
            np.testing.assert_allclose(variances, 1.0 / np.diagonal(truth, axis1=1, axis2=2), rtol=1e-4)
        divergences.append([divergence(*each) for each in zip(covariance, mean, truth, means, strict=True)])
    for world, found in zip(WORLDS, np.transpose(divergences), strict=True):
        assert all(later <= 1.02 * earlier + 1e-3 for earlier, later in itertools.pairwise(found)), (world, found)
        assert ranks[-1] < DIM or found[-1] < 1e-3, (world, found)  # with all rows, the full covariance


def test_with_all_rows_the_steps_reach_what_the_full_covariance_reaches_on_a_logistic_model():
    rng = np.random.default_rng(7)
    features = jnp.asarray(rng.normal(size=(1, ROUNDS, DIM)) * (np.arange(ROUNDS) < 60)[None, :, None], float)
    rewards = jnp.asarray((rng.random((1, ROUNDS)) < 0.5) * (np.arange(ROUNDS) < 60), float)
    model = vits.models.logistic(DIM)
    # Where all derivatives are expectations, there is one optimum without noise: that of natural gradients.
    exact = vits.make("vits_ng", model, capacity=ROUNDS)
    update = eqx.filter_jit(exact.update)
    state = exact.init(jax.random.key(0))
    for t in range(60):
        state, _ = update(jax.random.key(t), state, Observation(features[0, t], rewards[0, t]))
    wanted = np.asarray(state.sqrt_cov @ state.sqrt_cov.T)
    for algorithm in ("vits_ii", "vits_ii_hf"):
        policy = vits.make(algorithm, model, covariance="low_rank", rank=DIM, capacity=ROUNDS)
        mean, covariance, rejected = learned(policy, features, rewards)
        assert not rejected.any()
        np.testing.assert_allclose(mean[0], state.mean, atol=0.1 * np.sqrt(np.diagonal(wanted)).max())
        np.testing.assert_allclose(covariance[0], wanted, atol=0.1 * np.diagonal(wanted).max())


def test_a_root_is_the_matrix_that_it_stands_for():
    root = Root(jnp.arange(1.0, DIM + 1.0), jax.random.normal(jax.random.key(3), (3, DIM)))
    B = np.asarray(root.matrix, float)
    covariance = B @ B.T
    e = jax.random.normal(jax.random.key(4), (5, DIM + 3))
    np.testing.assert_allclose(root.times(e), np.asarray(e) @ B.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(root.variances, np.diagonal(covariance), rtol=1e-5)
    pattern = np.linalg.solve(covariance, B)
    found = root.precision_times()
    np.testing.assert_allclose(found.deviations, np.diagonal(pattern[:, :DIM]), rtol=1e-4)
    np.testing.assert_allclose(found.factor, pattern[:, DIM:].T, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("rank", [0, 3])
def test_hessian_free_steps_see_the_curvature_of_the_pattern(rank):
    """On a quadratic potential, with all directions, Stein's identity gives A B as the Hessian does."""
    posterior = vits.make("vits_ii", vits.models.linear(DIM)).posterior
    data = posterior.potential.init()
    for t in range(9):
        phi = jax.random.normal(jax.random.key(t), (DIM,))
        data = posterior.potential.observe(data, Observation(phi, phi[0]))
    mean = jax.random.normal(jax.random.key(20), (DIM,))
    root = Root(jnp.arange(1.0, DIM + 1.0), jax.random.normal(jax.random.key(21), (rank, DIM)))
    e = jnp.sqrt(float(DIM + rank)) * jnp.eye(DIM + rank)
    for slope in (by_hessian, by_stein):
        grad, AB = slope(posterior.potential, data, mean, root, e, True)
        np.testing.assert_allclose(grad, posterior.potential.grad(data, mean), rtol=1e-4, atol=1e-3)
        full = np.asarray(data.precision @ root.matrix)
        np.testing.assert_allclose(AB.deviations, np.diagonal(full[:, :DIM]), rtol=1e-4)
        np.testing.assert_allclose(AB.factor, full[:, DIM:].T, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("algorithm", ["vits_ii", "vits_ii_hf"])
@pytest.mark.parametrize("options", [{"covariance": "diagonal"}, {"covariance": "low_rank", "rank": 3}])
def test_networks_learn_and_narrow_by_steps_on_a_pattern(algorithm, options):
    model = vits.models.mlp(6, hidden=(40,))
    policy = vits.make(
        algorithm, model, inverse_temperature=10.0, prior_precision=20.0, minibatch=16, capacity=128, **options
    )
    features = jax.random.normal(jax.random.key(1000), (120, 6))

    def learn(state, row):
        state, info = policy.update(row[0], state, Observation(row[1], row[1][0]))
        return state, info.rejected

    start = policy.init(jax.random.key(0))
    rows = jax.random.split(jax.random.key(5), 120), features
    state, rejected = eqx.filter_jit(lambda: jax.lax.scan(learn, start, rows))()
    assert not rejected.any()

    def loss(theta):
        outputs = jax.vmap(model.output, (None, 0))(theta, features)
        return float(jnp.mean((outputs - features[:, 0]) ** 2))

    assert loss(state.mean) < 0.5 * loss(start.mean)
    np.testing.assert_allclose(start.root.variances, 1.0 / 200.0, rtol=1e-5)
    assert jnp.all(state.root.variances < 1.2 / 200.0)
    assert jnp.min(state.root.variances) < 0.7 / 200.0
    assert max(leaf.size for leaf in jax.tree.leaves(state)) < 0.1 * model.num_params**2


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
@pytest.mark.parametrize("algorithm", ["vits_ng", "vits_ii", "vits_ii_hf"])
def test_covariances_that_cannot_be_are_refused(algorithm, options, message):
    with pytest.raises(ValueError, match=message):
        vits.make(algorithm, vits.models.linear(3), **options)


def test_an_inverse_that_is_exact_is_not_chosen():
    with pytest.raises(ValueError, match="inverse must be left out where the covariance is diagonal, whose inverse is"):
        vits.make("vits_ii", vits.models.linear(3), covariance="diagonal", inverse="frozen")


@pytest.mark.parametrize("covariance", ["diagonal", "low_rank"])
def test_a_tolerance_that_no_step_would_look_at_is_refused(covariance):
    with pytest.raises(ValueError, match=f"tolerance must be left out .* covariance is {covariance}, but is 0.5"):
        vits.make("vits_ng", vits.models.linear(30), covariance=covariance, tolerance=0.5)


def test_folded_observations_and_indefinite_curvature_are_refused():
    with pytest.raises(ValueError, match="must be 'full' where observations are folded, but is 'diagonal'"):
        vits.make("vits_ng", vits.models.logistic(3), covariance="diagonal", fold_after=9)
    with pytest.raises(ValueError, match="covariance 'diagonal' needs the curvature 'gauss_newton'"):
        vits.make("vits_ng", vits.models.mlp(3), covariance="diagonal", curvature="exact")


@pytest.mark.parametrize("variance", [1.0, 30.0])
def test_a_precision_beyond_what_the_working_precision_resolves_is_rejected(variance):
    """What is accepted has the right variances; Woodbury's identity loses them where data outweigh the prior by far."""
    rng, eta = np.random.default_rng(0), 1e4
    rows = rng.normal(size=(60, 5)).astype(np.float32)
    policy = vits.make(
        "vits_ng",
        vits.models.linear(5),
        inverse_temperature=eta,
        prior=(0.0, variance),
        covariance="low_rank",
        rank=5,
        capacity=len(rows),
    )

    def step(state, t):
        observation = Observation(jnp.asarray(rows)[t], jnp.asarray(rows.sum(axis=1))[t])
        state, info = policy.update(jax.random.fold_in(jax.random.key(0), t), state, observation)
        return state, info.reason

    state, reasons = eqx.filter_jit(jax.lax.scan)(step, policy.init(jax.random.key(0)), jnp.arange(len(rows)))
    accepted = np.asarray(reasons) == 0
    assert set(np.asarray(reasons)) == {0, Reason.DROWNED}
    known = rows[accepted].astype(float)
    exact = np.diagonal(np.linalg.inv(np.eye(5) / variance + eta * known.T @ known))
    np.testing.assert_allclose(state.precision.variances, exact, rtol=0.1)
