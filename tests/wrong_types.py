"""Arguments of the wrong type, given to an agent without the type checks that the tests add to the package."""

import decimal
import tempfile
from pathlib import Path

import jax
import numpy as np
from tests.agents import ARMS, lin_ts

import vits
from vits import models, simulation

FILE = Path(tempfile.mkdtemp()) / "agent"
WORLD = vits.environments.linear(zeta=1.0, dim=2, num_arms=3)
POLICY = vits.make("lin_ts", models.linear(2))
TABLE = np.ones((2, 2))


def learn(reward, k=1):
    """Learn an impossible reward with an agent of its own."""
    agent = lin_ts()
    decision = agent.decide(ARMS, k=k)
    try:
        agent.learn(decision, reward)
    finally:
        assert (agent.diagnostics().pending, agent.diagnostics().observations) == (1, 0)


def broken(*_):
    """A function of a user that fails."""
    raise RuntimeError("one line\nand another")


def custom(mean=lambda theta, phi: phi @ theta, nll=lambda theta, phi, r: (phi @ theta - r) ** 2, **rest):
    """A model of a user."""
    return models.custom(mean, nll, dim=2, **{"num_params": 2} | rest)


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
    (lambda _: vits.models.custom(None, dim=1, num_params=1), "give either nll or loss, "),
    (lambda _: vits.Agent("lin_ts", model=vits.models.linear), "model must be a reward model, such as "),
    (lambda a: a.decide(ARMS, k=TABLE), "k must be a whole number of at least 1, but is array([[1., 1.], [1., 1.]])"),
    (lambda a: a.decide([[10**400, 1.0]]), "arms must fit into float32, but are [[1000"),
    (lambda a: a.decide([[None, 1.0]]), "arms must be numbers, but are [[None, 1.0]]"),
    (lambda a: a.decide(None), "arms must be numbers, but are None"),
    (lambda a: a.decide(ARMS, available=np.array([True, False, True])), "unknown arm np.True_; known: 0, 1, 2"),
    (lambda a: a.decide(ARMS, available=[1.0]), "unknown arm 1.0; known: 0, 1, 2"),
    (lambda a: a.decide(ARMS, available=np.array(1)), "available must be a collection of arms, but is array(1)"),
    (lambda a: a.partial_fit(ARMS, [10**400, 1.0, 1.0]), "rewards must fit into float32, but are [1000"),
    (lambda a: a.partial_fit(ARMS, None), "rewards must be numbers, but are None"),
    (lambda a: a.learn_many([], np.array(1.0)), "rewards must be in order, such as a list, but are array(1.)"),
    (lambda a: a.learn_many([], bytearray(b"1")), "rewards must be in order, such as a list, but are bytearray"),
    (lambda a: a.learn([10**5000], 1.0), "unknown decision a value of type list that cannot be printed"),
    (lambda a: a.save(None), "path must be the name of a file, but is None"),
    (lambda a: a.save("a\0b"), "path must be the name of a file, but is 'a\\x00b'"),
    (lambda _: vits.Agent.load(3), "path must be the name of a file, but is 3"),
    (lambda a: a.warm_up(10**12), "a decision among 1,000,000,000,000 arms needs "),
    (lambda _: lin_ts().decide(ARMS).propensity(10**12), "1,000,000,000,000 scores of 3 arms needs "),
    (lambda _: learn(np.array(1.0), k=2), "a ranking of 2 arms needs 2 rewards"),
    (lambda _: learn(jax.numpy.ones(()), k=2), "a ranking of 2 arms needs 2 rewards"),
    (lambda _: learn(10**5000, k=2), "a ranking of 2 arms needs 2 rewards"),
    (lambda _: learn(jax.random.key(0)), "the reward must be a number, but is Array((), dtype=key<fry>) overlaying"),
    (lambda _: learn(np.datetime64("2020")), "the reward must be a number, but is np.datetime64('2020')"),
    (lambda _: learn(decimal.Decimal(1)), "the reward must be a number, but is Decimal('1')"),
    (lambda _: lin_ts(prior_precision=[1.0, 2.0]), "prior_precision must have shape (), but has shape (2,)"),
    (lambda _: lin_ts(inverse_temperature=TABLE), "inverse_temperature must have shape (), but has shape (2, 2)"),
    (lambda _: lin_ts(inverse_temperature=[]), "inverse_temperature must have shape (), but has shape (0,)"),
    (
        lambda _: lin_ts(inverse_temperature=np.array([1j])),
        "inverse_temperature must be a number, but is array([0.+1.j])",
    ),
    (lambda _: lin_ts(prior=3), "prior must be a pair of a mean and a covariance, but is 3"),
    (lambda _: lin_ts(prior=(1.0,)), "prior must be a pair of a mean and a covariance, but is (1.0,)"),
    (lambda _: lin_ts(prior=(0.0, "1")), "the prior's covariance must be a number, but is '1'"),
    (lambda _: lin_ts(prior=(1j, 1.0)), "the prior's mean must be a number, but is 1j"),
    (lambda _: lin_ts(prior=(np.ma.masked_less([0.0, 1.0], 1.0), 1.0)), "the prior's mean must be a number, but is "),
    (lambda _: vits.make("vits_ii", models.linear(2), draws=["iid"]), "unknown draws '['iid']'"),
    (
        lambda _: vits.make("vits_ii", models.linear(2), num_steps=None),
        "num_steps must be a whole number of at least 1",
    ),
    (
        lambda _: vits.make("vits_ii", models.linear(2), num_steps=10**30),
        "num_steps must be at most 1,000,000, but is ",
    ),
    (
        lambda _: vits.make("laplace_ts", models.mlp(2, (3,)), carried="no"),
        "carried must be True or False, but is 'no'",
    ),
    (lambda _: vits.make(["lin_ts"], models.linear(2)), "unknown algorithm '['lin_ts']'"),
    (lambda _: vits.make("lmc_ts", models.linear(10**12)), "a vector of 1,000,000,000,000 parameters needs "),
    (lambda _: models.mlp(2, hidden=3), "hidden must be a list of widths, but is 3"),
    (lambda _: models.mlp(2, activation=3), "activation must be a function, called as activation(array), but is 3"),
    (
        lambda _: models.mlp(2, activation=broken),
        "activation(array) must work on JAX arrays, but raised RuntimeError: ",
    ),
    (lambda _: custom(mean=3), "mean must be a function, called as mean(params, features), but is 3"),
    (
        lambda _: custom(mean=lambda theta, phi: theta["a"]),
        "mean(params, features) must work on JAX arrays, but raised ",
    ),
    (
        lambda _: custom(mean=lambda theta, phi: None),
        "mean(params, features) must hold real numbers, but is of type object",
    ),
    (
        lambda _: custom(nll=broken),
        "nll(params, features, reward) must work on JAX arrays, but raised RuntimeError: one line and",
    ),
    (lambda _: custom(nll=None, loss=broken), "loss(mean, reward) must work on JAX arrays, but raised RuntimeError: "),
    (lambda _: custom(init_params=3), "init_params must be a function, called as init_params(key), but is 3"),
    (lambda _: custom(init_params=lambda key: np.zeros(3)), "init_params(key) must return 2 parameters, but returns 3"),
    (lambda _: custom(num_params=10**12), "a vector of 1,000,000,000,000 parameters needs "),
    (
        lambda _: vits.simulate(0, WORLD, POLICY, 2, seeds=None),
        "seeds must be a number of seeds or a list of them, but is ",
    ),
    (
        lambda _: vits.simulate(0, WORLD, POLICY, 2, seeds={0, 1}),
        "seeds must be a number of seeds or a list of them, but ",
    ),
    (
        lambda _: vits.simulate(0, WORLD, POLICY, 2, seeds=[0, 2**32]),
        "every seed must be below 2^32, but is 4294967296",
    ),
    (lambda _: vits.simulate(0, WORLD, POLICY, 2, seeds=10**13), "a list of 10,000,000,000,000 seeds needs "),
    (lambda _: vits.simulate(0, WORLD, POLICY, 10**13), "1 curves of 1 seeds and 10,000,000,000,000 rounds are "),
    (
        lambda _: vits.simulate(0, WORLD, POLICY, 2, progress=3),
        "progress must be a function of a number of rounds, but is 3",
    ),
    (
        lambda _: simulation.replay(0, WORLD, None, seeds=1),
        "actions must have shape (seeds, horizon), but has shape ()",
    ),
    (
        lambda _: simulation.replay(0, WORLD, np.array([[0, 3]]), seeds=1),
        "actions must be whole numbers from 0 to 2, but ",
    ),
    (lambda _: vits.environments.linear(zeta=[1.0, 2.0]), "zeta must have shape (), but has shape (2,)"),
    (lambda _: vits.environments.wheel(delta=[0.5]), "delta must have shape (), but has shape (1,)"),
    (lambda _: vits.environments.wheel(noise="1"), "noise must be a number, but is '1'"),
    (lambda a: a.posterior("x"), "unknown arm 'x'; known: none"),
    (lambda a: a.posterior(samples=2).interval(ARMS, [0.9]), "level must have shape (), but has shape (1,)"),
    (lambda a: [a.save(FILE), vits.Agent.load(FILE, model=3)], "model must be a reward model, but is 3"),
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
