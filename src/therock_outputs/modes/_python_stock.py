"""What lies in the folders of Python packages, and what is known of each package that others stored there."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from _therock_utils._errors import NotPermittedError, ServiceUnavailableError
from _therock_utils._transfer_types import ObjectFacts, StoredBytes, UploadResult
from _therock_utils.workflow_outputs import INDEX_NAME, SIMPLE_NAME
from therock_outputs.python_packages import METADATA_SUFFIX, is_package, metadata_of, package_name
from therock_outputs.report import in_one_line
from therock_outputs.simple_pages import PackageEntry, sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.modes._upload import Uploader

FindLinks = Literal["write", "refresh", "none"]
"""Whether the page for --find-links is written, written where there is one, or left to others."""

Sizes = dict["StorageLocation", int]
Entries = dict["StorageLocation", PackageEntry]

_READ_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class Repository:
    """A folder of packages with its pages; `generic`: the folder above, whose packages it names, too.

    `projects`: those whose documents are made; None means all.
    """

    folder: StorageLocation
    title: str
    generic: StorageLocation | None = None
    find_links: FindLinks = "write"
    projects: frozenset[str] | None = None

    @property
    def page(self) -> StorageLocation:
        """The page for --find-links."""
        return self.folder.child(INDEX_NAME)

    @property
    def simple(self) -> StorageLocation:
        """The root of the simple repository."""
        return self.folder.child(SIMPLE_NAME)

    def place(self, entry: PackageEntry) -> StorageLocation:
        """Where the package of an entry lies."""
        return (self.generic if entry.is_generic and self.generic else self.folder).child(entry.file_name)


@dataclass(frozen=True, slots=True)
class OwnPackages:
    """What this run stored, by place, and the places of what is not to be on any page."""

    entries: Mapping[StorageLocation, PackageEntry]
    unsound: AbstractSet[StorageLocation]


class PackageStock:
    """Lists what lies below `base`, and asks about packages that nothing is known of. Memory: about 1 KB a package."""

    def __init__(self, uploader: Uploader, base: StorageLocation, own: OwnPackages) -> None:
        self._uploader = uploader
        self._base = base
        self._own = own
        self._looked_up: dict[tuple[StorageLocation, int], PackageEntry] = {}

    def list_all(self) -> Sizes | None:
        """Sizes of packages, metadata files and simple pages below `base`; None, with a notice, where it is refused."""
        if self._uploader.context.settings.dry_run:
            return None
        try:
            return {
                listed.location: listed.size_bytes
                for listed in self._uploader.backend.list_objects(self._base, cancel=self._uploader.context.cancel)
                if _matters(listed.location)
            }
        except (NotPermittedError, ServiceUnavailableError) as error:
            notice = (
                f"{self._base.s3_uri} cannot be listed, so its pages may lack what others stored: {in_one_line(error)}"
            )
            self._uploader.result += UploadResult(notices=(notice,))
            return None

    def entries(self, repository: Repository, sizes: Sizes | None, known: Entries) -> list[PackageEntry]:
        """What the repository holds; where it cannot be listed, what is known of it."""
        found: dict[str, PackageEntry] = {}
        if sizes is None:
            sizes = {at: entry.size_bytes for at, entry in (known | dict(self._own.entries)).items()}
            metadata_there = None
        else:
            metadata_there = sizes
        for at, size_bytes in sizes.items():
            is_generic = at.parent == repository.generic
            if not (is_generic or at.parent == repository.folder) or at in self._own.unsound:
                continue
            entry = self._entry(at, size_bytes, known)
            if entry is None or (is_generic and entry.file_name in found and not found[entry.file_name].is_generic):
                continue
            if metadata_there is not None and _metadata_of(at) not in metadata_there:
                entry = dataclasses.replace(entry, metadata_sha256="")
            found[entry.file_name] = dataclasses.replace(entry, is_generic=is_generic)
        return sorted(found.values())

    def _entry(self, at: StorageLocation, size_bytes: int, known: Entries) -> PackageEntry | None:
        for entry in (self._own.entries.get(at), known.get(at), self._looked_up.get((at, size_bytes))):
            if entry is not None and entry.size_bytes == size_bytes:
                return entry
        return None

    def look_up(self, repositories: Iterable[Repository], sizes: Sizes | None, known: Entries) -> None:
        """Ask the service about packages of which nothing is known but name and size: once in a run."""
        folders = {folder for one in repositories for folder in (one.folder, one.generic)}
        unknown = [
            at
            for at, size_bytes in (sizes or {}).items()
            if at.parent in folders and package_name(at.name) and self._entry(at, size_bytes, known) is None
        ]
        if not unknown or sizes is None:
            return
        backend, cancel = self._uploader.backend, self._uploader.context.cancel
        facts = backend.describe(unknown, cancel=cancel)
        digests = {
            at: fact.sha256
            for at, fact in zip(unknown, facts, strict=True)
            if isinstance(fact, ObjectFacts) and fact.size_bytes == sizes[at]
        }
        wheels = [at for at in unknown if _metadata_of(at) in sizes]
        metadata: dict[StorageLocation, bytes] = {}
        for start in range(0, len(wheels), _READ_AT_ONCE):
            chunk = wheels[start : start + _READ_AT_ONCE]
            answers = backend.read_all_small([_metadata_of(at) for at in chunk], cancel=cancel)
            metadata |= {at: a.data for at, a in zip(chunk, answers, strict=True) if isinstance(a, StoredBytes)}
        for at in unknown:
            data = metadata.get(at)
            self._looked_up[at, sizes[at]] = PackageEntry(
                at.name,
                sizes[at],
                digests.get(at, ""),
                metadata_of(data).requires_python if data is not None else "",
                sha256_of(data) if data is not None else "",
            )


def _matters(at: StorageLocation) -> bool:
    """Whether it is a package, a metadata file or a page of a simple repository."""
    if at.name == INDEX_NAME:
        return SIMPLE_NAME in {at.parent.name, at.parent.parent.name}
    return is_package(at.name.removesuffix(METADATA_SUFFIX))


def _metadata_of(at: StorageLocation) -> StorageLocation:
    return at.parent.child(f"{at.name}{METADATA_SUFFIX}")
