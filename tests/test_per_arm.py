from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float, Int, Key

import vits
from vits.algorithms import one_per_arm
from vits.environments import Environment
from vits.history import Buffer, History, with_capacity
from vits.history.paged import CHUNK, PAGE, PagedHistory, paged
from vits.inference.base import Posterior
from vits.inference.per_arm import PerArm
from vits.types import Observation, Round

ARMS, DIM = 3, 2
LINEAR, LOGISTIC = vits.models.linear(DIM), vits.models.logistic(DIM)
ALGORITHMS = {
    "lin_ts": vits.make("lin_ts", LINEAR),
    "vits_ii": vits.make("vits_ii", LOGISTIC, num_steps=2),
    "vits_ii with a window": vits.make("vits_ii", LOGISTIC, num_steps=2, window=5),
    "vits_ng that folds": vits.make("vits_ng", LOGISTIC, fold_after=2),
    "laplace_ts": vits.make("laplace_ts", LOGISTIC),
    "lmc_ts": vits.make("lmc_ts", LOGISTIC, num_steps=2),
    "ensemble_ts": vits.make("ensemble_ts", LOGISTIC, num_members=3),
}


def observations(num_rounds: int, seed: int = 0) -> list[Observation]:
    rng = np.random.default_rng(seed)
    return [
        Observation(
            jnp.asarray(rng.normal(size=DIM), float),
            jnp.asarray(rng.integers(2), float),
            jnp.asarray(rng.integers(ARMS)),
        )
        for _ in range(num_rounds)
    ]


class Compiled(NamedTuple):
    """A posterior's functions, compiled once for all tests."""

    init: Any
    update: Any
    sample: Any


def compiled(posterior: Posterior) -> Compiled:
    return Compiled(*(eqx.filter_jit(f) for f in (posterior.init, posterior.update, posterior.sample)))


@cache
def alone(name: str) -> Compiled:
    return compiled(with_capacity(ALGORITHMS[name], 100).posterior)


@cache
def together(name: str) -> Compiled:
    return compiled(with_capacity(one_per_arm(ALGORITHMS[name], ARMS), 100).posterior)


def take(state: Any, arm: int) -> list[np.ndarray]:
    """Whatever belongs to one arm, the rows of its history among them."""
    parts: list[np.ndarray] = []
    is_paged = lambda node: isinstance(node, PagedHistory)  # noqa: E731
    for node in jax.tree.leaves(state, is_leaf=is_paged):
        if is_paged(node):
            features, rewards = rows_of(node, arm)
            parts += [features, rewards]
        else:
            parts.append(np.asarray(node[arm]))
    return parts


def rows_of(histories: PagedHistory, arm: int) -> tuple[np.ndarray, np.ndarray]:
    page, pages = int(histories.last[arm]), []
    for _ in range(-(-int(histories.seen[arm]) // histories.block)):
        pages.append(page)
        page = int(histories.previous[page])
    slots = np.concatenate(
        [p * histories.block + np.arange(histories.block) for p in pages[::-1]] or [np.zeros(0, int)]
    )
    slots = slots[: int(histories.seen[arm])]
    features = np.asarray(histories.features.T if histories.by_columns else histories.features)
    return features[slots], np.asarray(histories.rewards)[slots]


@pytest.mark.parametrize("name", ["lin_ts", "vits_ii", "vits_ii with a window", "laplace_ts", "ensemble_ts"])
def test_every_arm_has_the_posterior_that_it_would_have_alone(name: str) -> None:
    states = [alone(name).init(key) for key in jax.random.split(jax.random.key(0), ARMS)]
    state = together(name).init(jax.random.key(0))
    for t, observation in enumerate(observations(40)):
        key, arm = jax.random.key(t), int(observation.action)
        state, info = together(name).update(key, state, observation)
        states[arm], _ = alone(name).update(jax.random.split(key)[0], states[arm], observation)
        assert not info.rejected
    draws = together(name).sample(jax.random.key(1), state)
    for arm, key in enumerate(jax.random.split(jax.random.key(1), ARMS)):
        np.testing.assert_allclose(draws[arm], alone(name).sample(key, states[arm]), rtol=1e-3, atol=1e-4)


def test_chains_of_arms_that_were_not_played_move_on_with_their_own_data() -> None:
    advance = eqx.filter_jit(with_capacity(ALGORITHMS["lmc_ts"], 100).posterior.advance)
    states = [alone("lmc_ts").init(key) for key in jax.random.split(jax.random.key(0), ARMS)]
    state = together("lmc_ts").init(jax.random.key(0))
    for t, observation in enumerate(observations(30)):
        learn_key, move_key = jax.random.split(jax.random.key(t))
        state, _ = together("lmc_ts").update(jax.random.key(t), state, observation)
        for arm, key in enumerate(jax.random.split(move_key, ARMS)):
            if arm == int(observation.action):
                states[arm], _ = alone("lmc_ts").update(learn_key, states[arm], observation)
            else:
                states[arm], _ = advance(key, states[arm])
        np.testing.assert_allclose(state.theta, np.stack([s.theta for s in states]), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["lin_ts", "vits_ii", "vits_ng that folds", "laplace_ts"])
def test_only_the_played_arm_changes(name: str) -> None:
    state = together(name).init(jax.random.key(0))
    for t, observation in enumerate(observations(10)):
        new, _ = together(name).update(jax.random.key(t), state, observation)
        for arm in range(ARMS):
            same = [np.array_equal(a, b) for a, b in zip(take(state, arm), take(new, arm), strict=True)]
            assert all(same) == (arm != int(observation.action))
        state = new


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_a_rejected_observation_leaves_all_arms_bit_for_bit(name: str) -> None:
    state = together(name).init(jax.random.key(0))
    broken = observations(1)[0]._replace(reward=jnp.asarray(jnp.nan))
    for t, observation in enumerate(observations(PAGE + 1)):
        new, info = together(name).update(jax.random.key(t), state, broken._replace(action=observation.action))
        assert info.rejected
        jax.tree.map(np.testing.assert_array_equal, new, state)
        # One arm only, so that its first page fills up.
        state, info = together(name).update(jax.random.key(t), state, observation._replace(action=jnp.asarray(0)))
        assert not info.rejected


@pytest.mark.parametrize("name", ["vits_ii", "lmc_ts"])
def test_a_batch_of_seeds_equals_a_loop(name: str) -> None:
    # Seeds play different arms, so that their histories differ in length.
    pairs = zip(observations(25, 1), observations(25, 2), strict=True)
    keys = jax.random.split(jax.random.key(0), 2)
    batch = eqx.filter_vmap(together(name).init)(keys)
    update_batch = eqx.filter_jit(eqx.filter_vmap(together(name).update))
    ones = [together(name).init(key) for key in keys]
    for pair in pairs:
        batch, _ = update_batch(keys, batch, jax.tree.map(lambda *x: jnp.stack(x), *pair))
        ones = [together(name).update(keys[seed], ones[seed], pair[seed])[0] for seed in range(2)]
    loop = jax.tree.map(lambda *x: jnp.stack(x), *ones)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), batch, loop)


def test_nothing_compiles_anew_after_the_first_round() -> None:
    for name in ("vits_ii", "lmc_ts"):
        state = eqx.filter_eval_shape(together(name).init, jax.random.key(0))
        new, _ = eqx.filter_eval_shape(together(name).update, jax.random.key(0), state, observations(1)[0])
        assert [(x.shape, x.dtype, x.weak_type) for x in jax.tree.leaves(state)] == [
            (x.shape, x.dtype, x.weak_type) for x in jax.tree.leaves(new)
        ]


def moments(features: Array, rewards: Array, weights: Array) -> tuple[Array, Array]:
    return jnp.sum(weights), features.T @ (weights * rewards)


@eqx.filter_jit
def grow(histories: PagedHistory, arm: Array, row: Observation, accepted: Array) -> PagedHistory:
    old = histories.of(arm)
    return histories.put(arm, old.append(row).undo_unless(accepted, old))


@eqx.filter_jit
def sums(histories: PagedHistory, scales: Float[Array, " arms"]) -> tuple[Any, Any]:
    def scaled(history: History, scale: Array) -> tuple[Array, Array]:
        return history.sum(lambda x, r, w: moments(scale * x, r, w))

    one_by_one = [scaled(histories.of(jnp.asarray(arm)), scales[arm]) for arm in range(ARMS)]
    together = jax.vmap(scaled, (histories.axes, 0))(histories, scales)
    return jax.tree.map(lambda *x: jnp.stack(x), *one_by_one), together


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, ARMS - 1), st.booleans()), max_size=60), st.integers(0, 2**16), st.booleans())
def test_sums_over_pages_equal_plain_sums(plays: list[tuple[int, bool]], seed: int, by_columns: bool) -> None:
    rng = np.random.default_rng(seed)
    # Small pages, so that a few plays fill many.
    histories = paged(Buffer(60).init(DIM, by_columns=by_columns), ARMS, page=2)
    kept: list[list[tuple[np.ndarray, float]]] = [[] for _ in range(ARMS)]
    for arm, accepted in plays:
        x, r = rng.normal(size=DIM), rng.normal()
        row = Observation(jnp.asarray(x, float), jnp.asarray(r, float))
        before = histories
        histories = grow(histories, jnp.asarray(arm), row, jnp.asarray(accepted))
        if accepted:
            kept[arm].append((x, r))
        else:
            jax.tree.map(np.testing.assert_array_equal, histories, before)
    scales = np.array([1.0, -2.0, 0.5])
    for counts, crosses in sums(histories, jnp.asarray(scales, float)):
        np.testing.assert_array_equal(counts, [len(rows) for rows in kept])
        expected = [scales[a] * sum((r * x for x, r in kept[a]), np.zeros(DIM)) for a in range(ARMS)]
        np.testing.assert_allclose(crosses, expected, rtol=1e-4, atol=1e-5)


def test_the_pool_grows_with_the_data_and_the_number_of_arms() -> None:
    posterior = with_capacity(vits.make("vits_ii", LOGISTIC, per_arm=1000), 4096).posterior
    state = eqx.filter_eval_shape(posterior.init, jax.random.key(0))
    history = state.data.history
    assert history.features.shape[1] <= 4096 + (1000 + CHUNK) * PAGE
    assert all(leaf.size <= 1000 * DIM**2 for leaf in jax.tree.leaves(state._replace(data=state.data.bound)))


def test_a_full_pool_rejects_and_says_so() -> None:
    state, row, rejected = together("vits_ii").init(jax.random.key(0)), observations(1)[0], []
    for t in range(130):  # 100 is rounded up to 128
        new, info = together("vits_ii").update(jax.random.key(t), state, row)
        rejected.append(bool(info.rejected))
        if info.rejected:
            jax.tree.map(np.testing.assert_array_equal, new, state)
        state = new
    assert rejected == [False] * 128 + [True] * 2


def test_every_capacity_is_enough_however_the_plays_are_shared_out() -> None:
    histories = paged(Buffer(40).init(DIM), ARMS, page=4)
    for t in range(40):
        arm = jnp.asarray(t % 2 if t < 39 else 2)
        histories = grow(histories, arm, observations(1)[0], jnp.asarray(True))
        assert not histories.overflowed.any()
    np.testing.assert_array_equal(histories.seen, [20, 19, 1])


@pytest.mark.parametrize("by_columns", [False, True])
def test_a_minibatch_holds_rows_of_its_own_arm_only(by_columns: bool) -> None:
    histories = paged(Buffer(60).init(DIM, by_columns=by_columns), ARMS, page=2)
    for t in range(30):
        row = Observation(jnp.full(DIM, float(t)), jnp.asarray(float(t)))
        histories = grow(histories, jnp.asarray(t % ARMS), row, jnp.asarray(True))
    for arm in range(ARMS):
        batch = histories.of(jnp.asarray(arm)).minibatch(jax.random.key(arm), 200)
        assert set(np.asarray(batch.rewards).astype(int)) == set(range(arm, 30, ARMS))
        np.testing.assert_array_equal(batch.features[:, 0], batch.rewards)
        np.testing.assert_allclose(batch.weights, 10 / 200)


def test_it_works_in_double_precision(x64: None) -> None:
    posterior = with_capacity(vits.make("lmc_ts", vits.models.logistic(DIM), per_arm=ARMS), 64).posterior
    state = eqx.filter_jit(posterior.init)(jax.random.key(0))
    new, info = eqx.filter_jit(posterior.update)(jax.random.key(0), state, observations(1)[0])
    assert not info.rejected
    assert new.theta.dtype == new.data.history.features.dtype == jnp.float64


class OwnParameters(Environment):
    """Five arms with a context of their own each round and a theta of their own for good; 0/1 rewards."""

    dim: int = 3
    num_arms: int = 5

    def init(self, key: Key[Array, ""]) -> Float[Array, "arms dim"]:
        return 2.0 * jax.random.normal(key, (self.num_arms, self.dim))

    def draw(self, key: Key[Array, ""], params: Float[Array, "arms dim"], t: Int[Array, ""]) -> Round:
        context_key, reward_key = jax.random.split(key)
        arms = jax.random.normal(context_key, (self.num_arms, self.dim))
        means = jax.nn.sigmoid(jnp.sum(arms * params, axis=1))
        return Round(arms, means, (jax.random.uniform(reward_key, means.shape) < means).astype(means.dtype))


@pytest.mark.parametrize(
    "name",
    [pytest.param("vits_ii", marks=pytest.mark.heavy), "laplace_ts", pytest.param("lmc_ts", marks=pytest.mark.heavy)],
)
def test_arms_with_parameters_of_their_own_are_learnt(name: str) -> None:
    world, model = OwnParameters(), vits.models.logistic(3)
    trace = vits.simulate(0, world, vits.make(name, model, per_arm=5), 300, seeds=5)
    chance = vits.simulate(0, world, vits.make("uniform", model), 300, seeds=5)
    assert not np.any(trace.info.rejected)
    assert trace.regret.sum() < 0.5 * chance.regret.sum()


def test_per_arm_lin_ts_draws_from_the_exact_posterior_of_each_arm() -> None:
    policy = vits.make("lin_ts", LINEAR, per_arm=ARMS, inverse_temperature=2.0, prior_precision=3.0)
    assert isinstance(policy.posterior, PerArm)
    state = policy.init(jax.random.key(0))
    rows, update = observations(30), eqx.filter_jit(policy.update)
    for row in rows:
        state, _ = update(jax.random.key(0), state, row)
    for arm in range(ARMS):
        x = np.stack([row.features for row in rows if int(row.action) == arm])
        y = np.stack([row.reward for row in rows if int(row.action) == arm])
        V = 3.0 * np.eye(DIM) + x.T @ x
        np.testing.assert_allclose(state.mean[arm], np.linalg.solve(V, x.T @ y), rtol=1e-4)
        np.testing.assert_allclose(state.sqrt_cov[arm] @ state.sqrt_cov[arm].T, np.linalg.inv(2.0 * V), rtol=1e-4)


def test_what_per_arm_cannot_take_is_said() -> None:
    with pytest.raises(ValueError, match="per_arm must be a whole number of at least 1, but is 0"):
        vits.make("lin_ts", LINEAR, per_arm=0)
    with pytest.raises(ValueError, match="per_arm must be left out"):
        vits.make("vts", LINEAR, num_arms=3, per_arm=3)
    with pytest.raises(ValueError, match="per_arm cannot go with fg_ts"):
        vits.make("fg_ts", LINEAR, num_arms=3, per_arm=3)
    policy = vits.make("lin_ts", LINEAR, per_arm=ARMS)
    with pytest.raises(ValueError, match="the arms on offer must be the 3 that have a posterior each, but are 4"):
        policy.act(jax.random.key(0), policy.init(jax.random.key(0)), jnp.zeros((4, DIM)))
    with pytest.raises(ValueError, match="the arm played must be one of 0 to 2, but is 3"):
        policy.update(jax.random.key(0), policy.init(jax.random.key(0)), Observation(jnp.zeros(DIM), jnp.zeros(()), 3))
