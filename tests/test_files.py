"""Files: whole or not at all, on disk when the call returns, and readable by those who should read them."""

import os
import socket
import stat

import pytest

from vits import files


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask():
    """A function that sets the umask until the test ends."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize(
    ("mask", "public", "private"),
    [(0o022, 0o644, 0o600), (0o002, 0o664, 0o600), (0o077, 0o600, 0o600), (0, 0o666, 0o600)],
)
def test_permissions_follow_the_umask_and_private_files_are_the_owners_alone(mask, public, private, tmp_path, umask):
    umask(mask)
    path = tmp_path / "file"
    files.write_atomically(path, b"a")
    assert mode_of(path) == public
    files.write_atomically(path, b"b", private=True)
    assert mode_of(path) == private
    assert path.read_bytes() == b"b"


def test_a_stricter_umask_holds_for_private_files_too(tmp_path, umask):
    umask(0o277)
    files.write_atomically(tmp_path / "file", b"a", private=True)
    assert mode_of(tmp_path / "file") == 0o400


def test_the_file_is_synced_before_it_is_moved_and_its_folders_after(tmp_path, monkeypatch):
    events, sync, replace = [], os.fsync, os.replace

    def recorded_sync(handle):
        events.append(os.fstat(handle).st_ino)
        sync(handle)

    def recorded_replace(source, target):
        events.append("move")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_sync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    path = tmp_path / "file"
    files.write_atomically(path, b"a")
    assert events == [path.stat().st_ino, "move", tmp_path.stat().st_ino]
    events.clear()
    deep = tmp_path / "new" / "newer" / "file"
    files.write_atomically(deep, b"a")
    folders = [folder.stat().st_ino for folder in (deep.parent, deep.parent.parent, tmp_path)]
    assert events == [deep.stat().st_ino, "move", *folders]


def test_a_sync_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    files.write_atomically(path, b"old")

    def fail(handle):
        raise OSError("input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="input/output error"):
        files.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_only_regular_files_are_replaced(tmp_path, monkeypatch):
    (tmp_path / "target").write_bytes(b"kept")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # the address of a socket is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    kinds = {
        "link": "a symbolic link",
        "dangling": "a symbolic link",
        "folder": "a folder",
        "pipe": "a named pipe",
        "socket": "a socket",
    }
    before = {name: os.lstat(tmp_path / name) for name in kinds}
    for name, kind in kinds.items():
        with pytest.raises(ValueError, match=f"{name}' must be a regular file, but is {kind}$"):
            files.write_atomically(tmp_path / name, b"new")
    assert {name: os.lstat(tmp_path / name) for name in kinds} == before
    assert (tmp_path / "target").read_bytes() == b"kept"
    assert not files.unfinished(tmp_path)


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK])
def test_devices_are_not_replaced(kind, tmp_path, monkeypatch):
    path = tmp_path / "device"
    path.write_bytes(b"kept")
    real = os.lstat

    def lstat(asked, **options):
        found = real(asked, **options)
        if os.fspath(asked) != str(path):
            return found
        return os.stat_result((kind | 0o666, *tuple(found)[1:]))

    monkeypatch.setattr(os, "lstat", lstat)
    with pytest.raises(ValueError, match="must be a regular file, but is a device"):
        files.write_atomically(path, b"new")
    assert path.read_bytes() == b"kept"
