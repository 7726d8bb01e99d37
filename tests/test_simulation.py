import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits import simulation
from vits.environments.base import Environment
from vits.policies import Policy, Uniform, best_arm
from vits.simulation import programs
from vits.types import Round, new_info

WORLD = {"dim": 4, "num_arms": 6}
MODEL = vits.models.linear(4)


class Poisoned(Policy):
    """Plays arm 0 and reports a failed update in round 3 of the seeds whose first draw is negative."""

    def init(self, key):
        return jnp.asarray(0), jax.random.normal(key) < 0

    def act(self, key, state, arms):
        return jnp.asarray(0)

    def update(self, key, state, observation):
        count, is_bad = state
        return (count + 1, is_bad), new_info(is_finite=~(is_bad & (count == 3)))


@pytest.fixture
def compilations():
    """Counts what XLA compiles while a test runs."""
    found = []

    def listener(name, seconds, **rest):
        if "backend_compile" in name:
            found.append(name)

    jax.monitoring.register_event_duration_secs_listener(listener)
    yield found
    jax.monitoring.clear_event_listeners()


def run(name="lin_ts", key=0, horizon=30, zeta=0.3, workers=None, seeds=4, **hyperparameters):
    world = vits.environments.linear(zeta=zeta, **WORLD)
    policy = vits.make(name, MODEL, **hyperparameters)
    return vits.simulate(key, world, policy, horizon, seeds=seeds, workers=workers)


def test_regret_is_the_best_mean_minus_the_mean_of_the_arm_played():
    """Replays the rounds by hand, from the environment's own keys, and compares."""
    world = vits.environments.linear(zeta=0.3, **WORLD)
    trace = run(horizon=5, seeds=[2])
    world_key, _ = jax.random.split(jax.random.fold_in(jax.random.key(0), 2))
    init_key, draw_key = jax.random.split(world_key)
    params = world.init(init_key)
    for t in range(5):
        arms, means, rewards = world.draw(jax.random.fold_in(draw_key, t), params, jnp.asarray(t))
        action = trace.action[0, t]
        np.testing.assert_allclose(trace.regret[0, t], means.max() - means[action], atol=1e-5)
        np.testing.assert_allclose(trace.reward[0, t], rewards[action], atol=1e-5)
        np.testing.assert_allclose(means, arms @ params.theta, atol=1e-5)


def test_the_same_key_gives_the_same_result_and_another_key_another():
    first, again, other = run(key=1), run(key=1), run(key=2)
    assert np.array_equal(first.regret, again.regret)
    assert not np.array_equal(first.regret, other.regret)


@pytest.mark.parametrize("name", ["lin_ts", "vits_ii", pytest.param("vits_ii_hf", marks=pytest.mark.heavy)])
def test_a_seed_alone_gives_the_curve_it_gives_in_a_batch(name):
    """Up to rounding: XLA may add in another order for another batch size. Same arms, rewards to 1e-4."""
    batch, alone = run(name, seeds=5), run(name, seeds=[3])
    np.testing.assert_array_equal(batch.action[3], alone.action[0])
    np.testing.assert_allclose(batch.reward[3], alone.reward[0], atol=1e-4)


def test_threads_and_padding_do_not_change_anything():
    alone = run(seeds=5, workers=1)
    assert alone.regret.shape == (5, 30)
    for workers in (2, 4, 16):  # groups of three, two and one; four threads would have nobody in the last
        together = run(seeds=5, workers=workers)
        np.testing.assert_array_equal(together.action, alone.action)
        np.testing.assert_allclose(together.regret, alone.regret, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cores", [1, 2, 4, 16])
def test_worlds_are_those_of_their_seeds(cores, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    environment = vits.environments.fixed_linear(dim=3, num_arms=4)
    worlds = vits.simulation.worlds(3, environment, seeds=[4, 0, 9, 2, 1])
    assert worlds.arms.shape == (5, 4, 3)
    for i, seed in enumerate([4, 0, 9, 2, 1]):
        alone = vits.simulation.worlds(3, environment, seeds=[seed])
        np.testing.assert_allclose(worlds.arms[i], alone.arms[0], rtol=1e-6)


def test_all_policies_face_the_same_rounds():
    """Whenever two policies play the same arm in the same round, they are paid the same."""
    first, second = run("lin_ts"), run("uniform")
    same = first.action == second.action
    assert same.any()
    np.testing.assert_array_equal(first.reward[same], second.reward[same])


TRACED = []


class Counted(Environment):
    """Notes when it is traced."""

    dim: int = 4
    num_arms: int = 6

    def init(self, key):
        TRACED.append("init")
        return jax.random.normal(key, (self.num_arms, self.dim))

    def draw(self, key, params, t):
        return Round(params, params[:, 0], params[:, 0])


def test_a_world_is_compiled_once_for_all_policies():
    world = Counted()
    for name in ("lin_ts", "greedy", "vits_ng"):
        vits.simulate(0, world, vits.make(name, MODEL), 3, seeds=3)
    simulation.worlds(0, world, seeds=3)
    assert TRACED == ["init"]


def test_one_compilation_serves_all_hyperparameters_worlds_and_horizons(compilations):
    run("vits_ii", horizon=30)
    assert compilations
    del compilations[:]
    run("vits_ii", horizon=30, inverse_temperature=50.0, prior_precision=0.1, step_size=0.2, zeta=1.0, key=7)
    run("vits_ii", horizon=120)
    assert compilations == []


def test_segments_do_not_show_in_the_result():
    long = run(horizon=simulation.SEGMENT + 7)
    short = run(horizon=7)
    np.testing.assert_array_equal(long.action[:, :7], short.action)
    assert long.regret.shape == (4, simulation.SEGMENT + 7)


def test_progress_counts_every_round_once():
    done = []
    world = vits.environments.linear(**WORLD)
    vits.simulate(0, world, vits.make("uniform", MODEL), 250, seeds=4, progress=done.append, workers=2)
    assert sum(done) == 4 * 250


def test_failed_seeds_are_named_and_their_neighbours_are_not():
    trace = vits.simulate(0, vits.environments.linear(**WORLD), Poisoned(), 10, seeds=12)
    _, policy_keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(jax.random.key(0), i)))(jnp.arange(12)).T
    bad = jax.vmap(lambda key: jax.random.normal(jax.random.split(key)[0]) < 0)(policy_keys)
    assert 0 < bad.sum() < 12
    np.testing.assert_array_equal(trace.failed, bad)
    np.testing.assert_array_equal(np.argmax(trace.info.rejected, axis=1)[np.asarray(bad)], 3)


def test_ties_are_broken_at_random_and_evenly():
    keys = jax.random.split(jax.random.key(0), 3000)
    arms = jax.vmap(best_arm, (0, None))(keys, jnp.array([1.0, 0.0, 1.0, 1.0]))
    counts = np.bincount(arms, minlength=4)
    assert counts[1] == 0
    assert np.all(np.abs(counts[[0, 2, 3]] - 1000) < 4 * np.sqrt(1000 * 2 / 3))


def test_scores_that_are_not_finite_never_win():
    scores = jnp.array([jnp.nan, 0.5, jnp.inf, -1.0])
    assert {int(best_arm(key, scores)) for key in jax.random.split(jax.random.key(0), 20)} == {1}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"horizon": 0}, "horizon must be a whole number of at least 1, but is 0"),
        ({"seeds": 0}, "seeds must be a whole number of at least 1, but is 0"),
        ({"seeds": []}, "seeds must name at least one seed"),
        ({"seeds": [3, 0, 3]}, "seeds must differ, but 3 is among them 2 times"),
        ({"seeds": [-1]}, "every seed must be a whole number of at least 0, but is -1"),
        ({"workers": 0}, "workers must be a whole number of at least 1, but is 0"),
    ],
)
def test_bad_input_gets_one_clear_sentence(arguments, message):
    with pytest.raises(ValueError, match=message):
        run(**arguments)


WRONG = """
import vits
world, policy = vits.environments.linear(dim=2, num_arms=3), vits.make("lin_ts", vits.models.linear(2))
for arguments in (("a", world, policy), (None, world, policy), (1.5, world, policy), (0, "linear", policy),
                  (0, world, "lin_ts"), (2**70, world, policy)):
    try:
        vits.simulate(*arguments, 5)
    except ValueError as error:
        print(error)
"""


def test_a_wrong_key_environment_or_policy_gets_one_sentence():
    """In a process of its own, where arguments are not checked by the tests' own type checker."""
    done = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "key must be a random key of JAX or a whole number, but is 'a'",
        "key must be a random key of JAX or a whole number, but is None",
        "key must be a random key of JAX or a whole number, but is 1.5",
        "environment must be one of vits.environments, or a subclass, but is 'linear'",
        "policy must be a policy, as vits.make gives one, but is 'lin_ts'",
        f"key must be below 2**64, but is {2**70}",
    ]


class Shaped(Environment):
    """Three arms of two features, with means that are not as they should be."""

    num_arms: int = 3
    dim: int = 2
    means: tuple[int, ...] = (3,)
    features: int = 2

    def init(self, key):
        return None

    def draw(self, key, params, t):
        return Round(jnp.zeros((3, self.features)), jnp.zeros(self.means), jnp.zeros(3))


def test_an_environment_draws_what_it_says():
    """A column of means would broadcast to a regret of zero."""
    model = vits.models.linear(2)
    for world, message in (
        (Shaped(means=(3, 1)), r"means of the environment must have shape \(3,\), but has shape \(3, 1\)"),
        (Shaped(features=4), r"arms of the environment must have shape \(3, 2\), but has shape \(3, 4\)"),
    ):
        with pytest.raises(ValueError, match=message):
            vits.simulate(0, world, vits.make("lin_ts", model), 5)
        with pytest.raises(ValueError, match=message):
            simulation.rounds(0, world, 5)


def test_model_and_environment_must_agree_on_the_dimension():
    world = vits.environments.linear(dim=3, num_arms=5)
    with pytest.raises(ValueError, match="model takes 4 features, but the environment gives 3"):
        vits.simulate(0, world, vits.make("lin_ts", MODEL), 10)


def test_policies_for_each_seed_need_one_axis_of_seeds():
    with pytest.raises(ValueError, match="one leading axis of seeds"):
        simulation.simulate_each(0, vits.environments.linear(**WORLD), vits.make("lin_ts", MODEL), 10, seeds=2)


def test_every_seed_may_have_a_policy_of_its_own():
    etas = [1.0, 30.0, 100.0]
    policies = eqx.filter_vmap(lambda eta: vits.make("vits_ii", MODEL, inverse_temperature=eta))(jnp.array(etas))
    world = vits.environments.linear(zeta=0.3, **WORLD)
    trace = simulation.simulate_each(0, world, policies, 30, seeds=[4, 0, 2])
    for row, (seed, eta) in enumerate(zip([4, 0, 2], etas, strict=True)):
        alone = run("vits_ii", inverse_temperature=eta, seeds=[seed])
        np.testing.assert_array_equal(trace.action[row], alone.action[0])
    with pytest.raises(ValueError, match="a policy for each of the 2 seeds, but there are 3"):
        simulation.simulate_each(0, world, policies, 30, seeds=2)


def test_the_worlds_are_those_that_are_played():
    world = vits.environments.linear(zeta=0.0, dim=4, num_arms=1, pool_size=1)
    params = simulation.worlds(0, world, seeds=[3, 1])
    assert params.pool.shape == (2, 1, 4)
    # One vector, no spread: the mean reward of every round is x' theta*, and noise averages out.
    trace = vits.simulate(0, world, vits.make("uniform", MODEL), 2000, seeds=[3, 1])
    expected = np.einsum("sd,sd->s", params.pool[:, 0], params.theta)
    np.testing.assert_allclose(trace.reward.mean(axis=1), expected, atol=4 / np.sqrt(2000))


class Solving(Uniform):
    """Somebody's own policy, which calls LAPACK; within a simulation that is a batch of calls."""

    def update(self, key, state, observation):
        state, info = super().update(key, state, observation)
        root = jnp.linalg.cholesky(jnp.outer(observation.features, observation.features) + jnp.eye(MODEL.dim))
        return state, info._replace(is_finite=info.is_finite & jnp.all(jnp.isfinite(root)))


def test_programs_that_call_lapack_for_batches_are_not_run_side_by_side(monkeypatch):
    """Two of them can wait for each other forever in XLA's pool of threads."""
    pools = []
    monkeypatch.setattr(programs, "ThreadPoolExecutor", lambda n: pools.append(n) or ThreadPoolExecutor(n))
    vits.simulate(0, vits.environments.linear(**WORLD), Solving(), 10, seeds=2, workers=2)
    assert pools == []
    run("vits_i", workers=2)
    assert pools == [2]


def test_rounds_are_those_that_are_played():
    world = vits.environments.linear(zeta=1.0, dim=3, num_arms=4)
    trace = vits.simulate(7, world, vits.make("uniform", vits.models.linear(3)), 20, seeds=[2, 5])
    found = vits.simulation.rounds(7, world, 20, seeds=[2, 5])
    assert found.arms.shape == (2, 20, 4, 3)
    paid = np.take_along_axis(found.rewards, trace.action[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(paid, trace.reward, rtol=1e-5, atol=1e-5)
