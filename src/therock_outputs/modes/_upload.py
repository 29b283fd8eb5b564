"""The course that every upload mode takes: its steps, then the record; and the report of all of it."""

from __future__ import annotations

import dataclasses
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import CancelledError, OutputsError
from _therock_utils._transfer_types import FailedItem, UploadResult
from therock_outputs.modes._index_lists import refresh_lists
from therock_outputs.modes._plan import missing_findings, report_parts
from therock_outputs.modes.locate import subject_of
from therock_outputs.render_outputs import render_document
from therock_outputs.report import Report, error_of, in_one_line
from therock_outputs.run_target import single_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from _therock_utils._transfer_types import StoredObject, UploadItem
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.context import Context
    from therock_outputs.modes._plan import PlannedPart
    from therock_outputs.report import Snippet

_SHOWN_CONFLICTS: Final = 5
_RECORD_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")


class Uploader:
    """Stores in steps and gathers what came of them."""

    def __init__(self, context: Context) -> None:
        """Nothing is opened before the first item is stored."""
        self.context = context
        self.result = UploadResult()
        self.kept_pages: set[StorageLocation] = set()
        self.shown_paths: dict[str, str] = {}
        """What a message calls a source, where that is a temporary file made of something else."""
        self._attempted: set[StorageLocation] = set()
        self._backend: StorageBackend | None = None

    @property
    def backend(self) -> StorageBackend:
        """The storage backend, opened at the first use."""
        if self._backend is None:
            self._backend = self.context.open_backend()
        return self._backend

    def store(self, items: Sequence[UploadItem]) -> UploadResult:
        """Store one step's items. Never raises: what stops the whole step is the failure of each item."""
        if not items:
            return UploadResult()
        self._attempted.update(item.destination for item in items)
        try:
            self.context.cancel.check()
            result = self.backend.upload(
                items,
                on_conflict=self.context.settings.on_conflict,
                origin=self.context.origin,
                cancel=self.context.cancel,
            )
        except OutputsError as error:
            result = UploadResult(failed=_failed(items, error))
        result = dataclasses.replace(
            result,
            skipped=tuple(dataclasses.replace(file, path=self._shown(file.path)) for file in result.skipped),
            failed=tuple(dataclasses.replace(item, path=self._shown(item.path)) for item in result.failed),
        )
        self.result += result
        return result

    def _shown(self, path: str) -> str:
        return self.shown_paths.get(path, path)

    def add_stored(self, stored: StoredObject) -> None:
        """Count an object that was stored by other means than `store`."""
        self.result += UploadResult(stored=(stored,))

    def add_failed(self, failed: Iterable[FailedItem]) -> None:
        """Count what is not to be stored, or is stored and unsound."""
        failed = tuple(failed)
        self._attempted.update(item.location for item in failed)
        self.result += UploadResult(failed=failed)

    def keep_page(self, page: StorageLocation, why: str) -> None:
        """Note that `page` was left as it lay there; it can be linked all the same."""
        self.kept_pages.add(page)
        self.result += UploadResult(notices=(f"the page {page.s3_uri} was left as it is: {why}",))

    def give_up(self, items: Sequence[UploadItem], error: OutputsError) -> None:
        """Let each of `items` that no step came to fail with `error`."""
        self.add_failed(_failed([item for item in items if item.destination not in self._attempted], error))


def upload_in_steps(
    context: Context,
    folder: Path,
    parts: tuple[PlannedPart, ...],
    *,
    store: Callable[[Uploader], None],
    outputs: Callable[[AbstractSet[StorageLocation]], dict[str, str]],
    snippets: Callable[[AbstractSet[StorageLocation]], tuple[Snippet, ...]] = lambda _opens: (),
    subject: str = "",
) -> Report:
    """Let `store` store the parts' items and pages, then store the record. Returns the report.

    `outputs` and `snippets` get the locations that links can open: none in a dry run. Files that were left out are told
    by their paths relative to `folder`. `subject` is what the report is about, where
    the layout does not say. Never raises for what could not be stored: the report has both sides.
    """
    uploader = Uploader(context)
    uploader.result = UploadResult(skipped=tuple(file for part in parts for file in part.skipped))
    uploader.add_failed(item for part in parts for item in part.failed)
    try:
        store(uploader)
    except OutputsError as error:
        uploader.give_up([item for part in parts for item in part.items], error)
    refresh_lists(uploader)
    result = _relative_to(folder, uploader.result)
    warnings, missing = missing_findings(parts)
    cancelled = CancelledError(context.cancel.signal_number) if context.cancel.cancelled else None
    rows = report_parts(parts, result, uploader.kept_pages)
    dry_run = context.settings.dry_run
    opens = set() if dry_run else {stored.location for stored in result.stored} | uploader.kept_pages
    report = Report(
        mode=context.settings.mode,
        subject=subject or subject_of(context.settings),
        root=single_root(context.target),
        parts=rows,
        result=result,
        outputs=outputs(opens),
        page=None if dry_run else next((part.location for part in rows if part.location), None),
        notices=(*context.target.notices, *(notice for part in parts for notice in part.notices)),
        warnings=(
            *context.warnings,
            *(warning for part in parts for warning in part.warnings),
            *warnings,
            *conflict_warnings(result),
            *result.notices,
        ),
        error=cancelled or error_of(result) or missing,
        staging_dir=context.staging_dir,
        dry_run=dry_run,
        snippets=snippets(opens),
    )
    return leave_record(uploader, report)


def _failed(items: Sequence[UploadItem], error: OutputsError) -> tuple[FailedItem, ...]:
    return tuple(FailedItem(item.label, item.destination, error) for item in items)


def _relative_to(folder: Path, result: UploadResult) -> UploadResult:
    """`result` with the paths of what was left out relative to `folder`, whoever left it out."""
    return dataclasses.replace(
        result,
        skipped=tuple(
            dataclasses.replace(file, path=Path(file.path).relative_to(folder).as_posix())
            if Path(file.path).is_relative_to(folder)
            else file
            for file in result.skipped
        ),
    )


def conflict_warnings(result: UploadResult) -> tuple[str, ...]:
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


def leave_record(uploader: Uploader, report: Report) -> Report:
    """Store the report itself, last, under a name of its own. Its failure is a warning: the outputs are stored."""
    context = uploader.context
    if not report.result.stored or report.dry_run or context.cancel.cancelled:
        return report
    settings, subject = context.settings, report.subject.replace("/", "-")
    words = (subject, settings.github_job or "local", settings.github_run_attempt or "1", secrets.token_hex(8))
    name = "-".join(_RECORD_NAME.sub("_", word) for word in words)
    try:
        location = single_root(context.target).run_record(str(settings.mode), f"{name}.json")
        uploader.backend.put_new(location, render_document(report), "application/json", cancel=context.cancel)
    except CancelledError as error:
        return dataclasses.replace(report, error=error)
    except OutputsError as error:
        warning = f"the run's record was not stored: {in_one_line(error)}"
        return dataclasses.replace(report, warnings=(*report.warnings, warning))
    return dataclasses.replace(report, record=location)
