"""The practitioner's object: `Agent` decides and learns, one call at a time."""

from vits.agent.agent import Agent
from vits.agent.beliefs import Belief, Interval
from vits.agent.decisions import Decision, Propensity
from vits.agent.diagnostics import Diagnostics
from vits.agent.mind import RejectedUpdate

__all__ = ["Agent", "Belief", "Decision", "Diagnostics", "Interval", "Propensity", "RejectedUpdate"]
