"""Worlds to play in. Their randomness does not depend on the policy, so all algorithms face the same rounds."""

from vits.environments.base import Environment
from vits.environments.classification import classification, labelled_file, mushroom, shuttle
from vits.environments.fixed_arms import fixed_linear, fixed_logistic
from vits.environments.movielens import movielens
from vits.environments.pool import linear, quadratic
from vits.environments.sphere import sphere
from vits.environments.wheel import wheel

__all__ = [
    "Environment",
    "classification",
    "fixed_linear",
    "fixed_logistic",
    "labelled_file",
    "linear",
    "movielens",
    "mushroom",
    "quadratic",
    "shuttle",
    "sphere",
    "wheel",
]
