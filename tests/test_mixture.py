from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, gammaln, softmax

import vits
from vits.algorithms.mixture import Mixture, MixtureFactors, MixtureState, Statistics
from vits.history import Buffer
from vits.potentials import Prior
from vits.types import Observation


def mixture(num_components: int, dim: int, *, num_steps: int = 10, **changes: float) -> Mixture:
    numbers = {"prior_weight": 1.0, "prior_shape": 2.0, "prior_scale": 1.0, "separation": 1.0} | changes
    return Mixture(
        prior=Prior(jnp.zeros(dim), jnp.eye(dim)),
        **{name: jnp.asarray(value, float) for name, value in numbers.items()},
        num_components=num_components,
        num_steps=num_steps,
        buffer=Buffer(64),
    )


def learnt(posterior: Mixture, state: MixtureState, x: Any, y: Any) -> MixtureState:
    update = eqx.filter_jit(posterior.update)
    for row, reward in zip(jnp.asarray(x, float), jnp.asarray(y, float), strict=True):
        state, info = update(jax.random.key(0), state, Observation(row, reward))
        assert not info.rejected
    return state


def covariance(factors: MixtureFactors) -> np.ndarray:
    return np.asarray(factors.sqrt_cov @ factors.sqrt_cov.transpose(0, 2, 1))


def named(f: MixtureFactors) -> dict[str, Any]:
    parts = {"gamma": f.weight, "u": f.mean, "V": covariance(f), "alpha": f.shape, "beta": f.scale}
    return {name: np.asarray(value) for name, value in parts.items()}


def numpy_sweep(f: dict[str, Any], x: Any, y: Any, u0: Any, precision: Any, g0: float, a0: float, b0: float) -> Any:
    """One sweep as in the literature, in double precision, with V_k in full and the textbook beta."""
    log_r = np.empty((len(u0), len(y)))
    for k in range(len(u0)):
        spread = np.einsum("ni,ij,nj->n", x, f["V"][k], x)
        misfit = spread + (y - x @ f["u"][k]) ** 2 * f["alpha"][k] / f["beta"][k]
        log_pi = digamma(f["gamma"][k]) - digamma(f["gamma"].sum())
        log_r[k] = log_pi - 0.5 * (np.log(f["beta"][k]) - digamma(f["alpha"][k])) - 0.5 * misfit
    r = softmax(log_r, axis=0)
    new = {"gamma": g0 + r.sum(1), "alpha": a0 + 0.5 * r.sum(1), "u": [], "V": [], "beta": [], "r": r}
    for k in range(len(u0)):
        V = np.linalg.inv((x.T * r[k]) @ x + precision)
        u = V @ ((x.T * r[k]) @ y + precision @ u0[k])
        new["V"].append(V)
        new["u"].append(u)
        quadratics = (r[k] * y) @ y + u0[k] @ precision @ u0[k] - u @ np.linalg.solve(V, u)
        new["beta"].append(b0 + 0.5 * quadratics)
    return {name: np.asarray(value) for name, value in new.items()}


def test_one_component_is_the_closed_form_normal_inverse_gamma_posterior(x64: None) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    posterior = mixture(1, 3)
    state = learnt(posterior, posterior.init(jax.random.key(0)), x, y)
    precision = x.T @ x + np.eye(3)
    mean = np.linalg.solve(precision, x.T @ y)
    np.testing.assert_allclose(state.factors.mean[0], mean, rtol=1e-10)
    np.testing.assert_allclose(covariance(state.factors)[0], np.linalg.inv(precision), rtol=1e-10)
    np.testing.assert_allclose(state.factors.shape, [2.0 + 15.0])
    np.testing.assert_allclose(state.factors.scale, [1.0 + 0.5 * (y @ y - mean @ precision @ mean)], rtol=1e-10)
    assert state.history is None


def test_a_sweep_with_one_component_is_the_closed_form_too() -> None:
    rng = np.random.default_rng(1)
    posterior = mixture(1, 2)
    prior = posterior.init(jax.random.key(0))
    history = Buffer(64).init(2)
    for _ in range(10):
        row = Observation(jnp.asarray(rng.normal(size=2), float), jnp.asarray(rng.normal(), float))
        history = history.append(row)
    exact = learnt(posterior, prior, history.features[:10], history.rewards[:10]).factors
    swept = eqx.filter_jit(posterior.sweep)(prior.factors, prior.prior_mean, history)
    np.testing.assert_allclose(covariance(swept), covariance(exact), rtol=1e-4, atol=1e-5)
    for name in ("weight", "mean", "shape", "scale"):
        np.testing.assert_allclose(getattr(swept, name), getattr(exact, name), rtol=1e-4, atol=1e-5)


def test_two_components_and_two_observations_by_hand(x64: None) -> None:
    # x = (1, 2), y = (1, -2), u0 = (-1, 1), V0 = 1, alpha0 = 2, beta0 = 1, gamma0 = 1. In the first sweep everything
    # but the residuals is the same for both components, so r_ik is proportional to exp(-(y_i - x_i u0_k)^2):
    #   r_1 = (e^-4, 1) / (1 + e^-4),  r_2 = (1, e^-16) / (1 + e^-16),
    # and for component 1, n = 0.0179862 + 0.9999999, V^-1 = 0.0179862 + 4 * 0.9999999 + 1 = 5.0179857,
    #   u = (0.0179862 - 4 * 0.9999999 - 1) / 5.0179857,  beta = 1 + (0.0179862 + 4 * 0.9999999 + 1 - u^2 V^-1) / 2.
    posterior = mixture(2, 1)
    state = posterior.init(jax.random.key(0))
    u0 = jnp.asarray([[-1.0], [1.0]])
    history = Buffer(4).init(1)
    for x, y in ((1.0, 1.0), (2.0, -2.0)):
        history = history.append(Observation(jnp.asarray([x]), jnp.asarray(y)))
    first = eqx.filter_jit(posterior.sweep)(state.factors._replace(mean=u0), u0, history)
    np.testing.assert_allclose(first.weight, [2.0179860974, 1.9820139026], rtol=1e-9)
    np.testing.assert_allclose(first.mean[:, 0], [-0.9928313029, 0.9999995458], rtol=1e-9)
    np.testing.assert_allclose(covariance(first)[:, 0, 0], [0.1992831482, 0.5045372428], rtol=1e-9)
    np.testing.assert_allclose(first.shape, [2.5089930487, 2.4910069513], rtol=1e-9)
    np.testing.assert_allclose(first.scale, [1.0358434822, 1.0000009003], rtol=1e-9)


def test_sweeps_agree_with_the_textbook_formulas(x64: None) -> None:
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(12, 2)), rng.normal(size=12)
    posterior = mixture(3, 2, num_steps=4)
    state = posterior.init(jax.random.key(1))
    u0 = np.asarray(state.prior_mean)
    f = {"gamma": np.ones(3), "alpha": np.full(3, 2.0), "beta": np.ones(3), "u": u0, "V": np.stack([np.eye(2)] * 3)}
    state = learnt(posterior, state, x, y)
    for t in range(1, 13):
        for _ in range(4):
            f = numpy_sweep(f, x[:t], y[:t], u0, np.eye(2), 1.0, 2.0, 1.0)
    np.testing.assert_allclose(state.factors.weight, f["gamma"], rtol=1e-8)
    np.testing.assert_allclose(state.factors.mean, f["u"], rtol=1e-7)
    np.testing.assert_allclose(covariance(state.factors), f["V"], rtol=1e-8)
    np.testing.assert_allclose(state.factors.scale, f["beta"], rtol=1e-8)


def evidence_bound(f: dict[str, Any], r: Any, x: Any, y: Any, u0: Any, g0: float, a0: float, b0: float) -> float:
    """E_q[log p(y, z, pi, w, sigma2)] - E_q[log q], with V0 = I."""
    dim = x.shape[1]
    gamma, log_pi = f["gamma"], digamma(f["gamma"]) - digamma(f["gamma"].sum())
    bound = gammaln(g0 * len(gamma)) - len(gamma) * gammaln(g0) + (g0 - 1) * log_pi.sum()
    bound -= gammaln(gamma.sum()) - gammaln(gamma).sum() + ((gamma - 1) * log_pi).sum()
    bound += (r * log_pi[:, None]).sum() - (r * np.log(r)).sum()
    for k in range(len(u0)):
        u, V, a, b = f["u"][k], f["V"][k], f["alpha"][k], f["beta"][k]
        log_noise, inverse_noise = np.log(b) - digamma(a), a / b
        misfit = (y - x @ u) ** 2 * inverse_noise + np.einsum("ni,ij,nj->n", x, V, x)
        bound += -0.5 * (r[k] * (np.log(2 * np.pi) + log_noise + misfit)).sum()
        away = (u - u0[k]) @ (u - u0[k]) * inverse_noise + np.trace(V)
        bound += -0.5 * away + 0.5 * np.linalg.slogdet(V)[1] + 0.5 * dim  # w, the noise terms of p and q cancel
        bound += a0 * np.log(b0) - gammaln(a0) - (a0 + 1) * log_noise - b0 * inverse_noise
        bound -= a * np.log(b) - gammaln(a) - (a + 1) * log_noise - b * inverse_noise
    return float(bound)


def test_the_sweeps_climb_to_a_maximum_of_the_evidence_bound(x64: None) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(20, 2))
    y = x @ np.array([1.0, -1.0]) * rng.choice([-1.0, 1.0], size=20) + 0.3 * rng.normal(size=20)
    posterior = mixture(2, 2)
    state = posterior.init(jax.random.key(4))
    history = Buffer(32).init(2)
    for row, reward in zip(x, y, strict=True):
        history = history.append(Observation(jnp.asarray(row), jnp.asarray(reward)))
    u0, factors, bounds = np.asarray(state.prior_mean), state.factors, []
    sweep = eqx.filter_jit(posterior.sweep)

    for _ in range(60):
        r = numpy_sweep(named(factors), x, y, u0, np.eye(2), 1.0, 2.0, 1.0)["r"]
        factors = sweep(factors, state.prior_mean, history)
        bounds.append(evidence_bound(named(factors), r, x, y, u0, 1.0, 2.0, 1.0))
    assert np.all(np.diff(bounds) > -1e-9)
    assert bounds[-1] > bounds[0] + 1.0
    for name in ("gamma", "u", "alpha", "beta"):
        for nudge in (0.99, 1.01):
            moved = named(factors) | {name: named(factors)[name] * nudge}
            assert evidence_bound(moved, r, x, y, u0, 1.0, 2.0, 1.0) < bounds[-1]


def test_two_groups_of_rewards_are_told_apart() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(60, 2))
    sign = rng.choice([-1.0, 1.0], size=60)
    y = sign * (x @ np.array([2.0, -1.0])) + 0.1 * rng.normal(size=60)
    posterior = mixture(2, 2)
    factors = learnt(posterior, posterior.init(jax.random.key(0)), x, y).factors
    found = np.asarray(factors.mean)[np.argsort(np.asarray(factors.mean)[:, 0])]
    np.testing.assert_allclose(found, [[-2.0, 1.0], [2.0, -1.0]], atol=0.15)


@pytest.mark.parametrize("num_components", [1, 2])
def test_the_noise_scale_survives_single_precision(num_components: int) -> None:
    # y'Ry is about 2.5e9 and beta about 1: the textbook difference keeps no correct digit of it.
    rng = np.random.default_rng(5)
    x = np.concatenate([np.ones((40, 1)), rng.normal(size=(40, 1))], axis=1).astype(np.float32)
    y = (x @ np.array([8000.0, 3000.0]) + 0.1 * rng.normal(size=40)).astype(np.float32)
    posterior = mixture(num_components, 2, prior_scale=0.5, separation=1e-3)
    posterior = eqx.tree_at(lambda p: p.prior, posterior, Prior(jnp.array([8000.0, 3000.0]), jnp.eye(2)))
    factors = learnt(posterior, posterior.init(jax.random.key(0)), x, y).factors
    assert np.all(np.asarray(factors.scale) >= 0.5)
    assert np.sum(np.asarray(factors.scale)) < 0.5 * num_components + 1.0


def test_draws_have_the_moments_of_the_mixture() -> None:
    posterior = mixture(2, 2)
    rng = np.random.default_rng(6)
    state = learnt(posterior, posterior.init(jax.random.key(0)), rng.normal(size=(12, 2)), rng.normal(size=12))
    f = jax.tree.map(np.asarray, state.factors)
    pi = f.weight / f.weight.sum()
    draws = np.asarray(jax.vmap(posterior.sample, (0, None))(jax.random.split(jax.random.key(1), 40_000), state))
    spread = np.einsum("k,kij->ij", pi**2 * f.scale / (f.shape - 1.0), covariance(state.factors))
    np.testing.assert_allclose(draws.mean(0), pi @ f.mean, atol=0.02)
    np.testing.assert_allclose(np.cov(draws.T), spread, atol=0.05 * spread.max())


def test_it_starts_at_the_prior_with_components_apart() -> None:
    posterior = mixture(3, 2)
    factors = posterior.init(jax.random.key(0)).factors
    np.testing.assert_allclose(np.mean(factors.mean, axis=0), np.zeros(2), atol=1e-6)
    assert np.min(np.linalg.norm(np.diff(factors.mean, axis=0), axis=1)) > 0.1
    np.testing.assert_allclose(covariance(factors), np.stack([np.eye(2)] * 3), rtol=1e-6)


@pytest.mark.parametrize("num_components", [1, 2])
def test_an_observation_that_is_not_finite_changes_nothing(num_components: int) -> None:
    posterior = mixture(num_components, 2)
    state = posterior.init(jax.random.key(0))
    broken = Observation(jnp.ones(2), jnp.asarray(jnp.nan))
    new, info = eqx.filter_jit(posterior.update)(jax.random.key(0), state, broken)
    assert info.rejected
    assert not info.is_finite
    jax.tree.map(np.testing.assert_array_equal, new, state)


@pytest.mark.parametrize("num_components", [1, 2])
@pytest.mark.parametrize("unit", [1.0, 1e30])
def test_a_reward_beyond_the_resolution_of_the_noise_is_rejected(x64: None, num_components: int, unit: float) -> None:
    # Large rewards are well where the prior expects them: what counts is how far off they are in its own units.
    posterior = mixture(num_components, 2, prior_scale=unit**2)
    update = eqx.filter_jit(posterior.update)
    state, info = update(
        jax.random.key(0), posterior.init(jax.random.key(0)), Observation(jnp.ones(2), jnp.asarray(1e3 * unit))
    )
    assert not info.rejected
    assert float(jnp.max(state.factors.mean)) > 100.0 * unit
    new, info = update(jax.random.key(0), state, Observation(jnp.ones(2), jnp.asarray(1e38 * unit)))
    assert info.rejected
    jax.tree.map(np.testing.assert_array_equal, new, state)


@pytest.mark.heavy
def test_vts_plays_better_than_chance_on_noisy_linear_arms() -> None:
    world = vits.environments.linear(zeta=1.0, dim=2, num_arms=2, pool_size=3)
    policy = vits.make("vts", vits.models.linear(2), num_arms=2)
    regret = vits.simulate(0, world, policy, 150, seeds=4)
    chance = vits.simulate(0, world, vits.make("uniform", vits.models.linear(2)), 150, seeds=4)
    assert not regret.failed.any()
    assert regret.regret.sum() < 0.7 * chance.regret.sum()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": vits.models.logistic(2)}, "vts needs a linear model, but got Logistic"),
        ({"num_arms": 0}, "num_arms must be a whole number"),
        ({"num_components": 0}, "num_components must be a whole number"),
        ({"num_steps": 0}, "num_steps must be a whole number"),
        ({"prior_shape": -1.0}, "prior_shape must be a positive finite number"),
        ({"separation": 0.0}, "separation must be a positive finite number"),
        ({"num_components": 1, "window": 10}, "window needs num_components of at least 2"),
        ({"fold_after": 10, "window": 10}, "window must be left out where observations are folded, but is 10"),
        ({"fold_after": 0}, "fold_after must be a whole number of at least 1, but is 0"),
    ],
)
def test_vts_says_what_it_cannot_take(changes: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"model": vits.models.linear(2), "num_arms": 3} | changes
    with pytest.raises(ValueError, match=message):
        vits.make("vts", **arguments)


def test_sums_around_other_means_are_those_of_other_residuals(x64: None) -> None:
    rng = np.random.default_rng(0)
    x, y, r, u, move = (rng.normal(size=shape) for shape in ((9, 2), 9, (3, 9), (3, 2), (3, 2)))
    r = r**2

    def sums(u: Any) -> Statistics:
        e = y - u @ x.T
        return Statistics(
            jnp.asarray(r.sum(axis=1)),
            jnp.asarray(np.einsum("kn,ni,nj->kij", r, x, x)),
            jnp.asarray((r * e) @ x),
            jnp.asarray((r * e**2).sum(axis=1)),
        )

    jax.tree.map(np.testing.assert_allclose, sums(u).around(jnp.asarray(move)), sums(u + move))


def test_a_folded_observation_keeps_its_responsibilities(x64: None) -> None:
    """A row leaves: what stays are its sums with the responsibilities at the factors of that time."""
    posterior = replace(mixture(2, 2, num_steps=3), buffer=Buffer(window=2), folds=True)
    x, y = np.array([[1.0, 2.0], [0.5, -1.0], [1.0, 0.0]]), np.array([1.0, -2.0, 0.5])
    before = learnt(posterior, posterior.init(jax.random.key(0)), x[:2], y[:2])
    assert before.folded is not None
    assert float(jnp.sum(before.folded.total)) == 0.0
    after = learnt(posterior, before, x[2:], y[2:])
    f = named(before.factors)
    r = numpy_sweep(f, x[:1], y[:1], np.asarray(before.prior_mean), np.eye(2), 1.0, 2.0, 1.0)["r"][:, 0]
    assert after.folded is not None
    np.testing.assert_allclose(after.folded.total, r)
    np.testing.assert_allclose(after.folded.gram, r[:, None, None] * np.outer(x[0], x[0]))
    e = y[0] - np.asarray(after.factors.mean) @ x[0]  # around the means after the sweeps
    np.testing.assert_allclose(after.folded.cross, (r * e)[:, None] * x[0])
    np.testing.assert_allclose(after.folded.square, r * e**2, atol=1e-12)


def test_a_mixture_that_folds_is_close_to_one_with_all_data() -> None:
    """Rewards from two lines. The arm's expected reward, and its spread over draws, at new features."""
    rng = np.random.default_rng(1)
    count, new = 400, jnp.asarray(rng.normal(size=(50, 2)), float)
    x = rng.normal(size=(count, 2))
    lines = np.where(rng.random(count) < 0.7, x @ [1.0, -1.0], x @ [-0.5, 1.0])
    y = lines + 0.3 * rng.normal(size=count)
    found = {}
    for name, changes in {"folds": {"fold_after": 64}, "all": {"capacity": count}, "window": {"window": 64}}.items():
        policy = vits.make("vts", vits.models.linear(2), num_arms=1, num_steps=3, **changes)
        posterior = policy.posterior.posterior
        rows = (jnp.asarray(x, float), jnp.asarray(y, float))
        state, rejected = eqx.filter_jit(learnt_in_a_loop)(posterior, posterior.init(jax.random.key(0)), *rows)
        assert not np.any(rejected)
        draws = jax.vmap(posterior.sample, (0, None))(jax.random.split(jax.random.key(1), 2000), state) @ new.T
        found[name] = (np.mean(draws, axis=0), np.std(draws, axis=0))
    mean, spread = found["all"]
    off = {name: np.sqrt(np.mean(((found[name][0] - mean) / spread) ** 2)) for name in found}
    assert off["folds"] < 0.5 < off["window"]
    np.testing.assert_allclose(found["folds"][1], spread, rtol=0.2)


def learnt_in_a_loop(posterior: Mixture, state: MixtureState, x: Any, y: Any) -> Any:
    def learn(state: MixtureState, row: Any) -> Any:
        state, info = posterior.update(jax.random.key(0), state, Observation(*row))
        return state, info.rejected

    return jax.lax.scan(learn, state, (x, y))
