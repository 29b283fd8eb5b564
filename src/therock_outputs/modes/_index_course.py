"""The course of mode index: read the pages that are there, list the run, write each folder's page, in rounds.

What is listed is newer than the pages that were read, and a page is stored only where it still is the one that was
read. So whoever wins has seen all that earlier winners saw, and two jobs that finish together lose nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import (
    CancelledError,
    ConflictError,
    IncompleteError,
    IntegrityError,
    NotFoundError,
    NotPermittedError,
    OutputsError,
)
from _therock_utils._keys import quote
from _therock_utils._transfer_types import SMALL_OBJECT_LIMIT_BYTES, Replacement, StoredObject
from therock_outputs.index_json import JSON_CONTENT_TYPE, JSON_NAME, render_index_json
from therock_outputs.index_page import PAGE_CONTENT_TYPE, PAGE_NAME, render_folder_page
from therock_outputs.mode_names import STORING_MODES
from therock_outputs.modes._documents import Write, unchanged
from therock_outputs.modes._index_digests import RecordedDigests
from therock_outputs.modes._index_tree import DOCUMENT_NAMES, Folder, Item, folders_of, maker_of, parents
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

RECORDS_FOLDER: Final = "reports"
"""The folder of run records, which change with every step: it is not listed and gets no page."""

_READ_BYTES: Final = 8 * 1024 * 1024
_READS_AT_ONCE: Final = 256
_FOLDERS_AT_ONCE: Final = 128
_ROWS_AT_ONCE: Final = 5_000


@dataclass(frozen=True, slots=True)
class _Read:
    """A document as it was read: who made it, its etag, and the SHA-256 of its bytes."""

    maker: Maker
    etag: str = ""
    digest: bytes = b""


@dataclass
class Outcome:
    """What came of it, by location. `kept` are documents of other programs, or such as cannot be read."""

    stored: dict[StorageLocation, StoredObject] = field(default_factory=dict)
    unchanged: set[StorageLocation] = field(default_factory=set)
    removed: set[StorageLocation] = field(default_factory=set)
    kept: set[StorageLocation] = field(default_factory=set)
    siblings: set[StorageLocation] = field(default_factory=set)
    unread: dict[StorageLocation, OutputsError] = field(default_factory=dict)
    failed: dict[StorageLocation, OutputsError] = field(default_factory=dict)
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
        if _is_record_folder(name):
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
        self._todo: dict[str, OutputsError] = {}  # folders by path: of this round those that are not yet written
        self._redo: dict[str, OutputsError] = {}
        self._batch: list[Folder] = []
        self._waiting_rows = 0
        self._read: dict[str, _Read] = {}
        self._removals: list[tuple[StorageLocation, str]] = []
        self.outcome = Outcome()

    @property
    def conflicts(self) -> dict[StorageLocation, OutputsError]:
        """The pages that the last round left, each with its conflict."""
        return {self.location(path, PAGE_NAME): error for path, error in {**self._todo, **self._redo}.items()}

    def location(self, path: str, name: str = "") -> StorageLocation:
        """Where the folder `path` of the run is, or an object in it."""
        folder = self._root.root().child(path) if path else self._root.root()
        return folder.child(name) if name else folder

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
        self._removals = []
        for folder in folders_of(self._items(top), self._maker, top=top, force=self._context.settings.force_index):
            if self._is_wanted(folder.path) if self._is_first_round else folder.path in todo:
                self._add(folder)
        self._write_batch()
        self._remove()
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
        start = len(self._root.prefix) + 1
        for listed in self._backend.list_objects(self.location(top), cancel=self._context.cancel):
            yield listed.location.relative_path[start:], listed

    def _read_documents(self, top: str) -> dict[str, _Read]:
        """Every document below `top`, by name; and in the first round the digests that records know."""
        documents: list[ListedObject] = []
        seen = _Seen(self._subfolder)
        for name, listed in self._listed(top):
            if seen.is_to_list(name, listed) and name.rpartition("/")[2] in DOCUMENT_NAMES:
                documents.append(listed)
        if self._is_first_round:
            self._check_found(seen)
            records = read_records(self._backend, self._root, modes=STORING_MODES, cancel=self._context.cancel)
            self.outcome.unusable_records = len(records.failed)
            self._digests = RecordedDigests(records.records, seen.record_times, prefix=self._root.prefix)
        read: dict[str, _Read] = {}
        for batch in _batches(documents):
            self._read_batch(batch, read)
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

    def _read_batch(self, batch: list[ListedObject], read: dict[str, _Read]) -> None:
        start = len(self._root.prefix) + 1
        locations = [listed.location for listed in batch]
        answers = self._backend.read_all_small(locations, cancel=self._context.cancel)
        for location, answer in zip(locations, answers, strict=True):
            if answer is None:
                continue  # gone since it was listed
            if isinstance(answer, OutputsError):
                read[location.relative_path[start:]] = _Read("unknown")
                is_permanent = isinstance(answer, (NotPermittedError, IntegrityError))  # no right to read it; too large
                (self.outcome.unread if is_permanent else self.outcome.failed)[location] = answer
            else:
                maker = maker_of(location.name, answer.data)
                read[location.relative_path[start:]] = _Read(maker, answer.etag, hashlib.sha256(answer.data).digest())

    def _items(self, top: str) -> Iterator[Item]:
        for name, listed in self._listed(top):
            if _is_record_folder(name):
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
        if folder.is_new:
            self._redo[folder.path] = ConflictError(f"another job wrote {self.location(folder.path, PAGE_NAME).s3_uri}")
            return
        for name in folder.kept:
            self.outcome.kept.add(self.location(folder.path, name))
        if folder.is_siblings:
            self.outcome.siblings.add(self.location(folder.path, PAGE_NAME))
        if not folder.has_content or folder.is_siblings:
            self._remove_later(folder)
            return
        self.outcome.folder_count += 1
        for name in DOCUMENT_NAMES:
            if name not in folder.kept:
                yield from self._write(folder, name)

    def _write(self, folder: Folder, name: str) -> Iterator[Replacement]:
        """The document, unless it has these bytes already."""
        location = self.location(folder.path, name)
        data, content_type = self._render(folder, name)
        if len(data) > SMALL_OBJECT_LIMIT_BYTES:
            self.outcome.failed[location] = IncompleteError(
                f"the page {location.s3_uri} would be too large",
                why=f"its folder holds {len(folder.files) + len(folder.folders):,} files and folders, and the page "
                f"{len(data):,} bytes; {SMALL_OBJECT_LIMIT_BYTES:,} are allowed",
                remedy="Store the files in several folders.",
            )
            return
        there = self._read.get(_join(folder.path, name), _Read("this"))
        if there.digest == hashlib.sha256(data).digest():
            self._count(unchanged(self._context, Write(data, content_type), location))
            self.outcome.unchanged.add(location)
        else:
            yield Replacement(location, data, content_type, there.etag)

    def _render(self, folder: Folder, name: str) -> tuple[bytes, str]:
        folders = [replace(entry, has_page=self._has_page(_join(folder.path, entry.name))) for entry in folder.folders]
        if name == JSON_NAME:
            return render_index_json(self.location(folder.path), folder.files, folders), JSON_CONTENT_TYPE
        run = self._root.prefix.rpartition("/")[2]
        path = [run, *folder.path.split("/")] if folder.path else [run]
        return render_folder_page(path, folder.files, folders), PAGE_CONTENT_TYPE

    def _has_page(self, path: str) -> bool:
        """Whether the folder's page is there: it was stored before that of the folder that it lies in, or is older."""
        return self.location(path, PAGE_NAME) not in self.outcome.failed or _join(path, PAGE_NAME) in self._read

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
            self._redo[location.parent.relative_path[len(self._root.prefix) + 1 :]] = error
        else:
            self.outcome.failed[location] = error

    # --- removing

    def _remove_later(self, folder: Folder) -> None:
        for name, maker in folder.documents.items():
            if maker == "this":
                there = self._read[_join(folder.path, name)]
                self._removals.append((self.location(folder.path, name), there.etag))

    def _remove(self) -> None:
        """Remove what belongs to no folder any more, now that no page links it; the page after its list."""
        for location, etag in sorted(self._removals, key=lambda removal: removal[0].relative_path, reverse=True):
            self._context.cancel.check()
            try:
                self._backend.remove(location, etag=etag, cancel=self._context.cancel)
            except CancelledError:
                raise
            except OutputsError as error:
                self._not_done(location, error)
            else:
                self.outcome.stored.pop(location, None)
                self.outcome.removed.add(location)


def _batches(documents: Iterable[ListedObject]) -> Iterator[list[ListedObject]]:
    """Documents that together have few enough bytes to be in memory at once."""
    batch: list[ListedObject] = []
    batch_bytes = 0
    for listed in documents:
        if batch and (len(batch) == _READS_AT_ONCE or batch_bytes + listed.size_bytes > _READ_BYTES):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(listed)
        batch_bytes += min(listed.size_bytes, SMALL_OBJECT_LIMIT_BYTES)
    if batch:
        yield batch


def _common_folder(paths: Iterable[str]) -> str:
    """The innermost folder that is, or holds, each of `paths`."""
    first, *others = (path.split("/") if path else [] for path in paths)
    shared = [
        segment
        for depth, segment in enumerate(first)
        if all(other[: depth + 1] == first[: depth + 1] for other in others)
    ]
    return "/".join(shared)


def _is_record_folder(name: str) -> bool:
    return name.startswith(f"{RECORDS_FOLDER}/")


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
