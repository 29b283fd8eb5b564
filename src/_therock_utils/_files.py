"""Walks a source folder: what can be uploaded, and what is left out and why."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from _therock_utils._errors import LocalFileError
from _therock_utils._globs import PathFilter, compile_filter
from _therock_utils._keys import key_fault, segment_fault
from _therock_utils._transfer_types import SkippedFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_WINDOWS_JUNCTION = 0xA0000003  # IO_REPARSE_TAG_MOUNT_POINT (MS-FSCC, "Reparse Tags")
_VANISHED = "it vanished while the folder was read"


@dataclass(frozen=True, slots=True)
class WalkResult:
    """What a folder holds, each part sorted by relative path.

    `files`: regular files as (path, relative "/"-separated path). `skipped`: what was left out against the caller's
    wish, with paths relative to the folder and escaped to ASCII where they are no legal keys.
    """

    files: tuple[tuple[Path, str], ...]
    skipped: tuple[SkippedFile, ...]


def walk_files(
    root: Path,
    *,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    include_hidden: bool = True,
    key_prefix: str = "",
) -> WalkResult:
    """The regular files below `root` that the globs select (`_globs`), sorted.

    Symbolic links (also Windows junctions) below `root` are never followed; they, pipes, sockets, devices, unreadable
    folders, and names that cannot be part of an object key are in `skipped`, unless the globs leave them out; whatever
    may hold files, as a linked or unreadable folder does, counts as wanted unless it is excluded.
    `include_hidden=False` leaves out whatever has a segment with a leading dot. `key_prefix` is the folder key that the
    files are to be stored below: one whose key would be too long is skipped.

    Memory: one entry a file (about 0.5 KB). Raises LocalFileError where `root` is missing or cannot be read, and
    InputError for a bad pattern.
    """
    walk = _Walk(root, compile_filter(include, exclude), include_hidden=include_hidden, key_prefix=key_prefix)
    folders = [""]
    while folders:
        folders.extend(walk.read_folder(folders.pop()))
    return WalkResult(
        tuple((root / relative, relative) for relative in sorted(walk.files)),
        tuple(sorted(walk.skipped, key=lambda file: file.path)),
    )


class _Walk:
    def __init__(self, root: Path, path_filter: PathFilter, *, include_hidden: bool, key_prefix: str) -> None:
        self.root = root
        self.files: list[str] = []
        self.skipped: list[SkippedFile] = []
        self._filter = path_filter
        self._include_hidden = include_hidden
        self._key_start = f"{key_prefix}/" if key_prefix else ""

    def read_folder(self, folder: str) -> list[str]:
        """Sort one folder's entries into `files` and `skipped`; returns its sub-folders."""
        folders: list[str] = []
        try:
            with os.scandir(self.root / folder) as entries:
                for entry in entries:
                    if not self._include_hidden and entry.name.startswith("."):
                        continue
                    relative = f"{folder}/{entry.name}" if folder else entry.name
                    if self._take(entry, relative):
                        folders.append(relative)
        except OSError as error:
            if not folder:
                raise _unreadable_root(self.root, error) from error
            reason = _VANISHED if error.errno == errno.ENOENT else f"the folder cannot be read: {error.strerror}"
            self._skip(folder, reason, may_hold_files=True)
        return folders

    def _take(self, entry: os.DirEntry[str], relative: str) -> bool:
        """Whether `entry` is a folder to read; anything else is dealt with."""
        is_folder, reason = _classify(entry)
        fault = segment_fault(entry.name) or ("" if is_folder else key_fault(self._key_start + relative))
        if not reason and fault:
            reason = f"its name cannot be part of an object key: {fault}"
        if reason:
            self._skip(relative, reason, may_hold_files=is_folder)
        elif is_folder:
            return not self._filter.prunes(relative)
        elif self._filter.selects(relative):
            self.files.append(relative)
        return False

    def _skip(self, relative: str, reason: str, *, may_hold_files: bool) -> None:
        if may_hold_files:
            wanted = not (self._filter.excludes(relative) or self._filter.prunes(relative))
        else:
            wanted = self._filter.selects(relative)
        if wanted:
            path = ascii(relative) if any(map(segment_fault, relative.split("/"))) else relative
            self.skipped.append(SkippedFile(path, reason))


def _classify(entry: os.DirEntry[str]) -> tuple[bool, str]:
    """Whether `entry` is (or leads to) a folder, and why it must be left out, or ""."""
    try:
        if entry.is_symlink():
            return _leads_to_folder(entry), "it is a symbolic link"
        if entry.is_dir(follow_symlinks=False):
            return True, "it is a junction" if is_junction(entry.stat(follow_symlinks=False)) else ""
        if entry.is_file(follow_symlinks=False):
            return False, ""
        return False, f"it is {kind_fault(entry.stat(follow_symlinks=False).st_mode)}"
    except FileNotFoundError:
        return False, _VANISHED
    except OSError as error:
        return False, f"it cannot be looked at: {error.strerror}"


def kind_fault(mode: int) -> str:
    """What a file of this `st_mode` is ("a named pipe"), or "" for a regular file, which alone can be an object."""
    if stat.S_ISREG(mode):
        return ""
    kinds = (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISBLK, "a device"),
        (stat.S_ISCHR, "a device"),
    )
    return next((name for is_kind, name in kinds if is_kind(mode)), "no regular file")


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a loop, or no permission to look
        return False


def is_junction(status: os.stat_result) -> bool:
    """Whether this is a Windows folder that leads elsewhere; `stat` does not call that a symbolic link."""
    return getattr(status, "st_reparse_tag", 0) == _WINDOWS_JUNCTION


def _unreadable_root(root: Path, error: OSError) -> LocalFileError:
    what = f"the folder {str(root)!a} cannot be read"
    if error.errno in {errno.ENOENT, errno.ENOTDIR}:
        return LocalFileError(what, why="it does not exist, or is no folder", remedy="Check the path.")
    return LocalFileError(what, why=error.strerror or str(error))
