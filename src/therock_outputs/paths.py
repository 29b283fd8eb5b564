"""Paths as the job writes them, mapped to where this process sees them; and whose the files are that we leave.

A container action gets the workspace mounted elsewhere, and the runner translates a path only at the start of an
environment value (runner documentation, "Docker container actions").
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from _therock_utils._errors import InputError
from _therock_utils._keys import quote


@dataclass(frozen=True, slots=True)
class Workspace:
    """The job's working folder: `folder` as this process sees it, `host_folder` as the host names it ("" unknown)."""

    folder: Path
    host_folder: str = ""

    @classmethod
    def from_environment(cls, *, workspace: str, runner_workspace: str, repository: str) -> Workspace:
        """GITHUB_WORKSPACE, else the current folder; the host's name is RUNNER_WORKSPACE/<repository's name>."""
        name = repository.rpartition("/")[2]
        host = str(PurePosixPath(runner_workspace, name)) if runner_workspace.startswith("/") and name else ""
        return cls(Path(workspace) if workspace else Path.cwd(), host if workspace else "")

    def resolve(self, value: str, *, what: str) -> Path:
        """The path that input `what` names: relative ones lie in the workspace, the host's name of it is mapped.

        Lexical; raises InputError for a path that no file system takes.
        """
        if not value or "\0" in value:
            message = f"{what} {quote(value)} is no path"
            raise InputError(message)
        if self.host_folder and (value == self.host_folder or value.startswith(f"{self.host_folder}/")):
            value = value[len(self.host_folder) :].lstrip("/") or "."
        return Path(os.path.normpath(self.folder / value))

    def shown(self, path: Path) -> str:
        """`path` for people and outputs: relative to the workspace where it lies in it, with forward slashes."""
        return path.relative_to(self.folder).as_posix() if path.is_relative_to(self.folder) else str(path)

    def hint(self, value: str, path: Path) -> str:
        """What may be wrong with a path that is not there, or ""."""
        if self.host_folder and (value.startswith(self.host_folder) or path.is_relative_to(self.folder)):
            return (
                "In a job with `container:`, what a step made outside the shared workspace cannot be seen here: "
                "make it under the workspace and give a relative path."
            )
        if value.startswith("/") and self.host_folder:
            return "Only the workspace and RUNNER_TEMP are mounted here: give a path relative to the workspace."
        return ""

    def adopt(self, path: Path) -> None:
        """Give `path`, all below it, and the folders from the workspace down to it, the workspace's owner.

        Only where this process is root and the path lies in the workspace: a container writes as root. Links are not
        followed.
        """
        if not hasattr(os, "geteuid") or os.geteuid() != 0 or not path.is_relative_to(self.folder):
            return
        owner = self.folder.stat()
        between = [folder for folder in path.parents if folder.is_relative_to(self.folder) and folder != self.folder]
        for entry in between:
            _give(entry, owner)
        _give(path, owner)
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                _give(Path(folder, name), owner)


def _give(path: Path, owner: os.stat_result) -> None:
    """Give `path` to `owner`; what changes hands gets group and other bits as the workspace has them."""
    status = path.lstat()
    if status.st_uid == owner.st_uid and status.st_gid == owner.st_gid:
        return
    os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        return
    shared = stat.S_IMODE(owner.st_mode) & (0o077 if stat.S_ISDIR(status.st_mode) else 0o066)
    path.chmod((stat.S_IMODE(status.st_mode) & 0o700) | shared, follow_symlinks=True)
