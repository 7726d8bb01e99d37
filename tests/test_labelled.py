"""Bandits from any labelled file, and how columns are scaled."""

import numpy as np
import pytest

import vits
from vits.datasets import labelled
from vits.environments.classification import scaled

TEXT = "size,colour,kind\n1.0,red,oak\n3.0,green,elm\n5.0,red,ash\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "leaves.csv"
    path.write_text(TEXT)
    return path


def test_numbers_stay_words_become_zeros_and_ones_and_classes_are_sorted(file):
    table = labelled.read(file, header=True)
    np.testing.assert_array_equal(table.features, [[1.0, 0.0, 1.0], [3.0, 1.0, 0.0], [5.0, 0.0, 1.0]])
    assert table.labels.tolist() == [2, 1, 0]  # ash, elm, oak
    assert table.names == ("size", "value of colour: green", "value of colour: red")


def test_the_label_may_be_any_column_and_the_separator_any_text(tmp_path):
    path = tmp_path / "table"
    path.write_text("b; 1; 2\n\na; 3; 4")  # an empty line, and no line feed at the end
    table = labelled.read(path, label=0, separator=";")
    np.testing.assert_array_equal(table.features, [[1.0, 2.0], [3.0, 4.0]])
    assert table.labels.tolist() == [1, 0]


def test_a_file_is_a_bandit_whose_right_arm_pays_one(file):
    world = vits.environments.labelled_file(file, header=True, encoding="row")
    assert (world.num_arms, world.dim) == (3, 3)
    np.testing.assert_allclose(np.mean(world.features[:, 0]), 0.0, atol=1e-6)  # scaled
    np.testing.assert_array_equal(world.features[:, 1], [0.0, 1.0, 0.0])  # not scaled
    trace = vits.simulate(0, world, vits.make("uniform", vits.models.linear(3)), 60, seeds=2)
    np.testing.assert_array_equal(trace.regret + trace.reward, 1.0)


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("", {}, "must hold at least one row, but is empty"),
        ("a,b\n1\n", {}, "line 2: must have 2 columns, but has 1"),
        ("1\n2\n", {}, "must have at least two columns separated by ',', but has 1"),
        ("1,a\n2,b\n", {"label": 5}, "label must be the number of one of the 2 columns, but is 5"),
        ("1,a\n2,a\n", {}, "the number of classes must be a whole number of at least 2, but is 1"),
        ("1,a\nnan,b\n", {}, "line 2: column 0 must be finite, but is nan"),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path, text, settings, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        labelled.read(path, **settings)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"nothing\.csv cannot be read: No such file"):
        labelled.read(tmp_path / "nothing.csv")


def test_robust_scaling_keeps_the_middle_apart_where_a_few_rows_are_far_away():
    column = np.concatenate([np.repeat([0.0, 1.0, 2.0], 300), [1e5]])[:, None]
    for scaling in ("standard", "robust"):
        values = scaled(column, scaling)
        assert np.max(np.abs(values)) <= 3.0
        gap = values[300, 0] - values[0, 0]
        assert gap < 0.01 if scaling == "standard" else gap > 0.5
    constant = np.ones((5, 1))
    np.testing.assert_array_equal(scaled(constant, "robust"), 0.0)
    with pytest.raises(ValueError, match="did you mean 'robust'"):
        scaled(constant, "robst")
