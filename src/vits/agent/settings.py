"""The arguments that an agent was made with, and the policy and the random keys that follow from them.

An agent runs for as long as its application, so by default its storage is bounded: time and memory of an update stay
the same, and nothing is compiled again. `vits.make` and `vits.simulate` store all observations.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from vits import algorithms, catalogue, models, validate
from vits.agent import device
from vits.agent.arms import FeatureMap
from vits.history import BLOCK, with_capacity
from vits.policies import Policy

FEWEST_SLOTS = 8
"""Initial number of posteriors of an agent with one for each arm; it doubles when they are used up."""

FOLD_AFTER = 128
"""Observations that are stored for a generalised linear model; older ones are folded into a quadratic form."""

WINDOW = 1024
"""The same for other models with few parameters; also the number of observations that are stored if older ones are
forgotten."""

SAMPLED = 16_384
"""Observations that are stored where the steps of an update use only a minibatch of them. More would take memory, and
copies of an agent would take longer."""

SMALLEST_SAMPLE, LARGEST_SAMPLE = 256, 1024
"""Limits of the minibatch that is the default where nothing can be folded. Between them it has two observations per
parameter, so that its curvature costs about as much as a decomposition does."""

SETTLED = 16
"""Stored observations per parameter where a network folds. With fewer, observations leave before it is trained, and
their quadratic form holds it where it was. Chosen from one network of 49 parameters, see docs/trust.md."""

LARGEST_FOLDED = 400
"""Most parameters of a network that folds. The curvature of the stored observations, `SETTLED` for each parameter, is
computed in every round."""


def is_double() -> bool:
    """Whether JAX computes in double precision now, in this thread."""
    return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Settings:
    """The arguments an agent was made with.

    `is_named` is true if the arms have names. `dim` and `dtype` are those of the features, `largest` is the largest
    number of that dtype.
    """

    algorithm: str
    model: models.RewardModel
    hyperparameters: Mapping[str, Any]
    features: FeatureMap | None
    is_named: bool
    when_full: str
    seed: int
    dim: int = field(init=False)
    dtype: np.dtype[Any] = field(init=False)
    x64: bool = field(init=False)
    largest: float = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.algorithm, str):
            raise ValueError(f"algorithm must be the name of one, but is {self.algorithm!r}")
        if not isinstance(self.model, models.RewardModel):
            raise ValueError(f"model must be a reward model, such as vits.models.linear(8), but is {self.model!r}")
        if self.features is not None and not callable(self.features):
            raise ValueError(f"features must be a function of a context and an arm, but is {self.features!r}")
        row = catalogue.algorithm(self.algorithm)
        for name in ("num_arms", "per_arm"):
            if name in self.hyperparameters and not row.needs_menu:
                raise ValueError(f"{name} must be left out, since an agent knows its arms")
        if row.own_posteriors and not self.per_arm:
            raise ValueError(f"{row.name} keeps one posterior for each arm, so it needs arms=[...] and no features")
        object.__setattr__(self, "hyperparameters", {name: _own(v) for name, v in self.hyperparameters.items()})
        object.__setattr__(self, "dim", self.model.dim)
        object.__setattr__(self, "dtype", np.dtype(jnp.zeros(()).dtype))
        object.__setattr__(self, "x64", is_double())
        object.__setattr__(self, "largest", float(np.finfo(self.dtype).max))

    @property
    def per_arm(self) -> bool:
        """Whether each arm has its own posterior."""
        return self.is_named and self.features is None and self.model.num_heads is None

    def policy(self, slots: int, capacity: int) -> Policy:
        """The policy with this many posteriors, if each arm has its own, and room for `capacity` observations."""
        row, arms = catalogue.algorithm(self.algorithm), {}
        if self.per_arm and row.learns:
            arms = {"num_arms" if row.own_posteriors else "per_arm": slots}
        return with_capacity(algorithms.make(self.algorithm, self.model, **arms, **self.hyperparameters), capacity)

    @property
    def bound(self) -> str | None:
        """The option that bounds storage, if one was given."""
        names = ("fold_after", "window")
        return next((name for name in names if self.hyperparameters.get(name) is not None), None)

    def check_unbounded(self, capacity: int) -> None:
        """Refuse a capacity, which stores all observations, together with a bound."""
        if self.bound is not None:
            value = self.hyperparameters[self.bound]
            raise ValueError(f"capacity must be left out where {self.bound} is {value}, but is {capacity}")

    def bounded(self) -> "Settings":
        """The same settings with the first bound on storage that fits, unless there is one or there are none."""
        given, known = self.hyperparameters, algorithms.hyperparameters(self.algorithm)
        refusal = None
        for bounds in self._bounds() if self.bound is None else ():
            if not bounds.keys() <= set(known):
                continue
            settings = replace(self, hyperparameters={**given, **bounds})
            try:
                settings.policy(FEWEST_SLOTS, BLOCK)
            except ValueError as error:
                refusal = error
            else:
                return settings
        self.policy(FEWEST_SLOTS, BLOCK)  # what is wrong without a bound too is told as it is
        if refusal is not None:
            raise ValueError(f"{refusal}; or keep all observations: capacity=1024, for example")
        return self

    def _bounds(self) -> Iterator[dict[str, int]]:
        """Options that bound storage, the best first."""
        given, num_params = self.hyperparameters, self.model.num_params
        row = catalogue.algorithm(self.algorithm)
        is_glm = isinstance(self.model, models.Glm)
        is_structured = not is_glm and given.get("covariance", "full") != "full"
        samples = row.samples and not self.per_arm  # a long window for each arm would take too much memory
        has_sample = samples or is_structured or given.get("minibatch") is not None
        if has_sample:
            yield {"window": SAMPLED}
        elif is_glm:
            yield {"fold_after": FOLD_AFTER}
        elif SETTLED * num_params <= WINDOW:
            yield {"fold_after": WINDOW}
        if row.averages and not has_sample and not self.per_arm:
            yield {"minibatch": min(max(2 * num_params, SMALLEST_SAMPLE), LARGEST_SAMPLE), "window": SAMPLED}
        if not is_glm and not has_sample and WINDOW < SETTLED * num_params <= SETTLED * LARGEST_FOLDED:
            yield {"fold_after": SETTLED * num_params}
        yield {"window": WINDOW}

    def stores_all(self, slots: int) -> bool:
        """Whether all observations are stored: then the structure of the state depends on the capacity."""
        key = jax.random.key(0)
        policies = [self.policy(slots, room) for room in (BLOCK, 2 * BLOCK)]
        structures: list[Any] = [jax.tree.structure(jax.eval_shape(policy.init, key)) for policy in policies]
        return bool(structures[0] != structures[1])

    def storage(self, *, grows: bool) -> str:
        """What the agent keeps of its observations, in words."""
        given = self.hyperparameters
        if given.get("fold_after") is not None:
            return f"the last {given['fold_after']} observations, and older ones as a quadratic form"
        if given.get("window") is not None:
            return f"the last {given['window']} observations"
        return "all observations" if grows else "sums over all observations"

    def start_key(self, number: int) -> Array:
        """A key for fresh posteriors; number 0 is for the initial ones."""
        return jax.random.fold_in(jax.random.wrap_key_data(Keys.of(self.seed).start), number)


class Keys(NamedTuple):
    """One random key for each purpose. Fresh states start from `start`, where the policy is, before they are moved."""

    choose: Array
    learn: Array
    start: Array
    draw: Array

    @classmethod
    def of(cls, seed: int) -> "Keys":
        """Independent keys from a seed."""
        choose, learn, start, draw = jax.random.key_data(jax.random.split(jax.random.key(seed), 4))
        choose, learn, draw = device.put((choose, learn, draw))
        return cls(choose, learn, start, draw)


def _own(value: Any) -> Any:
    """A hyperparameter that the caller cannot change later: policies are made of it again, and it is saved."""
    return copy.deepcopy(value) if isinstance(value, (np.ndarray, list, tuple)) else validate.plain(value)


def slots_for(arms: int) -> int:
    """The number of posteriors that are made for this many arms."""
    return 1 << (max(arms, FEWEST_SLOTS) - 1).bit_length()
