"""What of an artifact directory belongs into its archive, in the archive's order; nothing is opened but the manifest.

What `fetch-artifacts` would refuse (links that lead out, devices, setuid files) is refused here, by name.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import IntegrityError
from _therock_utils._files import is_junction, kind_fault
from _therock_utils._folder import local_file_error
from _therock_utils._keys import segment_fault
from _therock_utils._source_file import SkipFileError, SourceFile
from _therock_utils._transfer_types import SkippedFile
from therock_outputs._tar_members import (
    MANIFEST,
    MAX_DEPTH,
    MAX_MANIFEST_BYTES,
    MAX_NAME_BYTES,
    HostileArchiveError,
    Subtrees,
)
from therock_outputs.text_safety import visible

if TYPE_CHECKING:
    from pathlib import Path

    from _therock_utils._cancel import CancelToken

_UNLISTED: Final = f"outside the subtrees that {MANIFEST} lists"
_DRIVE: Final = re.compile(r"[A-Za-z]:")
_WRITE_MANIFEST: Final = f"Write {MANIFEST}: one path a line, relative to the build directory, none inside another."


@dataclass(frozen=True, slots=True)
class Member:
    """One member to be. `name` is relative, "/"-separated UTF-8 text; `link` what a symbolic or hard link leads to.

    `kind`: "file", "folder", "symbolic link" or "hard link". The rest is of a file: what it must still be when it is
    read.
    """

    name: str
    kind: str
    link: str = ""
    is_executable: bool = False
    size_bytes: int = 0
    modified_ns: int = 0
    inode: int = 0


@dataclass(frozen=True, slots=True)
class ArtifactTree:
    """An artifact directory: `members` sorted by the bytes of their names, behind the manifest, which is the first."""

    folder: Path
    members: tuple[Member, ...]
    skipped: tuple[SkippedFile, ...]

    @property
    def content_bytes(self) -> int:
        """Size of all files."""
        return sum(member.size_bytes for member in self.members)


def read_artifact_tree(folder: Path, *, cancel: CancelToken) -> ArtifactTree:
    """Look at everything in `folder` that the manifest lists. A listed subtree need not be there.

    Memory: about 0.5 KB a member. Raises IntegrityError for what cannot be in an archive, LocalFileError for what
    cannot be read, CancelledError.
    """
    walk = _Walk(folder, _listed_subtrees(folder, cancel))
    folders = [("", "")]
    while folders:
        cancel.check()
        folders.extend(walk.read_folder(*folders.pop()))
    return walk.result()


def name_fault(name: str) -> str:
    """Why no reader takes a member of this relative name, or ""."""
    segments = name.split("/")
    fault = next(filter(None, map(segment_fault, segments)), "")
    if not fault and len(segments) > MAX_DEPTH:
        fault = f"it has more than {MAX_DEPTH} segments"
    if not fault and len(name.encode()) > MAX_NAME_BYTES:
        fault = f"it has more than {MAX_NAME_BYTES} bytes"
    return fault


def link_fault(target: str, *, depth: int) -> str:
    """Why no reader takes a symbolic link to `target`, `depth` folders below its subtree's root, or "".

    Lexical, and safe against chains of links: it may climb as far as the root, and only at its beginning.
    """
    if target.startswith("/") or _DRIVE.match(target):
        return "it leads to an absolute path"
    segments = [segment for segment in target.split("/") if segment not in {"", "."}]
    climbs = next((number for number, segment in enumerate(segments) if segment != ".."), len(segments))
    if climbs > depth or ".." in segments[climbs:]:
        return "it leads out of its subtree, or climbs behind a folder's name"
    return name_fault("/".join(segments[climbs:])) if segments[climbs:] else ""


def refusal(folder: Path, why: str, remedy: str) -> IntegrityError:
    """The artifact in `folder` cannot be archived as it is."""
    return IntegrityError(f"the artifact {visible(folder.name)} cannot be archived", why=why, remedy=remedy)


def _ancestors(path: str) -> list[str]:
    segments = path.split("/")
    return ["/".join(segments[:length]) for length in range(1, len(segments))]


def _listed_subtrees(folder: Path, cancel: CancelToken) -> tuple[str, ...]:
    """What the manifest lists, by the rules of the reader. Raises IntegrityError with the remedy."""
    try:
        with SourceFile.open(folder / MANIFEST) as source:
            if source.size_bytes > MAX_MANIFEST_BYTES:
                raise refusal(folder, f"its {MANIFEST} has more than {MAX_MANIFEST_BYTES:,} bytes", _WRITE_MANIFEST)
            data = b"".join(source.chunks(cancel))
        return Subtrees.parse(folder, data).names
    except SkipFileError as error:
        is_missing = not os.path.lexists(folder / MANIFEST)
        why = f"it has no {MANIFEST}" if is_missing else f"its {MANIFEST} cannot be used: {error.reason}"
        raise refusal(folder, why, _WRITE_MANIFEST) from error
    except HostileArchiveError as error:
        raise refusal(folder, f"its {MANIFEST} cannot be used: {error.rule}", _WRITE_MANIFEST) from error


class _Walk:
    def __init__(self, folder: Path, subtrees: tuple[str, ...]) -> None:
        self._folder = folder
        self._subtrees = frozenset(subtrees)
        self._on_the_way = frozenset(above for subtree in subtrees for above in _ancestors(subtree))
        self._members: list[Member] = []
        self._identities: dict[str, tuple[int, int]] = {}  # device and inode of files with several names
        self._skipped: list[SkippedFile] = []

    def result(self) -> ArtifactTree:
        """Everything, in order; of several names of one file, the first carries the data."""
        members = sorted(self._members, key=lambda member: (member.name != MANIFEST, member.name.encode()))
        if not members or members[0].name != MANIFEST:
            raise changed(self._folder, MANIFEST)
        first: dict[tuple[int, int], str] = {}
        for number, member in enumerate(members):
            identity = self._identities.get(member.name)
            if identity is None:
                continue
            name = first.setdefault(identity, member.name)
            if name != member.name:
                members[number] = Member(member.name, "hard link", name, member.is_executable)
        skipped = sorted(self._skipped, key=lambda file: file.path)
        return ArtifactTree(self._folder, tuple(members), tuple(skipped))

    def read_folder(self, relative: str, subtree: str) -> list[tuple[str, str]]:
        """Take the entries of a folder that is in `subtree`, or in none; those of its folders that are to be read."""
        try:
            with os.scandir(self._folder / relative) as entries:
                return [folder for entry in entries for folder in self._take(entry, relative, subtree)]
        except FileNotFoundError as error:
            raise changed(self._folder, relative) from error
        except OSError as error:
            raise local_file_error(self._folder / relative, "read", error) from error

    def _take(self, entry: os.DirEntry[str], parent: str, subtree: str) -> list[tuple[str, str]]:
        name = f"{parent}/{entry.name}" if parent else entry.name
        if name in self._subtrees:
            subtree = name
        is_manifest = name == MANIFEST
        if not (subtree or is_manifest or name in self._on_the_way):
            self._skipped.append(SkippedFile(visible(name), _UNLISTED))
            return []
        try:
            status = os.lstat(entry.path)  # not the entry's own: on Windows that knows neither inode nor links
        except FileNotFoundError as error:
            raise changed(self._folder, name) from error
        is_folder = stat.S_ISDIR(status.st_mode) and not is_junction(status)
        if is_manifest:
            self._add_file(name, status)
        elif not is_folder and (name == subtree or not subtree):
            kind = kind_fault(status.st_mode) or "a file"
            raise refusal(self._folder, f"{visible(name)} is {kind}, where a folder is listed", _WRITE_MANIFEST)
        elif subtree:
            self._add(name, status, subtree)
        return [(name, subtree)] if is_folder else []

    def _add(self, name: str, status: os.stat_result, subtree: str) -> None:
        fault = name_fault(name)
        if fault:
            raise refusal(self._folder, f"the name {visible(name)} cannot be kept: {fault}", "Rename it.")
        if is_junction(status):
            raise refusal(self._folder, f"{visible(name)} is a junction", "Put the files themselves there.")
        if stat.S_ISDIR(status.st_mode):
            self._members.append(Member(name, "folder"))
        elif stat.S_ISLNK(status.st_mode):
            self._add_link(name, subtree)
        elif stat.S_ISREG(status.st_mode):
            self._add_file(name, status)
        else:
            raise refusal(self._folder, f"{visible(name)} is {kind_fault(status.st_mode)}", "Remove it.")

    def _add_file(self, name: str, status: os.stat_result) -> None:
        if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
            remedy = "Take the bit away (chmod ug-s): fetch-artifacts refuses such an archive."
            raise refusal(self._folder, f"{visible(name)} is a setuid or setgid file", remedy)
        if status.st_nlink > 1 and name != MANIFEST:
            self._identities[name] = (status.st_dev, status.st_ino)
        is_executable = bool(status.st_mode & stat.S_IXUSR)
        self._members.append(Member(name, "file", "", is_executable, status.st_size, status.st_mtime_ns, status.st_ino))

    def _add_link(self, name: str, subtree: str) -> None:
        try:
            target = os.readlink(self._folder / name)  # noqa: PTH115 - a Path would change "./x" and "x/"
        except OSError as error:
            raise changed(self._folder, name) from error
        target = target.replace(os.sep, "/")
        fault = link_fault(target, depth=name.count("/") - subtree.count("/") - 1)
        if fault:
            why = f"the symbolic link {visible(name)} -> {visible(target)} cannot be kept: {fault}"
            remedy = "Make it relative, and let it lead to something in the same subtree: else no archive is safe."
            raise refusal(self._folder, why, remedy)
        self._members.append(Member(name, "symbolic link", target))


def changed(folder: Path, name: str) -> IntegrityError:
    """Something of the artifact is no longer what it was when the folder was looked at."""
    why = f"{visible(name) or 'its folder'} changed or vanished meanwhile"
    return refusal(folder, why, "Archive after whatever writes it has finished.")
