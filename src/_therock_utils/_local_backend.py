"""A storage backend that lays objects out below a local staging directory, as the bucket would hold them."""

from __future__ import annotations

import hashlib
import stat
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from _therock_utils._backend_base import StorageBackend, check_destinations, check_keys, too_large
from _therock_utils._cancel import CancelToken
from _therock_utils._errors import (
    CancelledError,
    ConflictError,
    IntegrityError,
    NotFoundError,
    OutputsError,
)
from _therock_utils._folder import (
    BlockedPathError,
    Folder,
    NewFile,
    local_file_error,
)
from _therock_utils._keys import quote
from _therock_utils._local_batch import Batch
from _therock_utils._local_files import StagingFiles, check_is_file, digest, split_key
from _therock_utils._local_listing import list_below, list_directly_in, listed_object
from _therock_utils._source_file import BytesSource, SourceFile
from _therock_utils._transfer_types import (
    SMALL_OBJECT_LIMIT_BYTES,
    Conflict,
    DownloadedFile,
    DownloadResult,
    FailedItem,
    ObjectFacts,
    StoredBytes,
    StoredObject,
    UploadResult,
)
from _therock_utils.content_types import infer_content_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from _therock_utils._transfer_types import DownloadItem, ListedObject, OnConflict, Origin, Replacement, UploadItem
    from _therock_utils.storage_location import StorageLocation

_T = TypeVar("_T")


class LocalStorageBackend(StorageBackend):
    """Objects as files `staging_dir/{key}`; the bucket's name plays no part, and files carry no metadata.

    Files appear whole or not at all, with the mode that the umask gives. Symbolic links below `staging_dir` are neither
    followed nor listed. One file at a time, at most 1 MB of it in memory; a listing holds one folder's entries a level.
    With `dry_run` nothing is written below `staging_dir`; what would be stored is looked at and reported.
    """

    def __init__(self, staging_dir: Path, *, dry_run: bool = False) -> None:
        self._staging_dir = Path(staging_dir)
        self._files = StagingFiles(self._staging_dir)
        self._dry_run = dry_run

    def upload(
        self,
        items: Sequence[UploadItem],
        *,
        on_conflict: OnConflict = "overwrite",
        origin: Origin | None = None,  # noqa: ARG002 - files keep no metadata
        cancel: CancelToken | None = None,
    ) -> UploadResult:
        """See StorageBackend. A full disk or a folder that denies writing ends it: the rest fails with the same error.

        A file that is there with the same bytes is left as it is.
        """
        check_destinations([item.destination for item in items], across_buckets=True)
        if on_conflict == "error":
            refused = self._refusal(items, cancel)
            if refused is not None:
                return refused
        batch = Batch(cancel)
        for item in items:
            step = partial(self._upload_one, item, on_conflict, batch.conflicts, cancel)
            batch.store(item.label, item.destination, self._files.path(item.destination), step)
        return batch.result()

    def list_objects(self, location: StorageLocation, *, cancel: CancelToken | None = None) -> Iterator[ListedObject]:
        """See StorageBackend; in S3's order, which is that of the keys' UTF-8 bytes."""
        return self._list(list_below, location, cancel)

    def list_folder(self, location: StorageLocation, *, cancel: CancelToken | None = None) -> Iterator[ListedObject]:
        """See StorageBackend; in the order of `list_objects`."""
        return self._list(list_directly_in, location, cancel)

    def _list(
        self,
        walk: Callable[[Path, StorageLocation], Iterator[ListedObject]],
        location: StorageLocation,
        cancel: CancelToken | None,
    ) -> Iterator[ListedObject]:
        path = self._files.path(location)
        try:
            with self._files.folder(location.relative_path):
                pass  # no symbolic link is on the way
            for listed in walk(self._staging_dir, location):
                if cancel is not None:
                    cancel.check()
                yield listed
        except FileNotFoundError:
            return
        except BlockedPathError as error:
            if error.is_link:
                raise
        except OSError as error:
            raise local_file_error(path, "listed", error) from error

    def find(self, location: StorageLocation, *, cancel: CancelToken | None = None) -> ListedObject | None:
        """See StorageBackend. Raises BlockedPathError where a link or something special lies there or on the way."""
        if cancel is not None:
            cancel.check()
        folder_path, name = split_key(location)
        path = self._files.path(location)
        try:
            with self._files.folder(folder_path) as folder:
                status = folder.lookup(name)
        except FileNotFoundError:
            return None
        except BlockedPathError as error:
            if error.is_link:
                raise
            return None
        except OSError as error:
            raise local_file_error(path, "looked at", error) from error
        if status is None or stat.S_ISDIR(status.st_mode):
            return None
        check_is_file(path, status)
        return listed_object(location, status)

    def copy(
        self,
        pairs: Sequence[tuple[StorageLocation, StorageLocation]],
        *,
        cancel: CancelToken | None = None,
        known_sizes: Mapping[StorageLocation, int] | None = None,  # noqa: ARG002 - looking at a file costs nothing
    ) -> UploadResult:
        """See StorageBackend. NotFoundError is the error of a source that is not there."""
        check_destinations([destination for _, destination in pairs], across_buckets=True)
        batch = Batch(cancel)
        for source, destination in pairs:
            step = partial(self._copy_one, source, destination, cancel)
            batch.store(source.relative_path, destination, self._files.path(destination), step)
        return batch.result()

    def read_small(self, location: StorageLocation, *, cancel: CancelToken | None = None) -> StoredBytes | None:
        """See StorageBackend. The etag is the SHA-256 of the bytes."""
        try:
            with self._files.open(location) as file:
                if file.size_bytes > SMALL_OBJECT_LIMIT_BYTES:
                    raise too_large(str(self._files.path(location)), file.size_bytes)
                data = b"".join(file.chunks(cancel))
        except NotFoundError:
            return None
        return StoredBytes(data, hashlib.sha256(data).hexdigest())

    def read_all_small(
        self, locations: Sequence[StorageLocation], *, cancel: CancelToken | None = None
    ) -> tuple[StoredBytes | OutputsError | None, ...]:
        """See StorageBackend."""
        check_keys(locations)
        return tuple(_outcome(partial(self.read_small, location, cancel=cancel)) for location in locations)

    def describe(
        self,
        locations: Sequence[StorageLocation],
        *,
        reads: bool = False,  # noqa: ARG002 - only the bytes can tell
        cancel: CancelToken | None = None,
    ) -> tuple[ObjectFacts | OutputsError | None, ...]:
        """See StorageBackend. Every file is read, whether `reads` or not; the content type is that of its name."""
        check_keys(locations)
        return tuple(_outcome(partial(self._describe, location, cancel)) for location in locations)

    def _describe(self, location: StorageLocation, cancel: CancelToken | None) -> ObjectFacts | None:
        try:
            with self._files.open(location) as file:
                sha256 = digest(file.chunks(cancel))
                return ObjectFacts(location, file.size_bytes, sha256, infer_content_type(location.relative_path))
        except NotFoundError:
            return None

    def replace(
        self,
        location: StorageLocation,
        data: bytes,
        content_type: str,
        *,
        etag: str,
        cancel: CancelToken | None = None,
    ) -> StoredObject:
        """See StorageBackend. Exclusive among processes that share the staging directory and use this call."""
        cancel = cancel or CancelToken()
        cancel.check()
        check_keys([location])
        if self._dry_run:
            self._files.check_name(location)
            self._files.check_version(location, etag, cancel)
        else:
            self._files.replace(location, data, etag, cancel)
        content_type = content_type or infer_content_type(location.relative_path)
        return self._stored(location, len(data), hashlib.sha256(data).hexdigest(), content_type)

    def replace_all(
        self, items: Sequence[Replacement], *, cancel: CancelToken | None = None
    ) -> tuple[StoredObject | OutputsError, ...]:
        """See StorageBackend; one after another, each as `replace` stores it."""
        check_destinations([item.location for item in items], across_buckets=True)
        outcomes: list[StoredObject | OutputsError] = []
        for item in items:
            try:
                stored = self.replace(item.location, item.data, item.content_type, etag=item.etag, cancel=cancel)
            except OutputsError as error:
                outcomes.append(error)
            else:
                outcomes.append(stored)
        return tuple(outcomes)

    def remove(self, location: StorageLocation, *, etag: str, cancel: CancelToken | None = None) -> None:
        """See StorageBackend. Exclusive as `replace` is. Folders that are empty then are removed as well."""
        cancel = cancel or CancelToken()
        cancel.check()
        check_keys([location])
        if self._dry_run:
            self._files.check_version(location, etag, cancel, may_be_gone=True)
        else:
            self._files.remove(location, etag, cancel)

    def put_folder_document(
        self,
        folder: StorageLocation,
        data: bytes,  # noqa: ARG002 - a file system has no place for it
        content_type: str,  # noqa: ARG002 - as above
        *,
        cancel: CancelToken | None = None,
    ) -> bool:
        """See StorageBackend: nothing is done."""
        check_keys([folder])
        if cancel is not None:
            cancel.check()
        return False

    def download(
        self,
        items: Sequence[DownloadItem],
        *,
        cancel: CancelToken | None = None,
        on_downloaded: Callable[[DownloadedFile], None] | None = None,
    ) -> DownloadResult:
        """See StorageBackend. `dry_run` plays no part: it is about what is stored."""
        batch = Batch(cancel)
        arrived = []
        for item in items:
            step = partial(self._download_one, item, cancel)
            file = batch.attempt(str(item.target), item.location, item.target, step)
            if file is not None:
                arrived.append(file)
                if on_downloaded is not None:
                    on_downloaded(file)
        return DownloadResult(tuple(arrived), tuple(batch.failed))

    def _refusal(self, items: Sequence[UploadItem], cancel: CancelToken | None) -> UploadResult | None:
        """The result of an upload that must not begin, because other bytes lie under one of its keys; else None."""
        batch = Batch(cancel)
        looked_at = []
        for item in items:
            step = partial(self._compare, item, cancel)
            found = batch.attempt(item.label, item.destination, self._files.path(item.destination), step)
            if found is not None:
                looked_at.append(item)
                if found.state == "different":
                    batch.conflicts.append(Conflict(item.destination, "different", "", "refused"))
        if not batch.conflicts:
            return None  # whatever else went wrong shows again, and is reported, when it is stored
        error = ConflictError(
            f"nothing was stored, because other bytes lie under {len(batch.conflicts)} of {len(items)} keys",
            why=f"the first is {quote(batch.conflicts[0].location.relative_path)}",
            remedy="Choose on_conflict: overwrite or skip, or another folder.",
        )
        batch.failed += [FailedItem(item.label, item.destination, error) for item in looked_at]
        return batch.result()

    def _upload_one(
        self, item: UploadItem, on_conflict: OnConflict, conflicts: list[Conflict], cancel: CancelToken | None
    ) -> StoredObject | None:
        """Store one item; None where other bytes are left under its key."""
        content_type = item.content_type or infer_content_type(item.destination.relative_path)
        found = self._compare(item, cancel)
        if found.state == "same":
            return self._stored(item.destination, found.size_bytes, found.sha256, content_type)
        if found.state == "different" and on_conflict != "overwrite":
            action: Literal["skipped", "refused"] = "skipped" if on_conflict == "skip" else "refused"
            conflicts.append(Conflict(item.destination, "different", "", action))
            if on_conflict == "skip":
                return None
            raise ConflictError(f"there is already an object {quote(item.destination.relative_path)}")
        with _open_source(item) as source:
            chunks = source.chunks(cancel)
            if self._dry_run:
                size_bytes, sha256 = source.size_bytes, digest(chunks)
            else:
                size_bytes, sha256 = self._files.write(item.destination, chunks)
        if found.state == "different":
            conflicts.append(Conflict(item.destination, "different", "", "overwritten"))
        return self._stored(item.destination, size_bytes, sha256, content_type)

    def _compare(self, item: UploadItem, cancel: CancelToken | None) -> _Found:
        """What lies under the item's key, compared with its bytes: size first, then SHA-256."""
        with _open_source(item) as source:
            try:
                existing = self._files.open(item.destination)
            except NotFoundError:
                return _Found("absent")
            with existing:
                if existing.size_bytes != source.size_bytes:
                    return _Found("different")
                sha256 = digest(source.chunks(cancel))
                if sha256 != digest(existing.chunks(cancel)):
                    return _Found("different")
                return _Found("same", source.size_bytes, sha256)

    def _copy_one(
        self, source: StorageLocation, destination: StorageLocation, cancel: CancelToken | None
    ) -> StoredObject:
        with self._files.open(source) as file:
            size_bytes, sha256 = file.size_bytes, ""
            if not self._dry_run:
                size_bytes, sha256 = self._files.write(destination, file.chunks(cancel))
        return self._stored(destination, size_bytes, sha256, infer_content_type(destination.relative_path))

    def _download_one(self, item: DownloadItem, cancel: CancelToken | None) -> DownloadedFile:
        with (
            self._files.open(item.location) as source,
            Folder.open(item.target.parent, create=True) as folder,
            NewFile(folder) as new_file,
        ):
            for chunk in source.chunks(cancel):
                new_file.write(chunk)
            if item.sha256 and item.sha256.lower() != new_file.sha256:
                raise IntegrityError(
                    f"{quote(item.location.relative_path)} is not what it should be",
                    why=f"its SHA-256 is {new_file.sha256}, and should be {quote(item.sha256)}",
                    remedy="Store the object and its digest again.",
                )
            new_file.sync()
            new_file.publish(item.target.name)
            return DownloadedFile(item, new_file.size_bytes, new_file.sha256)

    def _stored(self, location: StorageLocation, size_bytes: int, sha256: str, content_type: str) -> StoredObject:
        return StoredObject(location, size_bytes, sha256, content_type, "dry-run" if self._dry_run else "local")


@dataclass(frozen=True, slots=True)
class _Found:
    """What lies under a key; size and digest are those of the item where it is the same."""

    state: Literal["absent", "same", "different"]
    size_bytes: int = 0
    sha256: str = ""


def _open_source(item: UploadItem) -> SourceFile | BytesSource:
    return BytesSource(item.source) if isinstance(item.source, bytes) else SourceFile.open(item.source)


def _outcome(call: Callable[[], _T]) -> _T | OutputsError:
    """What `call` returns or raises. Raises CancelledError."""
    try:
        return call()
    except CancelledError:
        raise
    except OutputsError as error:
        return error
