"""Whose the files are that we leave in the workspace: a container writes as root, and the job is another user."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from _therock_utils._errors import LocalFileError
from _therock_utils._folder import Folder

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Adoption:
    """Gives what this process writes into `folder` to the owner of the workspace that `folder` lies in.

    Made before anything is written: of the way from `workspace` down to `folder`, only what is missing then will be
    ours. It does nothing where this process is not root, or `folder` lies elsewhere.
    """

    def __init__(self, workspace: Path, folder: Path) -> None:
        self._workspace = workspace
        self._folder = folder
        self._is_needed = hasattr(os, "geteuid") and os.geteuid() == 0 and folder.is_relative_to(workspace)
        way = [path for path in (folder, *folder.parents) if path != workspace and path.is_relative_to(workspace)]
        self._made = [path for path in way if self._is_needed and not os.path.lexists(path)]

    def is_about(self, path: Path) -> bool:
        """Whether `path` lies below the folder."""
        return path.is_relative_to(self._folder)

    def adopt(self, files: Iterable[Path]) -> None:
        """Give away `files`, which this process wrote below `folder`, and the folders made for them; modes stay.

        What another user owns is left as it is, and so is what cannot be given away (on a network file system, say). No
        symbolic link is followed, and what was opened is what is given, whatever lies at its path by then.
        """
        if not self._is_needed:
            return
        with contextlib.suppress(OSError):
            owner = self._workspace.stat()
            for parent, names in self._by_parent(files).items():
                self._give(parent, names, owner)

    def _by_parent(self, files: Iterable[Path]) -> dict[Path, set[str]]:
        """Names to give away in each folder."""
        entries: dict[Path, set[str]] = {}
        for path in (*self._made, *files):
            entry = path
            while entry.name not in entries.setdefault(entry.parent, set()):
                entries[entry.parent].add(entry.name)
                if entry.parent == self._folder or not entry.parent.is_relative_to(self._folder):
                    break
                entry = entry.parent
        return entries

    def _give(self, parent: Path, names: Iterable[str], owner: os.stat_result) -> None:
        segments = parent.relative_to(self._workspace).parts
        with contextlib.suppress(OSError, LocalFileError), Folder.open_below(self._workspace, segments) as folder:
            for name in names:
                with contextlib.suppress(OSError):
                    descriptor = folder.open_to_read(name)
                    try:
                        _give_open(descriptor, owner)
                    finally:
                        os.close(descriptor)


def _give_open(descriptor: int, owner: os.stat_result) -> None:
    status = os.fstat(descriptor)
    is_file = stat.S_ISREG(status.st_mode) and status.st_nlink == 1  # no other name of some file of root's
    if status.st_uid == os.geteuid() and (is_file or stat.S_ISDIR(status.st_mode)):
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
