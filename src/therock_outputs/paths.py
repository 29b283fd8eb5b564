"""Paths as the job writes them, mapped to where this process sees them; and whose the files are that we leave.

A container action gets the workspace mounted elsewhere, and the runner translates a path only at the start of an
environment value (runner documentation, "Docker container actions").
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from _therock_utils._errors import InputError
from _therock_utils._keys import quote

_JOB_CONTAINER_WORK: Final = "/__w"
"""Where the runner mounts its work folder in a job's container (runner source, "Running jobs in a container")."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """The job's working folder: `folder` as this process sees it, and how it is named elsewhere.

    `other_names`: on the host, and in the container of a job with `container:`; () where this process sees the host's
    folder itself, or the names are not known.
    """

    folder: Path
    other_names: tuple[str, ...] = ()

    @classmethod
    def from_environment(cls, *, workspace: str, runner_workspace: str, repository: str) -> Workspace:
        """GITHUB_WORKSPACE, else the current folder.

        The host's name is RUNNER_WORKSPACE/<repository's name>; in a job's container the folder above is `/__w`.
        """
        if not workspace:
            return cls(Path.cwd())
        name, parent = repository.rpartition("/")[2], PurePosixPath(runner_workspace)
        if not (name and parent.is_absolute()) or str(parent / name) == workspace:
            return cls(Path(workspace))
        return cls(Path(workspace), (str(parent / name), str(PurePosixPath(_JOB_CONTAINER_WORK, parent.name, name))))

    def resolve(self, value: str, *, what: str) -> Path:
        """The path that input `what` names: relative ones lie in the workspace, its other names are mapped.

        Lexical; raises InputError for a path that no file system takes.
        """
        if not value or "\0" in value:
            message = f"{what} {quote(value)} is no path"
            raise InputError(message)
        for name in self.other_names:
            if value == name or value.startswith(f"{name}/"):
                value = value[len(name) :].lstrip("/") or "."
        return Path(os.path.normpath(self.folder / value))

    def shown(self, path: Path) -> str:
        """`path` for people and outputs: relative to the workspace where it lies in it, with forward slashes."""
        return path.relative_to(self.folder).as_posix() if path.is_relative_to(self.folder) else str(path)

    def hint(self, value: str, path: Path) -> str:
        """What may be wrong with a path that is not there, or "": a relative one cannot be the wrong file system's."""
        if not self.other_names or not value.startswith("/"):
            return ""
        if path.is_relative_to(self.folder):
            return (
                "In a job with `container:`, what a step made outside the shared workspace cannot be seen here: "
                "make it under the workspace and give a relative path."
            )
        return "Only the workspace and RUNNER_TEMP are mounted here: give a path relative to the workspace."

    def adopt(self, path: Path) -> None:
        """Give `path`, all below it, and the folders from the workspace down to it, the workspace's owner.

        Only where this process is root and the path lies in the workspace: a container writes as root. Links are not
        followed. What cannot be given away (a network file system, say) stays as it is.
        """
        if not hasattr(os, "geteuid") or os.geteuid() != 0 or not path.is_relative_to(self.folder):
            return
        try:
            owner = self.folder.stat()
        except OSError:
            return
        between = [folder for folder in path.parents if folder.is_relative_to(self.folder) and folder != self.folder]
        for entry in between:
            _give(entry, owner)
        _give(path, owner)
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                _give(Path(folder, name), owner)


def _give(path: Path, owner: os.stat_result) -> None:
    """Give `path` to `owner`; what changes hands gets group and other bits as the workspace has them."""
    with contextlib.suppress(OSError):
        status = path.lstat()
        if status.st_uid == owner.st_uid and status.st_gid == owner.st_gid:
            return
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return
        shared = stat.S_IMODE(owner.st_mode) & (0o077 if stat.S_ISDIR(status.st_mode) else 0o066)
        path.chmod((stat.S_IMODE(status.st_mode) & 0o711) | shared, follow_symlinks=True)
