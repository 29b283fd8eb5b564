"""Finds out which keys of an upload are taken by other bytes, before anything is written.

One listing of the destination. Only a key found with another size, or with the same size and an ETag that is not the
one our bytes would get, costs a HEAD.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from _therock_utils._errors import CancelledError, NotFoundError, NotPermittedError, OutputsError
from _therock_utils._s3_calls import head_facts, head_origin
from _therock_utils._s3_listing import Listing
from _therock_utils._s3_plan import StoredFacts, decide_state, listing_windows
from _therock_utils._s3_retry import BucketHealth
from _therock_utils._s3_upload import digest_locally
from _therock_utils._s3_workers import call_abandonably, lane, run_lanes
from _therock_utils._source_file import SkipFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from _therock_utils._cancel import CancelToken
    from _therock_utils._s3_listing import Listed
    from _therock_utils._s3_plan import LocalDigests
    from _therock_utils._s3_retry import Retrier
    from _therock_utils._s3_session import S3Connection
    from _therock_utils._transfer_types import Origin, UploadItem
    from _therock_utils.storage_location import StorageLocation

_logger = logging.getLogger(__name__)
_LOOKS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class FoundConflict:
    """A key that is taken by other bytes, or by bytes that cannot be compared."""

    location: StorageLocation
    state: Literal["different", "unknown", "rerun"]
    origin: str


class ConflictFinder:
    """Looks for conflicts of one upload.

    Memory: one listing page, what is found of our own keys, and 1 MiB of each of 16 files.
    """

    def __init__(
        self,
        connection: S3Connection,
        retrier: Retrier,
        *,
        origin: Origin | None,
        must_know: bool,
        cancel: CancelToken,
        grace_seconds: float,
    ) -> None:
        """`origin` tells an earlier attempt of the same job apart.

        With `must_know` a bucket that does not let itself be listed must not be written to.
        """
        self._connection = connection
        self._retrier = retrier
        self._origin = origin
        self._must_know = must_know
        self._cancel = cancel
        self._grace_seconds = grace_seconds
        self._lock = threading.Lock()
        self.notices: list[str] = []
        """What could not be found out, one line a bucket."""

    def find(
        self, sizes: Mapping[StorageLocation, tuple[UploadItem, int]], healths: Mapping[str, BucketHealth]
    ) -> dict[StorageLocation, FoundConflict]:
        """Conflicts of items (with their sizes in bytes) by destination.

        A bucket that does not let itself be listed has no known conflicts, which is in `notices`; with `must_know`, and
        for any other error of a listing, the bucket is stopped in `healths`.
        """
        listed: dict[StorageLocation, Listed] = {}
        by_bucket: dict[str, dict[str, StorageLocation]] = {}
        for location in sizes:
            by_bucket.setdefault(location.bucket, {})[location.relative_path] = location
        for bucket, keys in sorted(by_bucket.items()):
            try:
                # Without credentials nothing can be written: no need to look around.
                call_abandonably(partial(self._connection.store, bucket), cancel=self._cancel)
                listed.update(self._list_ours(bucket, keys))
            except CancelledError:
                break
            except OutputsError as error:
                healths[bucket].stop(error)
        found: dict[StorageLocation, FoundConflict] = {}

        def job(location: StorageLocation) -> Callable[[], None]:
            def look() -> None:
                conflict = self._look(*sizes[location], listed[location])
                if conflict is not None:
                    with self._lock:
                        found[location] = conflict

            return look

        run_lanes(
            [lane([job(location) for location in listed], _LOOKS_AT_ONCE)],
            cancel=self._cancel,
            grace_seconds=self._grace_seconds,
        )
        with self._lock:
            return dict(found)

    def _list_ours(self, bucket: str, keys: Mapping[str, StorageLocation]) -> dict[StorageLocation, Listed]:
        ours: dict[StorageLocation, Listed] = {}
        for window in listing_windows(keys):
            last = window.last.encode()
            # The listing's own health: a listing that is refused is no reason to stop writing.
            listing = Listing(
                self._connection,
                self._retrier,
                BucketHealth(),
                cancel=self._cancel,
                bucket=bucket,
                folder=window.prefix,
                after=window.after,
            )
            try:
                for entry in listing:
                    if entry.key in keys:
                        ours[keys[entry.key]] = entry
                    if entry.key.encode() >= last:
                        break
            except NotPermittedError as error:
                if type(error) is not NotPermittedError:  # no credentials, wrong region: writing would fail as well
                    raise
                if self._must_know:
                    raise _cannot_look(bucket, error) from error
                _logger.info("bucket %s cannot be listed: %s", bucket, error.why)
                self.notices.append(f"conflicts are not known: bucket {bucket} cannot be listed with these credentials")
                return ours
        return ours

    def _look(self, item: UploadItem, size_bytes: int, entry: Listed) -> FoundConflict | None:
        try:
            local = self._digest(item) if entry.size_bytes == size_bytes else None
            if local is not None and local.etag == entry.etag:
                return None
            stored = (
                self._stored_facts(item.destination, entry) if local else self._stored_origin(item.destination, entry)
            )
        except (SkipFileError, NotFoundError, CancelledError):
            return None  # nothing to upload, or nothing in its way any more
        state = decide_state(size_bytes, local, stored, self._origin)
        return None if state == "same" else FoundConflict(item.destination, state, stored.origin)

    def _digest(self, item: UploadItem) -> LocalDigests | None:
        try:
            return digest_locally(item, self._cancel)
        except CancelledError:
            raise
        except OutputsError:
            return None  # the upload itself will meet it and say so

    def _stored_facts(self, location: StorageLocation, entry: Listed) -> StoredFacts:
        """What the object's HEAD says, or what the listing said where it may not be looked at."""
        bucket, key = location.bucket, location.relative_path
        return self._ask(lambda: head_facts(self._connection, bucket, key), entry)

    def _stored_origin(self, location: StorageLocation, entry: Listed) -> StoredFacts:
        """As `_stored_facts`, where the size alone tells that the bytes are others."""
        bucket, key = location.bucket, location.relative_path
        return self._ask(lambda: StoredFacts(entry.size_bytes, "", head_origin(self._connection, bucket, key)), entry)

    def _ask(self, request: Callable[[], StoredFacts], entry: Listed) -> StoredFacts:
        try:
            return self._retrier.call(request, BucketHealth())
        except (NotFoundError, CancelledError):
            raise
        except OutputsError as error:
            _logger.info("an object that is to be overwritten cannot be looked at: %s", error)
            return StoredFacts(entry.size_bytes, "", "")


def _cannot_look(bucket: str, error: NotPermittedError) -> NotPermittedError:
    return NotPermittedError(
        f"conflicts in bucket {bucket} cannot be looked for, so nothing is stored there",
        why=error.why,
        remedy=f"Let these credentials do s3:ListBucket in bucket {bucket}, or set on_conflict: overwrite.",
    )
