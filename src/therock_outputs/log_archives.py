"""The archives of build logs: `ninja_logs.tar.gz` and `ccache_logs.tar.zst`.

Reproducible: members sorted by name, times and owners zero, modes fixed, so that the same files give the same bytes
whatever their times and the order in which the file system lists them (reproducible-builds.org, "Archive metadata").
Streamed: memory is bounded by the compressor's window and one buffer, whatever the size of the logs.
"""

from __future__ import annotations

import gzip
import os
import stat
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

from _therock_utils._transfer_types import SkippedFile
from therock_outputs.text_safety import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from _therock_utils._cancel import CancelToken

NINJA_ARCHIVE: Final = "ninja_logs.tar.gz"
CCACHE_ARCHIVE: Final = "ccache_logs.tar.zst"
NINJA_LOG: Final = ".ninja_log"

_GZIP_LEVEL: Final = 6  # zlib's own default: half the time of 9 for 3 % more bytes
_ZSTD_LEVEL: Final = 3
_MEMBER_MODE: Final = 0o644


@dataclass(frozen=True, slots=True)
class LogArchive:
    """An archive that was written to `path`, of `member_count` members; `skipped` says what is not whole in it."""

    path: Path
    member_count: int
    skipped: tuple[SkippedFile, ...]


def ninja_log_files(build_dir: Path) -> Iterator[str]:
    """Relative POSIX paths of every `.ninja_log` below `build_dir`, links not followed, in any order."""
    for folder, folders, files in os.walk(build_dir):
        folders[:] = [name for name in folders if name != ".git"]
        if NINJA_LOG in files:
            yield Path(folder, NINJA_LOG).relative_to(build_dir).as_posix()


def write_ninja_archive(build_dir: Path, target: Path, *, cancel: CancelToken) -> LogArchive | None:
    """Archive every ninja log of the build, members relative to `build_dir`; None where there is none.

    Raises CancelledError, OSError where `target` cannot be written.
    """
    return _write(build_dir, ninja_log_files(build_dir), target, _open_gzip, cancel)


def write_ccache_archive(ccache_dir: Path, target: Path, *, cancel: CancelToken) -> LogArchive | None:
    """Archive the raw ccache logs, members relative to `ccache_dir`; None where there are none.

    Raises CancelledError, OSError where `target` cannot be written.
    """
    names = (
        Path(folder, name).relative_to(ccache_dir).as_posix()
        for folder, _, files in os.walk(ccache_dir)
        for name in files
    )
    return _write(ccache_dir, names, target, _open_zstd, cancel)


def _open_gzip(file: IO[bytes]) -> IO[bytes]:
    return cast("IO[bytes]", gzip.GzipFile("", "wb", compresslevel=_GZIP_LEVEL, fileobj=file, mtime=0))


def _open_zstd(file: IO[bytes]) -> IO[bytes]:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    # One worker or many: the bytes are the same; none at all would give others.
    workers = max(1, os.cpu_count() or 1)
    parameter = zstd.CompressionParameter
    options: dict[int, int] = {
        parameter.compression_level: _ZSTD_LEVEL,
        parameter.nb_workers: workers,
        parameter.checksum_flag: 1,
    }
    return cast("IO[bytes]", zstd.ZstdFile(file, "wb", options=options))


def _write(
    root: Path,
    names: Iterable[str],
    target: Path,
    opener: Callable[[IO[bytes]], IO[bytes]],
    cancel: CancelToken,
) -> LogArchive | None:
    ordered = sorted(names, key=os.fsencode)
    if not ordered:
        return None
    skipped: list[SkippedFile] = []
    members = 0
    with (
        target.open("wb") as file,
        opener(file) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in ordered:
            cancel.check()
            fault = _add(archive, root, name, cancel)
            members += fault is None or fault.whole
            if fault is not None:
                skipped.append(SkippedFile(visible(name), fault.reason))
    if not members:
        target.unlink()
        return LogArchive(target, 0, tuple(skipped))
    return LogArchive(target, members, tuple(skipped))


@dataclass(frozen=True, slots=True)
class _Fault:
    reason: str
    whole: bool  # it is in the archive all the same


def _add(archive: tarfile.TarFile, root: Path, name: str, cancel: CancelToken) -> _Fault | None:
    try:
        descriptor = os.open(root / name, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return _Fault("it vanished before it was read", whole=False)
    except OSError as error:
        link = (root / name).is_symlink()
        reason = "a symbolic link" if link else f"it cannot be read ({error.strerror})"
        return _Fault(reason, whole=False)
    with os.fdopen(descriptor, "rb") as source:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return _Fault("not a regular file", whole=False)
        try:
            name.encode()
        except UnicodeEncodeError:
            return _Fault("its name is not valid Unicode", whole=False)
        member = tarfile.TarInfo(name)
        member.size = status.st_size
        member.mode = _MEMBER_MODE
        reader = _ExactReader(source, status.st_size, cancel)
        archive.addfile(member, reader)
        grew = os.fstat(descriptor).st_size > status.st_size
    if reader.missing_bytes or grew:
        return _Fault("it changed while it was archived", whole=True)
    return None


class _ExactReader:
    """Gives exactly `size_bytes`, with zeros where the file shrank: the member's header is written already."""

    def __init__(self, source: IO[bytes], size_bytes: int, cancel: CancelToken) -> None:
        self._source = source
        self._left_bytes = size_bytes
        self._cancel = cancel
        self.missing_bytes = 0

    def read(self, wanted_bytes: int = -1) -> bytes:
        self._cancel.check()
        wanted_bytes = self._left_bytes if wanted_bytes < 0 else min(wanted_bytes, self._left_bytes)
        data = self._source.read(wanted_bytes)
        if len(data) < wanted_bytes:
            self.missing_bytes += wanted_bytes - len(data)
            data += b"\0" * (wanted_bytes - len(data))
        self._left_bytes -= len(data)
        return data
