"""Exceptions that strike inside calls of an agent, and exact accounts of what they leave behind.

Each check is a program of its own, `python -m tests.storm CHECK [INTERRUPTS]`: the tests of the package wrap all of its
functions in type checks, and what is to be interrupted is the code that users run.
"""

import signal
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial

import numpy as np

import vits
from vits.agent.agent import Agent

ONE = np.ones((1, 1))
CALLS = (Agent.learn, Agent.learn_many, Agent.partial_fit, Agent.add_arm, Agent.remove_arm, Agent.decide)
CODES = {method.__code__ for method in CALLS}


class Interrupt(Exception):
    """Raised by the signal handler."""


class Storm:
    """A timer whose handler raises if it strikes inside a method of an agent."""

    def __init__(self, seed):
        self.landed, self.rng, self.longest = 0, np.random.default_rng(seed), 1e-4

    def strike(self, _, frame):
        while frame is not None:
            if frame.f_code in CODES:
                self.landed += 1
                raise Interrupt
            frame = frame.f_back

    @contextmanager
    def blowing(self):
        before = signal.signal(signal.SIGALRM, self.strike)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, before)

    def call(self, method, *arguments):
        """What the method returns, or None if it was interrupted."""
        started, landed = time.perf_counter(), self.landed
        try:
            signal.setitimer(signal.ITIMER_REAL, self.rng.uniform(1e-6, 1.2 * self.longest))
            found = method(*arguments)
        except Exception:  # JAX turns some exceptions that strike inside it into others
            if self.landed == landed:
                raise
            return None
        # The timer is spread over the time of a call that was not interrupted.
        self.longest += 0.05 * (min(time.perf_counter() - started, 0.01) - self.longest)
        return (found,)


def agent_of_one(**settings):
    """An agent whose posterior tells what it has learned: 1 / variance - 1 rewards, whose sum is mean / variance."""
    agent = vits.Agent("lin_ts", vits.models.linear(1), **settings)
    for call in (lambda: agent.learn(agent.decide(ONE), 0.0), lambda: agent.partial_fit(np.ones((3, 1)), np.zeros(3))):
        if not settings:
            call()
    return agent


def assert_learned(agent, rewards, arm=None):
    belief = agent.posterior(arm, samples=2)
    precision = 1.0 / float(belief.covariance[0, 0])
    assert abs(precision - 1.0 - len(rewards)) < 0.3, (precision - 1.0, len(rewards))
    assert abs(precision * float(belief.mean[0]) - sum(rewards)) < 0.3, (precision * belief.mean[0], sum(rewards))


def assert_no_lock_is_held(agent):
    done = []
    thread = threading.Thread(target=lambda: done.append(agent.learn(agent.decide(ONE), 0.0)), daemon=True)
    thread.start()
    thread.join(timeout=30.0)
    assert done == [None]


def given_already(agent, decision):
    """Whether the reward of a decision is refused, because it was learned; else it is learned now."""
    try:
        agent.learn(decision, 2.0)
    except ValueError as error:
        if "given already" in str(error):
            return True
        raise
    return False


def learn(interrupts):
    """Decisions are learned by retrying until the reward is accepted, or was accepted by an interrupted call."""
    storm = Storm(0)
    while storm.landed < interrupts:
        agent, rewards = agent_of_one(), []
        for i in range(150):
            reward = float(i % 16)
            decisions = [agent.decide(ONE) for _ in range(3 if i % 5 == 0 else 1)]
            batch = [reward] * len(decisions)
            with storm.blowing():
                while True:
                    if len(decisions) == 1:
                        done = storm.call(agent.learn, decisions[0], reward)
                    else:
                        done = storm.call(agent.learn_many, decisions, batch)
                    if done or agent.diagnostics().pending == 0:
                        break
            rewards += batch
            for decision in decisions:
                assert given_already(agent, decision)
        found = agent.diagnostics()
        assert (found.decisions, found.observations, found.expired) == (len(rewards) + 1, len(rewards) + 4, 0)
        assert_learned(agent, [0.0] * 4 + rewards)
    assert_no_lock_is_held(agent)


def partial_fit(interrupts):
    """Logged data are learned whole or not at all."""
    agent, storm, rewards = agent_of_one(), Storm(2), [0.0] * 4
    while storm.landed < interrupts:
        before = agent.diagnostics().observations
        with storm.blowing():
            storm.call(agent.partial_fit, np.ones((3, 1)), np.full(3, 5.0))
        learned = agent.diagnostics().observations - before
        assert learned in (0, 3)
        rewards += [5.0] * learned
    assert_learned(agent, rewards)
    assert_no_lock_is_held(agent)


def decide(interrupts):
    """An interrupted decision is pending or was never made."""
    agent, storm, returned = agent_of_one(), Storm(3), 1
    while storm.landed < interrupts:
        with storm.blowing():
            found = storm.call(agent.decide, ONE)
        if found is not None:
            agent.learn(found[0], 1.0)
            returned += 1
    found = agent.diagnostics()
    assert found.observations == returned + 3
    assert found.expired == 0
    assert found.decisions == returned + found.pending
    lost = [agent._ledger.find(name) for name in agent._ledger.pending]
    assert all(np.array_equal(pending.features, ONE) for pending in lost)
    assert_no_lock_is_held(agent)


def arms(interrupts):
    """An arm is there or not, and the others are as they were."""
    agent, storm = agent_of_one(arms=["a", "b"]), Storm(4)
    agent.partial_fit(np.ones((2, 1)), np.full(2, 3.0), arms=["a", "b"])
    agent.add_arm("c")
    agent.remove_arm("c")
    while storm.landed < interrupts:
        had = "c" in agent.arms
        with storm.blowing():
            storm.call(agent.remove_arm if had else agent.add_arm, "c")
        if not had and "c" in agent.arms:
            agent.partial_fit(ONE, [7.0], arms=["c"])
            assert_learned(agent, [7.0], arm="c")
        assert_learned(agent, [3.0], arm="a")
    agent.partial_fit(ONE, [4.0], arms=["b"])
    assert_learned(agent, [3.0, 4.0], arm="b")


def interrupted_at(step, call):
    """Run a call and raise at its `step`-th bytecode within the agent; whether it got that far."""
    left = step

    def trace(frame, event, _):
        nonlocal left
        if "/vits/agent/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                raise Interrupt
        return trace

    sys.settrace(trace)
    try:
        call()
    except Interrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def bytecodes(_):
    """An exception at each bytecode of `decide` and `learn` in turn."""
    agent = agent_of_one(max_pending=2000)
    rewards, returned, step, running = [], [], 0, True
    while running:
        step += 1
        returned.clear()
        running = interrupted_at(step, lambda: returned.append(agent.decide(ONE)))
        decision = returned[0] if returned else agent.decide(ONE)
        found = agent.diagnostics()
        assert found.decisions == len(rewards) + found.pending
        running |= interrupted_at(step, partial(agent.learn, decision, 2.0))
        left = agent.diagnostics()
        learned = given_already(agent, decision)
        # Whether the interrupted call or this one has learned, there is one observation and one decision less.
        assert left.observations == len(rewards) + learned
        assert left.pending == found.pending - learned
        rewards.append(2.0)
    assert step > 100
    assert agent.diagnostics().observations == len(rewards)
    assert agent.diagnostics().expired == 0
    assert_learned(agent, rewards)


def nested(interrupts):
    """A signal handler may learn while `learn` runs."""
    agent, inner = agent_of_one(), []

    def strike(_, frame):
        while frame is not None:
            if frame.f_code is Agent.learn.__code__:
                inner.append(agent.learn(agent.decide(ONE), 3.0))
                return
            frame = frame.f_back

    before, rng, count = signal.signal(signal.SIGALRM, strike), np.random.default_rng(5), 0
    try:
        while len(inner) < interrupts:
            decision = agent.decide(ONE)
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 2e-4))
            agent.learn(decision, 1.0)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            count += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    found = agent.diagnostics()
    assert (found.observations, found.pending, found.expired) == (4 + count + len(inner), 0, 0)
    assert_learned(agent, [0.0] * 4 + [1.0] * count + [3.0] * len(inner))


CHECKS = {check.__name__: check for check in (learn, partial_fit, decide, arms, bytecodes, nested)}

if __name__ == "__main__":
    CHECKS[sys.argv[1]](int(sys.argv[2]))
    print("done")
