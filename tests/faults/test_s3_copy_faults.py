"""Copies: how many requests they cost, and what they do when the service refuses, fails or hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    BucketNotFoundError,
    CancelledError,
    IntegrityError,
    NotFoundError,
    NotPermittedError,
    ServiceUnavailableError,
)
from _therock_utils._s3_plan import MIB
from _therock_utils.storage_backend import S3StorageBackend
from _therock_utils.storage_location import StorageLocation
from fakes.s3_fault_proxy import Answer, Reset, Stall, s3_error

if TYPE_CHECKING:
    from _therock_utils._transfer_types import UploadResult
    from fakes.s3_fault_proxy import Fault, Request
    from faults.conftest import Bucket

COUNT = 40
Pairs = list[tuple[StorageLocation, StorageLocation]]


def _is_copy(request: Request) -> bool:
    return request.method == "PUT" and "x-amz-copy-source" in request.headers


def _requests(bucket: Bucket) -> tuple[int, int, int]:
    """How many copies, listings and HEADs."""
    count = bucket.proxy.count
    return count(_is_copy), count(lambda request: request.is_listing), count(lambda request: request.method == "HEAD")


def _pairs(bucket: Bucket, count: int = COUNT) -> Pairs:
    keys = [f"from/{number:03}.tar.zst" for number in range(count)]
    bucket.lay(*keys)
    return [(bucket.at(key), bucket.at(f"to/{key[5:]}")) for key in keys]


def _sizes(pairs: Pairs) -> dict[StorageLocation, int]:
    return {source: 1 for source, _ in pairs}


def _assert_all_stored(result: UploadResult, pairs: Pairs) -> None:
    assert result.failed == ()
    assert [stored.location for stored in result.stored] == [to for _, to in pairs]
    assert {(stored.size_bytes, stored.verified) for stored in result.stored} == {(1, "size-only")}


def test_copies_to_one_folder_cost_a_request_each_and_a_listing(bucket: Bucket, backend: S3StorageBackend) -> None:
    pairs = _pairs(bucket)
    _assert_all_stored(backend.copy(pairs, known_sizes=_sizes(pairs)), pairs)
    assert _requests(bucket) == (COUNT, 1, 0)


def test_sizes_of_sources_that_are_not_known_cost_another_listing(bucket: Bucket, backend: S3StorageBackend) -> None:
    pairs = _pairs(bucket)
    _assert_all_stored(backend.copy(pairs), pairs)
    assert _requests(bucket) == (COUNT, 2, 0)


def test_a_few_copies_are_looked_at_one_by_one(bucket: Bucket, backend: S3StorageBackend) -> None:
    pairs = _pairs(bucket, 3)
    _assert_all_stored(backend.copy(pairs, known_sizes=_sizes(pairs[:2])), pairs)
    assert _requests(bucket) == (3, 0, 1 + 3)


def test_a_folder_that_may_not_be_listed_is_looked_at_object_by_object(
    bucket: Bucket, backend: S3StorageBackend
) -> None:
    pairs = _pairs(bucket)
    bucket.proxy.rule = lambda request: s3_error(403, "AccessDenied") if request.is_listing else None
    _assert_all_stored(backend.copy(pairs), pairs)
    assert _requests(bucket) == (COUNT, 2, 2 * COUNT)


def test_a_folder_of_many_others_is_not_listed_to_its_end(bucket: Bucket, backend: S3StorageBackend) -> None:
    pairs = _pairs(bucket, 16)
    bucket.lay(*(f"to/007x{number:05}" for number in range(4000)))
    _assert_all_stored(backend.copy(pairs, known_sizes=_sizes(pairs)), pairs)
    assert _requests(bucket) == (16, 2, 8)


def test_a_copy_that_a_listing_shows_with_another_size_is_a_failure(bucket: Bucket, backend: S3StorageBackend) -> None:
    pairs = _pairs(bucket)

    def rule(request: Request) -> Fault:
        if request.is_listing and request.query["prefix"] == "to/":
            bucket.lay("to/007.tar.zst", data=b"other")
        return None

    bucket.proxy.rule = rule
    result = backend.copy(pairs)
    assert [(failed.location, type(failed.error)) for failed in result.failed] == [(pairs[7][1], IntegrityError)]
    assert len(result.stored) == COUNT - 1


def test_a_wrong_known_size_is_a_failure(bucket: Bucket, backend: S3StorageBackend) -> None:
    pairs = _pairs(bucket, 2)
    result = backend.copy(pairs, known_sizes={pairs[0][0]: 2})
    assert [(failed.location, type(failed.error)) for failed in result.failed] == [(pairs[0][1], IntegrityError)]


@pytest.mark.parametrize("other_bucket", [False, True])
@pytest.mark.parametrize(
    "fault",
    [
        s3_error(503, "SlowDown"),
        Reset(),
        # S3 may answer 200 before it knows (Amazon S3 API Reference, "CopyObject").
        Answer(200, b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"),
    ],
)
def test_copies_go_on_after_two_faults(
    bucket: Bucket, backend: S3StorageBackend, fault: Fault, *, other_bucket: bool
) -> None:
    pairs = _pairs(bucket, 9)
    if other_bucket:
        pairs = [(source, StorageLocation(f"{bucket.name}-other", to.relative_path)) for source, to in pairs]
        bucket.client.create_bucket(Bucket=f"{bucket.name}-other")
    bucket.proxy.rule = lambda request: fault if _is_copy(request) and request.number <= 2 else None
    _assert_all_stored(backend.copy(pairs), pairs)


def test_many_copies_between_buckets_have_connections_enough(
    bucket: Bucket, backend: S3StorageBackend, caplog: pytest.LogCaptureFixture
) -> None:
    pairs = [(source, StorageLocation(f"{bucket.name}-other", to.relative_path)) for source, to in _pairs(bucket, 150)]
    bucket.client.create_bucket(Bucket=f"{bucket.name}-other")
    _assert_all_stored(backend.copy(pairs), pairs)
    assert _requests(bucket) == (150, 2, 0)
    assert "Connection pool is full" not in caplog.text  # as urllib3 says of each that it cannot keep


def test_a_large_copy_between_buckets_goes_in_parts(
    bucket: Bucket, backend: S3StorageBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("_therock_utils._s3_copy.COPY_LIMIT_BYTES", 9 * MIB)
    to = StorageLocation(f"{bucket.name}-other", "b")
    bucket.client.create_bucket(Bucket=to.bucket)
    bucket.client.put_object(Bucket=bucket.name, Key="a", Body=bytes(10 * MIB), ContentType="text/x-log")
    assert [stored.size_bytes for stored in backend.copy([(bucket.at("a"), to)]).stored] == [10 * MIB]
    assert bucket.client.head_object(Bucket=to.bucket, Key=to.relative_path)["ContentType"] == "text/x-log"


def test_a_denial_of_copies_is_told_once(bucket: Bucket, backend: S3StorageBackend) -> None:
    pairs = _pairs(bucket, 300)
    bucket.proxy.rule = lambda request: s3_error(403, "AccessDenied") if _is_copy(request) else None
    result = backend.copy(pairs)
    assert len(result.failed) == 300
    assert {type(failed.error) for failed in result.failed} == {NotPermittedError}
    assert bucket.proxy.count(_is_copy) <= 64


def test_a_missing_bucket_and_a_missing_object_are_told_apart(bucket: Bucket, backend: S3StorageBackend) -> None:
    bucket.lay("a")
    nowhere = f"{bucket.name}-none"
    known = {bucket.at("gone"): 1, bucket.at("a"): 1}
    gone = backend.copy([(bucket.at("gone"), bucket.at("b"))], known_sizes=known)
    assert [type(failed.error) for failed in gone.failed] == [NotFoundError]
    assert "gone" in gone.failed[0].error.what
    lost = backend.copy([(bucket.at("a"), StorageLocation(nowhere, "b"))], known_sizes=known)
    assert [type(failed.error) for failed in lost.failed] == [BucketNotFoundError]


def test_copies_to_a_service_that_is_away_fail_each_with_the_reason(bucket: Bucket) -> None:
    backend = S3StorageBackend(endpoint_url="http://127.0.0.1:9", retry_seconds=0.5, request_timeout_seconds=0.5)
    pairs = [(bucket.at(f"from/{number}"), bucket.at(f"to/{number}")) for number in range(100)]
    for known in ({}, dict.fromkeys((source for source, _ in pairs), 1)):
        result = backend.copy(pairs, known_sizes=known)
        assert len(result.failed) == 100
        assert {type(failed.error) for failed in result.failed} == {ServiceUnavailableError}


@pytest.mark.parametrize("hanging", ["copy", "listing", "head"])
def test_a_cancel_ends_copies_though_requests_hang(bucket: Bucket, backend: S3StorageBackend, hanging: str) -> None:
    pairs = _pairs(bucket, 3 if hanging == "head" else COUNT)
    cancel = CancelToken()
    hangs = {
        "copy": _is_copy,
        "listing": lambda request: request.is_listing,
        "head": lambda request: request.method == "HEAD" and request.path.endswith("/to/001.tar.zst"),
    }[hanging]

    def rule(request: Request) -> Fault:
        if not hangs(request):
            return None
        cancel.cancel(15)
        return Stall()

    bucket.proxy.rule = rule
    result = backend.copy(pairs, cancel=cancel)
    assert len(result.stored) + len(result.failed) == len(pairs)
    assert result.failed
    assert {type(failed.error) for failed in result.failed} == {CancelledError}
