"""How long one call of an agent takes: `python -m benchmarks.agent`."""

import time

import numpy as np

import vits

DIM, ARMS, ROUNDS = 20, 50, 400
MODELS = {"linear": ("lin_ts", "vits_ii", "vits_ng"), "logistic": ("vits_ii", "vits_ng", "laplace_ts")}
"""Algorithms whose calls are timed, by model."""
SETTINGS = {"linear": {"": {}}, "logistic": {", all data": {}, ", folding": {"fold_after": 1}}}
"""How they are set, by model: on the logistic one as is the default, and as peers work."""


def median_microseconds(algorithm, model, **settings):
    """Medians of `decide` and `learn`, alternating, after the first 100 rounds."""
    agent, arms = vits.Agent(algorithm, model, **settings), np.random.default_rng(0).normal(size=(ARMS, DIM))
    decide, learn = [], []
    for i in range(ROUNDS):
        started = time.perf_counter()
        decision = agent.decide(arms)
        decided = time.perf_counter()
        agent.learn(decision, float(i % 2))
        decide.append(decided - started)
        learn.append(time.perf_counter() - decided)
    return {name: 1e6 * float(np.median(seconds[100:])) for name, seconds in {"decide": decide, "learn": learn}.items()}


if __name__ == "__main__":
    print(f"{DIM} features, {ARMS} arms; medians in microseconds")
    for model, names in MODELS.items():
        for label, settings in SETTINGS[model].items():
            for algorithm in names:
                found = median_microseconds(algorithm, getattr(vits.models, model)(DIM), **settings)
                decide, learn = found["decide"], found["learn"]
                print(f"{algorithm:10} {model + label:18}  decide {decide:5.0f}  learn {learn:5.0f}")
