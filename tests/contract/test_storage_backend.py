"""One contract for every storage backend: what a caller may rely on, whatever lies behind it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    CancelledError,
    ConflictError,
    IllegalLocationError,
    InputError,
    IntegrityError,
    LocalFileError,
    NotFoundError,
    OutputsError,
)
from _therock_utils._files import walk_files
from _therock_utils._transfer_types import SMALL_OBJECT_LIMIT_BYTES, DownloadItem, UploadItem
from _therock_utils.content_types import infer_content_type
from fakes.storages import LocalStorage

if TYPE_CHECKING:
    from _therock_utils._transfer_types import OnConflict, UploadResult
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation
    from fakes.storages import S3Storage, Storage

HOSTILE_NAMES = [
    "a b+#?%~é:[x].log",
    "::error::x.log",
    "100%25.log",
    "a&b=c;d.log",
    "-rf",
    "$(touch x)`'\"",
    "\u65e5\u672c \U0001f600.txt",
    "..x",
    "<b>.html",
    "*",
]
RUN = "12345-linux"


def make_tree(root: Path) -> dict[str, bytes]:
    """A small tree with every kind of thing in it; its regular files as relative path -> bytes."""
    files = {
        "a.tar.xz": b"archive",
        "a.tar.xz.sha256sum": b"digest",
        "logs/build.log": b"log\n" * 1000,
        "logs/deep/er/x.log": b"",
        "logs/ccache/raw.log": b"raw",
        "logs/.ninja_log": b"ninja",
        "logs/random.bin": os.urandom(70_000),
        **{f"names/{name}": name.encode() for name in HOSTILE_NAMES},
    }
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (root / "logs" / "loop").symlink_to("..")
    (root / "logs" / "latest.log").symlink_to("build.log")
    os.mkfifo(root / "logs" / "pipe")
    return files


def below(prefix: str, files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{prefix}/{name}": data for name, data in files.items()}


def listed(backend: StorageBackend, location: StorageLocation) -> list[str]:
    return [entry.location.relative_path for entry in backend.list_objects(location)]


def bytes_items(storage: Storage, *keys: str, data: bytes | None = None) -> list[UploadItem]:
    return [UploadItem(key.encode() if data is None else data, storage.at(key)) for key in keys]


def stored_keys(result: UploadResult) -> list[str]:
    return [stored.location.relative_path for stored in result.stored]


def failures(result: UploadResult) -> dict[str, type[OutputsError]]:
    return {failed.location.relative_path: type(failed.error) for failed in result.failed}


# --- storing ---------------------------------------------------------------------------------------------------------


def test_a_directory_arrives_byte_for_byte_under_the_same_keys_everywhere(storage: Storage, tmp_path: Path) -> None:
    files = make_tree(tmp_path / "tree")
    assert storage.backend().upload_directory(tmp_path / "tree", storage.at(f"{RUN}/x")) == len(files)
    assert storage.contents() == below(f"{RUN}/x", files)


def test_every_stored_object_is_reported_with_size_digest_type_and_proof(storage: Storage, tmp_path: Path) -> None:
    files = make_tree(tmp_path / "tree")
    items = [UploadItem(path, storage.at(relative)) for path, relative in walk_files(tmp_path / "tree").files]
    result = storage.backend().upload([*items, UploadItem(b"<p>", storage.at("index.html"), "text/x-own")])
    expected = {**files, "index.html": b"<p>"}
    assert (result.failed, result.skipped, result.conflicts) == ((), (), ())
    assert stored_keys(result) == sorted(expected, key=str.encode)
    for stored in result.stored:
        key = stored.location.relative_path
        assert stored.location == storage.at(key)
        assert (stored.size_bytes, stored.sha256) == (len(expected[key]), hashlib.sha256(expected[key]).hexdigest())
        assert stored.content_type == ("text/x-own" if key == "index.html" else infer_content_type(key))
        assert stored.verified == ("local" if storage.kind == "local" else "sha256-single")
    assert result.total_bytes == sum(map(len, expected.values()))


def test_an_object_of_several_parts_arrives_whole(storage: Storage, tmp_path: Path) -> None:
    data = os.urandom(1024 * 1024) * 20 + b"end"
    (tmp_path / "big").write_bytes(data)
    (stored,) = storage.backend().upload([UploadItem(tmp_path / "big", storage.at("big.tar.zst"))]).stored
    assert (stored.size_bytes, stored.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert stored.verified in {"local", "sha256-parts", "size-only"}
    assert storage.contents() == {"big.tar.zst": data}


def test_one_file_and_several_files_can_be_stored(storage: Storage, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode())
    backend = storage.backend()
    backend.upload_file(tmp_path / "a", storage.at("x/one"))
    assert backend.upload_files((tmp_path / name, storage.at(f"y/{name}")) for name in ("a", "b")) == 2
    assert storage.contents() == {"x/one": b"a", "y/a": b"a", "y/b": b"b"}


def test_nothing_to_store_is_no_error(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert storage.backend().upload_directory(tmp_path / "empty", storage.at("x")) == 0
    assert storage.backend().upload([]).stored == ()


def test_a_missing_directory_is_an_error(storage: Storage, tmp_path: Path) -> None:
    with pytest.raises(LocalFileError):
        storage.backend().upload_directory(tmp_path / "missing", storage.at("x"))


def test_storing_the_same_again_changes_nothing_and_is_no_conflict(storage: Storage, tmp_path: Path) -> None:
    files = make_tree(tmp_path / "tree")
    items = [UploadItem(path, storage.at(f"{RUN}/{name}")) for path, name in walk_files(tmp_path / "tree").files]
    modes: list[OnConflict] = ["overwrite", "error", "skip", "overwrite"]
    results = [storage.backend().upload(items, on_conflict=mode) for mode in modes]
    assert all(result == results[0] for result in results)
    assert not results[0].conflicts
    assert storage.contents() == below(RUN, files)


def test_what_fails_is_reported_while_the_others_are_stored(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"good")
    (tmp_path / "link").symlink_to("good")
    sources = ["good", "gone", "link"]
    items = [UploadItem(tmp_path / name, storage.at(f"x/{name}")) for name in sources]
    result = storage.backend().upload([*items, *bytes_items(storage, "x/bytes")])
    assert stored_keys(result) == ["x/bytes", "x/good"]
    assert [Path(file.path).name for file in result.skipped] == ["gone", "link"]
    assert all(file.reason for file in result.skipped)
    assert result.failed == ()
    assert storage.contents() == {"x/bytes": b"x/bytes", "x/good": b"good"}


def test_an_unreadable_file_fails_alone(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bad", "good"):
        (tmp_path / name).write_bytes(name.encode())
    open_file = os.open

    def open_or_fail(path: str | Path, *args: int, **options: int | None) -> int:
        if str(path) == str(tmp_path / "bad"):
            raise PermissionError(13, "Permission denied")
        return open_file(path, *args, **options)

    monkeypatch.setattr(os, "open", open_or_fail)
    result = storage.backend().upload([UploadItem(tmp_path / name, storage.at(name)) for name in ("bad", "good")])
    assert failures(result) == {"bad": LocalFileError}
    assert result.failed[0].path == str(tmp_path / "bad")
    assert storage.contents() == {"good": b"good"}
    with pytest.raises(LocalFileError, match="Permission denied"):
        storage.backend().upload_file(tmp_path / "bad", storage.at("bad"))


def test_a_link_given_by_name_makes_the_short_call_fail(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(OutputsError, match="symbolic link"):
        storage.backend().upload_file(tmp_path / "link", storage.at("x"))
    assert storage.contents() == {}


def test_a_key_of_1024_bytes_is_stored_and_one_of_1025_cannot_be_made(storage: Storage) -> None:
    segments = ["é" * 100, "b" * 200, "c" * 200, "d" * 200]  # each a name that file systems allow
    key = "/".join([*segments, "e" * (1024 - sum(len(segment.encode()) + 1 for segment in segments))])
    assert len(key.encode()) == 1024
    assert stored_keys(storage.backend().upload(bytes_items(storage, key))) == [key]
    assert listed(storage.backend(), storage.at("")) == [key]
    with pytest.raises(IllegalLocationError):
        storage.at(f"{key}x")


def test_a_file_whose_key_would_be_too_long_does_not_stop_the_others(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ("x" * 200)).write_bytes(b"")
    (tmp_path / "tree" / "y").write_bytes(b"y")
    prefix = "/".join(["p" * 200] * 4 + ["q" * 100])
    assert storage.backend().upload_directory(tmp_path / "tree", storage.at(prefix)) == 1
    assert storage.contents() == {f"{prefix}/y": b"y"}


# --- choosing --------------------------------------------------------------------------------------------------------

SELECTIONS: list[tuple[list[str] | None, list[str] | None]] = [
    (None, None),
    ([], []),
    (["*.tar.xz*"], None),
    (["*.log"], None),
    (["logs/**"], ["logs/ccache/**", ".*"]),
    (["logs/*"], None),
    (["names/"], ["[*]", "*.txt"]),
    (["**/*x*"], ["/a.*"]),
    (["?.tar.xz", "names/[a:]*"], None),
    (["*.LOG"], None),
]


@pytest.mark.parametrize(("include", "exclude"), SELECTIONS)
def test_globs_mean_the_same_when_storing_listing_and_copying(
    storage: Storage, tmp_path: Path, include: list[str] | None, exclude: list[str] | None
) -> None:
    files = make_tree(tmp_path / "tree")
    backend = storage.backend()
    backend.upload_directory(tmp_path / "tree", storage.at("all"))
    chosen = [relative for _, relative in walk_files(tmp_path / "tree", include=include, exclude=exclude).files]
    assert backend.upload_directory(tmp_path / "tree", storage.at("stored"), include, exclude) == len(chosen)
    assert backend.copy_directory(storage.at("all"), storage.at("copied"), include, exclude) == len(chosen)
    found = [location.relative_path for location in backend.list_files(storage.at("all"), include, exclude)]
    assert found == [f"all/{name}" for name in chosen]
    for prefix in ("stored", "copied"):
        assert listed(backend, storage.at(prefix)) == [f"{prefix}/{name}" for name in chosen]
    contents = storage.contents()
    assert all(contents[f"{prefix}/{name}"] == files[name] for prefix in ("stored", "copied") for name in chosen)


# --- listing ---------------------------------------------------------------------------------------------------------


def test_a_listing_is_by_whole_segments_and_in_key_order(storage: Storage) -> None:
    keys = [f"{RUN}/a/b", f"{RUN}/a-b", f"{RUN}/a.b", f"{RUN}/a/c", f"{RUN}/é", f"{RUN}2/a", RUN[:-1] + "/x", "z"]
    for key in keys:
        storage.put(key, key.encode())
    backend = storage.backend()
    assert listed(backend, storage.at("")) == sorted(keys, key=str.encode)
    assert listed(backend, storage.at(RUN)) == sorted((k for k in keys if k.startswith(f"{RUN}/")), key=str.encode)
    assert listed(backend, storage.at(f"{RUN}/a")) == [f"{RUN}/a/b", f"{RUN}/a/c"]
    for nothing in ("nowhere", f"{RUN}/a/b", f"{RUN}/a/b/c", "z"):
        assert listed(backend, storage.at(nothing)) == []


def test_a_listing_says_size_time_and_place(storage: Storage) -> None:
    storage.put("x/a.log", b"12345")
    (entry,) = storage.backend().list_objects(storage.at("x"))
    assert (entry.location, entry.size_bytes) == (storage.at("x/a.log"), 5)
    assert entry.modified.utcoffset() is not None
    assert '"' not in entry.etag


def test_more_keys_than_a_page_holds_are_listed_all(storage: Storage) -> None:
    keys = [f"x/{number:04}" for number in range(1003)]
    result = storage.backend().upload(bytes_items(storage, *keys, data=b""))
    assert stored_keys(result) == keys
    assert listed(storage.backend(), storage.at("x")) == keys


# --- conflicts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [b"another size", b"?"])
@pytest.mark.parametrize("mode", ["overwrite", "skip", "error"])
def test_other_bytes_under_a_key_are_dealt_with_as_asked(storage: Storage, mode: OnConflict, other: bytes) -> None:
    storage.put("r/b", other)
    items = bytes_items(storage, "r/a", "r/b", "r/c", data=b"!")
    result = storage.backend().upload(items, on_conflict=mode)
    (conflict,) = result.conflicts
    assert (conflict.location, conflict.origin) == (storage.at("r/b"), "")
    assert conflict.action == {"overwrite": "overwritten", "skip": "skipped", "error": "refused"}[mode]
    assert conflict.state == "different" or (storage.kind != "local" and len(other) == 1)
    kept = {
        "overwrite": {"a": b"!", "b": b"!", "c": b"!"},
        "skip": {"a": b"!", "b": other, "c": b"!"},
        "error": {"b": other},
    }
    assert storage.contents() == below("r", kept[mode])
    if mode == "error":
        assert failures(result) == dict.fromkeys(["r/a", "r/b", "r/c"], ConflictError)
        assert result.failed[0].error.exit_code == 6
    else:
        assert result.failed == ()
        assert stored_keys(result) == (["r/a", "r/b", "r/c"] if mode == "overwrite" else ["r/a", "r/c"])


def test_long_keys_that_differ_at_their_end_are_not_one_key(storage: Storage) -> None:
    names = ("a/" * 150 + "index.html", "a/" * 150 + "index.json")
    result = storage.backend().upload(bytes_items(storage, *names))
    assert stored_keys(result) == sorted(names)


def test_two_objects_for_one_key_and_the_root_are_an_input_error(storage: Storage) -> None:
    storage.put("there", b"there")
    backend, root, there = storage.backend(), storage.at(""), storage.at("there")
    with pytest.raises(InputError, match="written twice"):
        backend.upload(bytes_items(storage, "a", "a"))
    with pytest.raises(InputError, match="written twice"):
        backend.copy([(there, storage.at("a")), (there, storage.at("a"))])
    for call in (
        lambda: backend.upload([UploadItem(b"", root)]),
        lambda: backend.copy([(there, root)]),
        lambda: backend.read_small(root),
        lambda: backend.replace(root, b"", "", etag=""),
    ):
        with pytest.raises(InputError, match="needs a key"):
            call()
    assert storage.contents() == {"there": b"there"}


def test_neighbours_are_no_conflict(storage: Storage) -> None:
    storage.put("r/b2", b"other")
    storage.put("r/b/c", b"other")
    assert not storage.backend().upload(bytes_items(storage, "r/b0", "r/b1"), on_conflict="error").conflicts


# --- put_new ---------------------------------------------------------------------------------------------------------


def test_put_new_stores_once_and_never_replaces(storage: Storage) -> None:
    backend = storage.backend()
    stored = backend.put_new(storage.at("P/reports/x.json"), b"{}", "application/json")
    assert (stored.location, stored.size_bytes) == (storage.at("P/reports/x.json"), 2)
    assert (stored.sha256, stored.content_type) == (hashlib.sha256(b"{}").hexdigest(), "application/json")
    with pytest.raises(ConflictError):
        backend.put_new(storage.at("P/reports/x.json"), b"{}", "application/json")
    assert storage.contents() == {"P/reports/x.json": b"{}"}


def test_of_several_who_put_new_at_once_one_wins_and_the_others_know(storage: Storage) -> None:
    start, outcomes = threading.Barrier(4), []

    def race(number: int) -> None:
        backend = storage.backend()
        start.wait()
        try:
            backend.put_new(storage.at("x"), str(number).encode(), "text/plain")
        except ConflictError:
            outcomes.append(None)
        else:
            outcomes.append(number)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [number for number in outcomes if number is not None]
    assert (len(outcomes), len(winners)) == (4, 1)
    assert storage.contents() == {"x": str(winners[0]).encode()}


# --- read_small and replace -----------------------------------------------------------------------------------------


def test_a_small_object_is_read_with_an_etag_and_nothing_where_there_is_none(storage: Storage) -> None:
    backend = storage.backend()
    assert backend.read_small(storage.at("x/page.html")) is None
    storage.put("x/page.html", b"<p>")
    read = backend.read_small(storage.at("x/page.html"))
    assert read is not None
    assert (read.data, bool(read.etag)) == (b"<p>", True)


def test_an_object_that_is_not_small_is_not_read(storage: Storage) -> None:
    storage.put("limit", b"x" * SMALL_OBJECT_LIMIT_BYTES)
    storage.put("above", b"x" * (SMALL_OBJECT_LIMIT_BYTES + 1))
    read = storage.backend().read_small(storage.at("limit"))
    assert read is not None
    assert len(read.data) == SMALL_OBJECT_LIMIT_BYTES
    with pytest.raises(IntegrityError, match="too large"):
        storage.backend().read_small(storage.at("above"))


def test_replace_replaces_only_the_version_that_was_read(storage: Storage) -> None:
    backend, at = storage.backend(), storage.at("x/page.html")
    first = backend.replace(at, b"one", "text/html", etag="")
    assert (first.location, first.size_bytes, first.content_type) == (at, 3, "text/html")
    read = backend.read_small(at)
    assert read is not None
    second = backend.replace(at, b"two!", "", etag=read.etag)
    assert (second.sha256, second.content_type) == (hashlib.sha256(b"two!").hexdigest(), infer_content_type("x.html"))
    for etag in (read.etag, ""):
        with pytest.raises(ConflictError):
            backend.replace(at, b"three", "text/html", etag=etag)
    assert storage.contents() == {"x/page.html": b"two!"}
    assert listed(backend, storage.at("")) == ["x/page.html"]


def test_an_object_that_is_gone_is_not_replaced(storage: Storage) -> None:
    storage.put("a", b"a")
    read = storage.backend().read_small(storage.at("a"))
    assert read is not None
    for gone in ("b", "no/where"):
        with pytest.raises(ConflictError):
            storage.backend().replace(storage.at(gone), b"new", "text/plain", etag=read.etag)
    assert storage.contents() == {"a": b"a"}


_ADD_LINES = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from _therock_utils._errors import ConflictError
from _therock_utils.storage_backend import create_storage_backend
from _therock_utils.storage_location import StorageLocation
backend = create_storage_backend(staging_dir=Path(sys.argv[2]) if sys.argv[2] else None)
at = StorageLocation(sys.argv[3], "x/lines")
sys.stdin.read(1)
for number in range(20):
    while True:
        read = backend.read_small(at)
        data, etag = (read.data, read.etag) if read else (b"", "")
        try:
            backend.replace(at, data + f"{sys.argv[4]}{number}\\n".encode(), "text/plain", etag=etag)
        except ConflictError:
            continue
        break
"""


def test_two_processes_that_replace_one_object_again_and_again_lose_nothing(storage: Storage) -> None:
    staging_dir = str(storage.staging_dir) if isinstance(storage, LocalStorage) else ""
    source_root = str(Path(__file__).parents[2] / "src")
    command = [sys.executable, "-c", _ADD_LINES, source_root, staging_dir, storage.bucket]
    processes = [subprocess.Popen([*command, name], stdin=subprocess.PIPE) for name in "ab"]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()  # both begin
    assert [process.wait() for process in processes] == [0, 0]
    lines = storage.contents()["x/lines"].decode().split()
    assert sorted(lines) == sorted(f"{name}{number}" for name in "ab" for number in range(20))
    for name in "ab":
        assert [line for line in lines if line[0] == name] == [f"{name}{number}" for number in range(20)]
    assert list(storage.contents()) == ["x/lines"]


def test_threads_that_replace_one_object_lose_nothing(storage: Storage) -> None:
    start, at = threading.Barrier(2), storage.at("x/lines")

    def add(name: str) -> None:
        backend = storage.backend()
        start.wait()
        done = 0
        while done < 20:
            read = backend.read_small(at)
            data, etag = (read.data, read.etag) if read else (b"", "")
            with suppress(ConflictError):
                backend.replace(at, data + f"{name}{done}\n".encode(), "text/plain", etag=etag)
                done += 1

    threads = [threading.Thread(target=add, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(storage.contents()["x/lines"].split()) == 40


# --- downloading -----------------------------------------------------------------------------------------------------


def test_what_was_stored_comes_back_byte_for_byte(storage: Storage, tmp_path: Path) -> None:
    files = make_tree(tmp_path / "tree")
    files["big.bin"] = os.urandom(1024 * 1024) * 9
    (tmp_path / "tree" / "big.bin").write_bytes(files["big.bin"])
    backend = storage.backend()
    backend.upload_directory(tmp_path / "tree", storage.at(RUN))
    items = [
        DownloadItem(storage.at(f"{RUN}/{name}"), tmp_path / "got" / name, hashlib.sha256(data).hexdigest())
        for name, data in files.items()
    ]
    for item in items:
        item.target.parent.mkdir(parents=True, exist_ok=True)
    result = backend.download(items)
    assert result.failed == ()
    assert [file.item for file in result.downloaded] == items
    assert [(file.size_bytes, file.sha256) for file in result.downloaded] == [
        (len(data), hashlib.sha256(data).hexdigest()) for data in files.values()
    ]
    got = {
        path.relative_to(tmp_path / "got").as_posix(): path.read_bytes()
        for path in (tmp_path / "got").rglob("*")
        if path.is_file()
    }
    assert got == files


def test_a_download_that_fails_leaves_what_was_there_and_nothing_else(storage: Storage, tmp_path: Path) -> None:
    storage.put("bad", b"bad")
    storage.put("good", b"good")
    (tmp_path / "bad").write_bytes(b"earlier")
    items = [
        DownloadItem(storage.at("bad"), tmp_path / "bad", "0" * 64),
        DownloadItem(storage.at("missing"), tmp_path / "missing"),
        DownloadItem(storage.at("no/where"), tmp_path / "where"),
        DownloadItem(storage.at("good"), tmp_path / "good"),
    ]
    result = storage.backend().download(items)
    assert [type(failed.error) for failed in result.failed] == [IntegrityError, NotFoundError, NotFoundError]
    assert [file.item for file in result.downloaded] == [items[3]]
    names = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert names == {"bad": b"earlier", "good": b"good"}


def test_a_download_makes_the_folders_it_needs(storage: Storage, tmp_path: Path) -> None:
    storage.put("x", b"x")
    result = storage.backend().download([DownloadItem(storage.at("x"), tmp_path / "a" / "b" / "x")])
    assert result.failed == ()
    assert (tmp_path / "a" / "b" / "x").read_bytes() == b"x"


# --- copying ---------------------------------------------------------------------------------------------------------


def test_copies_are_byte_for_byte_and_a_missing_source_fails_alone(storage: Storage) -> None:
    keys = [f"from/{name}" for name in HOSTILE_NAMES]
    for key in keys:
        storage.put(key, key.encode())
    backend = storage.backend()
    pairs = [(storage.at(key), storage.at(key.replace("from", "to", 1))) for key in [*keys, "from/missing"]]
    result = backend.copy(pairs)
    assert failures(result) == {"to/missing": NotFoundError}
    assert [stored.size_bytes for stored in result.stored] == [
        len(stored.location.relative_path.encode()) + 2 for stored in result.stored
    ]
    expected = {key: key.encode() for key in keys}
    assert storage.contents() == {**expected, **{key.replace("from", "to", 1): data for key, data in expected.items()}}
    with pytest.raises(NotFoundError):
        backend.copy_file(storage.at("from/missing"), storage.at("x"))


def test_a_copy_replaces_what_is_there(storage: Storage) -> None:
    storage.put("a", b"new")
    storage.put("b", b"older")
    storage.backend().copy_file(storage.at("a"), storage.at("b"))
    assert storage.contents() == {"a": b"new", "b": b"new"}


# --- dry run and cancelling ------------------------------------------------------------------------------------------


def test_a_dry_run_writes_nothing_and_says_what_it_would(storage: Storage, tmp_path: Path) -> None:
    files = make_tree(tmp_path / "tree")
    storage.put("there", b"there")
    backend = storage.backend(dry_run=True)
    items = [UploadItem(path, storage.at(relative)) for path, relative in walk_files(tmp_path / "tree").files]
    result = backend.upload([*items, *bytes_items(storage, "bytes")])
    assert stored_keys(result) == sorted([*files, "bytes"], key=str.encode)
    assert {stored.verified for stored in result.stored} == {"dry-run"}
    assert result.total_bytes == sum(map(len, files.values())) + 5
    assert backend.put_new(storage.at("new"), b"x", "text/plain").verified == "dry-run"
    assert backend.copy_files([(storage.at("there"), storage.at("copy"))]) == 1
    there = backend.read_small(storage.at("there"))
    assert there is not None
    assert backend.replace(storage.at("there"), b"x", "text/plain", etag=there.etag).verified == "dry-run"
    assert storage.contents() == {"there": b"there"}


def test_after_a_cancel_nothing_is_written_and_everything_is_reported(storage: Storage, tmp_path: Path) -> None:
    storage.put("there", b"there")
    cancel = CancelToken()
    cancel.cancel(15)
    backend = storage.backend()
    result = backend.upload(bytes_items(storage, "a", "b"), cancel=cancel)
    assert failures(result) == {"a": CancelledError, "b": CancelledError}
    assert result.failed[0].error.exit_code == 143
    assert failures(backend.copy([(storage.at("there"), storage.at("c"))], cancel=cancel)) == {"c": CancelledError}
    download = backend.download([DownloadItem(storage.at("there"), tmp_path / "there")], cancel=cancel)
    assert [type(failed.error) for failed in download.failed] == [CancelledError]
    for call in (
        lambda: list(backend.list_objects(storage.at(""), cancel=cancel)),
        lambda: backend.read_small(storage.at("there"), cancel=cancel),
        lambda: backend.put_new(storage.at("new"), b"", "text/plain", cancel=cancel),
        lambda: backend.replace(storage.at("there"), b"", "text/plain", etag="x", cancel=cancel),
    ):
        with pytest.raises(CancelledError):
            call()
    assert storage.contents() == {"there": b"there"}
    assert list(tmp_path.glob("there*")) == []


# --- what only S3 keeps ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["build.log", "index.html", "a.tar.zst", "x.json", "ninja_logs.tar.gz", "Packages", "x"]
)
def test_s3_keeps_the_content_type_and_no_content_encoding(s3_storage: S3Storage, name: str) -> None:
    backend = s3_storage.backend()
    backend.upload(bytes_items(s3_storage, f"x/{name}"))
    backend.put_new(s3_storage.at(f"y/{name}"), b"", infer_content_type(name))
    backend.copy_file(s3_storage.at(f"x/{name}"), s3_storage.at(f"z/{name}"))
    for folder in "xyz":
        head = s3_storage.head(f"{folder}/{name}")
        assert head["ContentType"] == infer_content_type(name)
        assert not head.get("ContentEncoding")
