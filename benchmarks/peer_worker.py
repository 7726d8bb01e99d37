"""The peers' side of the comparison, run by their own Python: one JSON question a line, one JSON answer a line.

The file given as argument has rounds that our environments drew. The peers play the same rounds, and the time for
drawing them does not count.
"""

import json
import os
import sys
import time

import numpy as np
from bayesianbandits import BayesianGLM, LaplaceApproximator, NormalRegressor, RVGAApproximator
from mabwiser.mab import MAB, LearningPolicy

WARM_UP = 100
"""Rounds before calls are timed."""


class BayesianBandits:
    """One regression that all arms share: one draw of the parameters, and an update with one observation."""

    def __init__(self, seed, dim):
        self.regression = self.regression_of(seed)

    def decide(self, arms):
        return int(np.argmax(self.regression.sample(arms)[0]))

    def learn(self, features, reward, arm=0):
        self.regression.partial_fit(features[None], np.array([reward]))


class Normal(BayesianBandits):
    """Gaussian noise: the exact posterior."""

    def regression_of(self, seed):
        return NormalRegressor(alpha=1.0, beta=1.0, random_state=seed)


class Laplace(BayesianBandits):
    """The logit link with the library's default, curvature at the mode."""

    def regression_of(self, seed):
        return BayesianGLM(alpha=1.0, link="logit", approximator=LaplaceApproximator(), random_state=seed)


class RVGA(BayesianBandits):
    """The logit link with expected curvature, the library's other choice."""

    def regression_of(self, seed):
        return BayesianGLM(alpha=1.0, link="logit", approximator=RVGAApproximator(), random_state=seed)


class OneEach:
    """One regression for each arm."""

    def __init__(self, peer, seed, num_arms, dim):
        self.arms = [peer(seed * num_arms + arm, dim) for arm in range(num_arms)]

    def decide(self, arms):
        return int(
            np.argmax([arm.regression.sample(row[None])[0, 0] for arm, row in zip(self.arms, arms, strict=True)])
        )

    def learn(self, features, reward, arm):
        self.arms[arm].learn(features, reward)


class Mabwiser:
    """LinTS with a single arm whose contexts are our arms. It draws new parameters for each of them."""

    def __init__(self, seed, dim):
        self.bandit = MAB(["reward"], LearningPolicy.LinTS(alpha=1.0, l2_lambda=1.0), seed=seed)
        self.bandit.fit(["reward"], [0.0], np.zeros((1, dim)))

    def decide(self, arms):
        return int(np.argmax([score["reward"] for score in self.bandit.predict_expectations(arms)]))

    def learn(self, features, reward, arm=0):
        self.bandit.partial_fit(["reward"], [float(reward)], features[None])


PEERS = {
    "bayesianbandits": Normal,
    "bayesianbandits (Laplace)": Laplace,
    "bayesianbandits (RVGA)": RVGA,
    "mabwiser": Mabwiser,
}


def simulate(make, rounds, seed):
    """Seconds, those of all cores together, and cumulative regret of one seed."""
    arms, means, rewards = (rounds[name][seed] for name in ("arms", "means", "rewards"))
    regret, started, core_started = 0.0, time.perf_counter(), time.process_time()
    player = make(seed)
    for t in range(len(arms)):
        arm = player.decide(arms[t])
        player.learn(arms[t, arm], rewards[t, arm], arm)
        regret += float(np.max(means[t]) - means[t, arm])
    core_seconds = time.process_time() - core_started
    return {"seconds": time.perf_counter() - started, "core_seconds": core_seconds, "regret": regret}


def calls(make, rounds, seed):
    """Median and 99th percentile of deciding and learning, in microseconds."""
    arms, rewards = rounds["arms"][seed], rounds["rewards"][seed]
    player, decide, learn = make(seed), [], []
    for t in range(len(arms)):
        started = time.perf_counter()
        arm = player.decide(arms[t])
        decided = time.perf_counter()
        player.learn(arms[t, arm], rewards[t, arm], arm)
        decide.append(decided - started)
        learn.append(time.perf_counter() - decided)
    skip = min(WARM_UP, len(arms) // 2)
    times = {"decide": decide[skip:], "learn": learn[skip:]}
    return {call: [1e6 * float(np.quantile(seconds, q)) for q in (0.5, 0.99)] for call, seconds in times.items()}


TASKS = {"simulate": simulate, "calls": calls}

if __name__ == "__main__":
    rounds = {name: array.astype(float) for name, array in np.load(sys.argv[1]).items()}
    for line in sys.stdin:
        question = json.loads(line)
        model, peer = question["model"], PEERS[question["peer"]]
        own = {name.removeprefix(f"{model}_"): array for name, array in rounds.items() if name.startswith(model)}

        def make(seed, peer=peer, own=own, question=question):
            _, _, num_arms, dim = own["arms"].shape
            return OneEach(peer, seed, num_arms, dim) if "one_each" in question else peer(seed, dim)

        if "core" in question:
            os.sched_setaffinity(0, {question["core"]})
        print(json.dumps(TASKS[question["task"]](make, own, question["seed"])), flush=True)
