"""Sizes, counts and seeds as NumPy integers, without the type checks that the tests add to the package."""

import tempfile
from pathlib import Path

import numpy as np

import vits

INT = np.int64
FILE = Path(tempfile.mkdtemp()) / "agent"
WORLD = vits.environments.linear(zeta=1.0, dim=INT(2), num_arms=INT(3), pool_size=INT(5))
LINEAR, LOGISTIC, NETWORK = vits.models.linear(INT(2)), vits.models.logistic(INT(2)), vits.models.mlp(INT(2), (INT(3),))

AGENTS = [
    ("lin_ts", LINEAR, {"seed": INT(3), "max_pending": INT(2)}),
    ("vits_ng", LOGISTIC, {"capacity": INT(20)}),
    ("vits_ng", LOGISTIC, {"fold_after": INT(8)}),
    ("vits_ii", LOGISTIC, {"window": INT(8), "num_steps": np.uint8(3)}),
    ("vits_ng", NETWORK, {"minibatch": INT(8)}),
]

POLICIES = [
    ("lin_ts", LINEAR, {"per_arm": INT(3), "window": INT(4)}),
    ("vts", LINEAR, {"num_arms": INT(3), "num_components": INT(2)}),
    ("vits_ng", NETWORK, {"covariance": "low_rank", "rank": INT(2), "capacity": INT(4)}),
]

if __name__ == "__main__":
    for algorithm, model, settings in AGENTS:
        agent = vits.Agent(algorithm, model, **settings).fork(INT(1))
        agent.learn(agent.decide([[1.0, 0.0], [0.0, 1.0]], k=INT(2)), [1.0, 0.0])
        agent.save(FILE)
        loaded = vits.Agent.load(FILE)
        np.testing.assert_array_equal(loaded.posterior().mean, agent.posterior().mean)
    for algorithm, model, settings in POLICIES:
        vits.simulate(0, WORLD, vits.make(algorithm, model, **settings), INT(4), seeds=INT(2))
