"""The sentences that a run ends with."""

from vits.lab.experiments import linear
from vits.lab.report import views


def row(environment, algorithm, mean):
    return {"environment": environment, "algorithm": algorithm, "regret_mean": mean}


def claim(name, verdict):
    return {"id": name, "verdict": verdict}


def test_the_best_and_the_worst_are_named_and_random_play_is_no_contender():
    rows = [row("zeta=1", "vits_ii", 100.0), row("zeta=1", "lin_ts", 125.0), row("zeta=1", "uniform", 3000.0)]
    assert views.sentences({"rows": rows, "claims": []}) == (
        "At zeta=1, vits_ii has the least regret (100) and lin_ts the most (125, 25 % more); "
        "playing at random costs 3,000."
    )


def test_verdicts_are_told_apart():
    verdicts = {
        "kl-alike": "holds",
        "kl-linear": "fails",
        "kl-fewer": "inconclusive",
        "theorem": "fails",
        "mine": "holds",
    }
    claims = [claim(name, verdict) for name, verdict in verdicts.items()]
    assert views.sentences({"rows": [], "claims": claims}) == (
        "Of the paper's claims, kl-alike holds; kl-linear, theorem fail; "
        "kl-fewer need more seeds (--until-decided adds them)."
    )


def test_nothing_is_said_of_runs_without_regret_or_with_one_algorithm():
    assert views.sentences({"rows": [row("kl", "vits_ii", None)], "claims": []}) == ""
    assert views.sentences({"rows": [row("zeta=1", "vits_ii", 3.0)], "claims": []}) == ""


def test_the_demo_is_the_papers_figure_and_nothing_else():
    demo = linear.PRESETS["figure"]
    assert [world.label for world in demo.worlds] == ["zeta=0.1", "zeta=1"]
    assert demo.labels == ("vits_ii", "vits_ii_hf", "lin_ts", "lmc_ts(10)", "lmc_ts(50)")
    assert demo.horizon == linear.EXPERIMENT.horizon
