"""Writes an artifact directory as an archive: the same tree gives the same bytes, on any machine.

Members are sorted by the bytes of their names, behind `artifact_manifest.txt`; times and owners are zero, modes follow
from the owner's executable bit, pax records are there only for what the older format cannot hold (POSIX.1-2001, pax;
reproducible-builds.org, "Archive metadata"). Symbolic and hard links stay links.
"""

from __future__ import annotations

import errno
import os
import tarfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, Literal, cast

from _therock_utils._folder import Folder, NewFile, local_file_error
from _therock_utils._source_file import BUFFER_BYTES, READ_FLAGS
from therock_outputs._archives import (
    XZ_PRESET,
    ZSTD_LEVEL,
    Compressor,
    ExactReader,
    xz_compressor,
    zstd_compressor,
)
from therock_outputs._artifact_tree import ArtifactTree, Member, changed, read_artifact_tree

if TYPE_CHECKING:
    from pathlib import Path

    from _therock_utils._cancel import CancelToken
    from _therock_utils._transfer_types import SkippedFile

Compression = Literal["zst", "xz"]

MAX_WORKERS: Final = 8
_CHANGED: Final = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO}  # gone, a link, a socket
_MODES: Final = {"folder": 0o755, "symbolic link": 0o777}
_TYPES: Final = {
    "file": tarfile.REGTYPE,
    "folder": tarfile.DIRTYPE,
    "symbolic link": tarfile.SYMTYPE,
    "hard link": tarfile.LNKTYPE,
}


@dataclass(frozen=True, slots=True)
class WrittenArchive:
    """An archive at `path`: `size_bytes` and `sha256` (hex) are its own, `content_bytes` are those of its files.

    `member_count` counts folders and links, too. `skipped` lies outside the listed subtrees and is not in it.
    """

    path: Path
    size_bytes: int
    sha256: str
    member_count: int
    content_bytes: int
    skipped: tuple[SkippedFile, ...]


def write_artifact_archive(
    folder: Path,
    target: Path,
    *,
    compression: Compression,
    level: int | None = None,
    workers: int = 1,
    cancel: CancelToken,
) -> WrittenArchive:
    """Archive `folder` as the new file `target`, which appears whole or not at all.

    `level` is zstd's (3) or xz's (6). `workers` (at most 8; xz: one) change the time that it takes, never the bytes.
    Memory: 10 MB, about 20 MB a worker at zstd's level 3 (xz preset 6: 94 MB), and 0.5 KB a member.

    Raises IntegrityError for what cannot be in an archive and for files that change meanwhile, LocalFileError for what
    cannot be read or written, CancelledError.
    """
    tree = read_artifact_tree(folder, cancel=cancel)
    try:
        with Folder.open(target.parent) as place, NewFile(place) as file:
            _write_members(tree, _Compressed(file, _compressor(compression, level, workers)), cancel)
            file.publish(target.name)
            written = (file.size_bytes, file.sha256)
    except OSError as error:  # whatever is wrong with a source is an error of ours by now
        raise local_file_error(target, "written", error) from error
    return WrittenArchive(target, *written, len(tree.members), tree.content_bytes, tree.skipped)


def _compressor(compression: Compression, level: int | None, workers: int) -> Compressor:
    if compression == "xz":
        return xz_compressor(preset=XZ_PRESET if level is None else level)
    return zstd_compressor(level=ZSTD_LEVEL if level is None else level, workers=min(workers, MAX_WORKERS))


class _Compressed:
    """A file object that compresses into `file`. It has no `close`: what is given up costs no more work."""

    def __init__(self, file: NewFile, compressor: Compressor) -> None:
        self._file = file
        self._compressor = compressor
        self._position_bytes = 0

    def write(self, data: bytes) -> int:
        self._put(self._compressor.compress(data))
        self._position_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position_bytes

    def finish(self) -> None:
        self._put(self._compressor.flush())

    def _put(self, data: bytes) -> None:
        if data:
            self._file.write(data)


def _write_members(tree: ArtifactTree, output: _Compressed, cancel: CancelToken) -> None:
    with tarfile.TarFile(
        fileobj=cast("IO[bytes]", output), mode="w", format=tarfile.PAX_FORMAT, copybufsize=BUFFER_BYTES
    ) as archive:
        for member in tree.members:
            cancel.check()
            info = tarfile.TarInfo(member.name)
            info.type = _TYPES[member.kind]
            info.mode = _MODES.get(member.kind, 0o755 if member.is_executable else 0o644)
            info.linkname = member.link
            if member.kind == "file":
                _add_file(archive, info, tree, member, cancel)
            else:
                archive.addfile(info)
    output.finish()


def _add_file(
    archive: tarfile.TarFile, info: tarfile.TarInfo, tree: ArtifactTree, member: Member, cancel: CancelToken
) -> None:
    """Add a file's header and bytes. Raises IntegrityError where it is not, or does not stay, what it was."""
    path = tree.folder / member.name
    try:
        descriptor = os.open(path, READ_FLAGS)
    except OSError as error:
        if error.errno in _CHANGED:
            raise changed(tree.folder, member.name) from error
        raise local_file_error(path, "opened", error) from error
    with os.fdopen(descriptor, "rb") as source:
        _check(tree, member, os.fstat(descriptor))
        info.size = member.size_bytes
        reader = _Reader(path, source, member.size_bytes, cancel)
        archive.addfile(info, cast("IO[bytes]", reader))
        if reader.missing_bytes:
            raise changed(tree.folder, member.name)
        _check(tree, member, os.fstat(descriptor))


def _check(tree: ArtifactTree, member: Member, status: os.stat_result) -> None:
    """Raise IntegrityError where a file is not the one that was looked at, or has changed since."""
    is_other = os.name != "nt" and status.st_ino != member.inode
    if is_other or (status.st_size, status.st_mtime_ns) != (member.size_bytes, member.modified_ns):
        raise changed(tree.folder, member.name)


class _Reader(ExactReader):
    """As ExactReader, but what the source's file system refuses is not taken for the target's fault."""

    def __init__(self, path: Path, source: IO[bytes], size_bytes: int, cancel: CancelToken) -> None:
        super().__init__(source, size_bytes, cancel)
        self._path = path

    def read(self, wanted_bytes: int = -1) -> bytes:
        """As in ExactReader. Raises LocalFileError where the file cannot be read."""
        try:
            return super().read(wanted_bytes)
        except OSError as error:
            raise local_file_error(self._path, "read", error) from error
