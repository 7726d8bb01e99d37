"""Errors of an agent that an application can act on. Each leaves the agent as it was."""


class UnknownDecision(ValueError):
    """No decision of this agent has this id, as far as it can know."""


class ExpiredDecision(ValueError):
    """The decision no longer waits for a reward, because too many newer ones do (`max_pending`)."""


class RewardGivenAlready(ValueError):
    """The reward of the decision was learned before."""


class InvalidReward(ValueError):
    """The reward is not a finite number, or the model does not allow it."""


class CapacityFull(ValueError):
    """There is no room for more observations, and the agent may not grow (`when_full="raise"`)."""


class RejectedUpdate(ValueError, ArithmeticError):
    """The update would have broken the posterior, so nothing was learned; `reason` says what was wrong with it."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class ForkedProcess(RuntimeError):
    """The process was made by `os.fork()` after JAX had started, so compiled programs may never return."""
