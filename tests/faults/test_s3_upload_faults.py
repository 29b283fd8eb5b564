"""What an upload does when the network, the service or the files misbehave."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pytest

from _therock_utils import _errors
from _therock_utils._cancel import CancelToken
from _therock_utils._s3_budget import PartBuffers
from _therock_utils._s3_plan import MIB, PART_SIZE_BYTES, SINGLE_PUT_LIMIT_BYTES
from _therock_utils._s3_session import S3Connection
from _therock_utils._transfer_types import Origin, UploadItem
from _therock_utils.storage_backend import S3StorageBackend
from _therock_utils.storage_location import StorageLocation
from fakes.s3_environment import clean_aws_environment
from fakes.s3_fault_proxy import Answer, CutShort, HoldUp, Reset, Stall, s3_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _therock_utils._transfer_types import OnConflict, UploadResult
    from fakes.s3_fault_proxy import Fault, Request
    from faults.conftest import Bucket

LARGE_BYTES = SINGLE_PUT_LIMIT_BYTES + 3 * MIB


def _large_file(tmp_path: Path, name: str = "large.tar.xz") -> Path:
    path = tmp_path / name
    path.write_bytes(os.urandom(MIB) * (LARGE_BYTES // MIB))
    return path


def _is_obstores_abort(request: Request) -> bool:
    return request.method == "DELETE" and request.headers.get("user-agent") == "therock-outputs"


@pytest.mark.parametrize(
    "fault", [s3_error(503, "SlowDown"), s3_error(429, "TooManyRequests"), s3_error(500, "InternalError"), Reset(1)]
)
def test_a_small_object_that_fails_twice_is_stored_by_the_third_request(
    bucket: Bucket, backend: S3StorageBackend, fault: Fault
) -> None:
    bucket.proxy.rule = lambda request: fault if request.method == "PUT" and request.number <= 2 else None
    result = backend.upload([bucket.item("a.log")])
    assert [stored.location for stored in result.stored] == [bucket.at("a.log")]
    assert bucket.get("a.log") == b"data"
    assert bucket.proxy.count(lambda request: request.method == "PUT") == 3


def test_more_failures_than_obstore_has_patience_for_are_tried_again_as_a_whole(
    bucket: Bucket, backend: S3StorageBackend
) -> None:
    bucket.proxy.rule = lambda request: (
        s3_error(503, "SlowDown") if request.method == "PUT" and request.number <= 6 else None
    )
    assert not backend.upload([bucket.item("a.log")]).failed
    assert bucket.get("a.log") == b"data"


def test_a_part_whose_connection_is_reset_in_its_body_is_sent_again(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    path = _large_file(tmp_path)
    resets = iter([Reset(MIB), Reset(3 * MIB)])
    bucket.proxy.rule = lambda request: next(resets, None) if request.is_part else None
    result = backend.upload([UploadItem(path, bucket.at("large.tar.xz"))])
    assert [(stored.sha256, stored.verified) for stored in result.stored] == [
        (hashlib.sha256(path.read_bytes()).hexdigest(), "sha256-parts")
    ]
    assert bucket.get("large.tar.xz") == path.read_bytes()
    assert bucket.open_uploads() == []


def test_a_buffer_is_not_filled_again_before_its_part_is_sent(bucket: Bucket) -> None:
    """obstore must keep the very views it was given: their end is what frees a buffer."""
    released, filled = threading.Event(), []
    buffers, cancel = PartBuffers(2 * PART_SIZE_BYTES, kept_bytes=PART_SIZE_BYTES), CancelToken()

    def parts() -> Iterator[memoryview]:
        for number in range(4):
            view = buffers.take(PART_SIZE_BYTES, PART_SIZE_BYTES, cancel)
            filled.append(released.is_set())
            view[:] = bytes([number]) * PART_SIZE_BYTES
            yield view
            del view

    bucket.proxy.rule = lambda request: HoldUp(released) if request.is_part else None
    threading.Timer(0.5, released.set).start()
    store = S3Connection(request_timeout_seconds=20, retry_seconds=20).store(bucket.name)
    obstore.put(store, "large", parts(), use_multipart=True, chunk_size=PART_SIZE_BYTES, max_concurrency=8)
    assert filled == [False, False, True, True]
    assert bucket.get("large") == b"".join(bytes([number]) * PART_SIZE_BYTES for number in range(4))


def test_a_large_object_whose_parts_fail_for_long_is_read_and_sent_again(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    path = _large_file(tmp_path)
    faults = iter([s3_error(503, "SlowDown")] * 12)
    bucket.proxy.rule = lambda request: next(faults, None) if request.is_part else None
    result = backend.upload([UploadItem(path, bucket.at("large.tar.xz"))])
    assert [stored.sha256 for stored in result.stored] == [hashlib.sha256(path.read_bytes()).hexdigest()]
    assert bucket.get("large.tar.xz") == path.read_bytes()
    assert bucket.open_uploads() == []


def test_after_a_failed_multipart_upload_nothing_is_left_open(
    bucket: Bucket, impatient_backend: S3StorageBackend, tmp_path: Path
) -> None:
    bucket.proxy.rule = lambda request: s3_error(500, "InternalError") if request.is_part else None
    result = impatient_backend.upload([UploadItem(_large_file(tmp_path), bucket.at("large.tar.xz"))])
    assert [type(item.error) for item in result.failed] == [_errors.ServiceUnavailableError]
    assert bucket.open_uploads() == []
    assert bucket.keys() == []


def test_an_upload_that_obstore_could_not_abort_is_found_and_aborted(
    bucket: Bucket, impatient_backend: S3StorageBackend, tmp_path: Path
) -> None:
    bucket.proxy.rule = lambda request: (
        s3_error(500, "InternalError") if request.is_part or _is_obstores_abort(request) else None
    )
    impatient_backend.upload([UploadItem(_large_file(tmp_path), bucket.at("folder/large.tar.xz"))])
    assert bucket.proxy.count(_is_obstores_abort) > 0
    assert bucket.open_uploads() == []


def test_an_open_upload_that_may_not_be_aborted_is_named_in_the_report(
    bucket: Bucket, impatient_backend: S3StorageBackend, tmp_path: Path
) -> None:
    def rule(request: Request) -> Fault:
        if request.is_part:
            return s3_error(500, "InternalError")
        return s3_error(403, "AccessDenied") if "uploads" in request.query and request.method == "GET" else None

    bucket.proxy.rule = rule
    result = impatient_backend.upload([UploadItem(_large_file(tmp_path), bucket.at("large.tar.xz"))])
    assert "s3:AbortMultipartUpload" in result.failed[0].error.remedy
    assert bucket.at("large.tar.xz").s3_uri in result.failed[0].error.remedy


def test_multipart_uploads_that_others_began_stay_open(
    bucket: Bucket, impatient_backend: S3StorageBackend, tmp_path: Path
) -> None:
    for key in ("large.tar.xz", "other.tar.xz"):
        bucket.client.create_multipart_upload(Bucket=bucket.name, Key=key)  # in 2010, as moto says
    bucket.proxy.rule = lambda request: (
        s3_error(500, "InternalError") if request.is_part or _is_obstores_abort(request) else None
    )
    impatient_backend.upload([UploadItem(_large_file(tmp_path), bucket.at("large.tar.xz"))])
    assert bucket.open_uploads() == ["large.tar.xz", "other.tar.xz"]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "AccessDenied", _errors.NotPermittedError),
        (400, "ExpiredToken", _errors.CredentialsError),
        (404, "NoSuchBucket", _errors.BucketNotFoundError),
        (301, "PermanentRedirect", _errors.WrongRegionError),
    ],
)
def test_a_permanent_error_is_told_once_and_stops_the_rest(
    bucket: Bucket, status: int, code: str, kind: type[_errors.OutputsError]
) -> None:
    bucket.proxy.rule = lambda _: s3_error(status, code)
    backend = S3StorageBackend(upload_concurrency=8)
    result = backend.upload([bucket.item(f"{number}.log") for number in range(500)])
    assert len(result.failed) == 500
    assert {type(item.error) for item in result.failed} == {kind}
    assert len({id(item.error) for item in result.failed}) <= 8
    assert len(bucket.proxy.requests) <= 9


def test_a_service_that_stays_away_is_not_waited_for_once_an_object(
    bucket: Bucket,
) -> None:
    backend = S3StorageBackend(retry_seconds=0.5, request_timeout_seconds=0.5, upload_concurrency=4)
    bucket.proxy.rule = lambda request: None if request.is_listing else s3_error(503, "SlowDown")
    result = backend.upload([bucket.item(f"{number}.log") for number in range(300)])
    assert len(result.failed) == 300
    assert all(item.error.transient for item in result.failed)
    assert bucket.proxy.count(lambda request: request.method == "PUT") < 100


def test_a_server_that_stays_silent_ends_in_an_error_that_says_so(
    bucket: Bucket, impatient_backend: S3StorageBackend
) -> None:
    bucket.proxy.rule = lambda request: Stall() if request.method == "PUT" else None
    result = impatient_backend.upload([bucket.item("a.log")])
    assert "in time" in result.failed[0].error.why


def test_without_credentials_nothing_is_asked_and_the_remedy_says_where_to_get_some(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean_aws_environment(monkeypatch)
    backend = S3StorageBackend(endpoint_url=bucket.proxy.url, region="us-east-1")
    result = backend.upload([bucket.item("a.log"), bucket.item("b.log")])
    assert {type(item.error) for item in result.failed} == {_errors.CredentialsError}
    assert "id-token: write" in result.failed[0].error.remedy
    assert bucket.proxy.count(lambda request: request.is_write) == 0


def test_objects_of_another_bucket_are_stored_though_one_bucket_refuses(
    bucket: Bucket, backend: S3StorageBackend
) -> None:
    other = f"{bucket.name}-other"
    bucket.client.create_bucket(Bucket=other)
    bucket.proxy.rule = lambda request: (
        s3_error(403, "AccessDenied") if request.path.startswith(f"/{bucket.name}/") and request.is_write else None
    )
    item = bucket.item("a.log")
    twin = UploadItem(b"data", type(item.destination)(other, "a.log"))
    result = backend.upload([item, twin])
    assert [failed.location.bucket for failed in result.failed] == [bucket.name]
    assert [stored.location.bucket for stored in result.stored] == [other]


def test_writing_goes_on_where_listing_is_not_permitted_and_the_caller_is_told(
    bucket: Bucket, backend: S3StorageBackend
) -> None:
    bucket.proxy.rule = lambda request: s3_error(403, "AccessDenied") if request.is_listing else None
    result = backend.upload([bucket.item("a.log"), bucket.item("b.log")])
    assert len(result.stored) == 2
    assert (result.failed, result.conflicts) == ((), ())
    assert len(result.notices) == 1
    assert bucket.name in result.notices[0]
    assert "cannot be listed" in result.notices[0]
    assert (result + result).notices == result.notices


@pytest.mark.parametrize("on_conflict", ["error", "skip"])
def test_what_is_not_to_be_overwritten_is_not_written_where_listing_is_not_permitted(
    bucket: Bucket, backend: S3StorageBackend, on_conflict: OnConflict
) -> None:
    other = f"{bucket.name}-other"
    bucket.client.create_bucket(Bucket=other)
    bucket.client.put_object(Bucket=bucket.name, Key="run/b.log", Body=b"theirs")
    bucket.proxy.rule = lambda request: (
        s3_error(403, "AccessDenied") if request.is_listing and bucket.name == request.path.strip("/") else None
    )
    items = [bucket.item("run/a.log"), bucket.item("run/b.log"), bucket.item("top.log")]
    twin = UploadItem(b"data", type(items[0].destination)(other, "a.log"))
    result = backend.upload([*items, twin], on_conflict=on_conflict)
    assert [failed.location for failed in result.failed] == [item.destination for item in items]
    assert {type(failed.error) for failed in result.failed} == {_errors.NotPermittedError}
    assert len({id(failed.error) for failed in result.failed}) == 1
    assert "cannot be looked for" in result.failed[0].error.what
    assert "s3:ListBucket" in result.failed[0].error.remedy
    assert "on_conflict: overwrite" in result.failed[0].error.remedy
    assert [stored.location for stored in result.stored] == [twin.destination]
    assert bucket.proxy.count(lambda request: request.is_write and request.path.startswith(f"/{bucket.name}/")) == 0
    assert bucket.get("run/b.log") == b"theirs"


def test_a_large_object_that_may_not_be_looked_at_is_verified_by_the_listing(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    bucket.proxy.rule = lambda request: Answer(403) if request.method == "HEAD" else None
    result = backend.upload([UploadItem(_large_file(tmp_path), bucket.at("folder/large.tar.xz"))])
    assert [stored.verified for stored in result.stored] == ["size-only"]


def test_a_large_object_that_cannot_be_verified_is_a_failure(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    bucket.proxy.rule = lambda request: (
        s3_error(403, "AccessDenied") if request.method == "HEAD" or request.is_listing else None
    )
    result = backend.upload([UploadItem(_large_file(tmp_path), bucket.at("folder/large.tar.xz"))])
    assert [type(item.error) for item in result.failed] == [_errors.NotPermittedError]


@pytest.mark.parametrize(
    "headers", [{"Content-Length": "5"}, {"Content-Length": str(LARGE_BYTES), "x-amz-checksum-sha256": "AAAA-3"}]
)
def test_a_stored_object_that_differs_from_what_was_sent_is_a_failure(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path, headers: dict[str, str]
) -> None:
    bucket.proxy.rule = lambda request: Answer(200, b"", headers) if request.method == "HEAD" else None
    result = backend.upload([UploadItem(_large_file(tmp_path), bucket.at("large.tar.xz"))])
    assert [type(item.error) for item in result.failed] == [_errors.IntegrityError]


def test_a_file_that_grows_while_it_is_sent_is_a_failure_and_not_stored(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    path = _large_file(tmp_path)

    def rule(request: Request) -> Fault:
        if request.method == "POST" and "uploads" in request.query:
            with path.open("ab") as file:
                file.write(b"more")
        return None

    bucket.proxy.rule = rule
    result = backend.upload([UploadItem(path, bucket.at("large.tar.xz"))])
    assert [type(item.error) for item in result.failed] == [_errors.IntegrityError]
    assert "changed" in result.failed[0].error.what
    assert bucket.keys() == []
    assert bucket.open_uploads() == []


def test_a_file_that_shrinks_while_it_is_sent_is_a_failure_and_not_stored(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    path = _large_file(tmp_path)

    def rule(request: Request) -> Fault:
        if request.method == "POST" and "uploads" in request.query:
            os.truncate(path, PART_SIZE_BYTES + 5)
        return None

    bucket.proxy.rule = rule
    result = backend.upload([UploadItem(path, bucket.at("large.tar.xz"))])
    assert [type(item.error) for item in result.failed] == [_errors.IntegrityError]
    assert bucket.keys() == []


def test_a_file_that_vanishes_after_the_folder_was_read_is_skipped(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    gone, kept = tmp_path / "gone.log", tmp_path / "kept.log"
    gone.write_bytes(b"gone")
    kept.write_bytes(b"kept")

    def rule(request: Request) -> Fault:
        if request.is_listing:
            gone.unlink(missing_ok=True)
        return None

    bucket.proxy.rule = rule
    result = backend.upload([UploadItem(path, bucket.at(path.name)) for path in (gone, kept)])
    assert [(file.path, "vanished" in file.reason) for file in result.skipped] == [(str(gone), True)]
    assert bucket.keys() == ["kept.log"]
    assert result.failed == ()


def test_a_file_that_vanishes_before_it_is_compared_is_skipped(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    gone = tmp_path / "gone.log"
    gone.write_bytes(b"DATA")
    bucket.client.put_object(Bucket=bucket.name, Key="gone.log", Body=b"data")

    def rule(request: Request) -> Fault:
        if request.is_listing:
            gone.unlink(missing_ok=True)
        return None

    bucket.proxy.rule = rule
    result = backend.upload([UploadItem(gone, bucket.at("gone.log"))], on_conflict="error")
    assert (len(result.skipped), result.failed, result.conflicts) == (1, (), ())


@pytest.mark.parametrize("key", ["mem", "oom_score"])
def test_a_file_that_cannot_be_read_or_has_more_bytes_than_it_says_is_a_failure(
    bucket: Bucket, backend: S3StorageBackend, key: str
) -> None:
    path = Path("/proc/self") / key
    if not path.exists():
        pytest.skip("this platform has no such file")
    result = backend.upload([UploadItem(path, bucket.at(key)), bucket.item("other")])
    assert [type(item.error) for item in result.failed] == [
        _errors.LocalFileError if key == "mem" else _errors.IntegrityError
    ]
    assert bucket.keys() == ["other"]


def test_a_cancel_in_a_multipart_upload_leaves_none_open_and_says_what_was_not_stored(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    cancel = CancelToken()

    def rule(request: Request) -> Fault:
        if request.is_part:
            cancel.cancel(15)
        return None

    bucket.proxy.rule = rule
    result = backend.upload([UploadItem(_large_file(tmp_path), bucket.at("large.tar.xz"))], cancel=cancel)
    assert [(item.location, type(item.error)) for item in result.failed] == [
        (bucket.at("large.tar.xz"), _errors.CancelledError)
    ]
    assert bucket.keys() == []
    assert bucket.open_uploads() == []


def test_a_cancel_while_parts_hang_returns_and_leaves_no_multipart_upload_open(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    cancel, released = CancelToken(), threading.Event()
    path = _large_file(tmp_path)

    def rule(request: Request) -> Fault:
        if request.is_part:
            cancel.cancel(2)
            return HoldUp(released)
        return None

    bucket.proxy.rule = rule
    items = [UploadItem(path, bucket.at("large.tar.xz")), bucket.item("small.log")]
    result = backend.upload(items, cancel=cancel)
    assert bucket.open_uploads() == []
    assert bucket.at("large.tar.xz") in {item.location for item in result.failed}
    assert {stored.location.relative_path for stored in result.stored} == set(bucket.keys())
    released.set()


def test_a_cancel_while_parts_and_obstores_abort_hang_leaves_no_multipart_upload_open(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    cancel, released = CancelToken(), threading.Event()

    def rule(request: Request) -> Fault:
        if request.is_part:
            cancel.cancel(15)
        return HoldUp(released) if request.is_part or _is_obstores_abort(request) else None

    bucket.proxy.rule = rule
    result = backend.upload([UploadItem(_large_file(tmp_path), bucket.at("large.tar.xz"))], cancel=cancel)
    assert bucket.open_uploads() == []
    assert [(type(item.error), item.error.remedy) for item in result.failed] == [(_errors.CancelledError, "")]
    released.set()


def test_a_cancel_names_the_upload_that_it_had_to_leave_open(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    cancel = CancelToken()

    def rule(request: Request) -> Fault:
        if request.is_part:
            cancel.cancel(15)
        return s3_error(403, "AccessDenied") if "uploads" in request.query and request.method == "GET" else None

    bucket.proxy.rule = rule
    result = backend.upload([UploadItem(_large_file(tmp_path), bucket.at("large.tar.xz"))], cancel=cancel)
    assert [(type(item.error), item.error.exit_code) for item in result.failed] == [(_errors.CancelledError, 143)]
    assert bucket.at("large.tar.xz").s3_uri in result.failed[0].error.remedy


def test_a_cancel_before_the_first_byte_asks_nothing(bucket: Bucket, backend: S3StorageBackend) -> None:
    cancel = CancelToken()
    cancel.cancel(15)
    result = backend.upload([bucket.item("a.log"), bucket.item("b.log")], cancel=cancel)
    assert [(type(item.error), item.error.exit_code) for item in result.failed] == [(_errors.CancelledError, 143)] * 2
    assert bucket.proxy.requests == []


def test_a_cancel_ends_the_wait_between_retries(bucket: Bucket) -> None:
    cancel = CancelToken()

    def rule(request: Request) -> Fault:
        if request.method == "PUT" and request.number == 5:
            cancel.cancel()
        return s3_error(503, "SlowDown") if request.method == "PUT" else None

    bucket.proxy.rule = rule
    backend = S3StorageBackend(retry_seconds=100_000)
    result = backend.upload([bucket.item("a.log")], cancel=cancel)
    assert [type(item.error) for item in result.failed] == [_errors.CancelledError]


def test_a_new_object_whose_answer_got_lost_is_known_as_ours(bucket: Bucket, backend: S3StorageBackend) -> None:
    def rule(request: Request) -> Fault:
        if request.method == "PUT" and request.number == 1:
            bucket.client.put_object(Bucket=bucket.name, Key="new.json", Body=b"ours")  # stored, but the answer is lost
            return Reset(4)
        return None

    bucket.proxy.rule = rule
    assert backend.put_new(bucket.at("new.json"), b"ours", "application/json").size_bytes == 4


def test_a_new_object_that_another_wrote_meanwhile_is_a_conflict(bucket: Bucket, backend: S3StorageBackend) -> None:
    def rule(request: Request) -> Fault:
        if request.method == "PUT" and request.number == 1:
            bucket.client.put_object(Bucket=bucket.name, Key="new.json", Body=b"theirs")
            return Reset(4)
        return None

    bucket.proxy.rule = rule
    with pytest.raises(_errors.ConflictError):
        backend.put_new(bucket.at("new.json"), b"ours", "application/json")
    assert bucket.get("new.json") == b"theirs"


def test_a_replacement_whose_answer_got_lost_is_known_as_ours(bucket: Bucket, backend: S3StorageBackend) -> None:
    bucket.client.put_object(Bucket=bucket.name, Key="page", Body=b"before")
    read = backend.read_small(bucket.at("page"))
    assert read is not None

    def rule(request: Request) -> Fault:
        if request.method == "PUT" and request.number == 1:
            bucket.client.put_object(Bucket=bucket.name, Key="page", Body=b"ours")  # stored, but the answer is lost
            return Reset(4)
        return None

    bucket.proxy.rule = rule
    assert backend.replace(bucket.at("page"), b"ours", "text/html", etag=read.etag).size_bytes == 4


def test_a_missing_bucket_is_neither_an_absent_object_nor_a_conflict(backend: S3StorageBackend) -> None:
    at = StorageLocation("no-such-bucket-here", "page")
    with pytest.raises(_errors.BucketNotFoundError):
        backend.read_small(at)
    for etag in ("", '"etag"'):
        with pytest.raises(_errors.BucketNotFoundError):
            backend.replace(at, b"", "text/html", etag=etag)


def test_a_denied_small_object_is_not_taken_for_an_absent_one(bucket: Bucket, backend: S3StorageBackend) -> None:
    bucket.proxy.rule = lambda _: s3_error(403, "AccessDenied")
    with pytest.raises(_errors.NotPermittedError):
        backend.read_small(bucket.at("page"))
    with pytest.raises(_errors.NotPermittedError):
        backend.replace(bucket.at("page"), b"", "text/html", etag="")


def test_a_small_object_that_comes_cut_short_is_asked_for_again(bucket: Bucket, backend: S3StorageBackend) -> None:
    bucket.client.put_object(Bucket=bucket.name, Key="page", Body=b"0123456789")
    bucket.proxy.rule = lambda request: CutShort(3) if request.number <= 2 else None
    read = backend.read_small(bucket.at("page"))
    assert read is not None
    assert read.data == b"0123456789"


@pytest.mark.parametrize("name", ["list_objects", "read_small", "put_new", "replace", "upload"])
def test_a_cancel_ends_the_wait_for_a_request_that_hangs(bucket: Bucket, name: str) -> None:
    backend, cancel, at = S3StorageBackend(), CancelToken(), bucket.at("run/page")
    hanging = threading.Event()

    def rule(_: Request) -> Fault:
        hanging.set()
        cancel.cancel(15)
        return Stall()

    bucket.proxy.rule = rule
    calls: dict[str, Callable[[], object]] = {
        "list_objects": lambda: list(backend.list_objects(bucket.at("run"), cancel=cancel)),
        "read_small": lambda: backend.read_small(at, cancel=cancel),
        "put_new": lambda: backend.put_new(at, b"", "text/html", cancel=cancel),
        "replace": lambda: backend.replace(at, b"", "text/html", etag='"etag"', cancel=cancel),
        "upload": lambda: _raise_first(backend.upload([UploadItem(b"", at)], cancel=cancel)),
    }
    with pytest.raises(_errors.CancelledError) as caught:
        calls[name]()
    assert caught.value.exit_code == 143
    assert hanging.is_set()
    assert len(bucket.proxy.requests) == 1  # it hangs still: it was not waited for


def _raise_first(result: UploadResult) -> None:
    raise result.failed[0].error


def test_a_listing_that_breaks_off_goes_on_from_the_last_key(bucket: Bucket, backend: S3StorageBackend) -> None:
    for number in range(1005):
        bucket.client.put_object(Bucket=bucket.name, Key=f"run/{number:04}", Body=b"")
    faults = iter([s3_error(503, "SlowDown")] * 6)
    bucket.proxy.rule = lambda request: (
        next(faults, None) if "start-after" in request.query or "continuation-token" in request.query else None
    )
    keys = [listed.location.relative_path for listed in backend.list_objects(bucket.at("run"))]
    assert keys == [f"run/{number:04}" for number in range(1005)]


def test_the_origin_travels_with_every_object(bucket: Bucket, backend: S3StorageBackend, tmp_path: Path) -> None:
    items = [bucket.item("a.log"), UploadItem(_large_file(tmp_path), bucket.at("large.tar.xz"))]
    backend.upload(items, origin=Origin("12", "build", "3"))
    for key in ("a.log", "large.tar.xz"):
        assert bucket.client.head_object(Bucket=bucket.name, Key=key)["Metadata"] == {"therock-origin": "12/build/3"}
