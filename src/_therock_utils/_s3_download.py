"""Fetches objects to files. A file appears at its final name whole, verified and synced, or not at all."""

from __future__ import annotations

import errno
import threading
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import CancelledError, IntegrityError, OutputsError
from _therock_utils._folder import Folder, NewFile, check_names, local_file_error
from _therock_utils._keys import quote
from _therock_utils._s3_read import Handover, LargeObjectError, ObjectReader, run_by_size
from _therock_utils._s3_retry import BucketHealth
from _therock_utils._transfer_types import DownloadedFile, DownloadResult, FailedItem

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from _therock_utils._cancel import CancelToken
    from _therock_utils._s3_read import Version
    from _therock_utils._s3_retry import Retrier
    from _therock_utils._s3_session import S3Connection
    from _therock_utils._transfer_types import DownloadItem

CANCEL_GRACE_SECONDS: Final = 3.0
STOPPING_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO})
"""What the next file would meet as well: it is told once, and the rest is not tried."""


class Download:
    """One call of `download`. Memory: that of one ObjectReader."""

    def __init__(
        self,
        connection: S3Connection,
        retrier: Retrier,
        *,
        cancel: CancelToken,
        concurrency: int,
        on_downloaded: Callable[[DownloadedFile], None] | None,
    ) -> None:
        """Nothing is fetched yet; `concurrency` small objects are fetched at once."""
        self._reader = ObjectReader(connection, retrier, cancel=cancel)
        self._cancel = cancel
        self._concurrency = concurrency
        self._on_downloaded = on_downloaded
        self._lock = threading.Lock()
        self._telling = threading.Lock()
        self._healths: defaultdict[str, BucketHealth] = defaultdict(partial(BucketHealth, tolerates_denials=True))
        self._outcomes: dict[int, DownloadedFile | FailedItem] = {}
        self._open_files: set[NewFile] = set()
        self._disk_error: OutputsError | None = None
        self._fault: BaseException | None = None  # what `on_downloaded` raised
        self._ended = False

    def run(self, items: Sequence[DownloadItem]) -> DownloadResult:
        """Fetch `items`."""
        large = Handover(len(items))
        finished = run_by_size(
            [partial(self._fetch_small, at, item, large) for at, item in enumerate(items)],
            large,
            concurrency=self._concurrency,
            cancel=self._cancel,
            grace_seconds=CANCEL_GRACE_SECONDS,
        )
        with self._lock:
            self._ended = True
            outcomes = dict(self._outcomes)
            abandoned = () if finished else tuple(self._open_files)
        for new_file in abandoned:
            new_file.__exit__(None, None, None)
        if self._fault is not None:
            raise self._fault
        cancelled = CancelledError(self._cancel.signal_number)
        for at, item in enumerate(items):
            if at not in outcomes:
                outcomes[at] = FailedItem(str(item.target), item.location, cancelled)
        ordered = [outcomes[at] for at in range(len(items))]
        return DownloadResult(
            tuple(outcome for outcome in ordered if isinstance(outcome, DownloadedFile)),
            tuple(outcome for outcome in ordered if isinstance(outcome, FailedItem)),
        )

    def _fetch_small(self, at: int, item: DownloadItem, large: Handover) -> None:
        try:
            self._keep(at, item, partial(self._get, item))
        except LargeObjectError as found:
            large.add(partial(self._keep, at, item, partial(self._get_ranges, item, found.version)))
        finally:
            large.one_less_to_come()

    def _keep(self, at: int, item: DownloadItem, fetch: Callable[[], DownloadedFile]) -> None:
        """Do `fetch` and keep what comes of it."""
        outcome: DownloadedFile | FailedItem
        if self._fault is not None:
            return
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
        if isinstance(outcome, DownloadedFile) and self._on_downloaded is not None:
            self._tell(outcome, self._on_downloaded)

    def _tell(self, file: DownloadedFile, on_downloaded: Callable[[DownloadedFile], None]) -> None:
        """Call `on_downloaded`. What it raises is kept: here it would end a thread that large jobs wait for."""
        with self._telling:
            if self._fault is not None or self._ended:
                return
            try:
                on_downloaded(file)
            except BaseException as fault:  # noqa: BLE001 - `run` raises it
                self._fault = fault

    def _health(self, item: DownloadItem) -> BucketHealth:
        with self._lock:
            return self._healths[item.location.bucket]

    def _get(self, item: DownloadItem) -> DownloadedFile:
        """Fetch a small object. Raises LargeObjectError for any other."""
        data, _ = self._reader.read_small(item.location, self._health(item))
        with Folder.open(item.target.parent, create=True) as folder, self._new_file(folder) as new_file:
            new_file.write(data)
            return _publish(item, new_file)

    def _get_ranges(self, item: DownloadItem, version: Version) -> DownloadedFile:
        with Folder.open(item.target.parent, create=True) as folder, self._new_file(folder) as new_file:
            self._reader.read_ranges(item.location, version, new_file, self._health(item))
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
