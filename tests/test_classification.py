"""Labelled tables as bandits, and the loaders of the two that are often used."""

import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import comparison, mushroom, shuttle

import vits
from vits import simulation
from vits.datasets import uci
from vits.datasets.records import Edition

DATA = Path(os.environ.get("VITS_DATA") or Path(__file__).parent.parent.parent / "shared/data")
needs_data = pytest.mark.skipif(
    not (DATA / "uci" / uci.MUSHROOM_FILE).is_file(),
    reason=f"the UCI tables, which are not passed on, are not at {DATA}",
)

ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
LABELS = np.array([0, 2, 1, 2])


def round_of(world, t, seed=0):
    params = world.init(jax.random.key(seed))
    return int(params.order[t % len(params.order)]), world.draw(jax.random.key(100 + t), params, jnp.asarray(t))


@pytest.mark.parametrize("t", range(6))
def test_an_arms_features_are_the_row_in_its_own_block_or_the_row_itself(t):
    row, disjoint = round_of(vits.environments.classification(ROWS, LABELS), t)
    same, plain = round_of(vits.environments.classification(ROWS, LABELS, encoding="row"), t)
    assert row == same
    for arm in range(3):
        expected = np.zeros((3, 2))
        expected[arm] = ROWS[row]
        np.testing.assert_array_equal(disjoint.arms[arm], expected.ravel())
        np.testing.assert_array_equal(plain.arms[arm], ROWS[row])
    np.testing.assert_array_equal(disjoint.rewards, np.eye(3)[LABELS[row]])
    np.testing.assert_array_equal(disjoint.means, disjoint.rewards)


def test_every_seed_sees_all_rows_in_an_order_of_its_own_and_then_again():
    world = vits.environments.classification(np.arange(40.0)[:, None], np.arange(40) % 2)
    orders = np.asarray(simulation.worlds(0, world, seeds=3).order)
    assert all(sorted(order) == list(range(40)) for order in orders)
    assert not np.array_equal(orders[0], orders[1])
    assert round_of(world, 43)[0] == round_of(world, 3)[0]


def test_outcomes_are_equally_likely_and_the_mean_is_theirs():
    rewards = np.array([[[5.0, 0.0], [5.0, 0.0]], [[5.0, 0.0], [-35.0, 0.0]]])
    world = vits.environments.classification(np.ones((2, 1)), [0, 1], rewards=rewards)
    params = world.init(jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 4000)
    for t, label in enumerate(np.asarray(params.order)):
        rounds = jax.vmap(lambda key, t=t: world.draw(key, params, jnp.asarray(t)))(keys)
        np.testing.assert_allclose(rounds.means[0], [[5.0, 0.0], [-15.0, 0.0]][label])
        assert set(np.unique(rounds.rewards[:, 0])) == ({5.0} if label == 0 else {5.0, -35.0})
        np.testing.assert_allclose(rounds.rewards[:, 0].mean(), [5.0, -15.0][label], atol=4 * 20 / np.sqrt(4000))


def test_the_shared_posterior_of_blocks_is_that_of_every_arm_by_itself(x64):
    """LinTS: the precision is block-diagonal, so both have the same means after the same actions."""
    worlds = {e: vits.environments.classification(ROWS, LABELS, encoding=e) for e in ("disjoint", "row")}
    shared = vits.make("lin_ts", vits.models.linear(6))
    own = vits.make("lin_ts", vits.models.linear(2), per_arm=3)
    states = [shared.init(jax.random.key(0)), own.init(jax.random.key(0))]
    for t in range(6):
        for i, (policy, world) in enumerate(zip((shared, own), worlds.values(), strict=True)):
            _, (arms, _, rewards) = round_of(world, t)
            arm = jnp.asarray(t % 3)
            seen = vits.types.Observation(arms[arm], rewards[arm], arm)
            states[i], _ = policy.update(jax.random.key(1), states[i], seen)
    blocks = shared.posterior.moments(states[0])[0].reshape(3, 2)
    each = jax.vmap(lambda arm: own.posterior.posterior.moments(own.posterior.of(states[1], arm))[0])(jnp.arange(3))
    np.testing.assert_allclose(blocks, each, rtol=1e-9)


def test_an_algorithm_learns_to_tell_classes_apart():
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=300)
    rows = np.column_stack([np.eye(3)[labels] + 0.1 * rng.normal(size=(300, 3)), np.ones(300)])
    world = vits.environments.classification(rows, labels)
    policy = vits.make("lin_ts", vits.models.linear(world.dim), inverse_temperature=10.0)
    trace = vits.simulate(0, world, policy, 300, seeds=3)
    assert not trace.failed.any()
    assert trace.regret[:, 200:].mean() < 0.1
    # What each arm would have brought is known, whatever was played: the same rounds for every policy.
    always = [simulation.replay(0, world, np.full((3, 300), arm), seeds=3).reward for arm in range(3)]
    np.testing.assert_array_equal(np.sum(always, axis=0), 1.0)
    np.testing.assert_array_equal(np.take_along_axis(np.array(always), trace.action[None], 0)[0], trace.reward)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": [0, 1, 2, -1]}, "labels must be whole numbers from 0 to 2, but row 3 has -1"),
        ({"labels": [0, 0.5, 2, 1]}, "labels must be whole numbers from 0 to 2, but row 1 has 0.5"),
        ({"labels": [0, 1]}, r"labels must have shape \(4,\), but has shape \(2,\)"),
        ({"labels": ["a", "b", "a", "b"]}, "labels must hold real numbers, but is of type"),
        ({"labels": [0, 0, 0, 0]}, r"at least two arms, but rewards have shape \(1, 1, 1\)"),
        ({"features": ROWS[0]}, r"features must have shape \(rows, features\), but has shape \(2,\)"),
        ({"features": np.full((4, 2), np.nan)}, "features must be finite, but 8 of its 8 entries are NaN or infinite"),
        ({"rewards": np.eye(2)}, "labels must be whole numbers from 0 to 1, but row 1 has 2"),
        ({"rewards": np.ones(3)}, r"rewards must have shape \(luck, classes, arms\), but has shape \(3,\)"),
        ({"encoding": "blocks"}, "unknown encoding 'blocks'"),
    ],
)
def test_what_makes_no_bandit_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        vits.environments.classification(**({"features": ROWS, "labels": LABELS} | arguments))


EATEN = "e,x,s,y,t,a,f,c,b,k,e,c,s,s,w,w,p,w,o,p,n,n,g"
LEFT = "p,x,s,n,t,p,f,c,n,k,e,e,s,s,w,w,p,w,o,p,k,s,u"
STATES = ["50 21 77 0 28 0 27 48 22 2", "55 0 92 0 0 26 36 92 56 4", "53 0 82 0 52 -5 29 30 2 1"]


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "uci"
    folder.mkdir()
    (folder / uci.MUSHROOM_FILE).write_text(f"{LEFT}\n{EATEN}\n{EATEN}\n")
    (folder / "shuttle.trn").write_text("\n".join(STATES) + " \n")
    (folder / "shuttle.tst").write_text(STATES[0] + "\n")
    return folder


def test_mushrooms_become_zeros_and_ones(folder, monkeypatch):
    table = uci.mushroom(folder, edition=Edition(3))
    assert table.features.shape == (3, 126)
    np.testing.assert_array_equal(table.labels, [uci.POISONOUS, uci.EDIBLE, uci.EDIBLE])
    np.testing.assert_array_equal(table.features.sum(axis=1), 22)
    present = [{table.names[i] for i in np.flatnonzero(row)} for row in table.features]
    assert present[1] == present[2]
    assert present[0] - present[1] == {
        *("cap-color=n", "odor=p", "gill-size=n", "stalk-root=e", "spore-print-color=k", "population=s", "habitat=u")
    }
    monkeypatch.setenv("VITS_DATA", str(folder.parent))
    world = vits.environments.mushroom(edition=Edition(3))
    assert (world.num_arms, world.dim) == (2, 252)


def test_the_shuttles_files_are_joined_standardised_and_cut_off(folder):
    table = uci.shuttle(folder, editions=(Edition(3), Edition(1)))
    np.testing.assert_array_equal(table.labels, [1, 3, 0, 1])
    np.testing.assert_array_equal(table.features[2], [53, 0, 82, 0, 52, -5, 29, 30, 2])
    world = vits.environments.shuttle(folder, encoding="row", editions=(Edition(3), Edition(1)))
    assert (world.num_arms, world.dim) == (7, 10)
    np.testing.assert_allclose(world.features[:, :9].mean(axis=0), 0.0, atol=1e-6)
    np.testing.assert_allclose(world.features[:, 0].std(), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(world.features[:, 3], 0.0)  # always the same number
    np.testing.assert_array_equal(world.features[:, 9], 1.0)
    plain = vits.environments.shuttle(folder, constant=False, encoding="head", editions=(Edition(3), Edition(1)))
    assert plain.dim == 10  # nine numbers, and that of the arm
    np.testing.assert_array_equal(plain.features, world.features[:, :9])


def test_telling_mushrooms_apart_may_pay_one_or_nothing(folder):
    world = vits.environments.mushroom(folder, zero_one=True, encoding="head", edition=Edition(3))
    row, found = round_of(world, 0)
    np.testing.assert_array_equal(found.rewards, np.eye(2)[int(world.labels[row])])
    np.testing.assert_array_equal(found.means, found.rewards)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([LEFT, EATEN[:-2], EATEN], "line 2: must have 23 columns, but has 22: 'e,x,s,"),
        ([LEFT, EATEN + ",g", EATEN], "line 2: must have 23 columns, but has 24: 'e,x,s,"),
        ([LEFT, "", EATEN], "line 2: must have 23 columns, but has 1: ''"),
        ([LEFT, "z" + EATEN[1:], EATEN], "line 2: the class must be one of e, p, but is 'z'"),
        ([LEFT, EATEN, EATEN[:-1] + "?"], "line 3: the habitat must be one of g, l, m, p, u, w, d, but is '?'"),
        ([LEFT, EATEN], "must have 3 lines, but has 2"),
    ],
)
def test_the_first_fault_of_the_mushrooms_is_named_with_file_line_and_value(folder, lines, message):
    (folder / uci.MUSHROOM_FILE).write_text("\n".join(lines) + "\n")
    with pytest.raises(ValueError, match=r"agaricus-lepiota.data") as error:
        uci.mushroom(folder, edition=Edition(3))
    assert message in str(error.value)


def test_a_file_that_breaks_off_or_was_changed_is_refused(folder):
    path = folder / uci.MUSHROOM_FILE
    with pytest.raises(
        ValueError, match=r"must have the md5 0123, but has [0-9a-f]{32}: it is not as it was published"
    ):
        uci.mushroom(folder, edition=Edition(3, "0123"))
    path.write_text(path.read_text()[:-4])
    with pytest.raises(ValueError, match=r"agaricus-lepiota.data, line 3: the file breaks off after '.*,p,n,'"):
        uci.mushroom(folder, edition=Edition(3))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("55 0 92 0 0 26 36 92 56 8", "line 2: the class must be between 1 and 7, but is 8"),
        ("55 0 92 0 0 26 36 92 56 1.5", "line 2: the class must be a whole number, but is 1.5"),
        ("55 0 x 0 0 26 36 92 56 4", "line 2: the number 2 must be a number, but is 'x'"),
        ("55 0 nan 0 0 26 36 92 56 4", "line 2: the number 2 must be finite, but is nan"),
        ("55 0 92 0 0 26 36 92 56", "line 2: must have 10 columns, but has 9"),
    ],
)
def test_the_first_fault_of_the_shuttle_is_named_with_file_line_and_value(folder, line, message):
    (folder / "shuttle.trn").write_text("\n".join([STATES[0], line, STATES[2]]) + "\n")
    with pytest.raises(ValueError, match=f"shuttle.trn, {message}"):
        uci.shuttle(folder, editions=(Edition(3), Edition(1)))


def test_where_there_is_nothing_the_message_says_where_it_is_published(tmp_path):
    with pytest.raises(ValueError, match=r"holds no shuttle.trn.*published at https://.*VITS_DATA"):
        uci.shuttle(tmp_path)


@needs_data
def test_the_tables_are_what_was_published():
    mushrooms, states = uci.mushroom(DATA), uci.shuttle(DATA)
    np.testing.assert_array_equal(np.bincount(mushrooms.labels), [4208, 3916])
    assert np.count_nonzero(mushrooms.features.any(axis=0)) == 117
    np.testing.assert_array_equal(np.bincount(states.labels), [45_586, 50, 171, 8903, 3267, 10, 13])


@needs_data
def test_eating_every_mushroom_costs_fifteen_for_each_that_is_poisonous():
    world = vits.environments.mushroom(DATA, encoding="row")
    eaten = simulation.replay(0, world, np.zeros((2, 400), int), seeds=2)
    order = np.asarray(simulation.worlds(0, world, seeds=2).order)[:, :400]
    poisonous = uci.mushroom(DATA).labels[order] == uci.POISONOUS
    np.testing.assert_array_equal(eaten.regret, np.where(poisonous, 15.0, 0.0))
    assert set(eaten.reward[poisonous]) == {5.0, -35.0}
    assert set(eaten.reward[~poisonous]) == {5.0}


@needs_data
@pytest.mark.parametrize("example", [mushroom, pytest.param(shuttle, marks=pytest.mark.heavy)])
def test_the_examples_say_when_the_other_library_is_not_there(example, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("VITS_DATA", str(DATA))
    monkeypatch.setattr(comparison, "PEERS", tmp_path / "none" / "bin" / "python")
    monkeypatch.setattr(sys, "argv", ["example", "--rounds", "20", "--seeds", "2", "--algorithms", "lin_ts"])
    example.main()
    printed = capsys.readouterr().out
    assert "lin_ts, linear" in printed
    assert "left out: no environment at" in printed
