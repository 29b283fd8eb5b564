"""Looking around when the service refuses, is away or hangs: what cannot be known is never taken for nothing."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils import _s3_listing, _s3_retry
from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    BucketNotFoundError,
    CancelledError,
    CredentialsError,
    NotPermittedError,
    OutputsError,
    ServiceUnavailableError,
)
from _therock_utils._s3_plan import MIB, SINGLE_PUT_LIMIT_BYTES
from _therock_utils._s3_retry import Outages
from _therock_utils._transfer_types import DownloadItem, ObjectFacts, StoredBytes
from _therock_utils.artifact_backend import S3Backend
from _therock_utils.s3_buckets import INVENTORY
from _therock_utils.storage_backend import S3StorageBackend
from _therock_utils.storage_location import StorageLocation
from _therock_utils.workflow_outputs import WorkflowOutputRoot
from fakes.s3_fault_proxy import Answer, CutShort, Reset, Stall, s3_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _therock_utils.storage_backend import StorageBackend
    from fakes.s3_fault_proxy import Fault, Request
    from faults.conftest import Bucket

ARTIFACT = "blas_lib_generic.tar.zst"
LARGE_BYTES = SINGLE_PUT_LIMIT_BYTES + 20 * MIB + 3


def _listings(bucket: Bucket) -> int:
    return bucket.proxy.count(lambda request: request.is_listing)


def _artifacts(bucket: Bucket, storage: StorageBackend | None = None) -> S3Backend:
    return S3Backend(WorkflowOutputRoot(bucket.name, "", "12345", "linux"), storage=storage)


# Each way of looking, as a function of a storage and a bucket.
WAYS: dict[str, Callable[[StorageBackend, Bucket, CancelToken | None], Any]] = {
    "list_objects": lambda storage, bucket, cancel: list(storage.list_objects(bucket.at("12345-linux"), cancel=cancel)),
    "list_folder": lambda storage, bucket, cancel: list(storage.list_folder(bucket.at("12345-linux"), cancel=cancel)),
    "find": lambda storage, bucket, cancel: storage.find(bucket.at(f"12345-linux/{ARTIFACT}"), cancel=cancel),
    "read_small": lambda storage, bucket, cancel: storage.read_small(bucket.at("12345-linux/x"), cancel=cancel),
    "list_artifacts": lambda storage, bucket, _: _artifacts(bucket, storage).list_artifacts(),
    "artifact_exists": lambda storage, bucket, _: _artifacts(bucket, storage).artifact_exists(ARTIFACT),
}
BATCHES: dict[str, Callable[[StorageBackend, list[StorageLocation], CancelToken | None], Any]] = {
    "read_all_small": lambda storage, locations, cancel: storage.read_all_small(locations, cancel=cancel),
    "describe": lambda storage, locations, cancel: storage.describe(locations, cancel=cancel),
    "describe and read": lambda storage, locations, cancel: storage.describe(locations, reads=True, cancel=cancel),
}


# --- how many requests ------------------------------------------------------------------------------------------------


def test_log_files_of_a_run_cost_a_list_of_its_artifacts_nothing(bucket: Bucket) -> None:
    names = [f"{letter}{number:04}_lib_generic.tar.zst" for letter in "az" for number in range(501)][:1001]
    bucket.lay(*(f"12345-linux/{name}" for name in names))
    bucket.lay(*(f"12345-linux/logs/math-libs/{number}.log" for number in range(3000)))
    bucket.lay("12345-linux2/other_lib_generic.tar.zst", "12345-linux/manifests/therock_manifest.json")
    assert _artifacts(bucket).list_artifacts() == names
    assert _listings(bucket) == 2
    assert len(list(S3StorageBackend().list_objects(bucket.at("12345-linux")))) == 4002
    assert _listings(bucket) == 2 + 5


def test_small_sub_folders_cost_no_request_of_their_own(bucket: Bucket) -> None:
    bucket.lay(*(f"x/{folder:02}/{number}" for folder in range(40) for number in range(10)), "x/20", "x/last")
    listed = [entry.location.relative_path for entry in S3StorageBackend().list_folder(bucket.at("x"))]
    assert listed == ["x/20", "x/last"]
    assert _listings(bucket) == 1


def test_a_folder_of_many_large_folders_is_left_to_the_service_to_pass_over(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_s3_listing, "_PAGE_KEYS", 100)
    bucket.lay(*(f"{folder:03}/{number:03}" for folder in range(150) for number in range(101)), "000", "149a")
    listed = [entry.location.relative_path for entry in S3StorageBackend().list_folder(bucket.at(""))]
    assert listed == ["000", "149a"]
    assert _listings(bucket) <= 16 + 2
    assert bucket.proxy.count(lambda request: request.query.get("delimiter") == "/") == 2


def test_finding_an_object_costs_a_request_and_missing_it_two(bucket: Bucket, backend: S3StorageBackend) -> None:
    bucket.lay("a")
    assert backend.find(bucket.at("a")) is not None
    assert [request.method for request in bucket.proxy.requests] == ["HEAD"]
    assert backend.find(bucket.at("b")) is None
    assert [request.method for request in bucket.proxy.requests] == ["HEAD", "HEAD", "GET"]


# --- refused, away, broken --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (s3_error(403, "AccessDenied"), NotPermittedError),
        (s3_error(403, "InvalidAccessKeyId"), CredentialsError),
        (s3_error(400, "ExpiredToken"), CredentialsError),
        (s3_error(404, "NoSuchBucket"), BucketNotFoundError),
        (s3_error(503, "SlowDown"), ServiceUnavailableError),
        (Reset(), ServiceUnavailableError),
    ],
)
def test_what_the_service_refuses_to_say_is_an_error_of_its_kind(
    bucket: Bucket, impatient_backend: S3StorageBackend, way: str, fault: Fault, kind: type[OutputsError]
) -> None:
    bucket.proxy.rule = lambda _: fault
    with pytest.raises(kind) as caught:
        WAYS[way](impatient_backend, bucket, None)
    assert type(caught.value) is kind


@pytest.mark.parametrize("way", WAYS)
def test_a_service_that_is_not_there_is_an_error(way: str, bucket: Bucket) -> None:
    backend = S3StorageBackend(endpoint_url="http://127.0.0.1:9", retry_seconds=0.5, request_timeout_seconds=0.5)
    with pytest.raises(ServiceUnavailableError):
        WAYS[way](backend, bucket, None)


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("http://127.0.0.1:9", "the connection was refused"),
        ("http://s3.example.invalid", "the host's name could not be resolved"),
    ],
)
def test_a_service_that_is_not_there_is_told_of_while_it_is_waited_for(
    bucket: Bucket, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, url: str, cause: str
) -> None:
    monkeypatch.setattr(_s3_retry, "_outages", Outages())
    backend = S3StorageBackend(endpoint_url=url, retry_seconds=0.5, request_timeout_seconds=5)
    with pytest.raises(ServiceUnavailableError):
        list(backend.list_folder(bucket.at("12345-linux")))
    (line,) = [line for line in caplog.messages if "asking again" in line]
    assert line == f"S3 bucket {bucket.name}: {cause}: asking again in 0.5 s, for 0.5 s at most"


@pytest.mark.parametrize("way", [*WAYS, *BATCHES])
def test_looking_goes_on_after_two_faults(bucket: Bucket, backend: S3StorageBackend, way: str) -> None:
    bucket.lay(f"12345-linux/{ARTIFACT}", "12345-linux/x")
    bucket.proxy.rule = lambda request: s3_error(503, "SlowDown") if request.number <= 2 else None
    if way in WAYS:
        assert WAYS[way](backend, bucket, None)
    else:
        (found,) = BATCHES[way](backend, [bucket.at("12345-linux/x")], None)
        assert isinstance(found, (StoredBytes, ObjectFacts))


def test_a_denied_object_may_be_a_missing_one_and_the_error_says_so(bucket: Bucket, backend: S3StorageBackend) -> None:
    bucket.proxy.rule = lambda request: s3_error(403, "AccessDenied") if request.path.endswith("/a") else None
    asked = [bucket.at("a")]
    with pytest.raises(NotPermittedError) as found:
        backend.find(asked[0])
    denials = [found.value, *(BATCHES[way](backend, asked, None)[0] for way in BATCHES)]
    for denial in denials:
        assert isinstance(denial, NotPermittedError)
        assert "or does not exist" in denial.what
        assert "s3:ListBucket" in denial.remedy


def test_what_a_head_refuses_the_answer_with_a_body_decides(bucket: Bucket, backend: S3StorageBackend) -> None:
    bucket.lay("there")
    bucket.proxy.rule = lambda request: Answer(403) if request.method == "HEAD" else None
    assert backend.find(bucket.at("missing")) is None
    found = backend.find(bucket.at("there"))
    assert found is not None
    assert found.size_bytes == 1
    there, missing = backend.describe([bucket.at("there"), bucket.at("missing")])
    assert missing is None
    assert isinstance(there, ObjectFacts)
    assert (there.size_bytes, there.sha256) == (1, "")


@pytest.mark.parametrize("way", BATCHES)
@pytest.mark.parametrize("denied", [0, 150, 299])
def test_one_missing_and_one_denied_object_hide_no_other(
    bucket: Bucket, backend: S3StorageBackend, way: str, denied: int
) -> None:
    keys = [f"x/{number:03}.sha256sum" for number in range(300)]
    bucket.lay(*keys[:7], *keys[8:])
    bucket.proxy.rule = lambda request: s3_error(403, "AccessDenied") if request.path.endswith(keys[denied]) else None
    found = BATCHES[way](backend, [bucket.at(key) for key in keys], None)
    for number, one in enumerate(found):
        if number == 7:
            assert one is None
        elif number == denied:
            assert isinstance(one, NotPermittedError)
        else:
            assert isinstance(one, (StoredBytes, ObjectFacts))


@pytest.mark.parametrize("way", BATCHES)
def test_where_all_is_denied_not_every_object_is_asked_for(bucket: Bucket, backend: S3StorageBackend, way: str) -> None:
    bucket.proxy.rule = lambda _: s3_error(403, "AccessDenied")
    found = BATCHES[way](backend, [bucket.at(f"{number}") for number in range(500)], None)
    assert len(found) == 500
    assert {type(one) for one in found} == {NotPermittedError}
    assert len(bucket.proxy.requests) < 200


@pytest.mark.parametrize("way", BATCHES)
def test_a_missing_bucket_is_an_error_of_each_object(bucket: Bucket, backend: S3StorageBackend, way: str) -> None:
    locations = [StorageLocation(f"{bucket.name}-none", "a"), bucket.at("b")]
    missing, other = BATCHES[way](backend, locations, None)
    assert isinstance(missing, BucketNotFoundError)
    assert other is None


def test_bytes_are_read_and_hashed_though_ranges_fail(bucket: Bucket, backend: S3StorageBackend) -> None:
    data = os.urandom(MIB) * (LARGE_BYTES // MIB) + b"end"
    bucket.client.put_object(Bucket=bucket.name, Key="large", Body=data, ContentType="text/x-log")
    faults = iter([Reset(), s3_error(503, "SlowDown"), CutShort(MIB), *[s3_error(500, "InternalError")] * 9])
    bucket.proxy.rule = lambda request: next(faults, None) if "range" in request.headers else None
    assert backend.describe([bucket.at("large")], reads=True) == (
        ObjectFacts(bucket.at("large"), len(data), hashlib.sha256(data).hexdigest(), "text/x-log"),
    )


# --- cancelling while requests hang -----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [way for way in WAYS if "artifact" not in way])
def test_looking_ends_with_a_cancel_though_the_request_hangs(
    bucket: Bucket, backend: S3StorageBackend, way: str
) -> None:
    cancel = CancelToken()

    def rule(_: Request) -> Fault:
        cancel.cancel(15)
        return Stall()

    bucket.proxy.rule = rule
    with pytest.raises(CancelledError) as caught:
        WAYS[way](backend, bucket, cancel)
    assert caught.value.exit_code == 143


@pytest.mark.parametrize("way", BATCHES)
def test_looking_at_many_ends_with_a_cancel_though_some_hang(
    bucket: Bucket, backend: S3StorageBackend, way: str
) -> None:
    keys = [f"{number:03}" for number in range(100)]
    bucket.lay(*keys)
    cancel = CancelToken()

    def rule(request: Request) -> Fault:
        if not request.path.endswith("/050"):
            return None
        cancel.cancel(2)
        return Stall()

    bucket.proxy.rule = rule
    with pytest.raises(CancelledError):
        BATCHES[way](backend, [bucket.at(key) for key in keys], cancel)


def test_a_cancel_in_on_downloaded_leaves_what_arrived_and_tells_the_rest(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    bucket.lay(*(f"{number:03}" for number in range(300)))
    items = [DownloadItem(bucket.at(f"{number:03}"), tmp_path / f"{number:03}") for number in range(300)]
    cancel, told = CancelToken(), []

    def stop(file: object) -> None:
        told.append(file)
        cancel.cancel(15)

    result = backend.download(items, cancel=cancel, on_downloaded=stop)
    assert len(result.downloaded) + len(result.failed) == 300
    assert result.failed
    assert {type(failed.error) for failed in result.failed} == {CancelledError}
    assert sorted(told, key=str) == sorted(result.downloaded, key=str)


# --- listings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listing", ["list_objects", "list_folder"])
def test_a_listing_that_anonymous_readers_are_denied_is_asked_for_signed_and_whole(
    bucket: Bucket, backend: S3StorageBackend, listing: str
) -> None:
    def rule(request: Request) -> Fault:
        if "authorization" not in request.headers:
            return s3_error(403, "AccessDenied")
        body = (
            "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>run/a</Key><ETag>x</ETag><Size>1</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>"
        )
        return Answer(200, body.encode())

    bucket.proxy.rule = rule
    found = list(getattr(backend, listing)(StorageLocation(INVENTORY[0], "run")))
    assert [entry.location.relative_path for entry in found] == ["run/a"]


def test_a_folder_marker_is_no_object_and_an_empty_object_is_one(bucket: Bucket, backend: S3StorageBackend) -> None:
    bucket.lay("run/a", "run/logs/x", "run/logs-2", "run/both/x")
    bucket.lay("run/", "run/logs/", "run/both", "run/empty", "bare/", data=b"")
    listed = [entry.location.relative_path for entry in backend.list_objects(bucket.at("run"))]
    assert listed == ["run/a", "run/both", "run/both/x", "run/empty", "run/logs-2", "run/logs/x"]
    listed = [entry.location.relative_path for entry in backend.list_folder(bucket.at("run"))]
    assert listed == ["run/a", "run/both", "run/empty", "run/logs-2"]
    for listing in (backend.list_objects, backend.list_folder):
        assert list(listing(bucket.at("bare"))) == []


def test_a_folder_with_a_key_that_no_location_can_have_is_listed_without_it(
    bucket: Bucket, backend: S3StorageBackend, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.lay("run/a", "run//b", "run/c", "run/d//e", "run/f\x01", "run/g")
    listed = [entry.location.relative_path for entry in backend.list_folder(bucket.at("run"))]
    assert listed == ["run/a", "run/c", "run/g"]
    assert "run/f" in caplog.text


def test_a_page_that_breaks_is_asked_for_again_from_where_it_was(bucket: Bucket, backend: S3StorageBackend) -> None:
    names = [f"x/{number:04}" for number in range(2500)]
    bucket.lay(*names, *(f"x/1500x/{number:04}" for number in range(1500)))
    faults = iter([None, Reset(), s3_error(503, "SlowDown"), CutShort(1000)] + [s3_error(500, "InternalError")] * 5)
    bucket.proxy.rule = lambda _: next(faults, None)
    assert [entry.location.relative_path for entry in backend.list_folder(bucket.at("x"))] == names
