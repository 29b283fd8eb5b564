"""What a download does when the network, the service or the disk misbehave: a file is whole, or it is not there."""

from __future__ import annotations

import hashlib
import os
import threading
from typing import TYPE_CHECKING

import pytest

from _therock_utils import _errors
from _therock_utils._cancel import CancelToken
from _therock_utils._s3_plan import MIB, SINGLE_PUT_LIMIT_BYTES
from _therock_utils._transfer_types import DownloadItem
from _therock_utils.storage_backend import S3StorageBackend
from fakes.s3_fault_proxy import Answer, CutShort, HoldUp, Reset, Stall, s3_error

if TYPE_CHECKING:
    from pathlib import Path

    from fakes.s3_fault_proxy import Fault, Request
    from faults.conftest import Bucket

LARGE_BYTES = SINGLE_PUT_LIMIT_BYTES + 20 * MIB + 3


@pytest.fixture(scope="module")
def large() -> bytes:
    return os.urandom(MIB) * (LARGE_BYTES // MIB) + b"end"


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def _is_range(request: Request) -> bool:
    return request.method == "GET" and "range" in request.headers


@pytest.mark.parametrize("fault", [s3_error(503, "SlowDown"), s3_error(429, "TooManyRequests"), Reset(), CutShort(2)])
def test_a_small_object_arrives_after_two_faults(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path, fault: Fault
) -> None:
    bucket.client.put_object(Bucket=bucket.name, Key="a.log", Body=b"data")
    bucket.proxy.rule = lambda request: fault if request.number <= 2 else None
    item = DownloadItem(bucket.at("a.log"), tmp_path / "new" / "a.log", hashlib.sha256(b"data").hexdigest())
    result = backend.download([item])
    assert [(file.size_bytes, file.sha256) for file in result.downloaded] == [(4, item.sha256)]
    assert item.target.read_bytes() == b"data"
    assert _files(tmp_path) == ["a.log"]


def test_a_large_object_arrives_though_ranges_fail(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path, large: bytes
) -> None:
    bucket.client.put_object(Bucket=bucket.name, Key="large", Body=large)
    faults = iter([Reset(), s3_error(503, "SlowDown"), CutShort(MIB), *[s3_error(500, "InternalError")] * 9])
    bucket.proxy.rule = lambda request: next(faults, None) if _is_range(request) else None
    item = DownloadItem(bucket.at("large"), tmp_path / "large", hashlib.sha256(large).hexdigest())
    result = backend.download([item])
    assert [file.sha256 for file in result.downloaded] == [item.sha256]
    assert item.target.read_bytes() == large
    assert _files(tmp_path) == ["large"]


def test_a_large_object_that_is_replaced_while_it_is_read_is_a_failure(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path, large: bytes
) -> None:
    bucket.client.put_object(Bucket=bucket.name, Key="large", Body=large)
    replaced = threading.Event()

    def rule(request: Request) -> Fault:
        if _is_range(request) and not replaced.is_set():
            replaced.set()
            bucket.client.put_object(Bucket=bucket.name, Key="large", Body=large[::-1])
        return None

    bucket.proxy.rule = rule
    result = backend.download([DownloadItem(bucket.at("large"), tmp_path / "large")])
    assert [type(item.error) for item in result.failed] == [_errors.IntegrityError]
    assert "replaced" in result.failed[0].error.what
    assert _files(tmp_path) == []


@pytest.mark.parametrize("size_bytes", [4, LARGE_BYTES])
def test_bytes_with_another_digest_never_get_the_final_name(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path, size_bytes: int
) -> None:
    bucket.client.put_object(Bucket=bucket.name, Key="object", Body=b"x" * size_bytes)
    (tmp_path / "object").write_bytes(b"what was there before")
    result = backend.download([DownloadItem(bucket.at("object"), tmp_path / "object", "0" * 64)])
    assert [type(item.error) for item in result.failed] == [_errors.IntegrityError]
    assert (tmp_path / "object").read_bytes() == b"what was there before"
    assert _files(tmp_path) == ["object"]


def test_an_object_that_never_arrives_leaves_nothing_behind(
    bucket: Bucket, impatient_backend: S3StorageBackend, tmp_path: Path, large: bytes
) -> None:
    bucket.client.put_object(Bucket=bucket.name, Key="large", Body=large)
    bucket.proxy.rule = lambda request: Stall() if _is_range(request) else None
    result = impatient_backend.download([DownloadItem(bucket.at("large"), tmp_path / "large")])
    assert [type(item.error) for item in result.failed] == [_errors.ServiceUnavailableError]
    assert _files(tmp_path) == []


def test_a_cancel_while_ranges_hang_leaves_no_partial_file(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path, large: bytes
) -> None:
    bucket.client.put_object(Bucket=bucket.name, Key="large", Body=large)
    bucket.client.put_object(Bucket=bucket.name, Key="small", Body=b"x")
    cancel, released = CancelToken(), threading.Event()

    def rule(request: Request) -> Fault:
        if _is_range(request):
            cancel.cancel(15)
            return HoldUp(released)
        return None

    bucket.proxy.rule = rule
    result = backend.download([DownloadItem(bucket.at("large"), tmp_path / "large")], cancel=cancel)
    released.set()
    assert [(type(item.error), item.error.exit_code) for item in result.failed] == [(_errors.CancelledError, 143)]
    assert _files(tmp_path) == []


def test_a_denial_is_told_once_where_nothing_can_be_read(bucket: Bucket, tmp_path: Path) -> None:
    bucket.proxy.rule = lambda _: s3_error(403, "AccessDenied")
    items = [DownloadItem(bucket.at(f"{number}"), tmp_path / f"{number}") for number in range(300)]
    result = S3StorageBackend().download(items)
    assert [item.path for item in result.failed] == [str(item.target) for item in items]
    assert {type(item.error) for item in result.failed} == {_errors.NotPermittedError}
    assert len(bucket.proxy.requests) <= 64


def test_one_denied_object_does_not_keep_the_others_away(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    for number in range(70):
        bucket.client.put_object(Bucket=bucket.name, Key=f"{number:02}", Body=b"x")
    bucket.proxy.rule = lambda request: Answer(403) if request.path.endswith("/69") else None
    items = [DownloadItem(bucket.at(f"{number:02}"), tmp_path / f"{number:02}") for number in range(70)]
    result = backend.download(items)
    assert [item.location for item in result.failed] == [bucket.at("69")]
    assert len(result.downloaded) == 69


def test_a_missing_object_is_a_failure_of_that_object_alone(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    bucket.client.put_object(Bucket=bucket.name, Key="there", Body=b"")
    result = backend.download([DownloadItem(bucket.at(key), tmp_path / key) for key in ("missing", "there")])
    assert [type(item.error) for item in result.failed] == [_errors.NotFoundError]
    assert [file.item.target.read_bytes() for file in result.downloaded] == [b""]


def test_a_missing_bucket_is_not_taken_for_a_missing_object(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    location = type(bucket.at("a"))("no-such-bucket-here", "a")
    result = backend.download([DownloadItem(location, tmp_path / "a")])
    assert [type(item.error) for item in result.failed] == [_errors.BucketNotFoundError]


def test_a_target_that_cannot_be_written_is_a_failure_of_that_object_alone(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    for key in ("a", "b"):
        bucket.client.put_object(Bucket=bucket.name, Key=key, Body=b"x")
    (tmp_path / "file").write_bytes(b"a file where a folder is needed")
    targets = {"a": tmp_path / "file" / "a", "b": tmp_path / "b"}
    result = backend.download([DownloadItem(bucket.at(key), target) for key, target in targets.items()])
    assert [(item.location, type(item.error)) for item in result.failed] == [(bucket.at("a"), _errors.LocalFileError)]
    assert targets["b"].read_bytes() == b"x"
