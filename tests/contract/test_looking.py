"""One contract for looking around: what lies in a folder, what lies under a key, and what it is made of."""

from __future__ import annotations

import hashlib
import os
import threading
from typing import TYPE_CHECKING

import pytest

from _therock_utils import _s3_listing
from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    CancelledError,
    InputError,
    IntegrityError,
    NotFoundError,
    OutputsError,
)
from _therock_utils._s3_plan import MIB, SINGLE_PUT_LIMIT_BYTES
from _therock_utils._transfer_types import (
    SMALL_OBJECT_LIMIT_BYTES,
    DownloadedFile,
    DownloadItem,
    ObjectFacts,
    StoredBytes,
    UploadItem,
)
from _therock_utils.content_types import infer_content_type

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _therock_utils._transfer_types import ListedObject
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation
    from fakes.storages import S3Storage, Storage

LAST = "\U0010ffff"


def in_folder(backend: StorageBackend, location: StorageLocation) -> list[str]:
    return [listed.location.relative_path for listed in backend.list_folder(location)]


def put_all(storage: Storage, *keys: str) -> None:
    storage.backend().upload([UploadItem(b"x", storage.at(key)) for key in keys])


# --- list_folder -----------------------------------------------------------------------------------------------------


def test_a_folder_holds_what_lies_directly_in_it_in_key_order(storage: Storage) -> None:
    direct = [
        "a.log",
        "b-a",
        "b.a",
        "b0",
        "é",
        "zz",
        LAST,
        f"{LAST}{LAST}z",
        "logs-2",
        "logs0",
    ]
    deeper = ["b/a", "logs/a/b", f"logs/{LAST}", f"logs/{LAST}{LAST}", "reports/x.json"]
    put_all(storage, *(f"12345-linux/{name}" for name in [*direct, *deeper]))
    put_all(storage, "12345-linux2/a.log", "12345-linu/a.log", "12345-linux-a", "other")
    backend = storage.backend()
    expected = sorted((f"12345-linux/{name}" for name in direct), key=str.encode)
    assert in_folder(backend, storage.at("12345-linux")) == expected
    assert in_folder(backend, storage.at("12345-linux/logs")) == [
        f"12345-linux/logs/{LAST}",
        f"12345-linux/logs/{LAST * 2}",
    ]
    assert in_folder(backend, storage.at("")) == ["12345-linux-a", "other"]
    for nothing in ("nowhere", "12345-linux/a.log", "12345-linux/logs/a/b/c"):
        assert in_folder(backend, storage.at(nothing)) == []


def test_a_folder_s_listing_says_size_time_and_place(storage: Storage) -> None:
    storage.put("x/a.log", b"12345")
    (entry,) = storage.backend().list_folder(storage.at("x"))
    assert (entry.location, entry.size_bytes) == (storage.at("x/a.log"), 5)
    assert entry.modified.utcoffset() is not None
    assert list(storage.backend().list_objects(storage.at("x"))) == [entry]


@pytest.mark.parametrize("most_skips", [1000, 2, 1])
def test_pages_that_end_anywhere_lose_nothing_and_show_nothing_twice(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, most_skips: int
) -> None:
    monkeypatch.setattr(_s3_listing, "_PAGE_KEYS", 5)
    monkeypatch.setattr(_s3_listing, "_MOST_SKIPS", most_skips)
    names = [f"{letter}{number}" for letter in "acegi" for number in range(3)]
    deeper = [f"{folder}/{number}" for folder in ("b", "c1x", "d", "f/g", "h", "z") for number in range(7)]
    put_all(
        storage,
        *(f"r/{name}" for name in [*names, *deeper, f"b/{LAST}{LAST}", f"h/{LAST}z", "h0"]),
    )
    assert in_folder(storage.backend(), storage.at("r")) == sorted(f"r/{name}" for name in [*names, "h0"])


def test_more_files_than_a_page_holds_are_listed_all(storage: Storage) -> None:
    names = [f"x/{number:04}" for number in range(1001)]
    put_all(storage, *names, *(f"x/0500x/{number}" for number in range(30)))
    assert in_folder(storage.backend(), storage.at("x")) == names


def test_a_key_that_no_location_can_have_is_told_once_however_often_it_is_listed(
    s3_storage: S3Storage, caplog: pytest.LogCaptureFixture
) -> None:
    for key in ("x/a", "x//b"):
        s3_storage.put(key, b"x")
    backend = s3_storage.backend()
    for _ in range(2):
        assert [one.location.relative_path for one in backend.list_objects(s3_storage.at("x"))] == ["x/a"]
    (told,) = [record.getMessage() for record in caplog.records if "is left out" in record.getMessage()]
    assert "object key 'x//b' cannot be used: it has an empty segment" in told


# --- find ------------------------------------------------------------------------------------------------------------


def test_an_object_is_found_under_exactly_its_key(storage: Storage) -> None:
    storage.put("x/a b+#?%~é:[x].log", b"12345")
    storage.put("x/empty", b"")
    backend = storage.backend()
    for key, size_bytes in (("x/a b+#?%~é:[x].log", 5), ("x/empty", 0)):
        found = backend.find(storage.at(key))
        assert found is not None
        assert (found.location, found.size_bytes) == (storage.at(key), size_bytes)
        (listed,) = (listed for listed in backend.list_objects(storage.at("x")) if listed.location == found.location)
        assert (listed.size_bytes, listed.etag) == (found.size_bytes, found.etag)
    for nothing in ("x", "x/e", "x/empty/a", "nowhere", "x/EMPTY"):
        assert backend.find(storage.at(nothing)) is None


def test_a_bucket_s_root_is_no_object(storage: Storage) -> None:
    backend, root = storage.backend(), storage.at("")
    for call in (
        lambda: backend.find(root),
        lambda: backend.read_all_small([storage.at("a"), root]),
        lambda: backend.describe([root]),
    ):
        with pytest.raises(InputError, match="needs a key"):
            call()


# --- read_all_small --------------------------------------------------------------------------------------------------


def test_many_small_objects_are_read_in_the_order_asked_for(storage: Storage) -> None:
    keys = [f"x/{number:03}.sha256sum" for number in range(300)]
    storage.backend().upload([UploadItem(key.encode(), storage.at(key)) for key in keys if key != "x/007.sha256sum"])
    storage.put("x/large", b"x" * (SMALL_OBJECT_LIMIT_BYTES + 1))
    asked = [*reversed(keys), "x/large", keys[0]]
    read = storage.backend().read_all_small([storage.at(key) for key in asked])
    assert len(read) == len(asked)
    for key, found in zip(asked, read, strict=True):
        if key == "x/007.sha256sum":
            assert found is None
        elif key == "x/large":
            assert isinstance(found, IntegrityError)
        else:
            assert isinstance(found, StoredBytes)
            assert (found.data, bool(found.etag)) == (key.encode(), True)
    assert storage.backend().read_all_small([]) == ()


# --- describe --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reads", [False, True])
def test_what_is_stored_is_described_with_its_true_digest_or_none(
    storage: Storage, tmp_path: Path, *, reads: bool
) -> None:
    large = os.urandom(MIB) * (SINGLE_PUT_LIMIT_BYTES // MIB + 9) + b"end"
    (tmp_path / "large").write_bytes(large)
    contents = {
        "x/a.log": b"log",
        "x/empty": b"",
        "x/é.json": b"{}",
        "x/large.tar.zst": large,
    }
    backend = storage.backend()
    backend.upload([UploadItem(data, storage.at(key)) for key, data in contents.items() if data is not large])
    backend.upload([UploadItem(tmp_path / "large", storage.at("x/large.tar.zst"))])
    asked = [*contents, "x/missing", "nowhere/at/all"]
    described = backend.describe([storage.at(key) for key in asked], reads=reads)
    assert described[len(contents) :] == (None, None)
    for key, facts in zip(contents, described, strict=False):
        assert isinstance(facts, ObjectFacts)
        assert (facts.location, facts.size_bytes) == (
            storage.at(key),
            len(contents[key]),
        )
        assert facts.content_type == infer_content_type(key)
        digest = hashlib.sha256(contents[key]).hexdigest()
        if reads or storage.kind == "local":
            assert facts.sha256 == digest
        elif key == "x/large.tar.zst":
            assert facts.sha256 == ""  # S3 keeps the digest of the parts' digests
        else:
            assert facts.sha256 == digest or storage.kind == "s3-moto"  # moto keeps none that comes with the put
    assert backend.describe([], reads=reads) == ()


def test_the_digest_that_the_service_keeps_is_given(s3_storage: S3Storage) -> None:
    s3_storage.client.put_object(Bucket=s3_storage.bucket, Key="a", Body=b"abc", ChecksumAlgorithm="SHA256")
    s3_storage.client.put_object(Bucket=s3_storage.bucket, Key="b", Body=b"abc", ChecksumAlgorithm="CRC32")
    described = s3_storage.backend().describe([s3_storage.at("a"), s3_storage.at("b")])
    assert [facts.sha256 for facts in described if isinstance(facts, ObjectFacts)] == [
        hashlib.sha256(b"abc").hexdigest(),
        "",
    ]


# --- on_downloaded ---------------------------------------------------------------------------------------------------


def test_each_file_is_told_once_when_it_has_its_name_one_call_at_a_time(storage: Storage, tmp_path: Path) -> None:
    large = os.urandom(MIB) * (SINGLE_PUT_LIMIT_BYTES // MIB + 1)
    contents = {f"x/{number}": f"{number}".encode() for number in range(80)} | {"x/large": large}
    for key, data in contents.items():
        storage.put(key, data)
    items = [DownloadItem(storage.at(key), tmp_path / key) for key in [*contents, "x/missing"]]
    told: list[DownloadedFile] = []
    inside = threading.Lock()

    def note(file: DownloadedFile) -> None:
        assert inside.acquire(blocking=False)
        assert file.item.target.read_bytes() == contents[file.item.location.relative_path]
        told.append(file)
        inside.release()

    result = storage.backend().download(items, on_downloaded=note)
    assert [failed.location for failed in result.failed] == [storage.at("x/missing")]
    assert sorted(told, key=lambda file: items.index(file.item)) == list(result.downloaded)
    assert len(told) == len(contents)


@pytest.mark.parametrize(
    "fault",
    [
        NotFoundError("not a failure of the download"),
        ZeroDivisionError(),
        KeyboardInterrupt(),
    ],
)
def test_what_on_downloaded_raises_ends_the_download_and_is_raised(
    storage: Storage, tmp_path: Path, fault: BaseException
) -> None:
    for number in range(200):
        storage.put(f"x/{number}", b"x")
    storage.put("x/large", bytes(SINGLE_PUT_LIMIT_BYTES + 1))
    items = [DownloadItem(storage.at(f"x/{name}"), tmp_path / f"{name}") for name in [*range(200), "large"]]
    told = []

    def fail(file: DownloadedFile) -> None:
        told.append(file)
        if len(told) == 3:
            raise fault

    with pytest.raises(type(fault)) as caught:
        storage.backend().download(items, on_downloaded=fail)
    assert caught.value is fault
    assert len(told) == 3
    assert len([path for path in tmp_path.iterdir() if path.is_file()]) < 201
    assert not list(tmp_path.glob(".therock*"))


# --- copying ---------------------------------------------------------------------------------------------------------


def test_many_copies_of_one_folder_and_a_few_of_others_all_arrive(
    storage: Storage,
) -> None:
    keys = [f"from/{number:02}.tar.zst" for number in range(40)] + [
        "from/logs/a",
        "from/logs/b",
        "from/x/y/z",
    ]
    storage.backend().upload([UploadItem(key.encode(), storage.at(key)) for key in keys])
    storage.put("to/07.tar.zst", b"older and of another size")
    storage.put("to/between", b"another's")
    pairs = [(storage.at(key), storage.at(key.replace("from", "to", 1))) for key in keys]
    missing = (
        storage.at("from/39.tar.zst.missing"),
        storage.at("to/39.tar.zst.missing"),
    )
    result = storage.backend().copy([*pairs, missing])
    assert [(failed.location, type(failed.error)) for failed in result.failed] == [(missing[1], NotFoundError)]
    assert [stored.location for stored in result.stored] == sorted(
        (destination for _, destination in pairs),
        key=lambda at: at.relative_path.encode(),
    )
    assert [stored.size_bytes for stored in result.stored] == [
        len(stored.location.relative_path) + 2 for stored in result.stored
    ]
    contents = storage.contents()
    assert all(contents[to.relative_path] == source.relative_path.encode() for source, to in pairs)
    assert contents["to/between"] == b"another's"


@pytest.mark.parametrize("count", [3, 30])
def test_copies_with_known_sizes_are_the_same_and_a_missing_source_is_named(storage: Storage, count: int) -> None:
    keys = [f"from/{number:02}" for number in range(count)]
    storage.backend().upload([UploadItem(key.encode(), storage.at(key)) for key in keys])
    sizes = {listed.location: listed.size_bytes for listed in storage.backend().list_folder(storage.at("from"))}
    gone = storage.at("from/gone")
    pairs = [(at, storage.at(at.relative_path.replace("from", "to"))) for at in [*sizes, gone]]
    result = storage.backend().copy(pairs, known_sizes={**sizes, gone: 4})
    assert [stored.size_bytes for stored in result.stored] == [len(key) for key in keys]
    (failed,) = result.failed
    assert (failed.path, failed.location, type(failed.error)) == (
        "from/gone",
        storage.at("to/gone"),
        NotFoundError,
    )
    assert "from/gone" in str(failed.error)
    assert sorted(storage.contents()) == sorted([*keys, *(f"to/{key[5:]}" for key in keys)])


def test_a_dry_run_copies_nothing_and_says_what_it_would(storage: Storage) -> None:
    keys = [f"from/{number:02}" for number in range(12)]
    storage.backend().upload([UploadItem(key.encode(), storage.at(key)) for key in keys])
    pairs = [(storage.at(key), storage.at(f"to/{key}")) for key in [*keys, "from/missing"]]
    result = storage.backend(dry_run=True).copy(pairs)
    assert [(stored.size_bytes, stored.verified) for stored in result.stored] == [(len(key), "dry-run") for key in keys]
    assert [type(failed.error) for failed in result.failed] == [NotFoundError]
    assert sorted(storage.contents()) == keys


# --- cancelling ------------------------------------------------------------------------------------------------------


def test_after_a_cancel_nothing_is_looked_at(storage: Storage) -> None:
    storage.put("x/a", b"a")
    backend, at, cancel = storage.backend(), storage.at("x/a"), CancelToken()
    cancel.cancel(15)
    calls: list[Callable[[], list[ListedObject] | object]] = [
        lambda: list(backend.list_folder(storage.at("x"), cancel=cancel)),
        lambda: backend.find(at, cancel=cancel),
        lambda: backend.read_all_small([at], cancel=cancel),
        lambda: backend.describe([at], cancel=cancel),
        lambda: backend.describe([at], reads=True, cancel=cancel),
    ]
    for call in calls:
        with pytest.raises(CancelledError) as caught:
            call()
        assert caught.value.exit_code == 143
    assert isinstance(caught.value, OutputsError)
