"""The table of all algorithms and experiments, with their properties.

The README's table, `vits list`, the contract test, `vits check` and the fault campaign read it. It imports nothing
heavy, so names can be listed and checked without waiting for JAX.
"""

import importlib
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple, cast

from vits import validate


class Algorithm(NamedTuple):
    """An algorithm: its name, a summary, its reference, its file, and its properties.

    `linear_only`: it refuses models that are not linear. `needs_menu`: observations must have the features of all arms
    on offer. `own_posteriors`: it always has one posterior for each arm. `learns`: its choices depend on rewards.
    `networks_only`: it refuses models that are not networks. `averages`: a round moves its posterior only a little way,
    so that the noise of minibatches averages out. `samples`: its steps use a minibatch unless told otherwise.
    """

    name: str
    summary: str
    reference: str
    file: str
    linear_only: bool = False
    needs_menu: bool = False
    own_posteriors: bool = False
    learns: bool = True
    networks_only: bool = False
    averages: bool = False
    samples: bool = False


class Experiment(NamedTuple):
    """An experiment: its name, a summary, its place in the paper, its file, and its presets.

    `claims` are the paper's statements that it scores, by name. `data_set` is the data set that it reads. `attribute`
    of the file has its settings by preset. `timed`: its results are computing times, so it runs in one process
    with every engine.
    """

    name: str
    summary: str
    reference: str
    file: str
    presets: tuple[str, ...] = ("quick", "paper")
    data_set: str | None = None
    attribute: str = "PRESETS"
    timed: bool = False
    claims: Mapping[str, str] = MappingProxyType({})


_VITS = "Clavier, Huix and Durmus, VITS (ICML 2024)"
_VTS = "Urteaga and Wiggins (AISTATS 2018)"

_ALGORITHMS = (
    Algorithm("vits_i", "Gaussian variational posterior, exact inverse", _VITS, "algorithms/vits.py", averages=True),
    Algorithm("vits_ii", "the same with a first-order inverse", _VITS, "algorithms/vits.py", averages=True),
    Algorithm("vits_ii_hf", "the same without Hessians", _VITS, "algorithms/hessian_free.py", averages=True),
    Algorithm(
        "vits_ng", "the same by natural gradients", "Khan and Rue (JMLR 2023)", "algorithms/natural.py", averages=True
    ),
    Algorithm(
        "lin_ts", "exact Gaussian posterior", "Agrawal and Goyal (ICML 2013)", "algorithms/exact.py", linear_only=True
    ),
    Algorithm(
        "lin_ucb", "optimism with the exact posterior", "Li et al. (WWW 2010)", "algorithms/exact.py", linear_only=True
    ),
    Algorithm("lmc_ts", "a Langevin chain", "Xu et al. (ICML 2022)", "algorithms/langevin.py", averages=True),
    Algorithm(
        "fg_ts", "a bonus for optimistic parameters", "Zhang (SIMODS 2022)", "algorithms/feel_good.py", needs_menu=True
    ),
    Algorithm(
        "vts", "mixture posteriors, one per arm", _VTS, "algorithms/mixture.py", linear_only=True, own_posteriors=True
    ),
    Algorithm("laplace_ts", "Gaussian at the mode", "Chapelle and Li (NeurIPS 2011)", "algorithms/laplace.py"),
    Algorithm("ensemble_ts", "one of many fits", "Lu and Van Roy (NeurIPS 2017)", "algorithms/ensemble.py"),
    Algorithm(
        "last_layer_ts",
        "exact on a trained network's last layer",
        "Riquelme et al. (ICLR 2018)",
        "algorithms/last_layer.py",
        networks_only=True,
        samples=True,
    ),
    Algorithm("greedy", "plays the best fit", "", "algorithms/baselines.py"),
    Algorithm("uniform", "plays any arm", "", "algorithms/baselines.py", learns=False),
)

_EXPERIMENTS = (
    Experiment(
        "linear",
        "linear bandit, ill- and well-conditioned contexts",
        "figure 1",
        "lab/experiments/linear.py",
        presets=("quick", "paper", "written", "figure"),
        claims={
            "linear-well": "zeta = 1: all methods are alike, LMC-TS with 10 steps slightly worse",
            "linear-ill": "zeta = 0.1: LMC-TS is worse even with 50 steps; VITS-II is about equal to LinTS",
            "linear-hf": "the Hessian-free form has slightly more regret than VITS-II, and is cheaper",
            "linear-vits1": "VITS-I and VITS-II have about the same regret",
            "linear-vts": "zeta = 0.1: the regret of VTS is high and grows linearly",
        },
    ),
    Experiment(
        "quadratic",
        "quadratic bandit with neural networks",
        "figure 2",
        "lab/experiments/quadratic.py",
        presets=("quick", "paper", "written", "tanh", "tuned"),
        claims={
            "quadratic-order": (
                "VITS-II is slightly better than its Hessian-free form, both better than LMC-TS and LinTS"
            ),
            "quadratic-gap": "the gap to LMC-TS is smaller at zeta = 1 than at zeta = 0.1",
        },
    ),
    Experiment(
        "movielens",
        "recommending movies, one posterior each",
        "figure 3",
        "lab/experiments/movielens.py",
        presets=("quick", "paper", "written", "priors"),
        data_set="movielens",
        claims={
            "movielens-lints": "LinTS is worst",
            "movielens-vits": "VITS is slightly better than LMC-TS at less computation",
        },
    ),
    Experiment(
        "kl",
        "steps to a Gaussian target, by condition number",
        "appendix on LMC and VI",
        "lab/experiments/kl.py",
        claims={
            "kl-alike": "VI-I and VI-II need the same number of steps",
            "kl-linear": "steps grow linearly with the condition number, for LMC and for VI",
            "kl-fewer": "VI always needs fewer steps than LMC",
        },
    ),
    Experiment(
        "fixed-linear",
        "ten fixed arms, linear rewards",
        "appendix",
        "lab/experiments/fixed_arms.py",
        presets=("quick", "paper", "written"),
        attribute="LINEAR",
        claims={
            "fixed-linear": "VITS-I and VITS-II are close to LinTS, and better than LMC-TS and VTS",
        },
    ),
    Experiment(
        "fixed-logistic",
        "ten fixed arms, logistic rewards",
        "appendix",
        "lab/experiments/fixed_arms.py",
        presets=("quick", "paper", "written"),
        attribute="LOGISTIC",
        claims={
            "fixed-logistic": "VITS is better than all others",
        },
    ),
    Experiment(
        "compute",
        "time to a Gaussian target",
        "appendix on computation",
        "lab/experiments/compute.py",
        timed=True,
        claims={
            "compute-order": (
                "to a given KL: VITS-II and its Hessian-free form are faster than LMC, and VITS-I is slowest"
            ),
        },
    ),
    Experiment(
        "theory",
        "regret of VITS-I against rounds and dimension",
        "theorem 1",
        "lab/experiments/theory.py",
        claims={
            "theorem": "regret grows no faster than d^1.5 sqrt(T), up to logarithms",
        },
    ),
    Experiment(
        "comparison",
        "regret, cost and conditioning, side by side",
        "comparison table",
        "lab/experiments/comparison.py",
        timed=True,
    ),
    Experiment(
        "tables",
        "networks on mushroom, shuttle and the wheel",
        "not in the paper",
        "lab/experiments/tables.py",
        presets=("quick", "paper", "rivals"),
        data_set="uci",
    ),
)

ALGORITHMS = {row.name: row for row in _ALGORITHMS}
EXPERIMENTS = {row.name: row for row in _EXPERIMENTS}

CLAIMS = {name: text for row in _EXPERIMENTS for name, text in row.claims.items()}
"""The paper's claims about its experiments, by name."""

EXPERIMENT_OF_CLAIM = {name: row.name for row in _EXPERIMENTS for name in row.claims}

DATA_SETS = tuple(row.data_set for row in _EXPERIMENTS if row.data_set is not None)


def algorithm(name: str) -> Algorithm:
    """The row of an algorithm, or an error that suggests the nearest name."""
    return validate.choice("algorithm", name, ALGORITHMS)


def experiment(name: str, preset: str | None = None) -> Experiment:
    """The row of an experiment, or an error that suggests the nearest name; the same for its preset, if given."""
    row = validate.choice("experiment", name, EXPERIMENTS)
    if preset is not None and preset not in row.presets:
        raise validate.unknown("preset", preset, row.presets)
    return row


def presets(name: str) -> Mapping[str, Any]:
    """The settings of an experiment by preset; its module is imported only now, because it imports JAX."""
    row = experiment(name)
    return cast(Mapping[str, Any], getattr(module(row), row.attribute))


def module(row: Algorithm | Experiment) -> ModuleType:
    """The module of the file that a row names."""
    return importlib.import_module("vits." + row.file.removesuffix(".py").replace("/", "."))
