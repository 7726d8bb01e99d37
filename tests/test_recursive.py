"""A covariance carried from round to round is the one that would have been computed from all data."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits.algorithms import laplace
from vits.types import Observation

LINEAR = vits.models.custom(
    lambda theta, phi: theta @ phi, loss=lambda f, r: 0.5 * (f - r) ** 2, dim=4, params=jnp.zeros(4)
)
"""A linear model that does not say so: it is treated like a network."""


def learned(policy, features, rewards):
    """The posterior's states after each observation, and what the updates reported."""
    update = eqx.filter_jit(policy.posterior.update)
    state, states, infos = policy.posterior.init(jax.random.key(0)), [], []
    for t, (phi, r) in enumerate(zip(features, rewards, strict=True)):
        observation = Observation(jnp.asarray(phi), jnp.asarray(r), jnp.asarray(0), jnp.asarray(phi)[None])
        state, info = update(jax.random.key(t), state, observation)
        states.append(state)
        infos.append(info)
    return states, infos


def test_a_row_is_added_to_the_precision():
    keys = jax.random.split(jax.random.key(0), 2)
    B, w = jax.random.normal(keys[0], (6, 6)), 3.0 * jax.random.normal(keys[1], (6,))
    new = laplace.with_row(B, w)
    expected = np.linalg.inv(np.linalg.inv(np.asarray(B @ B.T, float)) + np.outer(w, w))
    np.testing.assert_allclose(new @ new.T, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(laplace.with_row(B, jnp.zeros(6)), B)


def test_the_curvature_is_recomputed_eight_times_in_every_doubling():
    due = [count for count in range(1, 1025) if bool(laplace._is_due(jnp.asarray(count)))]
    assert due[:16] == list(range(1, 17))
    for first in (16, 64, 512):
        assert sum(first < count <= 2 * first for count in due) == 8
    assert {64, 72, 80, 512, 576, 1024} <= set(due)


def test_on_a_linear_model_every_round_has_the_exact_posterior():
    rng = np.random.default_rng(0)
    features, rewards = rng.normal(size=(40, 4)), rng.normal(size=40)
    policy = vits.make(
        "laplace_ts", LINEAR, carried=True, num_steps=50, inverse_temperature=5.0, prior_precision=2.0, capacity=64
    )
    states, infos = learned(policy, features, rewards)
    for t in (3, 17, 39):  # 18 and 40 observations: one rank-one step after a recomputation, and a recomputation
        precision = 10.0 * np.eye(4) + 5.0 * features[: t + 1].T @ features[: t + 1]
        mean = np.linalg.solve(precision, 5.0 * features[: t + 1].T @ rewards[: t + 1])
        B = np.asarray(states[t].sqrt_cov, float)
        np.testing.assert_allclose(B @ B.T, np.linalg.inv(precision), rtol=1e-3, atol=1e-6)
        away = np.asarray(states[t].mean) - mean
        assert np.sqrt(away @ precision @ away) < 0.06  # in standard deviations; rounds end within 0.05
    assert not any(bool(info.rejected) for info in infos)
    assert bool(infos[39].refreshed)
    assert not bool(infos[16].refreshed)


def test_on_a_network_the_mode_is_reached_and_the_covariance_is_its_curvature():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(64, 2))
    rewards = np.sin(features[:, 0])
    model = vits.models.mlp(2, hidden=(4,))
    policy = vits.make("laplace_ts", model, carried=True, inverse_temperature=20.0, step_size=0.5, capacity=64)
    states, infos = learned(policy, features, rewards)
    potential, last = policy.posterior.potential, states[-1]
    assert bool(infos[-1].refreshed)
    precision = np.asarray(potential.hessian(last.data, last.mean), float)
    B = np.asarray(last.sqrt_cov, float)
    np.testing.assert_allclose(B @ B.T @ precision, np.eye(model.num_params), atol=2e-2)
    assert np.linalg.norm(B.T @ np.asarray(potential.grad(last.data, last.mean))) < 0.5


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (vits.models.linear(2), {"carried": True}, "carried needs a network"),
        (vits.models.logistic(2), {"carried": True}, "carried needs a network"),
        (vits.models.mlp(2, (3,)), {"carried": True, "curvature": "exact"}, "carried needs a network"),
        (vits.models.mlp(2, (3,)), {"carried": True, "window": 9}, "the window is 9"),
        (vits.models.mlp(2, (3,)), {"step_size": 0.5}, "step_size must be 1 unless the covariance is carried"),
        (vits.models.mlp(2, (3,)), {"carried": True, "step_size": 0.0}, "step_size must be above 0 and at most 1, but"),
        (vits.models.mlp(2, (3,)), {"carried": True, "step_size": 3.0}, "step_size must be above 0 and at most 1, but"),
    ],
)
def test_what_cannot_be_carried_is_refused(model, settings, message):
    with pytest.raises(ValueError, match=message):
        vits.make("laplace_ts", model, **settings)
