"""Copies objects inside S3: no byte passes through here. A copy counts when its size is the source's."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import BucketNotFoundError, CancelledError, IntegrityError, NotFoundError, OutputsError
from _therock_utils._s3_calls import boto3_call, obstore_call
from _therock_utils._s3_plan import COPY_LIMIT_BYTES
from _therock_utils._s3_retry import BucketHealth
from _therock_utils._s3_sizes import Sizes
from _therock_utils._s3_workers import lane, run_lanes
from _therock_utils._transfer_types import FailedItem, StoredObject, UploadResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import CopySourceTypeDef
    from obstore.store import S3Store

    from _therock_utils._cancel import CancelToken
    from _therock_utils._s3_retry import Retrier
    from _therock_utils._s3_session import S3Connection
    from _therock_utils.storage_location import StorageLocation

CANCEL_GRACE_SECONDS: Final = 3.0
LARGE_AT_ONCE: Final = 4  # each copies ten parts at once


class Copies:
    """One call of `copy`: sizes of the sources, a request a copy, sizes of the copies."""

    def __init__(
        self, connection: S3Connection, retrier: Retrier, *, cancel: CancelToken, concurrency: int, dry_run: bool
    ) -> None:
        """Nothing is copied yet. With `dry_run` only the sources are looked at."""
        self._connection = connection
        self._retrier = retrier
        self._cancel = cancel
        self._concurrency = concurrency
        self._dry_run = dry_run
        self._lock = threading.Lock()
        self._healths: dict[str, BucketHealth] = {}
        self._outcomes: dict[StorageLocation, StoredObject | OutputsError] = {}

    def run(
        self, pairs: Sequence[tuple[StorageLocation, StorageLocation]], known_sizes: Mapping[StorageLocation, int]
    ) -> UploadResult:
        """Copy each (source, destination)."""
        self._healths = {at.bucket: BucketHealth() for pair in pairs for at in pair}
        sizes = self._source_sizes([source for source, _ in pairs], known_sizes)
        self._copy_all([(source, to, sizes[source]) for source, to in pairs if source in sizes])
        return self._result(pairs)

    def _source_sizes(
        self, sources: Sequence[StorageLocation], known_sizes: Mapping[StorageLocation, int]
    ) -> dict[StorageLocation, int | OutputsError]:
        known = {source: known_sizes[source] for source in sources if source in known_sizes}
        return {**known, **self._sizes().find(source for source in sources if source not in known)}

    def _copy_all(self, wanted: Sequence[tuple[StorageLocation, StorageLocation, int | OutputsError]]) -> None:
        at_once: list[Callable[[], None]] = []
        in_parts: list[Callable[[], None]] = []
        for source, destination, size_bytes in wanted:
            if isinstance(size_bytes, OutputsError):
                self._outcomes[destination] = size_bytes
            elif self._dry_run:
                self._outcomes[destination] = StoredObject(destination, size_bytes, "", "", "dry-run")
            elif source != destination:
                is_large = size_bytes > COPY_LIMIT_BYTES
                (in_parts if is_large else at_once).append(partial(self._copy, source, destination, in_parts=is_large))
        run_lanes(
            [lane(in_parts, min(LARGE_AT_ONCE, self._concurrency)), lane(at_once, self._concurrency)],
            cancel=self._cancel,
            grace_seconds=CANCEL_GRACE_SECONDS,
        )
        with self._lock:
            copied = {to: (source, size) for source, to, size in wanted if to not in self._outcomes}
        for destination, found_bytes in self._sizes().find(copied).items():
            source, size_bytes = copied[destination]
            self._outcomes[destination] = (
                found_bytes
                if isinstance(found_bytes, OutputsError)
                else _verified(source, destination, size_bytes, found_bytes)
            )

    def _sizes(self) -> Sizes:
        return Sizes(
            self._connection,
            self._retrier,
            self._healths,
            cancel=self._cancel,
            concurrency=self._concurrency,
            grace_seconds=CANCEL_GRACE_SECONDS,
        )

    def _copy(self, source: StorageLocation, destination: StorageLocation, *, in_parts: bool) -> None:
        """Copy one object, and keep the error where that fails."""
        request = partial(self._request, source, destination, in_parts=in_parts)
        try:
            self._retrier.call(request, self._healths[destination.bucket])
        except OutputsError as error:
            with self._lock:
                self._outcomes[destination] = error

    def _request(self, source: StorageLocation, destination: StorageLocation, *, in_parts: bool) -> None:
        """One copy: by obstore inside a bucket, by boto3 between buckets and above 5 GiB (in parts)."""
        bucket, key = destination.bucket, destination.relative_path
        try:
            if source.bucket == bucket and not in_parts:
                copy = partial(_obstore_copy, source=source.relative_path, key=key)
                obstore_call(self._connection, "copy", bucket, key, copy)
            else:
                boto3_copy = partial(
                    _boto3_copy, connection=self._connection, source=source, destination=destination, in_parts=in_parts
                )
                boto3_call(self._connection, "copy", bucket, key, boto3_copy)
        except BucketNotFoundError:
            raise
        except NotFoundError as error:
            raise NotFoundError(f"could not copy {source.s3_uri}: it is not there", why=error.why) from error

    def _result(self, pairs: Sequence[tuple[StorageLocation, StorageLocation]]) -> UploadResult:
        with self._lock:
            outcomes = dict(self._outcomes)
        cancelled = CancelledError(self._cancel.signal_number)
        stored, failed = [], []
        for source, destination in sorted(pairs, key=lambda pair: (pair[1].bucket, pair[1].relative_path.encode())):
            outcome = outcomes.get(destination, cancelled)
            if isinstance(outcome, StoredObject):
                stored.append(outcome)
            else:
                failed.append(FailedItem(source.relative_path, destination, outcome))
        return UploadResult(stored=tuple(stored), failed=tuple(failed))


def _verified(
    source: StorageLocation, destination: StorageLocation, size_bytes: int | OutputsError, copied_bytes: int
) -> StoredObject | OutputsError:
    if copied_bytes == size_bytes:
        return StoredObject(destination, copied_bytes, "", "", "size-only")
    return IntegrityError(
        f"the copy {destination.s3_uri} is not what was copied",
        why=f"it has {copied_bytes} bytes, {source.s3_uri} has {size_bytes}",
        remedy="Something else may write one of the keys at the same time: copy it again.",
    )


def _obstore_copy(store: S3Store, *, source: str, key: str) -> None:
    import obstore

    obstore.copy(store, source, key)


def _boto3_copy(
    client: S3Client, *, connection: S3Connection, source: StorageLocation, destination: StorageLocation, in_parts: bool
) -> None:
    there: CopySourceTypeDef = {"Bucket": source.bucket, "Key": source.relative_path}
    if not in_parts:
        client.copy_object(Bucket=destination.bucket, Key=destination.relative_path, CopySource=there)
        return
    source_client = connection.client(source.bucket)
    # A copy in parts is a new object: it would have neither content type nor metadata.
    facts = source_client.head_object(Bucket=source.bucket, Key=source.relative_path)
    described = {"ContentType": facts["ContentType"], "Metadata": facts["Metadata"], "MetadataDirective": "REPLACE"}
    client.copy(there, destination.bucket, destination.relative_path, described, SourceClient=source_client)
