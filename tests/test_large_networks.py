"""Agents with networks of a hundred thousand parameters: nothing of the size of a covariance is ever formed."""

import numpy as np
import pytest

import vits
from vits import validate

MODEL = vits.models.mlp(20, hidden=(1400, 50))
"""99,501 parameters: a matrix of them would take 40 GB."""

SETTINGS = {
    "vits_ng diagonal": {"covariance": "diagonal"},
    "vits_ng low rank": {"covariance": "low_rank", "rank": 3},
    "vits_ii diagonal": {"covariance": "diagonal"},
    "vits_ii low rank": {"covariance": "low_rank", "rank": 3},
    "vits_ii_hf diagonal": {"covariance": "diagonal", "num_samples": 4},
    "last_layer_ts": {},
    "last_layer_ts low rank": {"rank": 3},
    "lmc_ts": {},
    "ensemble_ts": {"num_members": 3},
}
REPEATED = {"vits_ng low rank", "vits_ii diagonal", "vits_ii_hf diagonal", "last_layer_ts"}
"""Forms that share their storage with another one of the list, which compiles as long: for `make test-all`."""

CASES = [pytest.param(name, marks=pytest.mark.heavy) if name in REPEATED else name for name in SETTINGS]


@pytest.fixture
def _two_gigabytes(monkeypatch):
    monkeypatch.setenv(validate.MEMORY, "2")


@pytest.mark.usefixtures("_two_gigabytes")
@pytest.mark.parametrize("name", CASES)
def test_a_large_network_decides_learns_saves_loads_and_has_a_posterior(name, tmp_path):
    agent = vits.Agent(name.split(" ")[0], model=MODEL, num_steps=2, minibatch=8, window=16, seed=0, **SETTINGS[name])
    arms = np.random.default_rng(0).normal(size=(5, 20))
    agent.learn(agent.decide(arms).id, 1.0)
    agent.save(tmp_path / "agent")
    loaded = vits.Agent.load(tmp_path / "agent")
    assert loaded.diagnostics().observations == 1
    belief, again = agent.posterior(samples=3), loaded.posterior(samples=3)
    assert belief.mean.shape == belief.variances.shape == (MODEL.num_params,)
    assert np.all(belief.variances >= 0.0)
    np.testing.assert_array_equal(belief.variances, again.variances)
    assert belief.draws.shape == (3, MODEL.num_params)
    np.testing.assert_array_equal(belief.draws, again.draws)
    assert loaded.decide(arms).arm == agent.decide(arms).arm
    interval = belief.interval(arms)
    assert np.all(interval.lower <= interval.upper)
    with pytest.raises(
        ValueError, match=r"covariance of 99,501 parameters needs 119 GB, .* limit of 2 GB .* variances"
    ):
        _ = belief.covariance
    with pytest.raises(ValueError, match=r"10,000 draws of 99,501 parameters needs 7\.96 GB, .* ask for fewer, post"):
        _ = agent.posterior(samples=10_000).draws


@pytest.mark.parametrize("name", [case for case in CASES if case != "lmc_ts"])
def test_variances_are_the_diagonal_of_the_covariance(name):
    model = vits.models.mlp(3, hidden=(4, 2), outputs=2)
    agent = vits.Agent(name.split(" ")[0], model=model, arms=["a", "b"], window=16, seed=0, **SETTINGS[name])
    for reward in (1.0, 0.0, 0.5):
        agent.learn(agent.decide([0.1, 0.2, reward]).id, reward)
    belief = agent.posterior(samples=20_000)
    assert belief.exact
    np.testing.assert_allclose(belief.variances, np.diagonal(belief.covariance), rtol=1e-4, atol=1e-7)
    scale = np.sqrt(np.maximum(belief.variances, 1e-12))
    units = np.outer(scale, scale)
    np.testing.assert_allclose(np.cov(belief.draws.T) / units, belief.covariance / units, atol=0.05)
