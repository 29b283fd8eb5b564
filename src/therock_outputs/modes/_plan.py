"""What an upload mode wants to store, part by part; and the rows of the summary made of what came of it. Pure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from _therock_utils._errors import LocalFileError, NotFoundError
from _therock_utils._transfer_types import FailedItem
from therock_outputs.report import Part, PartState

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

    from _therock_utils._errors import OutputsError
    from _therock_utils._transfer_types import SkippedFile, UploadItem, UploadResult
    from _therock_utils.storage_location import StorageLocation

IfMissing = Literal["error", "warn", "ignore"]


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """One row of the summary to be: what to store, and what is said where there is nothing.

    `page` is what the row's link opens, once it is stored; `page_by_server` says that the server makes it. `failed` is
    what could not be prepared, and why. `notices` are for people; `warnings` they must not miss.
    """

    what: str
    items: tuple[UploadItem, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    page: StorageLocation | None = None
    page_by_server: bool = False
    failed: tuple[FailedItem, ...] = ()
    notices: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    absence: str = ""
    if_missing: IfMissing = "warn"

    def with_page(self, page: StorageLocation, *, by_server: bool = False) -> PlannedPart:
        """The same, with a page to link to."""
        return dataclasses.replace(self, page=page, page_by_server=by_server)

    def brings(self, location: StorageLocation) -> bool:
        """Whether one of the items goes to `location`: the build made that file itself."""
        return any(item.destination == location for item in self.items)

    def is_stored_in_part(self, result: UploadResult) -> bool:
        """Whether `result` stored at least one of the items."""
        stored = {item.location for item in result.stored}
        return any(item.destination in stored for item in self.items)


def planned(what: str, location: StorageLocation, plan: Callable[[], PlannedPart]) -> PlannedPart:
    """What `plan` returns; files that cannot be looked at are the failure of their own part and of no other."""
    try:
        return plan()
    except LocalFileError as error:
        return PlannedPart(what, failed=(FailedItem(location.relative_path, location, error),))


def missing_findings(parts: tuple[PlannedPart, ...]) -> tuple[tuple[str, ...], OutputsError | None]:
    """Warnings, and the error, of parts with nothing to store."""
    empty = [part for part in parts if not part.items and not part.failed and part.absence]
    warnings = tuple(f"{part.what}: {part.absence}" for part in empty if part.if_missing == "warn")
    wanted = [part for part in empty if part.if_missing == "error"]
    if not wanted:
        return warnings, None
    error = NotFoundError(
        f"nothing to store: {', '.join(part.what for part in wanted)}",
        why="; ".join(part.absence for part in wanted),
        remedy="If that is expected here, set if_no_files_found: warn (or ignore).",
    )
    return warnings, error


def report_parts(
    parts: tuple[PlannedPart, ...], result: UploadResult, kept_pages: AbstractSet[StorageLocation] = frozenset()
) -> tuple[Part, ...]:
    """A row a part. It links to its page only where that is stored or kept, or made by the server."""
    sizes = {item.location: item.size_bytes for item in result.stored}
    failed = {item.location for item in result.failed}
    return tuple(_row(part, sizes, failed, kept_pages) for part in parts)


def _row(
    part: PlannedPart,
    sizes: dict[StorageLocation, int],
    failed: set[StorageLocation],
    kept_pages: AbstractSet[StorageLocation],
) -> Part:
    destinations = [*(item.destination for item in part.items), *(item.location for item in part.failed)]
    failures = sum(destination in failed for destination in destinations)
    stored = [sizes[destination] for destination in destinations if destination in sizes and destination not in failed]
    state: PartState = "stored"
    note = ""
    if failures:
        state = "partly" if stored else "failed"
        note = f"{failures:,} of {len(destinations):,} not stored"
    elif not destinations:
        state, note = "nothing", part.absence
    elif not stored:
        state, note = "left-out", "nothing had to be stored"
    by_server = part.page_by_server and bool(stored) and part.page not in sizes
    location = part.page if part.page in sizes or part.page in kept_pages or by_server else None
    if by_server:
        note = "; ".join(words for words in (note, "the server makes this page") if words)
    return Part(part.what, state, len(stored), sum(stored), location, note=note, by_server=by_server)
