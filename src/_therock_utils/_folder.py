"""Writes files into a folder whole or not at all, and never through a symbolic link below its root."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from _therock_utils._errors import LocalFileError
from _therock_utils._files import is_junction
from _therock_utils._keys import quote
from _therock_utils._source_file import READ_FLAGS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

TEMPORARY_NAME = re.compile(r"\.therock-outputs-[0-9a-f]{16}\.partial")
"""Names of files that are still being written; no object may have such a name."""

LOCK_NAME = f".therock-outputs-{0:016x}.partial"
"""A file that stands for a folder that is held."""

_HAS_FOLDER_DESCRIPTORS = {os.open, os.mkdir, os.stat, os.unlink, os.rename, os.link} <= os.supports_dir_fd
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}

_WINDOWS_ILLEGAL = re.compile(r'[<>:"|?*\x00-\x1f]|[. ]\Z')
_WINDOWS_DEVICE = re.compile(r"(?:CON|PRN|AUX|NUL|(?:COM|LPT)[0-9\u00b9\u00b2\u00b3])[ ]*(?:\..*)?", re.IGNORECASE)

_REMEDIES = {
    errno.ENOSPC: "Free some space on that file system, or choose a folder on another one.",
    errno.EDQUOT: "Free some of the user's quota, or choose a folder on another file system.",
    errno.EROFS: "Choose a folder on a file system that can be written.",
    errno.EACCES: "Give this user permission there, or choose another folder.",
    errno.EPERM: "Give this user permission there, or choose another folder.",
    errno.ENAMETOOLONG: "This file system allows no such long name, though S3 does.",
}


class BlockedPathError(LocalFileError):
    """A path cannot be used because something else lies on it: a file, a folder or a symbolic link."""

    def __init__(self, path: Path, *, found: str, wanted: str, is_link: bool = False) -> None:
        super().__init__(
            f"{str(path)!a} is in the way",
            why=f"it is {found}, where {wanted} is needed",
            remedy="Remove it, or choose another folder.",
        )
        self.path = path
        self.is_link = is_link


class Folder:
    """An open folder; names are looked up in exactly that folder, whatever its path leads to by now.

    Where the platform has no such descriptors (Windows) it is the path that counts.
    """

    def __init__(self, path: Path, descriptor: int | None) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path, *, create: bool = False) -> Folder:
        """Open a folder that the caller trusts, through symbolic links if need be. Raises OSError."""
        try:
            return cls._open_trusted(path)
        except FileNotFoundError:
            if not create:
                raise
        with suppress(FileExistsError):  # told better below, where it is a file
            path.mkdir(parents=True, exist_ok=True)
        return cls._open_trusted(path)

    @classmethod
    def _open_trusted(cls, path: Path) -> Folder:
        if _HAS_FOLDER_DESCRIPTORS:
            return cls(path, os.open(path, _FOLDER_FLAGS & ~getattr(os, "O_NOFOLLOW", 0)))
        if not stat.S_ISDIR(path.stat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return cls(path, None)

    @classmethod
    def open_below(cls, root: Path, segments: Sequence[str], *, create: bool = False) -> Folder:
        """Open `root`/`segments`, a step at a time, through no symbolic link below `root`.

        Raises BlockedPathError where a link or a file is on the way, FileNotFoundError where a folder is missing and
        `create` is false, and other OSErrors.
        """
        folder = cls.open(root, create=create)
        for segment in segments:
            with folder:
                folder = folder.enter(segment, create=create)
        return folder

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    @property
    def descriptor(self) -> int | None:
        """The open folder; None where the platform has no such descriptors."""
        return self._descriptor

    def enter(self, name: str, *, create: bool = False) -> Folder:
        """The folder `name` in this one, through no symbolic link. Raises as `open_below` does."""
        try:
            return self._open_child(name)
        except FileNotFoundError:
            if not create:
                raise
        with suppress(FileExistsError):  # another process was first
            os.mkdir(self._at(name), dir_fd=self._descriptor)
        return self._open_child(name)

    def lookup(self, name: str) -> os.stat_result | None:
        """What lies under `name`, not following it; None where there is nothing. Raises OSError."""
        try:
            return os.stat(self._at(name), dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open_to_read(self, name: str) -> int:
        """A descriptor of the file `name`, never followed as a link. Raises OSError."""
        return os.open(self._at(name), READ_FLAGS, dir_fd=self._descriptor)

    def open_new(self, name: str) -> int:
        """A descriptor to write the new file `name`, its mode left to the umask. Raises FileExistsError, OSError."""
        return os.open(self._at(name), _NEW_FILE_FLAGS, 0o666, dir_fd=self._descriptor)

    def replace(self, name: str, new_name: str) -> None:
        """Rename `name`, replacing the file `new_name`. Raises OSError."""
        os.replace(self._at(name), self._at(new_name), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def link(self, name: str, new_name: str) -> None:
        """Give the file `name` a second name. Raises FileExistsError, OSError."""
        os.link(self._at(name), self._at(new_name), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def remove(self, name: str) -> None:
        """Remove the file `name` if it is there. Raises OSError."""
        with suppress(FileNotFoundError):
            os.unlink(self._at(name), dir_fd=self._descriptor)

    def _at(self, name: str) -> str | Path:
        return name if self._descriptor is not None else self.path / name

    def _open_child(self, name: str) -> Folder:
        path = self.path / name
        if self._descriptor is None:
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode) or is_junction(status):
                raise _no_folder(path, status)
            return Folder(path, None)
        try:
            return Folder(path, os.open(name, _FOLDER_FLAGS, dir_fd=self._descriptor))
        except OSError as error:
            if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
                raise
            raise _no_folder(path, os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)) from error


class NewFile:
    """A file that is written under a temporary name in its folder, and gets its own name only when it is complete.

    As a context manager it removes the temporary file on leaving. Its methods raise OSError.
    """

    def __init__(self, folder: Folder) -> None:
        self.size_bytes = 0
        self._digest = hashlib.sha256()
        self._folder = folder
        self._temporary_name = f".therock-outputs-{secrets.token_hex(8)}.partial"
        self._descriptor: int | None = folder.open_new(self._temporary_name)
        self._moved = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._close()
        finally:
            if not self._moved:
                self._folder.remove(self._temporary_name)

    @property
    def sha256(self) -> str:
        """Hex digest of what was written so far."""
        return self._digest.hexdigest()

    def write(self, data: bytes) -> None:
        """Append `data`."""
        assert self._descriptor is not None, "written after it was published"  # noqa: S101 - a fault of this program
        self._digest.update(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        self.size_bytes += len(data)

    def sync(self) -> None:
        """Wait until the bytes are on the disk."""
        assert self._descriptor is not None, "synced after it was published"  # noqa: S101 - a fault of this program
        os.fsync(self._descriptor)

    def publish(self, name: str) -> None:
        """Give it its name; a file of that name is replaced."""
        self._close()
        self._folder.replace(self._temporary_name, name)
        self._moved = True

    def publish_new(self, name: str) -> None:
        """Give it its name only where nothing has it; raises FileExistsError otherwise.

        Where the file system knows no hard links, the name is taken first and the file moved onto it: still exclusive
        among those who do the same, but for a moment the name leads to an empty file.
        """
        self._close()
        try:
            self._folder.link(self._temporary_name, name)
        except FileExistsError:
            raise
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            os.close(self._folder.open_new(name))
            self._folder.replace(self._temporary_name, name)
            self._moved = True

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def check_names(path: Path, segments: Sequence[str], *, windows: bool = os.name == "nt") -> None:
    """Raise LocalFileError where a segment cannot be the name of a file here: reserved by us, or by Windows.

    Source: Microsoft, "Naming Files, Paths, and Namespaces"; there `a:b` would name a hidden stream of the file `a`.
    """
    for segment in segments:
        if TEMPORARY_NAME.fullmatch(segment):
            fault = "names of this form are kept for files that are still being written"
        elif windows and (_WINDOWS_ILLEGAL.search(segment) or _WINDOWS_DEVICE.fullmatch(segment)):
            fault = "Windows allows no such file name"
        else:
            continue
        raise LocalFileError(f"{str(path)!a} cannot be written", why=f"{fault}: {quote(segment)}")


def local_file_error(path: Path, verb: str, error: OSError) -> LocalFileError:
    """`error` as one of ours: `path` cannot be `verb`, why, and the remedy."""
    what = f"{str(path)!a} cannot be {verb}"
    return LocalFileError(what, why=error.strerror or str(error), remedy=_REMEDIES.get(error.errno or 0, ""))


def _no_folder(path: Path, status: os.stat_result) -> BlockedPathError:
    is_link = stat.S_ISLNK(status.st_mode) or is_junction(status)
    return BlockedPathError(path, found="a symbolic link" if is_link else "a file", wanted="a folder", is_link=is_link)
