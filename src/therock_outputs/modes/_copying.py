"""Copies chosen archives to another run: archives first, then the sidecars of those that arrived.

What an archive's sidecar says of it is compared with the digest that the service keeps, before anything is written.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from _therock_utils._errors import CancelledError, IncompleteError, IntegrityError, NotFoundError, OutputsError
from _therock_utils._sidecar import MAX_SIDECAR_BYTES
from _therock_utils._transfer_types import FailedItem, ObjectFacts, StoredBytes, StoredObject, UploadResult
from _therock_utils.artifact_names import SIDECAR_EXTENSION
from therock_outputs.modes._copy_conflicts import Unit, overshadowed, plan_copies
from therock_outputs.modes._fetch_plan import list_run
from therock_outputs.modes._selectors import some_of
from therock_outputs.rewording import reworded
from therock_outputs.text_safety import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from _therock_utils._transfer_types import Conflict, Verified
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

    One archive that fails costs only itself. Raises an OutputsError where the destination cannot be listed, and
    CancelledError before the first copy: nothing was copied then. Memory: one entry an object of the destination, and
    the sidecars, 4 kB each at most.
    """
    settings = context.settings
    copier = _Copier(context, backend, source, destination)
    there = list_run(backend, destination, context.cancel)
    units = copier.read_units(archives, contents)
    plan = plan_copies(
        units,
        there,
        copier.sidecars_there(units, there),
        copier.digests_there(units, there),
        destination=destination.artifact,
        on_conflict=settings.on_conflict,
    )
    copier.result += UploadResult(failed=plan.failed)
    copier.keep_same(plan.same)
    copier.copy(plan.copied, plan.conflicts)
    if plan.unproven:
        copier.notices.append(
            f"{count(len(plan.unproven), 'archive')} of the same size, with the same digest beside it, lay there "
            "already, and was not taken for the same: the service keeps no SHA-256 of its bytes"
        )
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
        unusable = [unit.name for unit in found if unit.sidecar is not None and not unit.digest]
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

    def digests_there(self, units: Iterable[Unit], there: RunContents) -> dict[str, str]:
        """The SHA-256 of those archives at the destination that may be the same, "" where it is not known.

        Raises CancelledError.
        """
        names = [unit.name for unit in units if unit.digest and there.archives.get(unit.name) == unit.size_bytes]
        facts = self._backend.describe([*map(self._destination.artifact, names)], cancel=self._cancel)
        return {
            name: fact.sha256 if isinstance(fact, ObjectFacts) else "" for name, fact in zip(names, facts, strict=True)
        }

    def keep_same(self, units: Sequence[Unit]) -> None:
        """Count what lies at the destination already as stored."""
        verified: Verified = "dry-run" if self._dry_run else "size-only"
        stored: list[StoredObject] = []
        for unit in units:
            location = self._destination.artifact(unit.name)
            stored.append(StoredObject(location, unit.size_bytes, unit.digest, "", verified))
            stored.append(self._stored_sidecar(unit, verified))
        self.result += UploadResult(stored=tuple(stored))
        self.sound.update(unit.name for unit in units)
        if units:
            number = count(len(units), "archive")
            self.notices.append(f"{number} of the same size, with the same digest beside it, lay there already")

    def copy(self, units: Sequence[Unit], conflicts: Iterable[Conflict]) -> None:
        """Copy `units`, and keep what became of each of `conflicts`: only what is stored has overwritten anything.

        Raises CancelledError before the first copy.
        """
        files = {conflict.location.name.removesuffix(SIDECAR_EXTENSION): conflict for conflict in conflicts}
        replaced = frozenset(name for name, conflict in files.items() if conflict.action == "overwritten")
        arrived = self._copy_archives(self._check_sources(units), replaced)
        self._copy_sidecars(arrived)
        replaced -= {unit.name for unit in arrived}
        self.result += UploadResult(conflicts=tuple(files[name] for name in files if name not in replaced))

    def _check_sources(self, units: Sequence[Unit]) -> tuple[Unit, ...]:
        """Those of `units` that may be copied: none that is known not to be what its sidecar says."""
        claimed = [unit for unit in units if unit.digest]
        locations = [self._source.artifact(unit.name) for unit in claimed]
        facts = self._backend.describe(locations, cancel=self._cancel)
        by_name = {unit.name: fact for unit, fact in zip(claimed, facts, strict=True)}
        found: list[Unit] = []
        failed: list[FailedItem] = []
        for unit in units:
            error = _fault_of(unit, by_name[unit.name]) if unit.name in by_name else None
            if error is not None:
                failed.append(FailedItem(unit.name, self._destination.artifact(unit.name), error))
                continue
            fact = by_name.get(unit.name)
            found.append(dataclasses.replace(unit, sha256=fact.sha256) if isinstance(fact, ObjectFacts) else unit)
        self.result += UploadResult(failed=tuple(failed))
        unproven = sum(1 for unit in found if unit.digest and not unit.sha256)
        if unproven:
            self.notices.append(
                f"{count(unproven, 'archive')}: not compared with the digest beside it, because the service keeps no "
                "SHA-256 (mode verify with check: read compares)"
            )
        return tuple(found)

    def _copy_archives(self, units: Sequence[Unit], replaced: frozenset[str]) -> tuple[Unit, ...]:
        """Copy; those that arrived. Where the bytes were seen, they must be what the sidecar says."""
        result = self._copy([(unit.name, unit.size_bytes) for unit in units])
        by_name = {unit.name: unit for unit in units}
        stored: list[StoredObject] = []
        failed: list[FailedItem] = []
        for refused in result.failed:
            name, error = refused.location.name, refused.error
            if name in replaced and isinstance(error, CancelledError):
                error = _half_replaced(name, error)
            failed.append(FailedItem(name, refused.location, error))
        for item in result.stored:
            unit = by_name[item.location.name]
            if item.sha256 and unit.digest and item.sha256 != unit.digest:
                failed.append(FailedItem(unit.name, item.location, _changed(unit, item.sha256)))
            else:
                stored.append(dataclasses.replace(item, sha256=item.sha256 or unit.sha256))
        self.result += UploadResult(stored=tuple(stored), failed=tuple(failed))
        return tuple(by_name[item.location.name] for item in stored)

    def _copy_sidecars(self, units: Sequence[Unit]) -> None:
        """Copy the sidecars of `units`, which arrived; an archive whose own does not arrive counts as failed."""
        with_sidecar = {unit.sidecar_name: unit for unit in units if unit.sidecar is not None}
        result = self._copy([(name, len(unit.sidecar or b"")) for name, unit in with_sidecar.items()])
        stored = [self._stored_sidecar(with_sidecar[item.location.name], item.verified) for item in result.stored]
        failed = []
        for item in result.failed:
            name = with_sidecar[item.location.name].name
            failed.append(FailedItem(name, item.location, _without_its_digest(name, item.error)))
        self.result += UploadResult(stored=tuple(stored), failed=tuple(failed))
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


def _fault_of(unit: Unit, fact: ObjectFacts | OutputsError | None) -> OutputsError | None:
    """Why an archive whose sidecar names a digest is not to be copied; None where it may be."""
    if isinstance(fact, OutputsError):
        return fact
    if fact is None:
        return NotFoundError(f"{unit.name} is gone from the source run", why="it was there when the run was listed")
    if not fact.sha256 or fact.sha256 == unit.digest:
        return None
    return IntegrityError(
        f"{unit.name} is not what its sidecar says",
        why=f"the sidecar has sha256 {unit.digest}, the archive {fact.sha256}",
        remedy="The source run's archive and digest are from different builds: copy from another run.",
    )


def _changed(unit: Unit, digest: str) -> IntegrityError:
    return IntegrityError(
        f"{unit.name} changed while it was copied",
        why=f"its sidecar has sha256 {unit.digest}, the copy {digest}",
        remedy="Let nothing else write to the source run, and copy again: the copy that lies there now is not sound.",
    )


def _half_replaced(name: str, error: CancelledError) -> IncompleteError:
    return IncompleteError(
        f"{name} may have been replaced, and the digest beside it was not",
        why=error.why,
        remedy="Copy again: that replaces both.",
    )


def _without_its_digest(name: str, error: OutputsError) -> OutputsError:
    """An archive was stored and its sidecar was not: beside it lies none, or that of what lay there before."""
    return reworded(
        error,
        f"{name} was copied, and its digest was not",
        why=error.why or error.what,
        remedy=" ".join(word for word in (error.remedy, "Copy again: that replaces both.") if word),
    )
