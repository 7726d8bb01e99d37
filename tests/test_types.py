import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("chosen", "kept"), [(None, "False"), ("1", "True")])
def test_calls_are_not_handed_to_another_thread_unless_the_user_says_so(chosen, kept):
    environment = {name: value for name, value in os.environ.items() if name != "JAX_CPU_ENABLE_ASYNC_DISPATCH"}
    if chosen is not None:
        environment["JAX_CPU_ENABLE_ASYNC_DISPATCH"] = chosen
    code = "import vits.models, jax; print(jax.config.read('jax_cpu_enable_async_dispatch'))"
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == kept
