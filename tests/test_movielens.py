import dataclasses
import hashlib
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits import cli, simulation
from vits.datasets import movielens as ratings
from vits.datasets.factorise import Factors
from vits.environments.movielens import from_factors, movie_prior
from vits.lab import results
from vits.lab.experiments import movielens, tuning
from vits.lab.experiments import run as runs
from vits.lab.experiments.bandit import Contender
from vits.lab.experiments.run import Engine
from vits.lab.report import views

ML_1M = Path(os.environ.get("VITS_DATA") or Path(__file__).parent.parent.parent / "shared/data") / "ml-1m"
needs_data = pytest.mark.skipif(
    not (ML_1M / "ratings.dat").is_file(), reason=f"MovieLens-1M, which may not be passed on, is not at {ML_1M}"
)


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("VITS_DATA", raising=False)


def factors(num_users=50, num_movies=30, dim=5):
    rng = np.random.default_rng(0)
    return Factors(rng.normal(size=(num_users, dim)), rng.normal(0.3, 0.8, size=(num_movies, dim)))


class NothingToDo(Engine):
    """Fails if a cell is left to compute."""

    def compute(self, cells, monitor):
        assert list(cells) == []
        return iter(())


NOTHING_TO_DO = NothingToDo()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def write_ratings(folder, num_users=40, num_movies=30):
    """Ratings of 60 % of all pairs, and what a complete copy of them looks like."""
    rng = np.random.default_rng(0)
    users, movies = np.nonzero(rng.uniform(size=(num_users, num_movies)) < 0.6)
    lines = [f"{u + 1}::{m + 1}::{rng.integers(1, 6)}::978300000\n" for u, m in zip(users, movies, strict=True)]
    folder.mkdir()
    (folder / "ratings.dat").write_text("".join(lines))
    return ratings.Edition(None, len(lines), num_users, num_movies)


@pytest.fixture
def small(tmp_path):
    """The experiment, shrunk: eight of thirty movies, two priors, two algorithms."""
    edition = write_ratings(tmp_path / "data")
    worlds = tuple(
        dataclasses.replace(world, arguments={"num_arms": 8})
        for world in movielens.EXPERIMENT.worlds
        if world.label in ("eta=10", "untempered")
    )
    shrunk = dataclasses.replace(
        movielens.EXPERIMENT,
        worlds=worlds,
        horizon=25,
        seeds=3,
        chunk=2,
        data=tmp_path / "data",
        edition=edition,
        starts=1,
    )
    return shrunk.only(["lin_ts", "uniform"])


def test_a_round_has_one_user_for_all_arms_and_pays_by_the_logistic_law():
    vectors = factors()
    world = from_factors([vectors], num_arms=6)
    params = world.init(jax.random.key(1))
    rounds = jax.vmap(lambda key: world.draw(key, params, jnp.asarray(0)))(jax.random.split(jax.random.key(2), 8000))
    arms = np.asarray(rounds.arms)
    assert np.all(arms == arms[:, :1])
    users = np.argmin(np.sum(np.square(arms[:, 0, None] - vectors.rows), axis=-1), axis=1)
    np.testing.assert_allclose(arms[:, 0], vectors.rows[users], rtol=1e-6)
    assert np.all(np.abs(np.bincount(users, minlength=50) - 160) < 4.5 * np.sqrt(160))  # uniform
    np.testing.assert_allclose(rounds.means, sigmoid(vectors.rows[users] @ params.movies.T), rtol=1e-4)
    assert set(np.unique(rounds.rewards)) == {0.0, 1.0}
    np.testing.assert_allclose(np.mean(rounds.rewards - rounds.means, axis=0), 0.0, atol=4 * 0.5 / np.sqrt(8000))


def test_a_seed_draws_different_movies_and_keeps_no_more_than_those():
    vectors = factors()
    world = from_factors([vectors], num_arms=6)
    params = simulation.worlds(0, world, seeds=40)
    assert [leaf.shape for leaf in jax.tree.leaves(params)] == [(40, 6, 5)]
    for movies in np.asarray(params.movies):
        which = [int(np.argmin(np.sum(np.square(vectors.columns - movie), axis=1))) for movie in movies]
        assert len(set(which)) == 6
    everything = from_factors([vectors], num_arms=30).init(jax.random.key(0)).movies
    np.testing.assert_allclose(np.sort(everything, axis=0), np.sort(vectors.columns, axis=0), rtol=1e-6)


def test_a_seed_draws_one_of_several_factorisations_and_its_users_with_it():
    first, second = factors(), factors()
    world = from_factors([first, Factors(second.rows + 100.0, second.columns + 100.0)], num_arms=6)
    params = simulation.worlds(0, world, seeds=40)
    start = np.asarray(params.start)
    assert 5 < np.sum(start) < 35
    np.testing.assert_array_equal(np.mean(params.movies, axis=(1, 2)) > 50.0, start)
    keys = jax.random.split(jax.random.key(2), 40)
    rounds = jax.vmap(lambda key, params: world.draw(key, params, jnp.asarray(0)))(keys, params)
    np.testing.assert_array_equal(np.mean(rounds.arms, axis=(1, 2)) > 50.0, start)


def test_the_papers_preset_varies_the_factorisation_and_the_quick_one_does_not():
    assert {name: preset.starts for name, preset in movielens.PRESETS.items()} == {
        "paper": 10,
        "priors": 10,
        "written": 10,
        "quick": 1,
    }


def test_the_logit_scale_measures_the_same_rounds_by_x_theta():
    world, on_logits = from_factors([factors()], 6), from_factors([factors()], 6, lambda logits: logits)
    params = world.init(jax.random.key(0))
    one, other = (each.draw(jax.random.key(1), params, jnp.asarray(0)) for each in (world, on_logits))
    np.testing.assert_array_equal(one.arms, other.arms)
    np.testing.assert_array_equal(one.rewards, other.rewards)
    np.testing.assert_allclose(one.means, sigmoid(np.asarray(other.means)), rtol=1e-5)
    np.testing.assert_allclose(other.means, params.movies @ one.arms[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_arms": 31}, "num_arms must be at most 30, the number of rated movies, but is 31"),
        ({"num_arms": 1}, "num_arms must be a whole number of at least 2, but is 1"),
        ({"scale": "logits"}, "unknown scale 'logits'; did you mean 'logit'?"),
        ({"dim": 0}, "dim must be a whole number of at least 1, but is 0"),
    ],
)
def test_bad_arguments_are_refused(tmp_path, arguments, message):
    edition = write_ratings(tmp_path / "data")
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        vits.environments.movielens(tmp_path / "data", edition=edition, **arguments)


@pytest.mark.parametrize(("which", "scale"), [("eta=10", 10.0), ("untempered", 1.0)])
def test_every_arm_starts_from_the_prior_of_the_movies_drawn(which, scale):
    (world,) = (world for world in movielens.EXPERIMENT.worlds if world.label == which)
    movies = from_factors([factors()], 6).init(jax.random.key(0))
    prior = movie_prior(movies)
    np.testing.assert_allclose(prior.mean, np.mean(movies.movies, axis=0), rtol=1e-5)
    np.testing.assert_allclose(prior.variance, np.var(movies.movies, axis=0), rtol=1e-5)
    for name in ("vits_ii", "laplace_ts"):
        policy = movielens._policy(Contender(name, name), vits.models.logistic(5), world, 6, prior)
        state = policy.init(jax.random.key(1))
        covariance = np.einsum("aij,akj->aik", state.sqrt_cov, state.sqrt_cov)
        np.testing.assert_allclose(state.mean, np.tile(prior.mean, (6, 1)), rtol=1e-5)
        np.testing.assert_allclose(covariance, np.tile(np.diag(prior.variance) / scale, (6, 1, 1)), atol=1e-5)


def test_a_run_reports_regret_on_both_scales(small, tmp_path):
    found = runs.run(small, tmp_path / "run", preset="quick")
    loaded = results.load(tmp_path / "run")
    assert [(row["environment"], row["algorithm"]) for row in loaded.summary["rows"]] == [
        (world.label, name) for world in small.worlds for name in ("lin_ts", "uniform")
    ]
    environment = vits.environments.movielens(small.data, 8, edition=small.edition)
    params = simulation.worlds(0, environment, seeds=3)
    for row in loaded.summary["rows"]:
        arrays = loaded.cells[row["environment"], row["algorithm"]]
        assert row["failed_seeds"] == 0
        assert row["logit_regret_mean"] == pytest.approx(arrays["logit_regret"].sum(axis=1, dtype=np.float64).mean())
        # The best arm is the best on either scale, and a logit difference is worth at most a quarter in probability.
        np.testing.assert_array_equal(arrays["regret"] == 0, arrays["logit_regret"] == 0)
        assert np.all(arrays["regret"] <= arrays["logit_regret"] / 4 + 1e-6)
        logits = np.einsum("sad,ud->sau", params.movies, environment.users)
        assert arrays["logit_regret"].max() <= (logits.max(axis=1) - logits.min(axis=1)).max() + 1e-5
    assert found.summary["settings"]["data"] == ratings.factorised(small.data, edition=small.edition).md5
    shown = views.table(loaded.summary)
    logits = [row[shown.columns.index("logits")] for row in shown.rows]
    assert logits == [f"{row['logit_regret_mean']:.1f}" for row in loaded.summary["rows"]]


def test_the_place_of_the_data_does_not_matter_but_their_content_does(small, tmp_path, monkeypatch):
    hashed, md5 = [], hashlib.md5

    def counted(content, **options):
        hashed.append(len(content))
        return md5(content, **options)

    runs.run(small, tmp_path / "run", preset="quick")
    moved = (tmp_path / "data").rename(tmp_path / "moved")
    again = dataclasses.replace(small, data=moved)
    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "md5", counted)
        runs.run(again, tmp_path / "run", preset="quick", engine=NOTHING_TO_DO)
    assert len(hashed) == 1  # for settings, cells and worlds together
    assert {cell.settings[-1] for cell in again.cells()} == {ratings.factorised(moved, edition=small.edition).md5}
    path = moved / "ratings.dat"
    path.write_text(path.read_text().replace("::5::", "::4::", 1))
    with pytest.raises(ValueError, match="whose settings differ in data; choose another folder"):
        runs.run(dataclasses.replace(again), tmp_path / "run", preset="quick")


def test_contenders_that_cannot_play_are_refused_before_anything_runs(small):
    with pytest.raises(ValueError, match="'vts' cannot play here: it has no inverse_temperature"):
        small.only(["vts"]).cells()
    with pytest.raises(ValueError, match="per_arm cannot go with fg_ts"):
        small.only(["fg_ts"]).cells()
    with pytest.raises(ValueError, match="horizon must be a whole number of at least 1, but is 0"):
        dataclasses.replace(small, horizon=0).cells()
    every_name = [contender.label for contender in movielens.EXPERIMENT.contenders]
    everyone = dataclasses.replace(small, contenders=movielens.EXPERIMENT.contenders).only(every_name)
    assert len(everyone.cells()) == 2 * 8 * 2


def test_eta_is_tuned_for_each_kind_of_prior_and_every_seed_keeps_its_own(small, tmp_path, monkeypatch):
    etas = (0.1, 10.0)
    grid = tuning.Grid({"inverse_temperature": etas, "prior_precision": (1.0, 2.0)})
    monkeypatch.setitem(tuning.GRIDS, "lin_ts", (grid,))
    found = runs.run(tuning.tuning(small.only(["lin_ts"]), tuning_seeds=2), tmp_path / "tuned", preset="quick")
    assert found.environments == ["tempered", "untempered"]
    arrays = found.cells["tempered", "lin_ts (grid)"]
    assert arrays["final"].shape == (3 * 2,)  # the default, and two values of eta
    world = dataclasses.replace(small.worlds[0], inverse_temperature=10.0)
    entrant = small.entrant(small.stage(world), small.contenders[0])
    played = entrant.play(small.seed, small.horizon, [10_000, 10_001], lambda rounds: None)
    np.testing.assert_allclose(arrays["final"][arrays["setting"] == 2], played.regret.sum(axis=1), rtol=1e-4)


def found_with(regret, seconds):
    """Results in which algorithms have the given final regrets at their best settings, over and over for 300 seeds."""
    world = "tempered, tuned"
    cells = {
        (world, name): {"regret": np.resize(np.array(values, float), (300, 1)), "failed": np.zeros(300, bool)}
        for name, values in regret.items()
    }
    rows = [
        {"environment": world, "algorithm": name, "rounds_per_second": 1000 / seconds.get(name, 1.0)} for name in regret
    ]
    return results.Results(Path(), {"rows": rows}, cells)


@pytest.mark.parametrize(
    ("vits_ii_hf", "lmc_ts", "lin_ts", "seconds", "verdicts"),
    [
        ([5, 6, 7], [6, 7, 8], [12, 12, 12], {"lmc_ts": 3.0}, ["holds", "holds"]),
        ([9, 9, 9], [6, 7, 8], [12, 12, 12], {"lmc_ts": 3.0}, ["holds", "fails"]),
        ([5, 6, 7], [6, 7, 8], [12, 12, 12], {"lmc_ts": 0.3}, ["holds", "fails"]),
        ([5, 6, 7], [6, 7, 8], [12, 12, 12], {"lmc_ts": 3.0, "vits_ii_hf": 5.0}, ["holds", "fails"]),
        ([5, 6, 7], [4, 7, 8], [1, 1, 1], {"lmc_ts": 3.0}, ["fails", "fails"]),  # alike within the margin
        ([5, 6, 7], [1, 9, 9], [12, 12, 12], {"lmc_ts": 3.0}, ["holds", "inconclusive"]),
        ([5, 6, 7], [6, 7, 8], [12, 12, 12], {"lmc_ts": 1.05}, ["holds", "fails"]),
    ],
)
def test_claims_follow_from_paired_regret_and_time_by_rule(vits_ii_hf, lmc_ts, lin_ts, seconds, verdicts):
    regret = {"vits_ii": [5, 6, 7], "vits_ii_hf": vits_ii_hf, "lmc_ts": lmc_ts, "lin_ts": lin_ts}
    claims = movielens.EXPERIMENT.claims(found_with(regret, seconds))
    assert [claim["verdict"] for claim in claims] == verdicts
    assert [claim["id"] for claim in claims] == ["movielens-lints", "movielens-vits"]


def test_nothing_is_claimed_of_what_was_not_run():
    assert not movielens.EXPERIMENT.claims(found_with({"vits_ii": [5, 6, 7], "lmc_ts": [6, 7, 8]}, {}))


def command(*arguments):
    """Runs the command line in this process; its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["vits", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    return ended.value.code or 0


NINE = "ratings.dat, line 1: the rating must be between 1 and 5, but is 9"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "movielens", "--data", "nowhere"], "nowhere holds no MovieLens-1M"),
        (["run", "movielens"], "holds no MovieLens-1M"),
        (["run", "movielens", "--data", "data"], NINE),
        (["data", "movielens", "--folder", "data"], NINE),
        (["data", "movieles"], "unknown data set 'movieles'; did you mean 'movielens'?"),
        (["run", "linear", "--data", "data"], "experiment 'linear' reads no data set; leave out --data, which is data"),
    ],
)
def test_bad_data_end_with_one_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "here" / "data").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    Path("data/ratings.dat").write_text("1::2::9::978300000\n")
    assert command(*arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert [path.name for path in Path().iterdir()] == ["data"]


def test_a_failed_download_ends_with_exit_code_1_and_says_what_to_do(tmp_path, monkeypatch, capsys):
    def offline(url, timeout):
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(urllib.request, "urlopen", offline)
    assert command("data", "movielens", "--folder", str(tmp_path / "new")) == 1
    assert "with a browser, get ml-1m.zip from https://grouplens.org" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@needs_data
def test_the_data_command_describes_a_complete_copy(capsys):
    assert command("data", "movielens", "--folder", str(ML_1M)) == 0
    assert "1,000,209 ratings of 3,706 movies by 6,040 users" in capsys.readouterr().out


@needs_data
@pytest.mark.heavy
def test_the_command_runs_the_experiment_on_the_real_data(tmp_path):
    out = tmp_path / "run"
    options = ["--algorithms", "lin_ts,uniform", "--seeds", "2", "--horizon", "20", "--out", str(out)]
    assert command("run", "movielens", "--data", str(ML_1M), *options) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["settings"]["data"] == ratings.ML_1M.md5
    assert str(ML_1M) not in json.dumps(summary)
    assert (out / "regret.png").is_file()


@needs_data
@pytest.mark.heavy
def test_regret_lies_in_the_known_bands(tmp_path):
    everyone = dataclasses.replace(movielens.EXPERIMENT, worlds=movielens.EXPERIMENT.worlds[:1], data=ML_1M, starts=1)
    found = runs.run(everyone.only(["laplace_ts", "uniform"]), tmp_path / "run", preset="paper")
    regret = {row["algorithm"]: row["regret_mean"] for row in found.summary["rows"]}
    assert regret["uniform"] == pytest.approx(1437, abs=30)
    assert regret["laplace_ts"] == pytest.approx(405, abs=45)
