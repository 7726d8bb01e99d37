import hashlib
import http.server
import io
import os
import threading
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from vits import files
from vits.datasets import movielens
from vits.datasets.factorise import Entries, alternating_least_squares

ML_1M = Path(os.environ.get("VITS_DATA") or Path(__file__).parent.parent.parent / "shared/data") / "ml-1m"
needs_data = pytest.mark.skipif(
    not (ML_1M / "ratings.dat").is_file(), reason=f"MovieLens-1M, which may not be passed on, is not at {ML_1M}"
)

LINES = ["1::10::5::978300760", "1::30::3::978302109", "2::10::1::978301968", "3::20::4::978300275"]
EDITION = movielens.Edition(md5=None, num_ratings=4, largest_user=3, largest_movie=30)


def text(lines=LINES, end="\n"):
    return "\n".join(lines) + end


def archive(content, member="ml-1m/ratings.dat"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(member, content)
    return buffer.getvalue()


def scrambled(content):
    """The same with the first bytes of its compressed part turned around."""
    begin = content.index(b"ratings.dat") + len(b"ratings.dat")
    return content[:begin] + bytes(255 - byte for byte in content[begin : begin + 8]) + content[begin + 8 :]


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("VITS_DATA", raising=False)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "ml-1m"
    folder.mkdir()
    (folder / "ratings.dat").write_text(text())
    return folder


def test_ratings_are_centred_and_ids_become_numbers_from_zero(folder):
    ratings = movielens.load(folder, edition=EDITION)
    assert ratings.shape == (3, 3)
    assert ratings.movie_ids.tolist() == [10, 20, 30]
    assert ratings.entries.row.tolist() == [0, 0, 1, 2]
    assert ratings.entries.column.tolist() == [0, 2, 0, 1]
    assert ratings.entries.value.tolist() == [2.0, 0.0, -2.0, 1.0]


def test_a_copy_is_found_in_a_folder_above_it_in_an_archive_and_by_the_environment_variable(folder, monkeypatch):
    zipped = folder.parent / "elsewhere" / "ml-1m.zip"
    zipped.parent.mkdir()
    zipped.write_bytes(archive(text()))
    expected = movielens.load(folder, edition=EDITION)
    for place in (folder / "ratings.dat", folder.parent, zipped, zipped.parent, str(zipped)):
        found = movielens.load(place, edition=EDITION)
        np.testing.assert_array_equal(found.entries, expected.entries)
    monkeypatch.setenv("VITS_DATA", str(folder))
    assert movielens.find() == folder / "ratings.dat"


def test_by_default_data_lie_in_the_users_cache_folder(tmp_path):
    assert files.data_folder() == tmp_path / "cache" / "vits" / "data"


def replaced(line, number):
    return text([*LINES[: number - 1], line, *LINES[number:]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (replaced("2::10::9::978301968", 3), "line 3: the rating must be between 1 and 5, but is 9"),
        (replaced("2::10::0::978301968", 3), "line 3: the rating must be between 1 and 5, but is 0"),
        (replaced("4::10::1::978301968", 3), "line 3: the user must be between 1 and 3, but is 4"),
        (replaced("2::31::1::978301968", 3), "line 3: the movie must be between 1 and 30, but is 31"),
        (replaced("2::10::1", 3), "line 3: must read user::movie::rating::timestamp, but is '2::10::1'"),
        (replaced("2::10::4.5::978301968", 3), "line 3: must read .*, but is '2::10::4.5::978301968'"),
        (text().replace("\n", "\r\n"), r"line 1: must read .*, but is '1::10::5::978300760\\r'"),
        (replaced("", 3), "line 3: must read user::movie::rating::timestamp, but is ''"),
        (text(end=""), "line 4: the file breaks off after '3::20::4::978300275'"),
        (text(LINES[:3]), "must have 4 lines, but has 3"),
        ("", "must have 4 lines, but has 0"),
    ],
)
def test_the_first_fault_is_named_with_file_line_and_value(folder, content, message):
    path = folder / "ratings.dat"
    path.write_text(content)
    with pytest.raises(ValueError, match=f"ratings.dat[, ]+{message}$"):
        movielens.load(folder, edition=EDITION)
    with pytest.raises(ValueError, match=f"ratings.dat[, ]+{message}$"):
        movielens.factorised(folder, edition=EDITION)
    assert path.read_bytes() == content.encode()


def test_a_file_that_was_changed_is_told_by_its_checksum(folder):
    content = text().encode()
    right = hashlib.md5(content).hexdigest()
    movielens.load(folder, edition=EDITION._replace(md5=right))
    (folder / "ratings.dat").write_text(replaced("2::10::2::978301968", 3))
    with pytest.raises(ValueError, match=f"must have the md5 {right}, but has [0-9a-f]{{32}}"):
        movielens.load(folder, edition=EDITION._replace(md5=right))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no zip", r"ml-1m\.zip is damaged, or is no zip file"),
        (archive(text(), "ml-20m/ratings.csv"), r"it has no ml-1m/ratings\.dat"),
        (archive(text())[:-30], r"ml-1m\.zip is damaged, or is no zip file"),
        (scrambled(archive(text(25 * LINES))), r"ml-1m\.zip is damaged, or is no zip file"),
    ],
)
def test_an_archive_that_is_none_is_refused(tmp_path, content, message):
    (tmp_path / "ml-1m.zip").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        movielens.load(tmp_path, edition=EDITION)


@pytest.mark.parametrize("place", ["nowhere", "."])
def test_where_there_is_nothing_the_message_says_how_to_get_it(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"holds no MovieLens-1M.*`vits data movielens` downloads it.*VITS_DATA"):
        movielens.load(place)


def test_factors_are_computed_once_and_the_stored_ones_are_the_same(folder, monkeypatch):
    fresh = movielens.factorised(folder, dim=2, edition=EDITION).factors
    (stored,) = files.cache_folder().iterdir()

    def computed_again(*args, **settings):
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(movielens, "alternating_least_squares", computed_again)
        again = movielens.factorised(folder / "ratings.dat", dim=2, edition=EDITION).factors
        np.testing.assert_array_equal(fresh.rows, again.rows)
        np.testing.assert_array_equal(fresh.columns, again.columns)
        with pytest.raises(AssertionError):  # other settings, other factors
            movielens.factorised(folder, dim=2, seed=1, edition=EDITION)
    for damaged in (None, b"", b"damaged", stored.read_bytes()[:100]):
        stored.unlink() if damaged is None else stored.write_bytes(damaged)
        np.testing.assert_array_equal(movielens.factorised(folder, dim=2, edition=EDITION).factors.rows, fresh.rows)


def test_where_nothing_can_be_stored_the_factors_are_computed_and_a_warning_given(folder, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="could not be stored"):
        assert movielens.factorised(folder, dim=2, edition=EDITION).factors.rows.shape == (3, 2)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The address of a folder served over HTTP on this machine, and the folder."""
    monkeypatch.setenv("no_proxy", "*")
    served = tmp_path / "served"
    served.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=served)) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", served
        running.shutdown()
        thread.join()


def test_a_download_is_checked_stored_and_never_written_over(server, tmp_path):
    address, served = server
    (served / "ml-1m.zip").write_bytes(archive(text()))
    edition = EDITION._replace(md5=hashlib.md5(text().encode()).hexdigest())
    path = movielens.download(tmp_path / "new" / "folder", url=f"{address}/ml-1m.zip", edition=edition)
    assert path == tmp_path / "new" / "folder" / "ml-1m.zip"
    assert movielens.load(path.parent, edition=edition).shape == (3, 3)
    path.write_bytes(b"mine")
    with pytest.raises(ValueError, match="exists and is not overwritten"):
        movielens.download(path.parent, url=f"{address}/ml-1m.zip", edition=edition)
    assert path.read_bytes() == b"mine"


@pytest.mark.parametrize("file", ["absent.zip", "changed.zip", "text.zip"])
def test_a_failed_download_leaves_nothing_and_says_what_to_do(server, tmp_path, file):
    address, served = server
    (served / "changed.zip").write_bytes(archive(replaced("2::10::9::978301968", 3)))
    (served / "text.zip").write_text("log in first")
    folder = tmp_path / "new"
    with pytest.raises(movielens.DownloadError, match=rf"{file} \(.*\); with a browser, get ml-1m.zip from https://"):
        movielens.download(folder, url=f"{address}/{file}", edition=EDITION)
    assert not folder.exists()


def test_what_is_there_is_not_downloaded(folder, monkeypatch):
    monkeypatch.setattr(movielens, "URL", "http://127.0.0.1:1/never")
    assert movielens.ensure(folder) == folder / "ratings.dat"


@needs_data
def test_movielens_is_complete_and_factorises_to_the_known_error():
    ratings = movielens.load(ML_1M)
    assert ratings.shape == (6040, 3706)
    assert len(ratings.entries.value) == 1_000_209
    # Ten sweeps reach 0.8134, the full fifty (below) 0.8126.
    factors = alternating_least_squares(ratings.entries, ratings.shape, num_sweeps=10)
    assert factors.rmse(ratings.entries) == pytest.approx(0.8134, abs=0.001)


@needs_data
@pytest.mark.heavy
def test_movielens_in_fifty_sweeps_has_an_error_of_0_813():
    ratings = movielens.load(ML_1M)
    factors = alternating_least_squares(ratings.entries, ratings.shape)
    assert factors.rmse(ratings.entries) == pytest.approx(0.813, abs=0.002)


def low_rank(seed=0, shape=(60, 40), dim=3, share=0.6):
    rng = np.random.default_rng(seed)
    P, Q = rng.normal(size=(shape[0], dim)), rng.normal(size=(shape[1], dim))
    row, column = np.nonzero(rng.uniform(size=shape) < share)
    return P @ Q.T, Entries(row, column, (P @ Q.T)[row, column])


def test_a_low_rank_matrix_is_recovered_where_it_is_unknown():
    matrix, known = low_rank()
    factors = alternating_least_squares(known, matrix.shape, dim=3, ridge=1e-6, num_sweeps=200)
    np.testing.assert_allclose(factors.rows @ factors.columns.T, matrix, atol=1e-3)


def test_a_sweep_is_a_ridge_regression_for_every_row_then_for_every_column():
    matrix, known = low_rank(share=0.2)
    order = np.random.default_rng(1).permutation(len(known.row))
    shuffled = Entries(known.row[order], known.column[order], known.value[order])
    factors = alternating_least_squares(shuffled, matrix.shape, dim=2, ridge=0.7, num_sweeps=1, seed=5)
    start = np.random.default_rng(5).uniform(-1.0, 1.0, (40, 2))

    def regressions(entries, others, count):
        fitted = np.zeros((count, 2))
        for i in range(count):
            X, y = others[entries.column[entries.row == i]], entries.value[entries.row == i]
            fitted[i] = np.linalg.solve(X.T @ X + 0.7 * np.eye(2), X.T @ y)
        return fitted

    rows = regressions(known, start, 60)
    np.testing.assert_allclose(factors.rows, rows, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(factors.columns, regressions(known.transposed, rows, 40), rtol=1e-9, atol=1e-12)


def test_what_nothing_is_known_of_is_zero():
    known = Entries(np.array([0, 2]), np.array([1, 1]), np.array([1.0, -1.0]))
    factors = alternating_least_squares(known, (4, 3), dim=2)
    assert np.all(factors.rows[[1, 3]] == 0)
    assert np.all(factors.columns[[0, 2]] == 0)
    assert np.all(np.any(factors.rows[[0, 2]] != 0, axis=1))


def test_the_start_is_seeded():
    _, known = low_rank()
    one, same, other = (alternating_least_squares(known, (60, 40), num_sweeps=2, seed=s).rows for s in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert not np.allclose(one, other)
