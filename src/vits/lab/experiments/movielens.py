"""MovieLens (figure 3): which of a hundred movies to recommend to a user, with one posterior per movie."""

import dataclasses
import functools
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from typing_extensions import override

from vits import algorithms, catalogue, models, simulation, validate
from vits.datasets import movielens as ratings
from vits.environments.base import Environment
from vits.environments.movielens import SCALES, MovieLens, MoviePrior, from_factors, movie_prior
from vits.files import Arrays
from vits.lab.experiments import tuned
from vits.lab.experiments.bandit import Contender, Model, RegretExperiment, Stage, World, as_written, regret_row
from vits.lab.experiments.base import Cell
from vits.lab.experiments.statements import cheaper, less, scored
from vits.lab.results import Claim, Results, Row
from vits.policies import Policy
from vits.simulation import Trace, replay


@dataclasses.dataclass(frozen=True)
class MovieWorld(World):
    """The movies, and the prior from the mean m and the variance v of those drawn.

    The prior is N(m, diag(v)), or N(m, diag(v) / eta) if it is tempered like the likelihood.
    """

    inverse_temperature: float = 1.0
    tempered: bool = True


@dataclasses.dataclass(frozen=True)
class MovieLensExperiment(RegretExperiment):
    """Logistic rewards, a posterior for every movie, and for every seed a prior from the movies it drew."""

    decides: ClassVar[frozenset[str]] = frozenset({"prior_precision"})

    worlds: tuple[MovieWorld, ...]
    data: str | Path | None = None
    """Where the ratings are; see `vits.datasets.movielens.find`."""
    edition: ratings.Edition = ratings.ML_1M
    starts: int = 1
    """Factorisations with different starts; each seed draws one of them."""

    @functools.cached_property
    def _factorised(self) -> list[ratings.Factorised]:
        """The ratings, read and hashed once for all worlds and cells, from each start."""
        validate.count("starts", self.starts)
        return [ratings.factorised(self.data, edition=self.edition, seed=start) for start in range(self.starts)]

    @override
    def settings(self) -> dict[str, Any]:
        """Everything needed to run it again. The data are named by their checksum, because they may be anywhere."""
        return {**super().settings(), "data": self._factorised[0].md5}

    @override
    def content(self) -> list[Any]:
        md5 = self._factorised[0].md5
        return [md5] if self.starts == 1 else [md5, {"starts": self.starts}]

    @override
    def stage(self, world: World) -> Stage:
        assert isinstance(world, MovieWorld)
        environment = from_factors([each.factors for each in self._factorised], **world.arguments)

        def policy(contender: Contender, model: models.RewardModel, prior: MoviePrior) -> Policy:
            return _policy(contender, model, world, environment.num_arms, prior)

        def priors(seeds: Sequence[int]) -> MoviePrior:
            return jax.vmap(movie_prior)(simulation.worlds(self.seed, environment, seeds=seeds))

        return Stage(environment, policy, priors, MoviePrior(jnp.zeros(environment.dim), jnp.ones(environment.dim)))

    @override
    def notes(self, environment: Environment, seeds: list[int], trace: Trace) -> Arrays:
        """`logit_regret`: regret of the same actions, measured on the logit scale."""
        assert isinstance(environment, MovieLens)
        on_logits = dataclasses.replace(environment, scale=SCALES["logit"])
        return {"logit_regret": replay(self.seed, on_logits, trace.action, seeds=seeds).regret}

    @override
    def tuning_worlds(self) -> tuple[World, ...]:
        """One for each kind of prior, because eta is tuned; in the reading "as written" the prior is not tempered."""
        kinds: dict[str, MovieWorld] = {}
        for world in super().tuning_worlds():
            assert isinstance(world, MovieWorld)
            kinds.setdefault("tempered" if world.tempered else "untempered", world)
        return tuple(dataclasses.replace(world, label=label) for label, world in kinds.items())

    @override
    def row(self, cell: Cell, arrays: Arrays) -> Row:
        """Regret in probabilities, and in logits as the authors measure it."""
        (world,) = (world for world in self.worlds if world.label == cell.environment)
        prior = {"inverse_temperature": world.inverse_temperature, "tempered": world.tempered}
        logit = regret_row(*cell.key, {}, {**arrays, "regret": arrays["logit_regret"]})
        return regret_row(
            *cell.key,
            {**prior, **cell.hyperparameters},
            arrays,
            logit_regret_mean=logit["regret_mean"],
            logit_regret_stderr=logit["regret_stderr"],
            logit_regret_median=logit["regret_median"],
        )

    @override
    def claims(self, found: Results) -> list[Claim]:
        variants, (world, *others) = ("vits_ii", "vits_ii_hf"), self.judged
        if others:
            return []
        return [
            *scored("movielens-lints", found, *(less(world, name, "lin_ts") for name in (*variants, "lmc_ts"))),
            *scored(
                "movielens-vits",
                found,
                *(less(world, name, "lmc_ts") for name in variants),
                also=lambda: cheaper(found, [world], variants, "lmc_ts"),
            ),
        ]


def _policy(
    contender: Contender, model: models.RewardModel, world: MovieWorld, num_arms: int, prior: MoviePrior
) -> Policy:
    if not catalogue.algorithm(contender.algorithm).learns:
        return algorithms.make(contender.algorithm, model)
    if "inverse_temperature" not in inspect.signature(getattr(algorithms, contender.algorithm)).parameters:
        raise ValueError(
            f"'{contender.algorithm}' cannot play here: it has no inverse_temperature, which the world sets"
        )
    hyperparameters = {"inverse_temperature": world.inverse_temperature, **contender.hyperparameters}
    scale = hyperparameters["inverse_temperature"] if world.tempered else 1.0
    return algorithms.make(
        contender.algorithm, model, per_arm=num_arms, prior=(prior.mean, prior.variance / scale), **hyperparameters
    )


EXPERIMENT = MovieLensExperiment(
    name="movielens",
    title="MovieLens",
    worlds=(
        MovieWorld("eta=10", "movielens", inverse_temperature=10.0),
        MovieWorld("eta=1", "movielens", inverse_temperature=1.0),
        MovieWorld("eta=100", "movielens", inverse_temperature=100.0),
        MovieWorld("untempered", "movielens", inverse_temperature=10.0, tempered=False),
        MovieWorld(
            "tempered, tuned",
            "movielens",
            hyperparameters=tuned.settings("movielens", "tempered"),
            inverse_temperature=10.0,
        ),
    ),
    contenders=(
        Contender("vits_ii", "vits_ii"),
        Contender("vits_ii_single", "vits_ii", {"draws": "single"}),
        Contender("vits_ii_hf", "vits_ii_hf"),
        Contender("vits_ng", "vits_ng"),
        Contender("laplace_ts", "laplace_ts"),
        Contender("lmc_ts", "lmc_ts", {"num_steps": 10}),
        Contender("lin_ts", "lin_ts", model=Model("linear", {"dim": 5})),
        Contender("uniform", "uniform"),
    ),
    model=Model("logistic", {"dim": 5}),
    horizon=5000,
    seeds=50,
    chunk=10,
    starts=10,
)

PRESETS = {
    "paper": dataclasses.replace(EXPERIMENT, worlds=EXPERIMENT.worlds[-1:]),
    "priors": EXPERIMENT,
    "written": as_written(
        dataclasses.replace(EXPERIMENT, worlds=tuple(world for world in EXPERIMENT.worlds if not world.tempered)).only(
            ["vits_ii", "vits_ii_hf", "lmc_ts", "lin_ts", "uniform"]
        )
    ),
    "quick": dataclasses.replace(
        EXPERIMENT, worlds=(EXPERIMENT.worlds[1], EXPERIMENT.worlds[-1]), horizon=1000, seeds=10, starts=1
    ),
}
