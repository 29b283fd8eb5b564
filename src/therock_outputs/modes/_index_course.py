"""The course of mode index: read the pages that are there, list the run, write each folder's page, in rounds.

What is listed is newer than the pages that were read, and a page is stored only where it still is the one that was
read. So whoever wins has seen all that earlier winners saw, and two jobs that finish together lose nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import CancelledError, ConflictError, IncompleteError, NotFoundError, OutputsError
from _therock_utils._keys import key_fault, quote
from _therock_utils._transfer_types import SMALL_OBJECT_LIMIT_BYTES, Replacement, StoredObject
from therock_outputs.index_json import JSON_CONTENT_TYPE, JSON_NAME, render_index_json
from therock_outputs.index_page import PAGE_CONTENT_TYPE, PAGE_NAME, render_folder_page
from therock_outputs.mode_names import STORING_MODES
from therock_outputs.modes._documents import Write, unchanged
from therock_outputs.modes._index_digests import RecordedDigests
from therock_outputs.modes._index_documents import ReadDocument, read_documents
from therock_outputs.modes._index_tree import DOCUMENT_NAMES, Folder, Item, folders_of, is_record, join, parents
from therock_outputs.modes._other_places import explain_empty_run
from therock_outputs.modes._selectors import some_of
from therock_outputs.run_records import read_records
from therock_outputs.text_safety import visible

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Iterator

    from _therock_utils._transfer_types import ListedObject
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation
    from _therock_utils.workflow_outputs import WorkflowOutputRoot
    from therock_outputs.context import Context
    from therock_outputs.modes._index_tree import Maker

_FOLDERS_AT_ONCE: Final = 128
_ROWS_AT_ONCE: Final = 5_000


@dataclass
class Outcome:
    """What came of it, by location. `kept` are documents of other programs, or such as cannot be read.

    `removed` belonged to folders that hold nothing else any more. `nameless` are the paths of folders whose page's key
    would be an illegal one.
    """

    stored: dict[StorageLocation, StoredObject] = field(default_factory=dict)
    unchanged: set[StorageLocation] = field(default_factory=set)
    removed: set[StorageLocation] = field(default_factory=set)
    kept: set[StorageLocation] = field(default_factory=set)
    siblings: set[StorageLocation] = field(default_factory=set)
    failed: dict[StorageLocation, OutputsError] = field(default_factory=dict)
    nameless: set[str] = field(default_factory=set)
    folder_count: int = 0
    unusable_records: int = 0


class _Seen:
    """What the first listing of a run showed, beside the documents."""

    def __init__(self, subfolder: str) -> None:
        self.is_empty = True
        self.has_subfolder = not subfolder
        self.folders: dict[str, None] = {}
        self.record_times: dict[str, datetime.datetime] = {}
        self._start = f"{subfolder}/"

    def is_to_list(self, name: str, listed: ListedObject) -> bool:
        """Note it. Returns whether it belongs on a page."""
        self.is_empty = False
        if is_record(name):
            self.record_times[name] = listed.modified
            return False
        if "/" in name:
            self.folders[name.partition("/")[0]] = None
        self.has_subfolder = self.has_subfolder or name.startswith(self._start)
        return True


class IndexCourse:
    """Writes the pages of the folders `wanted` in a run, `subfolder`, those above and below it."""

    def __init__(self, context: Context, backend: StorageBackend, root: WorkflowOutputRoot, subfolder: str) -> None:
        """Nothing is read yet."""
        self._context = context
        self._backend = backend
        self._root = root
        self._subfolder = subfolder
        self._above = set(parents(subfolder))
        self._digests = RecordedDigests((), {}, prefix=root.prefix)
        self._is_first_round = True
        # Folders by path, with the documents that lost a race: those of this round that are not yet written, and those
        # of the next.
        self._todo: dict[str, dict[StorageLocation, OutputsError]] = {}
        self._redo: dict[str, dict[StorageLocation, OutputsError]] = {}
        self._batch: list[Folder] = []
        self._waiting_rows = 0
        self._read: dict[str, ReadDocument] = {}
        self._removals: list[tuple[StorageLocation, str]] = []
        self._outdated: list[tuple[StorageLocation, str]] = []
        self.outcome = Outcome()

    @property
    def conflicts(self) -> dict[StorageLocation, OutputsError]:
        """The documents that the last round left, each with its conflict."""
        left = (*self._todo.values(), *self._redo.values())
        return {location: error for lost in left for location, error in lost.items()}

    def location(self, path: str, name: str = "") -> StorageLocation:
        """Where the folder `path` of the run is, or an object in it."""
        folder = self._root.root().child(path) if path else self._root.root()
        return folder.child(name) if name else folder

    def name_of(self, location: StorageLocation) -> str:
        """An object's name relative to the run."""
        return location.relative_path[len(self._root.prefix) + 1 :]

    def go(self) -> bool:
        """One round. Returns whether another one is needed.

        Raises NotFoundError where the run or the subfolder holds nothing, an OutputsError where it cannot be listed.
        Memory: about 500 bytes a page, an entry a folder and file of the folders that are open or not yet written, and
        what the pages of 5,000 rows take; in the first round, what reading the run's records takes.
        """
        self._todo, self._redo = self._redo, {}
        todo = frozenset(self._todo)
        top = "" if self._is_first_round else _common_folder(sorted(todo))
        self._read = self._read_documents(top)
        self._removals, self._outdated = [], []
        for folder in folders_of(self._items(top), self._maker, top=top, force=self._context.settings.force_index):
            if self._is_wanted(folder.path) if self._is_first_round else folder.path in todo:
                self._add(folder)
        self._write_batch()
        self.outcome.removed.update(self._remove(self._removals))
        self._remove(self._outdated)
        self._is_first_round = False
        self._todo = {}
        return bool(self._redo)

    def _is_wanted(self, path: str) -> bool:
        if path in self._above:
            return True
        return not self._subfolder or path == self._subfolder or path.startswith(f"{self._subfolder}/")

    def _maker(self, name: str) -> Maker:
        read = self._read.get(name)
        return read.maker if read is not None else "new"

    # --- reading

    def _listed(self, top: str) -> Iterator[tuple[str, ListedObject]]:
        for listed in self._backend.list_objects(self.location(top), cancel=self._context.cancel):
            yield self.name_of(listed.location), listed

    def _read_documents(self, top: str) -> dict[str, ReadDocument]:
        """Every document below `top`, by name; and in the first round the digests that records know.

        One that cannot be read cannot be updated either: it is a failure.
        """
        documents: list[tuple[StorageLocation, int]] = []
        seen = _Seen(self._subfolder)
        for name, listed in self._listed(top):
            if seen.is_to_list(name, listed) and name.rpartition("/")[2] in DOCUMENT_NAMES:
                documents.append((listed.location, listed.size_bytes))
        if self._is_first_round:
            self._check_found(seen)
            records = read_records(self._backend, self._root, modes=STORING_MODES, cancel=self._context.cancel)
            self.outcome.unusable_records = len(records.failed)
            self._digests = RecordedDigests(records.records, seen.record_times, prefix=self._root.prefix)
        read: dict[str, ReadDocument] = {}
        for location, document in read_documents(self._backend, documents, cancel=self._context.cancel):
            self.outcome.failed.pop(location, None)
            if isinstance(document, OutputsError):
                self.outcome.failed[location] = document
                read[self.name_of(location)] = ReadDocument("unknown")
            else:
                read[self.name_of(location)] = document
        return read

    def _check_found(self, seen: _Seen) -> None:
        if seen.is_empty:
            raise explain_empty_run(self._context, self._backend)
        if not seen.has_subfolder:
            raise NotFoundError(
                f"the run has no folder {quote(self._subfolder)}",
                why=f"there is nothing under {self.location(self._subfolder).s3_uri}",
                remedy=f"The run's folders: {some_of(map(visible, seen.folders)) or 'none'}.",
            )

    def _items(self, top: str) -> Iterator[Item]:
        for name, listed in self._listed(top):
            if is_record(name):
                continue
            sha256 = self._digests.of(name, listed.size_bytes, listed.modified)
            yield Item(name, listed.size_bytes, listed.modified, sha256)

    # --- writing

    def _add(self, folder: Folder) -> None:
        self._batch.append(folder)
        self._waiting_rows += len(folder.files) + len(folder.folders)
        if len(self._batch) >= _FOLDERS_AT_ONCE or self._waiting_rows >= _ROWS_AT_ONCE:
            self._write_batch()

    def _write_batch(self) -> None:
        """Write the pages of the folders that wait, the innermost first: what a page links is there before it."""
        batch, self._batch = sorted(self._batch, key=lambda folder: -folder.depth), []
        self._waiting_rows = 0
        for _, level in groupby(batch, key=lambda folder: folder.depth):
            writes = [write for folder in level for write in self._writes(folder)]
            self._replace(writes)

    def _writes(self, folder: Folder) -> Iterator[Replacement]:
        """What is to be stored for a folder; what is to be removed is noted."""
        self._context.cancel.check()
        self._todo.pop(folder.path, None)
        if key_fault(join(self._root.prefix, join(folder.path, PAGE_NAME))):
            self.outcome.nameless.add(folder.path)
            return
        if folder.new_documents:
            for name in folder.new_documents:
                location = self.location(folder.path, name)
                self._lost(location, ConflictError(f"another job wrote {location.s3_uri}"))
            return
        for name in folder.kept:
            self.outcome.kept.add(self.location(folder.path, name))
        if folder.is_siblings:
            self.outcome.siblings.add(self.location(folder.path, PAGE_NAME))
        names = folder.names_to_write
        if not names:
            self._remove_later(folder)
            return
        self.outcome.folder_count += 1
        inside = (join(folder.path, entry.name) for entry in folder.folders)
        if any(path in self._redo and not self._has_page(path) for path in inside):
            self._redo.setdefault(folder.path, {})  # by then that page may be there to link
        for name in names:
            yield from self._write(folder, name)

    def _write(self, folder: Folder, name: str) -> Iterator[Replacement]:
        """The document, unless it has these bytes already."""
        location = self.location(folder.path, name)
        data, content_type = self._render(folder, name)
        if len(data) > SMALL_OBJECT_LIMIT_BYTES:
            rows = len(folder.files) + len(folder.folders)
            self.outcome.failed[location] = _too_large(location, rows=rows, size_bytes=len(data))
            self._withdraw(folder, name)
            return
        there = self._read.get(join(folder.path, name), ReadDocument("this"))
        if there.digest == hashlib.sha256(data).digest():
            self._count(unchanged(self._context, Write(data, content_type), location))
            self.outcome.unchanged.add(location)
        else:
            yield Replacement(location, data, content_type, there.etag)

    def _render(self, folder: Folder, name: str) -> tuple[bytes, str]:
        folders = [replace(entry, has_page=self._has_page(join(folder.path, entry.name))) for entry in folder.folders]
        if name == JSON_NAME:
            return render_index_json(self.location(folder.path), folder.files, folders), JSON_CONTENT_TYPE
        run = self._root.prefix.rpartition("/")[2]
        path = [run, *folder.path.split("/")] if folder.path else [run]
        return render_folder_page(path, folder.files, folders), PAGE_CONTENT_TYPE

    def _has_page(self, path: str) -> bool:
        """Whether the folder's page is there: it was read, or stored before that of the folder that it lies in."""
        page = join(path, PAGE_NAME)
        return page in self._read or (
            path not in self.outcome.nameless and self.location(path, PAGE_NAME) in self.outcome.stored
        )

    def _replace(self, writes: list[Replacement]) -> None:
        answers = self._backend.replace_all(writes, cancel=self._context.cancel) if writes else ()
        for item, answer in zip(writes, answers, strict=True):
            if isinstance(answer, StoredObject):
                self._count(answer)
            else:
                self._not_done(item.location, answer)

    def _count(self, stored: StoredObject) -> None:
        self.outcome.unchanged.discard(stored.location)
        self.outcome.failed.pop(stored.location, None)
        self.outcome.stored[stored.location] = stored

    def _not_done(self, location: StorageLocation, error: OutputsError) -> None:
        """A conflict is for the next round, all else a failure."""
        if isinstance(error, ConflictError):
            error = self._in_the_way(location) or error
        if isinstance(error, ConflictError):
            self._lost(location, error)
        else:
            self.outcome.failed[location] = error

    def _lost(self, location: StorageLocation, error: OutputsError) -> None:
        self._redo.setdefault(self.name_of(location.parent), {})[location] = error

    def _in_the_way(self, location: StorageLocation) -> OutputsError | None:
        """What no further round can change: a link or folder in a staging folder, which no listing shows as a file."""
        if self._context.staging_dir is None:
            return None
        try:
            self._backend.read_small(location, cancel=self._context.cancel)
        except CancelledError:
            raise
        except OutputsError as error:
            return error
        return None

    # --- removing

    def _remove_later(self, folder: Folder) -> None:
        """What belongs to no folder any more."""
        for name, maker in folder.documents.items():
            if maker == "this":
                there = self._read[join(folder.path, name)]
                self._removals.append((self.location(folder.path, name), there.etag))

    def _withdraw(self, folder: Folder, name: str) -> None:
        """A list that cannot be written anew: machines would take the old one for the folder's."""
        if name == JSON_NAME and folder.documents.get(name) == "this":
            self._outdated.append((self.location(folder.path, name), self._read[join(folder.path, name)].etag))

    def _remove(self, removals: Iterable[tuple[StorageLocation, str]]) -> list[StorageLocation]:
        """Remove documents, now that no page links them, the page after its list. Gives those that are gone."""
        gone: list[StorageLocation] = []
        for location, etag in sorted(removals, key=lambda removal: removal[0].relative_path, reverse=True):
            self._context.cancel.check()
            try:
                self._backend.remove(location, etag=etag, cancel=self._context.cancel)
            except CancelledError:
                raise
            except OutputsError as error:
                self._not_done(location, error)
            else:
                self.outcome.stored.pop(location, None)
                gone.append(location)
        return gone


def _too_large(location: StorageLocation, *, rows: int, size_bytes: int) -> IncompleteError:
    until = f" Until then this folder has no {JSON_NAME}." if location.name == JSON_NAME else ""
    most = rows * SMALL_OBJECT_LIMIT_BYTES // size_bytes
    return IncompleteError(
        f"{location.s3_uri} would be too large",
        why=f"its folder holds {rows:,} files and folders, which take {size_bytes:,} bytes; "
        f"{SMALL_OBJECT_LIMIT_BYTES:,} are allowed",
        remedy=f"Store the files in several folders, in each at most {most:,}, and run mode index again.{until}",
    )


def _common_folder(paths: Iterable[str]) -> str:
    """The innermost folder that is, or holds, each of `paths`."""
    first, *others = (path.split("/") if path else [] for path in paths)
    shared = [
        segment
        for depth, segment in enumerate(first)
        if all(other[: depth + 1] == first[: depth + 1] for other in others)
    ]
    return "/".join(shared)
