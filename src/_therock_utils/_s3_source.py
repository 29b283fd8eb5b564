"""What an upload reads: an open file or bytes, whole or in parts, any number of times."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol, Self

from _therock_utils._errors import IntegrityError, LocalFileError
from _therock_utils._source_file import BytesSource, SourceFile

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class UploadSource(Protocol):
    """A source whose size is known when it is opened."""

    @property
    def size_bytes(self) -> int:
        """Its size when it was opened."""

    def __enter__(self) -> Self:
        """Itself, open."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""

    def read_all(self) -> bytes:
        """All its bytes. Raises IntegrityError where it changed, LocalFileError where it cannot be read."""

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill `view` with the bytes from `offset` on. Raises as `read_all` does."""

    def check_unchanged(self) -> None:
        """Raise IntegrityError where it is not what it was when it was opened."""


class UploadBytes(BytesSource):
    """Bytes made here."""

    def __enter__(self) -> Self:
        return self

    def read_all(self) -> bytes:
        """The bytes."""
        return self._data

    def read_into(self, view: memoryview, offset: int) -> None:
        """Copy a part."""
        view[:] = self._data[offset : offset + len(view)]

    def check_unchanged(self) -> None:
        """They never change."""


class UploadFile(SourceFile):
    """An open regular file."""

    def __enter__(self) -> Self:
        return self

    def read_all(self) -> bytes:
        """The whole file: one byte more is asked for, to see growth without another read."""
        size_bytes = self.size_bytes
        try:
            data = os.read(self._descriptor, size_bytes + 1)  # it was opened a moment ago: nothing is read yet
            while 0 < len(data) < size_bytes and (more := os.read(self._descriptor, size_bytes + 1 - len(data))):
                data += more
        except OSError as error:
            raise self._unreadable(error) from error
        if len(data) != size_bytes:
            raise self._changed()
        self.check_unchanged()
        return data

    def read_into(self, view: memoryview, offset: int) -> None:
        """Fill `view` from `offset` on."""
        done_bytes = 0
        try:
            os.lseek(self._descriptor, offset, os.SEEK_SET)
            with open(self._descriptor, "rb", buffering=0, closefd=False) as file:
                while done_bytes < len(view):
                    count = file.readinto(view[done_bytes:])
                    if not count:
                        raise self._changed()
                    done_bytes += count
        except OSError as error:
            raise self._unreadable(error) from error

    def check_unchanged(self) -> None:
        """Compare what fstat says now with what it said at the start: size and modification time."""
        after = os.fstat(self._descriptor)
        if (after.st_size, after.st_mtime_ns) != (self._before.st_size, self._before.st_mtime_ns):
            raise self._changed()

    def _changed(self) -> IntegrityError:
        return IntegrityError(
            f"the file {self._label!a} changed while it was read",
            why=f"it had {self.size_bytes} bytes when it was opened, and has {os.fstat(self._descriptor).st_size} now",
            remedy="Upload after whatever writes it has finished.",
        )

    def _unreadable(self, error: OSError) -> LocalFileError:
        return LocalFileError(f"the file {self._label!a} cannot be read", why=error.strerror or str(error))


def open_source(source: Path | bytes) -> UploadSource:
    """Open an item's source. Raises SkipFileError and LocalFileError as `SourceFile.open` does."""
    return UploadBytes(source) if isinstance(source, bytes) else UploadFile.open(source)
