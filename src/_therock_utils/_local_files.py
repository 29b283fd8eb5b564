"""The files of a staging directory by key: opened, written and removed, and never through a symbolic link below it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from typing import TYPE_CHECKING, Final

from _therock_utils._backend_base import check_keys
from _therock_utils._errors import ConflictError, LocalFileError, NotFoundError
from _therock_utils._files import kind_fault
from _therock_utils._folder import BlockedPathError, Folder, NewFile, check_names, local_file_error
from _therock_utils._folder_lock import exclusive
from _therock_utils._keys import quote
from _therock_utils._source_file import SkipFileError, SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from _therock_utils._cancel import CancelToken
    from _therock_utils.storage_location import StorageLocation

_MOST_VANISHED_FOLDERS: Final = 100


class StagingFiles:
    """Files `staging_dir/{key}`. Memory: 1 MB of a file."""

    def __init__(self, staging_dir: Path) -> None:
        """Nothing is looked at or made yet."""
        self._staging_dir = staging_dir

    def path(self, location: StorageLocation) -> Path:
        """Where the object's file is."""
        return location.local_path(self._staging_dir)

    def folder(self, folder_path: str, *, create: bool = False) -> Folder:
        """An open folder ("" for the staging directory). Raises as `Folder.open_below`."""
        return Folder.open_below(self._staging_dir, folder_path.split("/") if folder_path else [], create=create)

    def open(self, location: StorageLocation) -> SourceFile:
        """Open an object's file to read.

        Raises NotFoundError where there is none, BlockedPathError where a link or something special lies there, and
        LocalFileError where it cannot be opened.
        """
        folder_path, name = split_key(location)
        path = self.path(location)
        try:
            with self.folder(folder_path) as folder:
                status = folder.lookup(name)
                if status is not None:
                    check_is_file(path, status)
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

    def write(self, location: StorageLocation, chunks: Iterable[bytes]) -> tuple[int, str]:
        """Write the object's file; its size and SHA-256. Raises OSError for the destination's faults."""
        self.check_name(location)
        folder_path, name = split_key(location)
        with self._new_file(folder_path, create=True) as (_, new_file):
            for chunk in chunks:
                new_file.write(chunk)
            new_file.publish(name)
            return new_file.size_bytes, new_file.sha256

    def replace(self, location: StorageLocation, data: bytes, etag: str, cancel: CancelToken) -> None:
        """Write the object's file where it still has `etag`, or is not there where that is "".

        Exclusive among processes that use this call and `remove`. Raises ConflictError and, for the destination's
        faults, LocalFileError.
        """
        self.check_name(location)
        folder_path, name = split_key(location)
        try:
            with self._new_file(folder_path, create=not etag) as (folder, new_file), exclusive(folder, cancel):
                new_file.write(data)
                if etag:
                    self.check_version(location, etag, cancel)
                    new_file.publish(name)
                else:
                    new_file.publish_new(name)
        except FileExistsError as error:
            raise _exists(location) from error
        except FileNotFoundError as error:
            raise _changed(location, "it is gone") from error
        except OSError as error:
            raise local_file_error(self.path(location), "written", error) from error

    def remove(self, location: StorageLocation, etag: str, cancel: CancelToken) -> None:
        """Remove the object's file where it still has `etag`; nothing there is no error. Exclusive as `replace` is.

        Folders that are left empty are removed, too, where they can be named without following a link: S3 has none.
        Raises ConflictError, BlockedPathError where a link or something special lies there, and LocalFileError.
        """
        folder_path, name = split_key(location)
        try:
            with self.folder(folder_path) as folder, exclusive(folder, cancel):
                self.check_version(location, etag, cancel, may_be_gone=True)
                folder.remove(name)
        except FileNotFoundError:
            return
        except BlockedPathError as error:
            if error.is_link or error.path == self.path(location):
                raise
            return  # a file is where a folder would be
        except OSError as error:
            raise local_file_error(self.path(location), "removed", error) from error
        self._remove_empty(folder_path)

    def check_name(self, location: StorageLocation) -> None:
        """Raise LocalFileError where no file here can have the object's name."""
        check_names(self.path(location), location.relative_path.split("/"))

    def check_version(
        self, location: StorageLocation, etag: str, cancel: CancelToken, *, may_be_gone: bool = False
    ) -> None:
        """Raise ConflictError where the object is not the one of `etag`; where there is one, if `etag` is ""."""
        try:
            with self.open(location) as file:
                if not etag:
                    raise _exists(location)
                found = digest(file.chunks(cancel))
        except NotFoundError:
            found = ""
        if found != etag and (found or not may_be_gone):
            raise _changed(location, "another wrote it meanwhile" if found else "it is gone")

    @contextlib.contextmanager
    def _new_file(self, folder_path: str, *, create: bool) -> Iterator[tuple[Folder, NewFile]]:
        """A new file in a folder, which is made again where `remove` of another process took it away meanwhile."""
        for attempt in range(_MOST_VANISHED_FOLDERS):
            with contextlib.ExitStack() as stack:
                try:
                    folder = stack.enter_context(self.folder(folder_path, create=create))
                    new_file = stack.enter_context(NewFile(folder))
                except FileNotFoundError:
                    if not create or attempt == _MOST_VANISHED_FOLDERS - 1:
                        raise
                    continue
                yield folder, new_file
                return

    def _remove_empty(self, folder_path: str) -> None:
        """Remove the folder and those that it lies in, as far as they are empty; never the staging directory."""
        segments = folder_path.split("/") if folder_path else []
        # What somebody uses again, or may not be removed, stays: an empty folder is no object.
        with contextlib.suppress(OSError, BlockedPathError):
            while segments:
                name = segments.pop()
                with self.folder("/".join(segments)) as parent:
                    if parent.descriptor is None:
                        return
                    os.rmdir(name, dir_fd=parent.descriptor)


def split_key(location: StorageLocation) -> tuple[str, str]:
    """The key's folder and last segment. Raises InputError for the bucket's root."""
    check_keys([location])
    folder_path, _, name = location.relative_path.rpartition("/")
    return folder_path, name


def check_is_file(path: Path, status: os.stat_result) -> None:
    """Raise BlockedPathError where `status` is not that of a regular file."""
    found = kind_fault(status.st_mode)
    if found:
        raise BlockedPathError(path, found=found, wanted="a file", is_link=stat.S_ISLNK(status.st_mode))


def digest(chunks: Iterable[bytes]) -> str:
    """Hex SHA-256 of all of them."""
    sha256 = hashlib.sha256()
    for chunk in chunks:
        sha256.update(chunk)
    return sha256.hexdigest()


def _exists(location: StorageLocation) -> ConflictError:
    return ConflictError(f"there is already an object {quote(location.relative_path)}")


def _changed(location: StorageLocation, why: str) -> ConflictError:
    return ConflictError(f"the object {quote(location.relative_path)} is no longer what it was", why=why)
