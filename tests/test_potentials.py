"""Potentials: derivatives, expectations and curvature bounds against plain sums, finite differences and integrals."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vits import models, potentials
from vits.potentials import autodiff, potential
from vits.types import Observation

DIM, COUNT = 3, 80
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(COUNT, DIM))
REWARDS = {
    "linear": RNG.normal(size=COUNT),
    "logistic": (RNG.uniform(size=COUNT) < 0.4).astype(float),
    "poisson": RNG.poisson(1.5, size=COUNT).astype(float),
    "mlp": RNG.normal(size=COUNT),
    "custom": RNG.normal(size=COUNT),
}
SKEW = np.array([[1.0, 0.2, 0.0], [0.2, 0.5, -0.1], [0.0, -0.1, 2.0]])
PRIORS = {
    "ridge": None,
    "scalar": (0.5, 2.0),
    "diagonal": (np.array([1.0, -1.0, 0.5]), np.array([0.5, 1.0, 2.0])),
    "full": (np.array([1.0, -1.0, 0.5]), SKEW),
}


def model_of(name: str) -> models.RewardModel:
    if name == "mlp":
        return models.mlp(DIM, hidden=(2,))
    if name == "custom":  # heavy tails: a loss that is not convex
        return models.custom(
            lambda theta, phi: jnp.tanh(theta @ phi),
            lambda theta, phi, r: jnp.log1p((jnp.tanh(theta @ phi) - r) ** 2),
            dim=DIM,
            num_params=DIM,
        )
    return getattr(models, name)(DIM)


@eqx.filter_jit
def observe_all(U, features, rewards):
    def add(data, row):
        return U.observe(data, Observation(*row)), None

    return jax.lax.scan(add, U.init(), (features, rewards))[0]


def make(name, count=COUNT, eta=1.7, lam=0.8, **options):
    U = potential(model_of(name), inverse_temperature=eta, prior_precision=lam, **{"capacity": 100, **options})
    return U, observe_all(U, jnp.asarray(FEATURES[:count], float), jnp.asarray(REWARDS[name][:count], float))


def plain(name, rows, eta=1.7, lam=0.8, prior=None):
    """U written out, with no blocks and no forms."""
    model = model_of(name)
    mean, precision = jnp.zeros(model.num_params), eta * lam * jnp.eye(model.num_params)
    if prior is not None:
        mean = jnp.broadcast_to(jnp.asarray(prior[0]), (DIM,))
        covariance = jnp.asarray(prior[1])
        precision = jnp.linalg.inv(covariance if covariance.ndim == 2 else jnp.diag(covariance * jnp.ones(DIM)))

    def U(theta):
        losses = jax.vmap(model.nll, (None, 0, 0))(theta, jnp.asarray(FEATURES[rows]), jnp.asarray(REWARDS[name][rows]))
        return eta * jnp.sum(losses) + 0.5 * (theta - mean) @ precision @ (theta - mean)

    return U


CASES = [
    ("linear", {}),
    ("linear", {"prior": PRIORS["full"]}),
    ("linear", {"window": 11, "capacity": None}),
    ("logistic", {}),
    ("logistic", {"prior": PRIORS["diagonal"]}),
    ("logistic", {"window": 70, "capacity": None}),
    ("poisson", {"prior": PRIORS["scalar"]}),
    ("mlp", {"curvature": "exact"}),
    ("custom", {"window": 11, "capacity": None}),
]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("name", "options"), CASES)
def test_gradient_and_hessian_are_those_of_the_plain_sum(name, options):
    U, data = make(name, **options)
    window = options.get("window") or COUNT
    reference = plain(name, slice(COUNT - window, COUNT), prior=options.get("prior"))
    theta = jnp.asarray(0.4 * RNG.normal(size=U.prior.mean.shape))
    assert int(U.count(data)) == window
    found = derivatives(U, data, theta, reference)
    np.testing.assert_allclose(found["grad"], found["autodiff grad"], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["hessian"], found["autodiff hessian"], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["grads"], [found["grad"], found["mirrored grad"]], rtol=1e-9, atol=1e-9)
    mean = 0.5 * (found["hessian"] + found["mirrored hessian"])
    # Where every row is looked at from one point only, swapping the points shows each row from the other one.
    estimate = 0.5 * (found["mean hessian"] + found["swapped mean hessian"])
    np.testing.assert_allclose(estimate, mean, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["grad"], found["difference of values"], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found["hessian"], found["difference of grads"], rtol=1e-6, atol=1e-6)


@eqx.filter_jit
def derivatives(U, data, theta, reference, step=1e-5):
    def differences(function):
        shifts = step * jnp.eye(theta.shape[0])
        return jax.vmap(lambda shift: (function(theta + shift) - function(theta - shift)) / (2 * step))(shifts)

    return {
        "grad": U.grad(data, theta),
        "hessian": U.hessian(data, theta),
        "autodiff grad": jax.grad(reference)(theta),
        "autodiff hessian": jax.hessian(reference)(theta),
        "mean hessian": U.derivatives(data, jnp.stack([theta, -theta])).curvature.matrix,
        "swapped mean hessian": U.derivatives(data, jnp.stack([-theta, theta])).curvature.matrix,
        "grads": U.derivatives(data, jnp.stack([theta, -theta])).grads,
        "mirrored grad": U.grad(data, -theta),
        "mirrored hessian": U.hessian(data, -theta),
        "difference of values": differences(reference),
        "difference of grads": differences(lambda theta: U.grad(data, theta)),
    }


@eqx.filter_jit
def hessians_at(U, data, thetas):
    return jax.vmap(U.hessian, (None, 0))(data, thetas)


@eqx.filter_jit
def grads_at(U, data, thetas):
    return jax.vmap(U.grad, (None, 0))(data, thetas)


@eqx.filter_jit
def bound_at(U, data, theta, sqrt_cov=None):
    return U.largest_curvature(data, theta, sqrt_cov)


def gaussian_grid(mean, sqrt_cov):
    """Points and masses of a fine product rule for N(mean, B B')."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(14)
    grid = np.stack(np.meshgrid(nodes, nodes, nodes), axis=-1).reshape(-1, DIM)
    mass = np.prod(np.stack(np.meshgrid(weights, weights, weights), axis=-1).reshape(-1, DIM), axis=1)
    return jnp.asarray(mean + grid @ sqrt_cov.T), mass / mass.sum()


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", list(REWARDS))
def test_without_data_there_is_only_the_prior(name):
    prior = PRIORS["full"] if model_of(name).num_params == DIM else None
    U = potential(model_of(name), inverse_temperature=3.0, prior_precision=1.0, prior=prior)
    data = U.init()
    assert int(U.count(data)) == 0
    np.testing.assert_allclose(U.grad(data, U.prior.mean), 0.0, atol=1e-12)
    np.testing.assert_allclose(U.hessian(data, U.prior.mean), U.prior.matrix)
    precision = 3.0 * np.eye(U.prior.mean.shape[0]) if prior is None else np.linalg.inv(SKEW)
    np.testing.assert_allclose(U.prior.matrix, precision, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_gauss_newton_drops_the_curvature_of_the_network():
    U, data = make("mlp", curvature="gauss_newton")
    theta = jnp.asarray(0.4 * RNG.normal(size=U.prior.mean.shape))
    jacobian = jax.jit(jax.vmap(jax.grad(model_of("mlp").mean), (None, 0)))(theta, jnp.asarray(FEATURES))
    found, far = hessians_at(U, data, jnp.stack([theta, 3.0 * theta]))
    np.testing.assert_allclose(found, 1.7 * jacobian.T @ jacobian + U.prior.matrix, atol=1e-9)
    exact = hessians_at(make("mlp", curvature="exact")[0], data, 3.0 * theta[None])[0]
    assert np.linalg.eigvalsh(far)[0] > 0.0 > np.linalg.eigvalsh(exact)[0]


@pytest.mark.usefixtures("x64")
def test_gauss_newton_is_exact_for_a_generalised_linear_model():
    U, data = make("logistic")
    theta = jnp.array([0.3, -0.2, 0.9])
    rows = jnp.asarray(FEATURES)[None], jnp.asarray(REWARDS["logistic"])[None], jnp.ones((1, COUNT))
    for form in autodiff.CURVATURES.values():
        found = 1.7 * eqx.filter_jit(form)(U.model, theta[None], *rows) + U.prior.matrix
        np.testing.assert_allclose(found, hessians_at(U, data, theta[None])[0], atol=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["linear", "logistic", "poisson"])
def test_expectations_equal_a_fine_integral(name):
    U, data = make(name, count=20)
    mean, sqrt_cov = np.array([0.2, -0.4, 0.1]), 0.3 * np.linalg.cholesky(SKEW)
    thetas, mass = gaussian_grid(mean, sqrt_cov)
    found = U.expectations(jax.random.key(0), data, jnp.asarray(mean), jnp.asarray(sqrt_cov))
    np.testing.assert_allclose(found.grad, mass @ grads_at(U, data, thetas), rtol=1e-6, atol=1e-6)
    hessian = np.einsum("n,nij->ij", mass, hessians_at(U, data, thetas))
    np.testing.assert_allclose(found.hessian, hessian, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_expectations_by_draws_are_unbiased():
    U, data = make("custom", count=20)
    mean, sqrt_cov, draws = np.array([0.2, -0.4, 0.1]), 0.3 * np.linalg.cholesky(SKEW), 4000
    keys = jax.random.split(jax.random.key(0), draws)

    @jax.jit
    @jax.vmap
    def estimate(key):
        return U.expectations(key, data, jnp.asarray(mean), jnp.asarray(sqrt_cov))

    thetas, mass = gaussian_grid(mean, sqrt_cov)
    truth = mass @ grads_at(U, data, thetas), np.einsum("n,nij->ij", mass, hessians_at(U, data, thetas))
    for found, expected in zip(estimate(keys), truth, strict=True):
        error = np.abs(np.mean(found, axis=0) - expected)
        assert np.all(error < 4.0 * np.std(found, axis=0) / np.sqrt(draws))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("options", [{}, {"minibatch": 5}, {"window": 11, "capacity": None}])
@pytest.mark.parametrize("name", ["linear", "logistic"])
def test_a_bounded_curvature_is_bounded_everywhere(name, options):
    for count in (0, 1, COUNT):
        U, data = make(name, count=count, **options)
        seen = U.minibatch(jax.random.key(count), data)
        thetas = jnp.asarray(np.concatenate([np.zeros((1, DIM)), RNG.normal(size=(50, DIM)) * 3.0]))
        largest = np.max(np.linalg.eigvalsh(hessians_at(U, seen, thetas)))
        bound = float(bound_at(U, seen, thetas[1]))
        assert largest <= bound * (1 + 1e-9)
        if name == "linear" and "minibatch" not in options:
            assert bound <= 3.0 ** (1 / 16) * largest * (1 + 1e-9)


@pytest.mark.usefixtures("x64")
def test_the_curvature_of_counts_is_bounded_where_the_steps_look():
    U, data = make("poisson")
    mean, sqrt_cov = jnp.array([0.2, -0.4, 0.1]), 0.5 * jnp.eye(DIM)
    norms = np.linalg.norm(FEATURES, axis=1)
    directions = RNG.normal(size=(100, DIM))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    for radius, bound in (
        (1.0 / norms.max(), bound_at(U, data, mean)),
        (0.5 * 3.0, bound_at(U, data, mean, sqrt_cov)),
    ):
        hessians = hessians_at(U, data, mean[None] + jnp.asarray(radius * directions))
        assert np.max(np.linalg.eigvalsh(hessians)) <= float(bound)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("curvature", ["exact", "gauss_newton"])
def test_the_curvature_of_a_network_is_bounded_where_the_steps_look(curvature):
    U, data = make("mlp", curvature=curvature)
    mean, size = U.start(jax.random.key(0)), U.prior.mean.shape[0]
    sqrt_cov = 0.3 * jnp.eye(size)
    draws = jnp.asarray(np.concatenate([np.zeros((1, size)), 0.3 * RNG.normal(size=(100, size))])) + mean[None]
    largest = np.max(np.abs(np.linalg.eigvalsh(hessians_at(U, data, draws))), axis=1)
    assert np.mean(largest <= float(bound_at(U, data, mean, sqrt_cov))) > 0.95
    assert autodiff.MARGIN * largest[0] <= float(bound_at(U, data, mean))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["logistic", "custom"])
def test_a_minibatch_is_unbiased(name):
    U, data = make(name, minibatch=16)
    theta, draws = jnp.array([0.2, -0.4, 0.1]), 3000

    @jax.jit
    @jax.vmap
    def estimate(key):
        seen = U.minibatch(key, data)
        return U.grad(seen, theta), U.hessian(seen, theta)

    truth = grads_at(U, data, theta[None])[0], hessians_at(U, data, theta[None])[0]
    for found, expected in zip(estimate(jax.random.split(jax.random.key(0), draws)), truth, strict=True):
        error = np.abs(np.mean(found, axis=0) - expected)
        assert np.all(error < 4.0 * np.std(found, axis=0) / np.sqrt(draws))
    assert int(U.count(U.minibatch(jax.random.key(0), data))) == COUNT


@pytest.mark.parametrize("name", ["logistic", "mlp"])
def test_under_vmap_every_member_has_its_own_data(name):
    U, one = make(name, count=10)
    other = U.observe(one, Observation(jnp.ones(DIM), jnp.asarray(1.0)))
    theta = jnp.full(U.prior.mean.shape, 0.1)
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), one, other)
    found = jax.jit(lambda both: jax.vmap(U.grad, (0, None))(both, theta))(both)
    alone = [grads_at(U, data, theta[None])[0] for data in (one, other)]
    np.testing.assert_allclose(found, jnp.stack(alone), rtol=1e-5, atol=1e-5)


def test_the_cheapest_form_is_chosen():
    def form(model, **options):
        return type(potential(model, inverse_temperature=1.0, prior_precision=1.0, **options))

    assert form(models.linear(2)) is potentials.Quadratic
    assert form(models.linear(2), prior=(0.0, 1.0)) is potentials.Quadratic
    assert form(models.linear(2), window=5) is potentials.GlmPotential
    assert form(models.logistic(2)) is potentials.GlmPotential
    assert form(models.mlp(2)) is potentials.AutodiffPotential


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": (np.zeros(2), 1.0)}, r"the prior's mean must have shape \(3,\), but has shape \(2,\)"),
        ({"prior": (0.0, np.ones(2))}, r"the prior's covariance must have shape \(3,\), but has shape \(2,\)"),
        ({"prior": (0.0, np.eye(2))}, r"the prior's covariance must have shape \(3, 3\), but has shape \(2, 2\)"),
        ({"prior": (0.0, -1.0)}, "the prior's covariance must be a positive finite number, but is -1"),
        ({"prior": (np.nan, 1.0)}, "the prior's mean must be finite"),
        ({"prior": (0.0, np.diag([1.0, 1.0, -2.0]))}, "positive definite, but has the eigenvalue -2"),
        ({"prior": (0.0, np.eye(3) + np.eye(3, k=1))}, "the prior's covariance must be symmetric"),
        ({"prior": (0.0, 1e-40)}, "the inverse of the prior's covariance, in float32, must be a positive finite"),
        ({"prior": (0.0, 1e-40 * np.eye(3))}, "the inverse of the prior's covariance, in float32, must be finite"),
        ({"minibatch": 0}, "minibatch must be a whole number of at least 1, but is 0"),
        ({"capacity": 5, "window": 5}, "capacity must be left out when there is a window, but is 5"),
        ({"inverse_temperature": 0.0}, "inverse_temperature must be a positive finite number, but is 0"),
        ({"curvature": "gauss"}, "unknown curvature 'gauss'; did you mean 'gauss_newton'"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        potential(models.logistic(DIM), **{"inverse_temperature": 1.0, "prior_precision": 1.0, **options})


def test_a_wide_matrix_that_is_refused_is_not_printed_whole():
    with pytest.raises(ValueError, match=r"must be symmetric, but differs from its transpose: .{,90}$"):
        potentials.gaussian_prior(50, 0.0, np.triu(np.ones((50, 50))))


def test_gauss_newton_needs_to_know_the_loss():
    with pytest.raises(ValueError, match="give custom"):
        potential(model_of("custom"), inverse_temperature=1.0, prior_precision=1.0, curvature="gauss_newton")
