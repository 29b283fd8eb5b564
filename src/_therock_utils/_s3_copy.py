"""Copies objects inside S3: no byte passes through here. A copy counts when its size is the source's."""

from __future__ import annotations

import threading
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import CancelledError, IntegrityError, OutputsError
from _therock_utils._s3_calls import boto3_call, obstore_call
from _therock_utils._s3_plan import COPY_LIMIT_BYTES
from _therock_utils._s3_retry import BucketHealth
from _therock_utils._s3_workers import lane, run_lanes
from _therock_utils._transfer_types import FailedItem, StoredObject, UploadResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_s3.client import S3Client
    from mypy_boto3_s3.type_defs import CopySourceTypeDef
    from obstore.store import S3Store

    from _therock_utils._cancel import CancelToken
    from _therock_utils._s3_retry import Retrier
    from _therock_utils._s3_session import S3Connection
    from _therock_utils.storage_location import StorageLocation

CANCEL_GRACE_SECONDS: Final = 3.0


class Copies:
    """One call of `copy`."""

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
        self._healths: defaultdict[str, BucketHealth] = defaultdict(BucketHealth)
        self._outcomes: dict[StorageLocation, StoredObject | FailedItem] = {}

    def run(self, pairs: Sequence[tuple[StorageLocation, StorageLocation]]) -> UploadResult:
        """Copy each (source, destination)."""
        run_lanes(
            [lane([partial(self._keep, source, destination) for source, destination in pairs], self._concurrency)],
            cancel=self._cancel,
            grace_seconds=CANCEL_GRACE_SECONDS,
        )
        with self._lock:
            outcomes = dict(self._outcomes)
        cancelled = CancelledError(self._cancel.signal_number)
        for source, destination in pairs:
            if destination not in outcomes:
                outcomes[destination] = FailedItem(source.relative_path, destination, cancelled)
        ordered = [outcomes[at] for at in sorted(outcomes, key=lambda at: (at.bucket, at.relative_path.encode()))]
        return UploadResult(
            stored=tuple(outcome for outcome in ordered if isinstance(outcome, StoredObject)),
            failed=tuple(outcome for outcome in ordered if isinstance(outcome, FailedItem)),
        )

    def _keep(self, source: StorageLocation, destination: StorageLocation) -> None:
        outcome: StoredObject | FailedItem
        try:
            outcome = self._copy(source, destination)
        except OutputsError as error:
            outcome = FailedItem(source.relative_path, destination, error)
        with self._lock:
            self._outcomes[destination] = outcome

    def _copy(self, source: StorageLocation, destination: StorageLocation) -> StoredObject:
        with self._lock:
            health = self._healths[destination.bucket]
        size_bytes = self._retrier.call(partial(self._size_bytes, source), health)
        if self._dry_run:
            return StoredObject(destination, size_bytes, "", "", "dry-run")
        if source != destination:
            self._retrier.call(partial(self._request, source, destination, size_bytes), health)
        copied_bytes = self._retrier.call(partial(self._size_bytes, destination), health)
        if copied_bytes != size_bytes:
            raise IntegrityError(
                f"the copy {destination.s3_uri} is not what was copied",
                why=f"it has {copied_bytes} bytes, {source.s3_uri} has {size_bytes}",
                remedy="Something else may write one of the keys at the same time: copy it again.",
            )
        return StoredObject(destination, size_bytes, "", "", "size-only")

    def _request(self, source: StorageLocation, destination: StorageLocation, size_bytes: int) -> None:
        """One copy: by obstore inside a bucket, by boto3 between buckets and above 5 GiB (in parts)."""
        bucket, key = destination.bucket, destination.relative_path
        in_parts = size_bytes > COPY_LIMIT_BYTES
        if source.bucket == bucket and not in_parts:
            copy = partial(_obstore_copy, source=source.relative_path, key=key)
            obstore_call(self._connection, "copy", bucket, key, copy)
            return
        boto3_copy = partial(
            _boto3_copy, connection=self._connection, source=source, destination=destination, in_parts=in_parts
        )
        boto3_call(self._connection, "copy", bucket, key, boto3_copy)

    def _size_bytes(self, location: StorageLocation) -> int:
        import obstore

        def ask(store: S3Store) -> int:
            return obstore.head(store, location.relative_path)["size"]

        return obstore_call(self._connection, "look at", location.bucket, location.relative_path, ask)


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
