"""Which item of a shop gets clicked: python -m examples.open_bandit, with VITS_DATA set to the folder of data sets."""

import argparse

import numpy as np

import vits
from vits import offline
from vits.datasets import obd

PRIOR = ([-5.0], [[1.0]])
"""Of an item's logit: a click rate of 0.7 %, give or take a factor of three."""


def log_of(impressions: obd.Impressions, rows: slice) -> offline.Log:
    """The log without features of users: every item has its own click rate."""
    context = np.ones((len(impressions.item[rows]), 1))
    return offline.Log(context, impressions.item[rows], impressions.click[rows], impressions.propensity[rows])


def agent_of(name: str, num_items: int, seed: int = 0) -> vits.Agent:
    """An agent with a posterior for each item."""
    settings = {} if name == "uniform" else {"prior": PRIOR}
    return vits.Agent(name, model=vits.models.logistic(1), arms=range(num_items), seed=seed, **settings)


def main() -> None:
    """Both estimates, and the rewards of the two policies that wrote the logs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--campaign", default="men", choices=obd.CAMPAIGNS)
    parser.add_argument("--algorithm", default="vits_ng")
    given = parser.parse_args()
    rows, num_items = slice(given.rows), obd.CAMPAIGNS[given.campaign]
    logs = {policy: log_of(obd.load(None, policy, given.campaign), rows) for policy in obd.POLICIES}
    for policy, log in logs.items():
        n, clicks = len(log.rewards), int(log.rewards.sum())
        error = log.rewards.std(ddof=1) / np.sqrt(n)
        print(f"log of {policy}: {clicks} clicks in {n} rounds, {clicks / n:.4f} +- {error:.4f}")
    for name in ("uniform", given.algorithm):
        agent = agent_of(name, num_items)
        replays = [offline.rejection_replay(agent, logs["random"], seed=seed) for seed in range(given.seeds)]
        first, pooled = replays[0], sum(found.mean * found.matched for found in replays)
        print(
            f"{name}, replay of random: {first.mean:.4f} +- {first.stderr:.4f}, {first.matched} rounds matched; "
            f"{given.seeds} seeds together {pooled:.0f} clicks in {sum(found.matched for found in replays)}"
        )
        if name != "uniform":
            log = logs["random"]
            agent.partial_fit(log.contexts, log.rewards, arms=log.arms.tolist())
        weighted = offline.inverse_propensity(agent, logs["bts"])
        print(
            f"{name}, bts weighted: {weighted.mean:.4f} +- {weighted.stderr:.4f}, "
            f"{weighted.effective:.0f} effective rounds"
        )


if __name__ == "__main__":
    main()
