"""Mode index: writes the pages, and their lists for machines, that show every folder of a run, or of a subtree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from _therock_utils._errors import CancelledError, InputError, OutputsError
from _therock_utils._keys import MAX_KEY_BYTES, key_fault, quote
from _therock_utils._transfer_types import UploadResult
from therock_outputs.index_page import PAGE_NAME
from therock_outputs.modes._documents import add_failed, in_rounds
from therock_outputs.modes._index_course import IndexCourse
from therock_outputs.modes._index_tree import RECORDS_FOLDER
from therock_outputs.modes._selectors import some_of
from therock_outputs.modes._upload import Uploader, leave_record
from therock_outputs.report import Part, Report, error_of
from therock_outputs.run_target import single_root
from therock_outputs.text_safety import count, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.context import Context
    from therock_outputs.modes._index_course import Outcome
    from therock_outputs.report import PartState

OUTPUTS: Final[Mapping[str, str]] = {
    "index_url": "Page of the run, or of the folder `subfolder`; empty where it was not written and none is there.",
}


def run(context: Context) -> Report:
    """Write the pages.

    Raises InputError for a bad `subfolder`, NotFoundError where the run or that folder holds nothing, and an
    OutputsError where the run cannot be listed: in all these cases nothing was written. What fails for one page is in
    the report. Memory: as IndexCourse.go says.
    """
    subfolder = _subfolder(context)
    uploader = Uploader(context)
    course = IndexCourse(context, uploader.backend, single_root(context.target), subfolder)
    error: OutputsError | None = None
    try:
        in_rounds(context, course.go)
    except OutputsError as problem:
        if not course.outcome.stored and not isinstance(problem, CancelledError):
            raise
        error = problem
    outcome = course.outcome
    uploader.result = UploadResult(
        stored=tuple(sorted(outcome.stored.values(), key=lambda item: item.location.relative_path.encode()))
    )
    add_failed(uploader, {**outcome.failed, **course.conflicts})
    return leave_record(uploader, _report(uploader, course, subfolder, error))


def _subfolder(context: Context) -> str:
    """The input, without slashes at its ends. Raises InputError where no folder of a run has that name."""
    subfolder = context.settings.subfolder.strip("/")
    fault = key_fault(subfolder)
    if not fault and (subfolder == RECORDS_FOLDER or subfolder.startswith(f"{RECORDS_FOLDER}/")):
        fault = "it holds the run's records, which have no page"
    if fault:
        raise InputError(
            f"subfolder {quote(context.settings.subfolder)} cannot be used",
            why=fault,
            remedy="Give a folder relative to the run's, e.g. logs/math-libs, or leave it out for the whole run.",
        )
    return subfolder


def _report(uploader: Uploader, course: IndexCourse, subfolder: str, error: OutputsError | None) -> Report:
    context, result, outcome = uploader.context, uploader.result, course.outcome
    page = None if subfolder in outcome.nameless else course.location(subfolder, PAGE_NAME)
    is_there = page in outcome.stored or page in outcome.kept or page in outcome.siblings
    dry_run = context.settings.dry_run
    shown = page if is_there and not dry_run else None
    return Report(
        mode=context.settings.mode,
        subject=subfolder or course.location("").name,
        root=single_root(context.target),
        parts=(_part(uploader, outcome, shown),),
        result=result,
        outputs={"index_url": shown.https_url if shown is not None else ""},
        page=shown,
        notices=(*context.target.notices, *_notices(course, forced=context.settings.force_index, dry_run=dry_run)),
        warnings=(*context.warnings, *_warnings(outcome)),
        error=error or error_of(result),
        staging_dir=context.staging_dir,
        dry_run=dry_run,
    )


def _part(uploader: Uploader, outcome: Outcome, page: StorageLocation | None) -> Part:
    result = uploader.result
    failures = len(result.failed)
    state: PartState = "stored" if result.stored else "nothing"
    words = [f"of {count(outcome.folder_count, 'folder')}"] if outcome.folder_count else ["there is nothing to list"]
    if outcome.unchanged:
        stored = len(result.stored) - len(outcome.unchanged)
        if stored:
            words.append(f"{stored:,} {'to store' if uploader.context.settings.dry_run else 'stored'}")
        words.append(f"{len(outcome.unchanged):,} unchanged")
    if outcome.removed:
        words.append(f"{len(outcome.removed):,} removed")
    if failures:
        state = "partly" if result.stored else "failed"
        words = [f"{failures:,} of {failures + len(result.stored):,} not stored"]
    return Part("Index pages", state, len(result.stored), result.total_bytes, page, note=", ".join(words))


def _notices(course: IndexCourse, *, forced: bool, dry_run: bool) -> Iterable[str]:
    outcome = course.outcome
    foreign = outcome.kept - set(outcome.failed)
    if foreign:
        yield _about_foreign(sorted(map(course.name_of, foreign), key=str.encode), forced=forced)
    if outcome.nameless:
        without, first = count(len(outcome.nameless), "folder"), quote(min(outcome.nameless, key=str.encode))
        yield f"{without} without a page: its key would be longer than {MAX_KEY_BYTES:,} bytes (the first: {first})"
    if outcome.removed:
        done = "would be removed" if dry_run else "was removed" if len(outcome.removed) == 1 else "were removed"
        yield f"{_pages(outcome.removed, course)} {done}: nothing else is left in the folder"


def _about_foreign(names: Sequence[str], *, forced: bool) -> str:
    first = visible(names[0])
    start, them = f"1 page was not made by this action and stays as it is ({first})", "it"
    if len(names) > 1:
        start = f"{len(names):,} pages were not made by this action and stay as they are (the first is {first})"
        them = "them"
    if forced:
        return f"{start}: no page is replaced that is all its folder holds, or larger than 16 MiB"
    return f"{start}; force_index: true would replace {them}"


def _warnings(outcome: Outcome) -> Iterable[str]:
    """What people must not miss."""
    if outcome.unusable_records:
        records = count(outcome.unusable_records, "record")
        yield f"{records} of the run cannot be used, so digests of what they name are missing (mode verify says more)"


def _pages(locations: AbstractSet[StorageLocation], course: IndexCourse) -> str:
    """`the page a`, `3 pages (a, b, c)`: names relative to the run."""
    names = sorted(map(course.name_of, locations), key=str.encode)
    if len(names) == 1:
        return f"the page {visible(names[0])}"
    return f"{len(names):,} pages ({some_of(map(visible, names))})"
