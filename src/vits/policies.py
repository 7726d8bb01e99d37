"""Policies, which choose an arm from a posterior; and `preset`, the checks of every function that makes one."""

import abc
import functools
import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, ParamSpec, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key
from typing_extensions import override

from vits import validate
from vits.inference.base import Moments, Posterior
from vits.inference.per_arm import PerArm
from vits.models import Glm, RewardModel
from vits.potentials import Potential
from vits.types import Info, Matrix, Observation, Scalar, State, Vector, all_finite, as_real, conformed, new_info

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

MOST_STEPS = 1_000_000
"""The largest number of steps, samples or members, because time and memory grow with them."""


class Choice(NamedTuple):
    """The index of the arm to play, and the number of arms without a finite score, which cannot be chosen."""

    action: Int[Array, ""]
    unscored: Int[Array, ""]


class Policy(eqx.Module):
    """Chooses arms and learns from their rewards."""

    @abc.abstractmethod
    def init(self, key: Key[Array, ""]) -> State:
        """The state before the first round."""

    @abc.abstractmethod
    def act(self, key: Key[Array, ""], state: State, arms: Float[Array, "arms dim"]) -> Int[Array, ""]:
        """The index of the arm to play."""

    def choose(self, key: Key[Array, ""], state: State, arms: Float[Array, "arms dim"]) -> Choice:
        """The arm that `act` plays, and the number of arms without a finite score: 0 for a policy without scores."""
        return Choice(self.act(key, state, arms), jnp.asarray(0))

    @abc.abstractmethod
    def update(self, key: Key[Array, ""], state: State, observation: Observation) -> tuple[State, Info]:
        """The state after an observation, and what happened."""


def best_arm(key: Key[Array, ""], scores: Float[Array, " arms"]) -> Int[Array, ""]:
    """The arm with the highest score; ties are broken at random and scores that are not finite never win."""
    scores = jnp.where(jnp.isfinite(scores), scores, -jnp.inf)
    luck = jax.random.uniform(key, scores.shape)
    return jnp.argmax(jnp.where(scores == jnp.max(scores), luck, -1.0))


class PosteriorPolicy(Policy):
    """A policy that ranks arms by a score computed from a posterior: one for all arms, or one for each (`PerArm`)."""

    model: eqx.AbstractVar[RewardModel]
    posterior: eqx.AbstractVar[Posterior]

    @abc.abstractmethod
    def scores(self, key: Key[Array, ""], state: State, arms: Float[Array, "arms dim"]) -> Float[Array, " arms"]:
        """The score of each arm."""

    @override
    def init(self, key: Key[Array, ""]) -> State:
        return self.posterior.init(key)

    @override
    def act(self, key: Key[Array, ""], state: State, arms: Float[Array, "arms dim"]) -> Int[Array, ""]:
        return self.choose(key, state, arms).action

    def choose(self, key: Key[Array, ""], state: State, arms: Float[Array, "arms dim"]) -> Choice:
        """The arm with the highest score, and the number of arms without a finite score."""
        arms = as_real("arms", arms, ("arms", self.model.dim))
        score_key, tie_key = jax.random.split(key)
        scores = self.scores(score_key, state, arms)
        return Choice(best_arm(tie_key, scores), jnp.sum(~jnp.isfinite(scores)))

    @override
    def update(self, key: Key[Array, ""], state: State, observation: Observation) -> tuple[State, Info]:
        return self.posterior.update(key, state, conformed(observation, self.model.dim))

    def _scored(self, thetas: Float[Array, "*arms params"], arms: Float[Array, "arms dim"]) -> Float[Array, " arms"]:
        """f(theta; phi_a), or f(theta_a; phi_a) if each arm has its own parameters."""
        return jax.vmap(self.model.score, (self._axis(arms), 0))(thetas, arms)

    def _axis(self, arms: Float[Array, "arms dim"]) -> int | None:
        """0 if each arm has its own parameters, None if all share them."""
        if not isinstance(self.posterior, PerArm):
            return None
        if arms.shape[0] != self.posterior.num_arms:
            raise ValueError(
                f"the arms on offer must be the {self.posterior.num_arms} that have a posterior each, "
                f"but are {arms.shape[0]}"
            )
        return 0


class Thompson(PosteriorPolicy):
    """Draws parameters from the posterior and plays the arm that is best under them."""

    model: RewardModel
    posterior: Posterior

    def scores(self, key: Key[Array, ""], state: State, arms: Float[Array, "arms dim"]) -> Float[Array, " arms"]:
        """f(theta; phi_a), theta ~ posterior."""
        return self._scored(self.posterior.sample(key, state), arms)


class UCB(PosteriorPolicy):
    """Optimism: the posterior mean plus `width` posterior standard deviations, for linear models."""

    model: RewardModel
    posterior: Posterior
    width: Scalar

    def scores(self, key: Key[Array, ""], state: State, arms: Float[Array, "arms dim"]) -> Float[Array, " arms"]:
        """phi' mean + width sqrt(phi' Sigma phi)."""
        mean, sqrt_cov = _moments(self.posterior, state)

        def optimistic(mean: Vector, sqrt_cov: Matrix, rows: Float[Array, "rows dim"]) -> Float[Array, " rows"]:
            return rows @ mean + self.width * jnp.linalg.norm(rows @ sqrt_cov, axis=1)

        if self._axis(arms) is None:
            return optimistic(mean, sqrt_cov, arms)
        return jax.vmap(optimistic)(mean, sqrt_cov, arms[:, None])[:, 0]


class Greedy(PosteriorPolicy):
    """Plays the arm that is best under the posterior mean: no exploration."""

    model: RewardModel
    posterior: Posterior

    def scores(self, key: Key[Array, ""], state: State, arms: Float[Array, "arms dim"]) -> Float[Array, " arms"]:
        """f(mean; phi_a)."""
        return self._scored(_moments(self.posterior, state).mean, arms)


def _moments(posterior: Posterior, state: State) -> Moments:
    moments = posterior.moments(state)
    if moments is None:
        raise ValueError(f"the posterior must have moments, but {type(posterior).__name__} has none")
    return moments


class Uniform(Policy):
    """Plays any arm with the same probability and learns nothing."""

    @override
    def init(self, key: Key[Array, ""]) -> tuple[()]:
        return ()

    @override
    def act(self, key: Key[Array, ""], state: State, arms: Float[Array, "arms dim"]) -> Int[Array, ""]:
        return jax.random.randint(key, (), 0, arms.shape[0])

    @override
    def update(self, key: Key[Array, ""], state: State, observation: Observation) -> tuple[State, Info]:
        return state, new_info(is_finite=all_finite((observation.features, observation.reward)))


def longest_menu(policy: Policy) -> int | None:
    """The largest number of arms in a round, for a policy whose observations must have all of them; else None."""
    nodes = jax.tree.leaves(policy, is_leaf=_is_potential)
    return next((node.longest_menu for node in nodes if _is_potential(node) and node.longest_menu is not None), None)


def _is_potential(node: Any) -> bool:
    return isinstance(node, Potential)


def one_per_arm(policy: Policy, num_arms: int) -> Policy:
    """The same algorithm with an independent posterior for every arm: a = argmax f(theta_a; phi_a).

    Only the arm that was played learns from its reward. All arms have the same prior and the same hyperparameters.
    `vits.make(name, model, per_arm=num_arms)` is short for this.

    Args:
        policy: a policy with one posterior for all arms, or none.
        num_arms: the number of arms, which must be the same in every round and in the same order.

    Example:
        >>> import vits
        >>> shared = vits.algorithms.vits_ii(vits.models.linear(3))
        >>> policy = vits.algorithms.one_per_arm(shared, num_arms=10)
    """
    num_arms = validate.count("per_arm", num_arms)
    if longest_menu(policy) is not None:
        raise ValueError("per_arm cannot go with fg_ts, whose bonus compares all arms under the same parameters")
    if not isinstance(policy, PosteriorPolicy):
        return policy
    if isinstance(policy.posterior, PerArm):
        raise ValueError(f"per_arm must be left out for a policy that has one posterior per arm, but is {num_arms}")
    posterior = PerArm(policy.posterior, num_arms)
    validate.memory(
        f"{num_arms:,} posteriors of a model with {policy.model.num_params:,} parameters",
        posterior.num_bytes,
        "use features that all arms share, a smaller model, or lmc_ts, which keeps no matrix",
    )
    return replace(policy, posterior=posterior)


def preset(build: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Decorate a preset, a function from a model and hyperparameters to a policy, with checks of its arguments.

    It refuses anything but a model, unknown hyperparameters, values of the wrong kind, and a posterior that would not
    fit into memory.
    """
    known = hyperparameters(build)

    @functools.wraps(build)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        model = args[0] if args else kwargs.get("model")
        if not isinstance(model, RewardModel):
            given = validate.shown(model)
            raise ValueError(f"model must be a reward model such as vits.models.linear(3), but is {given}")
        for name, value in kwargs.items():
            if name == "model":
                continue
            if name not in known:
                raise validate.unknown(f"hyperparameter of {build.__name__}", name, known)
            _check_kind(name, value, known[name])
        _check_parameters(model)
        if kwargs.get("prior") is not None and "prior_precision" in kwargs:
            raise ValueError(
                f"prior_precision must be left out when there is a prior, but is {kwargs['prior_precision']}"
            )
        for name, value in kwargs.items():
            kwargs[name] = validate.plain(value)
        policy = build(*args, **kwargs)
        if isinstance(policy, PosteriorPolicy):
            validate.memory(
                f"{build.__name__} on a model with {model.num_params:,} parameters",
                jnp.zeros(()).itemsize * policy.posterior.footprint(model.num_params),
                _what_fits(policy, kwargs, known),
            )
        return policy

    return checked


def _what_fits(policy: PosteriorPolicy, given: Mapping[str, Any], known: Collection[str]) -> str:
    """What to use instead of a policy that would not fit into memory."""
    instead = ["a smaller model"]
    if "minibatch" in given:
        instead.append("a small minibatch")
    # Generalised linear models form their curvature with any covariance.
    if "covariance" in known and given.get("covariance") != "diagonal" and not isinstance(policy.model, Glm):
        instead.append("covariance='diagonal' or 'low_rank' with a small rank")
    least = "lmc_ts, which keeps no matrix"
    if policy.posterior.is_chain:
        least = "fewer num_steps" if given.get("preconditioner", "none") == "none" else "preconditioner='none'"
    return f"use {', '.join(instead)}, or {least}"


def _check_kind(name: str, value: Any, annotation: Any) -> None:
    """Raise unless a hyperparameter has the kind that its type says; functions of their own check the rest."""
    types = kinds(annotation)
    if value is None and type(None) in types:
        return
    if name == "prior" and not (isinstance(value, (tuple, list)) and len(value) == 2):
        raise ValueError(f"prior must be a pair of a mean and a covariance, but is {validate.shown(value)}")
    if name.startswith("num_"):
        validate.count(name, value, most=None if name == "num_arms" else MOST_STEPS)
    elif float in types:
        validate.number(name, value)
    elif bool in types and not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, but is {validate.shown(value)}")


def _check_parameters(model: RewardModel) -> None:
    """Refuse a model with more parameters than memory can hold once."""
    needed = float(jnp.zeros(()).itemsize) * model.num_params
    validate.memory(f"a vector of {model.num_params:,} parameters", needed, "use a smaller model")


def hyperparameters(build: Callable[..., Any]) -> dict[str, Any]:
    """The types of all hyperparameters of a preset by name, those of its data options included."""
    types: dict[str, Any] = {}
    for parameter in inspect.signature(build).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            (options,) = typing.get_args(parameter.annotation)
            types |= options.__annotations__
        elif parameter.name != "model":
            types[parameter.name] = parameter.annotation
    return types


def kinds(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, or the type itself."""
    return typing.get_args(annotation) or (annotation,)
