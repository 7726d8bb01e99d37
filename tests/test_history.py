"""Histories: sums, windows, samples, and undoing without a trace or a copy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits import history as histories
from vits.history import BLOCK, History, buffer, with_capacity
from vits.inference.guards import choose, overflowed
from vits.types import Observation

DIM = 3
RNG = np.random.default_rng(0)
FEATURES, REWARDS = RNG.normal(size=(200, DIM)), RNG.normal(size=200)


@eqx.filter_jit
def append_all(history: History, features: jax.Array, rewards: jax.Array) -> History:
    def add(history: History, row: tuple[jax.Array, jax.Array]) -> tuple[History, None]:
        return history.append(Observation(*row)), None

    return jax.lax.scan(add, history, (features, rewards))[0]


def filled(count: int, *, by_columns: bool = False, **options: int) -> History:
    features, rewards = jnp.asarray(FEATURES[:count], float), jnp.asarray(REWARDS[:count], float)
    return append_all(buffer(**options).init(DIM, by_columns=by_columns), features, rewards)


@eqx.filter_jit
def moments(history):
    """A sum that depends on features, rewards and weights alike."""
    return history.sum(lambda phi, r, weight: {"cross": phi.T @ (weight * r), "gram": (phi * weight[:, None]).T @ phi})


def plain_moments(rows: slice) -> dict[str, np.ndarray]:
    return {"cross": FEATURES[rows].T @ REWARDS[rows], "gram": FEATURES[rows].T @ FEATURES[rows]}


def bits(tree):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 200])
def test_block_sums_are_plain_sums(count):
    history = filled(count, capacity=200)
    assert int(history.count) == count
    for name, value in plain_moments(slice(0, count)).items():
        np.testing.assert_allclose(moments(history)[name], value, atol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("options", [{"capacity": 200}, {"capacity": 150}, {"window": 7}, {"window": BLOCK + 5}])
def test_columns_hold_what_rows_hold(options):
    rows, columns = (filled(150, by_columns=by_columns, **options) for by_columns in (False, True))
    new = Observation(jnp.asarray(FEATURES[150], float), jnp.asarray(REWARDS[150], float))
    for accepted in (False, True):
        rows, columns = (each.append(new).undo_unless(jnp.asarray(accepted), each) for each in (rows, columns))
        np.testing.assert_array_equal(columns.features.T, rows.features)
        np.testing.assert_allclose(moments(columns)["gram"], moments(rows)["gram"], atol=1e-12)
        sampled = [each.minibatch(jax.random.key(1), 20) for each in (rows, columns)]
        jax.tree.map(np.testing.assert_array_equal, *sampled)
        if "window" in options:
            jax.tree.map(np.testing.assert_array_equal, columns.evicted, rows.evicted)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("window", [1, 7, BLOCK, BLOCK + 5])
@pytest.mark.parametrize("count", [5, 200])
def test_a_window_holds_exactly_the_last_rows(window, count):
    history = filled(count, window=window)
    assert int(history.count) == min(window, count)
    for name, value in plain_moments(slice(max(0, count - window), count)).items():
        np.testing.assert_allclose(moments(history)[name], value, atol=1e-12)


@pytest.mark.parametrize(("count", "blocks"), [(0, 0), (1, 1), (BLOCK, 1), (BLOCK + 1, 2), (200, 2)])
def test_a_sum_visits_as_many_blocks_as_are_filled(count, blocks):
    visited = filled(count, capacity=5000).sum(lambda phi, r, weight: jnp.ones((), int))
    assert int(visited) == blocks


def test_within_a_batch_every_history_sums_its_own_rows():
    counts = [0, 3, BLOCK + 1]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[filled(count, capacity=200) for count in counts])
    found = jax.vmap(moments)(stacked)
    for i, count in enumerate(counts):
        np.testing.assert_allclose(found["gram"][i], plain_moments(slice(0, count))["gram"], rtol=1e-4, atol=1e-4)


def test_one_compilation_serves_every_round():
    traces = 0

    @eqx.filter_jit
    def round_of(history, observation):
        nonlocal traces
        traces += 1
        history = history.append(observation)
        return history, history.sum(lambda phi, r, weight: weight @ r)

    history, total = buffer(capacity=200).init(DIM), 0.0
    for reward in (1.0, 2.0, 3.0):
        history, total = round_of(history, Observation(jnp.ones(DIM), jnp.asarray(reward)))
    assert (traces, float(total)) == (1, 6.0)


@pytest.mark.parametrize("poison", [0.0, np.nan, np.inf])
@pytest.mark.parametrize(("options", "count"), [({"capacity": 70}, 0), ({"capacity": 70}, 70), ({"window": 7}, 20)])
def test_a_rejected_append_is_undone_bit_by_bit(options, count, poison):
    old = filled(count, **options)
    new = old.append(Observation(jnp.full(DIM, poison), jnp.asarray(poison)))
    state = choose(jnp.asarray(False), {"data": new, "mean": jnp.ones(2)}, {"data": old, "mean": jnp.zeros(2)})
    assert bits(state) == bits({"data": old, "mean": jnp.zeros(2)})


@pytest.mark.parametrize("options", [{"capacity": 70}, {"window": 7}])
def test_an_accepted_append_stays_and_a_later_one_can_still_be_undone(options):
    old = filled(20, **options)
    new = old.append(Observation(jnp.ones(DIM), jnp.asarray(5.0)))
    kept = choose(jnp.asarray(True), new, old)
    assert bits(kept) == bits(new)
    later = kept.append(Observation(jnp.zeros(DIM), jnp.asarray(6.0)))
    assert bits(choose(jnp.asarray(False), later, kept)) == bits(kept)


def test_a_full_history_says_so_and_a_window_never_does():
    observation = Observation(jnp.ones(DIM), jnp.asarray(1.0))
    almost = filled(69, capacity=70)
    full = almost.append(observation)
    assert not overflowed({"data": full})
    assert overflowed({"data": full.append(observation)})
    assert int(full.append(observation).count) == 70
    assert not overflowed({"data": filled(20, window=7).append(observation)})
    assert not overflowed({"mean": jnp.zeros(2)})


def test_an_update_that_finds_the_history_full_is_rejected_and_counted():
    policy = vits.make("vits_ii", vits.models.logistic(2), num_steps=1)
    learner = eqx.tree_at(lambda p: p.posterior.potential.buffer, policy, buffer(capacity=3)).posterior
    update, state, rejected = eqx.filter_jit(learner.update), learner.init(jax.random.key(0)), []
    for t in range(5):
        old = state
        state, info = update(jax.random.key(t), state, Observation(jnp.ones(2), jnp.asarray(1.0)))
        rejected.append(bool(info.rejected))
        assert bool(info.is_finite)
    assert rejected == [False, False, False, True, True]
    assert bits(state) == bits(old)


@pytest.mark.parametrize("seeds", [1, 4])
def test_a_loop_needs_no_second_buffer(seeds):
    """A copy of the buffer inside the loop would need room for it."""

    def temporary_bytes(capacity: int) -> int:
        def play(i, history):
            new = history.append(Observation(jnp.ones(DIM), i.astype(float)))
            total = new.sum(lambda phi, r, weight: phi.T @ (weight * r))
            return choose(jnp.all(jnp.isfinite(total)), new, history)

        def run(histories):
            return jax.lax.fori_loop(0, 10, lambda i, h: jax.vmap(play, (None, 0))(i, h), histories)

        empty = jax.vmap(lambda _: buffer(capacity=capacity).init(DIM))(jnp.zeros(seeds))
        return jax.jit(run, donate_argnums=0).lower(empty).compile().memory_analysis().temp_size_in_bytes

    assert temporary_bytes(100_000) < temporary_bytes(1_000) + 10_000


@pytest.mark.usefixtures("x64")
def test_sums_over_a_minibatch_are_unbiased():
    history, size, draws = filled(50, capacity=64), 8, 4000
    batches = jax.vmap(lambda key: history.minibatch(key, size))(jax.random.split(jax.random.key(0), draws))
    estimates = np.asarray(jax.vmap(lambda batch: batch.sum(lambda phi, r, w: phi.T @ (w * r)))(batches))
    truth = plain_moments(slice(0, 50))["cross"]
    standard_error = estimates.std(axis=0) / np.sqrt(draws)
    assert np.all(np.abs(estimates.mean(axis=0) - truth) < 4.0 * standard_error)
    np.testing.assert_array_equal(batches.count, 50)
    np.testing.assert_allclose(jnp.sum(batches.weights, axis=1), 50.0)


def test_a_minibatch_of_few_observations_is_all_of_them():
    batch = filled(5, capacity=64).minibatch(jax.random.key(0), 8)
    for name, value in plain_moments(slice(0, 5)).items():
        np.testing.assert_allclose(moments(batch)[name], value, rtol=1e-5)
    assert float(batch.inflation) == 1.0
    assert float(filled(16, capacity=64).minibatch(jax.random.key(0), 8).inflation) == 3.0


def test_capacity_is_filled_in_where_nobody_said():
    tree = {"free": buffer(), "fixed": buffer(capacity=10), "window": buffer(window=5), "number": jnp.ones(2)}
    found = with_capacity(tree, 1000)
    assert found["free"].init(1).capacity == 1024
    assert found["fixed"].init(1).capacity == 10
    assert found["window"].init(1).capacity == 5
    assert with_capacity(buffer(), 1024).capacity == 1024
    assert with_capacity(buffer(), 1025).capacity == 2048
    assert buffer().init(1).capacity == histories.DEFAULT_CAPACITY


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity": 0}, "capacity must be a whole number of at least 1, but is 0"),
        ({"window": -1}, "window must be a whole number of at least 1, but is -1"),
        ({"window": 5, "capacity": 9}, "capacity must be left out when there is a window, but is 9"),
    ],
)
def test_mistakes_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        buffer(**options)
