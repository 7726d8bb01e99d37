"""Reward models: the distribution of an arm's reward, given its features and the parameters."""

from vits.models.base import OutputModel, RewardModel
from vits.models.glm import Glm, Linear, Logistic, Poisson, linear, logistic, poisson
from vits.models.network import Custom, CustomOutput, Mlp, custom, mlp

__all__ = [
    "Custom",
    "CustomOutput",
    "Glm",
    "Linear",
    "Logistic",
    "Mlp",
    "OutputModel",
    "Poisson",
    "RewardModel",
    "custom",
    "linear",
    "logistic",
    "mlp",
    "poisson",
]
