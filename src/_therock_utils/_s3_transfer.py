"""One upload from its items to its result: sizes, conflicts, then two lanes of workers, then what is left open."""

from __future__ import annotations

import datetime
import logging
import os
import stat
import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from _therock_utils._backend_base import check_destinations
from _therock_utils._errors import CancelledError, ConflictError, OutputsError
from _therock_utils._s3_abort import abort_uploads
from _therock_utils._s3_conflicts import ConflictFinder
from _therock_utils._s3_plan import decide_action, is_large
from _therock_utils._s3_upload import ObjectWriter
from _therock_utils._s3_workers import lane, run_lanes
from _therock_utils._source_file import SkipFileError
from _therock_utils._transfer_types import Conflict, FailedItem, SkippedFile, StoredObject, UploadResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from _therock_utils._cancel import CancelToken
    from _therock_utils._s3_conflicts import FoundConflict
    from _therock_utils._s3_retry import Retrier
    from _therock_utils._s3_session import S3Connection
    from _therock_utils._transfer_types import OnConflict, Origin, UploadItem
    from _therock_utils.storage_location import StorageLocation

_logger = logging.getLogger(__name__)
_Sizes: TypeAlias = "Mapping[StorageLocation, tuple[UploadItem, int]]"
_NO_FILE: Final = -1
SMALL_AT_ONCE: Final = 64
LARGE_AT_ONCE: Final = 4
CANCEL_GRACE_SECONDS: Final = 3.0
"""How long workers may take to end by themselves after a cancel. Aborting what is open then has one second more."""


@dataclass(frozen=True, slots=True)
class UploadOptions:
    """What holds for all items of one upload."""

    on_conflict: OnConflict
    origin: Origin | None
    cancel: CancelToken
    dry_run: bool
    concurrency: int


class Upload:
    """One call of `upload`."""

    def __init__(self, connection: S3Connection, retrier: Retrier, options: UploadOptions) -> None:
        """Nothing is done yet."""
        self._connection = connection
        self._retrier = retrier
        self._options = options
        self._writer = ObjectWriter(
            connection, retrier, origin=options.origin, cancel=options.cancel, dry_run=options.dry_run
        )
        self._started = datetime.datetime.now(datetime.UTC)
        self._lock = threading.Lock()
        self._outcomes: dict[StorageLocation, StoredObject | SkippedFile | FailedItem] = {}
        self._notices: tuple[str, ...] = ()

    def run(self, items: Sequence[UploadItem]) -> UploadResult:
        """Store `items`. Raises InputError where two of them have one destination or one has none."""
        check_destinations([item.destination for item in items])
        sizes = {item.destination: (item, _size_bytes(item)) for item in items}
        found = {} if self._options.dry_run else self._find_conflicts(sizes)
        conflicts = [self._decide(found[at]) for at in sorted(found, key=_order)]
        refused = [conflict for conflict in conflicts if conflict.action == "refused"]
        if refused:
            return self._refuse(items, conflicts, refused)
        left = {conflict.location for conflict in conflicts if conflict.action == "skipped"}
        wanted = {at: entry for at, entry in sizes.items() if at not in left}
        self._write_all(wanted)
        return self._result(wanted, conflicts)

    def _decide(self, found: FoundConflict) -> Conflict:
        action = decide_action(found.state, self._options.on_conflict)
        return Conflict(found.location, found.state, found.origin, action)

    def _find_conflicts(self, sizes: _Sizes) -> Mapping[StorageLocation, FoundConflict]:
        finder = ConflictFinder(
            self._connection,
            self._retrier,
            origin=self._options.origin,
            must_know=self._options.on_conflict != "overwrite",
            cancel=self._options.cancel,
            grace_seconds=CANCEL_GRACE_SECONDS,
        )
        # What is no file will be skipped, so nothing of it can be in conflict.
        files = {at: (item, size_bytes) for at, (item, size_bytes) in sizes.items() if size_bytes != _NO_FILE}
        found = finder.find(files, self._writer.healths)
        self._notices = tuple(finder.notices)
        return found

    def _refuse(self, items: Sequence[UploadItem], conflicts: list[Conflict], refused: list[Conflict]) -> UploadResult:
        """Nothing is written: the items in conflict say so, and the others say why."""
        in_conflict = {conflict.location: conflict for conflict in refused}
        others = ConflictError(
            f"not stored, because {len(refused)} other objects of this upload are in conflict",
            why=f"the first is {refused[0].location.s3_uri}",
            remedy=_CONFLICT_REMEDY,
        )
        errors = {at: _conflict_error(conflict) for at, conflict in in_conflict.items()}
        failed = [FailedItem(item.label, item.destination, errors.get(item.destination, others)) for item in items]
        return UploadResult(
            failed=tuple(sorted(failed, key=_failed_order)),
            conflicts=tuple(replace(conflict, action="refused") for conflict in conflicts),
            notices=self._notices,
        )

    def _write_all(self, wanted: _Sizes) -> None:
        small = [item for item, size_bytes in wanted.values() if not is_large(size_bytes)]
        large = [entry for entry in wanted.values() if is_large(entry[1])]
        large.sort(key=lambda entry: (-entry[1], _order(entry[0].destination)))  # the longest first
        if large and not self._options.dry_run:
            self._warm_up({item.destination.bucket for item, _ in large})
        run_lanes(
            [
                lane([partial(self._write, item) for item, _ in large], min(LARGE_AT_ONCE, self._options.concurrency)),
                lane([partial(self._write, item) for item in small], self._options.concurrency),
            ],
            cancel=self._options.cancel,
            grace_seconds=CANCEL_GRACE_SECONDS,
        )

    def _warm_up(self, buckets: set[str]) -> None:
        """Build the boto3 clients that the HEADs need while the parts are on their way."""
        for bucket in sorted(buckets):
            threading.Thread(target=_build_client, args=(self._connection, bucket), daemon=True).start()

    def _write(self, item: UploadItem) -> None:
        outcome: StoredObject | SkippedFile | FailedItem
        try:
            outcome = self._writer.write(item)
        except SkipFileError as skipped:
            outcome = SkippedFile(item.label, skipped.reason)
        except OutputsError as error:
            outcome = FailedItem(item.label, item.destination, error)
        with self._lock:
            self._outcomes[item.destination] = outcome

    def _result(self, wanted: _Sizes, conflicts: list[Conflict]) -> UploadResult:
        left_open = self._abort()
        with self._lock:
            outcomes = dict(self._outcomes)
        cancelled = CancelledError(self._options.cancel.signal_number)
        for at, (item, _) in wanted.items():
            if at not in outcomes:
                outcomes[at] = FailedItem(item.label, at, cancelled)
        ordered = [outcomes[at] for at in sorted(outcomes, key=_order)]
        failed = [outcome for outcome in ordered if isinstance(outcome, FailedItem)]
        stored = [outcome for outcome in ordered if isinstance(outcome, StoredObject)]
        written = {outcome.location for outcome in stored}
        skipped = [outcome for outcome in ordered if isinstance(outcome, SkippedFile)]
        return UploadResult(
            stored=tuple(stored),
            skipped=tuple(sorted(skipped, key=lambda file: file.path)),
            failed=tuple(with_open_upload(item) if item.location in left_open else item for item in failed),
            conflicts=tuple(found for found in conflicts if found.action == "skipped" or found.location in written),
            notices=self._notices,
        )

    def _abort(self) -> frozenset[StorageLocation]:
        """Abort what may be open; the keys for which that could not be done."""
        with self._lock:
            suspects = frozenset(self._writer.open_uploads)
        timeout_seconds = 1.0 if self._options.cancel.cancelled else 30.0
        return abort_uploads(self._connection, suspects, since=self._started, timeout_seconds=timeout_seconds)


def with_open_upload(item: FailedItem) -> FailedItem:
    """The item, its error saying that a multipart upload was left open."""
    note = (
        f"An open multipart upload may be left at {item.location.s3_uri}, which costs storage: abort it, and let the "
        "role do s3:ListBucketMultipartUploads and s3:AbortMultipartUpload."
    )
    kind = type(item.error)
    error = kind.__new__(kind, *item.error.args)  # a copy: other items may share the instance
    error.__dict__.update(item.error.__dict__, remedy=f"{item.error.remedy} {note}".strip())
    return replace(item, error=error)


def _conflict_error(conflict: Conflict) -> ConflictError:
    whose = f", written by {conflict.origin!a}" if conflict.origin else ""
    cause = "other bytes lie there" if conflict.state == "different" else "an object lies there that cannot be compared"
    return ConflictError(f"{conflict.location.s3_uri} is taken", why=cause + whose, remedy=_CONFLICT_REMEDY)


_CONFLICT_REMEDY: Final = "Use another run or group, or set on_conflict to overwrite or skip."


def _size_bytes(item: UploadItem) -> int:
    """Size as it is now, to choose a lane by; _NO_FILE for what cannot be stored: opening it will say why."""
    if isinstance(item.source, bytes):
        return len(item.source)
    try:
        status = os.lstat(item.source)
    except OSError:
        return _NO_FILE
    return status.st_size if stat.S_ISREG(status.st_mode) else _NO_FILE


def _build_client(connection: S3Connection, bucket: str) -> None:
    try:
        connection.client(bucket)
    except OutputsError as error:  # whoever needs the client will meet it again
        _logger.debug("no client for %s: %s", bucket, error)


def _order(location: StorageLocation) -> tuple[str, bytes]:
    return location.bucket, location.relative_path.encode()


def _failed_order(item: FailedItem) -> tuple[str, bytes]:
    return _order(item.location)
