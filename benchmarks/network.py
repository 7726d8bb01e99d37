"""VITS-II on the paper's network 20 -> 20 -> 20 -> 1, 861 parameters.

Measured are a step that uses 500 observations, and a round as in the preset `paper`: ten steps with 64 observations
each and an inverse that is frozen within the round.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import vits
from benchmarks.timing import Measurement, seconds_by_turn
from vits.policies import Thompson
from vits.types import Observation, State

DIM, HORIZON, STEPS, BATCH = 20, 1000, 10, 64
SETTLING = 20
"""Rounds until a posterior that got its data at once is close to one that learned them one by one."""


def rows(*, width: int = 20, rounds: int = 500, repeats: int = 20) -> list[Measurement]:
    """A step by parts, against the three products that the paper's recursion takes; a round; the memory of one seed."""
    policy = _policy(STEPS, width)
    potential = policy.posterior.potential
    state = _settled(policy, rounds)
    mean, B, data = state.mean, state.sqrt_cov, state.data
    points = jnp.stack([mean + B[0], mean - B[0]])

    @jax.jit
    def products(A: Any, B: Any, D: Any) -> Any:
        # As many products as a round has, one after the other, so that both sides take about as long: with A = I and
        # D D' = 2 I each product returns its input.
        return jax.lax.fori_loop(0, STEPS, lambda _, s: (A @ s[0], (s[1] @ s[1].T - A) @ s[1]), (B, D))

    hessian = eqx.filter_jit(lambda data, points: potential.derivatives(data, points).curvature.matrix)
    gradient = eqx.filter_jit(lambda data, points: jax.vmap(potential.grad, (None, 0))(data, points))
    identity, root_of_two = jnp.eye(mean.size), jnp.sqrt(2.0) * jnp.eye(mean.size)
    one_step, more_steps = (_round(_policy(steps, width), state, rounds) for steps in (1, STEPS + 1))
    works = {
        "products": lambda: jax.block_until_ready(products(identity, B, root_of_two)),
        "gradients": lambda: jax.block_until_ready(gradient(data, points)),
        "Gauss-Newton": lambda: jax.block_until_ready(hessian(data, points)),
        "one step": one_step,
        "more steps": more_steps,
    }
    seconds = seconds_by_turn(works, repeats=repeats)
    steps, three_products = (seconds["more steps"] - seconds["one step"]) / STEPS, seconds["products"] / STEPS
    # The median over turns, because the machine is never idle for a whole run of this length.
    ratio, step = float(np.median(steps / three_products)), float(np.median(steps))
    parts = ", ".join(f"{part} {1e3 * np.median(seconds[part]):.1f}" for part in ("gradients", "Gauss-Newton"))
    flops = 2.0 * mean.size**2 * (3 * mean.size + rounds)
    return [
        Measurement(
            what=f"vits_ii step, {mean.size} parameters, t={rounds} ({parts} ms)",
            ours=f"{1e3 * step:.1f} ms, {flops / step / 1e9:.0f} Gflop/s",
            reference=f"three products {1e3 * np.median(three_products):.1f} ms",
            ratio=f"{ratio:.2f}x",
            goal="<= 1.3x",
        ),
        *(_round_row(name, width, repeats) for name in ("vits_ii", "vits_ii_hf")),
        Measurement(
            what=f"memory of one seed, {mean.size} parameters, T={HORIZON}",
            ours=f"{_peak_memory(width):.2f} GiB",
            reference="",
            ratio="",
            goal="< 1 GiB",
        ),
    ]


def _round_row(name: str, width: int, repeats: int) -> Measurement:
    """A round of ten steps against the products that the recursion needs, in the same run."""
    form = {"curvature": "gauss_newton"} if name == "vits_ii" else {}
    policy = vits.make(
        name,
        vits.models.mlp(DIM, hidden=(width, width)),
        inverse_temperature=10.0,
        prior_precision=20.0,
        inverse="frozen",
        minibatch=BATCH,
        capacity=HORIZON,
        **form,
    )
    state = _settled(policy, 2 * BATCH)
    B, D = state.sqrt_cov, state.sqrt_precision
    # Hessian-free steps draw 20 directions, multiply B and D with them, and have a curvature of twice that rank.
    rank, directions = (BATCH, 0) if name == "vits_ii" else (40, 20)
    left = jax.random.normal(jax.random.key(0), (rank, len(B)))
    eps = jax.random.normal(jax.random.key(1), (directions, len(B)))

    @jax.jit
    def products(B: Any, D: Any) -> Any:
        def step(_: Any, carry: Any) -> Any:
            B, total = carry
            return B - 1e-9 * (left.T @ (left @ B)), total + eps @ B.T + eps @ D.T

        B, total = jax.lax.fori_loop(0, STEPS, step, (B, jnp.zeros_like(eps)))
        D = 2.0 * D - D @ (B.T @ D)
        return B, D, D.T @ B, total

    works = {"products": lambda: jax.block_until_ready(products(B, D)), "round": _round(policy, state, 2 * BATCH)}
    seconds = seconds_by_turn(works, repeats=2 * repeats)
    flops = 2.0 * len(B) ** 2 * (2 * STEPS * (rank + directions) + 3 * len(B))
    ratio, took = float(np.median(seconds["round"] / seconds["products"])), float(np.median(seconds["round"]))
    return Measurement(
        what=f"{name} round, {len(B)} parameters, {BATCH} observations a step, frozen inverse",
        ours=f"{1e3 * took:.1f} ms",
        reference=f"its products {1e3 * np.median(seconds['products']):.1f} ms, {flops / 1e9:.1f} Gflop",
        ratio=f"{ratio:.2f}x",
        goal="<= 1.5x",
    )


def _policy(num_steps: int, width: int) -> Thompson:
    return vits.algorithms.vits_ii(
        vits.models.mlp(DIM, hidden=(width, width)),
        curvature="gauss_newton",
        inverse_temperature=10.0,
        prior_precision=20.0,
        num_steps=num_steps,
        capacity=HORIZON,
    )


def _round(policy: Thompson, state: State, t: int) -> Any:
    update = eqx.filter_jit(policy.update)
    return lambda: jax.block_until_ready(update(jax.random.key(0), state, _observation(t))[0].mean)


def _observation(t: int) -> Observation:
    features = jax.random.normal(jax.random.key(t), (DIM,))
    return Observation(features, features[0] ** 2)


def _settled(policy: Thompson, rounds: int) -> State:
    """The posterior after `rounds` observations, all but the last of which it gets at once."""
    observations = [_observation(t) for t in range(rounds)]
    state = policy.init(jax.random.key(0))
    observe = eqx.filter_jit(policy.posterior.potential.observe)
    data = state.data
    for observation in observations[:-SETTLING]:
        data = observe(data, observation)
    state = state._replace(data=data)
    update = eqx.filter_jit(policy.update)
    for t, observation in enumerate(observations[-SETTLING:]):
        state, _ = update(jax.random.key(t), state, observation)
    return state


def _peak_memory(width: int) -> float:
    """Peak memory, in GiB, of a separate process that plays a few rounds with room for all of them."""
    command = [sys.executable, "-m", "benchmarks.network", str(width)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) / 2**20


if __name__ == "__main__":
    vits.simulate(0, vits.environments.quadratic(zeta=0.1), _policy(STEPS, int(sys.argv[1])), 5, seeds=1)
    # Not getrusage, whose maximum is inherited from the parent process.
    print(re.findall(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[0])
