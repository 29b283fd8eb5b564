"""Streams a bucket's listing: obstore, or boto3 where a key in it is one that obstore refuses to parse."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from _therock_utils._errors import OutputsError
from _therock_utils._keys import key_fault, quote
from _therock_utils._s3_calls import boto3_call, obstore_call, reading
from _therock_utils._s3_workers import call_abandonably

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterator, Sequence

    from mypy_boto3_s3.client import S3Client
    from obstore.store import S3Store

    from _therock_utils._cancel import CancelToken
    from _therock_utils._s3_retry import BucketHealth, Retrier
    from _therock_utils._s3_session import S3Connection

_logger = logging.getLogger(__name__)
_PAGE_KEYS = 1000


@dataclass(frozen=True, slots=True)
class Listed:
    """One key of a listing."""

    key: str
    size_bytes: int
    etag: str
    modified: datetime.datetime


class Listing:
    """The keys below a folder, one page (1,000 keys, about 1 MB) in memory at a time.

    A page that fails is asked for again as the Retrier says, from the last key seen on.
    """

    def __init__(
        self,
        connection: S3Connection,
        retrier: Retrier,
        health: BucketHealth,
        *,
        cancel: CancelToken,
        bucket: str,
        folder: str,
        after: str = "",
    ) -> None:
        """`folder` without its slash, "" for the root; only keys behind `after` are listed."""
        self._connection = connection
        self._retrier = retrier
        self._health = health
        self._cancel = cancel
        self._bucket = bucket
        self._prefix = f"{folder}/" if folder else ""
        self._folder = folder
        self._after = after
        self._stream: Iterator[Sequence[Any]] | None = None
        self._by_boto3 = False

    def __iter__(self) -> Iterator[Listed]:
        """Every key in the order of the service.

        Raises an OutputsError where listing is refused or fails, and CancelledError also while a request hangs.
        """
        while True:
            page = call_abandonably(partial(self._retrier.call, self._next_page, self._health), cancel=self._cancel)
            for listed in page:
                fault = key_fault(listed.key)
                if fault:
                    _logger.warning(
                        "an object in bucket %s is left out, %s: %s", self._bucket, quote(listed.key), fault
                    )
                else:
                    yield listed
            if not page:
                return
            self._after = page[-1].key

    def _next_page(self) -> list[Listed]:
        if not self._by_boto3:
            try:
                return reading(self._connection, self._bucket, self._next_chunk)
            except _UnparsableKeyError:
                self._by_boto3 = True
            except OutputsError:
                self._stream = None
                raise
        return self._boto3_page()

    def _next_chunk(self, signed: bool) -> list[Listed]:  # noqa: FBT001 - the shape that `reading` calls
        import obstore
        from obstore.exceptions import InvalidPathError

        def ask(store: S3Store) -> list[Listed]:
            if self._stream is None:
                self._stream = iter(
                    obstore.list(store, self._folder or None, offset=self._after or None, chunk_size=_PAGE_KEYS)
                )
            try:
                chunk = next(self._stream, ())
            except InvalidPathError as error:
                raise _UnparsableKeyError from error
            return [
                Listed(entry["path"], entry["size"], (entry["e_tag"] or "").strip('"'), entry["last_modified"])
                for entry in chunk
            ]

        return obstore_call(self._connection, "list", self._bucket, self._folder, ask, signed=signed)

    def _boto3_page(self) -> list[Listed]:
        def ask(client: S3Client) -> list[Listed]:
            answer = client.list_objects_v2(
                Bucket=self._bucket, Prefix=self._prefix, StartAfter=self._after, MaxKeys=_PAGE_KEYS
            )
            return [
                Listed(entry["Key"], entry["Size"], entry["ETag"].strip('"'), entry["LastModified"])
                for entry in answer.get("Contents", [])
            ]

        return reading(
            self._connection,
            self._bucket,
            lambda signed: boto3_call(self._connection, "list", self._bucket, self._folder, ask, signed=signed),
        )


class _UnparsableKeyError(Exception):
    """A listing holds a key such as `a//b`."""
