"""Models with any pytree of parameters: neural networks, and a user's own likelihoods.

Posteriors see the parameters as one flat vector. A network whose parameters are all zero has no gradient, so these
models have their own starting point.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key, PyTree
from typing_extensions import override

from vits import validate
from vits.models.base import OutputModel, RewardModel
from vits.types import Scalar, Vector

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "square": jnp.square,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "sigmoid": jax.nn.sigmoid,
}


def flatten(params: PyTree[Any]) -> Vector:
    """All floating-point arrays of a pytree in one vector."""
    return ravel_pytree(eqx.filter(params, eqx.is_inexact_array))[0]


def unflatten(template: PyTree[Any], theta: Vector) -> PyTree[Any]:
    """The template with its floating-point arrays taken from a vector."""
    arrays, rest = eqx.partition(template, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(arrays)
    return eqx.combine(unravel(theta.astype(flat.dtype)), rest)


def away_from_zero(prior_mean: Vector, start: Vector) -> Vector:
    """The prior mean if it is not zero, else a starting point: a network at exactly zero never learns."""
    return jnp.where(jnp.any(prior_mean != 0.0), prior_mean, start)


class Network(eqx.Module):
    """A multilayer perceptron with one output, or one for each arm."""

    layers: tuple[eqx.nn.Linear, ...]
    activation: Callable[[Array], Array]

    def __call__(self, features: Float[Array, " dim"]) -> Float[Array, "*outputs"]:
        """The last layer is linear."""
        return self.layers[-1](self.hidden(features))

    def hidden(self, features: Float[Array, " dim"]) -> Float[Array, " width"]:
        """The last hidden layer."""
        for layer in self.layers[:-1]:
            features = self.activation(layer(features))
        return features

    def shifted(
        self, features: Float[Array, " dim"], shifts: Sequence[Float[Array, "..."]]
    ) -> tuple[Float[Array, "*outputs"], list[Float[Array, "..."]]]:
        """The output with a shift added to that of each layer, before the activation; and the inputs of all layers."""
        inputs = []
        for layer, shift in zip(self.layers, shifts, strict=True):
            inputs.append(features)
            output = layer(features) + shift
            features = self.activation(output)
        return output, inputs


class Mlp(OutputModel):
    """f = network(phi), Gaussian noise: nll = 1/2 (f - r)^2."""

    dim: int
    num_params: int
    network: Network

    def output(self, theta: Vector, features: Float[Array, " dim"]) -> Scalar:
        """The network with parameters theta."""
        pick = self._pick(features)
        return pick(unflatten(self.network, theta)(self._context(features)))

    def by_layers(
        self, theta: Vector, features: Float[Array, " dim"]
    ) -> tuple[Scalar, list[Float[Array, " _"]], list[Float[Array, " _"]]]:
        """The output f; for each layer df / dz of its outputs z before the activation; and the layers' inputs.

        df / dtheta is made of the outer products of the two.
        """
        pick, context, network = self._pick(features), self._context(features), unflatten(self.network, theta)

        def of(shifts: list[Float[Array, "..."]]) -> tuple[Scalar, tuple[Scalar, list[Float[Array, "..."]]]]:
            outputs, inputs = network.shifted(context, shifts)
            f = pick(outputs)
            return f, (f, inputs)

        widths = [() if layer.out_features == "scalar" else (layer.out_features,) for layer in network.layers]
        still = [jnp.zeros(width, theta.dtype) for width in widths]
        slopes, (f, inputs) = jax.grad(of, has_aux=True)(still)
        return f, [slope.reshape(-1) for slope in slopes], inputs

    def _context(self, features: Float[Array, " dim"]) -> Float[Array, " inputs"]:
        """What the network reads."""
        return features

    def _pick(self, features: Float[Array, " dim"]) -> Callable[[Float[Array, "*outputs"]], Scalar]:
        """Takes the output that belongs to the features."""
        return lambda outputs: outputs

    def loss(self, f: Float[Array, "*n"], reward: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """1/2 (f - r)^2."""
        return 0.5 * jnp.square(f - reward)

    def init_params(self, key: Key[Array, ""]) -> Vector:
        """Lecun's start: weights N(0, 1 / fan-in), biases 0."""
        lecun = jax.nn.initializers.lecun_normal(in_axis=-1, out_axis=-2)
        arrays = jax.tree.leaves(eqx.filter(self.network, eqx.is_inexact_array))
        keys = jax.random.split(key, len(arrays))
        return flatten(
            [
                lecun(key, array.shape, array.dtype) if array.ndim == 2 else jnp.zeros_like(array)
                for key, array in zip(keys, arrays, strict=True)
            ]
        )

    def start(self, key: Key[Array, ""], prior_mean: Vector) -> Vector:
        """Lecun's start, unless the prior mean is given and not zero."""
        return away_from_zero(prior_mean, self.init_params(key))


class Heads(Mlp):
    """f = output a of network(context), where the features of arm a are the context and, as the last one, a itself.

    All arms share the hidden layers, so that a context of d features takes d inputs for any number of arms.
    """

    @property
    @override
    def num_heads(self) -> int:
        return int(self.network.layers[-1].out_features)

    @override
    def _context(self, features: Float[Array, " dim"]) -> Float[Array, " inputs"]:
        return features[:-1]

    @override
    def _pick(self, features: Float[Array, " dim"]) -> Callable[[Float[Array, "*outputs"]], Scalar]:
        arm = features[-1].astype(int)
        # JAX clips an index that is out of range silently, so mark the output NaN.
        exists = (arm >= 0) & (arm < self.num_heads) & (features[-1] == arm.astype(features.dtype))
        return lambda outputs: jnp.where(exists, outputs[arm], jnp.nan)


class Custom(RewardModel):
    """A user's own likelihood, over parameters of any shape."""

    dim: int
    num_params: int
    params: PyTree[Any]
    mean_of: Callable[[PyTree[Any], Array], Array]
    nll_of: Callable[[PyTree[Any], Array, Array], Array]
    init_of: Callable[[Array], PyTree[Any]] | None

    def mean(self, theta: Vector, features: Float[Array, " dim"]) -> Scalar:
        """The user's `mean`."""
        return self.mean_of(unflatten(self.params, theta), features)

    def nll(self, theta: Vector, features: Float[Array, " dim"], reward: Scalar) -> Scalar:
        """The user's `nll`."""
        return self.nll_of(unflatten(self.params, theta), features, reward)

    def start(self, key: Key[Array, ""], prior_mean: Vector) -> Vector:
        """The user's starting point, unless the prior mean is given and not zero."""
        return away_from_zero(prior_mean, flatten(self.params if self.init_of is None else self.init_of(key)))


class CustomOutput(OutputModel):
    """The same for a likelihood that depends on the parameters through the mean: f = mean, nll = loss(f, r)."""

    dim: int
    num_params: int
    params: PyTree[Any]
    mean_of: Callable[[PyTree[Any], Array], Array]
    loss_of: Callable[[Array, Array], Array]
    init_of: Callable[[Array], PyTree[Any]] | None

    def output(self, theta: Vector, features: Float[Array, " dim"]) -> Scalar:
        """The user's `mean`."""
        return self.mean_of(unflatten(self.params, theta), features)

    def loss(self, f: Float[Array, "*n"], reward: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """The user's `loss`."""
        return self.loss_of(f, reward)

    def start(self, key: Key[Array, ""], prior_mean: Vector) -> Vector:
        """The user's starting point, unless the prior mean is given and not zero."""
        return away_from_zero(prior_mean, flatten(self.params if self.init_of is None else self.init_of(key)))


def mlp(
    dim: int,
    hidden: Sequence[int] = (20, 20),
    activation: str | Callable[[Array], Array] = "tanh",
    *,
    outputs: int | None = None,
) -> Mlp:
    """A neural network with Gaussian noise: `r = network(phi) + noise`.

    The prior is on all weights and biases, N(0, I / (lambda eta)) unless another is given. Since a network whose
    weights are all zero never learns, the mean of a posterior starts from Lecun's random weights; its covariance
    starts from the prior.

    Args:
        dim: number of features of an arm.
        hidden: widths of the hidden layers.
        activation: "tanh", "square", "relu", "gelu", "silu", "softplus", "sigmoid", or a function.
        outputs: number of arms, to give each arm its own output over shared hidden layers. `dim` is then the number of
            features of the context, and the features of arm a are the context followed by the number a.

    Example:
        >>> import vits
        >>> vits.models.mlp(20, hidden=(20, 20)).num_params
        861
        >>> shared = vits.models.mlp(9, hidden=(50,), outputs=7)
        >>> shared.num_params, shared.dim
        (857, 10)
    """
    dim = validate.count("dim", dim)
    if outputs is not None:
        outputs = validate.count("outputs", outputs)
    if not isinstance(hidden, Sequence):
        raise ValueError(f"hidden must be a list of widths, but is {validate.shown(hidden)}")
    widths = [validate.count("every width in hidden", width) for width in hidden]
    if isinstance(activation, str):
        activation = validate.choice("activation", activation, ACTIVATIONS)
    validate.shape("activation(array)", _result("activation(array)", activation, jnp.zeros(1)), (1,))
    num_params = sum((inputs + 1) * units for inputs, units in itertools.pairwise([dim, *widths, outputs or 1]))
    _check_fits(num_params, "use fewer or narrower layers")
    sizes: list[int | Any] = [dim, *widths, "scalar" if outputs is None else outputs]
    key = jax.random.key(0)  # only the shapes matter
    layers = tuple(eqx.nn.Linear(fan_in, fan_out, key=key) for fan_in, fan_out in itertools.pairwise(sizes))
    network = Network(layers, activation)
    return Mlp(dim, num_params, network) if outputs is None else Heads(dim + 1, num_params, network)


def custom(
    mean: Callable[[PyTree[Any], Array], Array],
    nll: Callable[[PyTree[Any], Array, Array], Array] | None = None,
    *,
    dim: int,
    loss: Callable[[Array, Array], Array] | None = None,
    num_params: int | None = None,
    params: PyTree[Any] = None,
    init_params: Callable[[Array], PyTree[Any]] | None = None,
) -> Custom | CustomOutput:
    """Any likelihood written in JAX, over a vector or any pytree of parameters.

    Args:
        mean: `mean(params, features)`, the expected reward; arms are ranked by it.
        nll: `nll(params, features, reward)`, the negative log likelihood, twice differentiable. It must be finite for
            features that are all zero, as in empty rows.
        dim: number of features of an arm.
        loss: `loss(mean, reward)` instead of `nll`, if the likelihood depends on the parameters only through the
            mean; it makes the Gauss-Newton curvature available.
        num_params: length of the parameter vector.
        params: instead, a pytree of parameters, such as an Equinox module. It is the starting point of posteriors
            whose prior mean is zero.
        init_params: `init_params(key)`, a random starting point like `params`, for use instead of it.

    Example:
        >>> import vits, jax.numpy as jnp
        >>> decay = lambda params, phi: params["scale"] * jnp.exp(-params["rate"] @ phi)
        >>> model = vits.models.custom(
        ...     decay,
        ...     loss=lambda mean, reward: 0.5 * (mean - reward) ** 2,
        ...     dim=3,
        ...     params={"scale": jnp.ones(()), "rate": jnp.zeros(3)},
        ... )
        >>> model.num_params
        4
    """
    dim = validate.count("dim", dim)
    if (nll is None) == (loss is None):
        raise ValueError("give either nll or loss, the negative log likelihood, but not both")
    if (num_params is None) == (params is None):
        raise ValueError("give either num_params or params, the shape of the parameters, but not both")
    if num_params is not None:
        num_params = validate.count("num_params", num_params)
        _check_fits(num_params, "use fewer")
        params = jnp.zeros(num_params)
    size = flatten(params).size
    if size == 0:
        raise ValueError("params must hold at least one floating-point array, but has none")
    if init_params is not None:
        start = eqx.filter(_result("init_params(key)", init_params, jax.random.key(0)), _is_number)
        found = sum(leaf.size for leaf in jax.tree.leaves(start))
        if found != size:
            raise ValueError(f"init_params(key) must return {size} parameters, but returns {found}")
        template = eqx.filter(params, eqx.is_inexact_array)
        shapes, expected = ([leaf.shape for leaf in jax.tree.leaves(tree)] for tree in (start, template))
        if num_params is None and shapes != expected:
            raise ValueError(f"init_params(key) must return arrays like those of params, {expected}, but {shapes}")
    features, number = jnp.zeros(dim), jnp.zeros(())
    _check_scalar("mean(params, features)", mean, params, features)
    if nll is not None:
        _check_scalar("nll(params, features, reward)", nll, params, features, number)
        return Custom(dim, size, params, mean, nll, init_params)
    assert loss is not None
    _check_scalar("loss(mean, reward)", loss, number, number)
    return CustomOutput(dim, size, params, mean, loss, init_params)


def _check_fits(num_params: int, instead: str) -> None:
    """Raise if memory cannot hold the parameters once, before they are made."""
    size = float(jnp.zeros(()).itemsize) * num_params
    validate.memory(f"a vector of {num_params:,} parameters", size, instead)


def _is_number(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _check_scalar(what: str, function: Callable[..., Any], *args: Any) -> None:
    """Raise unless a function of the user returns one real number."""
    found = _result(what, function, *args)
    shape = getattr(found, "shape", np.shape(found))
    if shape != ():
        raise ValueError(f"{what} must return one number, but returns an array of shape {shape}")
    validate.real(what, found)


def _result(what: str, function: Any, *args: Any) -> Any:
    """What a function of the user returns, as shapes and types; it is traced, not run."""
    if not callable(function):
        name = what.partition("(")[0]
        raise ValueError(f"{name} must be a function, called as {what}, but is {validate.shown(function)}")
    try:
        return eqx.filter_eval_shape(function, *args)
    except Exception as error:
        reason = " ".join(str(error).split())[: validate.LONGEST]
        raise ValueError(f"{what} must work on JAX arrays, but raised {type(error).__name__}: {reason}") from error
