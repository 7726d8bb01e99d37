"""The fault campaign in small, and proof that it would notice."""

import equinox as eqx
import jax.numpy as jnp
import pytest
from trust import faults
from trust.cases import FAULTS

import vits
from vits.types import report

FAST = ("lin_ts",)
SAMPLE = (
    "nothing", "reward nan", "reward 1e38", "feature -inf", "feature 1e38", "feature subnormal", "zero vector",
    "an arm of nan", "condition 1e12", "one feature for all", "complex numbers", "lambda 1e-12", "eta 1e4",
    "step x 100", "constant step x 100",
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


@pytest.mark.parametrize("name", ["vits_ii", "lmc_ts"])
def test_no_fault_of_a_sample_is_silent(name):
    results = list(faults.run(select([name], SAMPLE, modes=("jit",))))
    assert not silent(results)
    ways = {result.case.fault.name: result.outcome for result in results}
    assert ways["nothing"] in ("right", "recovered")  # of long first steps, an inverse is recomputed
    assert ways["reward nan"] == ways["feature 1e38"] == ways["an arm of nan"] == "recovered"
    assert ways["one feature for all"] == ways["complex numbers"] == "refused"


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["vits_i", "vits_ii", "vits_ii_hf", "vits_ng", "fg_ts", "laplace_ts", "ensemble_ts"])
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
        kept = vits.types.choose(count % 5 != 4, new, inner)
        return (count + 1, kept), report(is_finite=jnp.asarray(True))


class Blind(Forgetful):
    """A policy that takes in a NaN and says nothing."""

    def update(self, key, state, observation):
        count, inner = state
        new, _ = self.honest.update(key, inner, observation)
        poisoned = new._replace(mean=new.mean + 0.0 * observation.reward)
        return (count + 1, poisoned), report(is_finite=jnp.asarray(True))


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
