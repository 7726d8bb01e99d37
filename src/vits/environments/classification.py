"""A labelled table as a bandit: the classes are the arms, and only the reward of the played arm is seen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from vits import validate
from vits.datasets import labelled, uci
from vits.datasets.records import Edition
from vits.environments.base import Environment
from vits.types import Round

Encoding = Callable[[Float[Array, " features"], int], Float[Array, "arms dim"]]

CLIP = 3.0
"""Standardised features are clipped here: a few of the shuttle's are a hundred standard deviations out."""

MUSHROOM_REWARDS = np.array([[[5.0, 0.0], [5.0, 0.0]], [[5.0, 0.0], [-35.0, 0.0]]])
"""[luck, class, arm]: eating (arm 0) pays 5, but a poisonous mushroom costs 35 half of the time; leaving it pays 0."""


class ClassificationParams(NamedTuple):
    """The order in which a seed sees the rows."""

    order: Int[Array, " rows"]


class Classification(Environment):
    """Round t shows row order[t], whose class determines the rewards of the arms.

    `rewards[luck, class, arm]` are equally likely outcomes. A round draws one of them, independently of the policy.
    """

    features: Float[Array, "rows features"]
    labels: Int[Array, " rows"]
    rewards: Float[Array, "luck classes arms"]
    encoding: Encoding
    num_arms: int
    dim: int

    def init(self, key: Key[Array, ""]) -> ClassificationParams:
        """A permutation of the rows."""
        return ClassificationParams(jax.random.permutation(key, self.labels.shape[0]))

    def draw(self, key: Key[Array, ""], params: ClassificationParams, t: Int[Array, ""]) -> Round:
        """Row order[t], and after the last row the first one again;  r_a = rewards[luck, class, a]."""
        row = params.order[t % self.labels.shape[0]]
        outcomes = self.rewards[:, self.labels[row]]
        luck = jax.random.randint(key, (), 0, self.rewards.shape[0])
        return Round(self.encoding(self.features[row], self.num_arms), jnp.mean(outcomes, axis=0), outcomes[luck])


def classification(features: Any, labels: Any, *, rewards: Any = None, encoding: str = "disjoint") -> Classification:
    """A contextual bandit from a labelled table: arm a pays rewards[y, a] for a row of class y, by default 1{a = y}.

    Every seed shuffles the rows in its own way. Regret is measured in expected rewards.

    Args:
        features: one row for each example, (rows, features).
        labels: the class of each row, whole numbers from 0.
        rewards: the reward of arm a for class y, (classes, arms); or (luck, classes, arms) for equally likely
            outcomes. By default the arms are the classes, and the right one pays 1, the others 0.
        encoding: "disjoint" puts the row into block a of arm a's features, zeros elsewhere, for one posterior that all
            arms share; "row" gives every arm the row itself, for policies with `per_arm=num_arms`; "head" gives arm a
            the row followed by the number a, for networks with one output per arm, `mlp(dim, outputs=num_arms)`.

    Example:
        >>> import numpy as np, vits
        >>> rows, labels = np.eye(3), np.array([0, 1, 1])
        >>> world = vits.environments.classification(rows, labels)
        >>> world.num_arms, world.dim
        (2, 6)
        >>> vits.environments.classification(rows, labels, encoding="row").dim
        3
        >>> vits.environments.classification(rows, [0, 1, 7], rewards=np.eye(2))
        Traceback (most recent call last):
        ValueError: labels must be whole numbers from 0 to 1, but row 2 has 7
    """
    encode = validate.choice("encoding", encoding, ENCODINGS)
    validate.shape("features", features, ("rows", "features"))
    validate.finite("features", features)
    num_rows, num_features = np.shape(features)
    validate.count("the number of rows", num_rows)
    validate.count("the number of features", num_features)
    validate.shape("labels", labels, (num_rows,))
    validate.real("labels", labels)
    table = _reward_table(labels, rewards)
    _check_labels(labels, table.shape[1])
    num_arms = table.shape[2]
    return Classification(
        features=jnp.asarray(features, float),
        labels=jnp.asarray(labels, int),
        rewards=jnp.asarray(table, float),
        encoding=encode,
        num_arms=num_arms,
        dim=encoded_dim(encoding, num_features, num_arms),
    )


def mushroom(
    place: str | Path | None = None,
    *,
    zero_one: bool = False,
    encoding: str = "disjoint",
    edition: Edition = uci.MUSHROOM,
) -> Classification:
    """Eat a mushroom (arm 0) or leave it (arm 1). An edible one pays 5; a poisonous one 5 or -35, each half the time.

    Leaving a mushroom pays 0. So eating a poisonous one has a regret of 15, and leaving an edible one a regret of 5.

    Args:
        place: where the data are, see `vits.datasets.uci.mushroom`.
        zero_one: pay 1 for eating an edible or leaving a poisonous mushroom, and 0 otherwise.
        encoding: see `classification`.
        edition: what a complete copy of the data looks like.

    Returns:
        An environment with 126 features for each of two arms.

    Example:
        >>> import vits
        >>> vits.environments.mushroom("nowhere")
        Traceback (most recent call last):
        ValueError: nowhere holds no agaricus-lepiota.data, ...

    Reference:
        Blundell, Cornebise, Kavukcuoglu and Wierstra, "Weight uncertainty in neural networks", ICML 2015.
    """
    table = uci.mushroom(place, edition=edition)
    rewards = np.eye(2) if zero_one else MUSHROOM_REWARDS
    return classification(table.features, table.labels, rewards=rewards, encoding=encoding)


def shuttle(
    place: str | Path | None = None,
    *,
    scaling: str = "standard",
    constant: bool = True,
    encoding: str = "disjoint",
    editions: tuple[Edition, Edition] = uci.SHUTTLE,
) -> Classification:
    """Tell which of seven states a shuttle's radiators are in. The right one pays 1. Four of five rows have one class.

    Args:
        place: where the data are, see `vits.datasets.uci.shuttle`.
        scaling: "standard", or "robust" for heavy tails; see `scaled`.
        constant: whether to add a tenth feature that is always 1. Networks have biases and do not need it.
        encoding: see `classification`.
        editions: what complete copies of the two files look like.

    Returns:
        An environment with ten features, or nine, for each of seven arms.

    Example:
        >>> import vits
        >>> vits.environments.shuttle("nowhere")
        Traceback (most recent call last):
        ValueError: nowhere holds no shuttle.trn, ...

    Reference:
        Riquelme, Tucker and Snoek, "Deep Bayesian bandits showdown", ICLR 2018.
    """
    table = uci.shuttle(place, editions=editions)
    rows = scaled(table.features, scaling)
    if constant:
        rows = np.column_stack([rows, np.ones(len(rows))])
    return classification(rows, table.labels, rewards=np.eye(uci.SHUTTLE_CLASSES), encoding=encoding)


def labelled_file(
    path: str | Path,
    *,
    label: int = -1,
    separator: str = ",",
    header: bool = False,
    scaling: str = "standard",
    encoding: str = "disjoint",
) -> Classification:
    """A contextual bandit from any text file with one labelled row a line, such as UCI's covertype.

    Columns of numbers are scaled. Any other column becomes one feature of 0 or 1 for each of its values.

    Args:
        path: the file.
        label: the column with the class, counted from 0, or from the end if negative. Classes are the arms, in sorted
            order, and the right one pays 1.
        separator: the text between two columns.
        header: whether the first line holds names.
        scaling: "standard", or "robust" for heavy tails; see `scaled`.
        encoding: see `classification`.

    Returns:
        An environment.

    Example:
        >>> import vits, tempfile, pathlib
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "leaves.csv"
        >>> _ = file.write_text("0.5,green,oak\\n0.1,red,elm\\n0.4,green,ash\\n")
        >>> world = vits.environments.labelled_file(file, encoding="row")
        >>> world.num_arms, world.dim
        (3, 3)
    """
    table = labelled.read(path, label=label, separator=separator, header=header)
    columns = [
        table.features[:, [i]] if name.startswith(labelled.VALUE_OF) else scaled(table.features[:, [i]], scaling)
        for i, name in enumerate(table.names)
    ]
    return classification(np.concatenate(columns, axis=1), table.labels, encoding=encoding)


def scaled(features: Float[np.ndarray, "rows features"], scaling: str) -> Float[np.ndarray, "rows features"]:
    """Columns with mean 0 and variance 1, clipped at three standard deviations.

    If a few rows are far out, "standard" squeezes the others together. "robust" first takes
    arcsinh((x - median) / (upper - lower quartile)), which is linear in the middle and logarithmic in the tails; a
    column whose quartiles are equal keeps its unit.
    """
    validate.choice("scaling", scaling, dict.fromkeys(("standard", "robust")))
    if scaling == "robust":
        lower, middle, upper = np.percentile(features, [25, 50, 75], axis=0)
        features = np.arcsinh((features - middle) / np.where(upper > lower, upper - lower, 1.0))
    spread = np.std(features, axis=0)
    return np.clip((features - np.mean(features, axis=0)) / np.where(spread > 0, spread, 1.0), -CLIP, CLIP)


def _disjoint(row: Float[Array, " features"], num_arms: int) -> Float[Array, "arms dim"]:
    return jnp.kron(jnp.eye(num_arms), row[None])


def _row(row: Float[Array, " features"], num_arms: int) -> Float[Array, "arms dim"]:
    return jnp.broadcast_to(row, (num_arms, row.shape[0]))


def _head(row: Float[Array, " features"], num_arms: int) -> Float[Array, "arms dim"]:
    return jnp.concatenate([_row(row, num_arms), jnp.arange(num_arms, dtype=row.dtype)[:, None]], axis=1)


ENCODINGS: dict[str, Encoding] = {"disjoint": _disjoint, "row": _row, "head": _head}


def encoded_dim(encoding: str, num_features: int, num_arms: int) -> int:
    """The number of features of an arm under an encoding."""
    return {"disjoint": num_features * num_arms, "row": num_features, "head": num_features + 1}[encoding]


def _reward_table(labels: Any, rewards: Any) -> Float[np.ndarray, "luck classes arms"]:
    validate.finite("rewards", [] if rewards is None else rewards)
    given = np.eye(max(int(np.max(labels)) + 1, 1)) if rewards is None else np.asarray(rewards, float)
    table = given[None] if given.ndim == 2 else given
    validate.shape("rewards", table, ("luck", "classes", "arms"))
    luck, classes, arms = table.shape
    if luck < 1 or classes < 1 or arms < 2:
        raise ValueError(f"there must be a class and at least two arms, but rewards have shape {table.shape}")
    return table


def _check_labels(labels: Any, num_classes: int) -> None:
    values = np.asarray(labels)
    known = np.isin(values, np.arange(num_classes))
    if not np.all(known):
        row = int(np.argmin(known))
        raise ValueError(f"labels must be whole numbers from 0 to {num_classes - 1}, but row {row} has {values[row]}")
