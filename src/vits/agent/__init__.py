"""Agents: objects that decide and learn, one call at a time."""

from vits.agent.agent import Agent
from vits.agent.belief import Belief, Interval
from vits.agent.decisions import Decision, Propensity
from vits.agent.diagnostics import Diagnostics
from vits.agent.errors import (
    CapacityFull,
    ExpiredDecision,
    ForkedProcess,
    InvalidReward,
    RejectedUpdate,
    RewardGivenAlready,
    UnknownDecision,
)

__all__ = [
    "Agent",
    "Belief",
    "CapacityFull",
    "Decision",
    "Diagnostics",
    "ExpiredDecision",
    "ForkedProcess",
    "Interval",
    "InvalidReward",
    "Propensity",
    "RejectedUpdate",
    "RewardGivenAlready",
    "UnknownDecision",
]
