"""One posterior per arm, for any posterior: the played arm learns, all arms are drawn together.

Arms share only the prior. The states of the arms are stacked, and the observations of all arms go into one pool
(`vits.history.paged`).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree
from typing_extensions import override

from vits import validate
from vits.history import History, SlidingHistory
from vits.history.paged import paged
from vits.inference.base import Moments, Posterior
from vits.types import Info, Observation, Reason, State


class PerArm(Posterior):
    """`num_arms` independent copies of a posterior.

    An update costs as much as that of one copy: the state of the played arm is taken out, updated and put back.
    """

    posterior: Posterior
    num_arms: int

    @property
    def num_bytes(self) -> float:
        """Memory of the states of all arms, without the observations in their pool."""
        like = jax.eval_shape(self.posterior.init, jax.random.key(0))
        parts = [part for part in jax.tree.leaves(like, is_leaf=_is_history) if not _is_history(part)]
        return float(self.num_arms) * sum(part.size * part.dtype.itemsize for part in parts)

    def init(self, key: Key[Array, ""]) -> State:
        """The prior for every arm: stacked leaves, and empty histories."""
        like = jax.eval_shape(self.posterior.init, key)
        axes = jax.tree.map(lambda node: None if _is_history(node) else 0, like, is_leaf=_is_history)
        states = jax.vmap(self.posterior.init, out_axes=axes)(jax.random.split(key, self.num_arms))
        return jax.tree.map(
            lambda node: paged(node, self.num_arms) if _is_history(node) else node, states, is_leaf=_is_history
        )

    def update(self, key: Key[Array, ""], state: State, observation: Observation) -> tuple[State, Info]:
        """The played arm learns; where draws come from chains, those of the other arms move on."""
        self._check_arm(observation.action)
        arm = jnp.asarray(observation.action)
        # JAX clips out-of-range indices silently, so mark the observation NaN.
        exists = (arm >= 0) & (arm < self.num_arms)
        arm = jnp.where(exists, arm, 0)
        observation = observation._replace(reward=jnp.where(exists, observation.reward, jnp.nan))
        learn_key, move_key = jax.random.split(key)
        played, info = self.posterior.update(learn_key, _take(state, arm), observation)
        info = info._replace(reason=jnp.where(exists, info.reason, int(Reason.NO_SUCH_ARM)))
        state = _put(state, arm, played)
        if not self.posterior.is_chain:
            return state, info
        keys = jax.random.split(move_key, self.num_arms)
        moved, infos = jax.vmap(self.posterior.advance, (0, _axes(state)), (_axes(state), 0))(keys, state)
        stays = (info.reason > 0) | (jnp.arange(self.num_arms) == arm)
        return _unless(stays, moved, state), _worst(infos, info, stays)

    def sample(self, key: Key[Array, ""], state: State) -> Float[Array, "arms params"]:
        """One draw of every arm's parameters."""
        keys = jax.random.split(key, self.num_arms)
        return jax.vmap(self.posterior.sample, (0, _axes(state)))(keys, state)

    @override
    def moments(self, state: State) -> Moments | None:
        return jax.vmap(self.posterior.moments, (_axes(state),))(state)

    def of(self, state: State, arm: Int[Array, ""] | int) -> State:
        """The state of one arm, in the form of `posterior`."""
        self._check_arm(arm)
        return _take(state, jnp.asarray(arm))

    def _check_arm(self, action: Int[Array, ""] | int) -> None:
        if not validate.is_traced(action) and not 0 <= int(action) < self.num_arms:
            raise ValueError(f"the arm played must be one of 0 to {self.num_arms - 1}, but is {int(action)}")


def _is_history(node: Any) -> bool:
    # A sliding window is of bounded size: it is stacked, like everything else that an arm keeps.
    return isinstance(node, History) and not isinstance(node, SlidingHistory)


def _axes(state: State) -> PyTree[int | None]:
    """What is stacked, and what is shared."""
    return jax.tree.map(lambda node: node.axes if _is_history(node) else 0, state, is_leaf=_is_history)


def _take(state: State, arm: Int[Array, ""]) -> State:
    """The state of one arm."""
    return jax.tree.map(lambda node: node.of(arm) if _is_history(node) else node[arm], state, is_leaf=_is_history)


def _put(state: State, arm: Int[Array, ""], one: State) -> State:
    """The state of all arms, after that of one has changed."""

    def put(node: Any, new: Any) -> Any:
        return node.put(arm, new) if _is_history(node) else node.at[arm].set(new)

    return jax.tree.map(put, state, one, is_leaf=_is_history)


def _unless(stays: Bool[Array, " arms"], moved: State, state: State) -> State:
    """`moved`, but `state` for the arms that stay; histories do not move."""

    def pick(new: Any, old: Any) -> Any:
        return old if _is_history(new) else jnp.where(stays.reshape(-1, *(1,) * (new.ndim - 1)), old, new)

    return jax.tree.map(pick, moved, state, is_leaf=_is_history)


def _worst(infos: Info, info: Info, stays: Bool[Array, " arms"]) -> Info:
    """The `Info` of the played arm, with the failures of all arms that moved; its own reason comes first."""
    worst = jax.tree.map(lambda all_arms, one: jnp.max(jnp.where(stays, one, all_arms)), infos, info)
    return worst._replace(
        is_finite=jnp.all(infos.is_finite | stays) & info.is_finite,
        reason=jnp.where(info.reason > 0, info.reason, worst.reason),
        step=info.step,
    )
