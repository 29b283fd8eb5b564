"""Artifact archives and their digest sidecars: which there are, and how they are stored so that they always agree.

A sidecar is at most 4 kB and is read once: the bytes that were checked are the bytes that are stored.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import ConflictError, IntegrityError, LocalFileError
from _therock_utils._folder import local_file_error
from _therock_utils._keys import segment_fault
from _therock_utils._sidecar import MAX_SIDECAR_BYTES, parse_sidecar, render_sidecar, sidecar_name
from _therock_utils._source_file import SkipFileError, SourceFile
from _therock_utils._transfer_types import FailedItem, SkippedFile, UploadItem
from therock_outputs.index_page import ListedFile
from therock_outputs.modes._build_tree import FOLDER, if_missing
from therock_outputs.modes._plan import PlannedPart, planned
from therock_outputs.text_safety import visible

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from _therock_utils._cancel import CancelToken
    from _therock_utils._errors import OutputsError
    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context
    from therock_outputs.modes._build_tree import BuildTree
    from therock_outputs.modes._upload import Uploader

_ARCHIVES: Final = (".tar.xz", ".tar.zst")


@dataclass(frozen=True, slots=True)
class Artifacts:
    """The archives, and the names of those beside which a sidecar lies."""

    part: PlannedPart
    with_sidecar: frozenset[str] = frozenset()


def plan_artifacts(context: Context, tree: BuildTree, root: WorkflowOutputRoot) -> Artifacts:
    """The archives directly in `artifacts`; a folder that cannot be read is a failed item."""
    with_sidecar: set[str] = set()
    part = planned("Artifacts", root.root(), lambda: _plan_artifacts(context, tree, root, with_sidecar))
    return Artifacts(part, frozenset(with_sidecar))


def _plan_artifacts(context: Context, tree: BuildTree, root: WorkflowOutputRoot, with_sidecar: set[str]) -> PlannedPart:
    settings = context.settings
    if settings.job_status not in {"", "success"}:
        return PlannedPart("Artifacts", absence=f"the job's status is {settings.job_status}", if_missing="ignore")
    folder = tree.folder / "artifacts"
    page = root.artifact_index(settings.artifact_group)
    missing = if_missing(settings, "error")
    absence = tree.why_absent(context, "artifacts", FOLDER)
    if absence:
        return PlannedPart("Artifacts", page=page, absence=absence, if_missing=missing)
    files, skipped = _files_in(folder)
    names = [name for name in files if name.endswith(_ARCHIVES)]
    with_sidecar.update(name for name in names if sidecar_name(name) in files)
    return PlannedPart(
        "Artifacts",
        tuple(UploadItem(folder / name, root.artifact(name)) for name in names),
        skipped,
        page=page,
        absence=f"there is no archive *.tar.xz or *.tar.zst in {context.workspace.shown(folder)}",
        if_missing=missing,
    )


def _files_in(folder: Path) -> tuple[list[str], tuple[SkippedFile, ...]]:
    """Names of the regular files directly in `folder`, sorted, and what is left out of the archives."""
    names, skipped = [], []
    try:
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: os.fsencode(entry.name)):
                fault = segment_fault(entry.name)
                fault = fault or ("" if entry.is_file(follow_symlinks=False) else "not a regular file")
                if not fault:
                    names.append(entry.name)
                elif entry.name.endswith(_ARCHIVES):
                    skipped.append(SkippedFile(f"artifacts/{visible(entry.name)}", fault))
    except OSError as error:
        raise local_file_error(folder, "read", error) from error
    return names, tuple(skipped)


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive that is to be stored, and its sidecar's bytes where they are known before.

    `made_sha256` is the hex digest that was taken while it was made; "" for one that the build brought.
    """

    item: UploadItem
    sidecar: bytes | None = None
    made_sha256: str = ""

    @classmethod
    def made(cls, item: UploadItem, sha256: str) -> Archive:
        """One that was made just now."""
        return cls(item, render_sidecar(sha256, item.destination.name), sha256)

    @property
    def name(self) -> str:
        """File name of the archive."""
        return self.item.destination.name

    @property
    def sidecar_location(self) -> StorageLocation:
        """Where its sidecar goes."""
        location = self.item.destination
        return dataclasses.replace(location, relative_path=sidecar_name(location.relative_path))

    def failed(self, error: OutputsError) -> FailedItem:
        """It is not to be counted as stored."""
        return FailedItem(self.item.label, self.item.destination, error)


def store_with_artifacts(
    uploader: Uploader, others: Sequence[UploadItem], artifacts: Artifacts
) -> tuple[tuple[ListedFile, ...], frozenset[str]]:
    """Store `others`, the archives, then their sidecars; the page's rows, and the names that it must not have.

    An archive whose sidecar names another digest is not stored; one beside which its own sidecar does not lie in the
    end counts as failed. With `on_conflict: error` all is hashed first and stored in one step: nothing may be written
    where one key is taken. Raises CancelledError.
    """
    if not stores_at_once(uploader):
        uploader.store(others)
        others = ()
    return store_archives(uploader, prepare_archives(uploader, artifacts.part.items, artifacts.with_sidecar), others)


def stores_at_once(uploader: Uploader) -> bool:
    """Whether nothing may be stored before all is known, because nothing may be written where one key is taken."""
    return uploader.context.settings.on_conflict == "error"


def prepare_archives(uploader: Uploader, items: Sequence[UploadItem], with_sidecar: AbstractSet[str]) -> list[Archive]:
    """Archives that the build brought, with the sidecars beside them; one that is not what its sidecar says fails.

    Raises CancelledError.
    """
    ready = [_prepared(uploader, item, has_sidecar=item.destination.name in with_sidecar) for item in items]
    return [archive for archive in ready if archive is not None]


def store_archives(
    uploader: Uploader, archives: Sequence[Archive], others: Sequence[UploadItem] = ()
) -> tuple[tuple[ListedFile, ...], frozenset[str]]:
    """Store archives and `others`, then the sidecars of those that are stored; returns as `store_with_artifacts` does.

    Where all is stored at once, known sidecars go along.
    """
    items = [*others, *(archive.item for archive in archives)]
    known = {}
    if stores_at_once(uploader):
        known = {
            archive.sidecar_location: UploadItem(archive.sidecar, archive.sidecar_location)
            for archive in archives
            if archive.sidecar is not None
        }
    uploader.store([*items, *known.values()])
    return _store_sidecars(uploader, archives, tried=known.keys())


def _prepared(uploader: Uploader, item: UploadItem, *, has_sidecar: bool) -> Archive | None:
    """The archive with its sidecar; None, and a failed item, where that names another digest.

    Without a sidecar it is hashed only where all is stored at once.
    """
    name, cancel = item.destination.name, uploader.context.cancel
    path = Path(str(item.source))
    if not has_sidecar:
        digest = _digest_of(path, cancel) if stores_at_once(uploader) else ""
        return Archive(item, render_sidecar(digest, name) if digest else None)
    digest, sidecar = _digest_of(path, cancel), _read_sidecar(path.with_name(sidecar_name(name)))
    archive = Archive(item, sidecar)
    said = parse_sidecar(sidecar, name=name)
    if digest and said != digest:  # one that cannot be read is the upload's to tell
        uploader.add_failed([archive.failed(_mismatch(name, said, digest))])
        return None
    return archive


def _store_sidecars(
    uploader: Uploader, archives: Sequence[Archive], *, tried: AbstractSet[StorageLocation]
) -> tuple[tuple[ListedFile, ...], frozenset[str]]:
    """Store the sidecars of stored archives, but for those `tried` before. Returns as `store_with_artifacts` does."""
    digests = {stored.location: stored.sha256 for stored in uploader.result.stored}
    wanted: list[Archive] = []
    failed: list[FailedItem] = []
    items: list[UploadItem] = []
    for archive in archives:
        digest = digests.get(archive.item.destination)
        if digest is None:
            continue
        text = render_sidecar(digest, archive.name) if archive.sidecar is None else archive.sidecar
        if digest and parse_sidecar(text, name=archive.name) != digest:
            failed.append(archive.failed(_changed(archive, digest)))
            continue
        wanted.append(archive)
        if archive.sidecar_location not in tried:
            items.append(UploadItem(text, archive.sidecar_location))
    uploader.store(items)
    stored = {item.location: item for item in uploader.result.stored}
    errors = {item.location: item.error for item in uploader.result.failed}
    rows: list[ListedFile] = []
    for archive in wanted:
        if archive.sidecar_location in stored:
            found = (stored[archive.item.destination], stored[archive.sidecar_location])
            rows += [ListedFile(item.location.name, item.size_bytes) for item in found]
        else:
            failed.append(archive.failed(errors.get(archive.sidecar_location) or _foreign_sidecar(archive.name)))
    uploader.add_failed(failed)
    unsound = [item.location.name for item in failed]
    return tuple(rows), frozenset([*unsound, *map(sidecar_name, unsound)])


def _digest_of(path: Path, cancel: CancelToken) -> str:
    """Hex SHA-256 of a file, "" where it cannot be read whole. Raises CancelledError."""
    digest = hashlib.sha256()
    try:
        with SourceFile.open(path) as source:
            for chunk in source.chunks(cancel):
                digest.update(chunk)
    except (SkipFileError, LocalFileError, IntegrityError):
        return ""
    return digest.hexdigest()


def _read_sidecar(path: Path) -> bytes:
    """A sidecar's bytes, b"" where it cannot be read or is too long for one."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SIDECAR_BYTES + 1)
    except OSError:
        return b""
    return data if len(data) <= MAX_SIDECAR_BYTES else b""


def _mismatch(name: str, said: str, digest: str) -> IntegrityError:
    return IntegrityError(
        f"{name} is not what its sidecar says",
        why=f"the sidecar has sha256 {said or '(none)'}, the archive {digest}",
        remedy="Make both again: one of them is from another build.",
    )


def _changed(archive: Archive, digest: str) -> IntegrityError:
    """What was stored has another digest than the archive had before."""
    if not archive.made_sha256:
        said = parse_sidecar(archive.sidecar or b"", name=archive.name)
        return _mismatch(archive.name, said, digest)
    return IntegrityError(
        f"{archive.name} changed between its making and its upload",
        why=f"it was made with sha256 {archive.made_sha256}, and stored with {digest}",
        remedy="Let nothing else write to the temporary folder, and store it again.",
    )


def _foreign_sidecar(name: str) -> ConflictError:
    return ConflictError(
        f"{name} has a sidecar of other bytes beside it",
        why="on_conflict: skip left it as it was",
        remedy="Remove both objects, or set on_conflict: overwrite.",
    )
