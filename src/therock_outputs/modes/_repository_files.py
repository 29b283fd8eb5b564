"""This job's package files: inspected, and each given its name in the pool, before anything is stored.

A name is given where it is reserved for the file's bytes (NameRecords), and the pool has no others under it.
"""

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
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from _therock_utils._transfer_types import ObjectFacts, OnConflict, Verified
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.context import Context
    from therock_outputs.modes._repository_names import NameRecords
    from therock_outputs.modes._repository_state import State
    from therock_outputs.package_repository import Package, RepositoryKind


@dataclass(frozen=True, slots=True)
class OwnFile:
    """One package file of this job. `stored` is what is stored of it already: the same bytes, not to be sent again.

    `replaces` is the SHA-256 in hex of the other build of this package that the metadata named when it got its name.
    """

    path: Path
    package: Package
    stored: StoredObject | None = None
    replaces: str = ""

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
    """The files and their names in the pool; and what is told about those of which the repository has other builds."""

    files: tuple[OwnFile, ...] = ()
    failed: tuple[FailedItem, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def has_skipped(self) -> bool:
        """Whether a file was left out because what is stored stays."""
        return any(conflict.action == "skipped" for conflict in self.conflicts)


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
    context: Context, kind: RepositoryKind, files: Sequence[OwnFile], *, state: State, names: NameRecords
) -> Placed:
    """Give each file its name in the pool, and reserve it, but in a dry run.

    A file conflicts where its name stands for other bytes, or the metadata name another build of its package. As
    `on_conflict` has it all are then refused, the file is left out, or it is to be named instead, in the first case
    under a name of its own: nothing in the pool is ever replaced. Raises OutputsErrors where it cannot be found out
    what the pool has, and where names cannot be reserved.
    """
    return _Placing(context, kind, state, names).place(files)


def offered_packages(state: State) -> dict[tuple[str, ...], Package]:
    """The builds that the metadata offer, by identity, as far as the pool has their files."""
    sizes = {file.name: file.size_bytes for file in state.pool}
    return {
        package.identity: package for package in state.packages if sizes.get(package.file_name) == package.size_bytes
    }


def skipped(kind: RepositoryKind, stays: Package) -> Conflict:
    """What is told of a file that is left out, because the repository's own, `stays`, is kept."""
    return Conflict(kind.pool.child(stays.file_name), "different", "", "skipped")


class _Placing:
    """`_stored` has what the pool has of the files that were compared, by file name and SHA-256."""

    def __init__(self, context: Context, kind: RepositoryKind, state: State, names: NameRecords) -> None:
        self._context = context
        self._kind = kind
        self._names = names
        self._named = {package.file_name: package for package in state.packages}
        self._sizes = {file.name: file.size_bytes for file in state.pool}
        self._offered = offered_packages(state)
        self._recorded: dict[str, str] = {}
        self._stored: dict[tuple[str, str], StoredObject] = {}

    def place(self, files: Sequence[OwnFile]) -> Placed:
        on_conflict: OnConflict = self._context.settings.on_conflict
        self._compare([variant for file in files for variant in (file, *self._as_offered(file))])
        placed: list[OwnFile] = []
        others: list[OwnFile] = []
        for file in files:
            at = next(filter(None, map(self._at_home, self._as_offered(file))), None) or self._at_home(file)
            if at is None or (at.replaces and on_conflict != "overwrite"):
                others.append(file)
            else:
                placed.append(at)
        # A name that is merely reserved may be that of a job which died: it is dodged. Whoever commits last decides.
        taken = [] if on_conflict == "overwrite" else [file for file in others if self._has_other_build(file)]
        if on_conflict == "error" and taken:
            return self._refused(files, taken)
        lost = self._reserve(placed)
        moved = [*(file for file in others if file not in taken), *lost]
        result = self._with_moved([file for file in placed if file not in lost], moved)
        return dataclasses.replace(result, conflicts=tuple(self._skipped(file) for file in taken))

    def _has_other_build(self, file: OwnFile) -> bool:
        return file.package.file_name in self._sizes or file.package.identity in self._offered

    def _with_moved(self, placed: list[OwnFile], others: Sequence[OwnFile]) -> Placed:
        """The files that have a name, and the others under names of their own."""
        self._compare([self._beside(file) for file in others])
        warnings = [self._instead(file) for file in placed if file.replaces]
        moved = [(file, self._at_home(self._beside(file))) for file in others]
        lost = self._reserve([at for _, at in moved if at is not None])
        failed = []
        for file, at in moved:
            if at is None or at in lost:
                item = self._beside(file).item(self._kind.pool)
                failed.append(FailedItem(file.path.name, item.destination, _name_is_taken(item.destination.name)))
            else:
                placed.append(at)
                warnings.append(self._instead(at, file.package.file_name))
        return Placed(tuple(placed), tuple(failed), warnings=tuple(warnings))

    def _as_offered(self, file: OwnFile) -> tuple[OwnFile, ...]:
        """The file under the name under which the metadata offer this very build; () where they do not."""
        offered = self._offered.get(file.package.identity)
        if offered is None or offered.sha256 != file.package.sha256 or offered.file_name == file.package.file_name:
            return ()
        return (file.renamed(offered.file_name),) if offered.file_name in self._sizes else ()

    def _beside(self, file: OwnFile) -> OwnFile:
        return file.renamed(name_beside(file.package.file_name, file.package.sha256, self._kind.extension))

    def _at_home(self, file: OwnFile) -> OwnFile | None:
        """The file, where its name does not stand for other bytes."""
        name, sha256 = file.package.file_name, file.package.sha256
        stored = self._stored.get((name, sha256))
        if self._recorded.get(name, sha256) != sha256 or (name in self._sizes and stored is None):
            return None
        offered = self._offered.get(file.package.identity)
        replaces = offered.sha256 if offered is not None and offered.sha256 != sha256 else ""
        return dataclasses.replace(file, stored=stored, replaces=replaces)

    def _reserve(self, files: Sequence[OwnFile]) -> list[OwnFile]:
        """Reserve their names; those of which another job's other bytes have it by now."""
        if self._context.settings.dry_run:
            return []
        lost = self._names.reserve({file.package.file_name: file.package.sha256 for file in files})
        return [file for file in files if file.package.file_name in lost]

    def _compare(self, files: Sequence[OwnFile]) -> None:
        """Find out what each file's name stands for, and which of them the pool has."""
        self._recorded |= self._names.digests(file.package.file_name for file in files)
        alike = {file.package.file_name: file for file in files if self._has_size_of(file)}
        found = self._described(alike.values(), reads=False)
        unknown = [file for name, file in alike.items() if name in found and not self._digest(file, found[name])]
        found |= self._described(unknown, reads=True)
        for file in files:
            package, facts = file.package, found.get(file.package.file_name)
            if facts is not None and self._has_size_of(file) and self._digest(file, facts) == package.sha256:
                self._stored[package.file_name, package.sha256] = self._as_stored(file, facts)

    def _described(self, files: Iterable[OwnFile], *, reads: bool) -> dict[str, ObjectFacts]:
        """What is stored under the files' names, by name."""
        locations = [file.item(self._kind.pool).destination for file in files]
        if not locations:
            return {}
        found: dict[str, ObjectFacts] = {}
        backend, cancel = self._context.open_backend(), self._context.cancel
        for facts in backend.describe(locations, reads=reads, cancel=cancel):
            if isinstance(facts, OutputsError):
                raise facts
            if facts is not None:
                found[facts.location.name] = facts
        return found

    def _has_size_of(self, file: OwnFile) -> bool:
        return self._sizes.get(file.package.file_name) == file.package.size_bytes

    def _digest(self, file: OwnFile, facts: ObjectFacts) -> str:
        """What is stored, as the service keeps it; where it keeps none, the metadata are believed if they agree."""
        named = self._named.get(file.package.file_name)
        agrees = named is not None and named.sha256 == file.package.sha256
        return facts.sha256 or (file.package.sha256 if agrees else "")

    def _as_stored(self, file: OwnFile, fact: ObjectFacts) -> StoredObject:
        verified: Verified = "sha256-single" if fact.sha256 else "size-only"
        if self._context.staging_dir is not None:
            verified = "local"
        package = file.package
        content_type = infer_content_type(package.file_name)
        return StoredObject(fact.location, package.size_bytes, package.sha256, content_type, verified)

    def _instead(self, file: OwnFile, own_name: str = "") -> str:
        """What is told of a file that the metadata are to name instead of another; it was called `own_name`."""
        if not own_name:
            offered = self._offered[file.package.identity].file_name
            before = f"the repository offered another build of this version, {offered}: it"
        elif own_name in self._sizes:
            before = f"{own_name} lay in the repository with other bytes: it"
        else:
            return f"the name {own_name} is reserved for another job's bytes: it is stored as {file.package.file_name}"
        return f"{before} stays for those who know it, and the repository now offers {file.package.file_name} instead"

    def _skipped(self, file: OwnFile) -> Conflict:
        return skipped(self._kind, self._offered.get(file.package.identity, file.package))

    def _refused(self, files: Sequence[OwnFile], others: Sequence[OwnFile]) -> Placed:
        first = others[0].package
        offered = self._offered.get(first.identity, first)
        why = f"the first is {quote(first.file_name)}"
        if offered.sha256 != first.sha256 and offered.file_name != first.file_name:
            why += f": the repository offers another build of this version, {offered.file_name}"
        error = ConflictError(
            f"no package was stored, because {len(others)} of {len(files)} lie in the repository with other bytes",
            why=why,
            remedy="Give the packages another version, or choose on_conflict: overwrite or skip.",
        )
        return Placed(
            failed=tuple(FailedItem(file.path.name, file.item(self._kind.pool).destination, error) for file in files),
            conflicts=tuple(dataclasses.replace(self._skipped(file), action="refused") for file in others),
        )


def _name_is_taken(name: str) -> ConflictError:
    """The error for a file of which even the name made of its digest is taken."""
    return ConflictError(
        f"{name} lies in the repository with other bytes than its name says, or is reserved for others",
        remedy="Find out who wrote it, and remove it.",
    )
