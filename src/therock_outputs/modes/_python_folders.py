"""Pages at a folder's own URL with a slash at its end, which is what pip asks for and S3 has no pages for by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from _therock_utils._errors import CancelledError, NotPermittedError, OutputsError
from _therock_utils._s3_workers import lane, run_lanes
from _therock_utils._transfer_types import StoredBytes
from therock_outputs.modes._documents import add_failed
from therock_outputs.simple_pages import HTML_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.modes._upload import Uploader

_MAX_ROUNDS: Final = 8
_AT_ONCE: Final = 16
_GRACE_SECONDS: Final = 0.5


def store_folder_documents(
    uploader: Uploader,
    lists: Mapping[StorageLocation, bytes],
    render: Callable[[StorageLocation, bytes], bytes],
) -> None:
    """Store, at the URL of each folder, the page that `render` makes of its list (JSON) `lists`.

    There is no condition on such a write, so the list is read again after it: where another job changed it meanwhile,
    the page is made again. Whoever changed it last sees its own change, so that the page ends as the list's. `lists`
    gives the bytes that this run stored under a condition, for a list that cannot be read: a list that this run did not
    store must not be among them. Never raises but CancelledError.
    """
    context = uploader.context
    if context.settings.dry_run or context.staging_dir is not None:
        return  # in a folder, index.html is what a web server shows
    made: dict[StorageLocation, bytes] = {}
    failed: dict[StorageLocation, OutputsError | None] = {}
    for _ in range(_MAX_ROUNDS):
        pages = {at: render(at, data) for at, data in _read(uploader, lists, failed).items()}
        changed = {at: page for at, page in pages.items() if made.get(at) != page}
        if not changed:
            break
        failed |= _put_all(uploader, changed)
        made |= changed
        lists = {at: lists[at] for at in lists if at not in failed}
    add_failed(uploader, failed)


def _read(
    uploader: Uploader,
    lists: Mapping[StorageLocation, bytes],
    failed: dict[StorageLocation, OutputsError | None],
) -> dict[StorageLocation, bytes]:
    locations = tuple(lists)
    answers = uploader.backend.read_all_small(locations, cancel=uploader.context.cancel) if locations else ()
    found: dict[StorageLocation, bytes] = {}
    for at, answer in zip(locations, answers, strict=True):
        if isinstance(answer, StoredBytes):
            found[at] = answer.data
        elif isinstance(answer, NotPermittedError):
            found[at] = lists[at]
        elif isinstance(answer, OutputsError):
            failed[at] = answer
    return found


def _put_all(uploader: Uploader, pages: Mapping[StorageLocation, bytes]) -> dict[StorageLocation, OutputsError]:
    """Store all pages; what failed, and why. Raises CancelledError."""
    cancel, backend = uploader.context.cancel, uploader.backend
    failed: dict[StorageLocation, OutputsError] = {}

    def put(at: StorageLocation, page: bytes) -> None:
        try:
            cancel.check()
            backend.put_folder_document(at.parent, page, HTML_TYPE, cancel=cancel)
        except OutputsError as error:
            failed[at] = error

    jobs = [lambda at=at, page=page: put(at, page) for at, page in pages.items()]
    run_lanes([lane(jobs, _AT_ONCE)], cancel=cancel, grace_seconds=_GRACE_SECONDS)
    cancel.check()
    return {at: error for at, error in failed.items() if not isinstance(error, CancelledError)}
