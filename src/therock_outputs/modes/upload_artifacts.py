"""Mode upload-artifacts: artifact directories become archives and are stored with their digests while others compress.

An archive that the build brings goes as it is. One artifact that fails costs only itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import InputError, IntegrityError, LocalFileError, ServiceUnavailableError
from _therock_utils._s3_retry import is_permanent_for_bucket
from _therock_utils._transfer_types import SkippedFile, StoredObject, UploadItem, UploadResult
from _therock_utils.artifact_names import SIDECAR_EXTENSION
from _therock_utils.content_types import infer_content_type
from therock_outputs._artifact_tree import read_artifact_tree
from therock_outputs.modes._artifact_pipeline import ArchivePipeline, Making
from therock_outputs.modes._artifact_plan import ARTIFACTS, ArtifactFolder, ArtifactPlan, StageArtifacts
from therock_outputs.modes._artifacts import Archive, prepare_archives, store_archives, stores_at_once
from therock_outputs.modes._pages import server_writes_pages
from therock_outputs.modes._plan import planned
from therock_outputs.modes._scratch import make_scratch
from therock_outputs.modes._selectors import artifact_names
from therock_outputs.modes._upload import Uploader, upload_in_steps
from therock_outputs.run_target import single_root
from therock_outputs.text_safety import count, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from _therock_utils._cancel import CancelToken
    from _therock_utils._errors import OutputsError
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.context import Context
    from therock_outputs.modes._artifact_pipeline import Made
    from therock_outputs.report import Report
    from therock_outputs.settings import Settings

OUTPUTS: Final[Mapping[str, str]] = {
    "artifacts": "JSON list of the artifacts that are stored with their digests, name_component_target, sorted.",
    "missing": "JSON list of the artifacts that the stage should have made and of which there is nothing.",
}

_LEVELS: Final = {"zst": (1, 19), "xz": (0, 9)}  # above 19 a reader of zstd needs hundreds of MB, too


def run(context: Context) -> Report:
    """Store. Raises InputError for settings that this mode cannot use."""
    settings = context.settings
    root = single_root(context.target)
    _check_level(settings)
    folder = ArtifactFolder.find(context)
    plan = ArtifactPlan(context, root, folder, StageArtifacts.of(context, root))
    part = planned(ARTIFACTS, root.root(), plan.part)
    if not settings.artifact_group and server_writes_pages(context, root):
        part = part.with_page(root.artifact_index(), by_server=True)
    storing = _Storing(context, plan)
    report = upload_in_steps(
        context,
        folder.tree.folder,
        (part,),
        store=storing.store,
        outputs=lambda opens: {
            "artifacts": json.dumps(artifact_names(name for name in storing.sound if root.artifact(name) in opens)),
            "missing": json.dumps(plan.missing),
        },
        subject=_subject(settings),
    )
    return _with_folder(report, root.root()) if settings.staging_dir else report


def _with_folder(report: Report, folder: StorageLocation) -> Report:
    """The report with the folder in which the artifacts are staged, where its row has no page: mode index makes one."""
    parts = tuple(
        dataclasses.replace(part, location=folder, is_folder=True)
        if part.file_count and part.location is None
        else part
        for part in report.parts
    )
    return dataclasses.replace(report, parts=parts)


def _subject(settings: Settings) -> str:
    if not settings.stage:
        return settings.artifact_group or ARTIFACTS.lower()
    return "/".join(part for part in (settings.stage, settings.family) if part)


def _check_level(settings: Settings) -> None:
    level = settings.compression_level
    lowest, highest = _LEVELS[settings.compression]
    if level is not None and not lowest <= level <= highest:
        message = f"compression_level {level} cannot be used with compression {settings.compression}"
        raise InputError(message, remedy=f"Give {lowest} to {highest}, or leave it out.")


class _Storing:
    """Stores what was planned. `sound` are names of archives that are stored with their digests."""

    def __init__(self, context: Context, plan: ArtifactPlan) -> None:
        self._context = context
        self._plan = plan
        self.sound: list[str] = []

    def store(self, uploader: Uploader) -> None:
        """Store everything. Raises CancelledError, and what would meet all that is left, too."""
        if self._context.settings.dry_run:
            self._show(uploader)
            self._store(uploader, prepare_archives(uploader, self._plan.ready, self._plan.with_sidecar))
            return
        with contextlib.ExitStack() as stack:
            pipeline = self._start(uploader, stack)
            archives = prepare_archives(uploader, self._plan.ready, self._plan.with_sidecar)
            if stores_at_once(uploader):
                made = [one for batch in pipeline.batches() for one in batch]
                self._store(uploader, [*archives, *self._archives(uploader, made)])
                return
            self._store(uploader, archives)
            for batch in pipeline.batches():
                archives = self._archives(uploader, batch)
                self._store(uploader, archives)
                for archive in archives:
                    with contextlib.suppress(OSError):  # the whole folder goes in the end
                        Path(str(archive.item.source)).unlink()

    def _start(self, uploader: Uploader, stack: contextlib.ExitStack) -> ArchivePipeline:
        """Begin to compress, what is biggest first; without a temporary folder, all that is to be made fails."""
        context, settings = self._context, self._context.settings
        weights = {item.destination: _content_bytes(item, context.cancel) for item in self._plan.to_make}
        items = sorted(self._plan.to_make, key=lambda item: (-weights[item.destination], item.destination.name))
        scratch = Path()
        try:
            if items:
                scratch = make_scratch(settings.runner_temp, stack, purpose="the archives")
        except LocalFileError as error:
            uploader.give_up(items, error)
            items = []
        for item in items:
            uploader.shown_paths[str(scratch / item.destination.name)] = item.label
        pipeline = ArchivePipeline(
            items,
            scratch,
            Making.on_this_machine(settings.compression, settings.compression_level, count=len(items)),
            keeps_all=stores_at_once(uploader),
            cancel=context.cancel,
            say=context.say,
        )
        return stack.enter_context(pipeline)

    def _archives(self, uploader: Uploader, batch: Iterable[Made]) -> list[Archive]:
        """The archives of a batch; what failed is counted, and what was left out listed."""
        archives = []
        for made in sorted(batch, key=lambda made: made.item.destination.name):
            if made.error is not None:
                uploader.give_up([made.item], made.error)
            elif made.archive is not None:
                item = UploadItem(made.archive.path, made.item.destination)
                archives.append(Archive.made(item, made.archive.sha256))
                self._list_skipped(uploader, made.item, made.archive.skipped)
        return archives

    def _store(self, uploader: Uploader, archives: Sequence[Archive]) -> None:
        before = uploader.result
        rows, _ = store_archives(uploader, archives)
        self.sound += [row.name for row in rows if not row.name.endswith(SIDECAR_EXTENSION)]
        stopping = _stopping_error(before, uploader.result)
        if stopping is not None:
            raise stopping

    def _show(self, uploader: Uploader) -> None:
        """Say which archives would be made. Their sizes are not known, so they count as 0."""
        for item in self._plan.to_make:
            self._context.cancel.check()
            name = item.destination.name
            try:
                tree = read_artifact_tree(Path(str(item.source)), cancel=self._context.cancel)
            except (IntegrityError, LocalFileError) as error:
                uploader.give_up([item], error)
                continue
            self._list_skipped(uploader, item, tree.skipped)
            for location in (item.destination, Archive(item).sidecar_location):
                uploader.add_stored(StoredObject(location, 0, "", infer_content_type(location.name), "dry-run"))
            members = count(len(tree.members), "member")
            self._context.say(f"would make {name} of {members}, {size(tree.content_bytes)}")

    def _list_skipped(self, uploader: Uploader, item: UploadItem, skipped: Iterable[SkippedFile]) -> None:
        above = self._plan.prefix + Path(str(item.source)).name
        uploader.result += UploadResult(
            skipped=tuple(SkippedFile(f"{above}/{file.path}", file.reason) for file in skipped)
        )


def _stopping_error(before: UploadResult, after: UploadResult) -> OutputsError | None:
    """What failed since `before` in a way that everything else will, too: the bucket's refusal, or no answer at all."""
    errors = [item.error for item in after.failed[len(before.failed) :]]
    got_through = len(after.stored) > len(before.stored)
    for error in errors:
        if is_permanent_for_bucket(error) or (isinstance(error, ServiceUnavailableError) and not got_through):
            return error
    return None


def _content_bytes(item: UploadItem, cancel: CancelToken) -> int:
    """Size of what lies in an artifact directory, as far as it can be seen: only an order is made of it."""
    total_bytes = 0
    folders = [str(item.source)]
    while folders:
        cancel.check()
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    total_bytes += entry.stat(follow_symlinks=False).st_size
    return total_bytes
