"""The wheel bandit: a rare region of the contexts in which one risky arm pays much more than the safe one."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from vits import validate
from vits.environments.base import Environment
from vits.environments.classification import ENCODINGS, Encoding, encoded_dim
from vits.types import Round, Scalar

NUM_ARMS = 5


class Wheel(Environment):
    """Contexts uniform on the unit disc. Arm 0 is safe; arms 1 to 4 belong to the four quadrants.

    Outside the radius delta, the arm of the context's quadrant pays `large`. The safe arm always pays `medium`, and
    everything else `small`; all with Gaussian noise. Rewards are divided by `unit`.
    """

    delta: Scalar
    small: Scalar
    medium: Scalar
    large: Scalar
    noise: Scalar
    encoding: Encoding
    num_arms: int
    dim: int

    def init(self, key: Key[Array, ""]) -> tuple[()]:
        """Nothing: all seeds play on the same wheel."""
        return ()

    def draw(self, key: Key[Array, ""], params: tuple[()], t: Int[Array, ""]) -> Round:
        """A context, and the expected reward and the reward of each arm."""
        place_key, noise_key = jax.random.split(key)
        area, turn = jax.random.uniform(place_key, (2,))
        radius, angle = jnp.sqrt(area), 2.0 * jnp.pi * turn  # uniform on the disc
        context = radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        means = self.means(context)
        noise = self.noise * jax.random.normal(noise_key, means.shape)
        return Round(self.encoding(context, self.num_arms), means, means + noise)

    def means(self, context: Float[Array, "2"]) -> Float[Array, " arms"]:
        """The expected reward of each arm. Quadrants: (+, +) arm 1, (+, -) arm 2, (-, +) arm 3, (-, -) arm 4."""
        is_left, is_below = (context <= 0.0).astype(int)
        quadrant = 1 + 2 * is_left + is_below
        is_far = jnp.linalg.norm(context) > self.delta
        arms = jnp.arange(self.num_arms)
        usual = jnp.where(arms == 0, self.medium, self.small)
        return jnp.where(is_far & (arms == quadrant), self.large, usual)


def wheel(
    delta: Scalar | float = 0.9,
    *,
    small: float = 1.0,
    medium: float = 1.2,
    large: float = 50.0,
    noise: float = 0.01,
    unit: float = 1.0,
    encoding: str = "disjoint",
) -> Wheel:
    """The wheel bandit. The larger delta, the rarer the contexts in which exploring pays.

    A context is uniform on the unit disc. Arm 0 pays `medium` everywhere. Each of the arms 1 to 4 pays `small`, but
    `large` in its own quadrant beyond the radius delta, a share 1 - delta^2 of all contexts.

    Args:
        delta: radius beyond which a risky arm pays `large`, between 0 and 1.
        small: mean reward of the risky arms elsewhere.
        medium: mean reward of the safe arm.
        large: mean reward of the right risky arm beyond delta.
        noise: standard deviation of all rewards.
        unit: rewards and regret are divided by this; networks learn best from rewards of about 1.
        encoding: how arms see the context; see `classification`.

    Returns:
        An environment with five arms and two features.

    Example:
        >>> import vits
        >>> vits.environments.wheel(delta=0.95, encoding="head").dim
        3
        >>> vits.environments.wheel(delta=2.0)
        Traceback (most recent call last):
        ValueError: delta must be between 0 and 1, but is 2.0

    Reference:
        Riquelme, Tucker and Snoek, "Deep Bayesian bandits showdown", ICLR 2018, section 5.4.
    """
    encode = validate.choice("encoding", encoding, ENCODINGS)
    for name, value in (("delta", delta), ("noise", noise), ("unit", unit)):
        validate.number(name, value)
    validate.finite("delta", delta)
    if not validate.is_traced(delta) and not 0.0 <= float(delta) <= 1.0:
        raise ValueError(f"delta must be between 0 and 1, but is {delta}")
    validate.finite("rewards", [small, medium, large])
    validate.not_negative("noise", noise)
    validate.positive("unit", unit)
    return Wheel(
        delta=jnp.asarray(delta, float),
        small=jnp.asarray(small / unit, float),
        medium=jnp.asarray(medium / unit, float),
        large=jnp.asarray(large / unit, float),
        noise=jnp.asarray(noise / unit, float),
        encoding=encode,
        num_arms=NUM_ARMS,
        dim=encoded_dim(encoding, 2, NUM_ARMS),
    )
