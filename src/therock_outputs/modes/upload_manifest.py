"""Mode upload-manifest: manifests of PyTorch and JAX builds, below the folder of a group or family."""

from __future__ import annotations

import dataclasses
import stat
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import InputError, IntegrityError, LocalFileError
from _therock_utils._keys import quote
from _therock_utils._source_file import SkipFileError, SourceFile
from _therock_utils._transfer_types import FailedItem, SkippedFile, UploadItem
from therock_outputs.manifest_names import (
    MANIFEST_PATTERN,
    MANIFEST_START,
    MAX_MANIFEST_BYTES,
    is_manifest_name,
    manifest_fault,
)
from therock_outputs.modes._build_tree import if_missing
from therock_outputs.modes._pages import FolderPage, is_left_to_server, store_page
from therock_outputs.modes._plan import PlannedPart, planned
from therock_outputs.modes._source import SourceFolder
from therock_outputs.modes._upload import Uploader, upload_in_steps
from therock_outputs.report import Snippet
from therock_outputs.run_target import single_root
from therock_outputs.shell_lines import download_line, language

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from _therock_utils._cancel import CancelToken
    from _therock_utils._files import WalkResult
    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context
    from therock_outputs.report import Report

OUTPUTS: Final[Mapping[str, str]] = {
    "manifest_url": "The manifest. Where several were stored, no manifest but the folder's page that lists them; where "
    "`index` is none, the first by name.",
}

_WHAT: Final = "Framework manifests"
_SUB_FOLDER: Final = "manifests"
_SHOWN: Final = 10


def run(context: Context) -> Report:
    """Store. Raises InputError for settings that this mode cannot use, and for names that are no manifest's."""
    settings = context.settings
    root = single_root(context.target)
    group = settings.artifact_group or settings.family
    if not group:
        raise InputError(
            "mode upload-manifest needs artifact_group or family",
            remedy="Give whose manifests they are, e.g. family: gfx94X-dcgpu.",
        )
    page = root.manifest_dir_index(group)
    # The server writes the pages of the multi-arch layout, which knows families and no groups.
    by_server = not settings.artifact_group and is_left_to_server(context, root)
    source = SourceFolder.find(context)
    part = planned(_WHAT, root.manifest_dir(group), lambda: _plan(context, root, group, source))
    lone = part.items[0].destination if len(part.items) == 1 else None
    part = part.with_page(lone or page, by_server=by_server and lone is None)
    part = dataclasses.replace(part, notices=(*part.notices, *_notices(context, part)))

    def store(uploader: Uploader) -> None:
        uploader.store(part.items)
        if not by_server and settings.index != "none" and part.is_stored_in_part(uploader.result):
            store_page(uploader, FolderPage(page, f"Manifests: {group}"))

    def outputs(opens: AbstractSet[StorageLocation]) -> dict[str, str]:
        stored = [item.destination for item in part.items if item.destination in opens]
        if len(stored) > 1 and (by_server or page in opens):
            return {"manifest_url": page.https_url}
        return {"manifest_url": stored[0].https_url if stored else ""}

    return upload_in_steps(
        context,
        source.folder,
        (part,),
        store=store,
        outputs=outputs,
        snippets=lambda opens: _snippets(context, [it.destination for it in part.items if it.destination in opens]),
        subject=group,
    )


def _plan(context: Context, root: WorkflowOutputRoot, group: str, source: SourceFolder) -> PlannedPart:
    missing = if_missing(context.settings, "warn")
    if source.absence:
        return PlannedPart(_WHAT, absence=source.absence, if_missing=missing)
    walked = _walk(context, source, root.manifest_dir(group))
    found = {name: path for path, name in walked.files if name.startswith(MANIFEST_START)}
    bad = [name for name in found if not is_manifest_name(name)]
    if bad:
        more = f" and {len(bad) - _SHOWN:,} more" if len(bad) > _SHOWN else ""
        raise InputError(
            f"nothing was stored: no framework manifest's name: {', '.join(map(quote, bad[:_SHOWN]))}{more}",
            why=f"the form is {MANIFEST_PATTERN}",
            remedy="Rename them, or leave them out with exclude.",
        )
    items = [UploadItem(path, root.framework_manifest(group, name)) for name, path in found.items()]
    checked = _Checked()
    for item, path in zip(items, found.values(), strict=True):
        checked.add(item, path, context.cancel)
    shown = context.workspace.shown(source.folder)
    return PlannedPart(
        _WHAT,
        tuple(checked.items),
        (*(file for file in walked.skipped if file.path.startswith(MANIFEST_START)), *checked.skipped),
        failed=tuple(checked.failed),
        absence=f"there is no {MANIFEST_PATTERN} in {shown} or {shown}/{_SUB_FOLDER}",
        if_missing=missing,
    )


def _notices(context: Context, part: PlannedPart) -> Iterable[str]:
    """What manifest_url is, where it is not the one manifest."""
    number, settings = len(part.items), context.settings
    if number <= 1:
        return
    verb = "would be" if settings.dry_run else "is"
    if settings.index == "none":
        first = quote(part.items[0].destination.name)
        yield f"manifest_url {verb} the first of {number:,} manifests, {first}: no page lists them"
    else:
        yield f"manifest_url {verb} the folder's page, because there are {number:,} manifests; include picks one"


def _walk(context: Context, source: SourceFolder, destination: StorageLocation) -> WalkResult:
    """The files of the folder's own manifests/ where that holds a manifest, else those of the folder itself."""
    inner = SourceFolder(source.folder / _SUB_FOLDER)
    try:
        has_inner = stat.S_ISDIR(inner.folder.lstat().st_mode)
    except OSError:  # what keeps it from being looked at keeps the rest, too, and is told there
        has_inner = False
    for folder in (inner, source) if has_inner else (source,):
        walked = folder.walk(context, key_prefix=destination.relative_path, top_level_only=True)
        names = (*(name for _, name in walked.files), *(file.path for file in walked.skipped))
        if any(name.startswith(MANIFEST_START) for name in names):
            break
    return walked


class _Checked:
    """Manifests that are JSON objects, and what is none."""

    def __init__(self) -> None:
        self.items: list[UploadItem] = []
        self.skipped: list[SkippedFile] = []
        self.failed: list[FailedItem] = []

    def add(self, item: UploadItem, path: Path, cancel: CancelToken) -> None:
        """Look into one. At most MAX_MANIFEST_BYTES, and what is read of them, are in memory. Raises CancelledError."""
        try:
            with SourceFile.open(path) as file:
                data = _head(file.chunks(cancel), MAX_MANIFEST_BYTES + 1)
        except SkipFileError as skip:
            self.skipped.append(SkippedFile(str(path), skip.reason))
            return
        except (LocalFileError, IntegrityError) as error:
            self.failed.append(FailedItem(str(path), item.destination, error))
            return
        fault = manifest_fault(data)
        if not fault:
            self.items.append(item)
            return
        broken = IntegrityError(
            f"{quote(path.name)} is no manifest",
            why=fault,
            remedy="Look at what wrote it, or leave it out with exclude.",
        )
        self.failed.append(FailedItem(str(path), item.destination, broken))


def _head(chunks: Iterable[bytes], limit_bytes: int) -> bytes:
    data = bytearray()
    for chunk in chunks:
        data += chunk[: limit_bytes - len(data)]
        if len(data) >= limit_bytes:
            break
    return bytes(data)


def _snippets(context: Context, stored: list[StorageLocation]) -> tuple[Snippet, ...]:
    """How the one manifest is fetched; of several, the page has the links."""
    if len(stored) != 1 or context.staging_dir is not None:
        return ()
    (location,), platform = stored, single_root(context.target).platform
    line = download_line(location.https_url, location.name, platform)
    return (Snippet("Fetch the manifest:", language(platform), (line,)),)
