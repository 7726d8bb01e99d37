"""Agents: objects that decide and learn, one call at a time."""

from vits.agent.agent import Agent, RejectedUpdate
from vits.agent.belief import Belief, Interval
from vits.agent.decisions import Decision, Propensity
from vits.agent.diagnostics import Diagnostics

__all__ = ["Agent", "Belief", "Decision", "Diagnostics", "Interval", "Propensity", "RejectedUpdate"]
