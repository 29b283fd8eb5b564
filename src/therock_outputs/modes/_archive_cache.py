"""A folder of verified archives, each under its own digest: `{sha256[:2]}/{sha256}{extension}`.

Several processes may share it: files come in by rename, whole; one that another process replaces has the same bytes,
and one that another removes is simply not there. A file's bytes are hashed before they are used, whoever wrote them.
What is wrong with the cache is a CacheError: a fetch then goes on without.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from _therock_utils._errors import IntegrityError, LocalFileError
from _therock_utils._folder import Folder, NewFile, check_names, local_file_error
from _therock_utils._source_file import SkipFileError, SourceFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from _therock_utils._cancel import CancelToken


class CacheError(LocalFileError):
    """A path in the cache cannot be used."""

    @classmethod
    def of(cls, error: LocalFileError) -> CacheError:
        """`error`, which was met on a path in the cache."""
        return cls(error.what, why=error.why, remedy=error.remedy)


@dataclass(frozen=True, slots=True)
class ArchiveCache:
    """The cache below `folder`, which need not be there yet. At most 1 MiB of a file in memory."""

    folder: Path

    def path_of(self, sha256: str, extension: str) -> Path:
        """Where the archive with this digest (hex, lower case) is, or is to be put."""
        return self.folder / sha256[:2] / f"{sha256}{extension}"

    @staticmethod
    def has(path: Path) -> bool:
        """Whether anything lies at `path`, of whatever bytes."""
        return os.path.lexists(path)

    @staticmethod
    def is_sound(path: Path, sha256: str, cancel: CancelToken) -> bool:
        """Whether a file is there and has this digest; every byte is read. Raises CacheError, CancelledError."""
        digest = hashlib.sha256()
        try:
            with SourceFile.open(path) as source:
                for chunk in source.chunks(cancel):
                    digest.update(chunk)
        except (SkipFileError, IntegrityError):  # gone, no regular file, or changed meanwhile
            return False
        except LocalFileError as error:
            raise CacheError.of(error) from error
        return digest.hexdigest() == sha256

    @staticmethod
    def copy(path: Path, sha256: str, target: Path, cancel: CancelToken) -> int | None:
        """Copy the file to `target`, which appears whole or not at all and replaces what was there; its size in bytes.

        None, and nothing copied, where no file of this digest is there. Raises CacheError where it cannot be read,
        LocalFileError where `target` cannot be written, and CancelledError.
        """
        check_names(target, [target.name])
        with contextlib.ExitStack() as stack:
            try:
                source = stack.enter_context(_opened(path))
                folder = stack.enter_context(Folder.open(target.parent, create=True))
                new_file = stack.enter_context(NewFile(folder))
                for chunk in _chunks(source, cancel):
                    new_file.write(chunk)
                if new_file.sha256 != sha256:
                    return None
                new_file.sync()
                new_file.publish(target.name)
            except (SkipFileError, IntegrityError):
                return None
            except OSError as error:
                raise local_file_error(target, "written", error) from error
            return new_file.size_bytes

    @staticmethod
    def remove(path: Path) -> None:
        """Remove the file, if it is there. Raises CacheError."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise CacheError.of(local_file_error(path, "removed", error)) from error


def _opened(path: Path) -> SourceFile:
    try:
        return SourceFile.open(path)
    except LocalFileError as error:
        raise CacheError.of(error) from error


def _chunks(source: SourceFile, cancel: CancelToken) -> Iterator[bytes]:
    try:
        yield from source.chunks(cancel)
    except LocalFileError as error:
        raise CacheError.of(error) from error
