"""Worlds to play in. Their randomness does not depend on the policy, so all algorithms face the same rounds."""

from vits.environments.base import Environment
from vits.environments.pool import linear

__all__ = ["Environment", "linear"]
