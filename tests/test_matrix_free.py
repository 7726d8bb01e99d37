"""What is done without matrices: bounds, Newton's method, large models, and the refusal of what would not fit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits import validate
from vits.inference.newton import minimum_free, solved
from vits.potentials import leading, potential
from vits.types import Observation

DIM = 100
SCALES = jnp.exp(-jnp.arange(float(DIM)) / 10.0)


def observations(count, *, surprise=None):
    for t in range(count):
        features = SCALES * jax.random.normal(jax.random.key(t), (DIM,))
        if t == surprise:
            features = 30.0 * jnp.eye(DIM)[-1]
        yield Observation(features, jnp.asarray(float(t % 2)))


@pytest.mark.parametrize("options", [{}, {"window": 20}, {"fold_after": 20}])
@pytest.mark.parametrize("surprise", [None, 25])
def test_the_followed_bound_is_above_the_largest_eigenvalue_and_not_far(options, surprise):
    U = potential(vits.models.logistic(DIM), inverse_temperature=2.0, prior_precision=1.0, follows=True, **options)
    data, observe = U.init(), eqx.filter_jit(U.observe)
    assert data.bound is None
    centre = vits.potentials.Centre(jnp.zeros(DIM))
    rows = []
    for observation in observations(40, surprise=surprise):
        data = observe(data, observation, centre)
        rows.append(observation.features)
        kept = np.stack(rows)[-options.get("window", 99) :]
        largest = np.linalg.eigvalsh(2.0 * np.eye(DIM) + 0.5 * kept.T @ kept)[-1]
        assert largest <= 1.001 * float(U.largest_curvature(data, jnp.zeros(DIM))) <= 2.1 * largest


def test_on_a_minibatch_the_bound_comes_from_power_iteration():
    U = potential(vits.models.logistic(DIM), inverse_temperature=2.0, prior_precision=1.0, minibatch=64, follows=True)
    data = U.init()
    for observation in observations(40):
        data = U.observe(data, observation)
    seen = U.minibatch(jax.random.key(0), data)
    largest = np.linalg.eigvalsh(U.hessian(seen, jnp.zeros(DIM)))[-1]
    assert largest <= float(U.largest_curvature(seen, jnp.zeros(DIM))) <= 2.1 * largest


def test_counts_with_many_features_have_a_bound_without_a_matrix():
    U = potential(vits.models.poisson(DIM), inverse_temperature=1.0, prior_precision=1.0)
    data = U.init()
    for observation in observations(40):
        data = U.observe(data, observation)
    theta = 0.1 * jnp.ones(DIM)
    assert np.linalg.eigvalsh(U.hessian(data, theta))[-1] <= float(U.largest_curvature(data, theta))


def test_power_iteration_finds_most_of_the_largest_eigenvalue():
    matrix = jnp.diag(jnp.arange(1.0, 101.0))
    found = float(leading.power_iteration(lambda x: matrix @ x, jnp.zeros(100)))
    assert 66.0 <= found <= 100.0


def test_conjugate_gradients_solve_and_stop_at_negative_curvature():
    matrix = jnp.diag(jnp.asarray([1.0, 2.0, 4.0]))
    x, met_negative = solved(lambda v: matrix @ v, jnp.ones(3))
    np.testing.assert_allclose(matrix @ x, np.ones(3), atol=0.1)
    assert not met_negative
    x, met_negative = solved(lambda v: -(matrix @ v), jnp.ones(3))
    assert met_negative
    assert float(jnp.ones(3) @ x) > 0.0


def test_newton_without_a_matrix_finds_the_mode():
    U = potential(vits.models.logistic(DIM), inverse_temperature=1.0, prior_precision=1.0)
    data = U.init()
    for observation in observations(60):
        data = U.observe(data, observation)
    end = minimum_free(lambda theta: U.grad(data, theta), jnp.zeros(DIM), tolerance=0.01, max_steps=20)
    deviations = np.sqrt(np.diagonal(np.linalg.inv(U.hessian(data, end.point.theta))))
    assert np.linalg.norm(np.asarray(end.point.grad) * deviations) < 0.05


def test_a_wide_linear_ensemble_keeps_no_matrix_and_fits_like_a_narrow_one():
    wide = vits.make("ensemble_ts", vits.models.linear(1100), num_members=3, capacity=8)
    state = wide.init(jax.random.key(0))
    assert max(leaf.size for leaf in jax.tree.leaves(state)) < 1100 * 1100
    features = jnp.zeros(1100).at[3].set(2.0)
    update = eqx.filter_jit(wide.update)
    for t in range(8):
        state, info = update(jax.random.key(t), state, Observation(features, jnp.asarray(4.0)))
        assert not info.rejected
    # Eight rewards of 4 at a feature of 2, prior N(0, 1): posterior mean 64 / 33, deviation 1 / sqrt(33).
    np.testing.assert_allclose(state.members[:, 3], 64.0 / 33.0, atol=5.0 / np.sqrt(33.0))


PRODUCT = vits.models.custom(
    lambda params, phi: params[:3] @ phi, loss=lambda f, r: 0.5 * (f - r) ** 2, dim=3, num_params=100_000
)
"""A model that keeps a row of parameters for each observation of a minibatch."""


@pytest.mark.parametrize("algorithm", ["lmc_ts", "fg_ts"])
def test_chains_of_large_networks_keep_nothing_quadratic(algorithm):
    model = vits.models.mlp(50, hidden=(900,))  # 46,801 parameters: a matrix would take 8.8 GB
    policy = vits.make(algorithm, model, num_steps=2, capacity=4, **({"num_arms": 4} if algorithm == "fg_ts" else {}))
    state = policy.init(jax.random.key(0))
    features = jnp.ones(50) / 7.0
    observation = Observation(features, jnp.ones(()), arms=jnp.stack([features, -features]))
    state, info = eqx.filter_jit(policy.update)(jax.random.key(1), state, observation)
    assert not info.rejected
    assert max(leaf.size for leaf in jax.tree.leaves(state)) < 100_000


@pytest.mark.parametrize("algorithm", ["vits_i", "vits_ii", "vits_ii_hf", "vits_ng", "laplace_ts"])
def test_matrices_that_would_not_fit_are_refused_before_they_are_made(algorithm):
    with pytest.raises(ValueError, match=r"46,801 parameters needs \d+\.\d GB, more than the limit of .* GB .*lmc_ts"):
        vits.make(algorithm, vits.models.mlp(50, hidden=(900,)))


@pytest.mark.parametrize(
    ("algorithm", "model", "options", "message"),
    [
        (
            "vits_ng",
            vits.models.mlp(50, hidden=(900,)),
            {"covariance": "low_rank", "rank": 40_000},
            r"46,801 .* 44\.9 GB",
        ),
        ("vits_ii", vits.models.linear(50_000), {"covariance": "diagonal"}, r"50,000 parameters needs 30 GB"),
        (
            "ensemble_ts",
            vits.models.mlp(50, hidden=(900,)),
            {"num_members": 10_000},
            r"46,801 parameters needs 22\.5 GB",
        ),
        ("last_layer_ts", vits.models.mlp(2, hidden=(40_000,)), {}, r"needs 25\.\d GB"),
        ("last_layer_ts", vits.models.mlp(50, hidden=(900,)), {"rank": 2, "minibatch": None}, r"46,801 .* 43\.8 GB"),
        (
            "vits_ng",
            vits.models.mlp(50, hidden=(900,)),
            {"covariance": "diagonal", "minibatch": 30_000},
            r"46,801 .* 43\.8 GB",
        ),
        ("vits_ii", PRODUCT, {"covariance": "diagonal", "minibatch": 10_000}, r"100,000 parameters needs 20 GB"),
        (
            "vits_ii_hf",
            vits.models.mlp(50, hidden=(900,)),
            {"covariance": "diagonal", "num_samples": 10_000},
            r"46,801 parameters needs 13\.1 GB",
        ),
        (
            "lin_ts",
            vits.models.linear(1000),
            {"per_arm": 5000},
            r"5,000 posteriors of a model with 1,000 .* needs 20 GB",
        ),
        (
            "lmc_ts",
            vits.models.mlp(50, hidden=(900,)),
            {"per_arm": 100_000},
            r"100,000 posteriors of a model with 46,801 .* needs 18\.7 GB",
        ),
        (
            "vits_ng",
            vits.models.mlp(50, hidden=(900,)),
            {"per_arm": 5_000, "covariance": "low_rank"},
            r"5,000 posteriors of a model with 46,801 .* needs 20\.\d GB",
        ),
    ],
)
def test_ranks_members_layers_and_arms_that_would_not_fit_are_refused(algorithm, model, options, message, monkeypatch):
    monkeypatch.setenv(validate.MEMORY, "10")
    with pytest.raises(ValueError, match=message + r".*, more than the limit of 10 GB .*: use .*lmc_ts"):
        vits.make(algorithm, model, **options)


@pytest.mark.parametrize(
    ("algorithm", "model", "options", "message"),
    [
        (
            "lmc_ts",
            vits.models.mlp(50, hidden=(900,)),
            {"num_steps": 20_000},
            r"lmc_ts .* needs 18\.7 GB, .*: use a smaller model, or fewer num_steps",
        ),
        (
            "lmc_ts",
            vits.models.logistic(50_000),
            {"preconditioner": "design"},
            r"lmc_ts .* needs 30 GB, .*: use a smaller model, or preconditioner='none'",
        ),
        (
            "vits_ng",
            vits.models.linear(50_000),
            {"covariance": "diagonal"},
            r"vits_ng .* needs 30 GB, .*: use a smaller model, or lmc_ts, which",
        ),
        (
            "vits_ng",
            vits.models.mlp(50, hidden=(900,)),
            {"covariance": "diagonal", "minibatch": 30_000},
            r"vits_ng .* needs 43\.8 GB, .*: use a smaller model, a small minibatch, or lmc_ts, which",
        ),
    ],
)
def test_a_refusal_advises_what_does_fit(algorithm, model, options, message, monkeypatch):
    monkeypatch.setenv(validate.MEMORY, "10")
    with pytest.raises(ValueError, match=message):
        vits.make(algorithm, model, **options)


def test_data_sets_of_an_ensemble_that_would_not_fit_are_refused_before_they_are_made(monkeypatch):
    monkeypatch.setenv(validate.MEMORY, "0.02")
    policy = vits.make("ensemble_ts", vits.models.mlp(20, hidden=(2,)), capacity=10_000)  # one of them fits
    message = r"one data set for each of 30 members needs 0\.02\d\d? GB, .* of 0\.02 GB .*: use fewer members"
    with pytest.raises(ValueError, match=message):
        policy.init(jax.random.key(0))


def test_a_network_that_would_not_fit_is_refused_before_its_weights_are_made(monkeypatch):
    monkeypatch.setenv(validate.MEMORY, "0.05")
    with pytest.raises(ValueError, match=r"16,012,002 parameters needs 0\.064 GB, .* of 0\.05 GB .*: use fewer"):
        vits.models.mlp(4000, hidden=(4000,), outputs=2)


def test_the_limit_can_be_set(monkeypatch):
    monkeypatch.setenv(validate.MEMORY, "0.001")
    with pytest.raises(ValueError, match=r"more than the limit of 0\.001 GB"):
        vits.make("vits_ii", vits.models.mlp(20))
    vits.make("lmc_ts", vits.models.mlp(20))
    monkeypatch.setenv(validate.MEMORY, "lots")
    with pytest.raises(ValueError, match="VITS_MEMORY_GB must be a number of gigabytes, but is 'lots'"):
        vits.make("vits_ii", vits.models.mlp(20))


def test_gauss_newton_is_the_default_curvature_of_networks():
    network = vits.make("vits_ii", vits.models.mlp(3, hidden=(2,))).posterior.potential
    assert network.curvature is vits.potentials.autodiff.gauss_newton
    own = vits.models.custom(lambda p, x: p @ x, lambda p, x, r: (p @ x - r) ** 4, dim=3, num_params=3)
    assert vits.make("vits_ii", own).posterior.potential.curvature is vits.potentials.autodiff.exact
