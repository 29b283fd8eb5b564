"""Artifact archives and their digest sidecars: which there are, and how they are stored so that they always agree.

A sidecar is at most 4 kB and is read once: the bytes that were checked are the bytes that are stored.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import ConflictError, IntegrityError, LocalFileError
from _therock_utils._folder import local_file_error
from _therock_utils._keys import segment_fault
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

SIDECAR: Final = ".sha256sum"
_ARCHIVES: Final = (".tar.xz", ".tar.zst")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MAX_SIDECAR_BYTES: Final = 4096


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
    with_sidecar.update(name for name in names if name + SIDECAR in files)
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
class _Archive:
    """An archive, and its sidecar's bytes where they are known before it is stored."""

    item: UploadItem
    sidecar: bytes | None

    @property
    def name(self) -> str:
        return self.item.destination.name

    @property
    def sidecar_location(self) -> StorageLocation:
        location = self.item.destination
        return dataclasses.replace(location, relative_path=location.relative_path + SIDECAR)

    def failed(self, error: OutputsError) -> FailedItem:
        return FailedItem(self.item.label, self.item.destination, error)


def store_with_artifacts(
    uploader: Uploader, others: Sequence[UploadItem], artifacts: Artifacts
) -> tuple[tuple[ListedFile, ...], frozenset[str]]:
    """Store `others`, the archives, then their sidecars; the page's rows, and the names that it must not have.

    An archive whose sidecar names another digest is not stored; one beside which its own sidecar does not lie in the
    end counts as failed. With `on_conflict: error` all is hashed first and stored in one step: nothing may be written
    where one key is taken. Raises CancelledError.
    """
    at_once = uploader.context.settings.on_conflict == "error"
    if not at_once:
        uploader.store(others)
    ready = [_prepared(uploader, item, artifacts, hashes=at_once) for item in artifacts.part.items]
    archives = [archive for archive in ready if archive is not None]
    items = [archive.item for archive in archives]
    if at_once:
        sidecars = {
            archive.sidecar_location: UploadItem(archive.sidecar, archive.sidecar_location)
            for archive in archives
            if archive.sidecar is not None
        }
        uploader.store([*others, *items, *sidecars.values()])
    else:
        sidecars = {}
        uploader.store(items)
    return _store_sidecars(uploader, archives, tried=sidecars.keys())


def _prepared(uploader: Uploader, item: UploadItem, artifacts: Artifacts, *, hashes: bool) -> _Archive | None:
    """The archive with its sidecar; None, and a failed item, where that names another digest.

    Without a sidecar it is hashed only if `hashes` says so.
    """
    name, cancel = item.destination.name, uploader.context.cancel
    path = Path(str(item.source))
    if name not in artifacts.with_sidecar:
        digest = _digest_of(path, cancel) if hashes else ""
        return _Archive(item, _sidecar_text(digest, name) if digest else None)
    digest, sidecar = _digest_of(path, cancel), _read_sidecar(path.with_name(name + SIDECAR))
    archive = _Archive(item, sidecar)
    said = _digest_in(sidecar)
    if digest and said != digest:  # one that cannot be read is the upload's to tell
        uploader.add_failed([archive.failed(_mismatch(name, said, digest))])
        return None
    return archive


def _store_sidecars(
    uploader: Uploader, archives: Sequence[_Archive], *, tried: AbstractSet[StorageLocation]
) -> tuple[tuple[ListedFile, ...], frozenset[str]]:
    """Store the sidecars of stored archives, but for those `tried` before. Returns as `store_with_artifacts` does."""
    digests = {stored.location: stored.sha256 for stored in uploader.result.stored}
    wanted: list[_Archive] = []
    failed: list[FailedItem] = []
    items: list[UploadItem] = []
    for archive in archives:
        digest = digests.get(archive.item.destination)
        if digest is None:
            continue
        text = _sidecar_text(digest, archive.name) if archive.sidecar is None else archive.sidecar
        if digest and _digest_in(text) != digest:
            failed.append(archive.failed(_mismatch(archive.name, _digest_in(text), digest)))
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
    return tuple(rows), frozenset([*unsound, *(name + SIDECAR for name in unsound)])


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
            data = file.read(_MAX_SIDECAR_BYTES + 1)
    except OSError:
        return b""
    return data if len(data) <= _MAX_SIDECAR_BYTES else b""


def _digest_in(sidecar: bytes) -> str:
    """The digest that a sidecar names (`digest` or `digest  name`), "" where there is none."""
    words = sidecar.decode("ascii", errors="replace").split()
    digest = words[0].lower() if words else ""
    return digest if _DIGEST.fullmatch(digest) else ""


def _sidecar_text(digest: str, name: str) -> bytes:
    return f"{digest}  {name}\n".encode()


def _mismatch(name: str, said: str, digest: str) -> IntegrityError:
    return IntegrityError(
        f"{name} is not what its sidecar says",
        why=f"the sidecar has sha256 {said or '(none)'}, the archive {digest}",
        remedy="Make both again: one of them is from another build.",
    )


def _foreign_sidecar(name: str) -> ConflictError:
    return ConflictError(
        f"{name} has a sidecar of other bytes beside it",
        why="on_conflict: skip left it as it was",
        remedy="Remove both objects, or set on_conflict: overwrite.",
    )
