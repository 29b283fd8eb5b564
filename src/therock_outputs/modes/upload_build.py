"""Mode upload-build: everything of a single-stage build: logs, manifest, artifact archives, and their pages."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import InputError, IntegrityError, LocalFileError
from _therock_utils._folder import local_file_error
from _therock_utils._keys import segment_fault
from _therock_utils._source_file import SkipFileError, SourceFile
from _therock_utils._transfer_types import FailedItem, SkippedFile, UploadItem, UploadResult
from therock_outputs.index_page import ListedFile
from therock_outputs.modes._build_tree import FOLDER, BuildTree, if_missing, plan_logs, plan_manifest
from therock_outputs.modes._plan import PlannedPart
from therock_outputs.modes._upload import Uploader, digest_mismatch, store_page, upload_in_steps
from therock_outputs.run_target import single_root
from therock_outputs.text_safety import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _therock_utils._cancel import CancelToken
    from _therock_utils._transfer_types import StoredObject
    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context
    from therock_outputs.report import Report

OUTPUTS: Final[Mapping[str, str]] = {
    "log_url": "Page of the logs; empty where none was stored.",
    "observability_url": "The build's resource report; empty where there is none.",
    "manifest_url": "The manifest; empty where there is none.",
    "artifact_index_url": "Page of this group's artifacts; empty where none was stored.",
}

SIDECAR: Final = ".sha256sum"
_ARCHIVES: Final = (".tar.xz", ".tar.zst")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_MAX_SIDECAR_BYTES: Final = 4096


def run(context: Context) -> Report:
    """Store. Raises InputError for settings that this mode cannot use."""
    settings = context.settings
    root = single_root(context.target)
    group = settings.artifact_group
    if not group:
        message = "mode upload-build needs artifact_group"
        raise InputError(message, remedy="Give the matrix variant, e.g. artifact_group: gfx94X-dcgpu.")
    if settings.layout == "multi-arch":
        message = "mode upload-build writes the single-stage layout"
        raise InputError(message, remedy="Use mode upload-stage for a stage of a multi-arch build.")
    tree = BuildTree.find(context)
    pages = _Pages(root, group, enabled=settings.index != "none")
    with tempfile.TemporaryDirectory(prefix="therock-outputs-") as scratch:
        logs = plan_logs(context, tree, root.log_dir(group), Path(scratch)).with_page(root.log_index(group))
        artifacts, sidecars = _plan_artifacts(context, tree, root)
        artifacts = _refuse_wrong(artifacts, sidecars, context.cancel)
        manifest = plan_manifest(context, tree, root.manifest(group))
        parts = (logs, artifacts, manifest)

        def finish(uploader: Uploader) -> None:
            listed = _store_sidecars(uploader, artifacts, sidecars)
            pages.store(uploader, logs, listed)

        return upload_in_steps(
            context, parts, subject=group, finish=finish, outputs=lambda result: _outputs(root, group, result)
        )


@dataclass(frozen=True, slots=True)
class _Pages:
    root: WorkflowOutputRoot
    group: str
    enabled: bool

    def store(self, uploader: Uploader, logs: PlannedPart, artifacts: tuple[ListedFile, ...]) -> None:
        if not self.enabled:
            return
        page = self.root.log_index(self.group)
        has_logs = any(
            item.location.relative_path.startswith(f"{page.relative_path.rpartition('/')[0]}/")
            for item in uploader.result.stored
        )
        if has_logs and not logs.brings(page):
            folder = self.root.log_dir(self.group)
            store_page(uploader, page, f"Logs: {self.group}", uploader.listed_below(folder, page))
        store_page(uploader, self.root.artifact_index(self.group), f"Artifacts: {self.group}", artifacts)


def _plan_artifacts(context: Context, tree: BuildTree, root: WorkflowOutputRoot) -> tuple[PlannedPart, dict[str, Path]]:
    """The archives, and the sidecars that lie beside them by archive name."""
    settings = context.settings
    if settings.job_status not in {"", "success"}:
        return PlannedPart("Artifacts", absence=f"the job's status is {settings.job_status}", if_missing="ignore"), {}
    folder = tree.folder / "artifacts"
    page = root.artifact_index(settings.artifact_group)
    missing = if_missing(settings, "error")
    absence = tree.why_absent(context, "artifacts", FOLDER)
    if absence:
        return PlannedPart("Artifacts", page=page, absence=absence, if_missing=missing), {}
    names, skipped = _archives_in(folder)
    items = tuple(UploadItem(folder / name, root.artifact(name)) for name in names)
    part = PlannedPart(
        "Artifacts",
        items,
        skipped,
        page=page,
        absence=f"there is no archive *.tar.xz or *.tar.zst in {context.workspace.shown(folder)}",
        if_missing=missing,
    )
    sidecars = {name: folder / (name + SIDECAR) for name in names}
    return part, {name: path for name, path in sidecars.items() if path.is_file() and not path.is_symlink()}


def _archives_in(folder: Path) -> tuple[list[str], tuple[SkippedFile, ...]]:
    """Names of the archives directly in `folder`, sorted, and what is left out; artifact folders are not entered."""
    names, skipped = [], []
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: os.fsencode(entry.name))
    except OSError as error:
        raise local_file_error(folder, "read", error) from error
    for entry in entries:
        if not entry.name.endswith(_ARCHIVES):
            continue
        fault = segment_fault(entry.name) or ("" if entry.is_file(follow_symlinks=False) else "not a regular file")
        if fault:
            skipped.append(SkippedFile(f"artifacts/{visible(entry.name)}", fault))
        else:
            names.append(entry.name)
    return names, tuple(skipped)


def _refuse_wrong(part: PlannedPart, sidecars: Mapping[str, Path], cancel: CancelToken) -> PlannedPart:
    """`part` without the archives whose sidecar names another digest: who fetches must never meet them."""
    kept, refused = [], []
    for item in part.items:
        name = item.destination.relative_path.rpartition("/")[2]
        error = _mismatch(sidecars[name], name, cancel) if name in sidecars else None
        if error is None:
            kept.append(item)
        else:
            refused.append(FailedItem(item.label, item.destination, error))
    return dataclasses.replace(part, items=tuple(kept), refused=tuple(refused))


def _mismatch(sidecar: Path, archive_name: str, cancel: CancelToken) -> IntegrityError | None:
    """The error of an archive that is not what its sidecar says. One that cannot be read is the upload's to tell."""
    digest = hashlib.sha256()
    try:
        with SourceFile.open(sidecar.with_name(archive_name)) as source:
            for chunk in source.chunks(cancel):
                digest.update(chunk)
    except (SkipFileError, LocalFileError, IntegrityError):
        return None
    said, actual = _read_sidecar(sidecar), digest.hexdigest()
    return None if said == actual else digest_mismatch(archive_name, said or "(none)", actual)


def _store_sidecars(uploader: Uploader, artifacts: PlannedPart, sidecars: Mapping[str, Path]) -> tuple[ListedFile, ...]:
    """Store the digest of each stored archive; the page's rows: archives with their sidecars.

    A sidecar that came with the archive must still name its digest; else the archive counts as failed and gets none.
    """
    wanted = {item.destination: item for item in artifacts.items}
    archives = [stored for stored in uploader.result.stored if stored.location in wanted]
    items, failed = [], []
    for stored in archives:
        name = stored.location.relative_path.rpartition("/")[2]
        said = _read_sidecar(sidecars[name]) if name in sidecars else stored.sha256
        if said == stored.sha256:
            text = f"{stored.sha256}  {name}\n".encode()
            items.append(UploadItem(sidecars.get(name, text), _sidecar_of(stored)))
        else:
            error = digest_mismatch(name, said or "(none)", stored.sha256)
            failed.append(FailedItem(wanted[stored.location].label, stored.location, error))
    result = uploader.store(items)
    uploader.result += UploadResult(failed=tuple(failed))
    refused = {item.location for item in failed}
    good = [stored for stored in archives if stored.location not in refused]
    return tuple(
        ListedFile(item.location.relative_path.rpartition("/")[2], item.size_bytes) for item in (*good, *result.stored)
    )


def _sidecar_of(stored: StoredObject) -> StorageLocation:
    location = stored.location
    return dataclasses.replace(location, relative_path=location.relative_path + SIDECAR)


def _read_sidecar(path: Path) -> str:
    """The digest in a sidecar (`digest` or `digest  name`), "" where there is none."""
    try:
        with path.open("rb") as file:
            words = file.read(_MAX_SIDECAR_BYTES).decode("ascii", errors="replace").split()
    except OSError:
        return ""
    digest = words[0].lower() if words else ""
    return digest if _DIGEST.fullmatch(digest) else ""


def _outputs(root: WorkflowOutputRoot, group: str, result: UploadResult) -> dict[str, str]:
    stored = {item.location for item in result.stored}
    locations = {
        "log_url": root.log_index(group),
        "observability_url": root.build_observability(group),
        "manifest_url": root.manifest(group),
        "artifact_index_url": root.artifact_index(group),
    }
    return {name: location.https_url if location in stored else "" for name, location in locations.items()}
