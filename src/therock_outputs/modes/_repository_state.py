"""What is stored of a package repository, as one round of publishing sees it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from _therock_utils._errors import BucketNotFoundError, IntegrityError, NotFoundError
from _therock_utils._keys import quote
from _therock_utils._transfer_types import DownloadItem, StoredBytes
from therock_outputs.modes._repository_names import ANOTHERS
from therock_outputs.package_repository import Package, PoolFile
from therock_outputs.report import in_one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from _therock_utils._cancel import CancelToken
    from _therock_utils._transfer_types import FailedItem
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.modes._repository_names import NameRecords
    from therock_outputs.package_repository import RepositoryKind


@dataclass(frozen=True, slots=True)
class State:
    """The commit, the packages that it names, the pool, and the sizes of what lies outside it, by location.

    `doubted` says of each entry that is not among `packages` why it is not believed. `damage` says why the metadata
    that the commit names cannot be used, or "": then `packages` is empty, and `sizes`, too, because nothing of them can
    be relied on.
    """

    commit: StoredBytes | None
    packages: tuple[Package, ...]
    pool: tuple[PoolFile, ...]
    sizes: Mapping[StorageLocation, int]
    doubted: tuple[str, ...] = ()
    damage: str = ""


class StateReader:
    """Reads the repository of one kind, whose entries are compared with the records of their file names."""

    def __init__(self, backend: StorageBackend, kind: RepositoryKind, names: NameRecords, cancel: CancelToken) -> None:
        """Nothing is read yet."""
        self._backend = backend
        self._kind = kind
        self._names = names
        self._cancel = cancel

    def read(self, scratch: Path) -> State:
        """The commit first, and the listing after it: whatever this commit names was stored before.

        `scratch` is an empty folder, to which the metadata files are fetched. Raises OutputsErrors where something
        cannot be read; what is lost or damaged is `damage`.
        """
        commit = self._backend.read_small(self._kind.commit, cancel=self._cancel)
        pool: list[PoolFile] = []
        sizes: dict[StorageLocation, int] = {}
        for listed in self._backend.list_objects(self._kind.root, cancel=self._cancel):
            location = listed.location
            if location.parent == self._kind.pool and location.name.endswith(self._kind.extension):
                pool.append(PoolFile(location.name, listed.size_bytes, listed.modified))
            else:
                sizes[location] = listed.size_bytes
        if commit is None:
            return State(None, (), tuple(pool), sizes)
        try:
            packages = self._packages(commit.data, sizes, scratch)
        except BucketNotFoundError:
            raise
        except (IntegrityError, NotFoundError) as error:
            return State(commit, (), tuple(pool), {}, damage=in_one_line(error))
        faults = self._faults(packages)
        believed = tuple(package for package, fault in zip(packages, faults, strict=True) if not fault)
        return State(commit, believed, tuple(pool), sizes, tuple(fault for fault in faults if fault))

    def look_into(self, files: Sequence[PoolFile], scratch: Path) -> tuple[Package | IntegrityError | None, ...]:
        """Fetch these files of the pool together and inspect them. None for one that is gone by now.

        IntegrityError for one that is no sound package. Raises other OutputsErrors where one cannot be fetched. Disk:
        all of them at once.
        """
        items = [
            DownloadItem(self._kind.pool.child(file.name), scratch / f"unnamed-{number}{self._kind.extension}")
            for number, file in enumerate(files)
        ]
        try:
            failed = {item.location: item for item in self._backend.download(items, cancel=self._cancel).failed}
            return tuple(
                self._inspected(item, file.name, failed.get(item.location))
                for item, file in zip(items, files, strict=True)
            )
        finally:
            for item in items:
                with contextlib.suppress(OSError):  # the whole folder goes in the end
                    item.target.unlink()

    def _inspected(self, item: DownloadItem, name: str, failed: FailedItem | None) -> Package | IntegrityError | None:
        self._cancel.check()
        if failed is not None and isinstance(failed.error, NotFoundError):
            if isinstance(failed.error, BucketNotFoundError):
                raise failed.error
            return None
        try:
            if failed is not None:
                raise failed.error
            package = self._kind.inspect(item.target, file_name=name, cancel=self._cancel)
        except IntegrityError as error:
            return error
        recorded = self._names.digests([name]).get(name, ANOTHERS)
        if recorded in {ANOTHERS, package.sha256}:
            return package
        why = f"its name is reserved for a file of SHA-256 {recorded}"
        return IntegrityError(f"{quote(name)} is another file than it should be", why=why)

    def _packages(self, commit: bytes, sizes: Mapping[StorageLocation, int], scratch: Path) -> tuple[Package, ...]:
        references = self._kind.referenced(commit)
        for reference in references:
            if sizes.get(reference.location) != reference.size_bytes:
                name = quote(reference.location.relative_path)
                raise IntegrityError(f"{name} is not stored, or has another size than its repository says")
        items = [
            DownloadItem(reference.location, scratch / f"{number}-{reference.location.name}", reference.sha256)
            for number, reference in enumerate(references)
        ]
        result = self._backend.download(items, cancel=self._cancel)
        if result.failed:
            self._cancel.check()
            raise result.failed[0].error
        return self._kind.read({item.location: item.target for item in items}, cancel=self._cancel)

    def _faults(self, packages: Sequence[Package]) -> tuple[str, ...]:
        """Why each entry is not believed, or ""."""
        digests = self._names.digests(package.file_name for package in packages)
        return tuple(self._fault(package, digests.get(package.file_name, package.sha256)) for package in packages)

    def _fault(self, package: Package, recorded: str) -> str:
        fault = self._kind.entry_fault(package)
        if fault:
            return f"the metadata's entry of {package.file_name} cannot be used: {fault}"
        if recorded not in {ANOTHERS, package.sha256}:  # a record that cannot be read says nothing
            return f"the metadata's entry of {package.file_name} has another digest than its name is reserved for"
        return ""
