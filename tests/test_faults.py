"""The fault campaign in small, and proof that it would notice."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from trust import faults, oracles, reference
from trust.cases import ALGORITHMS, FAULTS

import vits
from vits.inference import guards
from vits.types import new_info

FAST = ("lin_ts",)
SAMPLE = (
    "nothing", "reward nan", "reward 1e38", "feature -inf", "feature 1e38", "feature 1e10", "feature subnormal",
    "zero vector", "an arm of nan", "condition 1e12", "one feature for all", "complex numbers", "lambda 1e-12",
    "eta 1e4", "step x 100", "constant step x 100",
)  # fmt: skip


def select(algorithms, names=None, modes=("jit", "vmap"), precisions=(False,)):
    chosen = [fault for fault in FAULTS if names is None or fault.name in names]
    return [c for c in faults.cases(algorithms, chosen) if c.mode in modes and c.is_double in precisions]


def silent(results):
    return [f"{result.case}: {result.reason}" for result in results if result.outcome == "silent"]


def test_the_campaign_is_large_enough():
    assert len(faults.cases()) >= 2000


def test_no_fault_is_silent_for_lin_ts():
    assert not silent(faults.run(select(FAST)))


def test_what_double_precision_cannot_hold_is_rejected():
    wide = ("feature 1e10", "feature 1e20", "feature 1e38", "lambda 1e-30")
    results = list(faults.run(select(FAST, wide, modes=("jit",), precisions=(True,))))
    assert [result.outcome for result in results] == ["recovered"] * len(wide)


@pytest.mark.parametrize("name", ["vits_ii", "lmc_ts"])
def test_no_fault_of_a_sample_is_silent(name):
    results = list(faults.run(select([name], SAMPLE, modes=("jit",))))
    assert not silent(results)
    ways = {result.case.fault.name: result.outcome for result in results}
    assert ways["nothing"] in ("right", "recovered")  # of long first steps, an inverse is recomputed
    assert ways["reward nan"] == ways["feature 1e38"] == ways["an arm of nan"] == "recovered"
    assert ways["one feature for all"] == ways["complex numbers"] == "refused"


@pytest.mark.heavy
@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in FAST])
def test_no_fault_is_silent(name):
    assert not silent(faults.run(select([name], modes=faults.MODES, precisions=(False, True))))


class Forgetful(eqx.Module):
    """A policy that says all is well and learns nothing from every fifth observation."""

    honest: vits.policies.Policy

    @property
    def posterior(self):
        return self.honest.posterior

    def init(self, key):
        return jnp.asarray(0), self.honest.init(key)

    def choose(self, key, state, arms):
        return self.honest.choose(key, state[1], arms)

    def update(self, key, state, observation):
        count, inner = state
        new, _ = self.honest.update(key, inner, observation)
        kept = guards.choose(count % 5 != 4, new, inner)
        return (count + 1, kept), new_info(is_finite=jnp.asarray(True))


class Blind(Forgetful):
    """A policy that takes in a NaN and says nothing."""

    def update(self, key, state, observation):
        count, inner = state
        new, _ = self.honest.update(key, inner, observation)
        poisoned = new._replace(mean=new.mean + 0.0 * observation.reward)
        return (count + 1, poisoned), new_info(is_finite=jnp.asarray(True))


@pytest.mark.parametrize(("broken", "fault"), [(Forgetful, "nothing"), (Blind, "reward nan")])
def test_a_silent_failure_that_was_planted_is_found(monkeypatch, broken, fault):
    def build(*args, **settings):
        return broken(vits.make(*args, **settings))

    judged = faults._judged

    def judge(case, policy, found):
        return judged(case, policy.honest, found._replace(start=found.start[1], end=found.end[1]))

    monkeypatch.setattr(faults, "_judged", judge)
    results = list(faults.run(select(FAST, (fault,), modes=("jit",)), build))
    assert [result.outcome for result in results] == ["silent"]


def logistic_data(feature):
    rng = np.random.default_rng(3)
    features = rng.standard_normal((30, 3))
    rewards = (rng.random(30) < 1.0 / (1.0 + np.exp(-features @ [-1.0, 0.5, 1.0]))).astype(float)
    features[7, 2], rewards[7] = feature, 1.0
    return features, rewards


def gradient(theta, features, rewards):
    return features.T @ (reference.sigmoid(features @ theta) - rewards) + theta


@pytest.mark.parametrize("feature", [1.0, 1e5, 1e38])
def test_the_mode_of_reference_is_one_whatever_the_features(feature):
    features, rewards = logistic_data(feature)
    found = reference.logistic(features, rewards, eta=1.0, precision=1.0, variational=False)
    # U - |theta|^2 / 2 is convex, so that the mode is no further away than the gradient is long.
    assert np.linalg.norm(gradient(found.mean, features, rewards)) < 1e-6


def test_the_variational_reference_is_stationary():
    features, rewards = logistic_data(1.0)
    found = reference.logistic(features, rewards, eta=1.0, precision=1.0, variational=True)
    draws = np.random.default_rng(0).standard_normal((200_000, 3)) @ np.linalg.inv(found.root).T
    p = reference.sigmoid((found.mean + np.concatenate([draws, -draws])) @ features.T)
    grad = features.T @ (p.mean(axis=0) - rewards) + found.mean
    hessian = (features.T * (p * (1.0 - p)).mean(axis=0)) @ features + np.eye(3)
    # Standard errors: about 0.001 for both. At Laplace's Gaussian they are 0.25 and 0.2.
    np.testing.assert_allclose(np.linalg.solve(found.root.T, grad), 0.0, atol=5e-3)
    np.testing.assert_allclose(hessian, found.precision, rtol=1e-2, atol=1e-2)


def test_a_reference_that_is_not_certain_says_so():
    with pytest.raises(reference.NotConverged, match="no mode after 2 steps"):
        reference.logistic(*logistic_data(1.0), eta=1.0, precision=1.0, variational=False, steps=2)


@pytest.mark.parametrize("allowed", [np.inf, np.nan])
def test_nothing_is_right_by_a_bound_that_is_none(monkeypatch, allowed):
    monkeypatch.setitem(oracles.ORACLES, "lin_ts", lambda seen: {"mean": (0.0, allowed)})
    assert not oracles.verdict("lin_ts", None)[0]
