"""Merges one tree of files into another by renames, through no symbolic link."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import LocalFileError
from _therock_utils._files import is_junction, kind_fault
from _therock_utils._folder import BlockedPathError, Folder
from _therock_utils._keys import quote
from therock_outputs._folder_entries import enter, move, names, read_link
from therock_outputs.text_safety import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_BUFFER_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Step:
    """One move of a merge: `brought` to where `found` is (None: nothing), at `path` relative to the tree's root."""

    source: Folder
    target: Folder
    name: str
    path: str
    brought: os.stat_result
    found: os.stat_result | None


class Merge:
    """Merges what one artifact brings into a tree; `owners` says which artifact brought what is there."""

    def __init__(self, artifact: str, owners: dict[str, str]) -> None:
        self.artifact = artifact
        self._owners = owners
        self._replaced_count = 0
        self._first_replaced = ("", "")

    def check(self, source: Folder, target: Folder, wanted: Sequence[str], prefix: str = "") -> None:
        """Find out what `apply` would meet: `wanted` are names in `source`, `prefix` is the way to it with a "/".

        Raises LocalFileError where one of a file and a folder would have to replace the other, OSError.
        """
        for step in _steps(source, target, wanted, prefix):
            if step.found is None:
                continue
            is_pair = is_folder(step.found) == is_folder(step.brought)
            if not is_pair or not (stat.S_ISREG(step.found.st_mode) or stat.S_ISLNK(step.found.st_mode)):
                raise self.conflict(step.path, description(step.found), description(step.brought))
            owner = self._owner(step.path)
            if owner and not _is_same(step):
                self._replaced_count += 1
                self._first_replaced = self._first_replaced if self._first_replaced[0] else (step.path, owner)

    def apply(self, source: Folder, target: Folder, wanted: Sequence[str], prefix: str = "") -> None:
        """Move `wanted`. Raises OSError."""
        for step in _steps(source, target, wanted, prefix):
            move(step.source, step.name, step.target, step.name)
            self._owners[step.path] = self.artifact

    def warnings(self) -> tuple[str, ...]:
        """At most one: what was replaced of other artifacts."""
        if not self._replaced_count:
            return ()
        path, owner = self._first_replaced
        paths = count(self._replaced_count, "path")
        first = f"the first is {quote(path)} of {quote(owner)}"
        return (f"{quote(self.artifact)} replaces the content of {paths} that artifacts before it brought; {first}",)

    @contextlib.contextmanager
    def opened(self, root: Path, way: Sequence[str]) -> Iterator[Folder | None]:
        """The folder `way` below `root`; None where there is none. Raises LocalFileError where something blocks it."""
        try:
            folder = Folder.open_below(root, way)
        except FileNotFoundError:
            folder = None
        except BlockedPathError as error:
            found = "a symbolic link" if error.is_link else "a file"
            raise self.conflict(error.path.relative_to(root).as_posix(), found, "a folder") from error
        with folder or contextlib.nullcontext():
            yield folder

    def conflict(self, path: str, found: str, wanted: str) -> LocalFileError:
        """The error for `found` at `path`, where this artifact brings `wanted`."""
        owner = self._owner(path)
        return LocalFileError(
            f"{quote(path)} of the artifact {quote(self.artifact)} cannot be placed",
            why=f"it is {wanted}, and {f'{quote(owner)} brought' if owner else 'there is'} {found} of that name",
            remedy="Fetch the two into different folders." if owner else "Remove it, or choose another output_dir.",
        )

    def _owner(self, path: str) -> str:
        while path:
            if path in self._owners:
                return self._owners[path]
            path = path.rpartition("/")[0]
        return ""


def _steps(source: Folder, target: Folder, wanted: Sequence[str], prefix: str) -> Iterator[_Step]:
    """What must be moved so that `target` gets `wanted`: whole folders where none is there yet."""
    for name in wanted:
        brought, found = source.lookup(name), target.lookup(name)
        if brought is None:
            continue
        path = prefix + name
        if found is not None and is_folder(brought) and is_folder(found):
            with enter(source, name) as inner, enter(target, name) as outer:
                yield from _steps(inner, outer, names(inner), f"{path}/")
        else:
            yield _Step(source, target, name, path, brought, found)


def _is_same(step: _Step) -> bool:
    """Whether what is moved has the content of the file or link that it replaces."""
    assert step.found is not None  # noqa: S101 - its caller knows
    modes = {stat.S_IFMT(step.brought.st_mode), stat.S_IFMT(step.found.st_mode)}
    if modes == {stat.S_IFLNK}:
        return read_link(step.source, step.name) == read_link(step.target, step.name)
    if modes != {stat.S_IFREG} or step.brought.st_size != step.found.st_size:
        return False
    with (
        os.fdopen(step.source.open_to_read(step.name), "rb", buffering=0) as one,
        os.fdopen(step.target.open_to_read(step.name), "rb", buffering=0) as other,
    ):
        while (data := one.read(_BUFFER_BYTES)) == other.read(_BUFFER_BYTES):
            if not data:
                return True
    return False


def is_folder(status: os.stat_result) -> bool:
    """Whether it is a folder and leads nowhere else."""
    return stat.S_ISDIR(status.st_mode) and not is_junction(status)


def description(status: os.stat_result) -> str:
    """What it is, with its article."""
    return "a junction" if is_junction(status) else kind_fault(status.st_mode) or "a file"
