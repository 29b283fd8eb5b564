"""What becomes of small objects that are replaced, removed or put for folders when network or service fails."""

from __future__ import annotations

import base64
import hashlib
import threading
from typing import TYPE_CHECKING

import pytest

from _therock_utils import _s3_small
from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    BucketNotFoundError,
    CancelledError,
    ConflictError,
    NotPermittedError,
    OutputsError,
    ServiceUnavailableError,
)
from _therock_utils._transfer_types import Replacement, StoredObject
from _therock_utils.storage_backend import S3StorageBackend
from _therock_utils.storage_location import StorageLocation
from fakes.s3_fault_proxy import Answer, HoldUp, LostAnswer, Reset, Stall, s3_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakes.s3_fault_proxy import Fault, Request
    from faults.conftest import Bucket

KEYS = [f"x/{number:03}" for number in range(200)]


def _new(bucket: Bucket, keys: Sequence[str] = KEYS) -> list[Replacement]:
    return [Replacement(bucket.at(key), key.encode(), "text/html", "") for key in keys]


def _etag(backend: S3StorageBackend, location: StorageLocation) -> str:
    read = backend.read_small(location)
    assert read is not None
    return read.etag


def _puts(bucket: Bucket) -> int:
    return bucket.proxy.count(lambda request: request.method == "PUT")


def _all_keys(bucket: Bucket) -> set[str]:
    return {entry["Key"] for entry in bucket.client.list_objects_v2(Bucket=bucket.name).get("Contents", [])}


# --- replace_all -----------------------------------------------------------------------------------------------------


def test_each_object_costs_one_request(bucket: Bucket, backend: S3StorageBackend) -> None:
    outcomes = backend.replace_all(_new(bucket))
    assert {type(outcome) for outcome in outcomes} == {StoredObject}
    assert len(bucket.proxy.requests) == len(KEYS)


@pytest.mark.parametrize("fault", [s3_error(503, "SlowDown"), s3_error(500, "InternalError"), Reset(1), LostAnswer()])
def test_what_fails_twice_is_stored_and_known_as_ours_by_the_third_request(
    bucket: Bucket, backend: S3StorageBackend, fault: Fault
) -> None:
    bucket.lay("old", data=b"before")
    items = [*_new(bucket, KEYS[:5]), Replacement(bucket.at("old"), b"after", "", _etag(backend, bucket.at("old")))]
    bucket.proxy.rule = lambda request: fault if request.method == "PUT" and request.number <= 2 else None
    outcomes = backend.replace_all(items)
    assert [outcome.location for outcome in outcomes if isinstance(outcome, StoredObject)] == [
        item.location for item in items
    ]
    assert {key: bucket.get(key) for key in _all_keys(bucket)} == {
        item.location.relative_path: item.data for item in items
    }


def test_a_lost_answer_does_not_hide_what_another_wrote_after_it(bucket: Bucket, backend: S3StorageBackend) -> None:
    bucket.lay("page", data=b"before")
    etag = _etag(backend, bucket.at("page"))

    def rule(request: Request) -> Fault:
        if request.method == "PUT" and request.number == 1:
            return LostAnswer()
        if request.method == "PUT":
            bucket.client.put_object(Bucket=bucket.name, Key="page", Body=b"ours and theirs")
        return None

    bucket.proxy.rule = rule
    (outcome,) = backend.replace_all([Replacement(bucket.at("page"), b"ours", "", etag)])
    assert isinstance(outcome, ConflictError)
    assert bucket.get("page") == b"ours and theirs"


def test_one_denied_object_hides_no_other_and_a_bucket_that_is_not_there_ends_only_its_own(
    bucket: Bucket, backend: S3StorageBackend
) -> None:
    bucket.proxy.rule = lambda request: s3_error(403, "AccessDenied") if request.path.endswith(KEYS[150]) else None
    elsewhere = StorageLocation(f"{bucket.name}-none", "page")
    outcomes = backend.replace_all([*_new(bucket), Replacement(elsewhere, b"", "", "")])
    for number, outcome in enumerate(outcomes):
        expected = {150: NotPermittedError, len(KEYS): BucketNotFoundError}.get(number, StoredObject)
        assert type(outcome) is expected
    assert _all_keys(bucket) == set(KEYS) - {KEYS[150]}


def test_where_everything_is_denied_or_away_not_every_object_is_sent(
    bucket: Bucket, impatient_backend: S3StorageBackend
) -> None:
    items = _new(bucket, [f"{number}" for number in range(500)])
    for fault, kind in ((s3_error(403, "AccessDenied"), NotPermittedError), (Reset(), ServiceUnavailableError)):
        bucket.proxy.requests.clear()
        bucket.proxy.rule = lambda _, fault=fault: fault
        outcomes = impatient_backend.replace_all(items)
        assert {type(outcome) for outcome in outcomes} == {kind}
        assert _puts(bucket) < 450


def test_after_a_cancel_what_was_stored_by_then_is_known(
    bucket: Bucket, backend: S3StorageBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_s3_small, "WRITE_GRACE_SECONDS", 60)  # however busy this machine is
    cancel = CancelToken()

    def rule(request: Request) -> Fault:
        if request.path.endswith(KEYS[70]):
            cancel.cancel(15)
        return None

    bucket.proxy.rule = rule
    outcomes = backend.replace_all(_new(bucket), cancel=cancel)
    stored = {outcome.location.relative_path for outcome in outcomes if isinstance(outcome, StoredObject)}
    assert stored == _all_keys(bucket)
    assert 0 < len(stored) < len(KEYS)
    others = [outcome for outcome in outcomes if not isinstance(outcome, StoredObject)]
    assert {type(outcome) for outcome in others} == {CancelledError}
    assert {outcome.exit_code for outcome in others} == {143}


def test_after_a_cancel_requests_that_hang_are_not_waited_for_and_the_others_are_known(
    bucket: Bucket, backend: S3StorageBackend
) -> None:
    cancel, hanging, released = CancelToken(), threading.Event(), threading.Event()

    def rule(request: Request) -> Fault:
        if request.path.endswith(KEYS[3]):
            hanging.set()
            cancel.cancel(2)
            released.set()
            return Stall()
        return HoldUp(released)

    bucket.proxy.rule = rule
    outcomes = backend.replace_all(_new(bucket, KEYS[:10]), cancel=cancel)
    assert hanging.is_set()
    stored = {outcome.location.relative_path for outcome in outcomes if isinstance(outcome, StoredObject)}
    assert stored == _all_keys(bucket)
    assert isinstance(outcomes[3], CancelledError)
    assert len(outcomes) == 10


def test_a_cancel_ends_the_wait_between_two_attempts(bucket: Bucket) -> None:
    cancel = CancelToken()

    def rule(_: Request) -> Fault:
        cancel.cancel()
        return s3_error(503, "SlowDown")

    bucket.proxy.rule = rule
    outcomes = S3StorageBackend().replace_all(_new(bucket, KEYS[:3]), cancel=cancel)
    assert {type(outcome) for outcome in outcomes} == {CancelledError}


# --- remove ----------------------------------------------------------------------------------------------------------


def test_an_object_is_looked_at_and_then_removed_under_its_etag(bucket: Bucket, backend: S3StorageBackend) -> None:
    bucket.lay("page")
    etag = _etag(backend, bucket.at("page"))
    bucket.proxy.requests.clear()
    backend.remove(bucket.at("page"), etag=etag)
    assert [request.method for request in bucket.proxy.requests] == ["HEAD", "DELETE"]
    assert bucket.proxy.requests[-1].headers["if-match"] == etag
    assert bucket.keys() == []


def test_a_service_that_heeds_no_condition_is_not_asked_to_remove_what_another_wrote(
    bucket: Bucket, backend: S3StorageBackend
) -> None:
    bucket.lay("page", data=b"one")
    etag = _etag(backend, bucket.at("page"))
    bucket.lay("page", data=b"two")
    with pytest.raises(ConflictError):
        backend.remove(bucket.at("page"), etag=etag)
    assert bucket.proxy.count(lambda request: request.method == "DELETE") == 0


def test_what_another_writes_after_the_look_stays(bucket: Bucket, backend: S3StorageBackend) -> None:
    bucket.lay("page", data=b"one")
    etag = _etag(backend, bucket.at("page"))

    def rule(request: Request) -> Fault:
        if request.method == "DELETE":
            bucket.lay("page", data=b"two")
        return None

    bucket.proxy.rule = rule
    with pytest.raises(ConflictError, match="no longer what it was"):
        backend.remove(bucket.at("page"), etag=etag)
    assert bucket.get("page") == b"two"


@pytest.mark.parametrize("fault", [s3_error(503, "SlowDown"), Reset(), LostAnswer()])
def test_a_removal_that_fails_twice_or_whose_answer_gets_lost_is_done(
    bucket: Bucket, backend: S3StorageBackend, fault: Fault
) -> None:
    bucket.lay("page")
    etag = _etag(backend, bucket.at("page"))
    bucket.proxy.rule = lambda request: fault if request.method == "DELETE" and request.number <= 2 else None
    backend.remove(bucket.at("page"), etag=etag)
    assert bucket.keys() == []


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (s3_error(403, "AccessDenied"), NotPermittedError),
        (s3_error(404, "NoSuchBucket"), BucketNotFoundError),
        (s3_error(503, "SlowDown"), ServiceUnavailableError),
    ],
)
@pytest.mark.parametrize("method", ["HEAD", "DELETE"])
def test_a_removal_that_is_refused_is_an_error_of_its_kind(
    bucket: Bucket, impatient_backend: S3StorageBackend, method: str, fault: Fault, kind: type[OutputsError]
) -> None:
    bucket.lay("page")
    etag = _etag(impatient_backend, bucket.at("page"))
    methods = {"HEAD", "GET"} if method == "HEAD" else {method}  # a HEAD's answer cannot say why
    bucket.proxy.rule = lambda request: fault if request.method in methods else None
    with pytest.raises(kind) as caught:
        impatient_backend.remove(bucket.at("page"), etag=etag)
    assert type(caught.value) is kind
    assert bucket.keys() == ["page"]


# --- documents of folders ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [s3_error(503, "SlowDown"), Reset(1), LostAnswer()])
def test_a_folder_s_document_is_sent_with_its_digest_until_it_is_stored(
    bucket: Bucket, backend: S3StorageBackend, fault: Fault
) -> None:
    bucket.proxy.rule = lambda request: fault if request.method == "PUT" and request.number <= 2 else None
    assert backend.put_folder_document(bucket.at("x/simple"), b"<p>", "text/html")
    assert bucket.get("x/simple/") == b"<p>"
    sent = bucket.proxy.requests[-1]
    assert sent.path.endswith("/x/simple/")
    assert sent.headers["x-amz-checksum-sha256"] == base64.b64encode(hashlib.sha256(b"<p>").digest()).decode()
    assert "if-match" not in sent.headers


def test_a_folder_s_document_that_is_refused_is_an_error(bucket: Bucket, backend: S3StorageBackend) -> None:
    bucket.proxy.rule = lambda _: s3_error(403, "AccessDenied")
    with pytest.raises(NotPermittedError, match="s3:PutObject"):
        backend.put_folder_document(bucket.at("x"), b"", "text/html")


@pytest.mark.parametrize("name", ["look", "remove", "put_folder_document"])
def test_a_cancel_ends_the_wait_though_the_request_hangs(bucket: Bucket, backend: S3StorageBackend, name: str) -> None:
    bucket.lay("page")
    etag, cancel = _etag(backend, bucket.at("page")), CancelToken()
    methods = {"look": "HEAD", "remove": "DELETE", "put_folder_document": "PUT"}

    def rule(request: Request) -> Fault:
        if request.method != methods[name]:
            return None
        cancel.cancel(15)
        return Stall()

    bucket.proxy.rule = rule
    calls: dict[str, Callable[[], object]] = {
        "look": lambda: backend.remove(bucket.at("page"), etag=etag, cancel=cancel),
        "remove": lambda: backend.remove(bucket.at("page"), etag=etag, cancel=cancel),
        "put_folder_document": lambda: backend.put_folder_document(bucket.at("x"), b"", "text/html", cancel=cancel),
    }
    with pytest.raises(CancelledError) as caught:
        calls[name]()
    assert caught.value.exit_code == 143


# --- listings with documents of folders -------------------------------------------------------------------------------


def test_listing_objects_looks_at_none_of_them_but_the_empty(bucket: Bucket, backend: S3StorageBackend) -> None:
    bucket.lay(*(f"x/{folder:02}/{number}" for folder in range(40) for number in range(10)), "x/00-a", "x/10.b")
    bucket.lay("x/05x", "x/empty", data=b"")
    assert len(list(backend.list_objects(bucket.at("x")))) == 404
    listing, *looks = bucket.proxy.requests
    assert listing.is_listing
    assert sorted(request.path.partition("/x/")[2] for request in looks) == ["05x", "empty"]


def test_a_listing_looks_once_at_what_may_be_a_folder_s_document(bucket: Bucket, backend: S3StorageBackend) -> None:
    packages = [f"x/simple/p{number:02}" for number in range(80)]
    bucket.lay("x/a", "x/simple/index.html", *(f"{package}/index.html" for package in packages))
    bucket.lay("x/simple/", *(f"{package}/" for package in packages))
    found = [entry.location.relative_path for entry in backend.list_objects(bucket.at("x"))]
    assert found == ["x/a", "x/simple/index.html", *(f"{package}/index.html" for package in packages)]
    assert bucket.proxy.count(lambda request: request.is_listing) == 1
    assert bucket.proxy.count(lambda request: request.method == "HEAD") == 81
    bucket.proxy.requests.clear()
    assert [entry.location.relative_path for entry in backend.list_folder(bucket.at("x/simple"))] == [
        "x/simple/index.html"
    ]
    assert [entry.location.relative_path for entry in backend.list_folder(bucket.at("x"))] == ["x/a"]
    assert bucket.proxy.count(lambda request: request.method == "HEAD") == 81


@pytest.mark.parametrize("page_keys", [1, 2, 3, 5, 1000])
@pytest.mark.parametrize("most_skips", [1000, 1])
def test_documents_of_folders_are_known_wherever_a_page_ends_or_breaks(
    bucket: Bucket, backend: S3StorageBackend, monkeypatch: pytest.MonkeyPatch, page_keys: int, most_skips: int
) -> None:
    monkeypatch.setattr("_therock_utils._s3_listing._PAGE_KEYS", page_keys)
    monkeypatch.setattr("_therock_utils._s3_listing._MOST_SKIPS", most_skips)
    objects = ["r/a", "r/a-1", "r/a/1", "r/a/b/1", "r/a/b/2", "r/a0", "r/b-1", "r/b/1", "r/b/2", "r/c", "r/d!", "r/d/1"]
    bucket.lay(*objects)
    bucket.lay("r/", "r/a/", "r/a/b/", "r/b/", "r/c/", "r/d/", data=b"the document")
    faults = iter([None, Reset(), None, s3_error(503, "SlowDown"), None, Reset()])
    bucket.proxy.rule = lambda request: next(faults, None) if request.is_listing else None
    listed = {entry.location.relative_path: entry.size_bytes for entry in backend.list_objects(bucket.at("r"))}
    assert listed == dict.fromkeys(objects, 1)
    assert [entry.location.relative_path for entry in backend.list_folder(bucket.at("r"))] == [
        key for key in objects if key.count("/") == 1
    ]


def test_what_may_be_listed_and_not_be_looked_at_counts_as_an_object(bucket: Bucket, backend: S3StorageBackend) -> None:
    bucket.lay("x/a", "x/a/1")
    bucket.proxy.rule = lambda request: Answer(403) if request.method == "HEAD" else None
    assert [entry.location.relative_path for entry in backend.list_objects(bucket.at("x"))] == ["x/a", "x/a/1"]


def test_a_look_that_fails_for_good_is_an_error_of_the_listing(
    bucket: Bucket, impatient_backend: S3StorageBackend
) -> None:
    bucket.lay("x/a", "x/a/1")
    bucket.proxy.rule = lambda request: Answer(503) if request.method == "HEAD" else None
    with pytest.raises(ServiceUnavailableError):
        list(impatient_backend.list_objects(bucket.at("x")))


def test_a_cancel_ends_a_look_that_hangs(bucket: Bucket, backend: S3StorageBackend) -> None:
    bucket.lay("x/a", "x/a/1")
    cancel = CancelToken()

    def rule(request: Request) -> Fault:
        if request.method != "HEAD":
            return None
        cancel.cancel(15)
        return Stall()

    bucket.proxy.rule = rule
    with pytest.raises(CancelledError):
        list(backend.list_objects(bucket.at("x"), cancel=cancel))


def test_a_folder_in_which_a_key_cannot_be_parsed_shows_no_document_of_a_folder(
    bucket: Bucket, backend: S3StorageBackend, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.lay("run/a", "run/c/1", "run/d//e", "run/f/1")
    bucket.lay("run/c/", "run/d/", "run/f/", data=b"the document")
    assert [entry.location.relative_path for entry in backend.list_objects(bucket.at("run"))] == [
        "run/a",
        "run/c/1",
        "run/f/1",
    ]
    assert "run/c" not in caplog.text
