"""What only a staging directory can do wrong: links, things in the way, full disks, half-written files."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from _therock_utils import _folder, _source_file
from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    CancelledError,
    ConflictError,
    InputError,
    IntegrityError,
    LocalFileError,
    NotFoundError,
)
from _therock_utils._folder import TEMPORARY_NAME, BlockedPathError, Folder, NewFile, check_names
from _therock_utils._folder_lock import exclusive
from _therock_utils._local_backend import LocalStorageBackend
from _therock_utils._transfer_types import DownloadItem, ObjectFacts, Replacement, StoredObject, UploadItem
from _therock_utils.storage_location import StorageLocation
from fakes.contexts import TroubledBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _therock_utils._transfer_types import UploadResult


def at(key: str) -> StorageLocation:
    return StorageLocation("local", key)


def bytes_items(*keys: str) -> list[UploadItem]:
    return [UploadItem(key.encode(), at(key)) for key in keys]


def tree(root: Path) -> dict[str, bytes]:
    """Every file below `root`, temporary ones included."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def keys(result: UploadResult) -> list[str]:
    return [stored.location.relative_path for stored in result.stored]


def errors(result: UploadResult) -> dict[str, type[Exception]]:
    return {failed.location.relative_path: type(failed.error) for failed in result.failed}


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    return tmp_path / "staging"


@pytest.fixture
def backend(staging: Path) -> LocalStorageBackend:
    return LocalStorageBackend(staging)


@pytest.fixture(params=["descriptors", "paths"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test also in the way of platforms that cannot look up names in an open folder."""
    if request.param == "paths":
        monkeypatch.setattr(_folder, "_HAS_FOLDER_DESCRIPTORS", False)


# --- what is written -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("both_ways")
def test_files_and_bytes_arrive_byte_for_byte_with_their_digest(
    backend: LocalStorageBackend, staging: Path, tmp_path: Path
) -> None:
    data = os.urandom(3 * 1024 * 1024 + 1)
    (tmp_path / "big").write_bytes(data)
    result = backend.upload([UploadItem(tmp_path / "big", at("r/big.tar.zst")), UploadItem(b"<p>", at("index.html"))])
    assert tree(staging) == {"index.html": b"<p>", "r/big.tar.zst": data}
    page, big = result.stored
    assert (big.size_bytes, big.sha256, big.verified) == (len(data), hashlib.sha256(data).hexdigest(), "local")
    assert big.content_type == "application/zstd"
    assert (page.location, page.content_type) == (at("index.html"), "text/html; charset=utf-8")
    assert result.total_bytes == len(data) + 3


def test_an_items_own_content_type_wins(backend: LocalStorageBackend) -> None:
    (stored,) = backend.upload([UploadItem(b"", at("a.txt"), "text/x-own")]).stored
    assert stored.content_type == "text/x-own"


def test_the_bucket_plays_no_part_in_the_path(backend: LocalStorageBackend, staging: Path) -> None:
    backend.upload([UploadItem(b"x", StorageLocation("therock-ci-artifacts", "1-linux/a"))])
    assert tree(staging) == {"1-linux/a": b"x"}


def test_the_mode_of_a_stored_file_comes_from_the_umask_not_from_the_source(
    backend: LocalStorageBackend, staging: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "secret").chmod(0o700)
    before = os.umask(0o027)
    try:
        backend.upload([UploadItem(tmp_path / "secret", at("d/secret"))])
    finally:
        os.umask(before)
    assert stat.S_IMODE((staging / "d" / "secret").stat().st_mode) == 0o640
    assert stat.S_IMODE((staging / "d").stat().st_mode) == 0o750


def test_a_linked_staging_directory_is_the_users_choice(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "staging").symlink_to("real")
    assert keys(LocalStorageBackend(tmp_path / "staging").upload(bytes_items("a/b"))) == ["a/b"]
    assert tree(tmp_path / "real") == {"a/b": b"a/b"}


def test_two_items_with_one_destination_are_refused_before_anything_is_written(
    backend: LocalStorageBackend, staging: Path
) -> None:
    with pytest.raises(InputError, match="written twice"):
        backend.upload(bytes_items("b", "a", "b"))
    assert not staging.exists()


def test_the_root_of_the_bucket_is_no_object(backend: LocalStorageBackend, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        backend.upload([UploadItem(b"", at(""))])
    with pytest.raises(InputError):
        backend.put_new(at(""), b"", "")
    assert isinstance(backend.download([DownloadItem(at(""), tmp_path / "x")]).failed[0].error, InputError)


def test_names_kept_for_unfinished_files_are_no_keys(backend: LocalStorageBackend) -> None:
    name = ".therock-outputs-0123456789abcdef.partial"
    result = backend.upload(bytes_items(f"{name}/x", name, "y.partial"))
    assert errors(result) == {name: LocalFileError, f"{name}/x": LocalFileError}
    assert keys(result) == ["y.partial"]


# --- links and things in the way -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("both_ways")
def test_nothing_is_written_through_a_link_that_leaves_the_staging_directory(
    backend: LocalStorageBackend, staging: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (staging / "a").mkdir(parents=True)
    (staging / "out").symlink_to(outside)
    (staging / "a" / "up").symlink_to("../../outside")
    (staging / "file").symlink_to(outside / "file")
    result = backend.upload(bytes_items("out/x", "out/deep/x", "a/up/x", "file", "good"))
    assert set(errors(result).values()) == {BlockedPathError}
    assert keys(result) == ["good"]
    assert tree(outside) == {}
    assert not (outside / "file").exists()
    for failed in result.failed:
        assert "symbolic link" in failed.error.why
        assert failed.error.remedy
    with pytest.raises(BlockedPathError):
        backend.put_new(at("out/x"), b"", "")
    with pytest.raises(BlockedPathError):
        backend.copy_file(at("good"), at("a/up/x"))
    assert tree(outside) == {}


def test_a_folder_swapped_for_a_link_while_writing_does_not_lead_out(staging: Path, tmp_path: Path) -> None:
    (staging / "a").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    with Folder.open_below(staging, ["a"]) as folder, NewFile(folder) as new_file:
        (staging / "a").rename(staging / "moved")
        (staging / "a").symlink_to(tmp_path / "outside")
        new_file.write(b"x")
        new_file.publish("x")
    assert tree(staging) == {"moved/x": b"x"}
    assert tree(tmp_path / "outside") == {}


@pytest.mark.usefixtures("both_ways")
def test_a_file_where_a_folder_is_needed_and_the_reverse_fail_alone(
    backend: LocalStorageBackend, staging: Path
) -> None:
    (staging / "folder").mkdir(parents=True)
    (staging / "file").write_bytes(b"file")
    result = backend.upload(bytes_items("file/x/y", "folder", "good"))
    assert errors(result) == {"file/x/y": BlockedPathError, "folder": BlockedPathError}
    why = {failed.location.relative_path: failed.error.why for failed in result.failed}
    assert why == {
        "file/x/y": "it is a file, where a folder is needed",
        "folder": "it is a folder, where a file is needed",
    }
    assert keys(result) == ["good"]
    assert tree(staging) == {"file": b"file", "good": b"good"}


@pytest.mark.usefixtures("both_ways")
def test_a_staging_directory_that_is_a_file_is_an_error_not_a_conflict(tmp_path: Path) -> None:
    (tmp_path / "staging").write_bytes(b"")
    backend = LocalStorageBackend(tmp_path / "staging")
    assert set(errors(backend.upload(bytes_items("a", "b/c"))).values()) == {LocalFileError}
    with pytest.raises(LocalFileError):
        backend.put_new(at("a"), b"", "")
    with pytest.raises(LocalFileError):
        list(backend.list_objects(at("")))


def test_a_name_too_long_for_the_file_system_fails_alone_and_says_so(backend: LocalStorageBackend) -> None:
    result = backend.upload(bytes_items("x" * 300, "y"))
    assert keys(result) == ["y"]
    assert "no such long name" in result.failed[0].error.remedy


# --- sources ---------------------------------------------------------------------------------------------------------


def test_links_vanished_files_and_special_files_are_skipped_with_the_reason(
    backend: LocalStorageBackend, staging: Path, tmp_path: Path
) -> None:
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    sources = ["folder", "gone", "link", "pipe"]
    result = backend.upload([UploadItem(tmp_path / name, at(name)) for name in sources])
    assert [(Path(file.path).name, file.reason) for file in result.skipped] == [
        ("folder", "it is a folder"),
        ("gone", "it vanished before it was read"),
        ("link", "it is a symbolic link"),
        ("pipe", "it is a named pipe"),
    ]
    assert (result.stored, result.failed) == ((), ())
    assert not staging.exists()


def test_a_socket_is_skipped(backend: LocalStorageBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        (skipped,) = backend.upload([UploadItem(tmp_path / "socket", at("x"))]).skipped
    assert skipped.reason == "it is a socket"


def test_a_link_is_skipped_where_the_platform_cannot_refuse_to_follow_it(
    backend: LocalStorageBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").write_bytes(b"x")
    (tmp_path / "link").symlink_to("real")
    monkeypatch.delattr(os, "O_NOFOLLOW")
    monkeypatch.setattr(_source_file, "READ_FLAGS", os.O_RDONLY)
    (skipped,) = backend.upload([UploadItem(tmp_path / "link", at("x"))]).skipped
    assert skipped.reason == "it is a symbolic link"


def changing(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Call `change` after the first read of a file."""
    read, calls = os.read, iter([change])

    def read_then_change(descriptor: int, count: int) -> bytes:
        data = read(descriptor, count)
        next(calls, lambda: None)()
        return data

    monkeypatch.setattr(_source_file.os, "read", read_then_change)


@pytest.mark.parametrize("change", ["grow", "shrink", "rewrite"])
def test_a_file_that_changes_while_it_is_read_is_a_failure_and_leaves_nothing(
    backend: LocalStorageBackend, staging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    source = tmp_path / "log"
    source.write_bytes(b"x" * (_source_file.BUFFER_BYTES + 10))
    old = source.stat()

    def grow() -> None:
        with source.open("ab") as file:
            file.write(b"y" * 3 * _source_file.BUFFER_BYTES)

    def rewrite() -> None:
        with source.open("r+b") as file:
            file.write(b"z")
        os.utime(source, ns=(old.st_atime_ns, old.st_mtime_ns + 1_000_000))

    changes = {"grow": grow, "shrink": lambda: os.truncate(source, 5), "rewrite": rewrite}
    changing(monkeypatch, changes[change])
    result = backend.upload([UploadItem(source, at("log"))])
    assert errors(result) == {"log": IntegrityError}
    assert "changed while it was read" in result.failed[0].error.what
    assert tree(staging) == {}


def test_a_file_that_only_ever_grows_is_given_up_not_read_for_ever(
    backend: LocalStorageBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, read, reads = tmp_path / "log", os.read, []
    source.write_bytes(b"x")

    def read_then_grow(descriptor: int, count: int) -> bytes:
        reads.append(read(descriptor, count))
        with source.open("ab") as file:
            file.write(b"y" * min(len(reads), 50 - len(reads)))
        return reads[-1]

    monkeypatch.setattr(_source_file.os, "read", read_then_grow)
    assert errors(backend.upload([UploadItem(source, at("log"))])) == {"log": IntegrityError}
    assert len(reads) == 2


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_source_that_cannot_be_read_fails_alone(
    backend: LocalStorageBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    for name in ("bad", "good"):
        (tmp_path / name).write_bytes(b"x")
    open_file = os.open

    def open_or_fail(path: str | Path, *args: int, **options: int | None) -> int:
        if str(path).endswith("bad"):
            raise OSError(number, os.strerror(number))
        return open_file(path, *args, **options)

    monkeypatch.setattr(os, "open", open_or_fail)
    result = backend.upload([UploadItem(tmp_path / name, at(name)) for name in ("bad", "good")])
    assert errors(result) == {"bad": LocalFileError}
    assert keys(result) == ["good"]
    assert result.failed[0].error.why == os.strerror(number)


def test_a_source_that_breaks_off_fails_alone_and_leaves_nothing(
    backend: LocalStorageBackend, staging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    for name in ("bad", "good"):
        (tmp_path / name).write_bytes(b"x")
    changing(monkeypatch, fail)
    result = backend.upload([UploadItem(tmp_path / name, at(name)) for name in ("bad", "good")])
    assert errors(result) == {"bad": LocalFileError}
    assert tree(staging) == {"good": b"x"}


# --- faults of the destination ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_that_takes_no_more_is_told_once_and_leaves_no_half_file(
    backend: LocalStorageBackend, staging: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    write, room = os.write, [2]

    def write_until_full(descriptor: int, data: memoryview) -> int:
        if not room[0]:
            raise OSError(number, os.strerror(number))
        room[0] -= 1
        return write(descriptor, data[:3])

    monkeypatch.setattr(_folder.os, "write", write_until_full)
    result = backend.upload(bytes_items("a", "bb/b", "c", "d"))
    assert keys(result) == ["a"]
    assert errors(result) == dict.fromkeys(["bb/b", "c", "d"], LocalFileError)
    assert len({id(failed.error) for failed in result.failed}) == 1
    error = result.failed[0].error
    assert (error.exit_code, error.why) == (8, os.strerror(number))
    assert error.remedy
    assert tree(staging) == {"a": b"a"}


def test_a_file_that_the_system_refuses_to_make_so_large_fails_alone(tmp_path: Path) -> None:
    import resource
    import signal

    old_limit, old_handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, old_limit[1]))
    try:
        result = LocalStorageBackend(tmp_path).upload([UploadItem(b"x" * 200_000, at("big")), *bytes_items("small")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
        signal.signal(signal.SIGXFSZ, old_handler)
    assert errors(result) == {"big": LocalFileError}
    assert tree(tmp_path) == {"small": b"small"}


def test_a_folder_that_denies_writing_is_told_once(
    backend: LocalStorageBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(_folder.os, "mkdir", denied)
    result = backend.upload(bytes_items("d/a", "d/b"))
    assert [failed.error for failed in result.failed] == [result.failed[0].error] * 2
    assert "permission" in result.failed[0].error.remedy


# --- conflicts -------------------------------------------------------------------------------------------------------


def test_equal_bytes_are_no_conflict_and_are_left_alone(backend: LocalStorageBackend, staging: Path) -> None:
    backend.upload(bytes_items("a"))
    before = (staging / "a").stat()
    for on_conflict in ("overwrite", "skip", "error"):
        result = backend.upload(bytes_items("a"), on_conflict=on_conflict)
        assert (keys(result), result.conflicts) == (["a"], ())
        assert result.stored[0].sha256 == hashlib.sha256(b"a").hexdigest()
    after = (staging / "a").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("other", [b"other size", b"?"])
def test_with_overwrite_the_file_is_replaced_and_with_skip_it_stays(
    backend: LocalStorageBackend, staging: Path, other: bytes
) -> None:
    backend.upload([UploadItem(other, at("b"))])
    skipped = backend.upload(bytes_items("a", "b"), on_conflict="skip")
    assert (keys(skipped), [conflict.action for conflict in skipped.conflicts]) == (["a"], ["skipped"])
    assert tree(staging) == {"a": b"a", "b": other}
    replaced = backend.upload(bytes_items("a", "b"))
    assert (keys(replaced), [conflict.action for conflict in replaced.conflicts]) == (["a", "b"], ["overwritten"])
    assert tree(staging) == {"a": b"a", "b": b"b"}


@pytest.mark.parametrize("other", [b"other size", b"?"])
def test_with_error_nothing_at_all_is_written(backend: LocalStorageBackend, staging: Path, other: bytes) -> None:
    backend.upload([UploadItem(other, at("b"))])
    result = backend.upload(bytes_items("a", "b", "c"), on_conflict="error")
    assert result.stored == ()
    assert errors(result) == dict.fromkeys(["a", "b", "c"], ConflictError)
    (conflict,) = result.conflicts
    assert (conflict.location, conflict.state, conflict.origin, conflict.action) == (
        at("b"),
        "different",
        "",
        "refused",
    )
    assert tree(staging) == {"b": other}


def test_with_error_a_key_taken_in_the_meantime_is_refused_too(
    backend: LocalStorageBackend, staging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = backend._refusal

    def refusal_then_race(*args: object) -> object:
        found = refusal(*args)
        staging.mkdir()
        (staging / "b").write_bytes(b"late")
        return found

    monkeypatch.setattr(backend, "_refusal", refusal_then_race)
    result = backend.upload(bytes_items("a", "b"), on_conflict="error")
    assert (keys(result), errors(result)) == (["a"], {"b": ConflictError})
    assert [conflict.action for conflict in result.conflicts] == ["refused"]


def test_a_source_that_changes_between_looking_and_storing_stays_a_failure(
    backend: LocalStorageBackend, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    result = backend.upload([UploadItem(tmp_path / "gone", at("x")), *bytes_items("a")], on_conflict="error")
    assert keys(result) == ["a"]
    assert [file.reason for file in result.skipped] == ["it vanished before it was read"]


# --- put_new ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("both_ways")
def test_put_new_never_replaces(backend: LocalStorageBackend, staging: Path) -> None:
    stored = backend.put_new(at("r/x.json"), b"{}", "application/json")
    assert (stored.size_bytes, stored.sha256) == (2, hashlib.sha256(b"{}").hexdigest())
    with pytest.raises(ConflictError):
        backend.put_new(at("r/x.json"), b"[]", "application/json")
    assert tree(staging) == {"r/x.json": b"{}"}


@pytest.mark.parametrize("links", [True, False])
def test_of_many_who_put_new_at_once_exactly_one_wins(
    backend: LocalStorageBackend, staging: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(_folder.os, "link", no_links)
    start, wins = threading.Barrier(8), []

    def race(number: int) -> None:
        start.wait()
        try:
            backend.put_new(at("x"), str(number).encode(), "text/plain")
        except ConflictError:
            return
        wins.append(number)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 1
    assert tree(staging) == {"x": str(wins[0]).encode()}


def test_put_new_tells_a_full_disk(backend: LocalStorageBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_folder.os, "link", full)
    with pytest.raises(LocalFileError, match="No space left"):
        backend.put_new(at("x"), b"", "")


# --- replace_all and remove ------------------------------------------------------------------------------------------


def etag_of(backend: LocalStorageBackend, key: str) -> str:
    read = backend.read_small(at(key))
    assert read is not None
    return read.etag


def test_what_cannot_be_written_is_told_for_each_and_hides_no_other(
    backend: LocalStorageBackend, staging: Path, tmp_path: Path
) -> None:
    (staging / "folder" / "x").mkdir(parents=True)
    (staging / "link").symlink_to(tmp_path)
    backend.upload(bytes_items("file"))
    names = ["a", "folder", "link/x", "file/x", ".therock-outputs-0123456789abcdef.partial", "b"]
    outcomes = backend.replace_all([Replacement(at(name), b"x", "", "") for name in names])
    kinds = [StoredObject, ConflictError, BlockedPathError, BlockedPathError, LocalFileError, StoredObject]
    assert [type(outcome) for outcome in outcomes] == kinds
    assert tree(staging) == {"a": b"x", "b": b"x", "file": b"file"}
    assert not (tmp_path / "x").exists()


def test_after_a_cancel_in_their_midst_the_rest_is_told_and_not_written(tmp_path: Path) -> None:
    cancel, begun = CancelToken(), []

    def stop() -> None:
        begun.append(1)
        if len(begun) == 2:
            cancel.cancel(15)

    backend = TroubledBackend(tmp_path, on_replace=stop)
    outcomes = backend.replace_all([Replacement(at(name), b"x", "", "") for name in "abc"], cancel=cancel)
    assert [type(outcome) for outcome in outcomes] == [StoredObject, CancelledError, CancelledError]
    assert tree(tmp_path) == {"a": b"x"}


@pytest.mark.usefixtures("both_ways")
def test_only_the_version_that_was_read_is_removed_and_nothing_else(
    backend: LocalStorageBackend, staging: Path
) -> None:
    backend.upload(bytes_items("x/a", "x/b", "y"))
    with pytest.raises(ConflictError, match="no longer what it was"):
        backend.remove(at("x/a"), etag="0" * 64)
    backend.remove(at("x/a"), etag=etag_of(backend, "x/a"))
    backend.remove(at("x/a"), etag="0" * 64)
    assert tree(staging) == {"x/b": b"x/b", "y": b"y"}


def test_folders_that_are_left_empty_go_with_the_file_but_never_the_staging_directory(
    backend: LocalStorageBackend, staging: Path
) -> None:
    backend.upload(bytes_items("x/y/z/a", "x/b", "c/d"))
    backend.remove(at("x/y/z/a"), etag=etag_of(backend, "x/y/z/a"))
    assert sorted(path.name for path in staging.rglob("*")) == ["b", "c", "d", "x"]
    for key in ("x/b", "c/d"):
        backend.remove(at(key), etag=etag_of(backend, key))
    assert list(staging.iterdir()) == []


def test_a_folder_that_holds_anything_stays(backend: LocalStorageBackend, staging: Path, tmp_path: Path) -> None:
    backend.upload(bytes_items("x/y/a", "z/a"))
    (staging / "x" / "link").symlink_to(tmp_path)
    (staging / "z" / ".therock-outputs-0123456789abcdef.partial").write_bytes(b"another's")
    for key in ("x/y/a", "z/a"):
        backend.remove(at(key), etag=etag_of(backend, key))
    assert (staging / "x" / "link").is_symlink()
    assert not (staging / "x" / "y").exists()
    assert list(tree(staging)) == ["z/.therock-outputs-0123456789abcdef.partial"]


def test_a_folder_that_may_not_be_removed_is_left(
    backend: LocalStorageBackend, staging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    backend.upload(bytes_items("x/a"))
    etag = etag_of(backend, "x/a")
    monkeypatch.setattr(os, "rmdir", refuse)
    backend.remove(at("x/a"), etag=etag)
    assert [path.name for path in staging.rglob("*")] == ["x"]


@pytest.mark.usefixtures("both_ways")
def test_nothing_is_removed_through_a_link_and_no_link_is(
    backend: LocalStorageBackend, staging: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_bytes(b"a")
    staging.mkdir()
    (staging / "linked").symlink_to(outside)
    (staging / "link").symlink_to(outside / "a")
    (staging / "dangling").symlink_to(outside / "nowhere")
    os.mkfifo(staging / "pipe")
    (staging / "folder").mkdir()
    etag = hashlib.sha256(b"a").hexdigest()
    for key in ("linked/a", "link", "dangling", "pipe", "folder"):
        with pytest.raises(BlockedPathError):
            backend.remove(at(key), etag=etag)
    assert tree(outside) == {"a": b"a"}
    assert sorted(path.name for path in staging.iterdir()) == ["dangling", "folder", "link", "linked", "pipe"]


def test_a_folder_that_becomes_a_link_after_the_removal_leads_nowhere(
    backend: LocalStorageBackend, staging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside" / "y").mkdir(parents=True)
    backend.upload(bytes_items("x/y/a"))
    etag, remove = etag_of(backend, "x/y/a"), Folder.remove

    def remove_then_swap(folder: Folder, name: str) -> None:
        remove(folder, name)
        (staging / "x").rename(tmp_path / "moved")
        (staging / "x").symlink_to(tmp_path / "outside")

    monkeypatch.setattr(Folder, "remove", remove_then_swap)
    backend.remove(at("x/y/a"), etag=etag)
    assert (tmp_path / "outside" / "y").is_dir()
    assert (staging / "x").is_symlink()


def test_a_removal_waits_for_who_holds_the_folder_and_sees_what_they_wrote(
    backend: LocalStorageBackend, staging: Path
) -> None:
    backend.upload(bytes_items("x/a"))
    etag, held, outcomes = etag_of(backend, "x/a"), threading.Event(), []

    def remove() -> None:
        held.wait()
        try:
            backend.remove(at("x/a"), etag=etag)
        except ConflictError as error:
            outcomes.append(error)

    thread = threading.Thread(target=remove)
    thread.start()
    with Folder.open(staging / "x") as folder, exclusive(folder, CancelToken()):
        held.set()
        (staging / "x" / "a").write_bytes(b"written while it was held")
    thread.join()
    assert [type(outcome) for outcome in outcomes] == [ConflictError]
    assert tree(staging) == {"x/a": b"written while it was held"}


def test_a_file_that_cannot_be_removed_is_an_error(
    backend: LocalStorageBackend, staging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    backend.upload(bytes_items("x/a"))
    etag = etag_of(backend, "x/a")
    monkeypatch.setattr(Folder, "remove", refuse)
    with pytest.raises(LocalFileError, match="cannot be removed"):
        backend.remove(at("x/a"), etag=etag)
    assert tree(staging) == {"x/a": b"x/a"}


@pytest.mark.parametrize("call", ["upload", "put_new", "copy"])
def test_a_folder_that_another_removes_before_the_file_is_in_it_is_made_again(
    backend: LocalStorageBackend, staging: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    staging.mkdir()
    (staging / "a").write_bytes(b"a")
    open_new, removed = Folder.open_new, []

    def remove_first(folder: Folder, name: str) -> int:
        if folder.path != staging and len(removed) < 3:
            removed.append(name)
            folder.path.rmdir()
        return open_new(folder, name)

    monkeypatch.setattr(Folder, "open_new", remove_first)
    calls: dict[str, Callable[[], object]] = {
        "upload": lambda: backend.upload([UploadItem(b"a", at("x/y/b"))]),
        "put_new": lambda: backend.put_new(at("x/y/b"), b"a", ""),
        "copy": lambda: backend.copy_file(at("a"), at("x/y/b")),
    }
    calls[call]()
    assert len(removed) == 3
    assert tree(staging) == {"a": b"a", "x/y/b": b"a"}


def test_a_folder_that_is_removed_again_and_again_is_an_error_at_last(
    backend: LocalStorageBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> int:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(Folder, "open_new", gone)
    assert errors(backend.upload(bytes_items("x/a"))) == {"x/a": LocalFileError}


# --- listing ---------------------------------------------------------------------------------------------------------


def test_a_listing_has_s3s_order_and_every_objects_facts(backend: LocalStorageBackend, staging: Path) -> None:
    names = ["a/b", "a-b", "a.b", "a0", "a/c/d", "a/c.d", "b", "é", "\U0001f600", "\uffee"]
    backend.upload(bytes_items(*names))
    listed = list(backend.list_objects(at("")))
    assert [entry.location.relative_path for entry in listed] == sorted(names, key=str.encode)
    for entry in listed:
        path = entry.location.local_path(staging)
        assert (entry.size_bytes, entry.etag) == (path.stat().st_size, "")
        assert entry.modified.timestamp() == pytest.approx(path.stat().st_mtime)
        assert entry.modified.utcoffset() is not None


def test_a_listing_shows_neither_links_nor_special_files_nor_illegal_names_nor_unfinished_files(
    backend: LocalStorageBackend, staging: Path
) -> None:
    backend.upload(bytes_items("d/a"))
    (staging / "link").symlink_to("d/a")
    (staging / "linked").symlink_to("d")
    (staging / "d" / "loop").symlink_to("..")
    os.mkfifo(staging / "pipe")
    (staging / "back\\slash").write_bytes(b"")
    (staging / "d" / ".therock-outputs-0123456789abcdef.partial").write_bytes(b"")
    assert [entry.location.relative_path for entry in backend.list_objects(at(""))] == ["d/a"]


@pytest.mark.parametrize("key", ["nowhere", "a", "a/b", ""])
def test_where_nothing_is_a_listing_is_empty(backend: LocalStorageBackend, key: str) -> None:
    assert list(backend.list_objects(at(key))) == []
    if key:
        backend.upload(bytes_items("a"))
        assert list(backend.list_objects(at(key))) == []


def test_an_unfinished_file_is_never_listed(backend: LocalStorageBackend, staging: Path) -> None:
    staging.mkdir()
    with Folder.open(staging) as folder, NewFile(folder) as new_file:
        new_file.write(b"x")
        (path,) = staging.iterdir()
        assert TEMPORARY_NAME.fullmatch(path.name)
        assert list(backend.list_objects(at(""))) == []
    assert list(staging.iterdir()) == []


def test_an_unreadable_folder_or_a_linked_one_makes_listing_an_error(
    backend: LocalStorageBackend, staging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.upload(bytes_items("a", "d/a"))
    (staging / "link").symlink_to(tmp_path)
    with pytest.raises(BlockedPathError):
        list(backend.list_objects(at("link")))
    scandir = os.scandir

    def scandir_or_fail(path: Path) -> Iterator[os.DirEntry[str]]:
        if path.name == "d":
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scandir_or_fail)
    listing = backend.list_objects(at(""))
    assert next(listing).location == at("a")
    with pytest.raises(LocalFileError, match="Permission denied"):
        next(listing)


# --- downloading -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("both_ways")
def test_a_download_is_verified_before_it_has_its_name(backend: LocalStorageBackend, tmp_path: Path) -> None:
    backend.upload(bytes_items("good", "bad"))
    targets = tmp_path / "in" / "deep"
    targets.mkdir(parents=True)
    (targets / "bad").write_bytes(b"earlier")
    digest = hashlib.sha256(b"good").hexdigest()
    result = backend.download(
        [
            DownloadItem(at("bad"), targets / "bad", "0" * 64),
            DownloadItem(at("good"), targets / "new" / "good", digest.upper()),
        ]
    )
    (failed,) = result.failed
    assert (failed.path, type(failed.error)) == (str(targets / "bad"), IntegrityError)
    (file,) = result.downloaded
    assert (file.size_bytes, file.sha256) == (4, digest)
    assert tree(targets) == {"bad": b"earlier", "new/good": b"good"}


def test_what_is_no_object_is_not_found(backend: LocalStorageBackend, staging: Path, tmp_path: Path) -> None:
    backend.upload(bytes_items("file", "folder/x"))
    (staging / "link").symlink_to("file")
    expected = {"missing": NotFoundError, "no/where": NotFoundError, "file/x": NotFoundError, "link": BlockedPathError}
    items = [DownloadItem(at(key), tmp_path / "target") for key in [*expected, "folder"]]
    result = backend.download(items)
    found = {failed.location.relative_path: type(failed.error) for failed in result.failed}
    assert found == {**expected, "folder": BlockedPathError}
    assert not (tmp_path / "target").exists()


def test_an_object_that_cannot_be_opened_is_a_local_file_error(
    backend: LocalStorageBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    backend.upload(bytes_items("a"))
    monkeypatch.setattr(Folder, "open_to_read", denied)
    result = backend.download([DownloadItem(at("a"), tmp_path / "a")])
    assert [str(failed.error.why) for failed in result.failed] == ["Permission denied"]


# --- copying ---------------------------------------------------------------------------------------------------------


def test_a_copy_is_stored_with_its_size_and_a_missing_source_fails_alone(
    backend: LocalStorageBackend, staging: Path
) -> None:
    backend.upload(bytes_items("a/x.log"))
    result = backend.copy([(at("a/none"), at("b/none")), (at("a/x.log"), at("b/x.log"))])
    assert errors(result) == {"b/none": NotFoundError}
    assert [(stored.location, stored.size_bytes) for stored in result.stored] == [(at("b/x.log"), 7)]
    assert tree(staging) == {"a/x.log": b"a/x.log", "b/x.log": b"a/x.log"}


# --- dry run ---------------------------------------------------------------------------------------------------------


def test_a_dry_run_says_what_would_be_stored_and_writes_nothing(staging: Path, tmp_path: Path) -> None:
    LocalStorageBackend(staging).upload([UploadItem(b"old", at("x"))])
    backend = LocalStorageBackend(staging, dry_run=True)
    result = backend.upload([*bytes_items("new/a", "x"), UploadItem(tmp_path / "gone", at("gone"))])
    assert [(stored.location.relative_path, stored.verified) for stored in result.stored] == [
        ("new/a", "dry-run"),
        ("x", "dry-run"),
    ]
    assert result.stored[0].sha256 == hashlib.sha256(b"new/a").hexdigest()
    assert len(result.skipped) == len(result.conflicts) == 1
    assert backend.put_new(at("p"), b"1", "").verified == "dry-run"
    assert backend.put_new(at("q/p"), b"1", "").verified == "dry-run"
    with pytest.raises(ConflictError):
        backend.put_new(at("x"), b"1", "")
    assert backend.copy_files([(at("x"), at("y"))]) == 1
    assert tree(staging) == {"x": b"old"}
    assert list(staging.iterdir()) == [staging / "x"]


def test_a_dry_run_does_not_even_make_the_staging_directory(staging: Path) -> None:
    LocalStorageBackend(staging, dry_run=True).upload(bytes_items("a"))
    assert not staging.exists()


# --- cancelling ------------------------------------------------------------------------------------------------------


def test_a_cancel_stops_inside_a_file_and_leaves_nothing_half_written(
    backend: LocalStorageBackend, staging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "big").write_bytes(b"x" * 3 * _source_file.BUFFER_BYTES)
    cancel = CancelToken()
    changing(monkeypatch, lambda: cancel.cancel(15))
    result = backend.upload([UploadItem(tmp_path / "big", at("big")), *bytes_items("never")], cancel=cancel)
    assert errors(result) == {"big": CancelledError, "never": CancelledError}
    assert result.failed[0].error.exit_code == 143
    assert tree(staging) == {}


def test_bytes_are_not_written_after_a_cancel_in_their_turn(staging: Path) -> None:
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(CancelledError):
        LocalStorageBackend(staging)._upload_one(bytes_items("a")[0], "overwrite", [], cancel)
    assert tree(staging) == {}


def test_nothing_begins_after_a_cancel(backend: LocalStorageBackend, staging: Path, tmp_path: Path) -> None:
    cancel = CancelToken()
    backend.upload(bytes_items("a"))
    cancel.cancel()
    assert errors(backend.upload(bytes_items("b"), cancel=cancel)) == {"b": CancelledError}
    assert errors(backend.upload(bytes_items("b"), on_conflict="error", cancel=cancel)) == {"b": CancelledError}
    assert errors(backend.copy([(at("a"), at("b"))], cancel=cancel)) == {"b": CancelledError}
    assert isinstance(
        backend.download([DownloadItem(at("a"), tmp_path / "a")], cancel=cancel).failed[0].error, CancelledError
    )
    assert tree(staging) == {"a": b"a"}


# --- names that only Windows refuses ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a:b", "a?", 'q"', "x|y", "*", "<a>", "dot.", "space ", "NUL", "con.log", "COM1.txt"])
def test_names_that_windows_would_change_or_refuse_are_refused_there(name: str) -> None:
    check_names(Path(name), ["d", name], windows=False)
    with pytest.raises(LocalFileError, match="Windows"):
        check_names(Path(name), ["d", name], windows=True)


@pytest.mark.parametrize("name", ["a.log", "console.log", "COM10", "nul_x", ".ninja_log", "a b+#%~é"])
def test_other_names_are_fine_on_windows(name: str) -> None:
    check_names(Path(name), [name], windows=True)


# --- looking at single files -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("both_ways")
def test_what_is_no_file_is_not_found_or_refused(backend: LocalStorageBackend, staging: Path) -> None:
    (staging / "x" / "folder").mkdir(parents=True)
    (staging / "x" / "file").write_bytes(b"12")
    (staging / "x" / "link").symlink_to("file")
    (staging / "linked").symlink_to("x")
    os.mkfifo(staging / "x" / "pipe")
    found = backend.find(at("x/file"))
    assert found is not None
    assert (found.location, found.size_bytes, found.etag) == (at("x/file"), 2, "")
    for nothing in ("x/folder", "x", "x/file/below", "nowhere/at/all"):
        assert backend.find(at(nothing)) is None
    for refused in ("x/link", "x/pipe", "linked/file", "linked/nothing"):
        with pytest.raises(BlockedPathError):
            backend.find(at(refused))


def test_a_file_that_cannot_be_looked_at_is_an_error_and_hides_no_other(
    backend: LocalStorageBackend, staging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging.mkdir()
    (staging / "good").write_bytes(b"good")
    (staging / "link").symlink_to("good")
    asked = [at("good"), at("link"), at("missing"), at("good")]
    read = backend.read_all_small(asked)
    described = backend.describe(asked)
    for found in (read, described):
        assert [type(one).__name__ for one in (found[1], found[2])] == ["BlockedPathError", "NoneType"]
        assert found[0] == found[3]
    assert described[0] == ObjectFacts(at("good"), 4, hashlib.sha256(b"good").hexdigest(), "application/octet-stream")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Folder, "lookup", refuse)
    with pytest.raises(LocalFileError, match="Permission denied"):
        backend.find(at("good"))
    assert [type(one) for one in backend.read_all_small(asked[:1])] == [LocalFileError]
