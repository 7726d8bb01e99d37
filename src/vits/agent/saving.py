"""Saving and loading agents: all of an agent as a JSON header and arrays.

A header is checked field by field, sizes are compared before anything is built from them, and the state must be a
possible one. So a file that was tampered with is refused in one sentence, or gives an agent that works.
"""

from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Shaped

from vits import catalogue, models
from vits.agent import container, invariants
from vits.agent.arms import Arm, FeatureMap
from vits.agent.container import Content, Damaged
from vits.agent.decisions import Ledger
from vits.agent.encoding import (
    decoded_model,
    decoded_settings,
    encoded_model,
    encoded_settings,
    entries,
    fields,
    flag,
    one_of,
    whole,
)
from vits.agent.saved_decisions import decoded_arm, decoded_ledger, encoded_arm, encoded_pending
from vits.agent.settings import Settings, slots_for
from vits.agent.snapshot import Counts, Snapshot, assembled
from vits.files import Arrays
from vits.policies import Policy

FIELDS = (
    *("algorithm", "model", "hyperparameters", "precision", "seed", "is_named", "per_arm", "has_features", "when_full"),
    *("arms", "slots", "capacity", "rows", "counts", "ledger", "pending"),
)
MENU_BYTES = 1 << 26
"""The most memory for the features of a decision that a small file may request."""

OLD_LEDGER = ("tag", "limit", "issued", "expired", "horizon")


def load(
    path: str | Path, model: models.RewardModel | None, features: FeatureMap | None, given: Mapping[str, Any]
) -> tuple[Snapshot, Ledger]:
    """The snapshot and the ledger of a saved agent."""
    content = container.read(path)
    try:
        return _decoded(content, model, features, given)
    except Damaged as error:
        raise ValueError(f"'{path}' is damaged: {error}") from error.__cause__


def encoded(snapshot: Snapshot, ledger: Ledger) -> tuple[dict[str, Any], Arrays]:
    """The header and the arrays of an agent."""
    settings, counts, content = snapshot.settings, snapshot.counts, ledger.content()
    hyperparameters, arrays = encoded_settings(settings.hyperparameters)
    pending, pending_arrays = encoded_pending(content.pop("pending"))
    header = {
        "algorithm": settings.algorithm,
        "model": encoded_model(settings.model),
        "hyperparameters": hyperparameters,
        "precision": str(settings.dtype),
        "seed": settings.seed,
        "is_named": settings.is_named,
        "per_arm": settings.per_arm,
        "has_features": settings.features is not None,
        "when_full": settings.when_full,
        "arms": [encoded_arm(arm) for arm in snapshot.arms.values()],
        "slots": snapshot.slots,
        "capacity": snapshot.capacity,
        "rows": snapshot.rows,
        "counts": counts._asdict() | {"by_arm": list(counts.by_arm.items())},
        "ledger": content,
        "pending": pending,
    }
    state = {f"state_{i}": np.asarray(array) for i, array in enumerate(snapshot.state_arrays)}
    return header, state | arrays | pending_arrays


def _decoded(
    content: Content, model: models.RewardModel | None, features: FeatureMap | None, given: Mapping[str, Any]
) -> tuple[Snapshot, Ledger]:
    header, arrays = _upgraded(content.header, content.version), dict(content.arrays)
    fields(header, "the header", *FIELDS)
    precision = str(jnp.zeros(()).dtype)
    saved = one_of(header["precision"], "the precision", ("float32", "float64"))
    if saved != precision:
        raise ValueError(f"the agent was saved in {saved}, but JAX computes in {precision} (jax_enable_x64)")
    is_named, per_arm, has_features = (flag(header[name], name) for name in ("is_named", "per_arm", "has_features"))
    if has_features != (features is not None):
        needed = "give it, load(path, features=...)" if has_features else "there was none when it was saved"
        raise ValueError(f"a feature map is not saved with an agent: {needed}")
    algorithm = one_of(header["algorithm"], "the algorithm", catalogue.ALGORITHMS)
    settings = Settings(
        algorithm,
        decoded_model(header["model"], model, algorithm, np.dtype(saved).itemsize, content.nbytes),
        decoded_settings(algorithm, header["hyperparameters"], arrays, given, content.nbytes),
        features,
        is_named,
        one_of(header["when_full"], "when_full", ("grow", "raise")),
        whole(header["seed"], "the seed", most=(1 << 32) - 1),
    )
    if per_arm != settings.per_arm or (has_features and not is_named):
        raise Damaged("arms with names must have a posterior each, a feature map, or an output each")
    counts = _decoded_counts(header["counts"])
    arms = _decoded_arms(header, settings, counts, content.nbytes)
    snapshot = _restored(header, arrays, settings, arms, counts)
    ledger = decoded_ledger(header, arrays, snapshot)
    if arrays:
        raise Damaged(f"it has {len(arrays)} arrays that do not belong to an agent")
    return snapshot, ledger


def _upgraded(header: Any, version: int) -> Any:
    """A header of an older version in the form of the newest; invalid content is detected later."""
    if version > 2 or not isinstance(header, dict):
        return header
    newer, counts = dict(header), header.get("counts")
    if "book" not in newer or not isinstance(counts, dict) or "next_born" not in counts:
        return newer
    old = fields(newer.pop("book"), "the ledger", *OLD_LEDGER)
    tag, limit, horizon = old[0], old[1], old[4]
    issued, expired = whole(old[2], "the number of decisions"), whole(old[3], "expired decisions")
    listed = [entries(entry, "a pending decision", 3) for entry in entries(newer.get("pending"), "pending decisions")]
    # A copy made by fork did not count the decisions that it inherited, but it counted those of them that expired.
    own = sum(str(entry[0]).startswith(f"{tag}-") for entry in listed)
    settled = max(0, issued - expired - own)
    newer["counts"] = {name: count for name, count in counts.items() if name != "next_born"}
    newer["counts"] |= {"arm_changes": counts["next_born"], "settled": settled}
    newer["pending"] = [[*entry, None] for entry in listed]
    newer["ledger"] = {
        "limit": limit,
        "issued": settled + expired + len(listed),
        "draws": issued,
        "horizon": horizon,
        "sessions": [[tag, 0, issued]] if issued else [],
    }
    return newer


def _decoded_counts(value: Any) -> Counts:
    found = dict(zip(Counts._fields, fields(value, "the counts", *Counts._fields), strict=True))
    pairs = [entries(pair, "an arm's count", 2) for pair in entries(found.pop("by_arm"), "the counts of arms")]
    by_arm = {whole(number, "the number of an arm"): whole(count, "an arm's count") for number, count in pairs}
    counts = Counts(**{name: whole(count, f"the count {name}") for name, count in found.items()}, by_arm=by_arm)
    if len(by_arm) < len(pairs) or sum(by_arm.values()) > counts.observations or counts.observations > counts.updates:
        raise Damaged("the counts of observations, of updates and of arms must fit each other")
    return counts


def _decoded_arms(header: Mapping[str, Any], settings: Settings, counts: Counts, nbytes: int) -> dict[Hashable, Arm]:
    # A decision makes a row of features for each posterior, and not every algorithm has an array of that length.
    most = max(nbytes, MENU_BYTES) // (settings.dim * settings.dtype.itemsize)
    slots = whole(header["slots"], "the number of posteriors", most=max(most, slots_for(0)))
    listed = [decoded_arm(arm, slots, counts) for arm in entries(header["arms"], "the arms")]
    arms = {arm.name: arm for arm in listed}
    least = slots_for(len(arms) if settings.per_arm else 0)
    if slots < least or slots & (slots - 1) or (slots > least and not settings.per_arm):
        raise Damaged(f"{slots} is not a number of posteriors for {len(arms)} arms")
    if len(arms) < len(listed) or len({arm.created for arm in listed}) < len(listed):
        raise Damaged("two arms have the same name or number")
    if settings.per_arm and len({arm.slot for arm in listed}) < len(listed):
        raise Damaged("two arms share one posterior")
    if not settings.per_arm and any(arm.slot for arm in listed):
        raise Damaged("an arm has a posterior where all arms share one")
    if not set(counts.by_arm) <= {arm.created for arm in listed} or (listed and not settings.is_named):
        raise Damaged("there are counts of arms, or arms, that cannot exist")
    return arms


def _restored(
    header: Mapping[str, Any],
    arrays: dict[str, Shaped[np.ndarray, "..."]],
    settings: Settings,
    arms: Mapping[Hashable, Arm],
    counts: Counts,
) -> Snapshot:
    slots = header["slots"]
    capacity = whole(header["capacity"], "the capacity", least=1, most=container.LARGEST)
    rows = whole(header["rows"], "the number of stored observations")
    if rows != (sum(counts.by_arm.values()) if settings.per_arm else counts.observations):
        raise Damaged("the number of stored observations must be the number of those that were learned")

    def policy() -> Policy:
        return settings.policy(slots, capacity)

    # First the shapes alone: they must be those of the arrays in the file before any memory is taken for them.
    shapes = _made(settings, lambda: jax.eval_shape(lambda key: policy().init(key), jax.random.key(0)))
    leaves, structure = jax.tree.flatten(shapes)
    found = [arrays.pop(f"state_{i}", None) for i in range(len(leaves))]
    if any(
        array is None or array.shape != leaf.shape or array.dtype != leaf.dtype
        for array, leaf in zip(found, leaves, strict=True)
    ):
        raise Damaged(f"its state is not one that {settings.algorithm} has in this version of vits")
    made = _made(settings, policy)
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(made) if isinstance(leaf, jax.Array)):
        raise Damaged(f"its settings are too large or too small for {settings.dtype}")
    invariants.check(
        jax.tree.unflatten(structure, found),
        made,
        observations=counts.observations,
        rows=rows,
        dim=settings.dim,
        reward_range=settings.model.reward_range,
    )
    state = jax.tree.unflatten(structure, [jnp.asarray(array) for array in found])
    return assembled(settings, slots, capacity, rows, made, state, arms, counts)


def _made(settings: Settings, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except ValueError as error:  # how arguments are refused
        reason = " ".join(str(error).split())[:200]
        raise Damaged(f"its settings do not make an agent of {settings.algorithm}, {reason}") from error
