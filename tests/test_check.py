"""`vits check`: a posterior against NUTS on a user's own model and data."""

import sys

import numpy as np
import pytest

import vits
from vits import cli
from vits.lab import posterior_check
from vits.lab.plots import posterior_check as pictures


def rows(count=150, dim=3):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((count, dim))
    return posterior_check.Rows(features, features @ np.arange(1.0, dim + 1.0) + rng.standard_normal(count))


def test_the_exact_posterior_is_found_to_be_exact(tmp_path):
    found = posterior_check.check(vits.models.linear(3), rows(), "lin_ts", num_draws=500, chains=2)
    # Errors of the reference itself, over 1,000 draws: 0.03 to 0.1 and 2 to 5 %.
    assert np.all(np.abs(found.distance) < 0.2)
    assert np.all(np.abs(found.ratio - 1.0) < 0.12)
    assert found.rejections == {}
    assert pictures.draw(found, tmp_path / "new" / "check.png").stat().st_size > 10_000
    np.testing.assert_array_equal(found.figures[:, 4:], np.column_stack([found.distance, found.ratio]))
    assert "standard deviations of NUTS" in found.sentence


def test_files_in_both_formats_say_the_same(tmp_path):
    features, rewards = rows(5)
    np.savez(tmp_path / "data.npz", features=features, rewards=rewards)
    table = np.column_stack([features, rewards])
    np.savetxt(tmp_path / "data.csv", table, delimiter=",", header="a,b,c,reward", comments="")
    for name in ("data.npz", "data.csv"):
        found = posterior_check.load(tmp_path / name)
        np.testing.assert_allclose(found.features, features)
        np.testing.assert_allclose(found.rewards, rewards)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "there is no file"),
        ("data.txt", "1,2\n", "must be an npz or a csv file"),
        ("data.csv", "a,b\n1,2\n1,x\n", "line 3 of '.*' must hold numbers, but has 'x'"),
        ("data.csv", "1,2\n1\n", "line 2 of '.*' must have 2 columns, but has 1"),
        ("data.csv", "", "must have rows of features"),
        ("data.csv", "1,2\n1,nan\n", "rewards must be finite"),
        ("data.npz", "no such thing", "data.npz is damaged"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        posterior_check.load(tmp_path / name)
    assert "\n" not in str(error.value)


def test_a_model_of_the_users_own_is_found_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "my_models.py").write_text("import vits\nmine = vits.models.linear(3)\nmake = vits.models.logistic\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert isinstance(posterior_check.resolve_model("my_models:mine", 3), vits.models.Linear)
    assert isinstance(posterior_check.resolve_model("my_models:make", 2), vits.models.Logistic)
    for name, message in (
        ("my_models:mine", "takes 3 features, but the data have 2"),
        ("my_models:none", "there is no model"),
        ("logistics", "unknown model 'logistics'; did you mean 'logistic'"),
    ):
        with pytest.raises(ValueError, match=message):
            posterior_check.resolve_model(name, 2)


@pytest.mark.parametrize("algorithm", ["greedy", "laplace_ts"])
def test_there_is_room_for_all_rows_whatever_the_algorithm(algorithm, monkeypatch):
    """More rows than a buffer has by default, for an algorithm without a hyperparameter `capacity` too."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((1500, 2))
    clicks = posterior_check.Rows(features, (rng.random(1500) < 0.5).astype(float))
    monkeypatch.setattr(posterior_check, "nuts", lambda *args, **kwargs: rng.standard_normal((2, 10, 2)))
    found = posterior_check.check(vits.models.logistic(2), clicks, algorithm)
    assert found.rejections == {}


def test_rejected_updates_are_told_with_their_reason():
    found = posterior_check.PosteriorComparison(
        "a", np.random.default_rng(0).standard_normal((9, 1)), np.zeros(1), np.ones(1), {"it was late": 3}, 0.0
    )
    assert "; 3 updates were rejected: it was late." in found.sentence


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="needs an algorithm with one posterior for all arms, but got vts"):
        posterior_check.check(vits.models.linear(3), rows(), "vts")
    with pytest.raises(ValueError, match="rewards of a logistic model must be between 0 and 1, but one is"):
        posterior_check.check(vits.models.logistic(3), rows(), "vits_ii")
    with pytest.raises(ValueError, match="rewards of a poisson model must be 0 or more, but one is -"):
        posterior_check.check(vits.models.poisson(3), rows(), "vits_ii")


def test_the_command_ends_with_one_sentence_and_code_2(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["vits", "check", str(tmp_path / "none.npz")])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert "there is no file" in capsys.readouterr().err
