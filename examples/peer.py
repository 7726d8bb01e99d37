"""The other library's side of a comparison, run by its own Python (benchmarks/peers.txt names the versions).

Reads an npz file with the rows, the order in which every seed sees them, what each arm pays in every round and what
playing it costs, and the settings as JSON; prints the cumulative regret of every seed as JSON.
"""

import json
import sys
import time

import numpy as np
from bayesianbandits import (
    Arm,
    BayesianGLM,
    ContextualAgent,
    LaplaceApproximator,
    NormalRegressor,
    RVGAApproximator,
    ThompsonSampling,
)

APPROXIMATIONS = {"Laplace": LaplaceApproximator, "RVGA": RVGAApproximator}
"""Posteriors of its logistic regression: curvature at the mode, its default, and expected curvature."""


def learner(model, prior_precision, noise_precision, approximation=None):
    """One regression, with the same prior and the same noise as ours."""
    if model == "linear":
        return NormalRegressor(alpha=noise_precision * prior_precision, beta=noise_precision)
    return BayesianGLM(alpha=prior_precision, link="logit", approximator=APPROXIMATIONS[approximation]())


def play(rows, order, rewards, regrets, seed, settings):
    """Regret of one seed: its Thompson sampling agent with a regression for each arm."""
    arms = [Arm(arm, learner=learner(**settings)) for arm in range(rewards.shape[0])]
    agent, total = ContextualAgent(arms, ThompsonSampling(), random_seed=seed), 0.0
    for t, row in enumerate(order):
        (arm,) = agent.pull(rows[row : row + 1])
        agent.select_for_update(arm).update(rows[row : row + 1], rewards[arm, t : t + 1])
        total += float(regrets[arm, t])
    return total


if __name__ == "__main__":
    stream = {name: array.astype(float) for name, array in np.load(sys.argv[1]).items()}
    settings, started = json.loads(sys.argv[2]), time.perf_counter()
    found = [
        play(stream["rows"], order.astype(int), stream["rewards"][:, seed], stream["regrets"][:, seed], seed, settings)
        for seed, order in enumerate(stream["order"])
    ]
    print(json.dumps({"regret": found, "seconds": time.perf_counter() - started}))
