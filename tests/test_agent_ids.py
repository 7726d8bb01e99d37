"""Ids never repeat: over restores, copies of a file, forks of an agent and forks of a process."""

import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from tests.agents import ARMS, assert_posterior, lin_ts

import vits
from vits.agent import ExpiredDecision, RewardGivenAlready, UnknownDecision
from vits.agent.decisions import MAX_SESSIONS, Ledger, Pending

BELIEF = lin_ts().posterior(samples=2)
FIRST, LAST = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])


def restored(agent, path):
    agent.save(path)
    return vits.Agent.load(path)


def test_a_restored_agent_refuses_ids_that_were_issued_after_it_was_saved(tmp_path):
    agent = lin_ts()
    agent.save(tmp_path / "agent")
    before = agent.decide(FIRST)
    agent = vits.Agent.load(tmp_path / "agent")
    after = agent.decide(LAST)
    assert before.id != after.id
    with pytest.raises(UnknownDecision, match=r"unknown decision .* restored to a time before it"):
        agent.learn(before.id, 5.0)
    agent.learn(after.id, 1.0)
    assert_posterior(agent, LAST, [1.0])


def test_a_restored_agent_knows_what_became_of_the_decisions_of_its_file(tmp_path):
    agent = lin_ts(max_pending=2)
    expired, pending, given = (agent.decide(ARMS) for _ in range(3))
    agent.learn(given, 1.0)
    loaded = restored(restored(agent, tmp_path / "agent"), tmp_path / "again")
    with pytest.raises(RewardGivenAlready):
        loaded.learn(given.id, 1.0)
    with pytest.raises(ExpiredDecision, match="only 2 decisions may wait"):
        loaded.learn(expired.id, 1.0)
    loaded.learn(pending.id, 0.0)
    with pytest.raises(RewardGivenAlready):
        loaded.learn(pending.id, 0.0)
    assert loaded.diagnostics() == agent.diagnostics()._replace(
        pending=0, observations=2, memory_bytes=loaded.diagnostics().memory_bytes
    )


def test_a_restored_agent_chooses_what_the_saved_one_would_have_chosen(tmp_path):
    agent = lin_ts()
    agent.decide(ARMS)
    loaded = restored(agent, tmp_path / "agent")
    for _ in range(5):
        ours, theirs = agent.decide(ARMS), loaded.decide(ARMS)
        np.testing.assert_array_equal(ours.scores, theirs.scores)
        assert ours.id != theirs.id


def test_ids_of_many_copies_of_one_file_are_all_different(tmp_path):
    lin_ts().save(tmp_path / "agent")
    ids = [vits.Agent.load(tmp_path / "agent").decide(ARMS).id for _ in range(20)]
    agent = lin_ts()
    ids += [fork.decide(ARMS).id for fork in (agent.fork(seed) for seed in range(20))]
    ids += [agent.decide(ARMS).id for _ in range(20)]
    assert len(set(ids)) == 60


def test_processes_that_load_the_same_file_issue_different_ids(tmp_path):
    agent = lin_ts()
    waiting = agent.decide(ARMS)
    agent.save(tmp_path / "agent")
    program = (
        "import json, sys, vits\n"
        "agent = vits.Agent.load(sys.argv[1])\n"
        "found = [agent.decide([[1.0, 0.0], [0.0, 1.0]]) for _ in range(50)]\n"
        "agent.learn(sys.argv[2], 1.0)\n"
        "print(json.dumps([[d.id for d in found], [d.arm for d in found]]))\n"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", program, tmp_path / "agent", waiting.id], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    (first_ids, first_arms), (second_ids, second_arms) = (json.loads(worker.communicate()[0]) for worker in workers)
    ours = {agent.decide(ARMS).id for _ in range(50)}
    assert len(ours | set(first_ids) | set(second_ids)) == 150
    assert first_arms == second_arms  # the same seed: `fork` gives another one


def in_forked_process(work):
    """What the work returns, or the error that it raises, in a process made by os.fork()."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of forks too
        child = os.fork()
    if child == 0:
        try:
            found = work()
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        found = json.loads(file.read())
    os.waitpid(child, 0)
    return found


@pytest.mark.parametrize(
    "work",
    [
        lambda agent, _: agent.decide(ARMS),
        lambda agent, decision: agent.learn(decision, 1.0),
        lambda agent, decision: agent.learn_many([decision], [1.0]),
        lambda agent, _: agent.partial_fit(ARMS, [1.0, 2.0, 3.0]),
        lambda agent, _: agent.posterior(),
        lambda agent, _: BELIEF.interval(ARMS),
        lambda agent, _: agent.fork(1),
        lambda agent, decision: decision.propensity(),
        lambda *_: lin_ts(),
        lambda agent, _: vits.Agent.load("nowhere"),
    ],
)
def test_what_could_hang_in_a_forked_process_is_refused_in_one_sentence(work):
    agent = lin_ts()
    decision = agent.decide(ARMS)
    found = in_forked_process(lambda: work(agent, decision))
    assert found.startswith("ForkedProcess: this process was made by os.fork() after JAX had started")
    assert "spawn" in found
    assert "\n" not in found


def test_a_forked_process_can_look_and_save_and_its_ids_would_be_its_own(tmp_path):
    agent = lin_ts()
    agent.learn(agent.decide(ARMS), 1.0)
    waiting = agent.decide(ARMS)

    def work():
        agent.save(tmp_path / "agent")
        opened = agent._ledger.open(Pending((None,), FIRST, None, (0,)))
        return [agent.diagnostics().decisions, opened]

    decisions, theirs = in_forked_process(work)
    assert decisions == 3
    assert agent.decide(ARMS).id != theirs
    with pytest.raises(UnknownDecision):
        agent.learn(theirs, 1.0)
    vits.Agent.load(tmp_path / "agent").learn(waiting.id, 1.0)


def test_a_process_forked_before_jax_starts_has_agents():
    program = (
        "import os, vits\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    agent = vits.Agent('lin_ts', vits.models.linear(2))\n"
        "    agent.learn(agent.decide([[1.0, 0.0]]), 1.0)\n"
        "    os._exit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_ledger_forgets_the_ids_of_very_old_sessions_but_not_its_pending_decisions():
    pending = Pending((None,), FIRST, None, (0,))
    ledger = Ledger(1000)
    kept, dropped = ledger.open(pending), ledger.open(pending)
    ledger.close([dropped])
    for _ in range(MAX_SESSIONS + 10):
        ledger.start_session()
        last = ledger.open(pending)
        ledger.close([last])
    assert len(ledger.sessions) == MAX_SESSIONS
    assert ledger.find(kept) is pending
    with pytest.raises(RewardGivenAlready):
        ledger.find(last)
    with pytest.raises(UnknownDecision):
        ledger.find(dropped)
    for never in (f"{last}0", last.replace("-", "-0"), last.rpartition("-")[0], f"{last}\u0661", "-1", "", None, 3):
        with pytest.raises(UnknownDecision):
            ledger.find(never)
