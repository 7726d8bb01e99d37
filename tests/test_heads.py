"""Networks with one output per arm: what they compute, and where they can be used."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits.models.network import unflatten

MODEL = vits.models.mlp(2, hidden=(4,), outputs=3)
ROWS, LABELS = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 3


def test_the_last_feature_says_which_output():
    theta = jax.random.normal(jax.random.key(0), (MODEL.num_params,))
    context = jnp.asarray([0.3, -1.0])
    outputs = unflatten(MODEL.network, theta)(context)
    for arm in range(3):
        assert float(MODEL.mean(theta, jnp.append(context, arm))) == pytest.approx(float(outputs[arm]))
    for arm in (-1.0, 3.0, 0.5):
        assert np.isnan(MODEL.mean(theta, jnp.append(context, arm)))


def test_an_output_that_was_not_played_has_no_gradient():
    theta = jax.random.normal(jax.random.key(0), (MODEL.num_params,))
    slope = unflatten(MODEL.network, jax.grad(MODEL.output)(theta, jnp.asarray([0.3, -1.0, 1.0])))
    np.testing.assert_array_equal(slope.layers[-1].bias, [0.0, 1.0, 0.0])


def test_a_table_with_one_output_per_class_is_learned():
    angles = np.linspace(0.0, 2.0 * np.pi, 90, endpoint=False)
    rows, labels = np.stack([np.cos(angles), np.sin(angles)], 1), np.arange(90) // 30
    world = vits.environments.classification(rows, labels, encoding="head")
    policy = vits.make("vits_ng", vits.models.mlp(2, hidden=(4,), outputs=3), inverse_temperature=20.0)
    regret = np.asarray(vits.simulate(0, world, policy, 150, seeds=2).regret)
    assert np.all(np.sum(regret[:, 75:], axis=1) < 15.0)  # 50 for a policy that does not learn


def test_an_agent_with_named_arms_takes_one_context():
    agent = vits.Agent("lmc_ts", model=MODEL, arms=["a", "b", "c"], seed=0)
    decision = agent.decide([0.1, 0.2], available=["b", "c"])
    assert decision.arm in ("b", "c")
    np.testing.assert_allclose(decision.features, [0.1, 0.2, "abc".index(decision.arm)])
    agent.learn(decision.id, 1.0)
    agent.remove_arm("a")
    for name in ("d", "a"):  # the output of the old a has learned from its rewards
        with pytest.raises(ValueError, match=f"the model has 3 outputs, and none for the new arm '{name}'"):
            agent.add_arm(name)
    assert agent.arms == ("b", "c")
    assert agent.decide([0.1, 0.2]).arm in ("b", "c")


@pytest.mark.parametrize("last", [3.0, -1.0, 0.5])
def test_features_of_an_output_that_does_not_exist_are_refused(last):
    shared = vits.Agent("lmc_ts", model=MODEL)
    mapped = vits.Agent("lmc_ts", model=MODEL, arms=["a", "b"], features=lambda x, arm: [x, x, last])
    for call in (
        lambda: shared.decide([[0.1, 0.2, 0.0], [0.1, 0.2, last]]),
        lambda: shared.partial_fit([[0.1, 0.2, 0.0], [0.1, 0.2, last]], [1.0, 2.0]),
        lambda: mapped.decide(0.1),
    ):
        with pytest.raises(ValueError, match=f"its output, a whole number from 0 to 2, but is {last:g}"):
            call()
    for agent in (shared, mapped):
        assert agent.diagnostics().observations == agent.diagnostics().decisions == 0


def test_outputs_that_do_not_match_the_arms_are_refused():
    with pytest.raises(ValueError, match="the model has 3 outputs, one for each arm, but there are 2 arms"):
        vits.Agent("lmc_ts", model=MODEL, arms=["a", "b"])
    world = vits.environments.classification(ROWS, LABELS % 2, encoding="head")
    with pytest.raises(ValueError, match="the model has 3 outputs, one for each arm, but there are 2 arms"):
        vits.simulate(0, world, vits.make("lmc_ts", MODEL), 3)
    with pytest.raises(ValueError, match="outputs must be a whole number of at least 1, but is 0"):
        vits.models.mlp(2, outputs=0)
