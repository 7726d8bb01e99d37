"""Latency of agents: what must hold so that calls are fast, stay fast, and change nothing else in the process."""

import subprocess
import sys

UNTOUCHED = """
import jax
before = dict(jax.config.values)
import vits
agent = vits.Agent("vits_ii", vits.models.logistic(2))
agent.learn(agent.decide([[1.0, 0.0], [0.0, 1.0]]), 1.0)
agent.posterior()
vits.simulate
assert dict(jax.config.values) == before, {k: v for k, v in jax.config.values.items() if v != before[k]}
assert jax.numpy.zeros(1).devices() == {jax.devices()[0]}
print("unchanged", len(before))
"""


def test_an_agent_leaves_every_setting_of_jax_as_it_was():
    found = subprocess.run([sys.executable, "-c", UNTOUCHED], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("unchanged")
    assert int(found.stdout.split()[1]) > 50
