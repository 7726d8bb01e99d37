"""Whatever interrupts a call of an agent: it has all of its effect or none, and no lock stays held."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def storm(check, interrupts):
    command = [sys.executable, "-m", "tests.storm", check, str(interrupts)]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


def test_a_reward_is_learned_exactly_once_through_ten_thousand_interrupts_of_learn():
    storm("learn", 10_000)


def test_logged_data_are_learned_whole_or_not_at_all():
    storm("partial_fit", 300)


def test_an_interrupted_decision_is_pending_or_was_never_made():
    storm("decide", 1_000)


def test_an_arm_is_there_or_not_when_adding_or_removing_it_is_interrupted():
    storm("arms", 100)


def test_an_exception_at_any_bytecode_of_decide_and_learn_leaves_the_accounts_right():
    storm("bytecodes", 1)


def test_a_signal_handler_may_learn_while_learn_runs():
    storm("nested", 200)
