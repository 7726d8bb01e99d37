"""Latency of agents: what must hold so that calls are fast, stay fast, and change nothing else in the process."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trust import storage

import vits
from vits.agent.compiled import Noise, as_number, decision_key

UNTOUCHED = """
import jax
import jax.numpy as jnp
before = dict(jax.config.values)
import vits
agent = vits.Agent("vits_ii", vits.models.logistic(2))
agent.learn(agent.decide([[1.0, 0.0], [0.0, 1.0]]), 1.0)
agent.posterior()
vits.simulate
assert dict(jax.config.values) == before, {k: v for k, v in jax.config.values.items() if v != before[k]}
assert jax.numpy.zeros(1).devices() == {jax.devices()[0]}
print("unchanged", len(before))
"""


OWN = vits.models.custom(
    lambda theta, phi: theta @ phi, loss=lambda mean, reward: 0.5 * (mean - reward) ** 2, dim=2, num_params=2
)


def test_an_agent_leaves_every_setting_of_jax_as_it_was():
    found = subprocess.run([sys.executable, "-c", UNTOUCHED], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("unchanged")
    assert int(found.stdout.split()[1]) > 50


@pytest.mark.parametrize("num_params", [3, 1000])
def test_the_noise_of_a_decision_is_the_same_whenever_it_is_drawn(num_params):
    key = jax.random.key_data(jax.random.key(2))
    noise, again = (Noise(key, num_params, "float32") for _ in range(2))
    numbers = (0, 1, 127, 128, 129, 64, 1 << 32)  # the last is that of decision 0
    found = {number: noise.of(number) for number in numbers}
    for number in reversed(numbers):
        np.testing.assert_array_equal(again.of(number), found[number])
        expected = jax.random.normal(decision_key(key, jnp.asarray(as_number(number))), (num_params,))
        np.testing.assert_allclose(found[number], expected, rtol=1e-6)
    assert len(np.unique(list(found.values()), axis=0)) == len(numbers) - 1


@pytest.mark.parametrize(
    ("algorithm", "model", "by_numpy"),
    [
        ("lin_ts", "linear", True),
        ("vits_ii", "logistic", True),
        ("vits_ng", "linear", True),
        ("laplace_ts", "logistic", True),
        ("lmc_ts", "logistic", False),
        ("ensemble_ts", "linear", False),
    ],
)
def test_the_scores_of_each_decision_are_those_of_its_policy_now(algorithm, model, by_numpy):
    agent, rng = vits.Agent(algorithm, getattr(vits.models, model)(3), seed=5), np.random.default_rng(1)
    assert (agent._snapshot.chooser.gaussian is not None) == by_numpy
    for _ in range(6):
        arms, current, number = rng.normal(size=(9, 3)).astype(np.float32), agent._snapshot, agent._ledger.draws
        decision = agent.decide(arms)
        key = decision_key(agent._keys.choose, jnp.asarray(as_number(number)))
        expected = current.policy.scores(key, current.state, jnp.asarray(arms))
        np.testing.assert_allclose(decision.scores, expected, rtol=1e-4, atol=1e-5)
        agent.learn(decision, 1.0)


def test_each_decision_has_its_own_draw():
    agent = vits.Agent("lin_ts", vits.models.linear(3))
    assert len(np.unique([agent.decide(np.eye(3)).scores for _ in range(300)], axis=0)) == 300


@pytest.fixture
def compilations():
    """The events of compilations since the test began."""
    heard = []

    def listen(event, seconds, **rest):
        if "backend_compile" in event:
            heard.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield heard
    jax.monitoring.unregister_event_duration_listener(listen)


def offers(rounds, dim, most=64):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(rng.integers(1, most + 1), dim)) for _ in range(rounds)]


@pytest.mark.parametrize(
    ("algorithm", "model", "settings"),
    [
        ("vits_ii", "logistic", {}),
        ("lin_ts", "linear", {}),
        ("lmc_ts", "poisson", {}),
        ("fg_ts", "linear", {"num_arms": 64, "window": 8, "num_steps": 2}),
        ("lin_ucb", "linear", {}),
        ("uniform", "linear", {}),
    ],
)
def test_nothing_is_compiled_after_a_warm_up(compilations, algorithm, model, settings):
    agent = vits.Agent(algorithm, getattr(vits.models, model)(4), **settings)
    agent.warm_up(max_arms=64)
    before, start = agent.diagnostics(), len(compilations)
    assert before.observations == before.decisions == 0  # nothing was learned or decided
    waiting = []
    for arms in offers(200, 4):
        decision = agent.decide(arms, k=min(2, len(arms)))
        agent.learn(decision, [1.0] + [None] * (len(decision.arms) - 1) if len(decision.arms) > 1 else 1.0)
        waiting.append(agent.decide(arms))
    agent.learn_many(waiting, [0.0] * len(waiting))
    waiting[-1].propensity()
    if algorithm != "uniform":
        agent.posterior()
    assert len(compilations) == start


def test_a_warm_up_leaves_decisions_as_they_are():
    cold, warm = (vits.Agent("vits_ii", vits.models.logistic(3), seed=1) for _ in range(2))
    warm.warm_up(8)
    for arms in offers(5, 3, 8):
        decisions = [agent.decide(arms) for agent in (cold, warm)]
        np.testing.assert_array_equal(*[decision.scores for decision in decisions])
        for agent, decision in zip((cold, warm), decisions, strict=True):
            agent.learn(decision, 1.0)


def test_named_arms_with_their_own_posteriors_are_warmed_up(compilations):
    agent = vits.Agent("laplace_ts", vits.models.logistic(2), arms=["a", "b", "c"])
    agent.warm_up()
    start = len(compilations)
    for _ in range(20):
        agent.learn(agent.decide([1.0, 0.5]), 1.0)
    assert len(compilations) == start


@pytest.mark.parametrize(
    ("algorithm", "model", "settings", "kept"),
    [
        ("lin_ts", vits.models.linear(2), {}, "sums over all observations"),
        ("vits_ii", vits.models.linear(2), {}, "sums over all observations"),
        ("vits_ii", vits.models.logistic(2), {}, "the last 128 observations, and older ones as a quadratic form"),
        ("laplace_ts", vits.models.logistic(2), {}, "the last 128 observations, and older ones as a quadratic form"),
        ("vits_ii", vits.models.logistic(2), {"fold_after": 3}, "the last 3 observations, and older ones as a quad"),
        ("vits_ii", vits.models.logistic(2), {"window": 7}, "the last 7 observations"),
        ("vits_ii", vits.models.logistic(2), {"minibatch": 8}, "the last 16384 observations"),
        ("vits_ii", vits.models.logistic(2), {"capacity": 8}, "all observations"),
        ("vits_ii", vits.models.poisson(2), {}, "the last 128 observations, and older ones as a quadratic form"),
        ("vits_ng", vits.models.mlp(2, (2,)), {}, "the last 1024 observations, and older ones as a quadratic form"),
        ("vits_ng", vits.models.mlp(4, (20,)), {}, "the last 16384 observations"),  # 121 parameters
        ("vits_ng", vits.models.mlp(2, (2,)), {"covariance": "diagonal"}, "the last 16384 observations"),
        (
            "laplace_ts",
            vits.models.mlp(4, (20,)),
            {},
            "the last 1936 observations, and older ones as a quadratic form",
        ),
        ("laplace_ts", vits.models.mlp(20, (20,)), {}, "the last 1024 observations"),  # 441 parameters
        ("last_layer_ts", vits.models.mlp(4, (20,)), {}, "the last 16384 observations"),
        ("last_layer_ts", vits.models.mlp(4, (20,)), {"arms": ["a"]}, "the last 1024 observations"),
        ("greedy", OWN, {}, "the last 1024 observations, and older ones as a quadratic form"),
        ("laplace_ts", OWN, {"carried": True}, "the last 1024 observations, and older ones as a quadratic form"),
        ("vits_ng", vits.models.logistic(2), {"covariance": "diagonal"}, "the last 16384 observations"),
        ("lmc_ts", vits.models.logistic(2), {}, "the last 128 observations, and older ones as a quadratic form"),
        ("lmc_ts", vits.models.mlp(2, (2,)), {}, "the last 16384 observations"),
        ("ensemble_ts", vits.models.logistic(2), {}, "the last 128 observations, and older ones as a quadratic form"),
        ("ensemble_ts", vits.models.mlp(2, (2,)), {}, "the last 1024 observations"),
        ("fg_ts", vits.models.linear(2), {}, "the last 128 observations, and older ones as a quadratic form"),
        ("fg_ts", vits.models.mlp(2, (2,)), {}, "the last 1024 observations"),
        (
            "vts",
            vits.models.linear(2),
            {"arms": ["a"]},
            "the last 128 observations, and older ones as a quadratic form",
        ),
    ],
)
def test_what_an_agent_stores(algorithm, model, settings, kept):
    found = vits.Agent(algorithm, model, **settings).diagnostics()
    assert found.storage.startswith(kept)
    assert ("quadratic form" in found.storage) == ("quad" in kept)
    assert (found.capacity is not None) == (kept == "all observations")


def test_an_option_that_allows_no_window_asks_for_a_capacity():
    with pytest.raises(ValueError, match="capacity"):
        vits.Agent("lmc_ts", vits.models.logistic(2), preconditioner="design")
    agent = vits.Agent("lmc_ts", vits.models.logistic(2), preconditioner="design", capacity=8)
    assert agent.diagnostics().storage == "all observations"
    with pytest.raises(ValueError, match="needs a capacity"):
        vits.Agent("lmc_ts", vits.models.logistic(2), when_full="raise")


@pytest.mark.parametrize(
    ("algorithm", "model"),
    [
        ("vits_ii", vits.models.logistic(8)),
        ("vits_ng", vits.models.poisson(8)),
        pytest.param("laplace_ts", vits.models.mlp(8, (1,)), marks=pytest.mark.heavy),
    ],
    ids=["logistic", "poisson", "mlp"],
)
def test_ten_thousand_rewards_compile_nothing_and_take_no_memory(compilations, algorithm, model):
    agent, rng = vits.Agent(algorithm, model, seed=0), np.random.default_rng(0)
    agent.warm_up(8)
    start, memory = len(compilations), agent.diagnostics().memory_bytes
    for _ in range(5):
        waiting = [agent.decide(rng.normal(size=(5, 8))) for _ in range(2000)]
        agent.learn_many(waiting[:1500], rng.integers(2, size=1500).tolist())
        for decision in waiting[1500:]:
            agent.learn(decision, 1.0)
    found = agent.diagnostics()
    assert found.observations == 10_000
    assert len(compilations) == start
    assert found.memory_bytes == memory


@pytest.mark.parametrize("model", ["logistic", "poisson"])
def test_the_default_posterior_is_close_to_that_of_all_data(model):
    found = storage.run(storage.Row(storage.Problem(model, 5, 2000, 1.0, 1.0), "vits_ng", {}), seeds=[0])
    assert found.storage == "the last 128 observations, and older ones as a quadratic form"
    assert 0.0 < found.mean < 0.1
    assert 0.9 < found.least < found.largest < 1.1
    assert found.error < 1.1 * found.full_error < 0.1


def test_a_network_that_folds_is_closer_to_all_data_than_one_that_forgets(monkeypatch):
    """Expected rewards at new features, after five windows."""
    monkeypatch.setattr(vits.agent.settings, "WINDOW", 128)
    monkeypatch.setattr(vits.agent.settings, "SETTLED", 1)
    problem = storage.Problem("mlp", 2, 640, 2.0, 1.0)
    folds = storage.run(storage.Row(problem, "laplace_ts", {}), seeds=[0])
    forgets = storage.run(storage.Row(problem, "laplace_ts", {"window": 128}), seeds=[0])
    assert folds.storage == "the last 128 observations, and older ones as a quadratic form"
    assert folds.mean < 0.6 * forgets.mean
    assert folds.error < forgets.error


def test_a_minibatch_of_many_stored_observations_has_the_variances_of_all_data(monkeypatch):
    """Where nothing can be folded; a window of the size of the minibatch is the comparison."""
    monkeypatch.setattr(vits.agent.settings, "SMALLEST_SAMPLE", 64)
    problem = storage.Problem("poisson", 2, 512, 1.0, 0.5)
    samples = storage.run(storage.Row(problem, "vits_ng", {"covariance": "diagonal"}), seeds=[0])
    forgets = storage.run(storage.Row(problem, "vits_ng", {"covariance": "diagonal", "window": 64}), seeds=[0])
    assert samples.storage == "the last 16384 observations"
    assert 0.8 < samples.least < samples.largest < 1.25
    assert samples.mean < 0.5 * forgets.mean


def test_a_window_is_seen_to_forget():
    problem = storage.Problem("poisson", 2, 512, 1.0, 0.5)
    found = storage.run(storage.Row(problem, "vits_ng", {"covariance": "diagonal", "window": 64}), seeds=[0])
    assert found.storage == "the last 64 observations"
    assert found.mean > 0.3
    assert 4.0 < found.largest < 16.0  # 512 / 64 is 8
