"""How long one call of an agent takes: `python -m benchmarks.agent`."""

import time

import numpy as np

import vits

DIM, ARMS, ROUNDS = 20, 50, 400


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
    return [1e6 * float(np.median(seconds[100:])) for seconds in (decide, learn)]


if __name__ == "__main__":
    print(f"{DIM} features, {ARMS} arms; medians in microseconds")
    for algorithm in ("lin_ts", "vits_ii", "vits_ng"):
        decide, learn = median_microseconds(algorithm, vits.models.linear(DIM))
        print(f"{algorithm:8} linear    decide {decide:5.0f}  learn {learn:5.0f}")
    for algorithm in ("vits_ii", "vits_ng", "laplace_ts"):
        decide, learn = median_microseconds(algorithm, vits.models.logistic(DIM))
        print(f"{algorithm:8} logistic  decide {decide:5.0f}  learn {learn:5.0f}")
