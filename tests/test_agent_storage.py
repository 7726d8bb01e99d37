"""Saved agents: they go on exactly, and nothing damaged, foreign or newer is ever taken for one."""

import hashlib
import pickle
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits

ARMS = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]])


def played(agent, rounds, context=ARMS):
    arms = []
    for i in range(rounds):
        decision = agent.decide(context)
        arms.append(decision.arm)
        if i % 3:
            agent.learn(decision, float(i % 2))
    return arms


def phi(context, arm):
    return [context, float(arm == "b")]


def rate(theta, features):
    return jax.nn.softplus(features @ theta)


def nll(theta, features, reward):
    return rate(theta, features) - reward * jnp.log(rate(theta, features))


AGENTS = {
    "shared": (lambda: vits.Agent("vits_ii", vits.models.linear(2), num_steps=2), {}, ARMS),
    "per arm": (lambda: vits.Agent("laplace_ts", vits.models.logistic(2), arms=["a", 7, ("c", None)]), {}, [1.0, 0.5]),
    "mapped": (
        lambda: vits.Agent("lin_ts", vits.models.linear(2), arms=["a", "b"], features=phi, prior=(0.0, [1.0, 2.0])),
        {"features": phi},
        0.5,
    ),
    "menus": (lambda: vits.Agent("fg_ts", vits.models.linear(2), num_arms=4, num_steps=1), {}, ARMS),
    "own model": (
        lambda: vits.Agent("laplace_ts", vits.models.custom(rate, nll, dim=2, num_params=2), window=8),
        {"model": vits.models.custom(rate, nll, dim=2, num_params=2)},
        ARMS,
    ),
}


@pytest.mark.parametrize("name", AGENTS)
def test_a_loaded_agent_goes_on_exactly_as_the_saved_one(name, tmp_path):
    make, parts, context = AGENTS[name]
    agent = make()
    played(agent, 7, context)
    agent.save(tmp_path / "agent")
    loaded = vits.Agent.load(tmp_path / "agent", **parts)
    assert loaded.diagnostics() == agent.diagnostics()
    for number in (0, 3):  # pending since before it was saved
        waiting = f"{agent._ledger.tag}-{number}"
        agent.learn(waiting, 1.0)
        loaded.learn(waiting, 1.0)
    assert played(loaded, 12, context) == played(agent, 12, context)
    for ours, theirs in zip(agent._snapshot.state_arrays, loaded._snapshot.state_arrays, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_networks_are_made_again(tmp_path):
    model = vits.models.mlp(2, hidden=(3,), activation="square")
    vits.Agent("uniform", model).save(tmp_path / "agent")
    loaded = vits.Agent.load(tmp_path / "agent")
    assert loaded._snapshot.settings.model.network.activation is jnp.square
    with pytest.raises(ValueError, match="the saved one, mlp with 2 features and 13 parameters, but is linear"):
        vits.Agent.load(tmp_path / "agent", model=vits.models.linear(2))


def test_what_cannot_be_saved_is_asked_for(tmp_path):
    path = tmp_path / "agent"
    AGENTS["own model"][0]().save(path)
    with pytest.raises(ValueError, match=r"a model of your own, custom with 2 .*give it, load\(path, model=...\)"):
        vits.Agent.load(path)
    AGENTS["mapped"][0]().save(path)
    with pytest.raises(ValueError, match=r"a feature map is not saved.*load\(path, features=...\)"):
        vits.Agent.load(path)
    rule = vits.steps.Constant(jnp.asarray(0.1))
    vits.Agent("vits_ii", vits.models.linear(2), step_rule=rule).save(path)
    with pytest.raises(ValueError, match=r"step_rule was a Constant.*load\(path, step_rule=...\)"):
        vits.Agent.load(path)
    assert vits.Agent.load(path, step_rule=rule).diagnostics().observations == 0
    with pytest.raises(ValueError, match="num_steps was saved with the agent and cannot be given, but is 3"):
        vits.Agent.load(path, step_rule=rule, num_steps=3)
    with pytest.raises(ValueError, match="cannot be saved: names must be text"):
        vits.Agent("uniform", vits.models.linear(2), arms=[frozenset()]).save(path)
    with pytest.raises(TypeError, match="use save and load"):
        pickle.dumps(vits.Agent("uniform", vits.models.linear(2)))


def test_foreign_files_and_those_of_other_versions_are_refused(tmp_path):
    path = tmp_path / "agent"
    vits.Agent("uniform", vits.models.linear(2)).save(path)
    saved = path.read_bytes()
    for version in (1, 3):
        path.write_bytes(saved.replace(b"vits-agent 2 ", b"vits-agent %d " % version, 1))
        message = f"has format version {version}, but this version of vits reads version 2"
        with pytest.raises(ValueError, match=message):
            vits.Agent.load(path)
    for foreign in (b"", b"\n", b"PK\x03\x04", b"vits-agent", pickle.dumps({"a": 1}), b"x" * 1000):
        path.write_bytes(foreign)
        with pytest.raises(ValueError, match="is not a saved agent, or has lost its beginning"):
            vits.Agent.load(path)


def test_another_precision_is_refused(tmp_path, x64):
    vits.Agent("lin_ts", vits.models.linear(2)).save(tmp_path / "agent")
    with jax.enable_x64(False), pytest.raises(ValueError, match="was saved in float64, but JAX computes in float32"):
        vits.Agent.load(tmp_path / "agent")


def test_a_thousand_damaged_files_are_all_refused(tmp_path):
    agent = vits.Agent("lin_ts", vits.models.linear(2))
    played(agent, 5)
    path, broken = tmp_path / "agent", tmp_path / "broken"
    agent.save(path)
    whole, chance = path.read_bytes(), random.Random(0)
    for i in range(1000):
        damaged = bytearray(whole)
        if i % 2:
            del damaged[chance.randrange(len(whole)) :]
        else:
            damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        broken.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"is damaged|is not a saved agent|has format version"):
            vits.Agent.load(broken)


def test_a_save_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    agent, path = vits.Agent("uniform", vits.models.linear(2)), tmp_path / "agent"
    agent.save(path)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr("os.replace", fail)
    agent.decide(ARMS)
    with pytest.raises(OSError, match="no space left"):
        agent.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_equal_agents_make_equal_files(tmp_path):
    agent = vits.Agent("lin_ts", vits.models.linear(2))
    played(agent, 5)
    for name in ("a", "b"):
        agent.save(tmp_path / name)
    first, second = ((tmp_path / name).read_bytes() for name in ("a", "b"))
    assert hashlib.sha256(first).digest() == hashlib.sha256(second).digest()
