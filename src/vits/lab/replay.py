"""Recorded actions, played again: what they cost in another measure of the same rounds."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from vits.environments.base import Environment
from vits.policies import Policy
from vits.simulation import Trace, simulate_each
from vits.types import Info, Observation, new_info


class Recorded(Policy):
    """Plays what was played before; its state is the round."""

    actions: Int[Array, "*seeds horizon"]

    def init(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """Round 0."""
        return jnp.asarray(0)

    def act(self, key: Key[Array, ""], state: Int[Array, ""], arms: Float[Array, "arms dim"]) -> Int[Array, ""]:
        """The recorded action."""
        return self.actions[state]

    def update(
        self, key: Key[Array, ""], state: Int[Array, ""], observation: Observation
    ) -> tuple[Int[Array, ""], Info]:
        """The next round."""
        return state + 1, new_info(is_finite=jnp.isfinite(observation.reward))


def replay(
    key: Key[Array, ""] | Array | int,
    environment: Environment,
    actions: Int[np.ndarray, "seeds horizon"],
    *,
    seeds: int | Sequence[int],
) -> Trace:
    """What given actions bring in the rounds of an environment.

    Args:
        key: that of the simulation which the actions come from.
        environment: the same world, or one that draws the same rounds and measures them otherwise.
        actions: the arm played by each seed in each round.
        seeds: those of the simulation.

    Returns:
        The trace.

    Example:
        >>> import numpy as np, vits
        >>> world = vits.environments.linear(zeta=1.0, dim=3, num_arms=4)
        >>> trace = vits.simulate(0, world, vits.make("lin_ts", vits.models.linear(3)), 20, seeds=2)
        >>> bool(np.allclose(replay(0, world, trace.action, seeds=2).regret, trace.regret))
        True
    """
    recorded = Recorded(jnp.asarray(actions, int))
    return simulate_each(key, environment, recorded, actions.shape[1], seeds=seeds)
