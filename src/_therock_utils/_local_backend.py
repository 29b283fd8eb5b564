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
    LocalFileError,
    NotFoundError,
    OutputsError,
)
from _therock_utils._files import kind_fault
from _therock_utils._folder import (
    BlockedPathError,
    Folder,
    NewFile,
    check_names,
    local_file_error,
)
from _therock_utils._folder_lock import exclusive
from _therock_utils._keys import quote
from _therock_utils._local_batch import Batch
from _therock_utils._local_listing import list_below, list_directly_in, listed_object
from _therock_utils._source_file import BytesSource, SkipFileError, SourceFile
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
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from _therock_utils._transfer_types import DownloadItem, ListedObject, OnConflict, Origin, UploadItem
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
            batch.store(item.label, item.destination, self._path(item.destination), step)
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
        path = self._path(location)
        try:
            with self._folder(location.relative_path):
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
        folder_path, name = _split(location)
        path = self._path(location)
        try:
            with self._folder(folder_path) as folder:
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
        _check_is_file(path, status)
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
            batch.store(source.relative_path, destination, self._path(destination), step)
        return batch.result()

    def read_small(self, location: StorageLocation, *, cancel: CancelToken | None = None) -> StoredBytes | None:
        """See StorageBackend. The etag is the SHA-256 of the bytes."""
        try:
            with self._open_object(location) as file:
                if file.size_bytes > SMALL_OBJECT_LIMIT_BYTES:
                    raise too_large(str(self._path(location)), file.size_bytes)
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
            with self._open_object(location) as file:
                sha256 = _digest(file.chunks(cancel))
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
        path = self._path(location)
        check_destinations([location])
        check_names(path, location.relative_path.split("/"))
        if self._dry_run:
            self._check_version(location, etag, cancel)
        else:
            try:
                self._replace(location, data, etag, cancel)
            except FileExistsError as error:
                raise _exists(location) from error
            except FileNotFoundError as error:
                raise _changed(location, "it is gone") from error
            except OSError as error:
                raise local_file_error(path, "written", error) from error
        content_type = content_type or infer_content_type(location.relative_path)
        return self._stored(location, len(data), hashlib.sha256(data).hexdigest(), content_type)

    def _replace(self, location: StorageLocation, data: bytes, etag: str, cancel: CancelToken) -> None:
        folder_path, name = _split(location)
        with (
            self._folder(folder_path, create=not etag) as folder,
            exclusive(folder, cancel),
            NewFile(folder) as new_file,
        ):
            new_file.write(data)
            if etag:
                self._check_version(location, etag, cancel)
                new_file.publish(name)
            else:
                new_file.publish_new(name)

    def _check_version(self, location: StorageLocation, etag: str, cancel: CancelToken) -> None:
        """Raise ConflictError where the object is not the one of `etag`; where there is one, if `etag` is ""."""
        try:
            with self._open_object(location) as file:
                if not etag:
                    raise _exists(location)
                found = _digest(file.chunks(cancel))
        except NotFoundError:
            found = ""
        if found != etag:
            raise _changed(location, "another wrote it meanwhile" if found else "it is gone")

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
            found = batch.attempt(item.label, item.destination, self._path(item.destination), step)
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
            raise _exists(item.destination)
        with _open_source(item) as source:
            chunks = source.chunks(cancel)
            if self._dry_run:
                size_bytes, sha256 = source.size_bytes, _digest(chunks)
            else:
                size_bytes, sha256 = self._write(item.destination, chunks)
        if found.state == "different":
            conflicts.append(Conflict(item.destination, "different", "", "overwritten"))
        return self._stored(item.destination, size_bytes, sha256, content_type)

    def _compare(self, item: UploadItem, cancel: CancelToken | None) -> _Found:
        """What lies under the item's key, compared with its bytes: size first, then SHA-256."""
        with _open_source(item) as source:
            try:
                existing = self._open_object(item.destination)
            except NotFoundError:
                return _Found("absent")
            with existing:
                if existing.size_bytes != source.size_bytes:
                    return _Found("different")
                sha256 = _digest(source.chunks(cancel))
                if sha256 != _digest(existing.chunks(cancel)):
                    return _Found("different")
                return _Found("same", source.size_bytes, sha256)

    def _copy_one(
        self, source: StorageLocation, destination: StorageLocation, cancel: CancelToken | None
    ) -> StoredObject:
        with self._open_object(source) as file:
            size_bytes, sha256 = file.size_bytes, ""
            if not self._dry_run:
                size_bytes, sha256 = self._write(destination, file.chunks(cancel))
        return self._stored(destination, size_bytes, sha256, infer_content_type(destination.relative_path))

    def _download_one(self, item: DownloadItem, cancel: CancelToken | None) -> DownloadedFile:
        with (
            self._open_object(item.location) as source,
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

    def _write(self, location: StorageLocation, chunks: Iterable[bytes]) -> tuple[int, str]:
        """Write the object's file; its size and SHA-256. Raises OSError for the destination's faults."""
        path = self._path(location)
        check_names(path, location.relative_path.split("/"))
        folder_path, name = _split(location)
        with self._folder(folder_path, create=True) as folder, NewFile(folder) as new_file:
            for chunk in chunks:
                new_file.write(chunk)
            new_file.publish(name)
            return new_file.size_bytes, new_file.sha256

    def _open_object(self, location: StorageLocation) -> SourceFile:
        """Open an object's file to read.

        Raises NotFoundError where there is none, BlockedPathError where a link or something special lies there, and
        LocalFileError where it cannot be opened.
        """
        folder_path, name = _split(location)
        path = self._path(location)
        try:
            with self._folder(folder_path) as folder:
                status = folder.lookup(name)
                if status is not None:
                    _check_is_file(path, status)
                    return SourceFile(folder.open_to_read(name), str(path))
        except FileNotFoundError:
            pass
        except SkipFileError as skip:  # it was a file a moment ago
            raise LocalFileError(f"{str(path)!a} cannot be read", why=skip.reason) from skip
        except BlockedPathError as error:
            if error.is_link or error.path == path:
                raise
        except OSError as error:
            raise local_file_error(path, "read", error) from error
        raise NotFoundError(f"there is no object {quote(location.relative_path)}", why=f"{str(path)!a} does not exist")

    def _folder(self, folder_path: str, *, create: bool = False) -> Folder:
        return Folder.open_below(self._staging_dir, folder_path.split("/") if folder_path else [], create=create)

    def _path(self, location: StorageLocation) -> Path:
        return location.local_path(self._staging_dir)

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


def _check_is_file(path: Path, status: os.stat_result) -> None:
    found = kind_fault(status.st_mode)
    if found:
        raise BlockedPathError(path, found=found, wanted="a file", is_link=stat.S_ISLNK(status.st_mode))


def _outcome(call: Callable[[], _T]) -> _T | OutputsError:
    """What `call` returns or raises. Raises CancelledError."""
    try:
        return call()
    except CancelledError:
        raise
    except OutputsError as error:
        return error


def _digest(chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _split(location: StorageLocation) -> tuple[str, str]:
    """The key's folder and last segment. Raises InputError for the bucket's root."""
    check_destinations([location])
    folder_path, _, name = location.relative_path.rpartition("/")
    return folder_path, name


def _exists(location: StorageLocation) -> ConflictError:
    return ConflictError(f"there is already an object {quote(location.relative_path)}")


def _changed(location: StorageLocation, why: str) -> ConflictError:
    return ConflictError(f"the object {quote(location.relative_path)} is no longer what it was", why=why)
