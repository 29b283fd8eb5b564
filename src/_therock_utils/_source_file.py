"""Reads one regular file once, in bounded memory, and notices when it changes meanwhile."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Self

from _therock_utils._errors import IntegrityError, LocalFileError
from _therock_utils._files import kind_fault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from _therock_utils._cancel import CancelToken

BUFFER_BYTES = 1024 * 1024
# Where the platform has these: no link as the last part, no waiting for a pipe's writer, no translation of line ends.
READ_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class SkipFileError(Exception):
    """A source that is left out on purpose; never leaves the backend that reads it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BytesSource:
    """Bytes made here, read as a SourceFile is."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size_bytes = len(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """There is nothing to close."""

    def chunks(self, cancel: CancelToken | None) -> Iterator[bytes]:
        """All of it at once. Raises CancelledError where `cancel` was set."""
        if cancel is not None:
            cancel.check()
        yield self._data


class SourceFile:
    """An open regular file. Takes over `descriptor`, which `label` names in messages.

    Raises SkipFileError for a descriptor that is no regular file.
    """

    def __init__(self, descriptor: int, label: str) -> None:
        self._descriptor = descriptor
        self._label = label
        self._before = os.fstat(descriptor)
        fault = kind_fault(self._before.st_mode)
        if fault:
            os.close(descriptor)
            raise SkipFileError(f"it is {fault}")

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open `path`, never following it as a symbolic link.

        Raises SkipFileError where it is a link, no regular file, or gone, and LocalFileError where it cannot be opened.
        """
        if not hasattr(os, "O_NOFOLLOW") and path.is_symlink():
            raise SkipFileError("it is a symbolic link")
        try:
            return cls(os.open(path, READ_FLAGS), str(path))
        except OSError as error:
            raise _opening_error(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    @property
    def size_bytes(self) -> int:
        """Its size when it was opened."""
        return self._before.st_size

    def chunks(self, cancel: CancelToken | None) -> Iterator[bytes]:
        """Its bytes, at most 1 MB at a time.

        Raises IntegrityError where the file changed between opening and the last byte, LocalFileError where it cannot
        be read, CancelledError where `cancel` was set.
        """
        done_bytes = 0
        while True:
            if cancel is not None:
                cancel.check()
            try:
                chunk = os.read(self._descriptor, BUFFER_BYTES)
            except OSError as error:
                raise LocalFileError(f"the file {self._label!a} cannot be read", why=error.strerror or "") from error
            done_bytes += len(chunk)
            if not chunk or done_bytes > self._before.st_size:  # a file that only ever grows must not be read for ever
                break
            yield chunk
        after = os.fstat(self._descriptor)
        seen = (done_bytes, after.st_size, after.st_mtime_ns)
        if seen != (self._before.st_size, self._before.st_size, self._before.st_mtime_ns):
            raise IntegrityError(
                f"the file {self._label!a} changed while it was read",
                why=f"it had {self._before.st_size} bytes when it was opened, and {after.st_size} at the end",
                remedy="Upload after whatever writes it has finished.",
            )


def _opening_error(path: Path, error: OSError) -> Exception:
    if error.errno in {errno.ENOENT, errno.ENOTDIR}:
        return SkipFileError("it vanished before it was read")
    if error.errno == errno.ELOOP:
        return SkipFileError("it is a symbolic link")
    if error.errno == errno.ENXIO:
        return SkipFileError("it is a socket")
    return LocalFileError(
        f"the file {str(path)!a} cannot be opened",
        why=error.strerror or str(error),
        remedy="Give this user permission to read it, or exclude it." if isinstance(error, PermissionError) else "",
    )
