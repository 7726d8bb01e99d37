"""The experiment `tables`: worlds with networks, horizons and priors of their own."""

import dataclasses

import jax
import numpy as np
import pytest

import vits
from vits.lab.experiments import run, tables

MUSHROOM, SHUTTLE, WHEEL = tables.EXPERIMENT.worlds


def test_networks_have_the_published_sizes_and_start_from_random_features():
    sizes = [
        getattr(vits.models, world.network.name)(**world.network.arguments).num_params
        for world in (MUSHROOM, SHUTTLE, WHEEL)
    ]
    assert sizes == [647, 857, 405]
    model = vits.models.mlp(2, (50,), outputs=5)
    start = np.asarray(tables.random_features(jax.random.key(0), model, 3.0))
    weights, biases, last = np.split(start, [100, 150])
    assert np.std(weights) == pytest.approx(3.0, rel=0.2)
    assert np.max(np.abs(biases)) <= 3.0
    assert np.std(biases) > 1.0
    np.testing.assert_array_equal(last, 0.0)


def test_each_world_has_its_own_horizon_unless_a_shorter_one_is_asked_for():
    wheel = dataclasses.replace(
        tables.EXPERIMENT, worlds=(WHEEL,), contenders=tables.EXPERIMENT.contenders[-1:], seeds=1
    )
    assert [cell.cost for cell in wheel.cells()] == [20_480]
    assert [cell.cost for cell in dataclasses.replace(wheel, horizon=30).cells()] == [30]


def test_the_wheel_is_played_and_every_seed_has_a_start_of_its_own(tmp_path):
    small = dataclasses.replace(
        tables.PRESETS["quick"], worlds=(WHEEL,), contenders=tables.EXPERIMENT.contenders[:1], horizon=12
    )
    found = run.run(small, tmp_path / "run", preset="quick")
    (row,) = found.summary["rows"]
    assert (row["horizon"], row["seeds"], row["failed_seeds"]) == (12, 2, 0)
    starts = small.stage(WHEEL).own([0, 1, 0])
    assert not np.allclose(starts[0], starts[1])
    np.testing.assert_array_equal(starts[0], starts[2])


def test_missing_data_are_one_sentence(tmp_path):
    empty = dataclasses.replace(tables.PRESETS["quick"], data=tmp_path)
    with pytest.raises(ValueError, match=r"holds no agaricus-lepiota.data.*published at.*VITS_DATA"):
        empty.cells()


def test_settings_that_were_chosen_are_left_out_where_others_are_tried():
    assert all(not world.hyperparameters for world in tables.EXPERIMENT.tuning_worlds())
    assert all(world.hyperparameters for world in tables.EXPERIMENT.worlds)
