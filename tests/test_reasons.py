"""A rejected update says why, and the first cause is the one that counts."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits import steps
from vits.algorithms.vits import VITS
from vits.inference import variational
from vits.inference.guards import guarded
from vits.inference.variational import InverseRule, exact_curvature, first_order_inverse
from vits.potentials import potential
from vits.types import REASONS, Observation, Reason, first_reason, reason_counts

LINEAR = vits.models.linear(2)


def observation(features: Any = (1.0, 2.0), reward: float = 1.0, action: int = 0) -> Observation:
    return Observation(jnp.asarray(features, float), jnp.asarray(reward), jnp.asarray(action))


def reason_of(policy: Any, *rows: Observation) -> Reason:
    """Of the last update; the others must be accepted, and a rejected one must leave the state as it was."""
    update = eqx.filter_jit(policy.update)
    state = policy.init(jax.random.key(0))
    for i, row in enumerate(rows):
        new, info = update(jax.random.key(i), state, row)
        if i + 1 < len(rows):
            assert int(info.reason) == Reason.FINE
            state = new
    if int(info.reason):
        pairs = zip(jax.tree.leaves(new), jax.tree.leaves(state), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs)
    assert bool(info.rejected) == (int(info.reason) > 0)
    return Reason(int(info.reason))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (observation(), Reason.FINE),
        (observation(reward=np.nan), Reason.OBSERVATION),
        (observation(features=(np.inf, 0.0)), Reason.OBSERVATION),
        (observation(features=(1e30, 0.0)), Reason.FEATURES),
        (observation(features=(1e10, 1.0)), Reason.DROWNED),
        (observation(reward=1e30), Reason.UNRESOLVED),
    ],
)
def test_what_is_wrong_with_an_observation_of_lin_ts(row: Observation, reason: Reason) -> None:
    assert reason_of(vits.make("lin_ts", LINEAR), row) == reason


def test_a_full_buffer_is_told_from_a_bad_number() -> None:
    policy = vits.make("laplace_ts", vits.models.logistic(2), capacity=1)
    assert reason_of(policy, observation(), observation()) == Reason.FULL
    # The observation is the first cause.
    assert reason_of(policy, observation(), observation(reward=np.nan)) == Reason.OBSERVATION


def test_an_arm_that_does_not_exist() -> None:
    policy = vits.make("lin_ts", LINEAR, per_arm=3)
    assert reason_of(policy, observation(action=2)) == Reason.FINE
    assert reason_of(policy, observation(action=3)) == Reason.NO_SUCH_ARM


def test_steps_that_grow_have_diverged() -> None:
    long = {"step_rule": "constant", "step_size": 3.0, "num_steps": 5}
    assert reason_of(vits.make("vits_i", LINEAR, **long), observation()) == Reason.DIVERGED
    assert reason_of(vits.make("lmc_ts", LINEAR, **long), observation()) == Reason.DIVERGED


def test_parameters_that_become_infinite() -> None:
    policy = vits.make("vits_ii", LINEAR, step_rule="constant", step_size=1e6, num_steps=10)
    assert reason_of(policy, observation(reward=10.0)) == Reason.PARAMETERS


def test_a_mean_beyond_the_working_precision() -> None:
    assert reason_of(vits.make("vits_ii", LINEAR), observation(reward=1e12)) == Reason.UNRESOLVED
    assert reason_of(vits.make("vits_ng", LINEAR), observation(reward=1e12)) == Reason.UNRESOLVED
    assert reason_of(vits.make("laplace_ts", LINEAR), observation(reward=1e12)) == Reason.UNRESOLVED
    assert reason_of(vits.make("ensemble_ts", LINEAR, num_members=3), observation(reward=1e12)) == Reason.UNRESOLVED
    assert reason_of(vits.make("vts", LINEAR, num_arms=2), observation(reward=1e12)) == Reason.UNRESOLVED


def test_a_root_too_wide_for_a_feature() -> None:
    assert reason_of(vits.make("vits_ii", LINEAR), observation(features=(1e10, 1.0))) == Reason.DROWNED
    # The preconditioner of a chain is such a root.
    chain = vits.make("lmc_ts", LINEAR, preconditioner="design")
    assert reason_of(chain, observation(features=(1e10, 1.0))) == Reason.DROWNED


def test_an_inverse_that_is_lost() -> None:
    """A rule whose D is singular at the end of a round: Newton-Schulz from B finds no inverse of a singular B."""

    def forget(new_sqrt_cov: Any, sqrt_precision: Any, curvature: Any, step: Any) -> Any:
        return sqrt_precision

    target = potential(LINEAR, inverse_temperature=1.0, prior_precision=1.0)

    class Singular(VITS):
        """B loses a direction in the first step."""

        def _watched(self, old: Any, new: Any) -> Any:
            return new._replace(sqrt_cov=new.sqrt_cov.at[:, 0].set(0.0).at[0, 0].set(1e-30)), jnp.asarray(False)

    rule = InverseRule(forget, first_order_inverse.finish)
    posterior = Singular(target, steps.safe(0.5), variational.antithetic(), exact_curvature, rule, 1)
    assert reason_of(posterior, observation()) == Reason.INVERSE


def test_the_first_of_several_reasons_is_reported() -> None:
    yes, no = jnp.asarray(True), jnp.asarray(False)
    assert int(first_reason((Reason.FEATURES, no), (Reason.FULL, yes), (Reason.DIVERGED, yes))) == Reason.FULL
    assert int(first_reason((Reason.FEATURES, no))) == Reason.FINE
    old, new = {"x": jnp.zeros(())}, {"x": jnp.full((), jnp.inf)}
    _, info = guarded(observation(), old, new, parameters=new, failures={Reason.DIVERGED: yes})
    assert int(info.reason) == Reason.PARAMETERS


def test_every_reason_has_a_sentence_of_its_own() -> None:
    assert set(REASONS) == set(Reason)
    assert len(set(REASONS.values())) == len(Reason)
    assert all("\n" not in sentence and not sentence.endswith(".") for sentence in REASONS.values())


def test_reasons_are_counted_by_their_sentences() -> None:
    found = reason_counts(jnp.asarray([[0, 4, 4], [2, 0, 0]]))
    assert found == {REASONS[Reason.FULL]: 2, REASONS[Reason.OBSERVATION]: 1}
    assert reason_counts(np.zeros(3, int)) == {}


def test_a_simulation_keeps_the_reason_of_every_round() -> None:
    policy = vits.make("vits_ii", LINEAR, step_rule="constant", step_size=100.0)
    trace = vits.simulate(0, vits.environments.linear(zeta=1.0, dim=2, num_arms=3), policy, 20, seeds=2)
    assert trace.info.reason.shape == (2, 20)
    assert set(reason_counts(trace.info.reason)) <= {REASONS[Reason.DIVERGED], REASONS[Reason.PARAMETERS]}
    assert np.array_equal(trace.info.rejected, trace.info.reason > 0)
    assert trace.failed.all()


def test_an_agent_says_the_reason() -> None:
    agent = vits.Agent("lin_ts", model=vits.models.linear(2), seed=0)
    decision = agent.decide([[1e10, 1.0], [1e10, 1.0]])
    with pytest.raises(vits.agent.RejectedUpdate, match=REASONS[Reason.DROWNED]):
        agent.learn(decision.id, 1.0)
