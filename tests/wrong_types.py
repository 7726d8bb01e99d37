"""Arguments of the wrong type, given to an agent without the type checks that the tests add to the package."""

import numpy as np
from tests.agents import ARMS, lin_ts

import vits

CALLS = [
    (lambda a: a.decide(ARMS, k=1.0), "k must be a whole number of at least 1, but is 1.0"),
    (lambda a: a.decide(ARMS, k=np.float32(1)), "k must be a whole number of at least 1, but is "),
    (lambda a: a.decide(ARMS, k=True), "k must be a whole number of at least 1, but is True"),
    (lambda a: a.decide(ARMS, k="2"), "k must be a whole number of at least 1, but is '2'"),
    (lambda a: a.decide(ARMS, k=None), "k must be a whole number of at least 1, but is None"),
    (lambda a: a.decide(ARMS, available=3), "available must be a collection of arms, but is 3"),
    (lambda a: a.decide(ARMS, available=[[1]]), "each of available must be hashable, but is [1]"),
    (lambda a: a.learn_many(iter([]), 3), "rewards must be in order, such as a list, but are 3"),
    (lambda a: a.learn(None, 1.0), "unknown decision None"),
    (lambda _: lin_ts(arms=["a"]).add_arm(["c"]), "an arm's name must be hashable, but is ['c']"),
    (lambda _: lin_ts(arms=["a"]).remove_arm(["c"]), "the name of an arm must be hashable, but is ['c']"),
    (lambda _: lin_ts(arms=["a"]).posterior(["c"]), "the name of an arm must be hashable, but is ['c']"),
    (lambda _: lin_ts(arms=3), "arms must be a collection of names, but is 3"),
    (lambda _: lin_ts(arms=[["a"]]), "each of arms must be hashable, but is ['a']"),
    (lambda _: lin_ts(features=3), "features must be a function of a context and an arm, but is 3"),
    (lambda _: lin_ts(seed="0"), "seed must be a whole number of at least 0, but is '0'"),
    (lambda _: lin_ts(max_pending=1.0), "max_pending must be a whole number of at least 1, but is 1.0"),
    (lambda _: vits.Agent(None, vits.models.linear(2)), "algorithm must be the name of one, but is None"),
    (lambda _: vits.Agent(["lin_ts"], vits.models.linear(2)), "algorithm must be the name of one, but is ['lin_ts']"),
    (lambda _: vits.Agent("lin_ts", None), "model must be a reward model, such as vits.models.linear(8), but is None"),
    (lambda _: vits.models.custom(None, dim=1, num_params=1), "mean must be a function of parameters and "),
    (lambda _: vits.Agent("lin_ts", model=vits.models.linear), "model must be a reward model, such as "),
]

if __name__ == "__main__":
    for call, expected in CALLS:
        agent = lin_ts()
        try:
            call(agent)
        except ValueError as error:
            message = str(error)
        else:
            message = "no error"
        assert message.startswith(expected), (message, expected)
        assert "\n" not in message
        assert agent.diagnostics().decisions == agent._ledger.draws == 0
