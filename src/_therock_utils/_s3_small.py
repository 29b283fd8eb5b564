"""Reads small objects, and writes single ones under conditions that the service itself checks.

Amazon S3 User Guide, "Conditional requests": `If-None-Match: *` and `If-Match` decide between writers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from _therock_utils._backend_base import too_large
from _therock_utils._errors import (
    BucketNotFoundError,
    ConflictError,
    IntegrityError,
    NotFoundError,
    NotPermittedError,
    OutputsError,
    ServiceError,
)
from _therock_utils._s3_calls import obstore_call, reading
from _therock_utils._s3_look import ask_all, is_denial, refusal
from _therock_utils._s3_retry import BucketHealth
from _therock_utils._s3_workers import call_abandonably
from _therock_utils._transfer_types import SMALL_OBJECT_LIMIT_BYTES, StoredBytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obstore import UpdateVersion
    from obstore.store import S3Store

    from _therock_utils._cancel import CancelToken
    from _therock_utils._s3_retry import Retrier
    from _therock_utils._s3_session import S3Connection
    from _therock_utils.storage_location import StorageLocation


READS_AT_ONCE: Final = 64


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

    def replace(self, location: StorageLocation, data: bytes, content_type: str, *, etag: str) -> None:
        """Store `data` under the condition of `etag`. Raises as `StorageBackend.replace`."""
        call_abandonably(partial(self._replace, location, data, content_type, etag), cancel=self._cancel)

    def _replace(self, location: StorageLocation, data: bytes, content_type: str, etag: str) -> None:
        bucket, key = location.bucket, location.relative_path
        version: UpdateVersion = {"e_tag": etag}
        attempts = 0

        def put(store: S3Store) -> None:
            nonlocal attempts
            import obstore

            attempts += 1
            attributes = {"Content-Type": content_type}
            obstore.put(
                store, key, data, mode=version if etag else "create", use_multipart=False, attributes=attributes
            )

        try:
            self._retrier.call(lambda: obstore_call(self._connection, "store", bucket, key, put), BucketHealth())
        except BucketNotFoundError:
            raise
        except (ConflictError, NotFoundError) as error:  # 404: there is nothing that could match
            # An attempt whose answer got lost may be the one that wrote it.
            if (attempts > 1 or etag) and self._holds(location, data):
                return
            what = f"{location.s3_uri} is no longer what it was" if etag else f"there is already {location.s3_uri}"
            raise ConflictError(what, why=error.why) from error

    def _holds(self, location: StorageLocation, data: bytes) -> bool:
        """Whether the object has just these bytes."""
        try:
            return self._read(location, BucketHealth()).data == data
        except (NotFoundError, IntegrityError):
            return False
