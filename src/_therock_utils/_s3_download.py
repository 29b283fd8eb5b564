"""Fetches objects to files. A file appears at its final name whole, verified and synced, or not at all.

A small object is one request. A large one is fetched in ranges, several at a time, all of the same version (If-Match),
and written in order, so that its digest is taken on the way.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections import defaultdict, deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from _therock_utils._errors import CancelledError, ConflictError, IntegrityError, OutputsError
from _therock_utils._folder import Folder, NewFile, check_names, local_file_error
from _therock_utils._keys import quote
from _therock_utils._s3_budget import ByteBudget
from _therock_utils._s3_calls import obstore_call, reading
from _therock_utils._s3_plan import MIB, PART_SIZE_BYTES, byte_ranges, is_large
from _therock_utils._s3_retry import BucketHealth
from _therock_utils._s3_workers import Lane, run_lanes
from _therock_utils._transfer_types import DownloadedFile, DownloadResult, FailedItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from obstore import Bytes
    from obstore.store import S3Store

    from _therock_utils._cancel import CancelToken
    from _therock_utils._s3_retry import Retrier
    from _therock_utils._s3_session import S3Connection
    from _therock_utils._transfer_types import DownloadItem

BUDGET_BYTES: Final = 160 * MIB
RANGES_IN_FLIGHT: Final = 8
LARGE_AT_ONCE: Final = 4
CANCEL_GRACE_SECONDS: Final = 3.0
STOPPING_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""What the next file would meet as well: it is told once, and the rest is not tried."""


@dataclass(frozen=True, slots=True)
class _Version:
    """One version of an object."""

    size_bytes: int
    etag: str | None


class _LargeObjectError(Exception):
    """An object is to be fetched in ranges."""

    def __init__(self, version: _Version) -> None:
        super().__init__(version)
        self.version = version


class Download:
    """One call of `download`. Memory: BUDGET_BYTES of object data at most, whatever the number of objects."""

    def __init__(self, connection: S3Connection, retrier: Retrier, *, cancel: CancelToken, concurrency: int) -> None:
        """Nothing is fetched yet; `concurrency` small objects are fetched at once."""
        self._connection = connection
        self._retrier = retrier
        self._cancel = cancel
        self._concurrency = concurrency
        self._budget = ByteBudget(BUDGET_BYTES)
        self._lock = threading.Lock()
        self._healths: defaultdict[str, BucketHealth] = defaultdict(partial(BucketHealth, tolerates_denials=True))
        self._outcomes: dict[int, DownloadedFile | FailedItem] = {}
        self._open_files: set[NewFile] = set()
        self._disk_error: OutputsError | None = None

    def run(self, items: Sequence[DownloadItem]) -> DownloadResult:
        """Fetch `items`."""
        large = _Handover(len(items))
        jobs = [partial(self._fetch_small, at, item, large) for at, item in enumerate(items)]
        finished = run_lanes(
            [Lane(jobs, min(self._concurrency, len(items))), Lane(large, min(LARGE_AT_ONCE, len(items)))],
            cancel=self._cancel,
            grace_seconds=CANCEL_GRACE_SECONDS,
        )
        with self._lock:
            outcomes = dict(self._outcomes)
            abandoned = () if finished else tuple(self._open_files)
        for new_file in abandoned:
            new_file.__exit__(None, None, None)
        cancelled = CancelledError(self._cancel.signal_number)
        for at, item in enumerate(items):
            if at not in outcomes:
                outcomes[at] = FailedItem(str(item.target), item.location, cancelled)
        ordered = [outcomes[at] for at in range(len(items))]
        return DownloadResult(
            tuple(outcome for outcome in ordered if isinstance(outcome, DownloadedFile)),
            tuple(outcome for outcome in ordered if isinstance(outcome, FailedItem)),
        )

    def _fetch_small(self, at: int, item: DownloadItem, large: _Handover) -> None:
        try:
            self._keep(at, item, partial(self._get, item))
        except _LargeObjectError as found:
            large.add(partial(self._keep, at, item, partial(self._get_ranges, item, found.version)))
        finally:
            large.one_less_to_come()

    def _keep(self, at: int, item: DownloadItem, fetch: Callable[[], DownloadedFile]) -> None:
        """Do `fetch` and keep what comes of it."""
        outcome: DownloadedFile | FailedItem
        try:
            self._cancel.check()
            if self._disk_error is not None:
                raise self._disk_error
            check_names(item.target, [item.target.name])
            outcome = fetch()
        except OutputsError as error:
            outcome = FailedItem(str(item.target), item.location, error)
        except OSError as error:
            told = local_file_error(item.target, "written", error)
            outcome = FailedItem(str(item.target), item.location, told)
            if error.errno in STOPPING_ERRNOS:
                self._disk_error = told
        with self._lock:
            self._outcomes[at] = outcome

    def _health(self, item: DownloadItem) -> BucketHealth:
        with self._lock:
            return self._healths[item.location.bucket]

    def _get(self, item: DownloadItem) -> DownloadedFile:
        """Fetch a small object. Raises _LargeObjectError for any other."""
        bucket, key = item.location.bucket, item.location.relative_path
        found: list[_Version] = []

        def ask(store: S3Store) -> Bytes | None:
            import obstore

            answer = obstore.get(store, key)
            version = _Version(answer.meta["size"], answer.meta["e_tag"])
            if is_large(version.size_bytes):
                found.append(version)
                return None
            with self._budget.holding(version.size_bytes, self._cancel):
                data = answer.bytes()
            if len(data) != version.size_bytes:
                raise _short(item, len(data), version.size_bytes)
            return data

        def request(signed: bool) -> Bytes | None:  # noqa: FBT001 - the shape that `reading` calls
            return obstore_call(self._connection, "read", bucket, key, ask, signed=signed)

        data = self._retrier.call(lambda: reading(self._connection, bucket, request), self._health(item))
        if data is None:
            raise _LargeObjectError(found[-1])
        with Folder.open(item.target.parent, create=True) as folder, self._new_file(folder) as new_file:
            new_file.write(cast("bytes", data))  # a buffer; a copy would cost its size
            return _publish(item, new_file)

    def _get_ranges(self, item: DownloadItem, version: _Version) -> DownloadedFile:
        bucket, key = item.location.bucket, item.location.relative_path
        with Folder.open(item.target.parent, create=True) as folder, self._new_file(folder) as new_file:
            ranges = _Ranges(key, version, new_file, self._budget, self._cancel)

            def request(signed: bool) -> None:  # noqa: FBT001 - the shape that `reading` calls
                obstore_call(self._connection, "read", bucket, key, ranges.fetch_rest, signed=signed)

            try:
                self._retrier.call(lambda: reading(self._connection, bucket, request), self._health(item))
            except ConflictError as error:
                raise IntegrityError(
                    f"{item.location.s3_uri} was replaced while it was read", why=error.why, remedy="Fetch it again."
                ) from error
            if new_file.size_bytes != version.size_bytes:
                raise _short(item, new_file.size_bytes, version.size_bytes)
            return _publish(item, new_file)

    def _new_file(self, folder: Folder) -> _TrackedFile:
        return _TrackedFile(NewFile(folder), self._open_files, self._lock)


class _TrackedFile:
    """A NewFile that is in `open_files` while it is open, so that it can be removed when its thread hangs."""

    def __init__(self, new_file: NewFile, open_files: set[NewFile], lock: threading.Lock) -> None:
        self._new_file = new_file
        self._open_files = open_files
        self._lock = lock

    def __enter__(self) -> NewFile:
        with self._lock:
            self._open_files.add(self._new_file)
        return self._new_file.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._lock:
            self._open_files.discard(self._new_file)
        self._new_file.__exit__(kind, value, traceback)


class _Ranges:
    """Fetches the ranges of one object into a file, in order, RANGES_IN_FLIGHT at a time."""

    def __init__(self, key: str, version: _Version, new_file: NewFile, budget: ByteBudget, cancel: CancelToken) -> None:
        self._key = key
        self._version = version
        self._new_file = new_file
        self._budget = budget
        self._cancel = cancel

    def fetch_rest(self, store: S3Store) -> None:
        """Fetch what the file does not have yet. Raises what obstore raises, and CancelledError."""
        asyncio.run(self._fetch_rest(store))

    async def _fetch_rest(self, store: S3Store) -> None:
        done_bytes = self._new_file.size_bytes
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
            self._new_file.write(cast("bytes", data))  # a buffer; a copy would cost its size
        finally:
            self._budget.release(size_bytes)


class _Handover:
    """Jobs that come while others run; iterating waits for them until no more can come."""

    def __init__(self, to_come: int) -> None:
        self._condition = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._to_come = to_come

    def add(self, job: Callable[[], None]) -> None:
        with self._condition:
            self._jobs.append(job)
            self._condition.notify_all()

    def one_less_to_come(self) -> None:
        with self._condition:
            self._to_come -= 1
            self._condition.notify_all()

    def __iter__(self) -> Iterator[Callable[[], None]]:
        while True:
            with self._condition:
                while not self._jobs and self._to_come:
                    self._condition.wait()
                if not self._jobs:
                    return
                job = self._jobs.popleft()
            yield job


def _publish(item: DownloadItem, new_file: NewFile) -> DownloadedFile:
    """Verify, sync, and give the file its name. Raises IntegrityError where the digest is another."""
    if item.sha256 and item.sha256.lower() != new_file.sha256:
        raise IntegrityError(
            f"{item.location.s3_uri} is not what it should be",
            why=f"its SHA-256 is {new_file.sha256}, and should be {quote(item.sha256)}",
            remedy="Store the object and its digest again.",
        )
    new_file.sync()
    size_bytes, sha256 = new_file.size_bytes, new_file.sha256
    new_file.publish(item.target.name)
    return DownloadedFile(item, size_bytes, sha256)


def _short(item: DownloadItem, got_bytes: int, size_bytes: int) -> IntegrityError:
    return IntegrityError(f"{item.location.s3_uri} came incomplete", why=f"{got_bytes} of {size_bytes} bytes arrived")
