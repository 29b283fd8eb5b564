"""The course that every upload mode takes: payload, digests, pages, record; and the report of all of it."""

from __future__ import annotations

import dataclasses
import re
import secrets
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import CancelledError, IntegrityError, NotPermittedError, OutputsError
from _therock_utils._transfer_types import FailedItem, UploadItem, UploadResult
from _therock_utils.s3_buckets import is_inventory_bucket
from therock_outputs.index_page import ListedFile, render_index_page
from therock_outputs.modes._plan import PlannedPart, missing_findings, report_parts
from therock_outputs.render_outputs import render_document
from therock_outputs.report import Report, error_of
from therock_outputs.run_target import single_root

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context

_SHOWN_CONFLICTS: Final = 5
_RECORD_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")


class Uploader:
    """Stores in steps and gathers what came of them."""

    def __init__(self, context: Context) -> None:
        """Nothing is opened before the first item is stored."""
        self.context = context
        self.result = UploadResult()
        self._backend: StorageBackend | None = None

    @property
    def backend(self) -> StorageBackend:
        """The storage backend, opened at the first use."""
        if self._backend is None:
            self._backend = self.context.open_backend()
        return self._backend

    def store(self, items: Sequence[UploadItem], *, conflicts: bool = True) -> UploadResult:
        """Store one step's items. `conflicts=False` is for pages, which are made anew on each run.

        Never raises: what stops the whole step is the failure of each item.
        """
        if not items:
            return UploadResult()
        try:
            self.context.cancel.check()
            result = self.backend.upload(
                items,
                on_conflict=self.context.settings.on_conflict if conflicts else "overwrite",
                origin=self.context.origin,
                cancel=self.context.cancel,
            )
        except OutputsError as error:
            result = UploadResult(failed=tuple(FailedItem(item.label, item.destination, error) for item in items))
        if not conflicts:
            result = dataclasses.replace(result, conflicts=())
        self.result += result
        return result

    def listed_below(self, folder: StorageLocation, page: StorageLocation) -> tuple[ListedFile, ...]:
        """What lies below `folder` now, for its page: also what earlier attempts left there.

        Without the right to list, only what this run stored.
        """
        start = len(folder.relative_path) + 1
        if not self.context.settings.dry_run and not self.context.cancel.cancelled:
            try:
                return tuple(
                    ListedFile(listed.location.relative_path[start:], listed.size_bytes)
                    for listed in self.backend.list_objects(folder)
                    if listed.location != page
                )
            except NotPermittedError:
                self.context.say(
                    "the folder cannot be listed with these credentials: its page shows this run's files only"
                )
        prefix = f"{folder.relative_path}/"
        return tuple(
            ListedFile(stored.location.relative_path[start:], stored.size_bytes)
            for stored in self.result.stored
            if stored.location.relative_path.startswith(prefix)
        )


def server_writes_pages(context: Context, root: WorkflowOutputRoot) -> bool:
    """Whether pages of the multi-arch layout appear by themselves: in the inventory's buckets they do."""
    return is_inventory_bucket(root.bucket) and context.settings.index != "write"


def store_page(uploader: Uploader, page: StorageLocation, title: str, files: Sequence[ListedFile]) -> None:
    """Write one index page, last: it names only what is stored."""
    if files:
        uploader.store([UploadItem(render_index_page(title, files), page, "text/html; charset=utf-8")], conflicts=False)


def upload_in_steps(
    context: Context,
    parts: tuple[PlannedPart, ...],
    *,
    subject: str,
    finish: Callable[[Uploader], None],
    outputs: Callable[[UploadResult], dict[str, str]],
) -> Report:
    """Store the parts' items, then what `finish` adds (digests, pages), then the record. Returns the report.

    Never raises for what could not be stored: the report has both sides.
    """
    root = single_root(context.target)
    uploader = Uploader(context)
    skipped = tuple(file for part in parts for file in part.skipped)
    uploader.result = UploadResult(skipped=skipped)
    stop: OutputsError | None = None
    try:
        uploader.store([item for part in parts for item in part.items])
        finish(uploader)
    except OutputsError as error:
        stop = error
    result = uploader.result + UploadResult(failed=tuple(item for part in parts for item in part.refused))
    warnings, missing = missing_findings(parts)
    cancelled = CancelledError(context.cancel.signal_number) if context.cancel.cancelled else None
    decisive = cancelled or error_of(result) or stop or missing
    if stop is not None and decisive is not stop:
        warnings = (*warnings, f"the pages are not complete: {stop.what}")
    report = Report(
        mode=context.settings.mode,
        subject=subject,
        root=root,
        parts=report_parts(parts, result),
        result=result,
        outputs=outputs(result),
        page=None,
        notices=context.target.notices,
        warnings=(*context.warnings, *warnings, *_conflict_warnings(result)),
        error=decisive,
        staging_dir=context.staging_dir,
        dry_run=context.settings.dry_run,
    )
    report = dataclasses.replace(report, page=next((part.location for part in report.parts if part.location), None))
    return _leave_record(uploader, report)


def _conflict_warnings(result: UploadResult) -> tuple[str, ...]:
    """One warning a conflict, the first few; what a re-run of the same job replaces is no warning."""
    counted = [conflict for conflict in result.conflicts if conflict.state != "rerun" and conflict.action != "refused"]
    warnings = [
        f"{conflict.location.relative_path} was {conflict.action}: "
        + ("other bytes lay there" if conflict.state == "different" else "what lay there cannot be compared")
        + (f", written by {conflict.origin}" if conflict.origin else "")
        for conflict in counted[:_SHOWN_CONFLICTS]
    ]
    if len(counted) > _SHOWN_CONFLICTS:
        warnings.append(f"{len(counted) - _SHOWN_CONFLICTS:,} more objects lay there with other bytes")
    return tuple(warnings)


def _leave_record(uploader: Uploader, report: Report) -> Report:
    """Store the report itself, last, under a name of its own. Its failure is a warning: the outputs are stored."""
    context = uploader.context
    if not report.result.stored or report.dry_run or context.cancel.cancelled:
        return report
    settings = context.settings
    subject = settings.artifact_group or "-".join(part for part in (settings.stage, settings.family) if part)
    words = (subject, settings.github_job or "local", settings.github_run_attempt or "1", secrets.token_hex(8))
    name = "-".join(_RECORD_NAME.sub("_", word) for word in words)
    try:
        location = report.root.run_record(str(settings.mode), f"{name}.json")
        uploader.backend.put_new(location, render_document(report), "application/json")
    except OutputsError as error:
        return dataclasses.replace(
            report, warnings=(*report.warnings, f"the run's record was not stored: {error.what}")
        )
    return report


def digest_mismatch(path: str, expected: str, actual: str) -> IntegrityError:
    """The error for an archive whose sidecar names another digest."""
    return IntegrityError(
        f"{path} is not what its sidecar says",
        why=f"the sidecar has sha256 {expected}, the archive {actual}",
        remedy="Make both again: one of them is from another build.",
    )
