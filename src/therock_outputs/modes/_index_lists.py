"""Keeps the lists for machines that mode index made true to the pages that upload modes store beside them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import NotPermittedError, ServiceUnavailableError
from _therock_utils._transfer_types import SMALL_OBJECT_LIMIT_BYTES
from therock_outputs.index_json import (
    JSON_CONTENT_TYPE,
    JSON_NAME,
    is_own_json,
    list_time,
    read_digests,
    render_index_json,
)
from therock_outputs.index_page import PAGE_NAME
from therock_outputs.modes._documents import Keep, Remove, Write, store_documents
from therock_outputs.modes._index_documents import ReadDocument, read_documents
from therock_outputs.modes._index_tree import DOCUMENT_NAMES, Item, folders_of, is_record
from therock_outputs.report import in_one_line
from therock_outputs.run_target import single_root

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from _therock_utils._transfer_types import ListedObject, StoredBytes
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.modes._documents import Decision
    from therock_outputs.modes._index_tree import Folder, Maker
    from therock_outputs.modes._upload import Uploader

_UNLISTED: Final = (NotPermittedError, ServiceUnavailableError)


def refresh_lists(uploader: Uploader) -> None:
    """Write each list of ours anew that lies beside a page that this run stored: it would be older than the page.

    Where there is none, none is written. Never raises: a list that fails is a failed item. Memory: the lists, old and
    new, and the rows of open folders.
    """
    context = uploader.context
    if context.settings.dry_run or context.cancel.cancelled:
        return
    stored = {item.location for item in uploader.result.stored}
    pages = [location for location in stored if location.name == PAGE_NAME]
    lists = sorted((page.parent.child(JSON_NAME) for page in pages), key=str)
    lists = [location for location in lists if location not in stored]
    store_documents(uploader, lists, lambda present: _compose(uploader, present))


def _compose(
    uploader: Uploader, present: Mapping[StorageLocation, StoredBytes | None]
) -> Mapping[StorageLocation, Decision]:
    decisions: dict[StorageLocation, Decision] = dict.fromkeys(present, Keep())
    old = {at: found.data for at, found in present.items() if found is not None and is_own_json(found.data)}
    for top in _outermost(at.parent for at in old):
        try:
            for at, data in _render_below(uploader, top, old):
                is_too_large = len(data) > SMALL_OBJECT_LIMIT_BYTES  # mode index says what to do about it
                decisions[at] = Remove() if is_too_large else Write(data, JSON_CONTENT_TYPE)
        except _UNLISTED as error:
            why = f"its folder cannot be listed: {in_one_line(error)}"
            decisions |= {at: Keep(why) for at in old if _is_at_or_below(at.parent, top)}
    return decisions


def _render_below(
    uploader: Uploader, top: StorageLocation, old: Mapping[StorageLocation, bytes]
) -> Iterator[tuple[StorageLocation, bytes]]:
    """The lists of those folders from `top` down that have an old one. Raises an OutputsError."""
    root = single_root(uploader.context.target)
    below = _Below(uploader, root.prefix, top)
    own = {(item.location, item.size_bytes): item.sha256 for item in uploader.result.stored}
    makers = below.makers()
    for folder in folders_of(below.items(), lambda name: makers.get(name, "new"), top=below.name_of(top), force=False):
        location = root.root().child(folder.path) if folder.path else root.root()
        at = location.child(JSON_NAME)
        if at in old:
            yield at, _render(location, folder, old[at], own)


class _Below:
    """What lies below a folder of a run, by names relative to the run."""

    def __init__(self, uploader: Uploader, prefix: str, top: StorageLocation) -> None:
        self._backend = uploader.backend
        self._cancel = uploader.context.cancel
        self._start = len(prefix) + 1
        self._top = top

    def name_of(self, location: StorageLocation) -> str:
        return location.relative_path[self._start :]

    def makers(self) -> dict[str, Maker]:
        """Who made each document that is there now."""
        documents = ((entry.location, entry.size_bytes) for entry in self._listed() if _is_document(entry.location))
        read = read_documents(self._backend, list(documents), cancel=self._cancel)
        return {self.name_of(at): found.maker if isinstance(found, ReadDocument) else "unknown" for at, found in read}

    def items(self) -> Iterator[Item]:
        for entry in self._listed():
            yield Item(self.name_of(entry.location), entry.size_bytes, entry.modified)

    def _listed(self) -> Iterator[ListedObject]:
        listed = self._backend.list_objects(self._top, cancel=self._cancel)
        return (entry for entry in listed if not is_record(self.name_of(entry.location)))


def _render(
    location: StorageLocation, folder: Folder, old: bytes, own: Mapping[tuple[StorageLocation, int], str]
) -> bytes:
    """The list of `folder`, with digests of what this run stored, and those of the old list that still hold."""
    known = read_digests(old)
    files = []
    for file in folder.files:
        at = location.child(file.name)
        sha256 = own.get((at, file.size_bytes)) or known.get((file.name, file.size_bytes, list_time(file.modified)), "")
        files.append(dataclasses.replace(file, sha256=sha256))
    return render_index_json(location, files, folder.folders)


def _outermost(folders: Iterable[StorageLocation]) -> list[StorageLocation]:
    """Those that lie in no other one."""
    found: list[StorageLocation] = []
    for folder in sorted(set(folders), key=lambda folder: f"{folder.relative_path}/"):
        if not found or not _is_at_or_below(folder, found[-1]):
            found.append(folder)
    return found


def _is_at_or_below(location: StorageLocation, folder: StorageLocation) -> bool:
    return f"{location.relative_path}/".startswith(f"{folder.relative_path}/")


def _is_document(location: StorageLocation) -> bool:
    return location.name in DOCUMENT_NAMES
