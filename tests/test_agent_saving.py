"""Saved agents: they go on exactly, and nothing damaged, foreign or newer is ever taken for one."""

import hashlib
import json
import os
import pickle
import random
import stat
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits.agent import encoding
from vits.agent.settings import Settings

SAVED = Path(__file__).parent / "saved_agents"
EXPECTED = json.loads((SAVED / "version-2.json").read_text())
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


def test_arrays_that_the_caller_changes_later_are_not_those_of_the_agent(tmp_path):
    mean, covariance = np.zeros(2, np.float32), np.eye(2, dtype=np.float32)
    agent = vits.Agent("lin_ts", vits.models.linear(2), arms=["a"], prior=[mean, covariance])
    mean[:], covariance[:] = 5.0, 2.0 * np.eye(2)
    agent.save(tmp_path / "agent")
    for one in (agent, vits.Agent.load(tmp_path / "agent")):
        for i in range(9):  # more than there is room for at first
            one.add_arm(i)
        np.testing.assert_allclose(one.posterior(8, samples=2).mean, 0.0, atol=1e-6)
        np.testing.assert_allclose(one.posterior(8, samples=2).covariance, np.eye(2), atol=1e-6)


@pytest.mark.parametrize("name", AGENTS)
def test_a_loaded_agent_goes_on_exactly_as_the_saved_one(name, tmp_path):
    make, parts, context = AGENTS[name]
    agent = make()
    played(agent, 7, context)
    agent.save(tmp_path / "agent")
    loaded = vits.Agent.load(tmp_path / "agent", **parts)
    assert loaded.diagnostics() == agent.diagnostics()
    for number in (0, 3):  # pending since before it was saved
        waiting = f"{agent._ledger.sessions[0].tag}-{number}"
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


def test_an_agent_whose_arms_have_an_output_each_is_restored(tmp_path):
    agent = vits.Agent("laplace_ts", vits.models.mlp(2, hidden=(3,), outputs=2), arms=["a", "b"])
    agent.learn(agent.decide([1.0, 0.0]).id, 1.0)
    agent.save(tmp_path / "agent")
    again = vits.Agent.load(tmp_path / "agent")
    np.testing.assert_array_equal(again.decide([0.5, 1.0]).scores, agent.decide([0.5, 1.0]).scores)


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


@pytest.fixture
def saved(tmp_path):
    """A path, and the bytes of an agent that was saved there."""
    vits.Agent("uniform", vits.models.linear(2)).save(tmp_path / "agent")
    return tmp_path / "agent", (tmp_path / "agent").read_bytes()


@pytest.mark.parametrize("foreign", [b"", b"\n", b"PK\x03\x04", b"vits-agent", pickle.dumps({"a": 1}), b"x" * 1000])
def test_foreign_files_are_refused(foreign, tmp_path):
    (tmp_path / "agent").write_bytes(foreign)
    with pytest.raises(ValueError, match="is not a saved agent, or has lost its beginning"):
        vits.Agent.load(tmp_path / "agent")


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("1", "has format version 1, which is no longer read: load it with the vits that wrote it, or teach a new"),
        ("4", "has format version 4, but this version of vits reads versions 2 and 3: it may be from a newer one"),
        ("\a", r"has format version \?, but"),
    ],
)
def test_files_of_other_versions_are_refused(version, message, saved):
    path, content = saved
    path.write_bytes(content.replace(b"vits-agent 3 ", f"vits-agent {version} ".encode(), 1))
    with pytest.raises(ValueError, match=message):
        vits.Agent.load(path)


@pytest.mark.parametrize("name", EXPECTED)
def test_files_of_version_2_go_on_with_the_decisions_that_their_agents_made(name):
    agent = vits.Agent.load(SAVED / f"version-2-{name}.agent")
    expected = EXPECTED[name]
    found = agent.diagnostics()
    assert (found.observations, found.expired) == (expected["observations"], expected["expired"])
    assert found.pending == len(expected["pending"])
    ranked = {"arms": [1.0, None, 0.0, 1.0]}.get(name, 1.0)  # its oldest decision ranks four arms, one removed since
    agent.learn(expected["pending"][0], ranked)
    agent.learn(expected["pending"][1], 1.0)
    arms = played(agent, len(expected["arms"]), [1.0, 0.5] if name == "arms" else ARMS)
    assert arms == [tuple(arm) if isinstance(arm, list) else arm for arm in expected["arms"]]


def test_only_regular_files_are_loaded_or_replaced(tmp_path):
    agent, pipe = vits.Agent("uniform", vits.models.linear(2)), tmp_path / "pipe"
    os.mkfifo(pipe)
    for use in (agent.save, vits.Agent.load):
        with pytest.raises(ValueError, match="pipe' must be a regular file, but is a named pipe"):
            use(pipe)
        with pytest.raises(ValueError, match="must be a regular file, but is a folder"):
            use(tmp_path)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_saved_agent_is_synced_and_readable_by_its_owner_alone(tmp_path, monkeypatch):
    synced, sync = [], os.fsync

    def record(handle):
        synced.append(os.fstat(handle).st_ino)
        sync(handle)

    monkeypatch.setattr(os, "fsync", record)
    path = tmp_path / "agent"
    vits.Agent("uniform", vits.models.linear(2)).save(path)
    assert synced == [path.stat().st_ino, tmp_path.stat().st_ino]
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


def test_a_large_model_is_made_only_if_the_caller_asks_for_it(tmp_path, monkeypatch):
    path, model = tmp_path / "agent", vits.models.linear(100_000)
    vits.Agent("uniform", model).save(path)
    monkeypatch.setattr(encoding, "MODEL_BYTES", 63)
    with pytest.raises(ValueError, match=r"needs 0.0004 GB, more than its file: .* give the model, load\(path, model="):
        vits.Agent.load(path)
    assert vits.Agent.load(path, model=model).diagnostics().observations == 0


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


def test_an_error_of_the_package_is_not_called_damage(tmp_path, monkeypatch):
    path = tmp_path / "agent"
    vits.Agent("lin_ts", vits.models.linear(2)).save(path)

    def broken(self, slots, capacity):
        raise TypeError("a mistake in the package")

    monkeypatch.setattr(Settings, "policy", broken)
    with pytest.raises(TypeError, match="a mistake in the package"):
        vits.Agent.load(path)
