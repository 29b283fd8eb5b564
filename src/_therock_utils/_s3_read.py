"""Reads whole objects into sinks: files, digests. Small ones in one request, large ones in ranges of one version.

The ranges of an object are fetched several at a time, all of the same version (If-Match), and written in order. What
breaks off goes on behind the last byte that was written.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, cast

from _therock_utils._errors import ConflictError, IntegrityError
from _therock_utils._s3_budget import ByteBudget
from _therock_utils._s3_calls import obstore_call, reading
from _therock_utils._s3_plan import MIB, PART_SIZE_BYTES, byte_ranges, is_large
from _therock_utils._s3_workers import Lane, run_lanes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from obstore import Bytes
    from obstore.store import S3Store

    from _therock_utils._cancel import CancelToken
    from _therock_utils._s3_retry import BucketHealth, Retrier
    from _therock_utils._s3_session import S3Connection
    from _therock_utils.storage_location import StorageLocation

BUDGET_BYTES: Final = 160 * MIB
RANGES_IN_FLIGHT: Final = 8
LARGE_AT_ONCE: Final = 4


class Sink(Protocol):
    """What takes an object's bytes, in order."""

    @property
    def size_bytes(self) -> int:
        """How many it has taken."""

    def write(self, data: bytes) -> None:
        """Take the next ones (a buffer, valid during the call)."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an object."""

    size_bytes: int
    etag: str | None
    content_type: str


class LargeObjectError(Exception):
    """An object is to be fetched in ranges."""

    def __init__(self, version: Version) -> None:
        super().__init__(version)
        self.version = version


class ObjectReader:
    """Reads objects for one call. Memory: BUDGET_BYTES of object data at most, whatever the number of threads."""

    def __init__(self, connection: S3Connection, retrier: Retrier, *, cancel: CancelToken) -> None:
        """Nothing is read yet."""
        self._connection = connection
        self._retrier = retrier
        self._cancel = cancel
        self._budget = ByteBudget(BUDGET_BYTES)

    def read_small(self, location: StorageLocation, health: BucketHealth) -> tuple[bytes, Version]:
        """All bytes (a buffer) of a small object. Raises LargeObjectError for any other, and OutputsErrors."""
        bucket, key = location.bucket, location.relative_path

        def ask(store: S3Store) -> tuple[Bytes | None, Version]:
            import obstore

            answer = obstore.get(store, key)
            content_type = str(answer.attributes.get("Content-Type", ""))
            version = Version(answer.meta["size"], answer.meta["e_tag"], content_type)
            if is_large(version.size_bytes):
                return None, version
            with self._budget.holding(version.size_bytes, self._cancel):
                data = answer.bytes()
            if len(data) != version.size_bytes:
                raise _short(location, len(data), version.size_bytes)
            return data, version

        def request(signed: bool) -> tuple[Bytes | None, Version]:  # noqa: FBT001 - the shape that `reading` calls
            return obstore_call(self._connection, "read", bucket, key, ask, signed=signed)

        data, version = self._retrier.call(lambda: reading(self._connection, bucket, request), health)
        if data is None:
            raise LargeObjectError(version)
        return cast("bytes", data), version  # a buffer; a copy would cost its size

    def read_ranges(self, location: StorageLocation, version: Version, sink: Sink, health: BucketHealth) -> None:
        """Write what `sink` does not have yet of that version. Raises IntegrityError where it is another by now."""
        bucket, key = location.bucket, location.relative_path
        ranges = _Ranges(key, version, sink, self._budget, self._cancel)

        def request(signed: bool) -> None:  # noqa: FBT001 - the shape that `reading` calls
            obstore_call(self._connection, "read", bucket, key, ranges.fetch_rest, signed=signed)

        try:
            self._retrier.call(lambda: reading(self._connection, bucket, request), health)
        except ConflictError as error:
            raise IntegrityError(
                f"{location.s3_uri} was replaced while it was read", why=error.why, remedy="Fetch it again."
            ) from error
        if sink.size_bytes != version.size_bytes:
            raise _short(location, sink.size_bytes, version.size_bytes)


class _Ranges:
    """Fetches the ranges of one object into a sink, in order, RANGES_IN_FLIGHT at a time."""

    def __init__(self, key: str, version: Version, sink: Sink, budget: ByteBudget, cancel: CancelToken) -> None:
        self._key = key
        self._version = version
        self._sink = sink
        self._budget = budget
        self._cancel = cancel

    def fetch_rest(self, store: S3Store) -> None:
        """Fetch what the sink does not have yet. Raises what obstore raises, and CancelledError."""
        asyncio.run(self._fetch_rest(store))

    async def _fetch_rest(self, store: S3Store) -> None:
        done_bytes = self._sink.size_bytes
        waiting = deque(
            (start + done_bytes, end + done_bytes)
            for start, end in byte_ranges(self._version.size_bytes - done_bytes, PART_SIZE_BYTES)
        )
        in_flight: deque[tuple[asyncio.Task[Bytes], int]] = deque()
        try:
            while waiting or in_flight:
                while waiting and len(in_flight) < RANGES_IN_FLIGHT and self._hold(waiting[0], alone=not in_flight):
                    start, end = waiting.popleft()
                    in_flight.append((asyncio.create_task(self._fetch(store, start, end)), end - start))
                await self._write_next(in_flight)
        finally:
            for task, size_bytes in in_flight:
                task.cancel()
                self._budget.release(size_bytes)

    def _hold(self, byte_range: tuple[int, int], *, alone: bool) -> bool:
        """Hold the range's bytes; wait for them only where nothing is in flight, else everybody could wait for ever."""
        size_bytes = byte_range[1] - byte_range[0]
        if not alone:
            return self._budget.try_acquire(size_bytes)
        self._budget.acquire(size_bytes, self._cancel)
        return True

    async def _fetch(self, store: S3Store, start: int, end: int) -> Bytes:
        import obstore

        answer = await obstore.get_async(
            store, self._key, options={"range": (start, end), "if_match": self._version.etag}
        )
        data = await answer.bytes_async()
        if len(data) != end - start:
            raise IntegrityError(f"a range of {end - start} bytes came with {len(data)}", remedy="Fetch it again.")
        return data

    async def _write_next(self, in_flight: deque[tuple[asyncio.Task[Bytes], int]]) -> None:
        """Write the oldest range when it has come, asking now and then whether somebody wants to stop."""
        task, size_bytes = in_flight[0]
        while not task.done():
            self._cancel.check()
            await asyncio.wait({task}, timeout=0.1)
        data = task.result()
        in_flight.popleft()
        try:
            self._sink.write(cast("bytes", data))  # a buffer; a copy would cost its size
        finally:
            self._budget.release(size_bytes)


class Handover:
    """Jobs that come while others run; iterating waits for them until no more can come."""

    def __init__(self, to_come: int) -> None:
        """`to_come`: how many more jobs there may be."""
        self._condition = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._to_come = to_come

    def add(self, job: Callable[[], None]) -> None:
        """Another job; it still counts as to come."""
        with self._condition:
            self._jobs.append(job)
            self._condition.notify_all()

    def one_less_to_come(self) -> None:
        """One that could have come has, or never will."""
        with self._condition:
            self._to_come -= 1
            self._condition.notify_all()

    def __iter__(self) -> Iterator[Callable[[], None]]:
        """The jobs as they come."""
        while True:
            with self._condition:
                while not self._jobs and self._to_come:
                    self._condition.wait()
                if not self._jobs:
                    return
                job = self._jobs.popleft()
            yield job


def run_by_size(
    small: Sequence[Callable[[], None]],
    large: Handover,
    *,
    concurrency: int,
    cancel: CancelToken,
    grace_seconds: float,
) -> bool:
    """Run jobs for small objects, and those for large ones that they hand over; what `run_lanes` gives."""
    lanes = [Lane(small, min(concurrency, len(small))), Lane(large, min(LARGE_AT_ONCE, len(small)))]
    return run_lanes(lanes, cancel=cancel, grace_seconds=grace_seconds)


def _short(location: StorageLocation, got_bytes: int, size_bytes: int) -> IntegrityError:
    return IntegrityError(f"{location.s3_uri} came incomplete", why=f"{got_bytes} of {size_bytes} bytes arrived")
