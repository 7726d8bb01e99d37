"""The sentences that a run ends with."""

from vits.lab.experiments import linear
from vits.lab.report import views


def row(environment, algorithm, mean):
    return {"environment": environment, "algorithm": algorithm, "regret_mean": mean}


def claim(name, verdict, reading="at its best", **more):
    return {"id": name, "verdict": verdict, "reading": reading, **more}


def words(rows, claims, **settings):
    return views.sentences({"rows": rows, "claims": claims, "settings": settings})


def test_the_best_and_the_worst_are_named_and_random_play_is_no_contender():
    rows = [row("zeta=1", "vits_ii", 100.0), row("zeta=1", "lin_ts", 125.0), row("zeta=1", "uniform", 3000.0)]
    assert words(rows, []) == (
        "At zeta=1, vits_ii has the least mean regret (100) and lin_ts the most (125); playing at random costs 3,000."
    )


def test_only_tuned_worlds_are_told_if_there_are_any():
    rows = [row(world, name, mean) for world in ("plain", "tuned") for name, mean in (("lin_ts", 1.0), ("vts", 2.0))]
    worlds = [{"label": "plain", "hyperparameters": {}}, {"label": "tuned", "hyperparameters": {"vts": {}}}]
    assert words(rows, [], worlds=worlds) == "At tuned, lin_ts has the least mean regret (1) and vts the most (2)."


def test_many_worlds_are_told_in_one_sentence():
    rows = [row(f"d={d}", name, mean) for d in range(12) for name, mean in (("lin_ts", 100.0), ("vits_i", 101.0 + d))]
    assert words(rows, []) == (
        "lin_ts has the least mean regret in all 12 environments; the largest mean is 1.0 % to 12.0 % above the least."
    )


def test_nothing_is_a_percentage_above_no_regret():
    rows = [row(f"d={d}", name, mean) for d in range(3) for name, mean in (("lin_ts", 0.0), ("vits_i", 1.0 + d))]
    assert words(rows, []) == "lin_ts has the least mean regret in all 3 environments."


def test_verdicts_are_told_apart():
    verdicts = {"linear-well": "holds", "linear-ill": "fails", "linear-vts": "fails", "mine": "holds"}
    claims = [claim(name, verdict) for name, verdict in verdicts.items()]
    undecided = claim("linear-hf", "inconclusive", needed=700)
    assert words([], [*claims, undecided]) == (
        "Of the paper's claims, linear-well holds, linear-ill, linear-vts fail and "
        "linear-hf is undecided (--until-decided adds seeds)."
    )
    assert words([], [undecided], until_decided=True) == "Of the paper's claims, linear-hf is undecided."


def test_more_seeds_are_offered_only_where_seeds_decide():
    assert words([], [claim("theorem", "inconclusive")]) == "Of the paper's claims, theorem is undecided."


def test_readings_are_told_apart_where_they_differ():
    written = [claim("kl-alike", "holds", "as written"), claim("kl-linear", "fails", "as written")]
    best = [claim("kl-alike", "holds"), claim("kl-linear", "holds")]
    assert words([], [*written, *best]) == (
        "Of the paper's claims, as written, kl-alike holds and kl-linear fails; at its best, kl-alike, kl-linear hold."
    )
    assert words([], [written[0], best[0]]) == "Of the paper's claims, kl-alike holds in both readings."


def test_nothing_is_said_of_runs_without_regret_or_with_one_algorithm():
    assert words([row("kl", "vits_ii", None)], []) == ""
    assert words([row("zeta=1", "vits_ii", 3.0)], []) == ""


def test_the_demo_is_the_papers_figure_and_nothing_else():
    demo = linear.PRESETS["figure"]
    assert [world.label for world in demo.worlds] == ["zeta=0.1", "zeta=1"]
    assert demo.labels == ("vits_ii", "vits_ii_hf", "lin_ts", "lmc_ts(10)", "lmc_ts(50)")
    assert demo.horizon == linear.EXPERIMENT.horizon
