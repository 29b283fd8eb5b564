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
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from _therock_utils._transfer_types import ListedObject
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.modes._upload import Uploader

FindLinks = Literal["write", "refresh", "none"]
"""Whether the page for --find-links is written, written where there is one, or left to others."""

Listing = dict["StorageLocation", "ListedObject"]
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
    """Lists what lies below `base`, and knows what is said of packages. Memory: about 1 KB a package.

    A statement counts only for the very object that it was made of: another job may have replaced that by one of the
    same size, and ended before it wrote its pages.
    """

    def __init__(self, uploader: Uploader, base: StorageLocation, own: OwnPackages) -> None:
        self._uploader = uploader
        self._base = base
        self._own = own
        self._own_versions: dict[StorageLocation, str] = {}
        self._known: dict[tuple[StorageLocation, str], PackageEntry] = {}
        self._unversioned: dict[StorageLocation, PackageEntry] = {}  # of pages, which name no version: the last resort

    def list_all(self) -> Listing | None:
        """The packages, metadata files and simple pages below `base`; None, with a notice, where it is refused."""
        if self._uploader.context.settings.dry_run:
            return None
        try:
            listing = {
                listed.location: listed
                for listed in self._uploader.backend.list_objects(self._base, cancel=self._uploader.context.cancel)
                if _matters(listed.location)
            }
        except (NotPermittedError, ServiceUnavailableError) as error:
            notice = (
                f"{self._base.s3_uri} cannot be listed, so its pages may lack what others stored: {in_one_line(error)}"
            )
            self._uploader.result += UploadResult(notices=(notice,))
            return None
        for at, entry in self._own.entries.items():
            # The first that is seen is this run's; a later one of the same size is another job's.
            if at in listing and listing[at].size_bytes == entry.size_bytes:
                self._own_versions.setdefault(at, _version_of(listing[at]))
        return listing

    def learn(self, entries: Entries) -> None:
        """Note what a document says of packages."""
        for at, entry in entries.items():
            if entry.sha256 and not entry.object_version:
                self._unversioned[at] = entry
            key = (at, entry.object_version)
            if entry.object_version and not (key in self._known and self._known[key].sha256):
                self._known[key] = entry

    def entries(self, repository: Repository, listing: Listing) -> list[PackageEntry]:
        """What the repository holds."""
        found: dict[str, PackageEntry] = {}
        for at, listed in listing.items():
            is_generic = at.parent == repository.generic
            if self._is_of(repository, at) and not (is_generic and at.name in found):
                entry = self._entry(listed)
                if entry is not None:
                    metadata_sha256 = entry.metadata_sha256 if _metadata_of(at) in listing else ""
                    found[at.name] = dataclasses.replace(entry, is_generic=is_generic, metadata_sha256=metadata_sha256)
        return sorted(found.values())

    def said_entries(self, repository: Repository, said: Entries) -> list[PackageEntry]:
        """What it holds for all that documents say and this run knows, where nothing can be listed."""
        found: dict[str, PackageEntry] = {}
        for at, entry in (said | dict(self._own.entries)).items():
            is_generic = at.parent == repository.generic
            if self._is_of(repository, at) and not (is_generic and at.name in found and not found[at.name].is_generic):
                found[at.name] = dataclasses.replace(entry, is_generic=is_generic)
        return sorted(found.values())

    def _is_of(self, repository: Repository, at: StorageLocation) -> bool:
        return at.parent in {repository.folder, repository.generic} and at not in self._own.unsound

    def _entry(self, listed: ListedObject) -> PackageEntry | None:
        """What is known of the object that is listed."""
        at, version = listed.location, _version_of(listed)
        own = self._own.entries.get(at)
        if own is not None and self._own_versions.get(at) == version:
            return dataclasses.replace(own, object_version=version)
        known = self._known.get((at, version))
        if known is not None and not known.sha256:
            known = self._last_resort(listed, version) or known
        return known if known is not None and known.size_bytes == listed.size_bytes else None

    def _last_resort(self, listed: ListedObject, version: str) -> PackageEntry | None:
        """What a page says of the object, where no list knows another object of that name."""
        said = self._unversioned.get(listed.location)
        if said is None or said.size_bytes != listed.size_bytes:
            return None
        if any(place == listed.location and other != version for place, other in self._known):
            return None
        return dataclasses.replace(said, object_version=version)

    def look_up(self, repositories: Iterable[Repository], listing: Listing) -> None:
        """Ask the service about packages of which nothing is known but name and size: once in a run."""
        folders = {folder for one in repositories for folder in (one.folder, one.generic)}
        unknown = [
            listed
            for at, listed in listing.items()
            if at.parent in folders and package_name(at.name) and self._entry(listed) is None
        ]
        if not unknown:
            return
        backend, cancel = self._uploader.backend, self._uploader.context.cancel
        facts = backend.describe([listed.location for listed in unknown], cancel=cancel)
        metadata = self._read_metadata([listed for listed in unknown if _has_metadata(listed, listing)])
        for listed, fact in zip(unknown, facts, strict=True):
            at, version = listed.location, _version_of(listed)
            is_known = isinstance(fact, ObjectFacts) and fact.size_bytes == listed.size_bytes
            found = metadata_of(metadata.get(at, b""))
            self._known[at, version] = PackageEntry(
                at.name,
                listed.size_bytes,
                fact.sha256 if isinstance(fact, ObjectFacts) and is_known else "",
                found.requires_python,
                sha256_of(found.data) if found.data else "",
                object_version=version if is_known else "",  # else another job asks again
            )

    def _read_metadata(self, wheels: Sequence[ListedObject]) -> dict[StorageLocation, bytes]:
        """The metadata files of these, by the wheel's place; those that cannot be read are left out."""
        backend, cancel = self._uploader.backend, self._uploader.context.cancel
        found: dict[StorageLocation, bytes] = {}
        for start in range(0, len(wheels), _READ_AT_ONCE):
            places = [listed.location for listed in wheels[start : start + _READ_AT_ONCE]]
            answers = backend.read_all_small([_metadata_of(at) for at in places], cancel=cancel)
            found |= {at: one.data for at, one in zip(places, answers, strict=True) if isinstance(one, StoredBytes)}
        return found


def _version_of(listed: ListedObject) -> str:
    """What names this version of the object: its etag; its time in a folder, where there is none."""
    return listed.etag or listed.modified.isoformat()


def _has_metadata(listed: ListedObject, listing: Listing) -> bool:
    """Whether it has a metadata file that was stored after it: an older one is that of what lay there before."""
    metadata = listing.get(_metadata_of(listed.location))
    return metadata is not None and metadata.modified >= listed.modified


def _matters(at: StorageLocation) -> bool:
    """Whether it is a package, a metadata file or a page of a simple repository."""
    if at.name == INDEX_NAME:
        return SIMPLE_NAME in {at.parent.name, at.parent.parent.name}
    return is_package(at.name.removesuffix(METADATA_SUFFIX))


def _metadata_of(at: StorageLocation) -> StorageLocation:
    return at.parent.child(f"{at.name}{METADATA_SUFFIX}")
