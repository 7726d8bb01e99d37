"""Reward models: likelihoods against closed forms, derivatives against autodiff, starting points."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vits import models

GLMS = [models.linear(3), models.logistic(3), models.poisson(3)]


@pytest.mark.parametrize(("model", "reward"), list(zip(GLMS, [-0.7, 1.0, 4.0], strict=True)))
@pytest.mark.usefixtures("x64")
def test_derivatives_of_the_loss_are_those_of_autodiff(model, reward):
    f = jnp.linspace(-6.0, 6.0, 25)
    r = jnp.full(25, reward)
    np.testing.assert_allclose(model.dloss(f, r), jax.vmap(jax.grad(model.loss))(f, r), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model.d2loss(f, r), jax.vmap(jax.grad(model.dloss))(f, r), rtol=1e-10, atol=1e-12)
    if model.max_d2loss is not None:
        assert jnp.max(model.d2loss(f, r)) <= model.max_d2loss


@pytest.mark.usefixtures("x64")
def test_likelihoods_are_the_textbook_ones():
    theta, phi = jnp.array([0.3, -1.0, 0.5]), jnp.array([1.0, 0.2, -0.4])
    f = float(phi @ theta)
    p = 1.0 / (1.0 + np.exp(-f))
    logistic, poisson = models.logistic(3), models.poisson(3)
    assert float(logistic.mean(theta, phi)) == pytest.approx(p)
    assert float(logistic.nll(theta, phi, jnp.ones(()))) == pytest.approx(-np.log(p))
    assert float(logistic.nll(theta, phi, jnp.zeros(()))) == pytest.approx(-np.log(1 - p))
    assert float(poisson.mean(theta, phi)) == pytest.approx(np.exp(f))
    # -log P(r = 3) = exp(f) - 3 f + log 3!
    log_factorial = np.log(6.0)
    assert float(poisson.nll(theta, phi, jnp.asarray(3.0))) + log_factorial == pytest.approx(
        -np.log(np.exp(-np.exp(f)) * np.exp(f) ** 3 / 6.0)
    )


def test_saturated_arms_do_not_tie():
    model, theta = models.logistic(1), jnp.array([1.0])
    better, best = jnp.array([60.0]), jnp.array([80.0])
    assert model.mean(theta, better) == model.mean(theta, best)
    assert model.score(theta, better) < model.score(theta, best)
    assert model.d2loss(jnp.array([60.0]), jnp.array([1.0]))[0] > 0.0


@pytest.mark.parametrize("model", GLMS)
@pytest.mark.usefixtures("x64")
def test_expected_derivatives_equal_a_fine_integral(model):
    mean, deviation, reward = jnp.array([-2.0, 0.3, 1.5]), jnp.array([0.1, 1.0, 2.0]), jnp.array([1.0, 0.0, 1.0])
    z, dz = np.linspace(-12.0, 12.0, 40_001, retstep=True)
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) * dz
    f = mean[:, None] + deviation[:, None] * z[None, :]
    r = jnp.broadcast_to(reward[:, None], f.shape)
    found = model.expected_derivatives(mean, deviation, reward)
    np.testing.assert_allclose(found[0], model.dloss(f, r) @ density, atol=1e-6)
    np.testing.assert_allclose(found[1], model.d2loss(f, r) @ density, atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_expected_derivatives_of_a_logistic_model_are_exact_at_every_width():
    model = models.logistic(1)
    z, dz = np.linspace(-12.0, 12.0, 40_001, retstep=True)
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi) * dz
    mean, deviation = (jnp.asarray(x.ravel()) for x in np.meshgrid([-5.0, 0.0, 2.0], [0.0, 0.1, 1.0, 5.0, 20.0]))
    f = mean[:, None] + deviation[:, None] * z[None, :]
    found = model.expected_derivatives(mean, deviation, jnp.ones_like(mean))
    np.testing.assert_allclose(found[0], model.dloss(f, jnp.ones_like(f)) @ density, atol=3e-9)
    np.testing.assert_allclose(found[1], model.d2loss(f, jnp.ones_like(f)) @ density, atol=2e-8)


@pytest.mark.usefixtures("x64")
def test_quadrature_agrees_with_the_closed_forms():
    mean, deviation, reward = jnp.array([-2.0, 0.3, 1.5]), jnp.array([0.1, 1.0, 1.5]), jnp.array([1.0, 0.0, 1.0])
    for model in GLMS:
        closed = model.expected_derivatives(mean, deviation, reward)
        quadrature = models.Glm.expected_derivatives(model, mean, deviation, reward)
        np.testing.assert_allclose(closed, quadrature, atol=1e-6)


@pytest.mark.parametrize(("dim", "hidden", "size"), [(20, (20, 20), 861), (20, (5,), 111), (4, (), 5), (3, (4, 2), 29)])
def test_number_of_parameters(dim, hidden, size):
    model = models.mlp(dim, hidden)
    assert model.num_params == size
    assert model.init_params(jax.random.key(0)).shape == (size,)


@pytest.mark.usefixtures("x64")
def test_network_by_hand():
    """Two inputs, two hidden units: f = v' (W phi + b)^2 + c."""
    model = models.mlp(2, hidden=(2,), activation="square")
    W, b, v, c = np.array([[1.0, 2.0], [0.0, -1.0]]), np.array([0.5, 0.0]), np.array([1.0, 3.0]), 0.25
    theta, phi = jnp.asarray([*W.ravel(), *b, *v, c]), np.array([1.0, -1.0])
    expected = v @ (W @ phi + b) ** 2 + c
    assert float(model.mean(theta, jnp.asarray(phi))) == pytest.approx(expected)
    assert float(model.score(theta, jnp.asarray(phi))) == pytest.approx(expected)
    assert float(model.nll(theta, jnp.asarray(phi), jnp.asarray(1.0))) == pytest.approx(0.5 * (expected - 1.0) ** 2)


def test_lecun_start_has_the_right_scale_and_can_learn():
    model = models.mlp(100, hidden=(200,))
    start = model.start(jax.random.key(0), jnp.zeros(model.num_params))
    first, biases, last = start[:20_000], start[20_000:20_200], start[20_200:20_400]
    assert float(jnp.std(first)) == pytest.approx(0.1, rel=0.05)
    assert float(jnp.std(last)) == pytest.approx(200**-0.5, rel=0.2)
    assert not jnp.any(biases)
    phi, reward = jnp.ones(100), jnp.asarray(1.0)
    assert jnp.any(jax.grad(model.nll)(start, phi, reward)[:20_000])
    assert not jnp.any(jax.grad(model.nll)(jnp.zeros(model.num_params), phi, reward)[:20_000])


def test_a_prior_mean_that_says_something_is_where_learning_starts():
    model = models.mlp(2, hidden=(3,))
    mean = jnp.arange(1.0, model.num_params + 1.0)
    np.testing.assert_array_equal(model.start(jax.random.key(0), mean), mean)
    zero = jnp.zeros(3)
    np.testing.assert_array_equal(models.logistic(3).start(jax.random.key(0), zero), zero)


def test_custom_takes_an_equinox_module_as_it_is():
    network = eqx.nn.MLP(3, "scalar", 4, 1, key=jax.random.key(0))
    model = models.custom(
        lambda net, phi: net(phi), lambda net, phi, r: 0.5 * (net(phi) - r) ** 2, dim=3, params=network
    )
    theta = model.start(jax.random.key(1), jnp.zeros(model.num_params))
    phi = jnp.array([0.1, 0.2, 0.3])
    assert model.num_params == 3 * 4 + 4 + 4 + 1
    np.testing.assert_allclose(model.mean(theta, phi), network(phi), rtol=1e-6)
    moved = model.mean(theta.at[-1].add(1.0), phi)
    np.testing.assert_allclose(moved, network(phi) + 1.0, rtol=1e-6)


def test_custom_starts_where_the_user_says():
    def mean(params, phi):
        return params["w"] @ phi

    model = models.custom(
        mean,
        loss=lambda f, r: (f - r) ** 2,
        dim=2,
        params={"w": jnp.zeros(2)},
        init_params=lambda key: {"w": jax.random.normal(key, (2,))},
    )
    key = jax.random.key(3)
    np.testing.assert_array_equal(model.start(key, jnp.zeros(2)), jax.random.normal(key, (2,)))
    assert float(model.nll(jnp.array([1.0, 0.0]), jnp.array([3.0, 1.0]), jnp.asarray(1.0))) == 4.0
    assert float(model.score(jnp.array([1.0, 0.0]), jnp.array([3.0, 1.0]))) == 3.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: models.logistic(0), "dim must be a whole number of at least 1, but is 0"),
        (lambda: models.mlp(2, hidden=(3, 0)), "every width in hidden must be a whole number of at least 1, but is 0"),
        (lambda: models.mlp(2, activation="tahn"), "unknown activation 'tahn'; did you mean 'tanh'"),
        (lambda: models.custom(max, dim=1, num_params=1), "either nll or loss"),
        (lambda: models.custom(max, min, loss=min, dim=1, num_params=1), "either nll or loss"),
        (lambda: models.custom(max, min, dim=1), "either num_params or params"),
        (lambda: models.custom(max, min, dim=1, num_params=2, params=jnp.zeros(2)), "either num_params or params"),
        (lambda: models.custom(max, min, dim=1, params={"a": 1}), "at least one floating-point array"),
    ],
)
def test_mistakes_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ({"mean": lambda p, x: p * x, "nll": lambda p, x, r: r}, r"mean\(params, features\) must return one number"),
        ({"mean": lambda p, x: p @ x, "nll": lambda p, x, r: x}, r"nll\(params, features, reward\) must return one"),
        ({"mean": lambda p, x: p @ x, "loss": lambda f, r: jnp.stack([f, r])}, r"loss\(mean, reward\) must return one"),
    ],
)
def test_functions_that_return_a_vector_are_refused_when_the_model_is_made(functions, message):
    with pytest.raises(ValueError, match=message):
        models.custom(**functions, dim=3, num_params=3)


def test_a_start_in_another_order_than_the_parameters_is_refused():
    message = r"must return arrays like those of params, \[\(\), \(3,\)\], but \[\(3,\), \(\)\]"
    with pytest.raises(ValueError, match=message):
        models.custom(
            lambda params, phi: params["scale"] * (params["slope"] @ phi),
            loss=lambda mean, reward: 0.5 * (mean - reward) ** 2,
            dim=3,
            params={"scale": jnp.ones(()), "slope": jnp.zeros(3)},
            init_params=lambda key: (jnp.zeros(3), jnp.ones(())),
        )
