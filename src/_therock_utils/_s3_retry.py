"""Retries of S3 requests, above those that obstore makes itself.

obstore retries one request (a part, a page) a few times within seconds. What still fails and can pass by itself is
tried again here as a whole, with exponential backoff and jitter, until `retry_seconds` after its first failure.
Permanent errors, and services that stay unreachable, stop everything else that is to go to the same bucket.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, TypeVar

from _therock_utils._errors import BucketNotFoundError, NotPermittedError, OutputsError, ServiceUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from _therock_utils._cancel import CancelToken

_T = TypeVar("_T")
_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 15.0


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


class Retrier:
    """Calls operations again until they pass, fail for good, or run out of time."""

    def __init__(self, *, retry_seconds: float, cancel: CancelToken) -> None:
        """`retry_seconds` counts from an operation's first failure."""
        self._retry_seconds = retry_seconds
        self._cancel = cancel

    def call(self, operation: Callable[[], _T], health: BucketHealth) -> _T:
        """What `operation` returns. Raises its last OutputsError, or CancelledError when somebody asks to stop."""
        self._cancel.check()
        health.check()
        try:
            result = operation()
        except OutputsError as error:
            failed_at = time.monotonic()
            if not error.transient:
                health.failed(error, since=failed_at)
                raise
        else:
            health.succeeded()
            return result
        return self._again(operation, health, failed_at)

    def _again(self, operation: Callable[[], _T], health: BucketHealth, failed_at: float) -> _T:
        from tenacity import Retrying, retry_if_exception, wait_random_exponential

        def attempt() -> _T:
            self._cancel.check()
            health.check()
            return operation()

        wait = wait_random_exponential(multiplier=_FIRST_WAIT_SECONDS, max=_LONGEST_WAIT_SECONDS)
        retrying = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, OutputsError) and error.transient),
            wait=wait,
            stop=lambda state: time.monotonic() + (state.upcoming_sleep or 0) - failed_at >= self._retry_seconds,
            sleep=self._cancel.sleep,
            reraise=True,
        )
        self._cancel.sleep(min(_FIRST_WAIT_SECONDS, self._retry_seconds))
        try:
            result = retrying(attempt)
        except OutputsError as error:
            health.failed(error, since=failed_at)
            raise
        health.succeeded()
        return result
