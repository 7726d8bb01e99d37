from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vits
from vits.algorithms.feel_good import feel_good_potential as feel_good
from vits.potentials import Centre, potential
from vits.types import Observation

DIM, ROUNDS, ARMS = 4, 9, 5
MODELS = {"linear": vits.models.linear(DIM), "logistic": vits.models.logistic(DIM)}


def rounds(arms=ARMS):
    """All arms' features of every round, the index of the arm played and its reward, 0 or 1."""
    rng = np.random.default_rng(0)
    offered = rng.standard_normal((ROUNDS, arms, DIM))
    return offered, rng.integers(0, arms, ROUNDS), rng.integers(0, 2, ROUNDS).astype(float)


def built(model, *, weight=0.7, cap=1000.0, smoothing=0.0, num_arms=ARMS, arms=ARMS, **options):
    """The feel-good potential of a model, and its data after all rounds."""
    base = potential(model, inverse_temperature=3.0, prior_precision=0.5, **options)
    target = feel_good(base, model, weight=weight, cap=cap, smoothing=smoothing, num_arms=num_arms, **options)
    return target, observed(
        target, *(jnp.asarray(x, y) for x, y in zip(rounds(arms), (float, int, float), strict=True))
    )


@eqx.filter_jit
def observed(target, menus, actions, rewards):
    def observe(data, row):
        menu, action, reward = row
        return target.observe(data, Observation(menu[action], reward, action, menu)), None

    return jax.lax.scan(observe, target.init(), (menus, actions, rewards))[0]


@eqx.filter_jit
def grad(target, data, theta):
    return target.grad(data, theta)


@eqx.filter_jit
def hessian(target, data, theta):
    return target.hessian(data, theta)


@eqx.filter_jit
def curvature(target, data, theta):
    return target.largest_curvature(data, theta)


@eqx.filter_jit
def update(policy, key, state, observation):
    return policy.update(key, state, observation)


def value(name, theta, *, weight=0.7, cap=1000.0, smoothing=0.0):
    """U_fg as the formula says."""
    menus, actions, rewards = rounds()
    f = menus @ theta
    played = f[np.arange(ROUNDS), actions]
    loss = 0.5 * (played - rewards) ** 2 if name == "linear" else np.logaddexp(0.0, played) - rewards * played
    means = f if name == "linear" else 1.0 / (1.0 + np.exp(-f))
    if smoothing == 0.0:
        bonus = np.minimum(cap, means.max(axis=1))
    else:
        best = smoothing * np.log(np.exp(means / smoothing).sum(axis=1))
        bonus = cap - smoothing * np.logaddexp(0.0, (cap - best) / smoothing)
    return 3.0 * loss.sum() + 0.5 * 3.0 * 0.5 * theta @ theta - weight * bonus.sum()


def differences(function, theta, step=1e-5):
    """Central differences of a function of the parameters."""
    shifts = step * np.eye(DIM)
    return np.stack([(function(theta + e) - function(theta - e)) / (2.0 * step) for e in shifts])


CASES = [
    pytest.param({"smoothing": 0.0}, id="plain"),
    pytest.param({"smoothing": 0.0, "cap": 0.6}, id="plain-capped"),
    pytest.param({"smoothing": 0.3}, id="smoothed"),
    pytest.param({"smoothing": 0.3, "cap": 0.6}, id="smoothed-capped"),
]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("form", CASES)
def test_gradient_and_hessian_are_finite_differences_of_the_formula(name, form):
    theta = np.random.default_rng(5).standard_normal(DIM)
    target, data = built(MODELS[name], **form)
    # The means of a far-away cap lose digits in the formula of the test, not in the potential.
    by_formula = differences(lambda t: value(name, t, **({"cap": 50.0} | form)), theta)
    np.testing.assert_allclose(grad(target, data, jnp.asarray(theta)), by_formula, rtol=1e-6, atol=1e-6)
    by_grad = differences(lambda t: np.asarray(grad(target, data, jnp.asarray(t))), theta)
    np.testing.assert_allclose(hessian(target, data, jnp.asarray(theta)), by_grad, rtol=1e-6, atol=1e-6)


def test_one_round_by_hand():
    target = feel_good(
        potential(MODELS["linear"], inverse_temperature=1.0, prior_precision=1.0),
        MODELS["linear"],
        weight=0.5,
        cap=3.0,
        num_arms=2,
    )
    menu = jnp.array([[1.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]])
    data = target.observe(target.init(), Observation(menu[0], jnp.asarray(0.0), 0, menu))
    # Played arm 0, reward 0: grad U = theta + theta_1 e_1. Best arm 1, worth 2 theta_2: a pull of 0.5 * 2 on theta_2.
    np.testing.assert_allclose(grad(target, data, jnp.ones(4)), [2.0, 1.0 - 0.5 * 2.0, 1.0, 1.0], rtol=1e-6)
    # Worth 4, above the cap of 3: no pull.
    np.testing.assert_allclose(grad(target, data, 2.0 * jnp.ones(4)), [4.0, 2.0, 2.0, 2.0], rtol=1e-6)
    # Best arm 0, worth 2: a pull of 0.5 on theta_1.
    theta = jnp.array([2.0, 0.5, 0.0, 0.0])
    np.testing.assert_allclose(grad(target, data, theta), [4.0 - 0.5, 0.5, 0.0, 0.0], rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_the_smoothed_form_tends_to_the_plain_one():
    theta = jnp.asarray(np.random.default_rng(5).standard_normal(DIM))
    plain, data = built(MODELS["linear"], cap=1.5)
    errors = []
    for smoothing in (0.3, 0.03, 0.001):
        smoothed, _ = built(MODELS["linear"], cap=1.5, smoothing=smoothing)
        errors.append(float(jnp.max(jnp.abs(grad(smoothed, data, theta) - grad(plain, data, theta)))))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-4


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_arms_that_were_not_there_do_not_matter(smoothing):
    theta = jnp.array([0.3, -1.0, 0.5, 0.2])
    exact, exact_data = built(MODELS["linear"], smoothing=smoothing)
    padded, padded_data = built(MODELS["linear"], smoothing=smoothing, num_arms=12)
    # Every mean is negative at this theta for some rounds, so an arm of zeros would win.
    assert np.any((rounds()[0] @ np.asarray(theta)).max(axis=1) < 1.0)
    np.testing.assert_allclose(grad(padded, padded_data, theta), grad(exact, exact_data, theta), rtol=2e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("form", CASES)
def test_the_curvature_bound_holds_nearby(name, form):
    target, data = built(MODELS[name], weight=20.0, **form)
    rng = np.random.default_rng(7)
    for _ in range(20):
        theta = rng.standard_normal(DIM)
        bound = curvature(target, data, jnp.asarray(theta))
        for nearby in (theta, theta + 0.02 * rng.standard_normal(DIM)):
            largest = np.linalg.eigvalsh(hessian(target, data, jnp.asarray(nearby)))[-1]
            assert largest <= bound * (1.0 + 1e-2 * (name == "logistic"))


def test_a_cap_out_of_reach_costs_no_step():
    theta = jnp.ones(DIM)
    smoothed, data = built(MODELS["linear"], weight=20.0, smoothing=0.1)
    assert curvature(smoothed, data, theta) == curvature(smoothed.base, data.base, theta)
    capped, _ = built(MODELS["linear"], weight=20.0, smoothing=0.1, cap=2.0)
    assert curvature(capped, data, theta) > 2.0 * curvature(smoothed, data, theta)


def single_arm_posterior(weight):
    """One arm a round and no cap: a linear bonus, and a Gaussian posterior with mean V^-1 (b + w / eta sum phi)."""
    menus, _, rewards = rounds(1)
    features = menus[:, 0]
    V = 0.5 * np.eye(DIM) + features.T @ features
    return np.linalg.solve(V, features.T @ rewards + weight / 3.0 * features.sum(axis=0)), np.linalg.inv(3.0 * V)


def test_expectations_are_exact_where_the_bonus_is_linear():
    target, data = built(MODELS["linear"], num_arms=1, arms=1)
    mean, cov = single_arm_posterior(0.7)
    sqrt_cov = jnp.asarray(np.linalg.cholesky(cov), float)
    expected = target.expectations(jax.random.key(0), data, jnp.asarray(mean, float), sqrt_cov)
    np.testing.assert_allclose(expected.grad, 0.0, atol=2e-4)
    np.testing.assert_allclose(expected.hessian, np.linalg.inv(cov), rtol=1e-4, atol=1e-4)


def played(policy, arms=ARMS):
    """The state after all rounds."""
    state = policy.init(jax.random.key(100))
    for t, (menu, action, reward) in enumerate(zip(*rounds(arms), strict=True)):
        menu = jnp.asarray(menu, float)
        observation = Observation(menu[action], jnp.asarray(reward, float), jnp.asarray(action), menu)
        state, info = update(policy, jax.random.key(t), state, observation)
        assert not info.rejected
    return state


def test_both_samplers_find_the_shifted_gaussian():
    mean, cov = single_arm_posterior(2.0)
    settings = {"inverse_temperature": 3.0, "prior_precision": 0.5, "feel_good": 2.0, "num_arms": 1, "capacity": 16}
    model = MODELS["linear"]
    state = played(vits.make("fg_ts", model, sampler="vits", num_steps=400, **settings), arms=1)
    np.testing.assert_allclose(state.mean, mean, atol=2e-3)
    np.testing.assert_allclose(state.sqrt_cov @ state.sqrt_cov.T, cov, atol=2e-3)
    policy = vits.make("fg_ts", model, num_steps=200, step_size=0.1, **settings)
    state = played(policy, arms=1)
    keys = jax.random.split(jax.random.key(0), 4000)
    thetas = jax.jit(jax.vmap(lambda key: policy.posterior.advance(key, state)[0].theta))(keys)
    deviation = np.sqrt(np.diag(cov))
    # Standard errors over 4000 chains: 0.016 deviations and 1 %; a step of 0.1 / lmax widens by at most 3 %.
    assert np.max(np.abs(thetas.mean(0) - mean) / deviation) < 0.08
    assert np.max(np.abs(thetas.std(0) / deviation - 1.0)) < 0.07


SAMPLERS = [("langevin", 0.0), ("vits", 0.1)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("sampler", "smoothing"), SAMPLERS)
def test_without_weight_it_is_its_base(name, sampler, smoothing):
    settings = {"inverse_temperature": 3.0, "step_size": 0.5, "num_steps": 3}
    form = {"feel_good": 0.0, "smoothing": smoothing, "sampler": sampler, "num_arms": ARMS}
    mine = played(vits.make("fg_ts", MODELS[name], **form, **settings))
    theirs = played(vits.make({"langevin": "lmc_ts", "vits": "vits_ii"}[sampler], MODELS[name], **settings))
    for a, b in zip(jax.tree.leaves(mine[:-1]), jax.tree.leaves(theirs[:-1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("sampler", "smoothing"), SAMPLERS)
def test_numbers_that_are_not_finite_leave_no_trace(sampler, smoothing):
    policy = vits.make("fg_ts", MODELS["logistic"], sampler=sampler, smoothing=smoothing, num_arms=ARMS, num_steps=2)
    menu = jnp.asarray(rounds()[0][0], float)
    good = Observation(menu[0], jnp.asarray(1.0), jnp.asarray(0), menu)
    state, info = update(policy, jax.random.key(1), policy.init(jax.random.key(0)), good)
    assert not info.rejected
    for wrong in (np.nan, np.inf, -np.inf):
        for bad in (good._replace(reward=jnp.asarray(wrong)), good._replace(arms=menu.at[3, 2].set(wrong))):
            after, info = update(policy, jax.random.key(2), state, bad)
            assert info.rejected
            assert jax.tree.all(jax.tree.map(lambda a, b: jnp.array_equal(a, b), after, state))


def test_a_full_buffer_rejects_and_a_window_forgets():
    menus, actions, rewards = rounds()
    full = vits.make("fg_ts", MODELS["linear"], num_arms=ARMS, num_steps=1, capacity=2)
    state, rejected = full.init(jax.random.key(0)), []
    for t in range(4):
        menu = jnp.asarray(menus[t], float)
        observation = Observation(menu[actions[t]], jnp.asarray(rewards[t], float), jnp.asarray(actions[t]), menu)
        state, info = update(full, jax.random.key(t), state, observation)
        rejected.append(bool(info.rejected))
    assert rejected == [False, False, True, True]
    windowed, data = built(MODELS["linear"], window=ROUNDS - 1)
    target, rest = built(MODELS["linear"])
    theta = jnp.array([0.3, -1.0, 0.5, 0.2])
    total = rest.rounds.sum(lambda *rows: jax.grad(target._bonus)(theta, *rows))
    first = jax.grad(target._bonus)(theta, rest.rounds.features[:1], rest.rounds.rewards[:1], jnp.ones(1))
    kept = data.rounds.sum(lambda *rows: jax.grad(windowed._bonus)(theta, *rows))
    np.testing.assert_allclose(kept, total - first, rtol=1e-5, atol=1e-5)


def test_a_minibatch_stands_for_all_rounds():
    target, data = built(MODELS["linear"])
    target = replace(target, batch_size=3)
    theta = jnp.array([0.3, -1.0, 0.5, 0.2])

    def sampled(key):
        return target.grad(target.minibatch(key, data), theta)

    grads = jax.jit(jax.vmap(sampled))(jax.random.split(jax.random.key(0), 4000))
    error = jnp.abs(grads.mean(0) - grad(target, data, theta)) / (grads.std(0) / np.sqrt(4000.0))
    assert jnp.max(error) < 4.5


def test_wrong_settings_are_named():
    model = MODELS["linear"]
    policy = vits.make("fg_ts", model, num_arms=2)
    state = policy.init(jax.random.key(0))
    with pytest.raises(ValueError, match="needs the features of all arms of a round"):
        policy.update(jax.random.key(0), state, Observation(jnp.ones(DIM), jnp.asarray(1.0)))
    menu = jnp.ones((3, DIM))
    with pytest.raises(ValueError, match="num_arms must be at least the 3 arms of the round, but is 2"):
        policy.update(jax.random.key(0), state, Observation(menu[0], jnp.asarray(1.0), 0, menu))
    with pytest.raises(ValueError, match="unknown sampler 'hmc'; known: langevin, vits"):
        vits.make("fg_ts", model, sampler="hmc")
    with pytest.raises(ValueError, match="feel_good must be zero or a positive finite number, but is -1"):
        vits.make("fg_ts", model, feel_good=-1.0)
    with pytest.raises(ValueError, match="smoothing must be zero or a positive"):
        vits.make("fg_ts", model, smoothing=-0.1)


def regret_share(policy, zeta, horizon=300, seeds=10, **world):
    """Regret as a share of what uniform play has; no seed may fail."""
    environment = vits.environments.linear(zeta=zeta, **world)
    trace = vits.simulate(0, environment, policy, horizon, seeds=seeds)
    assert not trace.failed.any()
    assert np.max(trace.info.stiffness) < 1.0
    uniform = vits.simulate(0, environment, vits.make("uniform", policy.model), horizon, seeds=seeds)
    return trace.cumulative_regret[:, -1].mean() / uniform.cumulative_regret[:, -1].mean()


@pytest.mark.heavy
def test_a_small_linear_bandit_is_learnt():
    policy = vits.make("fg_ts", vits.models.linear(5), inverse_temperature=10.0, num_arms=10)
    assert regret_share(policy, 0.3, horizon=100, seeds=4, dim=5, num_arms=10) < 0.35


@pytest.mark.heavy
@pytest.mark.parametrize("zeta", [0.1, 1.0])
@pytest.mark.parametrize(("sampler", "smoothing"), SAMPLERS)
def test_the_linear_bandits_are_learnt(sampler, smoothing, zeta):
    form = {"sampler": sampler, "smoothing": smoothing, "num_arms": 50}
    policy = vits.make("fg_ts", vits.models.linear(20), inverse_temperature=100.0, **form)
    assert regret_share(policy, zeta) < 0.3


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", MODELS)
def test_where_rounds_are_alike_the_stored_ones_stand_for_all(name):
    """Ten rounds with the same menu, of which two are stored: U_fg is that of all ten, up to the expansion of U."""
    model, theta, count = MODELS[name], jnp.asarray([0.4, -0.3, 0.2, 0.1]), 10
    menus = jnp.broadcast_to(jnp.asarray(rounds()[0][0]), (count, ARMS, DIM))
    actions, rewards = jnp.arange(count) % ARMS, (jnp.arange(count) % 3 == 0).astype(float)

    def target(**options):
        base = potential(model, inverse_temperature=3.0, prior_precision=0.5, **options)
        return feel_good(base, model, weight=0.7, cap=0.6, smoothing=0.3, num_arms=ARMS, **options)

    def learned(target):
        data = target.init()
        for menu, action, reward in zip(menus, actions, rewards, strict=True):
            data = target.observe(data, Observation(menu[action], reward, action, menu), Centre(theta))
        return data

    folds, full = target(fold_after=2), target(capacity=count)
    stored, everything = learned(folds), learned(full)
    assert int(stored.rounds.count) == 2
    np.testing.assert_allclose(grad(folds, stored, theta), grad(full, everything, theta), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(hessian(folds, stored, theta), hessian(full, everything, theta), rtol=1e-9, atol=1e-9)
    bonus = [
        float(curvature(U, data, theta) - curvature(U.base, data.base, theta))
        for U, data in ((folds, stored), (full, everything))
    ]
    assert bonus[0] == pytest.approx(bonus[1], rel=1e-6)
    assert bonus[0] > 0.0
