"""Networks on labelled tables and on the wheel bandit, with the protocols of published results.

Mushroom and shuttle pay 1 for the right class and 0 otherwise, and every seed shuffles the rows in its own way. On the
wheel, rewards and regret are divided by 50. Each world has one network with one output per arm.

On the tables the prior is N(0, v I). The wheel needs sharp edges, so its prior is N(start, v I), where `start` has
random hidden weights and biases, new for each seed, and a last layer of zeros. Settings were chosen on seeds from 100
on, which no preset plays.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from typing_extensions import override

from vits import algorithms, catalogue, environments, models
from vits.files import Arrays
from vits.lab import results
from vits.lab.experiments.bandit import BanditExperiment, Contender, Model, Stage, World, regret_row
from vits.lab.experiments.base import Cell
from vits.lab.results import Row
from vits.policies import Policy
from vits.types import Vector

WHEEL_UNIT = 50.0
"""The wheel's largest reward."""

PUBLISHED = {
    "mushroom": {8124: "NeuralTS 115, tree ensembles 69, BART 54"},
    "shuttle": {5000: "EKF in a subspace 153 to 175", 10_000: "NeuralTS 232, tree ensembles 170, BART 107"},
    "wheel, in units of 50": {20_480: "Neural-Linear 158.6, NeuralUCB 160.7, NeuralTS 205.1"},
}
"""Regrets that others report, by world and round; for the sources and how they differ see docs/real-data.md."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableWorld(World):
    """A world with its own horizon, network and prior."""

    rounds: int
    """Its horizon, unless the experiment's is shorter."""
    network: Model
    variance: float
    """Prior variance of every parameter."""
    start_scale: float | None = None
    """s, if the prior is centred at random features: hidden weights N(0, s^2), hidden biases uniform on [-s, s]."""
    reads_data: bool = True


@dataclasses.dataclass(frozen=True)
class Tables(BanditExperiment):
    """Worlds that differ in the number of inputs and arms."""

    data: str | Path | None = None
    """The folder with the UCI tables; see `vits.datasets.uci`."""

    @override
    def settings(self) -> dict[str, Any]:
        """Everything needed to run it again. The data may be anywhere, because loaders check published checksums."""
        return {**super().settings(), "data": None}

    @override
    def stage(self, world: World) -> Stage:
        assert isinstance(world, TableWorld)
        place = {"place": self.data} if world.reads_data else {}
        environment = getattr(environments, world.environment)(**place, **world.arguments)
        model = getattr(models, world.network.name)(**world.network.arguments)

        def policy(contender: Contender, _: models.RewardModel, centre: Vector) -> Policy:
            if not catalogue.algorithm(contender.algorithm).learns:
                return algorithms.make(contender.algorithm, model)
            prior = (centre, world.variance)
            return algorithms.make(contender.algorithm, model, prior=prior, **contender.hyperparameters)

        if world.start_scale is None:
            return Stage(environment, policy, example=jnp.zeros(model.num_params))
        scale = world.start_scale

        def starts(seeds: Sequence[int]) -> Float[Array, "seeds params"]:
            keys = jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(self.seed), seed))(jnp.asarray(seeds))
            return jax.vmap(lambda key: random_features(key, model, scale))(keys)

        return Stage(environment, policy, starts, example=random_features(jax.random.key(0), model, scale))

    @override
    def tuning_worlds(self) -> tuple[World, ...]:
        """All worlds, without their chosen settings."""
        return tuple(dataclasses.replace(world, hyperparameters={}) for world in self.worlds)

    @override
    def row(self, cell: Cell, arrays: Arrays) -> Row:
        """Regret at the end, and at the rounds for which others have published theirs."""
        cumulative = results.cumulative(arrays)
        beside = [
            {
                "rounds": rounds,
                "regret_mean": float(np.mean(cumulative[:, rounds - 1])),
                "regret_stderr": float(np.std(cumulative[:, rounds - 1], ddof=1) / np.sqrt(len(cumulative))),
                "published": text,
            }
            for rounds, text in PUBLISHED.get(cell.environment, {}).items()
            if rounds <= cumulative.shape[1] and len(cumulative) > 1
        ]
        return regret_row(*cell.key, cell.hyperparameters, arrays, beside=beside)

    @override
    def _chunks(self, world: World, stage: Stage, contender: Contender, content: list[Any], count: int) -> list[Cell]:
        assert isinstance(world, TableWorld)
        own = dataclasses.replace(self, horizon=min(self.horizon, world.rounds))
        return super(Tables, own)._chunks(world, stage, contender, content, count)


def random_features(key: Key[Array, ""], model: models.Mlp, scale: float) -> Vector:
    """Parameters of a network with one hidden layer: a random hidden layer, and a last layer of zeros."""
    weight_key, bias_key = jax.random.split(key)
    weight = model.network.layers[0].weight
    weights = scale * jax.random.normal(weight_key, (weight.size,))
    biases = scale * jax.random.uniform(bias_key, weight.shape[:1], minval=-1.0, maxval=1.0)
    return jnp.concatenate([weights, biases, jnp.zeros(model.num_params - weights.size - biases.size)])


def _network(inputs: int, width: int, outputs: int) -> Model:
    return Model("mlp", {"dim": inputs, "hidden": (width,), "outputs": outputs})


def _eta(eta: float) -> dict[str, dict[str, float]]:
    return {contender.label: {"inverse_temperature": eta} for contender in _CONTENDERS if contender.label != "uniform"}


_CONTENDERS = (
    Contender("laplace_ts", "laplace_ts", {"carried": True, "step_size": 0.3, "num_steps": 3, "minibatch": 512}),
    Contender("vits_ng, low rank", "vits_ng", {"covariance": "low_rank", "step_size": 1.0, "num_steps": 3}),
    Contender("vits_ng, diagonal", "vits_ng", {"covariance": "diagonal", "step_size": 1.0, "num_steps": 3}),
    Contender("last_layer_ts", "last_layer_ts", {"num_steps": 3}),
    Contender("lmc_ts", "lmc_ts", {"num_steps": 100, "minibatch": 64}),
    Contender("ensemble_ts", "ensemble_ts", {"num_members": 2, "num_steps": 1, "minibatch": 64}),
    Contender("uniform", "uniform"),
)

EXPERIMENT = Tables(
    name="tables",
    title="Labelled tables and the wheel",
    worlds=(
        TableWorld(
            "mushroom",
            "mushroom",
            {"zero_one": True, "encoding": "head"},
            _eta(300.0),
            rounds=8124,
            network=_network(126, 5, 2),
            variance=1.0 / 300.0,
        ),
        TableWorld(
            "shuttle",
            "shuttle",
            {"scaling": "robust", "constant": False, "encoding": "head"},
            _eta(1000.0),
            rounds=10_000,
            network=_network(9, 50, 7),
            variance=1.0 / 500.0,
        ),
        TableWorld(
            "wheel, in units of 50",
            "wheel",
            {"delta": 0.9, "unit": WHEEL_UNIT, "encoding": "head"},
            _eta(3000.0),
            rounds=20_480,
            network=_network(2, 50, 5),
            variance=1.0 / 300.0,
            start_scale=3.0,
            reads_data=False,
        ),
    ),
    contenders=_CONTENDERS,
    model=_network(2, 50, 5),
    horizon=20_480,
    seeds=20,
    chunk=1,
)


def _only(*labels: str) -> tuple[Contender, ...]:
    return tuple(each for each in _CONTENDERS if each.label in labels)


PRESETS = {
    "paper": dataclasses.replace(EXPERIMENT, contenders=_only("laplace_ts", "uniform")),
    "rivals": dataclasses.replace(EXPERIMENT, horizon=500, seeds=3, chunk=3),
    "quick": dataclasses.replace(
        EXPERIMENT, contenders=_only("laplace_ts", "last_layer_ts", "uniform"), horizon=300, seeds=2, chunk=2
    ),
}
