"""Normals drawn in a row are those that JAX draws in the wanted shape."""

import jax
import numpy as np
import pytest

from vits.linalg import normal


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (2, 3, 4), (0, 3)])
def test_they_are_those_of_jax(shape: tuple[int, ...]) -> None:
    keys = jax.random.split(jax.random.key(3), 4)
    drawn = jax.vmap(lambda key: normal(key, shape))(keys)
    np.testing.assert_array_equal(drawn, jax.vmap(lambda key: jax.random.normal(key, shape))(keys))


def test_they_have_the_precision_asked_for() -> None:
    assert normal(jax.random.key(0), (2, 2), np.float16).dtype == np.float16
