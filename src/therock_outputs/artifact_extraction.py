"""Artifact archives become folders: nothing in an archive is trusted, and a refused one leaves nothing behind.

The folder is new, so the file system itself knows what was extracted before: memory does not grow with the members.
"""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self

from _therock_utils._folder import BlockedPathError, Folder, local_file_error
from _therock_utils._keys import quote
from therock_outputs._folder_entries import FOLDER_MODE, enter, hard_link, make_link
from therock_outputs._placement import Placement
from therock_outputs._tar_members import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    HostileArchiveError,
    Kind,
    Subtrees,
    read_members,
)
from therock_outputs._tar_stream import open_tar_stream

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from _therock_utils._cancel import CancelToken
    from therock_outputs._tar_members import Member
    from therock_outputs._tar_stream import TarStream

__all__ = ["ExtractedArchive", "HostileArchiveError", "Layout", "Placement", "extract_archive"]

Layout = Literal["extract", "flatten", "bootstrap"]

_FILE_MODE: Final = 0o644
_PROGRAM_MODE: Final = 0o755
_NANOSECONDS: Final = 1_000_000_000
_BY_DESCRIPTOR: Final = {os.chmod, os.utime} <= os.supports_fd


@dataclass(frozen=True, slots=True)
class ExtractedArchive:
    """What an archive became: `folder`, of `member_count` members with `extracted_bytes` of content.

    `subtrees` are those that its manifest lists, in its order, there or not; () for the layout "extract", for which the
    manifest is a file like others.
    """

    folder: Path
    subtrees: tuple[str, ...]
    member_count: int
    extracted_bytes: int


def extract_archive(
    archive: Path, folder: Path, *, layout: Layout, max_extracted_bytes: int, cancel: CancelToken
) -> ExtractedArchive:
    """Extract a .tar.zst or .tar.xz into the new folder `folder`, which is removed again on any failure.

    Kept are regular files and whether their owner may execute them (0o755 or 0o644), folders (0o755, empty ones too),
    symbolic links that stay in the tree, hard links to files before them, and the time of a file that records one (0 is
    none: a file of 1970 cannot be put into a zip or wheel). Owners are not.

    `max_extracted_bytes` bounds contents and headers (512 bytes a member or more) together. The layouts "flatten" and
    "bootstrap" need artifact_manifest.txt (UTF-8, at most 1 MiB) as the first member, and all others in the subtrees
    that it lists. Memory: `_tar_stream`'s, and 1 MiB of headers; `cancel` is asked every 128 KiB.

    Raises HostileArchiveError where a rule is broken, IntegrityError for damaged, cut or trailing bytes, LocalFileError
    where the file system refuses (also where `folder` exists), and CancelledError.
    """
    try:
        folder.mkdir()
    except OSError as error:
        raise local_file_error(folder, "created", error) from error
    try:
        folder.chmod(FOLDER_MODE)
        with open_tar_stream(archive, cancel) as stream, _OpenFolders(folder) as folders:
            extraction = _Extraction(archive, folders, layout=layout, max_extracted_bytes=max_extracted_bytes)
            extraction.run(stream, cancel)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return ExtractedArchive(folder, extraction.subtrees, extraction.member_count, extraction.extracted_bytes)


class _Extraction:
    """One archive on its way into a folder that nobody else writes to."""

    def __init__(self, archive: Path, folders: _OpenFolders, *, layout: Layout, max_extracted_bytes: int) -> None:
        self._archive = archive
        self._folders = folders
        self._needs_manifest = layout != "extract"
        self._subtrees: Subtrees | None = None
        self._max_bytes = max_extracted_bytes
        self._left_bytes = max_extracted_bytes
        self.member_count = 0
        self.extracted_bytes = 0

    @property
    def subtrees(self) -> tuple[str, ...]:
        """Those of the manifest, where the layout needs it."""
        return self._subtrees.names if self._subtrees is not None else ()

    def run(self, stream: TarStream, cancel: CancelToken) -> None:
        """Extract all members, and read the archive to its end."""
        for member in read_members(self._archive, stream):
            cancel.check()
            self._charge(member.header_bytes + member.size_bytes, member.name)
            if member.segments:  # not the archive's root, which is there
                self._check_manifest_rules(member)
                self._extract(member, stream)
                self.member_count += 1
                self.extracted_bytes += member.size_bytes
        if self._needs_manifest and self._subtrees is None:
            raise HostileArchiveError(self._archive, MANIFEST, "it is missing")
        stream.finish()

    def _charge(self, size_bytes: int, name: str) -> None:
        """Before they are read: content cannot be more than its header says."""
        self._left_bytes -= size_bytes
        if self._left_bytes < 0:
            held = f"with it the archive holds more than {self._max_bytes} bytes"
            rule = f"{held}: raise max_extracted_bytes if you trust it"
            raise HostileArchiveError(self._archive, name, rule, remedy="Find out who made it, if you do not.")

    def _check_manifest_rules(self, member: Member) -> None:
        if not self._needs_manifest:
            return
        if self._subtrees is not None:
            fault = self._subtrees.fault_of(member)
        elif member.segments != (MANIFEST,) or member.kind is not Kind.FILE:
            fault = f"the first member must be the file {MANIFEST}"
        else:
            is_too_big = member.size_bytes > MAX_MANIFEST_BYTES
            fault = f"it has more than {MAX_MANIFEST_BYTES} bytes" if is_too_big else ""
        if fault:
            raise self._hostile(member.name, fault)

    def _extract(self, member: Member, stream: TarStream) -> None:
        *way, name = member.segments
        try:
            if member.kind is Kind.FOLDER:
                self._folders.reach(member.segments)
                return
            parent = self._folders.reach(tuple(way))
            if member.kind is Kind.FILE:
                _write(parent, name, member, stream)
            elif member.kind is Kind.SYMBOLIC_LINK:
                make_link(parent, name, member.target)
            elif not self._link(parent, name, member.source):
                source = quote("/".join(member.source))
                raise self._hostile(member.name, f"it is a hard link to {source}, which is no file before it")
            if self._needs_manifest and self._subtrees is None:
                self._subtrees = Subtrees.parse(self._archive, _read(parent, name))
        except BlockedPathError as error:
            is_itself = error.path == self._folders.path.joinpath(*member.segments)
            fault = "its name appears twice" if is_itself else f"{quote(error.path.name)} above it is a file or a link"
            raise self._hostile(member.name, fault) from error
        except FileExistsError as error:
            raise self._hostile(member.name, "its name appears twice") from error
        except OSError as error:
            raise local_file_error(self._folders.path.joinpath(*member.segments), "written", error) from error

    def _link(self, parent: Folder, name: str, source: tuple[str, ...]) -> bool:
        """Make a hard link to a regular file; False where there is none."""
        if not source:  # the archive's root
            return False
        *way, source_name = source
        try:
            with Folder.open_below(self._folders.path, way) as folder:
                status = folder.lookup(source_name)
                if status is None or not stat.S_ISREG(status.st_mode):
                    return False
                hard_link(folder, source_name, parent, name)
        except (FileNotFoundError, BlockedPathError):
            return False
        return True

    def _hostile(self, name: str, rule: str) -> HostileArchiveError:
        return HostileArchiveError(self._archive, name, rule)


class _OpenFolders:
    """The folders on the way to the last member, held open: the next one is mostly in the same, or near.

    At most as many are open as a member's name has segments.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._segments: tuple[str, ...] = ()
        self._open = [Folder.open(path)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close_below(-1)

    def reach(self, segments: tuple[str, ...]) -> Folder:
        """The folder of this path, made where it is missing. Raises BlockedPathError, OSError."""
        if segments != self._segments:
            pairs = enumerate(zip(segments, self._segments, strict=False))
            shared = min(len(segments), len(self._segments))
            self._close_below(next((index for index, (one, other) in pairs if one != other), shared))
            for segment in segments[len(self._segments) :]:
                self._open.append(enter(self._open[-1], segment, create=True))
                self._segments = (*self._segments, segment)
        return self._open[-1]

    def _close_below(self, depth: int) -> None:
        while len(self._open) > depth + 1:
            with self._open.pop():
                pass
        self._segments = self._segments[: max(depth, 0)]


def _write(parent: Folder, name: str, member: Member, stream: TarStream) -> None:
    descriptor = parent.open_new(name)
    try:
        stream.copy_to(descriptor, member.size_bytes)
        target = descriptor if _BY_DESCRIPTOR else parent.path / name
        os.chmod(target, _PROGRAM_MODE if member.is_executable else _FILE_MODE)  # noqa: PTH101 - mostly a descriptor
        if member.modified_seconds:
            nanoseconds = round(member.modified_seconds * _NANOSECONDS)
            os.utime(target, ns=(nanoseconds, nanoseconds))
    finally:
        os.close(descriptor)


def _read(folder: Folder, name: str) -> bytes:
    with os.fdopen(folder.open_to_read(name), "rb") as file:
        return file.read()
