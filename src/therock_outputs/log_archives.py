"""The archives of build logs: `ninja_logs.tar.gz` and `ccache_logs.tar.zst`.

Reproducible: members sorted by name, times and owners zero, modes fixed, so that the same files give the same bytes
whatever their times and the order in which the file system lists them (reproducible-builds.org, "Archive metadata").
Streamed: memory is bounded by the compressor's window, one buffer and the names, whatever the size of the logs.
"""

from __future__ import annotations

import gzip
import os
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, cast

from _therock_utils._files import kind_fault
from _therock_utils._source_file import READ_FLAGS
from _therock_utils._transfer_types import SkippedFile
from therock_outputs._archives import ZSTD_LEVEL, ExactReader, zstd_options
from therock_outputs.text_safety import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _therock_utils._cancel import CancelToken

NINJA_ARCHIVE: Final = "ninja_logs.tar.gz"
CCACHE_ARCHIVE: Final = "ccache_logs.tar.zst"
NINJA_LOG: Final = ".ninja_log"

_GZIP_LEVEL: Final = 6  # zlib's own default: half the time of 9 for 3 % more bytes
_MEMBER_MODE: Final = 0o644


@dataclass(frozen=True, slots=True)
class LogArchive:
    """An archive that was written to `path`, of `member_count` members; none is written where there is no member.

    `skipped` is not in it; `changed` are members that changed meanwhile: they are in it as far as they were.
    """

    path: Path
    member_count: int
    skipped: tuple[SkippedFile, ...] = ()
    changed: tuple[str, ...] = ()


def write_ninja_archive(build_dir: Path, target: Path, *, cancel: CancelToken) -> LogArchive | None:
    """Archive every ninja log of the build, members relative to `build_dir`; None where there is none.

    Raises CancelledError, OSError where `target` cannot be written.
    """
    return _write(build_dir, lambda name: name == NINJA_LOG, target, _open_gzip, cancel)


def write_ccache_archive(ccache_dir: Path, target: Path, *, cancel: CancelToken) -> LogArchive | None:
    """Archive the raw ccache logs, members relative to `ccache_dir`; None where there are none.

    Raises CancelledError, OSError where `target` cannot be written.
    """
    return _write(ccache_dir, lambda _name: True, target, _open_zstd, cancel)


def _names(root: Path, is_wanted: Callable[[str], bool], skipped: list[SkippedFile]) -> Iterator[str]:
    """Relative POSIX paths of the files below `root` of a wanted name, in any order; no link is followed.

    A link to a folder counts as a file here. Folders that cannot be read go to `skipped`.
    """

    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            relative = os.path.relpath(error.filename, root).replace(os.sep, "/")
            skipped.append(SkippedFile(visible(relative), f"the folder cannot be read ({error.strerror})"))

    for folder, folders, files in os.walk(root, onerror=note):
        folders[:] = [name for name in folders if name != ".git"]
        links = [name for name in folders if is_wanted(name) and Path(folder, name).is_symlink()]
        for name in (*files, *links):
            if is_wanted(name):
                yield Path(folder, name).relative_to(root).as_posix()


def _open_gzip(file: IO[bytes]) -> IO[bytes]:
    return cast("IO[bytes]", gzip.GzipFile("", "wb", compresslevel=_GZIP_LEVEL, fileobj=file, mtime=0))


def _open_zstd(file: IO[bytes]) -> IO[bytes]:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    options = zstd_options(level=ZSTD_LEVEL, workers=os.cpu_count() or 1)
    return cast("IO[bytes]", zstd.ZstdFile(file, "wb", options=options))


def _write(
    root: Path,
    is_wanted: Callable[[str], bool],
    target: Path,
    opener: Callable[[IO[bytes]], IO[bytes]],
    cancel: CancelToken,
) -> LogArchive | None:
    skipped: list[SkippedFile] = []
    ordered = sorted(_names(root, is_wanted, skipped), key=os.fsencode)
    if not ordered and not skipped:
        return None
    members = 0
    changed: list[str] = []
    with (
        target.open("wb") as file,
        opener(file) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in ordered:
            cancel.check()
            fault = _add(archive, root, name, changed, cancel)
            if fault:
                skipped.append(SkippedFile(visible(name), fault))
            else:
                members += 1
    if not members:
        target.unlink()
    return LogArchive(target, members, tuple(skipped), tuple(changed))


def _add(archive: tarfile.TarFile, root: Path, name: str, changed: list[str], cancel: CancelToken) -> str:
    """Add one member, and to `changed` its name where it changed meanwhile; why it was left out, or ""."""
    try:
        if (root / name).is_symlink():
            return "it is a symbolic link"
        descriptor = os.open(root / name, READ_FLAGS)
    except FileNotFoundError:
        return "it vanished before it was read"
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    with os.fdopen(descriptor, "rb") as source:
        status = os.fstat(descriptor)
        fault = _fault_of(name, status.st_mode)
        if fault:
            return fault
        member = tarfile.TarInfo(name)
        member.size = status.st_size
        member.mode = _MEMBER_MODE
        reader = ExactReader(source, status.st_size, cancel)
        archive.addfile(member, reader)
        after = os.fstat(descriptor)
    if reader.missing_bytes or (after.st_size, after.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
        changed.append(visible(name))
    return ""


def _fault_of(name: str, mode: int) -> str:
    kind = kind_fault(mode)
    if kind:
        return f"it is {kind}"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "its name is not valid Unicode"
    return ""
