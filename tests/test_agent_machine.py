"""An agent against a simple model of what it should know, through any sequence of calls."""

import copy
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

import vits
from vits.agent import ExpiredDecision, InvalidReward, RewardGivenAlready, UnknownDecision

NAMES = ["a", "b", 3, ("d", 1), None, 2.5, "g", "h", "i"]
LIMIT = 4


def phi(context, arm):
    return [context, float(NAMES.index(arm)) / 4.0]


STATE = ("arms", "born", "waiting", "expired", "learned", "unlearned", "decisions", "made", "sums")


class AgentMachine(RuleBasedStateMachine):
    """One posterior for all arms; the reference keeps V and b, and a list of what waits."""

    decided = Bundle("decided")
    settled = Bundle("settled")

    def __init__(self):
        super().__init__()
        self.agent = self.make()
        self.arms = {"a": 0, "b": 1}  # name -> a number that no arm had before
        self.born = 2
        self.waiting = {}  # id -> (arm, its number, features), the oldest first
        self.expired, self.learned, self.unlearned, self.decisions = set(), 0, 0, 0
        self.made = set()  # ids that the agent can know
        self.sums = {}
        self.ever = set()  # all ids, those of other lives included
        self.saved = None

    def make(self):
        return vits.Agent("lin_ts", vits.models.linear(2), arms=["a", "b"], features=phi, max_pending=LIMIT)

    def load(self, path):
        return vits.Agent.load(path, features=phi)

    def context(self, number):
        return number

    def features(self, number, arm):
        return np.array(phi(number, arm))

    def owner(self, arm):
        return "all"

    @rule(target=decided, number=st.integers(-3, 3), pick=st.sets(st.sampled_from(NAMES)))
    def decide(self, number, pick):
        available = [name for name in self.arms if name in pick]
        if not self.arms:
            with pytest.raises(ValueError, match="at least one arm"):
                self.agent.decide(self.context(float(number)))
            return multiple()
        decision = self.agent.decide(self.context(float(number)), available=available or None)
        assert decision.arm in (available or self.arms)
        row = self.features(float(number), decision.arm)
        np.testing.assert_allclose(decision.features, row)
        self.decisions += 1
        assert decision.id not in self.ever
        self.ever.add(decision.id)
        self.made.add(decision.id)
        self.waiting[decision.id] = (decision.arm, self.arms[decision.arm], row)
        while len(self.waiting) > LIMIT:
            oldest = next(iter(self.waiting))
            del self.waiting[oldest]
            self.expired.add(oldest)
        return decision.id

    @rule(target=settled, name=consumes(decided), reward=st.integers(-4, 4))
    def learn(self, name, reward):
        if name not in self.made:
            with pytest.raises(UnknownDecision):
                self.agent.learn(name, float(reward))
            return name
        if name not in self.waiting and name not in self.expired:
            with pytest.raises((RewardGivenAlready, ExpiredDecision)):
                self.agent.learn(name, float(reward))
            return name
        if name in self.expired:
            with pytest.raises(ValueError, match="is no longer pending"):
                self.agent.learn(name, float(reward))
            return name
        arm, born, row = self.waiting.pop(name)
        self.agent.learn(name, float(reward))
        if self.arms.get(arm) != born:
            self.unlearned += 1
            return name
        self.learned += 1
        precision, moment = self.sums.get(self.owner(arm), (np.eye(2), np.zeros(2)))
        self.sums[self.owner(arm)] = precision + np.outer(row, row), moment + reward * row
        return name

    @rule(name=settled)
    def learn_again(self, name):
        if name in self.waiting:  # settled in a life that was given up since
            return
        with pytest.raises((RewardGivenAlready, ExpiredDecision) if name in self.made else UnknownDecision):
            self.agent.learn(name, 1.0)

    @rule(text=st.text(max_size=5))
    def learn_what_was_never_decided(self, text):
        with pytest.raises(ValueError, match="unknown decision"):
            self.agent.learn(text, 1.0)

    @rule(name=decided)
    def learn_nonsense(self, name):
        with pytest.raises((InvalidReward, ExpiredDecision, RewardGivenAlready, UnknownDecision)) as error:
            self.agent.learn(name, float("nan"))
        assert (error.type is InvalidReward) == (name in self.waiting)

    @rule(name=st.sampled_from(NAMES))
    def add(self, name):
        if name in self.arms:
            with pytest.raises(ValueError, match="there already"):
                self.agent.add_arm(name)
            return
        self.agent.add_arm(name)
        self.arms[name] = self.born
        self.born += 1

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name):
        if name not in self.arms:
            with pytest.raises(ValueError, match="unknown arm"):
                self.agent.remove_arm(name)
            return
        self.agent.remove_arm(name)
        del self.arms[name]
        self.sums.pop(name, None)

    @rule()
    def save_and_load(self):
        with tempfile.TemporaryDirectory() as folder:
            self.agent.save(Path(folder) / "agent")
            self.agent = self.load(Path(folder) / "agent")

    @rule()
    def save(self):
        with tempfile.TemporaryDirectory() as folder:
            self.agent.save(Path(folder) / "agent")
            self.file = (Path(folder) / "agent").read_bytes()
        self.saved = copy.deepcopy({name: getattr(self, name) for name in STATE})

    @precondition(lambda self: self.saved is not None)
    @rule()
    def go_back_to_what_was_saved(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "agent").write_bytes(self.file)
            self.agent = self.load(Path(folder) / "agent")
        for name, value in copy.deepcopy(self.saved).items():
            setattr(self, name, value)

    @rule(seed=st.integers(0, 3))
    def go_on_with_a_fork(self, seed):
        self.agent = self.agent.fork(seed)

    @invariant()
    def counts_agree(self):
        found = self.agent.diagnostics()
        assert (found.decisions, found.observations) == (self.decisions, self.learned)
        assert (found.pending, found.expired) == (len(self.waiting), len(self.expired))
        assert (found.unlearned, found.rejected) == (self.unlearned, 0)
        assert self.agent.arms == tuple(self.arms)

    @invariant()
    def posteriors_agree(self):
        for arm in self.arms if self.owner("a") == "a" else ["all"]:
            precision, moment = self.sums.get(arm, (np.eye(2), np.zeros(2)))
            belief = self.agent.posterior(None if arm == "all" else arm, samples=2)
            np.testing.assert_allclose(belief.mean, np.linalg.solve(precision, moment), atol=1e-3)
            np.testing.assert_allclose(belief.covariance, np.linalg.inv(precision), atol=1e-4)


class PerArmMachine(AgentMachine):
    """One posterior for each arm; a reference for each arm."""

    def make(self):
        return vits.Agent("lin_ts", vits.models.linear(2), arms=["a", "b"], max_pending=LIMIT)

    def load(self, path):
        return vits.Agent.load(path)

    def context(self, number):
        return [number, 1.0]

    def features(self, number, arm):
        return np.array([number, 1.0])

    def owner(self, arm):
        return arm


def run(machine, examples):
    chosen = settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=chosen)


@pytest.mark.parametrize("machine", [AgentMachine, PerArmMachine])
def test_any_sequence_of_calls_keeps_to_the_reference(machine):
    run(machine, 8)


@pytest.mark.heavy
@pytest.mark.parametrize("machine", [AgentMachine, PerArmMachine])
def test_many_sequences_of_calls_keep_to_the_reference(machine):
    run(machine, 150)
