"""Off-policy evaluation: the rewards of an agent, estimated from the log of another policy."""

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vits import validate
from vits.agent import Agent, Decision
from vits.agent.decisions import propensity_of
from vits.agent.rewards import checked_reward

TOLERANCE = 1e-3
"""The largest relative deviation of propensities from uniform, because logs are written with few digits."""


class Log(NamedTuple):
    """Rounds that another policy played.

    `contexts[i]` is the argument of the agent's `decide`, `arms[i]` the agent's name of the arm that was played,
    `rewards[i]` its reward, and `propensities[i]` the probability with which the other policy played it.
    """

    contexts: Sequence[Any] | np.ndarray
    arms: Sequence[Hashable] | np.ndarray
    rewards: Any
    propensities: Any


class Replay(NamedTuple):
    """The mean reward of the rounds in which agent and log agreed; `agent` is the agent after the last of them.

    The standard error of zeros and ones is Jeffreys', which is above 0 even if there was no click at all; that of other
    rewards is NaN if they were all the same.
    """

    mean: float
    stderr: float
    matched: int
    rounds: int
    agent: Agent


class Weighted(NamedTuple):
    """The weighted mean reward. It is as precise as the mean of `effective` rounds played by the agent."""

    mean: float
    stderr: float
    effective: float
    rounds: int


def rejection_replay(agent: Agent, log: Log, *, seed: int = 0) -> Replay:
    """Play the log from its first round on, and keep the rounds in which the agent chooses what the log did.

        mean = sum_i 1{a_i = A_i} r_i / sum_i 1{a_i = A_i},   A_i = the agent's choice

    The agent learns only from the rounds that are kept. If the log chose uniformly, independently of the context, its
    rewards have the distribution of as many real rounds. The standard error covers the noise of the rewards only: with
    another log the agent would have learned something else.

    Args:
        agent: the agent to evaluate. A fork of it plays and learns, so the agent itself does not change.
        log: chosen uniformly among the agent's K arms. About one round in K is kept.
        seed: of the fork.

    Returns:
        Mean reward, its standard error, the number of rounds that matched, and the fork.

    Example:
        >>> import numpy as np, vits
        >>> from vits import offline
        >>> rng = np.random.default_rng(0)
        >>> arms = rng.integers(2, size=200)
        >>> log = offline.Log(np.ones((200, 1)), arms, 1.0 * arms, np.full(200, 0.5))
        >>> agent = vits.Agent("lin_ts", model=vits.models.linear(1), arms=[0, 1])
        >>> found = offline.rejection_replay(agent, log)
        >>> found.mean > 0.9, found.matched < found.rounds
        (True, True)

    Reference:
        Li, Chu, Langford and Wang, "Unbiased offline evaluation of contextual-bandit-based news article recommendation
        algorithms", WSDM 2011.
    """
    rewards, propensities = _checked(agent, log)
    _check_uniform(propensities)
    player, earned = agent.fork(seed), []
    for i, (context, arm) in enumerate(zip(log.contexts, log.arms, strict=True)):
        decision = player.decide(context)
        _check_menu(i, decision, arm, propensities[i])
        if decision.arm == arm:
            player.learn(decision, float(rewards[i]))
            earned.append(rewards[i])
    if not earned:
        raise ValueError(f"the agent must agree with the log in some rounds, but agreed in none of {len(rewards)}")
    mean, stderr = _mean(np.asarray(earned))
    if set(earned) <= {0.0, 1.0}:
        stderr = propensity_of(sum(earned), len(earned)).stderr
    return Replay(mean, stderr, len(earned), len(rewards), player)


def inverse_propensity(agent: Agent, log: Log, *, samples: int = 100, seed: int = 0) -> Weighted:
    """The mean reward of an agent that does not learn, from a log of any policy that could have played every arm.

        mean = 1/n sum_i w_i r_i,   w_i = P(the agent plays a_i) / P(the log played a_i)

    It is unbiased if the agent has not learned from these rounds. The mean of the weights should be close to 1.
    `effective`, (sum w)^2 / sum w^2, is the number of rounds that remain after weighting; if it is small, the estimate
    is poor.

    Args:
        agent: the agent to evaluate; it does not change.
        log: with the probability of every choice.
        samples: number of posterior draws for an unbiased estimate of the agent's probabilities.
        seed: of the draws.

    Returns:
        Mean reward, its standard error, and the effective number of rounds.

    Example:
        >>> import numpy as np, vits
        >>> from vits import offline
        >>> arms = np.array([0, 0, 0, 1])  # arm 0 with probability 3/4 pays 0, arm 1 pays 1
        >>> log = offline.Log(np.ones((4, 1)), arms, 1.0 * arms, np.array([0.75, 0.75, 0.75, 0.25]))
        >>> offline.inverse_propensity(vits.Agent("uniform", model=vits.models.linear(1), arms=[0, 1]), log).mean
        0.5

    Reference:
        Horvitz and Thompson, "A generalization of sampling without replacement from a finite universe", JASA 1952.
    """
    rewards, propensities = _checked(agent, log)
    player, weights = agent.fork(seed), np.zeros(len(rewards))
    for i, (context, arm) in enumerate(zip(log.contexts, log.arms, strict=True)):
        decision = player.decide(context)
        _check_support(i, decision, propensities[i])
        weights[i] = decision.frequencies(samples)[_place(i, decision, arm)] / propensities[i]
    mean, stderr = _mean(weights * rewards)
    total = float(np.sum(weights))
    return Weighted(mean, stderr, total**2 / float(np.sum(weights**2)) if total > 0 else 0.0, len(rewards))


def _mean(values: Float[np.ndarray, " values"]) -> tuple[float, float]:
    """Mean and standard error; NaN if all values are the same, because then the error is unknown."""
    if np.all(values == values[0]):
        return float(values[0]), math.nan
    return float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))


def _checked(agent: Agent, log: Log) -> tuple[Float[np.ndarray, " rounds"], Float[np.ndarray, " rounds"]]:
    num_rounds = len(log.arms)
    validate.count("the number of rounds in the log", num_rounds)
    if len(log.contexts) != num_rounds:
        raise ValueError(f"there must be {num_rounds} contexts, one for each arm played, but are {len(log.contexts)}")
    for name, values, kinds in (("rewards", log.rewards, "fiub"), ("propensities", log.propensities, "fiu")):
        if np.asarray(values).dtype.kind not in kinds:
            raise ValueError(f"{name} must be numbers, but are of type {np.asarray(values).dtype}")
        validate.shape(name, values, (num_rounds,))
        validate.finite(name, values)
    rewards, propensities = np.asarray(log.rewards, float), np.asarray(log.propensities, float)
    for i, reward in enumerate(rewards.tolist()):
        try:
            checked_reward(agent._snapshot.settings, reward)
        except ValueError as error:
            raise ValueError(f"in round {i} {error}") from None
    # The weight of a round is 1 / propensity, which must be a number too.
    allowed = (propensities >= np.finfo(float).tiny) & (propensities <= 1)
    if not np.all(allowed):
        i = int(np.argmin(allowed))
        raise ValueError(f"propensities must be above 0 and at most 1, but that of round {i} is {propensities[i]}")
    return rewards, propensities


def _check_support(i: int, decision: Decision, propensity: float) -> None:
    """Raise if the log could have played only one arm, because it says nothing about the others."""
    if propensity == 1.0 and len(decision.offered) > 1:
        raise ValueError(
            f"in round {i} the log played its arm with probability 1, but {len(decision.offered)} arms are on offer: "
            "inverse_propensity needs a log that could have played each of them"
        )


def _check_uniform(propensities: Float[np.ndarray, " rounds"]) -> None:
    low, high = float(np.min(propensities)), float(np.max(propensities))
    if high > low * (1 + TOLERANCE):
        raise ValueError(
            f"rejection_replay needs a log that chose uniformly, but its propensities go from {low:g} to {high:g}; "
            "inverse_propensity takes such a log"
        )


def _check_menu(i: int, decision: Decision, arm: Hashable, propensity: float) -> None:
    """The log must have chosen uniformly among the same arms."""
    _place(i, decision, arm)
    if abs(propensity * len(decision.offered) - 1) > TOLERANCE:
        raise ValueError(
            f"the log must have chosen uniformly among the {len(decision.offered)} arms that the agent has on offer, "
            f"each with probability {1 / len(decision.offered):g}, but in round {i} that was {propensity:g}"
        )


def _place(i: int, decision: Decision, arm: Hashable) -> int:
    """The position of the played arm among the agent's arms on offer."""
    if arm not in decision.offered:
        raise ValueError(
            f"in round {i} the log played arm {arm!r}, which is not among the {len(decision.offered)} arms on offer"
        )
    return decision.offered.index(arm)
