"""Copies chosen archives to another run: archives first, then the sidecars of those that arrived."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from _therock_utils._errors import IntegrityError, OutputsError
from _therock_utils._sidecar import MAX_SIDECAR_BYTES, parse_sidecar
from _therock_utils._transfer_types import FailedItem, StoredBytes, StoredObject, UploadResult
from therock_outputs.modes._copy_conflicts import Unit, overshadowed, plan_copies
from therock_outputs.modes._fetch_plan import read_listing
from therock_outputs.modes._selectors import some_of
from therock_outputs.text_safety import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from _therock_utils._transfer_types import Verified
    from _therock_utils.artifact_names import ArchiveName
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context
    from therock_outputs.modes._fetch_plan import RunContents


@dataclass(frozen=True, slots=True)
class Copied:
    """What came of it. `sound`: names of archives that are stored, and their sidecars, where the source has those."""

    result: UploadResult = field(default_factory=UploadResult)
    sound: frozenset[str] = frozenset()
    notices: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def list_run(context: Context, backend: StorageBackend, root: WorkflowOutputRoot) -> RunContents:
    """The archives and sidecars of a run. Raises as `list_folder` does."""
    listed = backend.list_folder(root.root(), cancel=context.cancel)
    return read_listing((entry.location.name, entry.size_bytes) for entry in listed)


def copy_archives(
    context: Context,
    backend: StorageBackend,
    archives: Iterable[ArchiveName],
    contents: RunContents,
    *,
    source: WorkflowOutputRoot,
    destination: WorkflowOutputRoot,
) -> Copied:
    """Copy `archives`, which the source run has by its `contents`.

    One archive that fails costs only itself. Raises an OutputsError where the destination cannot be listed: nothing was
    copied then. Memory: one entry an object of the destination, and the sidecars, 4 kB each at most.
    """
    settings = context.settings
    copier = _Copier(context, backend, source, destination)
    there = list_run(context, backend, destination)
    units = copier.read_units(archives, contents)
    plan = plan_copies(
        units,
        there,
        copier.sidecars_there(units, there),
        destination=destination.artifact,
        on_conflict=settings.on_conflict,
    )
    copier.result += UploadResult(conflicts=plan.conflicts, failed=plan.failed)
    copier.keep_same(plan.same)
    copier.copy_sidecars(copier.copy_archives(plan.copied))
    hidden = overshadowed((*plan.copied, *plan.same), there)
    if hidden:
        copier.warnings.append(f"readers take these instead, which lie at the destination, too: {some_of(hidden)}")
    return Copied(copier.result, frozenset(copier.sound), tuple(copier.notices), tuple(copier.warnings))


class _Copier:
    """The steps, and what came of them."""

    def __init__(
        self, context: Context, backend: StorageBackend, source: WorkflowOutputRoot, destination: WorkflowOutputRoot
    ) -> None:
        self._cancel = context.cancel
        self._dry_run = context.settings.dry_run
        self._backend = backend
        self._source = source
        self._destination = destination
        self.result = UploadResult()
        self.sound: set[str] = set()
        self.notices: list[str] = []
        self.warnings: list[str] = []

    def read_units(self, archives: Iterable[ArchiveName], contents: RunContents) -> tuple[Unit, ...]:
        """The archives with their sidecars; one whose sidecar cannot be read fails."""
        units = [Unit(str(archive), contents.archives[str(archive)]) for archive in archives]
        sizes = contents.sidecars
        readable = [unit for unit in units if sizes.get(unit.sidecar_name, MAX_SIDECAR_BYTES + 1) <= MAX_SIDECAR_BYTES]
        locations = [self._source.artifact(unit.sidecar_name) for unit in readable]
        answers = self._backend.read_all_small(locations, cancel=self._cancel)
        by_name = {unit.name: answer for unit, answer in zip(readable, answers, strict=True)}
        found: list[Unit] = []
        failed: list[FailedItem] = []
        for unit in units:
            answer = by_name.get(unit.name)
            if isinstance(answer, OutputsError):
                failed.append(FailedItem(unit.name, self._destination.artifact(unit.name), answer))
            else:
                found.append(unit if answer is None else dataclasses.replace(unit, sidecar=answer.data))
        self.result += UploadResult(failed=tuple(failed))
        bare = [unit.name for unit in found if unit.sidecar is None]
        if bare:
            self.warnings.append(f"without a digest, because the source run has none that can be read: {some_of(bare)}")
        unusable = [unit.name for unit in found if unit.sidecar is not None and not _digest_of(unit)]
        if unusable:
            self.warnings.append(f"what lies beside these archives is no digest of theirs: {some_of(unusable)}")
        return tuple(found)

    def sidecars_there(self, units: Iterable[Unit], there: RunContents) -> dict[str, StoredBytes | None]:
        """The sidecars at the destination that may be the same, by name; None for one that cannot be read."""
        names = [
            unit.sidecar_name
            for unit in units
            if there.sidecars.get(unit.sidecar_name, MAX_SIDECAR_BYTES + 1) <= MAX_SIDECAR_BYTES
            and there.archives.get(unit.name, unit.size_bytes) == unit.size_bytes
        ]
        answers = self._backend.read_all_small([*map(self._destination.artifact, names)], cancel=self._cancel)
        return {
            name: answer if isinstance(answer, StoredBytes) else None
            for name, answer in zip(names, answers, strict=True)
        }

    def keep_same(self, units: Sequence[Unit]) -> None:
        """Count what lies at the destination already as stored."""
        verified: Verified = "dry-run" if self._dry_run else "size-only"
        stored: list[StoredObject] = []
        for unit in units:
            location = self._destination.artifact(unit.name)
            stored.append(StoredObject(location, unit.size_bytes, _digest_of(unit), "", verified))
            stored.append(self._stored_sidecar(unit, verified))
        self.result += UploadResult(stored=tuple(stored))
        self.sound.update(unit.name for unit in units)
        if units:
            number = count(len(units), "archive")
            self.notices.append(f"{number} of the same size, with the same digest beside it, lay there already")

    def copy_archives(self, units: Sequence[Unit]) -> tuple[Unit, ...]:
        """Copy; those that arrived. Where the bytes were seen, they must be what the sidecar says."""
        result = self._copy([(unit.name, unit.size_bytes) for unit in units])
        by_name = {unit.name: unit for unit in units}
        stored: list[StoredObject] = []
        failed = [*result.failed]
        for item in result.stored:
            unit = by_name[item.location.name]
            digest = _digest_of(unit)
            if item.sha256 and digest and item.sha256 != digest:
                failed.append(FailedItem(unit.name, item.location, _not_its_digest(unit.name, digest, item.sha256)))
            else:
                stored.append(dataclasses.replace(item, sha256=digest))
        self.result += UploadResult(stored=tuple(stored), failed=tuple(failed))
        return tuple(by_name[item.location.name] for item in stored)

    def copy_sidecars(self, units: Sequence[Unit]) -> None:
        """Copy the sidecars of `units`, which arrived."""
        with_sidecar = {unit.sidecar_name: unit for unit in units if unit.sidecar is not None}
        result = self._copy([(name, len(unit.sidecar or b"")) for name, unit in with_sidecar.items()])
        stored = [self._stored_sidecar(with_sidecar[item.location.name], item.verified) for item in result.stored]
        self.result += UploadResult(stored=tuple(stored), failed=result.failed)
        arrived = {item.location.name for item in stored}
        self.sound.update(unit.name for unit in units if unit.sidecar is None or unit.sidecar_name in arrived)

    def _copy(self, files: Sequence[tuple[str, int]]) -> UploadResult:
        """Copy files (name, size in bytes) that lie directly in the source run."""
        if not files:
            return UploadResult()
        sizes = {self._source.artifact(name): size_bytes for name, size_bytes in files}
        pairs = [(source, self._destination.artifact(source.name)) for source in sizes]
        return self._backend.copy(pairs, cancel=self._cancel, known_sizes=sizes)

    def _stored_sidecar(self, unit: Unit, verified: Verified) -> StoredObject:
        data = unit.sidecar or b""
        location = self._destination.artifact(unit.sidecar_name)
        return StoredObject(location, len(data), hashlib.sha256(data).hexdigest(), "", verified)


def _digest_of(unit: Unit) -> str:
    return parse_sidecar(unit.sidecar, name=unit.name) if unit.sidecar is not None else ""


def _not_its_digest(name: str, said: str, digest: str) -> IntegrityError:
    return IntegrityError(
        f"{name} is not what its sidecar says",
        why=f"the sidecar has sha256 {said}, the archive {digest}",
        remedy="The source run's archive and digest are from different builds: copy from another run.",
    )
