"""Ways to change the file of a saved agent."""

import io
import json
import pickle
import random
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Shaped

from vits.agent import container

Change = Callable[[bytes, random.Random], bytes]
Members = dict[str, bytes]
"""The npy files of an archive."""

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    "",
    "x",
    "a\nb",
    [],
    {},
    [[]],
    -1,
    0,
    1,
    1.5,
    1e300,
    2**31,
    2**40,
    2**63,
    10**30,
)
NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e-30, 1e10, 1e30, 3e38)
WHOLE = (-1, 0, 1, 7, 10**6, 2**31 - 1, -(2**31))
DTYPES = ("<f2", "<f4", "<f8", "<i4", "<i8", "|u1", "|b1", "<c8", "|S4", "<U2", "<M8[s]")


def flipped(raw: bytes, chance: random.Random) -> bytes:
    """One to eight bytes changed."""
    changed = bytearray(raw)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(raw))] ^= chance.randint(1, 255)
    return bytes(changed)


def cut(raw: bytes, chance: random.Random) -> bytes:
    """The beginning of a file, or a file with a piece too many, or one with a piece missing."""
    a, b = sorted(chance.randrange(len(raw)) for _ in range(2))
    return chance.choice([raw[:a], raw + raw[a:b], raw[:a] + raw[b:], raw[:a] + raw[a:b] + raw[a:]])


def signed(change: Change) -> Change:
    """The same change of what follows the first line, with a checksum that matches."""

    def changed(raw: bytes, chance: random.Random) -> bytes:
        return sealed(change(raw.partition(b"\n")[2], chance))

    return changed


def sealed(content: bytes) -> bytes:
    """An archive with the first line that it should have."""
    return container.first_line(container.VERSION, content) + content


def header_changed(raw: bytes, chance: random.Random) -> bytes:
    """One or two values of the header replaced, removed, added, repeated or swapped."""
    members = unpacked(raw)
    header = json.loads(array_of(members["header"]).tobytes())
    for _ in range(chance.randint(1, 2)):
        _change_json(header, chance)
    text = json.dumps(header)
    if chance.random() < 0.05:
        text = chance.choice(
            [text.replace("0", "1e999", 1), "[" * 100_000, text[:-1] + ', "seed": 0}', text * 2, '"x"']
        )
    members["header"] = npy(np.frombuffer(text.encode(), np.uint8))
    return sealed(packed(members))


def sizes_claimed(raw: bytes, chance: random.Random) -> bytes:
    """A header that asks for far more memory than the file has."""
    members = unpacked(raw)
    header = json.loads(array_of(members["header"]).tobytes())
    size = chance.choice([10**3, 2**13, 10**5, 2**20, 10**7, 2**31, 2**40])
    what = chance.choice(["dim", "slots", "capacity", "hidden", "setting", "pending", "parameters"])
    if what == "dim":
        header["model"] |= {"dim": size, "num_params": size}
    elif what == "parameters":
        header["model"] |= {"num_params": size}
    elif what == "hidden":
        header["model"] = {"name": "mlp", "dim": 2, "hidden": [size], "activation": "tanh", "num_params": 4 * size + 1}
    elif what == "setting":
        name = chance.choice(["window", "fold_after", "num_arms", "num_members", "num_components", "capacity"])
        header["hyperparameters"][name] = {"value": size}
    elif what == "pending":
        header["pending"] = header["pending"] * (size % 10_000)
    else:
        header[what] = size
    if what in ("dim", "parameters") and chance.random() < 0.5:  # with an array to match, as far as one can be made
        count = min(size, 10**6)
        members["state_0"] = npy(np.zeros(count, np.float32))
    members["header"] = npy(np.frombuffer(json.dumps(header).encode(), np.uint8))
    return sealed(packed(members))


def array_changed(raw: bytes, chance: random.Random) -> bytes:
    """The values, the type or the shape of an array changed."""
    members = unpacked(raw)
    names = [name for name in members if name != "header"]
    if not names:
        return header_changed(raw, chance)
    name = chance.choice(names)
    array = np.array(array_of(members[name]))
    kind = chance.randrange(8)
    if kind == 0:
        with np.errstate(all="ignore"):
            array = array.astype(chance.choice(DTYPES[:7]))
        members[name] = npy(array)
    elif kind == 1:
        shapes = [(*array.shape, 1), (array.size,), array.shape[::-1], (0, *array.shape), array.shape[1:]]
        shape = chance.choice(shapes)
        members[name] = npy(np.resize(array, shape))
    elif kind == 2:
        members[name] = npy(array, descr=chance.choice(DTYPES))
    elif kind == 3:
        members[name] = npy(
            array, shape=chance.choice([(10**12,), (2**62, 2**62), (-1,), (1,) * 70, (array.size + 1,)])
        )
    else:
        _change_values(array, chance, kind)
        members[name] = npy(array)
    return sealed(packed(members))


def entries_changed(raw: bytes, chance: random.Random) -> bytes:
    """An entry dropped, repeated, added, renamed or swapped with another."""
    members = unpacked(raw)
    name, other = (chance.choice(list(members)) for _ in range(2))
    kind = chance.randrange(6)
    if kind == 0:
        del members[name]
    elif kind == 1:
        members[chance.choice(["state_99", "x", "setting_num_steps", "../x", "a" * 1000, "\u00e9\n"])] = members[name]
    elif kind == 2:
        members[chance.choice(["state_0", "state_1", "y"])] = members.pop(name)
    elif kind == 3:
        members[name], members[other] = members[other], members[name]
    elif kind == 4:
        return sealed(packed(members, twice=name))
    else:
        members[name] = chance.choice([b"", b"\x93NUMPY", members[name][: chance.randrange(200)], b"x" * 500])
    return sealed(packed(members))


def archive_changed(raw: bytes, chance: random.Random) -> bytes:
    """An archive that is compressed, a bomb, full of objects, or wrong in its own tables."""
    members = unpacked(raw)
    name = chance.choice(list(members))
    kind = chance.randrange(7)
    if kind == 0:
        return sealed(packed(members, compression=zipfile.ZIP_DEFLATED))
    if kind == 1:
        members[name] = bytes(chance.choice([10**6, 10**7]))
        return sealed(packed(members, compression=chance.choice([zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])))
    if kind == 2:
        buffer = io.BytesIO()
        np.save(buffer, np.array([{"a": 1}, print], object), allow_pickle=True)
        members[name] = chance.choice([buffer.getvalue(), pickle.dumps(print)])
        return sealed(packed(members))
    if kind == 3:
        text = chance.choice(["(" * 5000, "{'descr': __import__('os')}", "{}", "\u0100" * 100, "1" * 60_000])
        members[name] = b"\x93NUMPY\x01\x00" + len(text.encode()).to_bytes(2, "little") + text.encode()
        return sealed(packed(members))
    if kind == 4:
        return sealed(packed({f"state_{i}": npy(np.zeros(1)) for i in range(1500)} | members))
    content = bytearray(raw.partition(b"\n")[2])
    tables = content.find(b"PK\x01\x02")
    for _ in range(chance.randint(1, 4)):
        content[chance.randrange(tables, len(content))] = chance.choice([0, 1, 8, 0x7F, 0xFF])
    return sealed(bytes(content))


def unpacked(raw: bytes) -> Members:
    """The entries of a file that is right."""
    with zipfile.ZipFile(io.BytesIO(raw.partition(b"\n")[2])) as archive:
        return {name.removesuffix(".npy"): archive.read(name) for name in archive.namelist()}


def packed(members: Members, *, compression: int = zipfile.ZIP_STORED, twice: str | None = None) -> bytes:
    """An archive of entries, one of them perhaps repeated."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member, compress_type=compression)
        if twice is not None:
            archive.filelist.append(archive.filelist[list(members).index(twice)])
    return buffer.getvalue()


def array_of(member: bytes) -> Shaped[np.ndarray, "..."]:
    """The array of an npy file."""
    return np.load(io.BytesIO(member), allow_pickle=False)


def npy(array: Shaped[np.ndarray, "..."], *, descr: str | None = None, shape: tuple[int, ...] | None = None) -> bytes:
    """An npy file, whose header may say something else than its content is."""
    text = {"descr": descr or array.dtype.str, "fortran_order": False, "shape": shape or array.shape}
    line = f"{text}".replace("}", ", }").encode()
    line = line.ljust(-(-(len(line) + 11) // 64) * 64 - 11) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line + array.tobytes()


def _change_json(header: dict[str, Any], chance: random.Random) -> None:
    place, key = chance.choice(_places(header))
    value = place[key]
    kind = chance.randrange(8)
    if kind <= 2:
        place[key] = chance.choice(VALUES)
    elif kind == 3:
        del place[key]
    elif kind == 4 and isinstance(place, list):
        place.append(value)
    elif kind == 4:
        place[chance.choice(["x", "tuple", "value", "seed"])] = value
    elif kind == 5:
        other, name = chance.choice(_places(header))
        place[key], other[name] = other[name], json.loads(json.dumps(value))
    elif type(value) is int:
        place[key] = chance.choice([value + 1, value - 1, -value, 2 * value, float(value), str(value)])
    elif isinstance(value, str):
        place[key] = chance.choice([value[::-1], value + "-1", value.upper(), value * 50])
    else:
        place[key] = [value]


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Every value of a JSON document, as the container that it is in and its key there."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []
    return [(node, key) for key in keys] + [place for key in keys for place in _places(node[key])]


def _change_values(array: Shaped[np.ndarray, "..."], chance: random.Random, kind: int) -> None:
    if array.size == 0:
        return
    flat = array.reshape(-1)
    i, j = chance.randrange(array.size), chance.randrange(array.size)
    if kind == 4:
        flat[i], flat[j] = flat[j], flat[i] * np.asarray(2, array.dtype)
    elif kind == 5:
        flat[:] = flat[::-1].copy()
    elif array.dtype.kind == "f":
        flat[i : i + chance.choice([1, 1, 3])] = chance.choice(NUMBERS)
    else:
        flat[i] = chance.choice(WHOLE) % 256 if array.dtype.kind == "u" else chance.choice(WHOLE)


KINDS: list[tuple[str, Change]] = [
    ("bytes", flipped),
    ("bytes, signed", signed(flipped)),
    ("pieces", cut),
    ("pieces, signed", signed(cut)),
    ("header", header_changed),
    ("header", header_changed),
    ("sizes", sizes_claimed),
    ("arrays", array_changed),
    ("arrays", array_changed),
    ("entries", entries_changed),
    ("archive", archive_changed),
]
"""The changes, by name; all but two end in a checksum that matches."""
