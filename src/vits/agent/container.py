"""The file of a saved agent: one line with a version and a checksum, then an npz file of arrays and a JSON header.

Nothing in a file is executed. Reading a file allocates at most a small multiple of its size, whatever it contains.
"""

import hashlib
import io
import json
import math
import os
import re
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Shaped

from vits.files import Arrays, check_regular, write_atomically

MAGIC = b"vits-agent"
VERSION = 3
READABLE = (2, 3)
"""Format versions that can be read; the last one is written."""

LONGEST = 96
"""The most bytes of the first line."""

LARGEST = 1 << 40
"""Arrays must have fewer entries than this."""

MOST_ENTRIES = 1000
"""The most arrays of an agent."""

_KINDS = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
DTYPES = {dtype.str: dtype for dtype in (np.dtype(f"<{kind}") for kind in _KINDS)}
"""Numbers of at most 64 bits, the lowest byte first."""

ARRAY_HEADER = re.compile(rb"\{'descr': '([^']+)', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\), \} *\n")


class Damaged(ValueError):
    """The reason why a file is refused, without its name."""


class Content(NamedTuple):
    """The content of a file: the format version, the JSON header, the arrays, and the size in bytes."""

    version: int
    header: Any
    arrays: Arrays
    nbytes: int


def write(path: str | Path, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Write an agent: all of it or nothing, readable by the owner alone, and on disk when the call returns."""
    text = np.frombuffer(json.dumps(header, allow_nan=False).encode(), np.uint8)
    buffer = io.BytesIO()
    portable = {name: np.asarray(array, array.dtype.newbyteorder("<"), order="C") for name, array in arrays.items()}
    np.savez(buffer, allow_pickle=False, header=text, **portable)
    content = buffer.getvalue()
    write_atomically(Path(path), first_line(VERSION, content) + content, private=True)


def first_line(version: int, content: bytes) -> bytes:
    """The line in front of the arrays."""
    return b"%s %d %s\n" % (MAGIC, version, hashlib.sha256(content).hexdigest().encode())


def read(path: str | Path) -> Content:
    """The content of a file.

    Raises:
        ValueError: the file is not a saved agent, has another version, or is damaged.
    """
    check_regular(Path(path), os.stat(path).st_mode)
    raw = Path(path).read_bytes()
    first, newline, content = raw.partition(b"\n") if b"\n" in raw[:LONGEST] else (raw[:LONGEST], b"", b"")
    words = first.split(b" ")
    if words[0] != MAGIC or len(words) != 3 or not newline:
        raise ValueError(f"'{path}' is not a saved agent, or has lost its beginning")
    version = next((known for known in READABLE if words[1] == b"%d" % known), None)
    if version is None:
        raise ValueError(f"'{path}' has format version {_shown(words[1])}, {_what_to_do(words[1])}")
    if words[2] != hashlib.sha256(content).hexdigest().encode():
        raise ValueError(f"'{path}' is damaged: its content does not match its checksum")
    try:
        arrays = {name: _array(name, entry) for name, entry in _entries(content).items()}
        return Content(version, _json(arrays.pop("header", None)), arrays, len(raw))
    except Damaged as error:
        raise ValueError(f"'{path}' is damaged: {error}") from None


def _entries(content: bytes) -> dict[str, bytes]:
    """The members of an npz file, by name. They are stored, not compressed, so they cannot be larger than the file."""
    if content.count(b"PK\x01\x02") > MOST_ENTRIES:
        raise Damaged(f"it has more than {MOST_ENTRIES} entries")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1 for member in members):
                raise Damaged("an entry is compressed or encrypted")
            if sum(member.file_size for member in members) > len(content):
                raise Damaged("its entries claim to be larger than the file")
            if len({member.filename for member in members}) < len(members):
                raise Damaged("an entry is there twice")
            return {member.filename.removesuffix(".npy"): archive.read(member) for member in members}
    except (zipfile.BadZipFile, struct.error, RuntimeError, EOFError, OSError, ValueError, OverflowError) as error:
        raise error if isinstance(error, Damaged) else Damaged("its archive cannot be read") from None


def _array(name: str, entry: bytes) -> Shaped[np.ndarray, "..."]:
    """The array of an npy file. Its header is compared with the one form that is written, not evaluated."""
    length = int.from_bytes(entry[8:10], "little")
    found = ARRAY_HEADER.fullmatch(entry[10 : 10 + length])
    dtype = DTYPES.get(found[1].decode(errors="replace")) if found else None
    if not entry.startswith(b"\x93NUMPY\x01\x00") or found is None or dtype is None:
        raise Damaged(f"entry '{_shown(name)}' is not an array of numbers")
    shape = tuple(int(digits) for digits in re.findall(rb"\d+", found[3]))
    data = entry[10 + length :]
    if math.prod(shape) * dtype.itemsize != len(data) or math.prod(max(n, 1) for n in shape) > LARGEST:
        raise Damaged(f"entry '{_shown(name)}' has {len(data)} bytes, which do not make an array of shape {shape}")
    return np.ndarray(shape, dtype, data, order="F" if found[2] == b"True" else "C")


def _json(text: Shaped[np.ndarray, "..."] | None) -> Any:
    if text is None or text.dtype != np.uint8:
        raise Damaged("it has no header")
    try:
        return json.loads(text.tobytes().decode(), parse_constant=_refuse, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        raise Damaged("its header is not JSON") from None


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _shown(text: str | bytes) -> str:
    decoded = text.decode(errors="replace") if isinstance(text, bytes) else text
    return "".join(letter if letter.isprintable() else "?" for letter in decoded[:40])


def _what_to_do(version: bytes) -> str:
    if version == b"1":
        return "which is no longer read: load it with the vits that wrote it, or teach a new agent with partial_fit"
    return f"but this version of vits reads versions {' and '.join(map(str, READABLE))}: it may be from a newer one"
