"""The names a user can type, and where each one lives.

This module imports nothing heavy, so that `vits list` and the checking of names cost no JAX import.
"""

import difflib
import importlib
from collections.abc import Iterable
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """One name, what it stands for, where it comes from and the file that holds its mathematics."""

    name: str
    summary: str
    reference: str
    file: str


_VITS = "Clavier, Huix and Durmus, VITS (ICML 2024)"

_ALGORITHMS = (
    Entry("vits_i", "Gaussian variational posterior, exact inverse", _VITS, "posteriors/vits.py"),
    Entry("vits_ii", "the same with a first-order inverse", _VITS, "posteriors/vits.py"),
    Entry("vits_ii_hf", "the same without Hessians", _VITS, "posteriors/vits.py"),
    Entry("vits_ng", "the same by natural gradients", "Khan and Rue (JMLR 2023)", "posteriors/natural.py"),
    Entry("lin_ts", "exact Gaussian posterior", "Agrawal and Goyal (ICML 2013)", "posteriors/exact.py"),
    Entry("lin_ucb", "optimism with the exact posterior", "Li et al. (WWW 2010)", "policies.py"),
    Entry("lmc_ts", "a Langevin chain", "Xu et al. (ICML 2022)", "posteriors/langevin.py"),
    Entry("fg_ts", "a bonus for optimistic parameters", "Zhang (SIMODS 2022)", "potentials/feel_good.py"),
    Entry("vts", "mixture posteriors, one per arm", "Urteaga and Wiggins (AISTATS 2018)", "posteriors/mixture.py"),
    Entry("laplace_ts", "Gaussian at the mode", "Chapelle and Li (NeurIPS 2011)", "posteriors/laplace.py"),
    Entry("ensemble_ts", "one of many fits", "Lu and Van Roy (NeurIPS 2017)", "posteriors/ensemble.py"),
    Entry("greedy", "plays the best fit", "", "policies.py"),
    Entry("uniform", "plays any arm", "", "policies.py"),
)

_EXPERIMENTS = (
    Entry("linear", "linear bandit, ill- and well-conditioned contexts", "figure 1", "experiments/linear.py"),
    Entry("quadratic", "quadratic bandit with neural networks", "figure 2", "experiments/quadratic.py"),
    Entry("movielens", "recommending movies, one posterior each", "figure 3", "experiments/movielens.py"),
    Entry("kl", "steps to a Gaussian target, by condition number", "appendix on LMC and VI", "experiments/kl.py"),
    Entry("compute", "time to a Gaussian target", "appendix on computation", "experiments/compute.py"),
    Entry("theory", "regret of VITS-I against rounds and dimension", "theorem 1", "experiments/theory.py"),
    Entry("comparison", "regret, cost and conditioning, side by side", "comparison table", "experiments/comparison.py"),
    Entry("fixed-linear", "ten fixed arms, linear rewards", "appendix", "experiments/fixed_linear.py"),
    Entry("fixed-logistic", "ten fixed arms, logistic rewards", "appendix", "experiments/fixed_logistic.py"),
)

CLAIMS = {
    "linear-well": "zeta = 1: all methods are alike, LMC-TS with 10 steps slightly worse",
    "linear-ill": "zeta = 0.1: LMC-TS is worse even with 50 steps; VITS-II is about equal to LinTS",
    "linear-hf": "the Hessian-free form has slightly more regret than VITS-II, and is cheaper",
    "linear-vits1": "VITS-I and VITS-II have about the same regret",
    "linear-vts": "zeta = 0.1: the regret of VTS is high and grows linearly",
    "quadratic-order": "VITS-II is slightly better than its Hessian-free form, both better than LMC-TS and LinTS",
    "quadratic-gap": "the gap to LMC-TS is smaller at zeta = 1 than at zeta = 0.1",
    "movielens-lints": "LinTS is worst",
    "movielens-vits": "VITS is slightly better than LMC-TS at less computation",
    "kl-alike": "VI-I and VI-II need the same number of steps",
    "kl-linear": "steps grow linearly with the condition number, for LMC and for VI",
    "kl-fewer": "VI always needs fewer steps than LMC",
    "fixed-linear": "VITS-I and VITS-II are close to LinTS, and better than LMC-TS and VTS",
    "fixed-logistic": "VITS is better than all others",
    "compute-order": "to a given KL: VITS-II and its Hessian-free form are faster than LMC, and VITS-I is slowest",
    "theorem": "regret grows no faster than d^1.5 sqrt(T), up to logarithms",
}
"""What the paper says of its experiments, by the name each statement has here."""

ALGORITHMS = {entry.name: entry for entry in _ALGORITHMS}
EXPERIMENTS = {entry.name: entry for entry in _EXPERIMENTS}

PRESETS = ("quick", "paper")
MORE_PRESETS = {"quadratic": ("tanh", "tuned")}
DATA_SETS = ("movielens",)


def unknown(kind: str, name: object, known: Iterable[str]) -> ValueError:
    """The error for a name that nobody knows: it suggests the nearest one and lists the rest."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name).lower().replace("-", "_"), names, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return ValueError(f"unknown {kind} '{name}'; {hint}known: {', '.join(names)}")


def lookup(kind: str, name: str, table: dict[str, Entry]) -> Entry:
    """The entry called `name`, or an error that suggests the nearest name."""
    if name not in table:
        raise unknown(kind, name, table)
    return table[name]


def check_preset(experiment: str, preset: str) -> None:
    """Refuse a preset that an experiment does not have."""
    known = (*PRESETS, *MORE_PRESETS.get(experiment, ()))
    if preset not in known:
        raise unknown("preset", preset, known)


def experiment_module(name: str) -> Any:
    """The module of an experiment, imported only now because it brings JAX with it."""
    entry = lookup("experiment", name, EXPERIMENTS)
    return importlib.import_module("vits.lab." + entry.file.removesuffix(".py").replace("/", "."))
