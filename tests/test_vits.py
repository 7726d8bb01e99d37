import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits import steps
from vits.algorithms import vits as family
from vits.inference import variational
from vits.potentials import potential
from vits.types import Observation

DIM, COUNT, ETA, LAM = 8, 40, 10.0, 1.0

VARIANTS = {
    "vits_i": (variational.antithetic(), family.exact_curvature, family.exact_inverse),
    "vits_ii": (variational.antithetic(), family.exact_curvature, family.first_order_inverse),
    "vits_ii_hf": (variational.orthogonal(2 * DIM), variational.stein, family.first_order_inverse),
}


def dataset():
    rng = np.random.default_rng(3)
    return rng.standard_normal((COUNT, DIM)) * np.linspace(0.3, 1.5, DIM), rng.standard_normal(COUNT)


def closed_form():
    features, rewards = dataset()
    V = LAM * np.eye(DIM) + features.T @ features
    return np.linalg.solve(V, features.T @ rewards), np.linalg.inv(ETA * V)


def posterior(variant, num_steps, step_size=0.5, inflation=1.0):
    scheme, curvature, inverse = VARIANTS[variant] if isinstance(variant, str) else variant
    target = potential(vits.models.linear(DIM), inverse_temperature=ETA, prior_precision=LAM)
    return family.VITS(target, steps.safe(step_size), scheme, curvature, inverse, num_steps, inflation)


@eqx.filter_jit
def learn(short, long, key, features, rewards):
    def update(state, row):
        i, phi, r = row
        return short.update(jax.random.fold_in(key, i), state, Observation(phi, r))

    rows = (jnp.arange(COUNT), features, rewards)
    first, last = ([x[part] for x in rows] for part in (slice(-1), -1))
    state, infos = jax.lax.scan(update, short.init(key), tuple(first))
    state, info = long.update(jax.random.fold_in(key, last[0]), state, Observation(*last[1:]))
    return state, jnp.any(infos.rejected) | info.rejected


def converged(variant, num_steps=3000, step_size=0.5, inflation=1.0, seed=0):
    """One step after each observation, many after the last."""
    short, long = (posterior(variant, k, step_size, inflation) for k in (1, num_steps))
    features, rewards = (jnp.asarray(x, float) for x in dataset())
    state, rejected = learn(short, long, jax.random.key(seed), features, rewards)
    assert not rejected
    return state


def relative_spectrum(state, covariance):
    """Eigenvalues of S^-1/2 Sigma S^-1/2: one in every direction when the covariance is right."""
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    return np.linalg.eigvalsh(root @ np.asarray(state.sqrt_cov @ state.sqrt_cov.T, np.float64) @ root.T)


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_run_to_convergence_it_reaches_the_exact_posterior(variant):
    mean, covariance = closed_form()
    state = converged(variant)
    assert np.all(np.abs(relative_spectrum(state, covariance) - 1.0) < 0.01)
    # Mirrored points leave a quadratic potential's gradient without noise.
    assert np.max(np.abs(state.mean - mean) / np.sqrt(np.diag(covariance))) < 0.01


@pytest.mark.parametrize("inverse", [family.exact_inverse, family.first_order_inverse])
def test_the_papers_single_draw_reaches_it_up_to_its_own_noise(inverse):
    mean, covariance = closed_form()
    errors = []
    for seed in range(20):
        state = converged((variational.plain(1), family.exact_curvature, inverse), num_steps=1000, seed=seed)
        assert np.all(np.abs(relative_spectrum(state, covariance) - 1.0) < 0.05)
        errors.append(np.linalg.solve(np.linalg.cholesky(covariance), state.mean - mean))
    # In a direction with h * curvature = c the mean jitters with variance c / (2 - c) posterior variances, at most
    # 1/3 for c = 0.5: the mean square over 20 runs and 8 directions must stay below.
    assert np.mean(np.square(errors)) < 1 / 3


def test_hessian_free_with_few_directions_stays_within_a_third():
    _, covariance = closed_form()
    scheme = variational.orthogonal(DIM)
    spectra = [
        relative_spectrum(
            converged(
                (scheme, variational.stein, family.first_order_inverse),
                num_steps=4000,
                step_size=0.9,
                inflation=scheme.inflation(DIM),
                seed=seed,
            ),
            covariance,
        )
        for seed in range(5)
    ]
    assert np.all(np.abs(np.asarray(spectra) - 1.0) < 0.35)


def test_a_single_step_is_the_recursion_of_the_paper():
    """VITS-II in the paper's own notation, with C = B^-1, on one observation and one draw."""
    learner = posterior((variational.plain(1), family.exact_curvature, family.first_order_inverse), 1, step_size=0.05)
    features, rewards = (jnp.asarray(x, float) for x in dataset())
    state, key = learner.init(jax.random.key(0)), jax.random.key(5)
    new, info = learner.update(key, state, Observation(features[0], rewards[0]))
    A = ETA * (LAM * np.eye(DIM) + np.outer(features[0], features[0]))
    b = ETA * rewards[0] * features[0]
    eps = variational.plain(1)(jax.random.split(key, 1)[0], DIM)[0]
    mu, B, C, h = (np.asarray(x, np.float64) for x in (state.mean, state.sqrt_cov, state.sqrt_precision.T, info.step))
    theta = mu + B @ np.asarray(eps)
    np.testing.assert_allclose(new.mean, mu - h * (A @ theta - b), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(new.sqrt_cov, (np.eye(DIM) - h * A) @ B + h * C.T, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(new.sqrt_precision.T, C @ (np.eye(DIM) - h * (C.T @ C - A)), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "scheme", [variational.orthogonal(2 * DIM), variational.orthogonal(4), variational.antithetic(6)]
)
def test_low_rank_and_dense_curvature_act_alike(scheme):
    learner = posterior((scheme, variational.stein, family.first_order_inverse), num_steps=1)
    state = learner.init(jax.random.key(0))
    draw = learner._points(scheme(jax.random.key(1), DIM), state.mean, state.sqrt_cov)
    _, plain = variational.stein_factors(learner.potential, state.data, draw, state.sqrt_precision)
    dense = variational.Dense(0.5 * (plain.matrix + plain.matrix.T))
    found = variational.stein.slope(learner.potential, state.data, draw, state.sqrt_precision).curvature
    for method in ("times", "gap_times"):
        expected = getattr(dense, method)(state.sqrt_precision)
        np.testing.assert_allclose(getattr(found, method)(state.sqrt_precision), expected, atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_full_cubature_recovers_the_hessian_of_a_quadratic():
    learner = posterior("vits_ii_hf", num_steps=1)
    state = converged("vits_ii_hf", num_steps=5)
    exact_inverse = jnp.linalg.inv(state.sqrt_cov).T
    draw = learner._points(variational.orthogonal(2 * DIM)(jax.random.key(0), DIM), state.mean, state.sqrt_cov)
    found = variational.stein.slope(learner.potential, state.data, draw, exact_inverse).curvature
    np.testing.assert_allclose(found.matrix, state.data.precision, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("directions", [3, 8])
def test_orthogonal_directions_average_to_the_identity(directions):
    scheme = variational.orthogonal(2 * directions)
    eps = jax.vmap(lambda key: scheme(key, 8))(jax.random.split(jax.random.key(0), 4000))
    outer = np.mean(np.einsum("nki,nkj->nij", eps, eps) / directions, axis=0)
    np.testing.assert_allclose(outer, np.eye(8), atol=0.1)
    gram = np.asarray(eps[0] @ eps[0].T)
    np.testing.assert_allclose(gram, 8 * np.eye(directions), atol=1e-4)


def test_a_step_that_is_too_long_is_reported_as_unstable():
    target = potential(vits.models.linear(DIM), inverse_temperature=ETA, prior_precision=LAM)
    largest = float(np.linalg.eigvalsh(ETA * (LAM * np.eye(DIM) + np.eye(DIM)))[-1])
    learner = family.VITS(target, steps.constant(1.5 / largest), *VARIANTS["vits_ii"], 1)
    _, info = learner.update(
        jax.random.key(0), learner.init(jax.random.key(0)), Observation(jnp.ones(DIM), jnp.asarray(1.0))
    )
    assert float(info.stiffness) >= 1.0


@pytest.mark.parametrize("variant", list(VARIANTS))
@pytest.mark.parametrize("poison", [jnp.nan, jnp.inf])
def test_a_poisoned_observation_leaves_the_state_bitwise_as_it_was(variant, poison):
    learner = posterior(variant, num_steps=3)
    state = converged(variant, num_steps=3)
    for observation in (
        Observation(jnp.ones(DIM), jnp.asarray(poison)),
        Observation(jnp.ones(DIM).at[2].set(poison), jnp.asarray(1.0)),
    ):
        new, info = learner.update(jax.random.key(0), state, observation)
        assert info.rejected
        assert not info.is_finite
        assert all(jnp.array_equal(a, b) for a, b in zip(jax.tree.leaves(new), jax.tree.leaves(state), strict=True))


def test_a_step_that_explodes_is_rejected():
    target = potential(vits.models.linear(DIM), inverse_temperature=ETA, prior_precision=LAM)
    learner = family.VITS(target, steps.constant(1e6), *VARIANTS["vits_ii"], 10)
    state = learner.init(jax.random.key(0))
    new, info = learner.update(jax.random.key(0), state, Observation(jnp.ones(DIM), jnp.asarray(1.0)))
    assert info.rejected
    assert jnp.array_equal(new.sqrt_cov, state.sqrt_cov)


def test_theory_steps_are_capped_by_num_steps_and_say_so():
    target = potential(vits.models.linear(DIM), inverse_temperature=ETA, prior_precision=LAM)
    learner = family.VITS(target, steps.theory(horizon=100), *VARIANTS["vits_i"], 20)
    _, info = learner.update(
        jax.random.key(0), learner.init(jax.random.key(0)), Observation(jnp.ones(DIM), jnp.asarray(1.0))
    )
    assert info.step_capped
    assert float(info.stiffness) < 1.0


def test_two_long_steps_a_round_do_not_lose_the_inverse():
    # Steps of 0.9 / lmax move B so far that its inverse to first order is none: unwatched within the round, C blew up.
    world = vits.environments.linear(zeta=1.0)
    policy = vits.make("vits_ii", vits.models.linear(20), inverse_temperature=100.0, step_size=0.9, num_steps=2)
    trace = vits.simulate(0, world, policy, 60, seeds=[9], workers=1)
    assert not trace.failed.any()
    assert np.max(trace.info.inverse_error) <= family.INVERSE_TOLERANCE
    assert trace.info.refreshed.any()


@pytest.mark.parametrize("name", ["vits_i", "vits_ii", "vits_ii_hf"])
def test_the_papers_start_is_a_draw_from_the_prior(name):
    keys = jax.random.split(jax.random.key(5), 4000)
    make = lambda **given: vits.make(  # noqa: E731
        name, vits.models.linear(DIM), inverse_temperature=ETA, prior_precision=2.0, **given
    )
    means = np.asarray(jax.vmap(lambda key: make(start="draw").posterior.init(key).mean)(keys))
    np.testing.assert_allclose(np.mean(means, axis=0), 0.0, atol=4.0 / np.sqrt(2.0 * ETA * len(keys)))
    np.testing.assert_allclose(np.cov(means.T), np.eye(DIM) / (2.0 * ETA), atol=0.1 / (2.0 * ETA))
    assert not np.any(make().posterior.init(keys[0]).mean)


def test_an_unknown_start_is_refused():
    with pytest.raises(ValueError, match="unknown start 'drawn'; did you mean 'draw'"):
        vits.make("vits_ii", vits.models.linear(DIM), start="drawn")
