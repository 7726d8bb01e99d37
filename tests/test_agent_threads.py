"""Many threads decide while others learn: no error, no half of a change, nothing lost."""

import resource
import threading
import time

import numpy as np
import pytest

import vits
from vits.agent import compiled

DECIDERS = 32


def run_all(works, seconds):
    """Run the works over and over in threads of their own, and return what they raised."""
    stop, errors = threading.Event(), []

    def run(work):
        try:
            while not stop.is_set():
                work()
        except BaseException as error:
            errors.append(error)
            stop.set()

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join(timeout=60.0)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    return errors


def decide_while_one_learns(seconds):
    # One feature, always 1, reward always 1: after n observations mean = n / (n + 1) and variance = 1 / (n + 1), so
    # that mean + variance = 1 in every state that ever was, and in no mixture of two.
    # Room for so many that the newest does not expire while a busy machine keeps the learner waiting.
    agent = vits.Agent("lin_ts", vits.models.linear(1), max_pending=5000)
    arms = np.ones((3, 1))
    agent.learn(agent.decide(arms), 1.0)
    agent.posterior(samples=2)
    waiting, seen = [], []

    def decide():
        current = agent._snapshot
        decision = agent.decide(arms)
        mean, sqrt_cov = sorted((np.asarray(part) for part in current.view), key=np.ndim)
        assert float(mean[0] + sqrt_cov[0, 0] ** 2) == pytest.approx(1.0, abs=1e-4)
        seen.append(decision.id)
        waiting.append(decision)

    def learn():
        if waiting:
            decision = waiting.pop()
            agent.learn(decision, 1.0)
        else:
            time.sleep(0.001)

    def look():
        belief = agent.posterior(samples=2)
        assert float(belief.mean[0] + belief.covariance[0, 0]) == pytest.approx(1.0, abs=1e-4)
        agent.diagnostics()
        time.sleep(0.01)

    assert run_all([decide] * DECIDERS + [learn, look], seconds) == []
    assert len(set(seen)) == len(seen)
    found = agent.diagnostics()
    assert found.decisions == len(seen) + 1
    assert found.decisions == found.observations + found.pending + found.expired
    assert found.observations > 10
    n = found.observations
    assert float(agent.posterior(samples=2).mean[0]) == pytest.approx(n / (n + 1.0), abs=1e-4)


def test_a_decision_never_sees_half_of_an_update():
    decide_while_one_learns(2.0)


@pytest.mark.heavy
def test_a_decision_never_sees_half_of_an_update_in_ten_seconds():
    decide_while_one_learns(10.0)


def learn_in_many_threads(seconds, algorithms):
    agents = [vits.Agent(name, vits.models.logistic(3), arms=["a", "b", "c"], window=8) for name in algorithms]
    context = np.array([0.5, -0.5, 1.0])

    def play(agent):
        agent.learn(agent.decide(context), 1.0)

    for agent in agents:
        play(agent)
    assert run_all([lambda agent=agent: play(agent) for agent in agents for _ in range(2)], seconds) == []
    for agent in agents:
        found = agent.diagnostics()
        assert found.decisions == found.observations
        assert found.pending == 0


def test_agents_whose_programs_call_lapack_learn_side_by_side():
    learn_in_many_threads(1.0, ["laplace_ts", "laplace_ts"])


@pytest.mark.heavy
def test_agents_of_many_kinds_learn_side_by_side():
    learn_in_many_threads(10.0, ["laplace_ts", "vits_ng", "vits_i", "ensemble_ts"])


def test_arms_come_and_go_while_others_decide():
    agent = vits.Agent("lin_ts", vits.models.linear(1), arms=["a", "b"])
    agent.add_arm("c")
    agent.remove_arm("c")

    def decide():
        agent.learn(agent.decide([1.0]), 1.0)

    def change():
        agent.add_arm("c")
        time.sleep(0.002)
        agent.remove_arm("c")

    assert run_all([decide] * 4 + [change], 1.0) == []
    found = agent.diagnostics()
    assert found.decisions == found.observations + found.unlearned


@pytest.mark.skipif(not compiled.supported_options(), reason="this version of XLA always hands work to its pool")
@pytest.mark.parametrize(
    ("algorithm", "model"),
    [("lin_ts", "linear"), ("vits_ii", "linear"), ("vits_ii", "logistic"), ("laplace_ts", "logistic")],
)
def test_calls_wait_for_no_other_thread(algorithm, model):
    # XLA hands work to its pool where more than a handful of operations are ready at once, and then one waits for it.
    agent, arms = vits.Agent(algorithm, getattr(vits.models, model)(4)), np.eye(4)
    for _ in range(3):
        agent.learn(agent.decide(arms), 1.0)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    for _ in range(100):
        agent.learn(agent.decide(arms), 1.0)
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before < 10
