"""The interface of every storage backend, and what is the same in all of them.

A backend implements `upload`, `copy`, `download`, `read_all_small`, `replace_all` and `describe`, which report each
object's failure as data, and `list_objects`, `list_folder`, `find`, `read_small`, `replace`, `remove` and
`put_folder_document`, which raise. The short calls of the specification (`upload_file`, `upload_directory`, ...) are
built on them here and raise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING

from _therock_utils._errors import IncompleteError, InputError, IntegrityError
from _therock_utils._files import walk_files
from _therock_utils._globs import is_selected
from _therock_utils._keys import key_fault, quote
from _therock_utils._transfer_types import SMALL_OBJECT_LIMIT_BYTES, UploadItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from _therock_utils._cancel import CancelToken
    from _therock_utils._errors import OutputsError
    from _therock_utils._transfer_types import (
        DownloadedFile,
        DownloadItem,
        DownloadResult,
        FailedItem,
        ListedObject,
        ObjectFacts,
        OnConflict,
        Origin,
        Replacement,
        StoredBytes,
        StoredObject,
        UploadResult,
    )
    from _therock_utils.storage_location import StorageLocation


class StorageBackend(ABC):
    """Where outputs are stored: S3, or a local staging directory of the same layout."""

    @abstractmethod
    def upload(
        self,
        items: Sequence[UploadItem],
        *,
        on_conflict: OnConflict = "overwrite",
        origin: Origin | None = None,
        cancel: CancelToken | None = None,
    ) -> UploadResult:
        """Store every item and report each: stored, skipped, failed, conflicts.

        Never raises for one object's failure, nor when `cancel` is set: what was not stored is in `failed`.
        Raises InputError where two items have one destination.
        """

    @abstractmethod
    def list_objects(self, location: StorageLocation, *, cancel: CancelToken | None = None) -> Iterator[ListedObject]:
        """Everything below `location`, recursively, streamed in key order.

        By whole segments: below `12345-linux` is nothing of `12345-linux2`, and nor is an object of that very key.
        A location with nothing below it gives nothing. Keys with a slash at their end, which stand for a folder
        (`put_folder_document`), are no objects here. Raises an OutputsError where listing is refused or fails, and
        CancelledError within about a second of a cancel, also while a request hangs.
        """

    @abstractmethod
    def list_folder(self, location: StorageLocation, *, cancel: CancelToken | None = None) -> Iterator[ListedObject]:
        """The objects directly in `location`, streamed in key order; what lies in folders below it is passed over.

        `P/a` lies directly in `P`; `P/logs/a`, `P2/a` and `P` itself do not. Nothing there gives nothing. Raises as
        `list_objects` does.
        """

    @abstractmethod
    def find(self, location: StorageLocation, *, cancel: CancelToken | None = None) -> ListedObject | None:
        """The object under exactly this key; None only where the service says that there is none.

        Raises an OutputsError where the service refuses to say (S3 answers 403 for a missing object to those who may
        not list) or cannot be asked, and CancelledError as `list_objects` does.
        """

    @abstractmethod
    def copy(
        self,
        pairs: Sequence[tuple[StorageLocation, StorageLocation]],
        *,
        cancel: CancelToken | None = None,
        known_sizes: Mapping[StorageLocation, int] | None = None,
    ) -> UploadResult:
        """Copy each (source, destination) inside the storage and report each as `upload` does.

        `stored` names the destinations, with `sha256` and `content_type` "" where they were not seen; a copy counts as
        stored when its size is the source's. Overwrites. `known_sizes`: sizes in bytes of sources, as a listing showed
        them; those sources are not looked at once more.
        """

    @abstractmethod
    def read_small(self, location: StorageLocation, *, cancel: CancelToken | None = None) -> StoredBytes | None:
        """An object's bytes and etag; None where there is no object.

        Raises IntegrityError for an object above SMALL_OBJECT_LIMIT_BYTES, an OutputsError where reading is refused or
        fails, and CancelledError as `list_objects` does.
        """

    @abstractmethod
    def read_all_small(
        self, locations: Sequence[StorageLocation], *, cancel: CancelToken | None = None
    ) -> tuple[StoredBytes | OutputsError | None, ...]:
        """What `read_small` gives or raises for each, in the order asked for; all of it is in memory at the end.

        Raises CancelledError as `list_objects` does.
        """

    @abstractmethod
    def describe(
        self, locations: Sequence[StorageLocation], *, reads: bool = False, cancel: CancelToken | None = None
    ) -> tuple[ObjectFacts | OutputsError | None, ...]:
        """What is stored under each key, in the order asked for: None where there is no object, an error as `find`'s.

        With `reads` every byte is read and hashed; without, the digest is the one that the service keeps, or "".
        Raises CancelledError as `list_objects` does.
        """

    @abstractmethod
    def replace(
        self,
        location: StorageLocation,
        data: bytes,
        content_type: str,
        *,
        etag: str,
        cancel: CancelToken | None = None,
    ) -> StoredObject:
        """Store `data` only where the object still is the one that `read_small` gave `etag` for.

        An `etag` of "" means: only where there is no object. Raises ConflictError where that is not so, an OutputsError
        where writing is refused or fails, and CancelledError as `list_objects` does; whether the object is stored is
        not known then.
        """

    def put_new(
        self, location: StorageLocation, data: bytes, content_type: str, *, cancel: CancelToken | None = None
    ) -> StoredObject:
        """Store `data` only where no object has that key. Raises as `replace` does."""
        return self.replace(location, data, content_type, etag="", cancel=cancel)

    @abstractmethod
    def replace_all(
        self, items: Sequence[Replacement], *, cancel: CancelToken | None = None
    ) -> tuple[StoredObject | OutputsError, ...]:
        """What `replace` gives or raises for each item, in the order asked for.

        Never raises for one object, nor when `cancel` is set: what was not stored by then, or is not known to be, has
        CancelledError. Raises InputError where two items have one location, or one has no key.
        """

    @abstractmethod
    def remove(self, location: StorageLocation, *, etag: str, cancel: CancelToken | None = None) -> None:
        """Delete the object only where it still is the one that `read_small` gave `etag` for.

        Raises ConflictError where it is another one; one that is not there is no error. Raises an OutputsError where
        that is refused or fails, and CancelledError as `list_objects` does; whether it is deleted is not known then.
        """

    @abstractmethod
    def put_folder_document(
        self, folder: StorageLocation, data: bytes, content_type: str, *, cancel: CancelToken | None = None
    ) -> bool:
        """Store what a web client gets at the folder's own URL with a slash at its end, whatever is there.

        On S3 that is the object with the key `{folder}/`; no listing shows it while something lies below the folder,
        and no other call knows it. False, with nothing done, in a staging directory: there a web server shows
        `index.html` by itself. Raises as `remove` does; a dry run writes nothing.
        """

    @abstractmethod
    def download(
        self,
        items: Sequence[DownloadItem],
        *,
        cancel: CancelToken | None = None,
        on_downloaded: Callable[[DownloadedFile], None] | None = None,
    ) -> DownloadResult:
        """Fetch every item and report each. A target is written whole and verified, or not at all.

        `on_downloaded` is called once a file that is complete at its final name, as soon as it is, from any thread, one
        call at a time; while it runs, other files arrive. After it raised nothing new is fetched, and what it raised is
        raised here.
        """

    def upload_file(self, source: Path, dest: StorageLocation) -> None:
        """Store one file. Raises its OutputsError, or IncompleteError where it is no regular file."""
        self.upload_files([(source, dest)])

    def upload_files(self, files: Iterable[tuple[Path, StorageLocation]]) -> int:
        """Store each (source, destination); how many were stored. Raises as `upload_directory` does."""
        result = self.upload([UploadItem(source, destination) for source, destination in files])
        _raise_first(result.failed)
        if result.skipped:
            names = ", ".join(file.path for file in result.skipped[:3])
            message = f"{len(result.skipped)} of the files to upload were not stored: {names}"
            raise IncompleteError(message, why=result.skipped[0].reason)
        return len(result.stored)

    def upload_directory(
        self,
        source: Path,
        dest: StorageLocation,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
    ) -> int:
        """Store the regular files below `source` under `dest`, keeping relative paths; how many were stored.

        `include` and `exclude` are globs over relative paths (`_globs`). Symbolic links, and files whose keys would be
        illegal, are left out. Raises the error that stopped the upload where it is permanent or the only one, else
        IncompleteError, which says how many files are missing; LocalFileError where `source` cannot be read.
        """
        start = f"{dest.relative_path}/" if dest.relative_path else ""
        files = walk_files(source, include=include, exclude=exclude).files
        result = self.upload(
            [UploadItem(path, dest.child(relative)) for path, relative in files if not key_fault(start + relative)]
        )
        _raise_first(result.failed)
        return len(result.stored)

    def list_files(
        self,
        location: StorageLocation,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
    ) -> Iterator[StorageLocation]:
        """The locations of the objects below `location`, streamed in key order; globs are relative to it."""
        start = len(location.relative_path) + 1 if location.relative_path else 0
        for listed in self.list_objects(location):
            if is_selected(listed.location.relative_path[start:], include=include, exclude=exclude):
                yield listed.location

    def copy_file(self, source: StorageLocation, dest: StorageLocation) -> None:
        """Copy one object. Raises its OutputsError (NotFoundError where there is none)."""
        self.copy_files([(source, dest)])

    def copy_files(self, files: Iterable[tuple[StorageLocation, StorageLocation]]) -> int:
        """Copy each (source, destination); how many were copied. Raises as `upload_directory` does."""
        result = self.copy(list(files))
        _raise_first(result.failed)
        return len(result.stored)

    def copy_directory(
        self,
        source: StorageLocation,
        dest: StorageLocation,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
    ) -> int:
        """Copy everything below `source` to the same relative paths below `dest`; how many were copied."""
        start = len(source.relative_path) + 1 if source.relative_path else 0
        found = self.list_files(source, include, exclude)
        return self.copy_files([(location, dest.child(location.relative_path[start:])) for location in found])


def check_destinations(destinations: Iterable[StorageLocation], *, across_buckets: bool = False) -> None:
    """Raise InputError where one is a bucket's root, or two are the same (with `across_buckets`, have the same key)."""
    names = [at.relative_path if across_buckets else at.s3_uri for at in _with_key(destinations)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        message = f"{len(twice)} objects would be written twice, the first is {quote(min(twice))}"
        raise InputError(message, remedy="Give every file a destination of its own.")


def check_keys(locations: Iterable[StorageLocation]) -> None:
    """Raise InputError where one is a bucket's root, which is no object."""
    for _ in _with_key(locations):
        pass


def too_large(name: str, size_bytes: int) -> IntegrityError:
    """The object `name` is none of those that `read_small` reads."""
    return IntegrityError(
        f"the object {quote(name)} is too large",
        why=f"it has {size_bytes} bytes, at most {SMALL_OBJECT_LIMIT_BYTES} were expected",
    )


def _with_key(locations: Iterable[StorageLocation]) -> Iterator[StorageLocation]:
    for at in locations:
        if not at.relative_path:
            raise InputError("an object needs a key", why=f"{at.s3_uri} is the bucket's root")
        yield at


def _raise_first(failed: Sequence[FailedItem]) -> None:
    """Raise what explains `failed`: the only or the first permanent error, else an IncompleteError that counts."""
    if not failed:
        return
    permanent = next((item.error for item in failed if not item.error.transient), None)
    if permanent is not None or len(failed) == 1:
        raise permanent or failed[0].error
    first = failed[0]
    message = f"{len(failed)} objects were not stored, the first of them {first.path}"
    raise IncompleteError(message, why=str(first.error)) from first.error
