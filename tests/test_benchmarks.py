import dataclasses
import re

import numpy as np
import pytest
from benchmarks import cell_times, cold, growth, network, peers, plain_numpy, scale, scaling, simulation, timing, wide

import vits
from vits.lab.experiments import fixed_arms, linear
from vits.simulation import programs


def numbers(measurements):
    """All numbers that a table shows, without those of its first and last columns."""
    text = " ".join(part for row in measurements for part in (row.ours, row.reference, row.ratio))
    assert not re.search(r"\b(nan|inf)\b", text)
    return [float(number.replace(",", "")) for number in re.findall(r"-?\d[\d,]*\.?\d*", text)]


def test_throughput_against_numpy_and_the_peak():
    sizes = {"dim": 3, "arms": 4, "seeds": 2, "horizon": 4, "numpy_seeds": 1}
    against_numpy, against_peak = simulation.throughput(["vits_ii"], **sizes)
    assert len(numbers([against_numpy])) == 3
    assert len(numbers([against_peak])) == 4


@pytest.mark.heavy
def test_throughput_of_every_algorithm():
    rows = simulation.rows(seeds=2, horizon=4, numpy_seeds=1, large_dim=21)
    assert {row.what.split(",")[0] for row in rows} == set(simulation.SETTINGS)
    assert len(numbers(rows)) >= 3 * len(rows)


def test_products_of_a_round_are_counted_by_hand():
    # Ten steps with three products of 2 x 2 matrices and three of matrix and vector; a draw, an observation; 3 arms.
    assert simulation.products("vits_ii", 2, 3) == 10 * (3 * 16 + 3 * 8) + 2 * 8 + 3 * 4
    # Potter's form: five products of a matrix and a vector, or of two vectors.
    assert simulation.products("lin_ts", 2, 3) == 5 * 8 + 2 * 8 + 3 * 4


def test_one_program_serves_every_amount_of_data():
    row = growth.in_rounds("glm", vits.make("vits_ii", vits.models.logistic(20), num_steps=1), (3, 200), "")
    assert row.reference == "1 compilation"
    assert len(numbers([row])) == 6


@pytest.mark.heavy
def test_growth_with_data_features_arms_and_seeds():
    rows = growth.rows(rounds=(3, 200), dims=(2, 3), arms=(2, 3), seeds=(1, 2))
    assert len(rows) == 8
    assert all(row.reference == "1 compilation" for row in rows[:5])
    numbers(rows)


def test_exponents_are_those_of_powers():
    sizes = [1, 10, 100]
    for power in (0.0, 1.0, 3.0):
        assert timing.exponent(sizes, [2.0 * size**power for size in sizes]) == pytest.approx(power, abs=1e-12)


@pytest.mark.heavy
def test_a_step_of_a_network_and_its_memory():
    step, *played, memory = network.rows(width=2, rounds=25, repeats=1)
    assert step.what.startswith("vits_ii step, 51 parameters")
    assert [row.what.split(",")[0] for row in played] == ["vits_ii round", "vits_ii_hf round"]
    assert 0.0 < numbers([memory])[0] < 4.0


@pytest.mark.heavy
def test_cold_start():
    assert len(numbers(cold.rows(repeats=1))) >= 6


def test_the_peers_play_the_rounds_that_simulate_plays():
    horizon, seed = 6, 1
    played = peers.rounds([seed], horizon)
    trace = vits.simulate(0, peers.world("linear"), vits.make("uniform", vits.models.linear(20)), horizon, seeds=[seed])
    means, rewards = played["linear_means"][0], played["linear_rewards"][0]
    rows = np.arange(horizon)
    np.testing.assert_allclose(rewards[rows, trace.action[0]], trace.reward[0], rtol=1e-5)
    np.testing.assert_allclose(means.max(axis=1) - means[rows, trace.action[0]], trace.regret[0], atol=1e-5)
    assert set(np.unique(played["logistic_rewards"])) <= {0.0, 1.0}


@pytest.mark.heavy
@pytest.mark.skipif(not peers.PYTHON.exists(), reason="the peers' environment is made by `make bench`")
def test_peers():
    rows = peers.rows(seeds=2, horizon=20, peer_seeds=1)
    assert len(rows) == 3 + 6 + 12
    numbers(rows)


def test_a_wide_table_without_data_has_the_shape_of_mushroom(monkeypatch, tmp_path):
    monkeypatch.setenv("VITS_DATA", str(tmp_path))
    name, world = wide.world()
    assert (name, world.dim, world.num_arms) == ("synthetic table", 126, 2)
    np.testing.assert_array_equal(world.features.sum(axis=1), 22.0)
    assert 0.3 < world.labels.mean() < 0.7


@pytest.mark.heavy
@pytest.mark.skipif(not peers.PYTHON.exists(), reason="the peers' environment is made by `make bench`")
def test_wide_tables_against_peers_and_growth_in_features():
    rows = wide.rows(horizon=5, seeds=1, repeats=1, dims=(2, 3))
    assert len(rows) == 2 * len(wide.FORMS)
    numbers(rows)


def test_plain_numpy_learns():
    settings = {"dim": 3, "num_arms": 5, "zeta": 1.0, "inverse_temperature": 1.0, "prior_precision": 1.0}
    steps = {"step_size": 0.9, "num_steps": 10}
    regrets = [[plain_numpy.vits_ii(i, horizon=t, **settings, **steps) for i in range(5)] for t in (100, 200)]
    first, both = np.mean(regrets, axis=1)
    assert both - first < 0.5 * first


def test_more_cores_help_until_the_longest_cell_decides():
    assert scaling.wall([3.0, 1.0, 1.0, 1.0], 2) == 3.0
    assert scaling.wall([2.0, 2.0, 2.0], 2) == 4.0
    job = scaling.Job("here", [[4.0, *[1.0] * 12], [2.0]])
    assert (job.cells, job.core_seconds, job.longest) == (14, 18.0, 4.0)
    assert [job.wall(cores) for cores in (1, 2, 4, 512)] == [18.0, 10.0, 6.0, 6.0]
    assert scaling.enough([job]) == "4 cores"
    assert scaling.enough([scaling.Job("here", [[1.0] * 10_000])]) == "more than 512 cores"
    timed = scaling.Job("here", [[4.0, 4.0]], local=True)
    assert timed.wall(512) == timed.wall(2) == 4.0


def test_batches_follow_the_looks_of_a_run():
    assert scaling.looks(50, 50) == [50]
    assert scaling.looks(50, 400) == [50, 100, 150, 250, 400]
    rows = [scaling.Row(seeds=50, chunk=50, seconds=1.0), scaling.Row(seeds=120, chunk=40, seconds=0.1)]
    assert scaling.batches(rows, 50) == [[50.0, 4.0, 1.0], [4.0, 1.0], [2.0]]


def test_the_page_on_clusters_shows_what_the_simulation_gives():
    assert scaling.text() in scaling.PAGE.read_text(), "`make paper-docs` writes it anew"


def test_cells_are_timed_by_some_of_their_rounds(monkeypatch):
    monkeypatch.setattr(programs, "SEGMENT", 5)
    few = dataclasses.replace(linear.PRESETS["quick"].only(["lmc_ts"]), seeds=2, horizon=300)
    cell, *_ = few.cells()
    whole, timed = cell_times.seconds_per_seed(cell, 300, limit=60.0)
    assert timed == 300
    part, timed = cell_times.seconds_per_seed(cell, 300, limit=0.0)
    assert timed == 3 * 2 * 5
    assert whole / 20.0 < part < 20.0 * whole


def test_a_history_can_be_filled():
    """So that a round costs what it does later in a run."""
    few = dataclasses.replace(fixed_arms.LOGISTIC["quick"].only(["lmc_ts"]), seeds=2, horizon=20)
    cell, *_ = few.cells()
    with cell_times.filled(1000) as found:
        rejected = cell.compute(lambda cost: None)["rejected"]
    assert any("history" in name for name in found)
    assert rejected.tolist() == [20, 20]  # observations find no room


@pytest.mark.heavy
def test_large_networks_against_their_size_and_their_rank():
    machine, *grown, decide = scale.rows(sizes=(2000, 4000), ranks=(1, 2), forms=("vits_ng, low rank 20",))
    assert machine.what.startswith("x + a y")
    assert len(grown) == 3
    assert 0.0 < numbers([decide])[0] < 1000.0
    numbers([machine, *grown])


def test_the_networks_that_are_measured_have_the_size_that_they_claim():
    for size in scale.SIZES[:2]:
        assert scale.network(size).num_params == pytest.approx(size, rel=0.01)
