"""A folder that is held lets nobody else in, whichever way it is locked."""

from __future__ import annotations

import errno
import fcntl
import threading
from typing import TYPE_CHECKING

import pytest

from _therock_utils import _folder_lock
from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError, ConflictError, LocalFileError
from _therock_utils._folder import LOCK_NAME, Folder
from _therock_utils._folder_lock import exclusive
from _therock_utils.storage_backend import LocalStorageBackend
from _therock_utils.storage_location import StorageLocation

if TYPE_CHECKING:
    from pathlib import Path

AT = StorageLocation("local", "x/page")


@pytest.fixture(params=["flock", "file"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to lock: the second where the file system knows no flock."""
    if request.param == "file":

        def refuse(*_: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", refuse)
    return str(request.param)


def test_one_at_a_time_is_in_a_folder(way: str, tmp_path: Path) -> None:
    inside, seen = [], []

    def enter(number: int) -> None:
        with Folder.open(tmp_path) as folder, exclusive(folder, CancelToken()):
            inside.append(number)
            seen.append(len(inside))
            inside.remove(number)

    threads = [threading.Thread(target=enter, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 8
    assert list(tmp_path.iterdir()) == []


def test_what_holds_a_folder_shows_in_no_listing_and_a_cancel_ends_the_wait(way: str, tmp_path: Path) -> None:
    backend, cancel = LocalStorageBackend(tmp_path), CancelToken()
    backend.put_new(AT, b"one", "text/plain")
    with Folder.open(tmp_path / "x") as folder, exclusive(folder, CancelToken()):
        assert (tmp_path / "x" / LOCK_NAME).exists() is (way == "file")
        assert [listed.location for listed in backend.list_objects(StorageLocation("local", "x"))] == [AT]
        threading.Timer(0.1, cancel.cancel).start()
        with pytest.raises(CancelledError):
            backend.replace(AT, b"two", "text/plain", etag="x", cancel=cancel)
    with pytest.raises(ConflictError):
        backend.replace(AT, b"two", "text/plain", etag="x")
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["page"]


def test_a_folder_that_is_held_for_ever_is_told(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_folder_lock, "_LONGEST_WAIT_SECONDS", 0.1)
    with (
        Folder.open(tmp_path) as folder,
        exclusive(folder, CancelToken()),
        pytest.raises(LocalFileError, match="another process"),
    ):
        LocalStorageBackend(tmp_path).put_new(StorageLocation("local", "page"), b"", "text/plain")


def test_a_lock_that_fails_for_another_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(LocalFileError, match="Input/output error"):
        LocalStorageBackend(tmp_path).put_new(AT, b"", "text/plain")
