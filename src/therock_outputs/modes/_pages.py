"""Index pages: written last, so that they name only what is stored, and merged where another job wrote one, too.

A page is read, made anew and stored only if it still is the one that was read (If-Match): two jobs at once both end up
on it. A page that another program made is never replaced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from _therock_utils._errors import NotPermittedError, ServiceUnavailableError
from _therock_utils._transfer_types import UploadResult
from _therock_utils.s3_buckets import is_inventory_bucket
from therock_outputs.index_page import (
    OWN_GENERATORS,
    PAGE_CONTENT_TYPE,
    ListedFile,
    generator_of,
    read_index_page,
    render_index_page,
)
from therock_outputs.modes._documents import Keep, Write, store_documents
from therock_outputs.modes._index_documents import ReadDocument, read_documents
from therock_outputs.modes._index_tree import DOCUMENT_NAMES
from therock_outputs.report import in_one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from _therock_utils._transfer_types import StoredBytes
    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context
    from therock_outputs.modes._documents import Decision
    from therock_outputs.modes._upload import Uploader


def server_writes_pages(context: Context, root: WorkflowOutputRoot) -> bool:
    """Whether pages of the multi-arch layout appear by themselves: in the inventory's buckets, at AWS, they do."""
    settings = context.settings
    elsewhere = settings.staging_dir or settings.aws_endpoint_url or settings.aws_endpoint_url_s3
    return is_inventory_bucket(root.bucket) and not elsewhere


def is_left_to_server(context: Context, root: WorkflowOutputRoot) -> bool:
    """Whether the input `index` leaves such a page to the server."""
    return context.settings.index == "auto" and server_writes_pages(context, root)


@dataclass(frozen=True, slots=True)
class FolderPage:
    """The page of everything that lies below its own folder, whoever stored it, but this project's other pages."""

    location: StorageLocation
    title: str

    def rows(self, uploader: Uploader, present: tuple[ListedFile, ...]) -> tuple[ListedFile, ...]:
        """What lies there now; where it cannot be listed, what the page said and what this run stored."""
        folder = self.location.parent
        listed = _sizes_below(uploader, folder)
        if listed is None:
            start = len(folder.relative_path) + 1
            listed = {file.name: file.size_bytes for file in present} | {
                stored.location.relative_path[start:]: stored.size_bytes
                for stored in uploader.result.stored
                if stored.location.relative_path.startswith(f"{folder.relative_path}/")
            }
        listed.pop(self.location.name, None)
        own = _own_documents(uploader, folder, listed)
        return _listed({name: size_bytes for name, size_bytes in listed.items() if name not in own})


@dataclass(frozen=True, slots=True)
class ListPage:
    """The page of certain files beside it: those it names already, as far as they are still there, and this run's.

    `unsound` are names that it must not have.
    """

    location: StorageLocation
    title: str
    own: tuple[ListedFile, ...]
    unsound: AbstractSet[str]

    def rows(self, uploader: Uploader, present: tuple[ListedFile, ...]) -> tuple[ListedFile, ...]:
        """The rows; nothing is listed where the page names no other file than this run's."""
        own = {file.name: file.size_bytes for file in self.own}
        others = {
            file.name: file.size_bytes for file in present if file.name not in own and file.name not in self.unsound
        }
        if others:
            there = _sizes_below(uploader, self.location.parent)
            if there is not None:
                others = {name: there[name] for name in others if name in there}
        return _listed(others | own)


def store_page(uploader: Uploader, page: FolderPage | ListPage) -> None:
    """Write `page`, merging again where another job was faster. Never raises: a page that fails is a failed item."""

    def compose(present: Mapping[StorageLocation, StoredBytes | None]) -> Mapping[StorageLocation, Decision]:
        return {page.location: _decide(uploader, page, present[page.location])}

    store_documents(uploader, [page.location], compose)


def _decide(uploader: Uploader, page: FolderPage | ListPage, found: StoredBytes | None) -> Decision:
    listed = read_index_page(found.data) if found is not None else ()
    if listed is None:
        is_own = found is not None and generator_of(found.data).startswith(OWN_GENERATORS)
        return Keep() if is_own else Keep("another program made it")
    rows = page.rows(uploader, listed)
    if not rows and found is None and not uploader.context.settings.dry_run:
        return Keep()
    return Write(render_index_page(page.title, rows), PAGE_CONTENT_TYPE)


def _sizes_below(uploader: Uploader, folder: StorageLocation) -> dict[str, int] | None:
    """Size by name relative to `folder` of all that lies below it; None, with a notice, where it cannot be listed.

    Memory: about 200 bytes an object.
    """
    if uploader.context.settings.dry_run:
        return None
    start = len(folder.relative_path) + 1
    try:
        return {
            listed.location.relative_path[start:]: listed.size_bytes
            for listed in uploader.backend.list_objects(folder, cancel=uploader.context.cancel)
        }
    except (NotPermittedError, ServiceUnavailableError) as error:
        notice = f"{folder.s3_uri} cannot be listed, so its page may lack what others stored: {in_one_line(error)}"
        uploader.result += UploadResult(notices=(notice,))
        return None


def _own_documents(uploader: Uploader, folder: StorageLocation, sizes: Mapping[str, int]) -> set[str]:
    """Which of these names are pages and lists of this project, of mode index above all; nobody stored them as files.

    Memory: as read_documents says.
    """
    if uploader.context.settings.dry_run:
        return set()
    documents = (
        (folder.child(name), size_bytes)
        for name, size_bytes in sizes.items()
        if name.rpartition("/")[2] in DOCUMENT_NAMES
    )
    start = len(folder.relative_path) + 1
    return {
        location.relative_path[start:]
        for location, document in read_documents(uploader.backend, documents, cancel=uploader.context.cancel)
        if isinstance(document, ReadDocument) and document.maker in {"this", "sibling"}
    }


def _listed(sizes: dict[str, int]) -> tuple[ListedFile, ...]:
    return tuple(ListedFile(name, size_bytes) for name, size_bytes in sorted(sizes.items()))
