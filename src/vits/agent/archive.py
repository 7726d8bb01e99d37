"""An agent as a header and arrays, and back."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vits import models
from vits.agent import mind, storage
from vits.agent.core import Core, Live
from vits.agent.decisions import Book, Pending
from vits.agent.diagnostics import Counts
from vits.agent.features import Arm, FeatureMap
from vits.agent.mind import Mind, Recipe
from vits.files import Arrays


def save(path: str | Path, core: Core) -> None:
    """Write an agent as it is now; decisions that are being made meanwhile may be missing."""
    with core.learning:
        header, arrays = _encoded(core)
    storage.write(path, header, arrays)


def load(path: str | Path, model: models.RewardModel | None, phi: FeatureMap | None, given: Mapping[str, Any]) -> Core:
    """The agent of a file."""
    header, arrays = storage.read(path)
    precision = str(jnp.zeros(()).dtype)
    if header["precision"] != precision:
        raise ValueError(
            f"'{path}' was saved in {header['precision']}, but JAX computes in {precision} (jax_enable_x64)"
        )
    if header["has_features"] != (phi is not None):
        needed = "give it, load(path, features=...)" if header["has_features"] else "there was none when it was saved"
        raise ValueError(f"a feature map is not saved with an agent: {needed}")
    recipe = Recipe(
        header["algorithm"],
        storage.decoded_model(header["model"], model),
        header["per_arm"],
        storage.decoded_settings(header["hyperparameters"], arrays, given),
    )
    roster = {arm.name: arm for arm in map(_decoded_arm, header["arms"])}
    counts = header["counts"] | {"by_arm": dict(header["counts"]["by_arm"])}
    return Core(
        seed=header["seed"],
        phi=phi,
        is_named=header["is_named"],
        when_full=header["when_full"],
        live=Live(_restored(path, recipe, header, arrays), roster),
        book=_restored_book(header, arrays),
        counts=Counts(**counts),
    )


def _encoded(core: Core) -> tuple[dict[str, Any], Arrays]:
    live, book = core.live, core.book
    recipe, waiting = live.mind.recipe, book.waiting()
    settings, arrays = storage.encoded_settings(recipe.hyperparameters)
    pending, pending_arrays = _encoded_pending(waiting)
    header = {
        "algorithm": recipe.algorithm,
        "model": storage.encoded_model(recipe.model),
        "hyperparameters": settings,
        "precision": str(core.dtype),
        "seed": core.seed,
        "is_named": core.is_named,
        "per_arm": recipe.per_arm,
        "has_features": core.phi is not None,
        "when_full": core.when_full,
        "arms": [_encoded_arm(arm) for arm in live.arms.values()],
        "slots": live.mind.slots,
        "capacity": live.mind.capacity,
        "rows": live.mind.rows,
        "counts": asdict(core.counts) | {"by_arm": list(core.counts.by_arm.items())},
        "book": {name: getattr(book, name) for name in ("tag", "limit", "issued", "expired", "horizon")},
        "pending": pending,
    }
    state = {f"state_{i}": np.asarray(array) for i, array in enumerate(live.mind.state_arrays)}
    return header, state | arrays | pending_arrays


def _restored(path: str | Path, recipe: Recipe, header: Mapping[str, Any], arrays: Arrays) -> Mind:
    policy = recipe.policy(header["slots"], header["capacity"])
    like = jax.eval_shape(policy.init, jax.random.key(0))
    leaves, structure = jax.tree.flatten(like)
    found = [arrays.get(f"state_{i}") for i in range(len(leaves))]
    fits = f"state_{len(leaves)}" not in arrays and all(
        array is not None and array.shape == leaf.shape and array.dtype == leaf.dtype
        for array, leaf in zip(found, leaves, strict=True)
    )
    if not fits:
        raise ValueError(f"'{path}' holds another state than {recipe.algorithm} has in this version of vits")
    state = jax.tree.unflatten(structure, [jnp.asarray(array) for array in found])
    return mind.assembled(recipe, header["slots"], header["capacity"], header["rows"], policy, state)


def _encoded_arm(arm: Arm | None) -> Any:
    return None if arm is None else [storage.encoded_name(arm.name), arm.slot, arm.born]


def _decoded_arm(value: Any) -> Any:
    return None if value is None else Arm(storage.decoded_name(value[0]), value[1], value[2])


def _encoded_pending(waiting: Mapping[str, Pending]) -> tuple[list[Any], Arrays]:
    entries = list(waiting.items())
    listed = [
        [name, [_encoded_arm(arm) for arm in one.arms], None if one.menu is None else len(one.menu)]
        for name, one in entries
    ]
    if not entries:
        return listed, {}
    arrays = {"pending_features": np.concatenate([one.features for _, one in entries])}
    menus = [one.menu for _, one in entries if one.menu is not None]
    return listed, arrays | ({"pending_menus": np.concatenate(menus)} if menus else {})


def _restored_book(header: Mapping[str, Any], arrays: Arrays) -> Book:
    saved = header["book"]
    book = Book(saved["tag"], saved["limit"])
    book.issued, book.expired, book.horizon = saved["issued"], saved["expired"], saved["horizon"]
    row = menu_row = 0
    for name, arms, menu_rows in header["pending"]:
        rows = arrays["pending_features"][row : row + len(arms)]
        row += len(arms)
        menu = None
        if menu_rows is not None:
            menu = arrays["pending_menus"][menu_row : menu_row + menu_rows]
            menu_row += menu_rows
        book.pending[name] = Pending(tuple(_decoded_arm(arm) for arm in arms), rows, menu)
    return book
