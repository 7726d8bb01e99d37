"""The object an application holds: it decides, and learns when the reward comes."""

import functools
import secrets
import threading
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from vits import checks, models, registry
from vits.agent import archive, beliefs, features as rows_of, mind
from vits.agent.decisions import DEFAULT_SAMPLES, Book, Decision, Pending, ranking
from vits.agent.features import Arm, FeatureMap, Offer
from vits.agent.mind import Mind, RejectedUpdate
from vits.agent.programs import Chooser

MAX_PENDING = 10_000
"""Decisions that may wait for their reward."""
