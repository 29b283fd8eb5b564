"""Retries of S3 requests, above those that obstore makes itself.

obstore retries one request (a part, a page) a few times within seconds. What still fails and can pass by itself is
tried again here as a whole, with exponential backoff and jitter, until `retry_seconds` after its first failure.
Permanent errors, and services that stay unreachable, stop everything else that is to go to the same bucket.

Where no request of this process has been answered yet, and connections are refused or the host's name is not known,
more than a busy service is wrong, mostly the endpoint: that is given up after OUT_OF_REACH_SECONDS already. Every wait
is told in the log, one line a bucket in TOLD_SECONDS, however many objects wait.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from typing import TYPE_CHECKING, Final, TypeVar

from _therock_utils._errors import BucketNotFoundError, NotPermittedError, OutputsError, ServiceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tenacity import RetryCallState

    from _therock_utils._cancel import CancelToken

_T = TypeVar("_T")
_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 15.0

OUT_OF_REACH_SECONDS: Final = 30.0
"""How long a service that has never answered, and that nothing can be sent to, is tried again at most."""

TOLD_SECONDS: Final = 10.0
"""Between two lines of the log about waits for one bucket."""

# How `_s3_errors.from_answer` words an error. What the service wrote comes behind a colon, and is left out here.
_CAUSE: Final = re.compile(r"[A-Za-z0-9 .'-]{0,100}")
_BUCKET: Final = re.compile(r"s3://([A-Za-z0-9.-]{1,63})/")
_ANSWERED: Final = "the service answered"
_OUT_OF_REACH: Final = ("the connection was refused", "the host's name could not be resolved")

_logger: Final = logging.getLogger(__name__)


class BucketHealth:
    """What one transfer has learnt about one bucket; shared by its workers."""

    def __init__(self, *, tolerates_denials: bool = False, first_denials: int = 0) -> None:
        """Nothing is known yet.

        With `tolerates_denials` a single object may be denied where others got through: S3 says so of a missing object
        to those who may not list. So may `first_denials` of them before any got through.
        """
        self._tolerates_denials = tolerates_denials
        self._first_denials = first_denials
        self._denials = 0
        self._lock = threading.Lock()
        self._stopped_by: OutputsError | None = None
        self._last_success = 0.0

    @property
    def stopped_by(self) -> OutputsError | None:
        """The error that ended all work for this bucket, or None."""
        return self._stopped_by

    def check(self) -> None:
        """Raise the error that ended all work for this bucket, the same instance for everybody."""
        if self._stopped_by is not None:
            raise self._stopped_by

    def stop(self, error: OutputsError) -> None:
        """End all work for this bucket. The first error stays."""
        with self._lock:
            self._stopped_by = self._stopped_by or error

    def succeeded(self) -> None:
        """An object got through."""
        self._last_success = time.monotonic()

    def failed(self, error: OutputsError, *, since: float) -> None:
        """Note a final failure: a permanent one stops the bucket, as does an outage `since` its first attempt."""
        outage = isinstance(error, ServiceUnavailableError) and self._last_success < since
        tolerated = False
        if self._tolerates_denials and type(error) is NotPermittedError:
            with self._lock:
                self._denials += 1
                tolerated = self._last_success > 0 or self._denials <= self._first_denials
        if outage or (is_permanent_for_bucket(error) and not tolerated):
            self.stop(error)


def is_permanent_for_bucket(error: OutputsError) -> bool:
    """Whether every other request to the bucket will fail in the same way."""
    return isinstance(error, (NotPermittedError, BucketNotFoundError))


def cause_of(error: OutputsError) -> str:
    """Why a request failed, in our words and the service's code alone: "the service answered 503 SlowDown"."""
    found = _CAUSE.match(error.why)
    return (found[0].strip() if found else "") or "it does not answer"


class Outages:
    """What a process knows of the service that its requests go to, and what it has told of it. Safe to share."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._lock = threading.Lock()
        self._told: dict[str, float] = {}
        self.has_answered = False

    def note(self, error: OutputsError) -> None:
        """Whether the service is there: one that refuses a request is."""
        self.has_answered = self.has_answered or error.why.startswith(_ANSWERED)

    def patience_seconds(self, error: OutputsError, retry_seconds: float) -> float:
        """How long after its first failure an operation that fails with `error` is tried again."""
        if not self.has_answered and cause_of(error) in _OUT_OF_REACH:
            return min(retry_seconds, OUT_OF_REACH_SECONDS)
        return retry_seconds

    def tell(self, error: OutputsError, *, pause_seconds: float, patience_seconds: float, now: float) -> None:
        """Log a wait, unless one for the same bucket was told of less than TOLD_SECONDS ago."""
        found = _BUCKET.search(error.what)
        bucket = found[1] if found else ""
        with self._lock:
            if now - self._told.get(bucket, -TOLD_SECONDS) < TOLD_SECONDS:
                return
            self._told[bucket] = now
        _logger.warning(
            "S3%s: %s: asking again in %.1f s, for %g s at most",
            f" bucket {bucket}" if bucket else "",
            cause_of(error),
            pause_seconds,
            patience_seconds,
        )


_outages = Outages()


class Retrier:
    """Calls operations again until they pass, fail for good, or run out of time."""

    def __init__(self, *, retry_seconds: float, cancel: CancelToken, now: Callable[[], float] = time.monotonic) -> None:
        """`retry_seconds` counts from an operation's first failure.

        It is less for a service that is out of reach from the start. `now` is the clock, in seconds.
        """
        self._retry_seconds = retry_seconds
        self._cancel = cancel
        self._now = now

    def call(self, operation: Callable[[], _T], health: BucketHealth) -> _T:
        """What `operation` returns. Raises its last OutputsError, or CancelledError when somebody asks to stop."""
        self._cancel.check()
        health.check()
        try:
            result = operation()
        except OutputsError as error:
            failed_at = self._now()
            _outages.note(error)
            if not error.transient:
                health.failed(error, since=failed_at)
                raise
            pause_seconds = min(_FIRST_WAIT_SECONDS, self._retry_seconds)
            self._tell(error, pause_seconds)
        else:
            _outages.has_answered = True
            health.succeeded()
            return result
        self._cancel.sleep(pause_seconds)
        return self._again(operation, health, failed_at)

    def _tell(self, error: OutputsError, pause_seconds: float) -> None:
        patience_seconds = _outages.patience_seconds(error, self._retry_seconds)
        _outages.tell(error, pause_seconds=pause_seconds, patience_seconds=patience_seconds, now=self._now())

    def _again(self, operation: Callable[[], _T], health: BucketHealth, failed_at: float) -> _T:
        from tenacity import Retrying, retry_if_exception, wait_random_exponential

        def attempt() -> _T:
            self._cancel.check()
            health.check()
            return operation()

        def is_out_of_time(state: RetryCallState) -> bool:
            error = _failure(state)
            _outages.note(error)
            needed_seconds = self._now() + state.upcoming_sleep - failed_at
            return needed_seconds >= _outages.patience_seconds(error, self._retry_seconds)

        retrying = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, OutputsError) and error.transient),
            wait=wait_random_exponential(multiplier=_FIRST_WAIT_SECONDS, max=_LONGEST_WAIT_SECONDS),
            stop=is_out_of_time,
            before_sleep=lambda state: self._tell(_failure(state), state.upcoming_sleep),
            sleep=self._cancel.sleep,
            reraise=True,
        )
        try:
            result = retrying(attempt)
        except OutputsError as error:
            _outages.note(error)
            health.failed(error, since=failed_at)
            raise
        _outages.has_answered = True
        health.succeeded()
        return result


def _failure(state: RetryCallState) -> OutputsError:
    """What the last attempt failed with; only OutputsErrors are tried again."""
    error = state.outcome.exception() if state.outcome is not None else None
    return error if isinstance(error, OutputsError) else OutputsError("")
