"""One contract for small objects that several jobs write: many at once, deleting, and the documents of folders."""

from __future__ import annotations

import hashlib
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError, ConflictError, InputError
from _therock_utils._transfer_types import DownloadItem, Replacement, StoredObject, UploadItem
from _therock_utils.content_types import infer_content_type
from fakes.storages import LocalStorage

if TYPE_CHECKING:
    from pathlib import Path

    from _therock_utils._transfer_types import StoredBytes
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation
    from fakes.storages import S3Storage, Storage


def read(backend: StorageBackend, location: StorageLocation) -> StoredBytes:
    found = backend.read_small(location)
    assert found is not None
    return found


def listed(backend: StorageBackend, location: StorageLocation) -> list[str]:
    return [entry.location.relative_path for entry in backend.list_objects(location)]


# --- replace_all -----------------------------------------------------------------------------------------------------


def test_many_objects_are_stored_at_once_each_under_its_own_condition(storage: Storage) -> None:
    backend = storage.backend()
    keys = [f"x/{number:03}/index.html" for number in range(200)]
    items = [Replacement(storage.at(key), key.encode(), "text/html", "") for key in keys]
    first = backend.replace_all(items)
    assert [outcome.location for outcome in first if isinstance(outcome, StoredObject)] == [at.location for at in items]
    assert storage.contents() == {key: key.encode() for key in keys}
    etags = [read(backend, storage.at(key)).etag for key in keys[:3]]
    storage.put(keys[1], b"another's")
    asked = [
        Replacement(storage.at(keys[2]), b"2", "", etags[2]),
        Replacement(storage.at("new.json"), b"{}", "", ""),
        Replacement(storage.at(keys[1]), b"1", "text/html", etags[1]),
        Replacement(storage.at(keys[0]), b"0", "text/html", ""),
        Replacement(storage.at("no/where"), b"?", "text/html", etags[0]),
    ]
    two, new, *refused = backend.replace_all(asked)
    assert isinstance(two, StoredObject)
    assert isinstance(new, StoredObject)
    assert (two.location, two.size_bytes, two.sha256) == (asked[0].location, 1, hashlib.sha256(b"2").hexdigest())
    assert (new.content_type, two.content_type) == (infer_content_type("x.json"), infer_content_type("x.html"))
    assert [type(outcome) for outcome in refused] == [ConflictError] * 3
    changed = {keys[2]: b"2", "new.json": b"{}", keys[1]: b"another's"}
    assert storage.contents() == {key: key.encode() for key in keys} | changed
    assert backend.replace_all([]) == ()


def test_one_key_twice_or_none_is_an_input_error_before_anything_is_stored(storage: Storage) -> None:
    one, root = Replacement(storage.at("a"), b"", "", ""), Replacement(storage.at(""), b"", "", "")
    for items in ([one, one], [one, root]):
        with pytest.raises(InputError):
            storage.backend().replace_all(items)
    for call in (
        lambda: storage.backend().remove(storage.at(""), etag="x"),
        lambda: storage.backend().put_folder_document(storage.at(""), b"", "text/html"),
    ):
        with pytest.raises(InputError, match="needs a key"):
            call()
    assert storage.contents() == {}


def test_those_who_replace_many_objects_at_once_lose_nothing(storage: Storage) -> None:
    locations = [storage.at(f"x/{number}/lines") for number in range(10)]
    start = threading.Barrier(2)

    def add(name: bytes) -> None:
        backend, to_do = storage.backend(), locations
        start.wait()
        while to_do:
            present = backend.read_all_small(to_do)
            items = [
                Replacement(at, (there.data if there else b"") + name, "text/plain", there.etag if there else "")
                for at, there in zip(to_do, present, strict=True)
            ]
            outcomes = backend.replace_all(items)
            assert {type(outcome) for outcome in outcomes} <= {StoredObject, ConflictError}
            to_do = [at for at, outcome in zip(to_do, outcomes, strict=True) if isinstance(outcome, ConflictError)]

    threads = [threading.Thread(target=add, args=(name,)) for name in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {bytes(sorted(data)) for data in storage.contents().values()} == {b"ab"}
    assert len(storage.contents()) == 10


# --- remove ----------------------------------------------------------------------------------------------------------


def test_only_the_version_that_was_read_is_removed(storage: Storage) -> None:
    backend, at = storage.backend(), storage.at("x/y/index.html")
    storage.put("x/y/index.html", b"one")
    storage.put("x/other", b"other")
    etag = read(backend, at).etag
    storage.put("x/y/index.html", b"two")
    for wrong in (etag, "", '"nonsense"'):
        with pytest.raises(ConflictError):
            backend.remove(at, etag=wrong)
    assert storage.contents() == {"x/y/index.html": b"two", "x/other": b"other"}
    backend.remove(at, etag=read(backend, at).etag)
    assert storage.contents() == {"x/other": b"other"}
    assert backend.find(at) is None


def test_what_is_not_there_is_removed_without_an_error(storage: Storage) -> None:
    storage.put("a", b"a")
    for key in ("b", "no/where/at/all", "a/below"):
        storage.backend().remove(storage.at(key), etag='"etag"')
    assert storage.contents() == {"a": b"a"}


def test_one_object_can_be_made_again_after_it_was_removed(storage: Storage) -> None:
    backend, at = storage.backend(), storage.at("x/y/page")
    for _ in range(3):
        backend.put_new(at, b"x", "text/html")
        backend.remove(at, etag=read(backend, at).etag)
    assert storage.contents() == {}
    if isinstance(storage, LocalStorage):
        assert list(storage.staging_dir.rglob("*")) == []


def test_of_those_who_remove_and_replace_at_once_one_wins_and_the_other_knows(storage: Storage) -> None:
    backend, at = storage.backend(), storage.at("x/page")
    for _ in range(10):
        backend.put_new(at, b"old", "text/html")
        etag, start, lost = read(backend, at).etag, threading.Barrier(2), []

        def replace(etag: str = etag, start: threading.Barrier = start, lost: list[str] = lost) -> None:
            start.wait()
            try:
                storage.backend().replace(at, b"new", "text/html", etag=etag)
            except ConflictError:
                lost.append("replace")

        thread = threading.Thread(target=replace)
        thread.start()
        start.wait()
        try:
            backend.remove(at, etag=etag)
        except ConflictError:
            lost.append("remove")
        thread.join()
        if storage.kind != "s3-moto":  # which checks the condition of a DELETE in a step of its own
            assert lost in (["replace"], ["remove"])
            assert storage.contents() == ({} if lost == ["replace"] else {"x/page": b"new"})
        there = backend.read_small(at)
        if there is not None:
            backend.remove(at, etag=there.etag)


def test_folders_that_are_removed_while_others_write_into_them_cost_nobody_a_file(storage: Storage) -> None:
    ended = threading.Event()

    def make_and_remove() -> None:
        backend, at = storage.backend(), storage.at("x/y/z/page")
        while not ended.is_set():
            with suppress(ConflictError):
                backend.put_new(at, b"x", "text/html")
                backend.remove(at, etag=read(backend, at).etag)

    thread = threading.Thread(target=make_and_remove)
    thread.start()
    backend, at = storage.backend(), storage.at("x/y/z/file")
    rounds = 300 if storage.kind == "local" else 20
    try:
        for number in range(rounds):
            data = b"%d" % number
            assert not backend.upload([UploadItem(data, at)]).failed
            assert read(backend, at).data == data
            backend.remove(at, etag=read(backend, at).etag)
            backend.put_new(at, data, "text/plain")
            backend.remove(at, etag=read(backend, at).etag)
    finally:
        ended.set()
        thread.join()
    assert storage.contents() == {}


# --- dry run, cancelling ----------------------------------------------------------------------------------------------


def test_a_dry_run_neither_replaces_nor_removes(storage: Storage) -> None:
    storage.put("there", b"there")
    backend = storage.backend(dry_run=True)
    etag = read(backend, storage.at("there")).etag
    stored = backend.replace_all(
        [Replacement(storage.at("there"), b"x", "", etag), Replacement(storage.at("new"), b"x", "", "")]
    )
    assert [outcome.verified for outcome in stored if isinstance(outcome, StoredObject)] == ["dry-run"] * 2
    backend.remove(storage.at("there"), etag=etag)
    backend.remove(storage.at("no/where"), etag=etag)
    assert backend.put_folder_document(storage.at("x"), b"", "text/html") == (storage.kind != "local")
    assert storage.contents() == {"there": b"there"}


def test_after_a_cancel_nothing_is_replaced_or_removed_and_each_item_says_so(storage: Storage) -> None:
    storage.put("there", b"there")
    backend, cancel = storage.backend(), CancelToken()
    etag = read(backend, storage.at("there")).etag
    cancel.cancel(15)
    items = [Replacement(storage.at("there"), b"x", "", etag), Replacement(storage.at("new"), b"x", "", "")]
    for outcome in backend.replace_all(items, cancel=cancel):
        assert isinstance(outcome, CancelledError)
        assert outcome.exit_code == 143
    for call in (
        lambda: backend.remove(storage.at("there"), etag=etag, cancel=cancel),
        lambda: backend.put_folder_document(storage.at("x"), b"", "text/html", cancel=cancel),
    ):
        with pytest.raises(CancelledError):
            call()
    assert storage.contents() == {"there": b"there"}


# --- documents of folders ---------------------------------------------------------------------------------------------


def test_a_folder_s_document_is_no_object_to_anybody(storage: Storage, tmp_path: Path) -> None:
    backend = storage.backend()
    keys = ["x/simple-2/a", "x/simple/index.html", "x/simple/foo/index.html", "x/simple/foo-bar/index.html", "x/z"]
    for key in keys:
        storage.put(key, key.encode())
    for folder in ("x/simple", "x/simple/foo", "x/simple/foo-bar", "x"):
        done = backend.put_folder_document(storage.at(folder), b"<p>" + folder.encode(), "text/html")
        assert done == (storage.kind != "local")
    assert listed(backend, storage.at("")) == sorted(keys)
    for folder in ("x", "x/simple", "x/simple/foo"):
        below = sorted(key for key in keys if key.startswith(f"{folder}/"))
        assert listed(backend, storage.at(folder)) == below
        assert [at.relative_path for at in backend.list_files(storage.at(folder))] == below
        direct = [key for key in below if "/" not in key[len(folder) + 1 :]]
        assert [one.location.relative_path for one in backend.list_folder(storage.at(folder))] == direct
        assert backend.find(storage.at(folder)) is None
        if storage.kind != "local":  # there a folder is in the way of such an object
            assert backend.read_small(storage.at(folder)) is None
            assert backend.describe([storage.at(folder)]) == (None,)
    assert list(backend.list_folder(storage.at(""))) == []
    assert backend.copy_directory(storage.at("x"), storage.at("copy")) == len(keys)
    assert listed(backend, storage.at("copy")) == sorted(f"copy/{key[2:]}" for key in keys)
    items = [
        DownloadItem(one.location, tmp_path / one.location.relative_path)
        for one in backend.list_objects(storage.at("x"))
    ]
    assert len(backend.download(items).downloaded) == len(keys)


def test_an_object_and_a_folder_s_document_of_one_name_are_told_apart(s3_storage: S3Storage) -> None:
    backend = s3_storage.backend()
    for key in ("x/a", "x/a-1", "x/a.b", "x/a/b", "x/c", "x/c/d", "x/e", "x/e!"):
        s3_storage.put(key, key.encode())
    for folder in ("x/a", "x/c", "x/e"):
        backend.put_folder_document(s3_storage.at(folder), b"the document", "text/html")
    sizes = {one.location.relative_path: one.size_bytes for one in backend.list_objects(s3_storage.at("x"))}
    assert sizes == {key: len(key) for key in ("x/a", "x/a-1", "x/a.b", "x/a/b", "x/c", "x/c/d", "x/e", "x/e!")}
    names = [one.location.relative_path for one in backend.list_folder(s3_storage.at("x"))]
    assert names == ["x/a", "x/a-1", "x/a.b", "x/c", "x/e", "x/e!"]
    assert read(backend, s3_storage.at("x/a")).data == b"x/a"


@pytest.mark.parametrize("page_keys", [1000, 5, 1])
def test_an_empty_key_that_stands_for_a_folder_is_no_object_and_an_empty_object_is_one(
    s3_storage: S3Storage, monkeypatch: pytest.MonkeyPatch, page_keys: int
) -> None:
    monkeypatch.setattr("_therock_utils._s3_listing._PAGE_KEYS", page_keys)
    folders = ["x/", "x/a/", "x/a/inner/", "x/b/", "x/b.d/", "x/c/", "x/d/e/", "x/zz/"]
    objects = ["x/aa", "x/b", "x/b-1", "x/c-", "x/c/full", "x/empty", "x/g", "x/g.x", "x/z"]
    for key in folders:
        s3_storage.put(key, b"")
    for key in objects:
        s3_storage.put(key, b"full" if key.endswith(("full", "1")) else b"")
    backend = s3_storage.backend()
    assert listed(backend, s3_storage.at("x")) == sorted(objects)
    direct = [key for key in sorted(objects) if key.count("/") == 1]
    assert [one.location.relative_path for one in backend.list_folder(s3_storage.at("x"))] == direct
    for key in ("x/zz", "x/d/e", "x/a"):
        assert listed(backend, s3_storage.at(key)) == []


def test_a_folder_s_document_is_what_a_client_gets_at_the_folder_s_url(s3_storage: S3Storage) -> None:
    backend, folder = s3_storage.backend(), s3_storage.at("x/simple/foo+é")
    s3_storage.client.put_bucket_policy(
        Bucket=s3_storage.bucket,
        Policy='{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject",'
        f'"Resource":"arn:aws:s3:::{s3_storage.bucket}/*"}}]}}',
    )
    for page in (b"<p>one", b"<p>another"):
        assert backend.put_folder_document(folder, page, "text/html; charset=utf-8")
        url = f"{s3_storage.client.meta.endpoint_url}/{s3_storage.bucket}/{folder.https_url.partition('.com/')[2]}/"
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url) as answer:
            assert answer.read() == page
            assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert s3_storage.keys() == [f"{folder.relative_path}/"]
