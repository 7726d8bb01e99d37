"""A policy that repeats recorded actions."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key
from typing_extensions import override

from vits.policies import Policy
from vits.types import Info, Observation, new_info


class Recorded(Policy):
    """Plays recorded actions; its state is the round."""

    actions: Int[Array, "*seeds horizon"]

    @override
    def init(self, key: Key[Array, ""]) -> Int[Array, ""]:
        return jnp.asarray(0)

    @override
    def act(self, key: Key[Array, ""], state: Int[Array, ""], arms: Float[Array, "arms dim"]) -> Int[Array, ""]:
        return self.actions[state]

    @override
    def update(
        self, key: Key[Array, ""], state: Int[Array, ""], observation: Observation
    ) -> tuple[Int[Array, ""], Info]:
        return state + 1, new_info(is_finite=jnp.isfinite(observation.reward))
