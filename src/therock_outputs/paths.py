"""Paths as the job writes them, mapped to where this process sees them.

A container action gets the workspace mounted elsewhere, and the runner translates a path only at the start of an
environment value (runner documentation, "Docker container actions").
"""

from __future__ import annotations

import os
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

    def is_seen_by_job(self, path: Path, *, runner_temp: str) -> bool:
        """Whether what is written to `path` outlives the step: a container shares the workspace and RUNNER_TEMP."""
        shared = (self.folder, *([Path(runner_temp)] if runner_temp else []))
        return not self.other_names or any(path.is_relative_to(folder) for folder in shared)
