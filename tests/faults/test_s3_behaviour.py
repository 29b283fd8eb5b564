"""What only the S3 backend does: conflicts, origins, lanes, big listings, copies in parts, dry runs."""

from __future__ import annotations

import hashlib
import logging
import os
from typing import TYPE_CHECKING

import pytest

from _therock_utils import _errors
from _therock_utils._s3_plan import MIB, SINGLE_PUT_LIMIT_BYTES
from _therock_utils._transfer_types import Conflict, DownloadItem, OnConflict, Origin, UploadItem
from _therock_utils.storage_backend import S3StorageBackend
from _therock_utils.storage_location import StorageLocation
from fakes.s3_fault_proxy import Answer, s3_error

if TYPE_CHECKING:
    from pathlib import Path

    from fakes.s3_fault_proxy import Request
    from faults.conftest import Bucket

OURS = Origin("12", "build", "2")
LARGE_BYTES = SINGLE_PUT_LIMIT_BYTES + 3


def _lay(bucket: Bucket, key: str, data: bytes, *, origin: str = "", with_checksum: bool = True) -> None:
    """An object as somebody else stored it."""
    checksum = {"ChecksumAlgorithm": "SHA256"} if with_checksum else {}
    metadata = {"Metadata": {"therock-origin": origin}} if origin else {}
    bucket.client.put_object(Bucket=bucket.name, Key=key, Body=data, **checksum, **metadata)  # type: ignore[arg-type] # as boto3 takes them


def _heads(bucket: Bucket) -> int:
    return bucket.proxy.count(lambda request: request.method == "HEAD")


def test_the_same_bytes_are_no_conflict_and_cost_no_look(bucket: Bucket, backend: S3StorageBackend) -> None:
    _lay(bucket, "run/a.log", b"data")
    result = backend.upload([bucket.item("run/a.log")], on_conflict="error")
    assert (len(result.stored), result.conflicts) == (1, ())
    assert _heads(bucket) == 0


def test_the_same_bytes_in_parts_are_no_conflict_whatever_their_etag(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(LARGE_BYTES))
    items = [UploadItem(path, bucket.at("run/large"))]
    assert backend.upload(items).stored[0].verified == "sha256-parts"
    assert backend.upload(items, on_conflict="error").conflicts == ()
    _lay(bucket, "run/large", path.read_bytes())  # in one piece: another ETag, the same SHA-256
    assert backend.upload(items, on_conflict="error").conflicts == ()


@pytest.mark.parametrize(
    ("laid", "with_checksum", "state"),
    [(b"longer data", True, "different"), (b"longer data", False, "different"), (b"DATA", True, "different")],
)
def test_other_bytes_are_a_conflict_that_names_their_writer(
    bucket: Bucket, backend: S3StorageBackend, laid: bytes, state: str, *, with_checksum: bool
) -> None:
    _lay(bucket, "run/a.log", laid, origin="11/other/1", with_checksum=with_checksum)
    result = backend.upload([bucket.item("run/a.log")], origin=OURS)
    assert result.conflicts == (Conflict(bucket.at("run/a.log"), "different", "11/other/1", "overwritten"),)
    assert bucket.get("run/a.log") == b"data"


def test_other_bytes_of_the_same_size_without_a_checksum_cannot_be_compared(
    bucket: Bucket, backend: S3StorageBackend
) -> None:
    _lay(bucket, "run/a.log", b"DATA", with_checksum=False)
    result = backend.upload([bucket.item("run/a.log")], origin=OURS)
    assert [(conflict.state, conflict.action) for conflict in result.conflicts] == [("unknown", "overwritten")]


def test_with_error_nothing_at_all_is_written_and_every_object_is_accounted_for(
    bucket: Bucket, backend: S3StorageBackend
) -> None:
    _lay(bucket, "run/b.log", b"other bytes")
    items = [bucket.item(f"run/{name}.log") for name in "abc"]
    result = backend.upload(items, on_conflict="error", origin=OURS)
    assert result.stored == ()
    assert [item.location for item in result.failed] == [item.destination for item in items]
    assert {type(item.error) for item in result.failed} == {_errors.ConflictError}
    assert [(conflict.location, conflict.action) for conflict in result.conflicts] == [
        (bucket.at("run/b.log"), "refused")
    ]
    assert bucket.proxy.count(lambda request: request.is_write) == 0
    assert bucket.get("run/b.log") == b"other bytes"


def test_with_skip_only_the_object_in_conflict_is_left(bucket: Bucket, backend: S3StorageBackend) -> None:
    _lay(bucket, "run/b.log", b"other bytes")
    result = backend.upload([bucket.item(f"run/{name}.log") for name in "abc"], on_conflict="skip", origin=OURS)
    assert [stored.location.relative_path for stored in result.stored] == ["run/a.log", "run/c.log"]
    assert [(conflict.location, conflict.action) for conflict in result.conflicts] == [
        (bucket.at("run/b.log"), "skipped")
    ]
    assert result.failed == ()
    assert bucket.get("run/b.log") == b"other bytes"


@pytest.mark.parametrize("on_conflict", ["overwrite", "error", "skip"])
def test_what_an_earlier_attempt_of_the_same_job_wrote_is_overwritten(
    bucket: Bucket, backend: S3StorageBackend, on_conflict: OnConflict
) -> None:
    _lay(bucket, "run/a.log", b"other bytes", origin="12/build/1")
    result = backend.upload([bucket.item("run/a.log")], on_conflict=on_conflict, origin=OURS)
    assert result.conflicts == (Conflict(bucket.at("run/a.log"), "rerun", "12/build/1", "overwritten"),)
    assert bucket.get("run/a.log") == b"data"


def test_a_link_is_skipped_and_so_in_conflict_with_nothing(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    _lay(bucket, "run/a.log", b"other bytes")
    (tmp_path / "link").symlink_to("nowhere")
    result = backend.upload([UploadItem(tmp_path / "link", bucket.at("run/a.log"))], on_conflict="error")
    assert (len(result.skipped), result.failed, result.conflicts) == (1, (), ())


def test_what_failed_is_not_called_overwritten(bucket: Bucket, backend: S3StorageBackend) -> None:
    _lay(bucket, "run/a.log", b"other bytes")
    bucket.proxy.rule = lambda request: s3_error(403, "AccessDenied") if request.is_write else None
    result = backend.upload([bucket.item("run/a.log")])
    assert (len(result.failed), result.conflicts) == (1, ())


def test_an_object_that_may_not_be_looked_at_is_an_unknown_conflict(bucket: Bucket, backend: S3StorageBackend) -> None:
    _lay(bucket, "run/a.log", b"DATA")
    bucket.proxy.rule = lambda request: s3_error(403, "AccessDenied") if request.method == "HEAD" else None
    result = backend.upload([bucket.item("run/a.log")])
    assert [(conflict.state, conflict.origin) for conflict in result.conflicts] == [("unknown", "")]


def test_one_listing_serves_all_keys_of_a_run(bucket: Bucket, backend: S3StorageBackend) -> None:
    for number in range(20):
        _lay(bucket, f"12-linux/old/{number}", b"")
    backend.upload([bucket.item(f"12-linux/new/{number}") for number in range(20)])
    assert bucket.proxy.count(lambda request: request.is_listing) == 1
    assert _heads(bucket) == 0


def test_another_run_whose_name_begins_the_same_is_not_listed(bucket: Bucket, backend: S3StorageBackend) -> None:
    _lay(bucket, "12-linux/a.log", b"")
    _lay(bucket, "12-linux2/b.log", b"")
    _lay(bucket, "12-linux", b"")
    assert list(backend.list_files(bucket.at("12-linux"))) == [bucket.at("12-linux/a.log")]


def test_a_key_that_no_location_can_have_is_left_out_with_a_warning(
    bucket: Bucket, backend: S3StorageBackend, caplog: pytest.LogCaptureFixture
) -> None:
    keys = ["run/a", "run/b//c", "run/d/", "run/e"]
    for key in keys:
        _lay(bucket, key, b"")
    with caplog.at_level(logging.WARNING):
        listed = [entry.location.relative_path for entry in backend.list_objects(bucket.at("run"))]
    assert listed == ["run/a", "run/e"]
    assert "run/b//c" in caplog.text


def test_ten_thousand_keys_are_streamed_in_order_as_they_are(bucket: Bucket, backend: S3StorageBackend) -> None:
    keys = [f"run/{number:05}:+% #?~[\u00e9]" for number in range(10_001)]

    def page(request: Request) -> Answer:
        start = int(request.query.get("continuation-token", "0"))
        more = f"<NextContinuationToken>{start + 1000}</NextContinuationToken>" if start + 1000 < len(keys) else ""
        entries = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag><Size>1</Size>"
            "</Contents>"
            for key in keys[start : start + 1000]
        )
        truncated = str(bool(more)).lower()
        body = f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{more}{entries}</ListBucketResult>"
        return Answer(200, body.encode())

    bucket.proxy.rule = page
    listing = backend.list_objects(bucket.at("run"))
    assert next(listing).location.relative_path == keys[0]
    assert len(bucket.proxy.requests) < 11  # the first key is here before the last page
    assert [entry.location.relative_path for entry in listing] == keys[1:]
    assert len(bucket.proxy.requests) == 11


def test_small_and_large_objects_go_up_and_down_together(
    bucket: Bucket, backend: S3StorageBackend, tmp_path: Path
) -> None:
    contents = {f"run/{number}.log": os.urandom(number) for number in range(60)}
    contents |= {f"run/{number}.tar.xz": os.urandom(LARGE_BYTES + number * MIB) for number in range(3)}
    for key, data in contents.items():
        (tmp_path / "in" / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / key).write_bytes(data)
    result = backend.upload([UploadItem(tmp_path / "in" / key, bucket.at(key)) for key in contents])
    digests = {key: hashlib.sha256(data).hexdigest() for key, data in contents.items()}
    assert {stored.location.relative_path: stored.sha256 for stored in result.stored} == digests
    assert {stored.verified for stored in result.stored} == {"sha256-single", "sha256-parts"}
    items = [DownloadItem(bucket.at(key), tmp_path / "out" / key, digest) for key, digest in digests.items()]
    fetched = backend.download(items)
    assert [file.item for file in fetched.downloaded] == items
    assert all(item.target.read_bytes() == contents[item.location.relative_path] for item in items)


def test_a_dry_run_reads_and_digests_and_asks_nothing(bucket: Bucket, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(os.urandom(LARGE_BYTES))
    backend = S3StorageBackend(dry_run=True)
    result = backend.upload([UploadItem(path, bucket.at("large")), bucket.item("small.log")])
    assert {(stored.size_bytes, stored.sha256, stored.verified) for stored in result.stored} == {
        (LARGE_BYTES, hashlib.sha256(path.read_bytes()).hexdigest(), "dry-run"),
        (4, hashlib.sha256(b"data").hexdigest(), "dry-run"),
    }
    assert backend.put_new(bucket.at("new"), b"x", "text/plain").verified == "dry-run"
    assert bucket.proxy.requests == []


def test_a_copy_above_the_limit_of_one_request_keeps_what_describes_it(
    bucket: Bucket, backend: S3StorageBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("_therock_utils._s3_copy.COPY_LIMIT_BYTES", 9 * MIB)
    data = os.urandom(10 * MIB)
    bucket.client.put_object(
        Bucket=bucket.name, Key="a", Body=data, ContentType="text/x-log", Metadata={"therock-origin": "1/j/1"}
    )
    result = backend.copy([(bucket.at("a"), bucket.at("b"))])
    assert [(stored.size_bytes, stored.verified) for stored in result.stored] == [(10 * MIB, "size-only")]
    head = bucket.client.head_object(Bucket=bucket.name, Key="b")
    assert (head["ContentType"], head["Metadata"]) == ("text/x-log", {"therock-origin": "1/j/1"})
    assert bucket.get("b") == data
    assert bucket.proxy.count(lambda request: request.is_part) == 2


def test_a_copy_between_buckets_keeps_what_describes_it(bucket: Bucket, backend: S3StorageBackend) -> None:
    other = StorageLocation(f"{bucket.name}-other", "b")
    bucket.client.create_bucket(Bucket=other.bucket)
    bucket.client.put_object(Bucket=bucket.name, Key="a", Body=b"data", ContentType="text/x-log")
    backend.copy_file(bucket.at("a"), other)
    answer = bucket.client.get_object(Bucket=other.bucket, Key="b")
    assert (answer["Body"].read(), answer["ContentType"]) == (b"data", "text/x-log")


def test_a_copy_of_another_size_is_a_failure(bucket: Bucket, backend: S3StorageBackend) -> None:
    _lay(bucket, "a", b"data")

    def shrink(request: object) -> None:
        if getattr(request, "method", "") == "HEAD" and getattr(request, "path", "").endswith("/b"):
            _lay(bucket, "b", b"dat")

    bucket.proxy.rule = shrink
    result = backend.copy([(bucket.at("a"), bucket.at("b"))])
    assert [type(item.error) for item in result.failed] == [_errors.IntegrityError]


def test_two_objects_for_one_key_are_an_input_error(bucket: Bucket, backend: S3StorageBackend) -> None:
    with pytest.raises(_errors.InputError, match="written twice"):
        backend.upload([bucket.item("a"), bucket.item("a")])
    with pytest.raises(_errors.InputError, match="root"):
        backend.upload([UploadItem(b"", StorageLocation(bucket.name, ""))])
    assert bucket.proxy.requests == []


def test_a_concurrency_below_one_is_an_input_error() -> None:
    with pytest.raises(_errors.InputError):
        S3StorageBackend(upload_concurrency=0)
