"""What every preset does before it builds anything, and what baselines can do that others can."""

import inspect
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits import algorithms, catalogue
from vits.inference.per_arm import PerArm
from vits.potentials import DataOptions
from vits.types import Observation

LINEAR = vits.models.linear(2)
KEY = jax.random.key(0)


@pytest.mark.parametrize("name", catalogue.ALGORITHMS)
def test_a_preset_is_where_the_catalogue_says_and_documents_its_options_once(name):
    build = algorithms.builder(name)
    assert getattr(algorithms, name) is build
    assert set(inspect.signature(build).parameters) - {"data", "model"} <= set(algorithms.hyperparameters(name))
    data = set(DataOptions.__annotations__)
    assert not data & set(inspect.signature(build).parameters)


WRONG_TYPES = """
import vits
from vits import catalogue

def said(**arguments):
    name = arguments.pop("name")
    model = arguments.pop("model") if "model" in arguments else vits.models.linear(2)
    try:
        vits.make(name, model, **arguments)
    except ValueError as error:
        return str(error)

for name in catalogue.ALGORITHMS:
    for model in (None, "linear", 3, vits.models.linear):
        message = f"model must be a reward model such as vits.models.linear(3), but is {model!r}"
        assert said(name=name, model=model) == message, name
for value in ("1", b"1", None, [None]):
    for option in ("inverse_temperature", "prior_precision"):
        assert said(name="lin_ts", **{option: value}) == f"{option} must be a number, but is {value!r}"
assert said(name="vits_ii", step_size="0.5") == "step_size must be a number, but is '0.5'"
"""


def test_what_is_not_a_model_or_a_number_is_refused_in_one_sentence():
    """In a process of its own, since the tests check types before the package can."""
    done = subprocess.run([sys.executable, "-c", WRONG_TYPES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("lin_ucb", {"fold_after": 8}, "unknown hyperparameter of lin_ucb 'fold_after'"),
        ("lin_ts", {"minibatch": 8}, "unknown hyperparameter of lin_ts 'minibatch'"),
        ("lin_ucb", {"windows": 8}, "unknown hyperparameter of lin_ucb 'windows'; did you mean 'window'"),
        ("vits_ii_hf", {"curvature": "exact"}, "unknown hyperparameter of vits_ii_hf 'curvature'"),
        ("uniform", {"window": 8}, "unknown hyperparameter of uniform 'window'"),
        ("vits_ii", {"prior": (0.0, 1.0), "prior_precision": 1.0}, "prior_precision must be left out when there is a"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name_and_by_call(name, option, message):
    for build in (lambda: vits.make(name, LINEAR, **option), lambda: getattr(algorithms, name)(LINEAR, **option)):
        with pytest.raises(ValueError, match=message) as error:
            build()
        assert "\n" not in str(error.value)


def test_a_prior_may_come_with_a_temperature():
    policy = vits.make("lin_ts", LINEAR, prior=(1.0, 4.0), inverse_temperature=2.0)
    np.testing.assert_allclose(policy.posterior.potential.prior.matrix, 0.25 * np.eye(2))


def observations(count, arms=1):
    rng = np.random.default_rng(3)
    features = rng.standard_normal((count, 2))
    rewards = features @ [1.0, -2.0] + 0.1 * rng.standard_normal(count)
    return [
        Observation(jnp.asarray(phi, float), jnp.asarray(r, float), jnp.asarray(i % arms))
        for i, (phi, r) in enumerate(zip(features, rewards, strict=True))
    ]


def learn(policy, rows):
    state, update = policy.init(KEY), eqx.filter_jit(policy.update)
    for row in rows:
        state, info = update(KEY, state, row)
        assert int(info.reason) == 0
    return state


def exact(rows, eta=1.0, lam=1.0):
    phi, r = np.stack([row.features for row in rows]), np.stack([row.reward for row in rows])
    V = lam * np.eye(2) + phi.T @ phi
    return np.linalg.solve(V, phi.T @ r), np.linalg.inv(eta * V)


@pytest.mark.parametrize("name", ["lin_ts", "lin_ucb", "greedy"])
def test_with_a_window_the_posterior_is_exact_for_the_last_observations(name):
    rows = observations(30)
    eta = {"inverse_temperature": 3.0} if name == "lin_ts" else {}
    policy = vits.make(name, LINEAR, window=7, prior_precision=2.0, **eta)
    mean, sqrt_cov = policy.posterior.moments(learn(policy, rows))
    expected_mean, expected_cov = exact(rows[-7:], eta=3.0 if eta else 1.0, lam=2.0)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-4)
    np.testing.assert_allclose(sqrt_cov @ sqrt_cov.T, expected_cov, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["lin_ucb", "greedy"])
def test_per_arm_baselines_score_each_arm_by_its_own_posterior(name):
    rows = observations(20, arms=2)
    policy = vits.make(name, LINEAR, per_arm=2)
    assert isinstance(policy.posterior, PerArm)
    state, arms = learn(policy, rows), jnp.asarray([[1.0, 0.5], [0.3, -1.0]])
    scores = policy.scores(KEY, state, arms)
    for arm in range(2):
        mean, cov = exact([row for row in rows if int(row.action) == arm])
        phi = np.asarray(arms[arm])
        optimism = np.sqrt(phi @ cov @ phi) if name == "lin_ucb" else 0.0
        np.testing.assert_allclose(scores[arm], phi @ mean + optimism, rtol=1e-4)
    with pytest.raises(ValueError, match="the arms on offer must be the 2 that have a posterior each, but are 3"):
        policy.act(KEY, state, jnp.ones((3, 2)))


def test_uniform_has_nothing_to_keep_for_each_arm():
    policy = vits.make("uniform", LINEAR, per_arm=3)
    assert policy.init(KEY) == ()
    plays = [int(policy.act(jax.random.key(i), (), jnp.ones((3, 2)))) for i in range(30)]
    assert set(plays) == {0, 1, 2}


@pytest.mark.parametrize("name", ["greedy", "lin_ucb"])
def test_an_agent_with_named_arms_runs_baselines(name):
    agent = vits.Agent(name, model=LINEAR, arms=["a", "b"], seed=0)
    for reward in (1.0, 0.0, 0.5):
        agent.learn(agent.decide([1.0, 0.5]), reward)
    assert agent.diagnostics().observations == 3
    assert agent.posterior("a").mean.shape == (2,)
