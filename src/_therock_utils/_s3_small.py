"""Reads small objects, and writes and deletes them under conditions that the service itself checks.

Amazon S3 User Guide, "Conditional requests": `If-None-Match: *` and `If-Match` decide between writers.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from _therock_utils._backend_base import too_large
from _therock_utils._errors import (
    BucketNotFoundError,
    CancelledError,
    ConflictError,
    IntegrityError,
    NotFoundError,
    NotPermittedError,
    OutputsError,
    ServiceError,
)
from _therock_utils._s3_calls import boto3_call, obstore_call, reading
from _therock_utils._s3_look import Looker, ask_all, is_denial, refusal, tolerant_health
from _therock_utils._s3_retry import BucketHealth
from _therock_utils._s3_workers import affordable_concurrency, call_abandonably, lane, run_lanes
from _therock_utils._transfer_types import SMALL_OBJECT_LIMIT_BYTES, StoredBytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_s3.client import S3Client
    from obstore import UpdateVersion
    from obstore.store import S3Store

    from _therock_utils._cancel import CancelToken
    from _therock_utils._s3_retry import Retrier
    from _therock_utils._s3_session import S3Connection
    from _therock_utils._transfer_types import Replacement
    from _therock_utils.storage_location import StorageLocation


READS_AT_ONCE: Final = 64
WRITES_AT_ONCE: Final = 64
WRITE_GRACE_SECONDS: Final = 3.0


class SmallObjects:
    """Objects of one storage, SMALL_OBJECT_LIMIT_BYTES each at most. Memory: those that were asked for."""

    def __init__(self, connection: S3Connection, retrier: Retrier, *, cancel: CancelToken) -> None:
        """Nothing is asked yet."""
        self._connection = connection
        self._retrier = retrier
        self._cancel = cancel

    def read(self, location: StorageLocation) -> StoredBytes | None:
        """An object's bytes and etag; None where there is none. Raises as `StorageBackend.read_small`."""
        return call_abandonably(partial(self._read_or_none, location, BucketHealth()), cancel=self._cancel)

    def read_all(self, locations: Sequence[StorageLocation]) -> tuple[StoredBytes | OutputsError | None, ...]:
        """As `StorageBackend.read_all_small`."""
        return ask_all(self._read_or_none, locations, at_once=READS_AT_ONCE, cancel=self._cancel)

    def _read_or_none(self, location: StorageLocation, health: BucketHealth) -> StoredBytes | None:
        try:
            return self._read(location, health)
        except BucketNotFoundError:
            raise
        except NotFoundError:
            return None
        except NotPermittedError as error:
            if is_denial(error):
                raise refusal(location, error) from error
            raise

    def _read(self, location: StorageLocation, health: BucketHealth) -> StoredBytes:
        bucket, key = location.bucket, location.relative_path

        def ask(store: S3Store) -> StoredBytes:
            import obstore

            answer = obstore.get(store, key)
            size_bytes, etag = answer.meta["size"], answer.meta["e_tag"]
            if size_bytes > SMALL_OBJECT_LIMIT_BYTES:
                raise too_large(location.s3_uri, size_bytes)
            if not etag:
                raise ServiceError(f"could not read {location.s3_uri}", why="the service gives no ETag of it")
            data = answer.bytes().to_bytes()
            if len(data) != size_bytes:
                why = f"{len(data)} of {size_bytes} bytes arrived"
                raise IntegrityError(f"{location.s3_uri} came incomplete", why=why)
            return StoredBytes(data, etag)

        def request(signed: bool) -> StoredBytes:  # noqa: FBT001 - the shape that `reading` calls
            return obstore_call(self._connection, "read", bucket, key, ask, signed=signed)

        return self._retrier.call(lambda: reading(self._connection, bucket, request), health)

    def replace(self, item: Replacement) -> None:
        """Store the bytes under the condition of the etag. Raises as `StorageBackend.replace`."""
        call_abandonably(partial(self._replace, item, BucketHealth()), cancel=self._cancel)

    def replace_all(self, items: Sequence[Replacement]) -> tuple[OutputsError | None, ...]:
        """What `replace` raises for each, in order; None where it is stored.

        What a bucket answers to all alike ends it for that bucket. After a cancel, requests that are under way have
        WRITE_GRACE_SECONDS to end; CancelledError for the others.
        """
        healths = {item.location.bucket: tolerant_health() for item in items}
        outcomes: dict[int, OutputsError | None] = {}
        lock = threading.Lock()

        def job(number: int, item: Replacement) -> None:
            error: OutputsError | None = None
            try:
                self._replace(item, healths[item.location.bucket])
            except OutputsError as failure:
                error = failure
            with lock:
                outcomes[number] = error

        jobs = [partial(job, number, item) for number, item in enumerate(items)]
        run_lanes(
            [lane(jobs, affordable_concurrency(WRITES_AT_ONCE))], cancel=self._cancel, grace_seconds=WRITE_GRACE_SECONDS
        )
        cancelled = CancelledError(self._cancel.signal_number)
        with lock:  # threads that were left behind may still write
            return tuple(outcomes.get(number, cancelled) for number in range(len(items)))

    def _replace(self, item: Replacement, health: BucketHealth) -> None:
        location, etag = item.location, item.etag
        bucket, key = location.bucket, location.relative_path
        version: UpdateVersion = {"e_tag": etag}
        attempts = 0

        def put(store: S3Store) -> None:
            nonlocal attempts
            import obstore

            attempts += 1
            attributes = {"Content-Type": item.content_type}
            obstore.put(
                store, key, item.data, mode=version if etag else "create", use_multipart=False, attributes=attributes
            )

        try:
            self._retrier.call(lambda: obstore_call(self._connection, "store", bucket, key, put), health)
        except BucketNotFoundError:
            raise
        except (ConflictError, NotFoundError) as error:  # 404: there is nothing that could match
            # An attempt whose answer got lost may be the one that wrote it.
            if (attempts > 1 or etag) and self._holds(location, item.data):
                return
            if etag:
                raise _changed(location, why=error.why) from error
            raise ConflictError(f"there is already {location.s3_uri}", why=error.why) from error

    def _holds(self, location: StorageLocation, data: bytes) -> bool:
        """Whether the object has just these bytes."""
        try:
            return self._read(location, BucketHealth()).data == data
        except (NotFoundError, IntegrityError):
            return False

    def remove(self, location: StorageLocation, *, etag: str) -> None:
        """Delete the object that has `etag`. Raises as `StorageBackend.remove`.

        It is looked at first: not every service heeds If-Match in a DELETE (Amazon S3 User Guide, "Conditional
        deletes").
        """
        there = Looker(self._connection, self._retrier).find(location, cancel=self._cancel)
        if there is None:
            return
        if there.etag != etag.strip('"'):
            raise _changed(location, why="another wrote it meanwhile")
        call_abandonably(partial(self._delete, location, etag), cancel=self._cancel)

    def _delete(self, location: StorageLocation, etag: str) -> None:
        bucket, key = location.bucket, location.relative_path

        def ask(client: S3Client) -> None:
            client.delete_object(Bucket=bucket, Key=key, IfMatch=etag)

        try:
            self._retrier.call(lambda: boto3_call(self._connection, "remove", bucket, key, ask), BucketHealth())
        except BucketNotFoundError:
            raise
        except NotFoundError:  # an attempt whose answer got lost deleted it, or somebody else did
            return
        except ConflictError as error:
            raise _changed(location, why=error.why) from error

    def put_folder_document(self, folder: StorageLocation, data: bytes, content_type: str) -> None:
        """Store `data` as `{folder}/`, by boto3: obstore takes the slash away. Raises as the backend's."""
        key = f"{folder.relative_path}/"
        checksum = base64.b64encode(hashlib.sha256(data).digest()).decode()

        def ask(client: S3Client) -> None:
            client.put_object(
                Bucket=folder.bucket, Key=key, Body=data, ContentType=content_type, ChecksumSHA256=checksum
            )

        def put() -> None:
            boto3_call(self._connection, "store", folder.bucket, key, ask)

        call_abandonably(partial(self._retrier.call, put, BucketHealth()), cancel=self._cancel)


def _changed(location: StorageLocation, *, why: str) -> ConflictError:
    return ConflictError(f"{location.s3_uri} is no longer what it was", why=why)
