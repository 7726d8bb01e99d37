"""How long one call of an agent takes: `python -m benchmarks.agent`."""

import time

import numpy as np

import vits

DIM, ARMS, ROUNDS = 20, 50, 400
MODELS = {"linear": ("lin_ts", "vits_ii", "vits_ng"), "logistic": ("vits_ii", "vits_ng", "laplace_ts")}
"""Algorithms whose calls are timed, by model."""


def median_microseconds(algorithm, model):
    """Medians of `decide` and `learn`, alternating, after the first 100 rounds."""
    agent, arms = vits.Agent(algorithm, model), np.random.default_rng(0).normal(size=(ARMS, DIM))
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
        for algorithm in names:
            found = median_microseconds(algorithm, getattr(vits.models, model)(DIM))
            print(f"{algorithm:10} {model:8}  decide {found['decide']:5.0f}  learn {found['learn']:5.0f}")
