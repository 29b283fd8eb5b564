"""Budgets, buffers, worker lanes and retries of the S3 transfer, without a service."""

from __future__ import annotations

import base64
import contextlib
import gc
import hashlib
import logging
import threading
from typing import TYPE_CHECKING

import pytest

from _therock_utils import _s3_retry
from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    BucketNotFoundError,
    CancelledError,
    CredentialsError,
    IntegrityError,
    NotFoundError,
    NotPermittedError,
    OutputsError,
    ServiceUnavailableError,
)
from _therock_utils._s3_abort import clock_offset
from _therock_utils._s3_budget import ByteBudget, PartBuffers
from _therock_utils._s3_errors import RequestContext, ServiceAnswer, from_answer
from _therock_utils._s3_look import whole_sha256
from _therock_utils._s3_retry import OUT_OF_REACH_SECONDS, TOLD_SECONDS, BucketHealth, Outages, Retrier
from _therock_utils._s3_upload import header_value
from _therock_utils._s3_workers import Lane, affordable_concurrency, lane, run_lanes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _never_more_than(limit: int, budget: ByteBudget) -> int:
    """The most bytes that 8 threads held at once."""
    held, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal held, most
        for size in (1, 3, limit, 2):
            with budget.holding(size, CancelToken()):
                with lock:
                    held += size
                    most = max(most, held)
                with lock:
                    held -= size

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return most


def test_a_budget_is_never_exceeded() -> None:
    assert _never_more_than(10, ByteBudget(10)) <= 10


def test_more_than_a_whole_budget_is_let_through_alone() -> None:
    budget = ByteBudget(10)
    budget.acquire(25, CancelToken())
    assert not budget.try_acquire(1)
    budget.release(25)
    assert budget.try_acquire(10)
    assert not budget.try_acquire(1)


def test_waiting_for_a_budget_ends_with_a_cancel() -> None:
    budget, cancel = ByteBudget(10), CancelToken()
    budget.acquire(10, cancel)
    cancel.cancel()
    with pytest.raises(CancelledError):
        budget.acquire(1, cancel)


def test_a_buffer_comes_back_when_nobody_refers_to_its_view_any_more() -> None:
    buffers, cancel = PartBuffers(20, kept_bytes=10), CancelToken()
    first = buffers.take(7, 10, cancel)
    second = buffers.take(10, 10, cancel)
    first[:] = b"1234567"
    kept = first
    del first, second
    gc.collect()
    third = buffers.take(10, 10, cancel)  # the second one's buffer; the first one's is still referred to
    assert bytes(kept) == b"1234567"
    cancel.cancel()
    with pytest.raises(CancelledError):
        buffers.take(10, 10, cancel)
    assert len(third) == 10


def test_buffers_of_an_unusual_size_are_not_kept() -> None:
    buffers, cancel = PartBuffers(20, kept_bytes=10), CancelToken()
    for size_bytes in range(1, 200):
        view = buffers.take(size_bytes, max(size_bytes, 11), cancel)
        assert len(view) == size_bytes
        del view
    assert buffers._free == []


def test_lanes_run_every_job_once_and_at_the_same_time() -> None:
    barrier = threading.Barrier(2, timeout=30)
    done: list[int] = []
    jobs = [lambda number=number: done.append(number) for number in range(100)]
    assert run_lanes([lane([barrier.wait], 1), lane([barrier.wait, *jobs], 7)], cancel=CancelToken(), grace_seconds=30)
    assert sorted(done) == list(range(100))


def test_a_lane_has_no_more_threads_than_jobs() -> None:
    assert lane([], 64).threads == 0
    assert lane([print], 64).threads == 1
    assert run_lanes([lane([], 64)], cancel=CancelToken(), grace_seconds=0)


def test_a_fault_of_a_job_is_raised_where_the_lanes_are_waited_for() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_lanes([lane([fail], 1)], cancel=CancelToken(), grace_seconds=0)


def test_jobs_that_hang_after_a_cancel_are_left_behind() -> None:
    cancel, release = CancelToken(), threading.Event()

    def hang() -> None:
        cancel.cancel()
        release.wait(60)

    assert not run_lanes([lane([hang], 1)], cancel=cancel, grace_seconds=0)
    release.set()


def test_a_lane_may_wait_for_jobs_while_another_runs() -> None:
    ready = threading.Event()
    done: list[str] = []

    def later() -> Iterator[Callable[[], None]]:
        ready.wait(30)
        yield lambda: done.append("later")

    assert run_lanes([Lane(later(), 3), lane([ready.set], 1)], cancel=CancelToken(), grace_seconds=30)
    assert done == ["later"]


def test_a_process_with_few_open_files_gets_fewer_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    for limit, wanted, affordable in [(256, 64, 52), (100_000, 64, 64), (10, 64, 1), (resource.RLIM_INFINITY, 64, 64)]:
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert affordable_concurrency(wanted) == affordable


class _Script:
    """An operation that fails as told, then returns its number of calls."""

    def __init__(self, *errors: OutputsError) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.calls


def test_a_passing_error_is_tried_again() -> None:
    script = _Script(ServiceUnavailableError("busy"))
    assert Retrier(retry_seconds=60, cancel=CancelToken()).call(script, BucketHealth()) == 2


def test_without_time_to_retry_the_first_error_stands() -> None:
    busy = [ServiceUnavailableError(str(number)) for number in range(9)]
    script, health = _Script(*busy), BucketHealth()
    with pytest.raises(ServiceUnavailableError):
        Retrier(retry_seconds=0, cancel=CancelToken()).call(script, health)
    assert script.calls <= 2
    assert health.stopped_by in busy


@pytest.mark.parametrize("kind", [NotPermittedError, CredentialsError, BucketNotFoundError])
def test_a_permanent_error_stops_everything_with_the_same_instance(kind: type[OutputsError]) -> None:
    error, health = kind("no"), BucketHealth()
    retrier = Retrier(retry_seconds=60, cancel=CancelToken())
    script, other = _Script(error), _Script()
    with pytest.raises(kind):
        retrier.call(script, health)
    with pytest.raises(kind) as caught:
        retrier.call(other, health)
    assert caught.value is error
    assert (script.calls, other.calls) == (1, 0)


@pytest.mark.parametrize("kind", [NotFoundError, IntegrityError])
def test_an_error_of_one_object_stops_nothing(kind: type[OutputsError]) -> None:
    health, retrier = BucketHealth(), Retrier(retry_seconds=60, cancel=CancelToken())
    with pytest.raises(kind):
        retrier.call(_Script(kind("no")), health)
    assert retrier.call(_Script(), health) == 1


def test_where_objects_got_through_one_denial_may_be_tolerated() -> None:
    health, retrier = BucketHealth(tolerates_denials=True), Retrier(retry_seconds=60, cancel=CancelToken())
    assert retrier.call(_Script(), health) == 1
    with pytest.raises(NotPermittedError):
        retrier.call(_Script(NotPermittedError("no")), health)
    assert retrier.call(_Script(), health) == 1
    with pytest.raises(CredentialsError):
        retrier.call(_Script(CredentialsError("expired")), health)
    with pytest.raises(CredentialsError):
        retrier.call(_Script(), health)


def test_a_few_denials_are_tolerated_before_anything_got_through() -> None:
    health, retrier = (
        BucketHealth(tolerates_denials=True, first_denials=2),
        Retrier(retry_seconds=60, cancel=CancelToken()),
    )
    for _ in range(2):
        with pytest.raises(NotPermittedError):
            retrier.call(_Script(NotPermittedError("no")), health)
        assert health.stopped_by is None
    last = NotPermittedError("no")
    with pytest.raises(NotPermittedError):
        retrier.call(_Script(last), health)
    assert health.stopped_by is last
    early = BucketHealth(tolerates_denials=True, first_denials=2)
    with pytest.raises(CredentialsError):
        retrier.call(_Script(CredentialsError("expired")), early)
    assert early.stopped_by is not None


class _Clock(CancelToken):
    """Time that only sleeping moves."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.check()
        self.seconds += seconds


@pytest.fixture
def outages(monkeypatch: pytest.MonkeyPatch) -> Outages:
    """A process that has asked nothing yet."""
    fresh = Outages()
    monkeypatch.setattr(_s3_retry, "_outages", fresh)
    return fresh


def _failure(answer: ServiceAnswer, bucket: str = "bucket") -> OutputsError:
    where = f"s3://{bucket}/run/secret-name"
    return from_answer(answer, RequestContext("list", where, bucket, "us-east-2", "http://127.0.0.1:9", "key AKIA1"))


REFUSED, UNKNOWN_HOST = ServiceAnswer(failure="refused"), ServiceAnswer(failure="dns")
BUSY = ServiceAnswer(status=503, code="SlowDown", message="Please reduce: <secret>")


def _seconds_until_given_up(error: OutputsError) -> float:
    clock, health = _Clock(), BucketHealth()

    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        Retrier(retry_seconds=120, cancel=clock, now=clock.now).call(fail, health)
    assert caught.value is error
    assert health.stopped_by is error
    return clock.seconds - 1000


@pytest.mark.parametrize("answer", [REFUSED, UNKNOWN_HOST])
@pytest.mark.usefixtures("outages")
def test_a_service_that_nothing_can_be_sent_to_is_given_up_sooner(answer: ServiceAnswer) -> None:
    assert 0 < _seconds_until_given_up(_failure(answer)) <= OUT_OF_REACH_SECONDS


@pytest.mark.parametrize("answer", [BUSY, ServiceAnswer(failure="timeout"), ServiceAnswer(failure="connection")])
@pytest.mark.usefixtures("outages")
def test_a_service_that_is_busy_is_given_all_the_time(answer: ServiceAnswer) -> None:
    assert 120 - 15 <= _seconds_until_given_up(_failure(answer)) <= 120


@pytest.mark.parametrize(
    "first",
    [[], [_failure(ServiceAnswer(status=404, code="NoSuchKey"))], [_failure(BUSY)]],
    ids=["success", "refusal", "busy"],
)
@pytest.mark.usefixtures("outages")
def test_a_service_that_has_answered_before_is_given_all_the_time(first: list[OutputsError]) -> None:
    clock = _Clock()
    with contextlib.suppress(NotFoundError):
        Retrier(retry_seconds=120, cancel=clock, now=clock.now).call(_Script(*first), BucketHealth())
    assert 120 - 15 <= _seconds_until_given_up(_failure(REFUSED)) <= 120


def test_less_time_than_that_stays_less(outages: Outages) -> None:
    assert outages.patience_seconds(_failure(REFUSED), 0.5) == 0.5


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (REFUSED, "the connection was refused"),
        (UNKNOWN_HOST, "the host's name could not be resolved"),
        (BUSY, "the service answered 503 SlowDown"),
        (ServiceAnswer(status=500), "the service answered 500"),
        (ServiceAnswer(code="X\n::error::y"), "the service answered X"),
    ],
)
@pytest.mark.usefixtures("outages")
def test_a_wait_is_told_with_bucket_and_cause_and_nothing_that_the_service_wrote(
    caplog: pytest.LogCaptureFixture, answer: ServiceAnswer, cause: str
) -> None:
    clock = _Clock()
    error = _failure(answer)
    passing = ServiceUnavailableError(error.what, why=error.why, remedy=error.remedy)
    Retrier(retry_seconds=20, cancel=clock, now=clock.now).call(_Script(passing), BucketHealth())
    assert caplog.messages == [f"S3 bucket bucket: {cause}: asking again in 0.5 s, for 20 s at most"]
    assert caplog.records[0].levelno == logging.WARNING


@pytest.mark.usefixtures("outages")
def test_an_error_that_does_not_say_where_or_why_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    clock = _Clock()
    Retrier(retry_seconds=20, cancel=clock, now=clock.now).call(
        _Script(ServiceUnavailableError("busy")), BucketHealth()
    )
    assert caplog.messages == ["S3: it does not answer: asking again in 0.5 s, for 20 s at most"]


@pytest.mark.usefixtures("outages")
def test_thousands_of_waits_are_one_line_a_bucket_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = _Clock()
    retrier = Retrier(retry_seconds=10**6, cancel=clock, now=clock.now)
    for _ in range(3000):
        for bucket in ("one", "two"):
            retrier.call(_Script(_failure(BUSY, bucket)), BucketHealth())
    for bucket in ("one", "two"):
        lines = [line for line in caplog.messages if f"bucket {bucket}:" in line]
        assert len(lines) == (clock.seconds - 1000) // TOLD_SECONDS


_ABC = base64.b64encode(hashlib.sha256(b"abc").digest()).decode()


@pytest.mark.parametrize(
    ("head", "sha256"),
    [
        ({"ETag": '"900150983cd24fb0"', "ChecksumSHA256": _ABC, "ChecksumType": "FULL_OBJECT"}, True),
        ({"ETag": '"900150983cd24fb0"', "ChecksumSHA256": _ABC}, True),
        ({"ETag": '"900150983cd24fb0-3"', "ChecksumSHA256": _ABC}, False),
        ({"ETag": '"900150983cd24fb0-3"', "ChecksumSHA256": f"{_ABC}-3", "ChecksumType": "COMPOSITE"}, False),
        ({"ETag": '"900150983cd24fb0"', "ChecksumSHA256": _ABC, "ChecksumType": "COMPOSITE"}, False),
        ({"ETag": '"900150983cd24fb0"', "ChecksumCRC64NVME": "AAAAAAAAAAA="}, False),
        ({"ETag": '"900150983cd24fb0"', "ChecksumSHA256": "AAAA"}, False),
        ({"ETag": '"900150983cd24fb0"', "ChecksumSHA256": "\u00e9 no base64"}, False),
        ({}, False),
    ],
)
def test_only_the_digest_of_the_whole_object_is_taken_for_it(head: dict[str, str], *, sha256: bool) -> None:
    assert whole_sha256(head) == (hashlib.sha256(b"abc").hexdigest() if sha256 else "")


def test_nothing_is_called_after_a_cancel() -> None:
    cancel, script = CancelToken(), _Script()
    cancel.cancel()
    with pytest.raises(CancelledError):
        Retrier(retry_seconds=60, cancel=cancel).call(script, BucketHealth())
    assert script.calls == 0


@pytest.mark.parametrize("header", ["", "nonsense", "Mon, 99 Foo 2020"])
def test_a_date_that_cannot_be_read_is_no_offset(header: str) -> None:
    assert clock_offset(header).total_seconds() == 0


def test_the_clock_of_the_service_may_differ() -> None:
    assert clock_offset("Fri, 01 Jan 2100 00:00:00 GMT").days > 365


def test_metadata_is_printable_ascii() -> None:
    assert header_value("12/b\u00fcild\n/1") == "12/b?ild?/1"
