"""MovieLens-1M: a million ratings of movies. Its licence forbids redistribution, so it is not part of this package.

Reference: Harper and Konstan, "The MovieLens datasets: history and context", ACM Transactions on Interactive
Intelligent Systems 5(4), 2015.
"""

import hashlib
import http.client
import io
import json
import re
import urllib.request
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from vits import files
from vits.datasets.factorise import Entries, Factors, alternating_least_squares

PAGE = "https://grouplens.org/datasets/movielens/1m/"
URL = "https://files.grouplens.org/datasets/movielens/ml-1m.zip"

RATINGS = "ratings.dat"
FOLDER = "ml-1m"
ARCHIVE = "ml-1m.zip"

TIMEOUT = 60.0
"""Seconds to wait for the publisher's server."""

NEUTRAL = 3.0
"""Subtracted from each rating, so that a dislike is negative."""

_LINE = re.compile(rb"(\d+)::(\d+)::(\d+)::(\d+)")


class Edition(NamedTuple):
    """The sizes of a complete copy, and the `md5` of its ratings file, None if any file is accepted."""

    md5: str | None
    num_ratings: int
    largest_user: int
    largest_movie: int


ML_1M = Edition("a89aa3591bc97d6d4e0c89459ff39362", 1_000_209, 6040, 3952)


class DownloadError(Exception):
    """The publisher could not be reached, or sent something else."""


class Ratings(NamedTuple):
    """All ratings, users and movies numbered from 0 in the order of their ids."""

    entries: Entries
    user_ids: Int[np.ndarray, " users"]
    movie_ids: Int[np.ndarray, " movies"]

    @property
    def shape(self) -> tuple[int, int]:
        """Users who rated something, movies that were rated."""
        return len(self.user_ids), len(self.movie_ids)


class Factorised(NamedTuple):
    """The checksum of a ratings file, and the factors of its ratings: `rows` are the users, `columns` the movies."""

    md5: str
    factors: Factors


class _Copy(NamedTuple):
    """The content of a ratings file, its checksum, and the name of the file for messages."""

    name: str
    content: bytes
    md5: str


def find(place: str | Path | None = None) -> Path:
    """The ratings file or the archive in a place, or an error that says how to get it.

    Args:
        place: the archive or the ratings file itself, the folder that one of them is in, or the folder of that folder;
            by default the environment variable VITS_DATA, or a folder in the user's cache.
    """
    place = files.data_folder() if place is None else Path(place)
    found = _look(place)
    if found is None:
        raise ValueError(
            f"{place} holds no MovieLens-1M, neither {RATINGS} nor {ARCHIVE}; `vits data movielens` downloads it, "
            "and --data or VITS_DATA says where a copy is"
        )
    return found


def load(place: str | Path | None = None, *, edition: Edition = ML_1M) -> Ratings:
    """The ratings in a place, checked to be complete and unchanged.

    Args:
        place: see `find`.
        edition: what a complete copy looks like.

    Returns:
        The ratings minus 3, of all users and movies that have ratings.
    """
    return _parse(_checked(_read(find(place)), edition))


def factorised(
    place: str | Path | None = None,
    *,
    dim: int = 5,
    ridge: float = 1.0,
    num_sweeps: int = 50,
    seed: int = 0,
    edition: Edition = ML_1M,
) -> Factorised:
    """A vector for every user and for every rated movie, by alternating least squares.

    The factors are stored in the cache folder under a hash of the ratings and of the settings.

    Args:
        place: see `find`.
        dim: length of the vectors.
        ridge: weight of the penalty.
        num_sweeps: sweeps over users, then movies.
        seed: of the start.
        edition: what a complete copy looks like.

    Returns:
        The factors, and the checksum of the ratings.
    """
    copy = _checked(_read(find(place)), edition)
    settings = {"dim": dim, "ridge": ridge, "num_sweeps": num_sweeps, "seed": seed}
    mark = hashlib.sha256(json.dumps([copy.md5, settings], sort_keys=True).encode()).hexdigest()
    file = files.cache_folder() / f"movielens-{mark[:32]}.npz"
    stored = _stored(file)
    if stored is not None:
        return Factorised(copy.md5, stored)
    ratings = _parse(copy)
    factors = alternating_least_squares(
        ratings.entries, ratings.shape, dim=dim, ridge=ridge, num_sweeps=num_sweeps, seed=seed
    )
    try:
        files.save_arrays(file, factors._asdict())
    except OSError as error:
        warnings.warn(f"the factors could not be stored, and will be computed again: {error}", stacklevel=2)
    return Factorised(copy.md5, factors)


def ensure(place: str | Path | None = None) -> Path:
    """The file that `find` finds, downloaded first if it is missing."""
    place = files.data_folder() if place is None else Path(place)
    return _look(place) or download(place)


def download(folder: Path, *, url: str = URL, edition: Edition = ML_1M) -> Path:
    """Fetch the archive from its publisher, check it and put it into a folder.

    Args:
        folder: where the archive goes; one that is there already is left alone.
        url: the archive's address.
        edition: what a complete copy looks like.

    Returns:
        The path of the archive.
    """
    target = folder / ARCHIVE
    if target.exists():
        raise ValueError(f"{target} exists and is not overwritten; move it away or choose another folder")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as response:
            content = response.read()
        _checked(_unpack(url, content), edition)
        files.write_atomically(target, content)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DownloadError(
            f"could not download {url} ({error}); with a browser, get {ARCHIVE} from {PAGE} and put it into {folder}"
        ) from error
    return target


def _look(place: Path) -> Path | None:
    candidates = (place, place / RATINGS, place / ARCHIVE, place / FOLDER / RATINGS)
    return next((path for path in candidates if path.is_file()), None)


def _read(path: Path) -> _Copy:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    return _unpack(str(path), content) if path.suffix == ".zip" else _copy(str(path), content)


def _unpack(name: str, archive: bytes) -> _Copy:
    member = f"{FOLDER}/{RATINGS}"
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            return _copy(f"{name}, {member}", opened.read(member))
    except KeyError:
        raise ValueError(f"{name} is not the archive of MovieLens-1M: it has no {member}") from None
    except (zipfile.BadZipFile, zlib.error, RuntimeError) as error:
        raise ValueError(f"{name} is damaged, or is no zip file: {error}") from None


def _copy(name: str, content: bytes) -> _Copy:
    return _Copy(name, content, hashlib.md5(content, usedforsecurity=False).hexdigest())


def _checked(copy: _Copy, edition: Edition) -> _Copy:
    """The same copy if it is as published; otherwise an error names the first difference."""
    if copy.md5 == edition.md5:
        return copy
    lines = copy.content.split(b"\n")
    rest = lines.pop()
    for number, line in enumerate(lines, 1):
        _check_line(f"{copy.name}, line {number}", line, edition)
    if rest:
        raise ValueError(f"{copy.name}, line {len(lines) + 1}: the file breaks off after '{_text(rest)}'")
    if len(lines) != edition.num_ratings:
        raise ValueError(f"{copy.name} must have {edition.num_ratings} lines, but has {len(lines)}")
    if edition.md5 is not None:
        raise ValueError(f"{copy.name} must have the md5 {edition.md5}, but has {copy.md5}: the file was changed")
    return copy


def _check_line(where: str, line: bytes, edition: Edition) -> None:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"{where}: must read user::movie::rating::timestamp, but is '{_text(line)}'")
    largest = {"user": edition.largest_user, "movie": edition.largest_movie, "rating": 5}
    for (field, most), digits in zip(largest.items(), match.groups(), strict=False):
        if not 1 <= int(digits) <= most:
            raise ValueError(f"{where}: the {field} must be between 1 and {most}, but is {int(digits)}")


def _text(line: bytes) -> str:
    return line.decode("latin-1").encode("unicode_escape").decode("ascii")


def _parse(copy: _Copy) -> Ratings:
    numbers = np.fromstring(copy.content.replace(b"::", b" ").decode("ascii"), dtype=np.int64, sep=" ")
    users, movies, values, _ = numbers.reshape(-1, 4).T
    user_ids, user = np.unique(users, return_inverse=True)
    movie_ids, movie = np.unique(movies, return_inverse=True)
    return Ratings(Entries(user, movie, values - NEUTRAL), user_ids, movie_ids)


def _stored(file: Path) -> Factors | None:
    """Stored factors; None if there are none or they cannot be read."""
    try:
        return Factors(**files.load_arrays(file))
    except (OSError, ValueError, TypeError):
        return None
