"""A repository of native packages: what apt and dnf have in common, and the decisions that do not depend on either.

A repository is a pool of package files and metadata that name them. One object, the commit, names the metadata files by
digest: whoever replaces it, replaces the whole state of the repository at once.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from _therock_utils._cancel import CancelToken
    from _therock_utils.storage_location import StorageLocation

_DIGEST_CHARACTERS: Final = 12
_RENAMED: Final = re.compile(rf"(.+)\.[0-9a-f]{{{_DIGEST_CHARACTERS}}}(\.[a-z]+)")


@dataclass(frozen=True, slots=True)
class Package:
    """One package as the metadata name it.

    `identity` is name, version (with its epoch) and architecture. `file_name` is its file's name in the pool, which
    `compose` writes whatever `record` says. `sha256` is in hex. `record` is what the kind writes metadata from.
    """

    identity: tuple[str, ...]
    file_name: str
    size_bytes: int
    sha256: str
    record: object


@dataclass(frozen=True, slots=True)
class Reference:
    """A metadata file that a commit names: where it is stored, its size and its SHA-256 in hex."""

    location: StorageLocation
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """A metadata file to be stored: where, the local file of its bytes, and its content type."""

    location: StorageLocation
    path: Path
    content_type: str


@dataclass(frozen=True, slots=True)
class Metadata:
    """One state of the metadata.

    `files` have keys made of their digests: they are stored before the commit and never replaced. `plain` are further
    copies under fixed names, for clients that know no others; they are stored after it.
    """

    files: tuple[MetadataFile, ...]
    commit: bytes
    commit_content_type: str
    plain: tuple[MetadataFile, ...] = ()


class RepositoryKind(ABC):
    """How one kind of repository below `root` reads packages, and reads and writes metadata. Asks no storage."""

    def __init__(self, root: StorageLocation) -> None:
        """`root` is the folder that WorkflowOutputRoot.native_linux_packages gives."""
        self.root = root

    @property
    @abstractmethod
    def extension(self) -> str:
        """What the names of package files end in, e.g. `.deb`."""

    @property
    @abstractmethod
    def pool(self) -> StorageLocation:
        """The folder in which all package files lie, with no folders between."""

    @property
    @abstractmethod
    def commit(self) -> StorageLocation:
        """The object that makes a state of the metadata the current one."""

    @property
    @abstractmethod
    def url(self) -> StorageLocation:
        """The folder whose URL a client is configured with."""

    @abstractmethod
    def inspect(self, path: Path, *, file_name: str, cancel: CancelToken) -> Package:
        """Read one package file, which is to be `file_name` in the pool.

        Every byte is hashed, in a stream. Raises IntegrityError for a file that is no sound package, LocalFileError
        where it cannot be read, and CancelledError.
        """

    @abstractmethod
    def referenced(self, commit: bytes) -> tuple[Reference, ...]:
        """The metadata files that `commit` names and `read` needs. Raises IntegrityError where it is no commit."""

    @abstractmethod
    def read(self, files: Mapping[StorageLocation, Path], *, cancel: CancelToken) -> tuple[Package, ...]:
        """The packages that metadata files name; the caller has compared each with its Reference.

        Raises IntegrityError for what is no sound metadata, or names a file outside the pool; and CancelledError.
        """

    def entry_fault(self, package: Package) -> str:  # noqa: ARG002 - most kinds refuse such an entry in `read`
        """Why the metadata must not name a package that `read` found in them, or ""; its file may be sound."""
        return ""

    @abstractmethod
    def compose(
        self,
        packages: Sequence[Package],
        scratch: Path,
        *,
        previous: bytes | None,
        now: datetime.datetime,
        label: str,
    ) -> Metadata:
        """Write metadata that name `packages` into the empty folder `scratch`.

        Equal packages, in any order, give equal bytes but for the date `now` (aware, UTC). Where `previous`, the commit
        that is stored, names these very files, it is the new commit, too. `label` says whose repository this is. Raises
        LocalFileError where `scratch` cannot be written.
        """


@dataclass(frozen=True, slots=True)
class PoolFile:
    """A file in the pool as a listing shows it; `modified` is aware."""

    name: str
    size_bytes: int
    modified: datetime.datetime


@dataclass(frozen=True, slots=True)
class Merged:
    """What the metadata are to name, as far as it is known without a look into the pool's files.

    `gone` are names of files that the metadata named and that are not in the pool, or have another size there.
    `missing` are packages of this job of which that is so. `unnamed` are files that no metadata name, though they may
    have to: in each group the candidates for one package, of which the first sound one counts.
    """

    packages: tuple[Package, ...]
    gone: tuple[str, ...]
    missing: tuple[Package, ...]
    unnamed: tuple[tuple[PoolFile, ...], ...]


def merge(current: Iterable[Package], own: Iterable[Package], pool: Iterable[PoolFile]) -> Merged:
    """Merge the packages that the metadata name with this job's, which win over others of the same identity.

    A file in the pool that nothing names was left by a job that crashed, or is about to finish, or the metadata were
    lost: it is `unnamed`. One that was superseded (its base name is that of a file which is named) is not.
    """
    files = {file.name: file for file in pool}
    own_all = tuple(own)
    own_there = [package for package in own_all if _is_there(package, files)]
    identities = {package.identity for package in own_there}
    names = {package.file_name for package in own_there}
    kept, superseded, gone = list(own_there), set[str](), []
    for package in current:
        if package.file_name in names:
            continue
        if not _is_there(package, files):
            gone.append(package.file_name)
        elif package.identity in identities:
            superseded.add(base_name(package.file_name))
        else:
            kept.append(package)
            identities.add(package.identity)
            names.add(package.file_name)
    named = {base_name(package.file_name) for package in kept} | superseded
    groups: dict[str, list[PoolFile]] = {}
    for file in files.values():
        if base_name(file.name) not in named:
            groups.setdefault(base_name(file.name), []).append(file)
    return Merged(
        in_order(kept),
        tuple(sorted(set(gone))),
        tuple(package for package in own_all if package not in own_there),
        tuple(tuple(sorted(groups[name], key=_newest_first)) for name in sorted(groups)),
    )


def with_found(packages: Iterable[Package], found: Iterable[tuple[PoolFile, Package]]) -> tuple[Package, ...]:
    """`packages`, and those that were found in unnamed files, of each identity the newest; the named ones win."""
    chosen = {package.identity: package for package in packages}
    for _, package in sorted(found, key=lambda pair: _newest_first(pair[0])):
        chosen.setdefault(package.identity, package)
    return in_order(chosen.values())


def in_order(packages: Iterable[Package]) -> tuple[Package, ...]:
    """By identity, then by file name: the same order whoever writes the metadata."""
    return tuple(sorted(packages, key=lambda package: (package.identity, package.file_name)))


def identity_twice(packages: Iterable[Package]) -> tuple[Package, Package] | None:
    """The first two of `packages` that have one identity, or None."""
    seen: dict[tuple[str, ...], Package] = {}
    for package in packages:
        other = seen.setdefault(package.identity, package)
        if other is not package:
            return other, package
    return None


def name_beside(file_name: str, sha256: str, extension: str) -> str:
    """The name of a file whose own name is taken by other bytes in the pool."""
    return f"{base_name(file_name).removesuffix(extension)}.{sha256[:_DIGEST_CHARACTERS]}{extension}"


def base_name(file_name: str) -> str:
    """The name without what `name_beside` put into it."""
    renamed = _RENAMED.fullmatch(file_name)
    return renamed[1] + renamed[2] if renamed else file_name


def _is_there(package: Package, files: Mapping[str, PoolFile]) -> bool:
    file = files.get(package.file_name)
    return file is not None and file.size_bytes == package.size_bytes


def _newest_first(file: PoolFile) -> tuple[float, bool, str]:
    """By time; what was renamed came after what has its base name, should a listing give them the same second."""
    return -file.modified.timestamp(), base_name(file.name) == file.name, file.name
