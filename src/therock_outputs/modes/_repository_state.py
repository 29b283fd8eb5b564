"""What is stored of a package repository, as one round of publishing sees it."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from _therock_utils._errors import BucketNotFoundError, IntegrityError, NotFoundError
from _therock_utils._keys import quote
from _therock_utils._transfer_types import DownloadItem, StoredBytes
from therock_outputs.package_repository import Package, PoolFile
from therock_outputs.report import in_one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from _therock_utils._cancel import CancelToken
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.package_repository import RepositoryKind


@dataclass(frozen=True, slots=True)
class State:
    """The commit, the packages that it names, the pool, and the sizes of what lies outside it, by location.

    `damage` says why the metadata that the commit names cannot be used, or "": then `packages` is empty, and `sizes`,
    too, because nothing of them can be relied on.
    """

    commit: StoredBytes | None
    packages: tuple[Package, ...]
    pool: tuple[PoolFile, ...]
    sizes: Mapping[StorageLocation, int]
    damage: str = ""


class StateReader:
    """Reads the repository of one kind."""

    def __init__(self, backend: StorageBackend, kind: RepositoryKind, cancel: CancelToken) -> None:
        """Nothing is read yet."""
        self._backend = backend
        self._kind = kind
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
            return State(commit, (), tuple(pool), {}, in_one_line(error))
        return State(commit, packages, tuple(pool), sizes)

    def look_into(self, file: PoolFile, scratch: Path) -> Package | None:
        """Fetch a file of the pool and inspect it; None where it is gone.

        Raises IntegrityError where it is no sound package, and other OutputsErrors where it cannot be fetched.
        """
        path = scratch / f"unnamed{self._kind.extension}"
        try:
            self._fetch([DownloadItem(self._kind.pool.child(file.name), path)])
            return self._kind.inspect(path, file_name=file.name, cancel=self._cancel)
        except BucketNotFoundError:
            raise
        except NotFoundError:
            return None
        finally:
            with contextlib.suppress(OSError):  # the whole folder goes in the end
                path.unlink()

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
        self._fetch(items)
        return self._kind.read({item.location: item.target for item in items}, cancel=self._cancel)

    def _fetch(self, items: Iterable[DownloadItem]) -> None:
        result = self._backend.download(list(items), cancel=self._cancel)
        if result.failed:
            self._cancel.check()
            raise result.failed[0].error
