"""This job's package files: inspected, and each given its name in the pool, before anything is stored."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from _therock_utils._errors import ConflictError, IntegrityError, OutputsError
from _therock_utils._keys import quote
from _therock_utils._transfer_types import Conflict, FailedItem, StoredObject, UploadItem
from _therock_utils.content_types import infer_content_type
from therock_outputs.package_repository import identity_twice, name_beside

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from _therock_utils._cancel import CancelToken
    from _therock_utils._transfer_types import OnConflict, Verified
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.context import Context
    from therock_outputs.package_repository import Package, RepositoryKind


@dataclass(frozen=True, slots=True)
class OwnFile:
    """One package file of this job. `stored` is what is stored of it already: the same bytes, not to be sent again."""

    path: Path
    package: Package
    stored: StoredObject | None = None

    def item(self, pool: StorageLocation) -> UploadItem:
        """It, as something to store."""
        return UploadItem(self.path, pool.child(self.package.file_name))

    def renamed(self, file_name: str) -> OwnFile:
        """The same file under another name in the pool."""
        return dataclasses.replace(self, package=dataclasses.replace(self.package, file_name=file_name))


@dataclass(frozen=True, slots=True)
class Inspected:
    """What came of a look at the job's files: all of them sound, or `failed`, and then nothing is to be stored."""

    files: tuple[OwnFile, ...] = ()
    failed: tuple[FailedItem, ...] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """The files and their names in the pool; and what is told about those whose own name other bytes have."""

    files: tuple[OwnFile, ...] = ()
    failed: tuple[FailedItem, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    warnings: tuple[str, ...] = ()


def inspect_files(context: Context, kind: RepositoryKind, paths: Iterable[Path]) -> Inspected:
    """Read every file. Raises CancelledError; whatever else is wrong with one is its failure."""
    files: list[OwnFile] = []
    failed: list[FailedItem] = []
    for path in paths:
        context.cancel.check()
        try:
            package = kind.inspect(path, file_name=path.name, cancel=context.cancel)
        except OutputsError as error:
            context.cancel.check()
            failed.append(FailedItem(path.name, kind.pool.child(path.name), error))
        else:
            files.append(OwnFile(path, package))
    twice = identity_twice(file.package for file in files)
    if twice is not None and not failed:
        first, second = twice
        one_package = IntegrityError(
            f"{quote(first.file_name)} and {quote(second.file_name)} are one package",
            why=f"both are {' '.join(second.identity)}",
            remedy="Leave one of them out with exclude, or give it another version.",
        )
        failed.append(FailedItem(second.file_name, kind.pool.child(second.file_name), one_package))
    return Inspected(failed=tuple(failed)) if failed else Inspected(tuple(files))


def place_files(
    context: Context,
    kind: RepositoryKind,
    files: Sequence[OwnFile],
    *,
    named: Mapping[str, Package],
    sizes: Mapping[str, int],
) -> Placed:
    """Give each file its name in the pool, where `sizes` are those of the files that are there, by name.

    `named` are packages that the metadata name, by file name: their SHA-256 is believed where the service keeps none. A
    file that the pool has is never replaced: the new one gets a name of its own, is left out, or all are refused, as
    `on_conflict` has it. Raises OutputsErrors where it cannot be found out what the pool has.
    """
    look = _Look(context, kind, named, sizes)
    placed: list[OwnFile] = []
    others: list[OwnFile] = []
    for file in files:
        stored = look.same(file)
        if file.package.file_name not in sizes or stored is not None:
            placed.append(dataclasses.replace(file, stored=stored))
        else:
            others.append(file)
    on_conflict: OnConflict = context.settings.on_conflict
    if others and on_conflict == "error":
        return _refused(kind, files, others)
    if on_conflict == "skip":
        return Placed(tuple(placed), conflicts=tuple(skipped(kind, file) for file in others))
    failed, warnings = [], []
    for file in others:
        moved = file.renamed(name_beside(file.package.file_name, file.package.sha256, kind.extension))
        stored = look.same(moved)
        if moved.package.file_name in sizes and stored is None:
            failed.append(FailedItem(file.path.name, moved.item(kind.pool).destination, name_is_taken(moved.package)))
        else:
            placed.append(dataclasses.replace(moved, stored=stored))
            warnings.append(named_beside(file.package, moved.package))
    return Placed(tuple(placed), tuple(failed), warnings=tuple(warnings))


def stored_sha256(backend: StorageBackend, location: StorageLocation, cancel: CancelToken, *, reads: bool) -> str:
    """Hex digest of what is stored: as the service keeps it, else "" or by reading every byte. "" where nothing is.

    Raises OutputsErrors where it cannot be found out.
    """
    (facts,) = backend.describe([location], cancel=cancel)
    if reads and facts is not None and not isinstance(facts, OutputsError) and not facts.sha256:
        (facts,) = backend.describe([location], reads=True, cancel=cancel)
    if isinstance(facts, OutputsError):
        raise facts
    return facts.sha256 if facts is not None else ""


def skipped(kind: RepositoryKind, file: OwnFile) -> Conflict:
    """What is told of a file that is left out, because the pool's own stays."""
    return Conflict(kind.pool.child(file.package.file_name), "different", "", "skipped")


def named_beside(package: Package, moved: Package) -> str:
    """What is told of a package that got a name of its own."""
    return (
        f"{package.file_name} lay in the repository with other bytes: it stays for those who know it, and the "
        f"repository now offers {moved.file_name} instead"
    )


def name_is_taken(package: Package) -> ConflictError:
    """The error for a file of which even the name made of its digest is taken."""
    return ConflictError(
        f"{package.file_name} lies in the repository with other bytes than its name says",
        remedy="Find out who wrote it, and remove it.",
    )


def _refused(kind: RepositoryKind, files: Sequence[OwnFile], others: Sequence[OwnFile]) -> Placed:
    error = ConflictError(
        f"no package was stored, because {len(others)} of {len(files)} lie in the repository with other bytes",
        why=f"the first is {quote(others[0].package.file_name)}",
        remedy="Give the packages another version, or choose on_conflict: overwrite or skip.",
    )
    return Placed(
        failed=tuple(FailedItem(file.path.name, file.item(kind.pool).destination, error) for file in files),
        conflicts=tuple(dataclasses.replace(skipped(kind, file), action="refused") for file in others),
    )


class _Look:
    """Finds out whether the pool has a file's bytes under its name."""

    def __init__(
        self,
        context: Context,
        kind: RepositoryKind,
        named: Mapping[str, Package],
        sizes: Mapping[str, int],
    ) -> None:
        self._kind = kind
        self._named = named
        self._sizes = sizes
        self._context = context

    def same(self, file: OwnFile) -> StoredObject | None:
        """The object of these bytes under this file's name; None where there is none."""
        package, location = file.package, file.item(self._kind.pool).destination
        if self._sizes.get(package.file_name) != package.size_bytes:
            return None
        named = self._named.get(package.file_name)
        is_named = named is not None and (named.sha256, named.size_bytes) == (package.sha256, package.size_bytes)
        sha256 = stored_sha256(self._context.open_backend(), location, self._context.cancel, reads=not is_named)
        verified: Verified = "sha256-single" if sha256 else "size-only"
        if (sha256 or package.sha256) != package.sha256:
            return None
        if self._context.staging_dir is not None:
            verified = "local"
        content_type = infer_content_type(package.file_name)
        return StoredObject(location, package.size_bytes, package.sha256, content_type, verified)
