"""Where outputs are stored: S3, or a local staging directory (specification, "StorageBackend")."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from _therock_utils._backend_base import StorageBackend, check_destinations, check_keys
from _therock_utils._cancel import CancelToken
from _therock_utils._errors import IllegalLocationError, InputError
from _therock_utils._local_backend import LocalStorageBackend
from _therock_utils._s3_copy import Copies
from _therock_utils._s3_describe import Reading, describe_by_head
from _therock_utils._s3_download import Download
from _therock_utils._s3_listing import Listing
from _therock_utils._s3_look import Looker
from _therock_utils._s3_retry import BucketHealth, Retrier
from _therock_utils._s3_session import S3Connection
from _therock_utils._s3_small import SmallObjects
from _therock_utils._s3_transfer import SMALL_AT_ONCE, Upload, UploadOptions
from _therock_utils._s3_workers import affordable_concurrency
from _therock_utils._transfer_types import ListedObject, Replacement, StoredObject
from _therock_utils.content_types import infer_content_type
from _therock_utils.storage_location import StorageLocation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from botocore.credentials import Credentials
    from botocore.session import Session

    from _therock_utils._errors import OutputsError
    from _therock_utils._transfer_types import (
        DownloadedFile,
        DownloadItem,
        DownloadResult,
        ObjectFacts,
        OnConflict,
        Origin,
        StoredBytes,
        UploadItem,
        UploadResult,
        Verified,
    )

__all__ = [
    "LocalStorageBackend",
    "S3StorageBackend",
    "StorageBackend",
    "create_storage_backend",
    "infer_content_type",
]

_logger = logging.getLogger(__name__)
RETRY_SECONDS = 120.0
REQUEST_TIMEOUT_SECONDS = 120.0


class S3StorageBackend(StorageBackend):
    """S3, or a service that speaks its protocol.

    Credentials, region, endpoint, profile and certificates are those that boto3 would use, but for the buckets of the
    inventory, whose region is known. Nothing is imported or asked before the first call. Safe to share between threads.
    Memory: about 210 MB of data in flight at most, in uploads and downloads of any size.
    """

    def __init__(
        self,
        *,
        dry_run: bool = False,
        upload_concurrency: int | None = None,
        session: Session | None = None,
        credentials_for: Callable[[str], Credentials | None] | None = None,
        endpoint_url: str = "",
        region: str = "",
        retry_seconds: float = RETRY_SECONDS,
        request_timeout_seconds: float = REQUEST_TIMEOUT_SECONDS,
    ) -> None:
        """With `dry_run` nothing is written; `upload_concurrency` is the number of small objects in flight (64).

        `session` replaces botocore's default session; `credentials_for(bucket)` may give credentials for one bucket, or
        None to let the session's chain decide; `endpoint_url` and `region` win over the session's. An object that fails
        for a passing reason is tried again for `retry_seconds` after its first failure; one request (up to 16 MiB of
        body) may take `request_timeout_seconds`. Raises InputError for a concurrency below 1.
        """
        if upload_concurrency is not None and upload_concurrency < 1:
            raise InputError(f"upload_concurrency must be at least 1, not {upload_concurrency}")
        self._dry_run = dry_run
        self._concurrency = affordable_concurrency(upload_concurrency or SMALL_AT_ONCE)
        self._retry_seconds = retry_seconds
        self._left_out: set[tuple[str, str]] = set()
        self._connection = S3Connection(
            session=session,
            credentials_for=credentials_for,
            endpoint_url=endpoint_url,
            region=region,
            request_timeout_seconds=request_timeout_seconds,
            retry_seconds=retry_seconds,
        )

    def upload(
        self,
        items: Sequence[UploadItem],
        *,
        on_conflict: OnConflict = "overwrite",
        origin: Origin | None = None,
        cancel: CancelToken | None = None,
    ) -> UploadResult:
        """See StorageBackend. After a cancel it returns within 4 seconds; open multipart uploads are aborted."""
        cancel = cancel or CancelToken()
        options = UploadOptions(on_conflict, origin, cancel, self._dry_run, self._concurrency)
        return Upload(self._connection, self._retrier(cancel), options).run(items)

    def list_objects(self, location: StorageLocation, *, cancel: CancelToken | None = None) -> Iterator[ListedObject]:
        """See StorageBackend. Objects whose keys no location can have are left out, with one warning in the log."""
        return self._list(location, cancel, direct=False)

    def list_folder(self, location: StorageLocation, *, cancel: CancelToken | None = None) -> Iterator[ListedObject]:
        """See StorageBackend. Memory: one page; a request for 1,000 keys, and one a larger sub-folder. As above."""
        return self._list(location, cancel, direct=True)

    def _list(self, location: StorageLocation, cancel: CancelToken | None, *, direct: bool) -> Iterator[ListedObject]:
        cancel = cancel or CancelToken()
        listing = Listing(
            self._connection,
            self._retrier(cancel),
            BucketHealth(),
            cancel=cancel,
            bucket=location.bucket,
            folder=location.relative_path,
            direct=direct,
        )
        for key, size_bytes, etag, modified in listing:
            try:
                at = StorageLocation(location.bucket, key)
            except IllegalLocationError as error:
                if (location.bucket, key) not in self._left_out:
                    self._left_out.add((location.bucket, key))
                    _logger.warning("an object in bucket %s is left out: %s", location.bucket, error)
            else:
                yield ListedObject(at, size_bytes, etag, modified)

    def find(self, location: StorageLocation, *, cancel: CancelToken | None = None) -> ListedObject | None:
        """See StorageBackend."""
        check_keys([location])
        cancel = cancel or CancelToken()
        return Looker(self._connection, self._retrier(cancel)).find(location, cancel=cancel)

    def copy(
        self,
        pairs: Sequence[tuple[StorageLocation, StorageLocation]],
        *,
        cancel: CancelToken | None = None,
        known_sizes: Mapping[StorageLocation, int] | None = None,
    ) -> UploadResult:
        """See StorageBackend. Sizes of many objects of one folder are taken from a listing of it."""
        check_destinations([destination for _, destination in pairs])
        cancel = cancel or CancelToken()
        copies = Copies(
            self._connection,
            self._retrier(cancel),
            cancel=cancel,
            concurrency=self._concurrency,
            dry_run=self._dry_run,
        )
        return copies.run(pairs, known_sizes or {})

    def read_small(self, location: StorageLocation, *, cancel: CancelToken | None = None) -> StoredBytes | None:
        """See StorageBackend."""
        check_destinations([location])
        return self._small(cancel).read(location)

    def read_all_small(
        self, locations: Sequence[StorageLocation], *, cancel: CancelToken | None = None
    ) -> tuple[StoredBytes | OutputsError | None, ...]:
        """See StorageBackend. 64 requests in flight."""
        check_keys(locations)
        return self._small(cancel).read_all(locations)

    def describe(
        self, locations: Sequence[StorageLocation], *, reads: bool = False, cancel: CancelToken | None = None
    ) -> tuple[ObjectFacts | OutputsError | None, ...]:
        """See StorageBackend. S3 keeps the SHA-256 of an object that was stored in one request, not of one in parts."""
        check_keys(locations)
        cancel = cancel or CancelToken()
        retrier = self._retrier(cancel)
        if not reads:
            return describe_by_head(self._connection, retrier, locations, cancel=cancel)
        concurrency = affordable_concurrency(SMALL_AT_ONCE)
        return Reading(self._connection, retrier, cancel=cancel, concurrency=concurrency).run(locations)

    def replace(
        self,
        location: StorageLocation,
        data: bytes,
        content_type: str,
        *,
        etag: str,
        cancel: CancelToken | None = None,
    ) -> StoredObject:
        """See StorageBackend. The service itself decides (If-Match), so of two writers one loses and knows.

        An object that has exactly `data` by then is no conflict, unless `etag` is "". A dry run asks nothing.
        """
        check_keys([location])
        item = _with_content_type(Replacement(location, data, content_type, etag))
        if not self._dry_run:
            self._small(cancel).replace(item)
        return self._stored(item)

    def replace_all(
        self, items: Sequence[Replacement], *, cancel: CancelToken | None = None
    ) -> tuple[StoredObject | OutputsError, ...]:
        """See StorageBackend. 64 requests in flight, each as `replace` makes it; after a cancel within 4 seconds."""
        check_destinations([item.location for item in items])
        items = [_with_content_type(item) for item in items]
        if self._dry_run:
            return tuple(map(self._stored, items))
        outcomes = self._small(cancel).replace_all(items)
        return tuple(error or self._stored(item) for item, error in zip(items, outcomes, strict=True))

    def remove(self, location: StorageLocation, *, etag: str, cancel: CancelToken | None = None) -> None:
        """See StorageBackend. The service decides (If-Match) where it can; a dry run asks nothing."""
        check_keys([location])
        if not self._dry_run:
            self._small(cancel).remove(location, etag=etag)

    def put_folder_document(
        self, folder: StorageLocation, data: bytes, content_type: str, *, cancel: CancelToken | None = None
    ) -> bool:
        """See StorageBackend. One request, by boto3, with the SHA-256 of `data`."""
        check_keys([folder])
        if not self._dry_run:
            self._small(cancel).put_folder_document(folder, data, content_type)
        return True

    def _stored(self, item: Replacement) -> StoredObject:
        verified: Verified = "dry-run" if self._dry_run else "sha256-single"
        digest = hashlib.sha256(item.data).hexdigest()
        return StoredObject(item.location, len(item.data), digest, item.content_type, verified)

    def _small(self, cancel: CancelToken | None) -> SmallObjects:
        cancel = cancel or CancelToken()
        return SmallObjects(self._connection, self._retrier(cancel), cancel=cancel)

    def download(
        self,
        items: Sequence[DownloadItem],
        *,
        cancel: CancelToken | None = None,
        on_downloaded: Callable[[DownloadedFile], None] | None = None,
    ) -> DownloadResult:
        """See StorageBackend. After a cancel it returns within 4 seconds. `dry_run` plays no part here."""
        cancel = cancel or CancelToken()
        download = Download(
            self._connection,
            self._retrier(cancel),
            cancel=cancel,
            concurrency=affordable_concurrency(SMALL_AT_ONCE),
            on_downloaded=on_downloaded,
        )
        return download.run(items)

    def _retrier(self, cancel: CancelToken) -> Retrier:
        return Retrier(retry_seconds=self._retry_seconds, cancel=cancel)


def _with_content_type(item: Replacement) -> Replacement:
    """`item` with the content type of its name where it has none of its own."""
    if item.content_type:
        return item
    return replace(item, content_type=infer_content_type(item.location.relative_path))


def create_storage_backend(
    *, staging_dir: Path | None = None, dry_run: bool = False, upload_concurrency: int | None = None
) -> StorageBackend:
    """The local backend where `staging_dir` is given, else S3. Raises InputError for a concurrency below 1."""
    if staging_dir is not None:
        return LocalStorageBackend(Path(staging_dir), dry_run=dry_run)
    return S3StorageBackend(dry_run=dry_run, upload_concurrency=upload_concurrency)
