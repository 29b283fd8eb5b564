"""Archives arrive, are verified, extracted and placed, all at the same time.

The backend downloads; a few threads extract what has arrived into scratch folders; whichever of them finds that all
before an archive are done places it, one at a time and in sorted order, so that a merge comes out the same every time.
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Literal

from _therock_utils._errors import CancelledError, LocalFileError, OutputsError
from _therock_utils._s3_workers import Lane, run_lanes
from _therock_utils._transfer_types import DownloadItem, FailedItem, StoredObject
from _therock_utils.content_types import infer_content_type
from therock_outputs._archives import usable_cores
from therock_outputs.artifact_extraction import ExtractedArchive, Placement, extract_archive
from therock_outputs.modes._archive_cache import CacheError
from therock_outputs.text_safety import count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from _therock_utils._cancel import CancelToken
    from _therock_utils._transfer_types import DownloadedFile
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.artifact_extraction import Layout
    from therock_outputs.modes._archive_cache import ArchiveCache
    from therock_outputs.modes._fetch_plan import Wanted

Extract = Literal["extract", "flatten", "bootstrap", "none"]

EXTRACTIONS_AT_ONCE: Final = 4
_CANCEL_GRACE_SECONDS: Final = 4.0  # a download that hangs takes three of them


@dataclass(frozen=True, slots=True)
class Destination:
    """Where archives go and what becomes of them, as the inputs of these names say.

    `lost` are the names of artifacts that belong to these, and cannot be fetched. `no_room_in_cache` says why nothing
    is to be added to the cache, "" where that may be.
    """

    output_dir: Path
    extract: Extract
    cache: ArchiveCache | None
    max_extracted_bytes: int
    lost: tuple[str, ...] = ()
    no_room_in_cache: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What arrived and what did not, in the order wanted. `made` are paths that were written, outside of scratch."""

    fetched: tuple[StoredObject, ...] = ()
    failed: tuple[FailedItem, ...] = ()
    warnings: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    made: tuple[Path, ...] = ()
    cached_count: int = 0


def fetch_all(
    wanted: Sequence[Wanted], destination: Destination, backend: StorageBackend, cancel: CancelToken
) -> Outcome:
    """Fetch `wanted` (sorted, each once) and report each: never raises for one that fails, nor for a cancel.

    Memory: what `StorageBackend.download` and four calls of `extract_archive` need, and no more for more archives.
    Raises LocalFileError where no scratch folder can be made.
    """
    if not wanted:
        return Outcome()
    with contextlib.ExitStack() as stack:
        placement = None
        if destination.extract != "none":
            names = {*destination.lost, *(str(item.archive.artifact) for item in wanted)}
            placement = stack.enter_context(Placement(destination.output_dir, destination.extract, wanted=names))
        return _Pipeline(wanted, destination, backend, placement, cancel).run()


@dataclass(frozen=True, slots=True)
class _Arrived:
    """An archive that was fetched; `extracted` waits to be placed, None where the archive itself was wanted."""

    size_bytes: int
    sha256: str
    extracted: ExtractedArchive | None = None


class _Pipeline:
    """One fetch. Every archive ends in `_done`: arrived, or with the error that kept it away."""

    def __init__(
        self,
        wanted: Sequence[Wanted],
        destination: Destination,
        backend: StorageBackend,
        placement: Placement | None,
        cancel: CancelToken,
    ) -> None:
        self._wanted = wanted
        self._places = {item.location: at for at, item in enumerate(wanted)}
        self._output_dir = destination.output_dir
        self._cache = destination.cache
        self._no_room_in_cache = destination.no_room_in_cache
        self._lost_count = len(destination.lost)
        self._max_extracted_bytes = destination.max_extracted_bytes
        self._layout: Layout | None = None if destination.extract == "none" else destination.extract
        self._backend = backend
        self._placement = placement
        self._cancel = cancel
        self._archives = self._trees = destination.output_dir
        if placement is not None:
            self._archives, self._trees = placement.make_scratch(), placement.make_scratch()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._done: dict[int, _Arrived | OutputsError] = {}
        self._next = 0  # all before it are placed or have failed
        self._is_placing = False
        self._fetched: dict[int, StoredObject] = {}
        self._failed: dict[int, OutputsError] = {}
        self._warnings: list[str] = []
        self._notices: list[str] = []
        self._made: set[Path] = set()
        self._cached_count = 0
        self._uncached: dict[StorageLocation, str] = {}  # archives that cannot use the cache, and why

    def run(self) -> Outcome:
        threads = min(EXTRACTIONS_AT_ONCE, usable_cores())
        run_lanes(
            [Lane([self._feed], 1), Lane(iter(self._jobs.get, None), threads)],
            cancel=self._cancel,
            grace_seconds=_CANCEL_GRACE_SECONDS,
        )
        cancelled = CancelledError(self._cancel.signal_number)
        with self._lock:  # after a cancel a thread may be left behind
            self._finish()
            fetched = [self._fetched[at] for at in sorted(self._fetched)]
            failed = [
                FailedItem(item.name, item.location, self._error(at) or cancelled)
                for at, item in enumerate(self._wanted)
                if at not in self._fetched
            ]
            made = {*self._made, *(self._placement.placed if self._placement is not None else ())}
            return Outcome(
                tuple(fetched),
                tuple(failed),
                tuple(self._warnings),
                tuple(self._notices),
                tuple(sorted(made)),
                self._cached_count,
            )

    def _finish(self) -> None:
        """Write the markers, or say that there are none; say what the whole fetch has to be told."""
        placement = self._placement
        missing = len(self._wanted) - len(self._fetched) + self._lost_count
        if placement is not None and placement.has_touched_subtrees:
            if missing:
                are = "artifact is" if missing == 1 else "artifacts are"
                self._warnings.append(f"no .prebuilt marker was written, because {missing:,} {are} missing")
            else:
                errors = placement.finish()
                for at, item in enumerate(self._wanted):
                    if (error := errors.get(str(item.archive.artifact))) is not None:
                        del self._fetched[at]
                        self._failed[at] = error
        if placement is not None and placement.had_content and self._layout == "flatten" and self._fetched:
            self._notices.append("output_dir had content already: files of other names stay")
        reasons = [
            self._uncached[self._wanted[at].location]
            for at in sorted(self._fetched)
            if self._wanted[at].location in self._uncached
        ]
        if reasons:
            self._warnings.append(f"cache_dir was not used for {count(len(reasons), 'archive')}: {reasons[0]}")

    def _error(self, at: int) -> OutputsError | None:
        outcome = self._done.get(at)
        return outcome if isinstance(outcome, OutputsError) else self._failed.get(at)

    def _feed(self) -> None:
        """Give out what the cache has, download the rest; ends the other lane's jobs when no more can come."""
        try:
            items = []
            for item in self._wanted:
                path = self._cache_path(item)
                if path is not None and os.path.lexists(path):
                    self._jobs.put(partial(self._do, item, partial(self._use_cached, item, path)))
                    continue
                if path is not None and self._no_room_in_cache:
                    self._leave_cache(item, self._no_room_in_cache)
                items.append(self._download_item(item))
            result = self._backend.download(items, cancel=self._cancel, on_downloaded=self._arrived)
            again = []
            for failure in result.failed:
                item = self._wanted[self._places[failure.location]]
                if self._cache_path(item) is not None and isinstance(failure.error, LocalFileError):
                    self._leave_cache(item, _words(failure.error))
                    again.append(self._download_item(item))
                else:
                    self._end(item, failure.error)
            if again:
                result = self._backend.download(again, cancel=self._cancel, on_downloaded=self._arrived)
                for failure in result.failed:
                    self._end(self._wanted[self._places[failure.location]], failure.error)
        finally:
            self._jobs.put(None)

    def _leave_cache(self, item: Wanted, why: str) -> None:
        """From now on fetch this archive as if there were no cache."""
        with self._lock:
            self._uncached[item.location] = why

    def _cache_path(self, item: Wanted) -> Path | None:
        """Where the archive is in the cache, or comes to be; None where it is not to be cached."""
        if self._cache is None or not item.sha256 or item.location in self._uncached:
            return None
        return self._cache.path_of(item.sha256, item.extension)

    def _download_item(self, item: Wanted) -> DownloadItem:
        return DownloadItem(item.location, self._cache_path(item) or self._archives / item.name, item.sha256)

    def _arrived(self, file: DownloadedFile) -> None:
        """Pass on what the backend fetched."""
        item = self._wanted[self._places[file.item.location]]
        path = self._cache_path(item)
        if path is not None:
            self._add_made(path)
            self._jobs.put(partial(self._do, item, partial(self._use_cached, item, path, is_fresh=True)))
        elif self._layout is None:
            self._end(item, self._use_scratch(item, file))
        else:
            self._jobs.put(partial(self._do, item, partial(self._use_scratch, item, file)))

    def _add_made(self, path: Path) -> None:
        with self._lock:
            self._made.add(path)

    def _do(self, item: Wanted, job: Callable[[], _Arrived]) -> None:
        outcome: _Arrived | OutputsError
        try:
            self._cancel.check()
            outcome = job()
        except OutputsError as error:
            outcome = error
        self._end(item, outcome)

    def _use_scratch(self, item: Wanted, file: DownloadedFile) -> _Arrived:
        """Extract an archive that nobody keeps, and remove it; where the archive is wanted, it has its place."""
        if self._layout is None:
            self._add_made(file.item.target)
            return _Arrived(file.size_bytes, file.sha256)
        try:
            return _Arrived(file.size_bytes, file.sha256, self._extract(item, file.item.target))
        finally:
            with contextlib.suppress(OSError):  # the scratch folder goes away as a whole
                file.item.target.unlink()

    def _use_cached(self, item: Wanted, path: Path, *, is_fresh: bool = False) -> _Arrived:
        """Use the cache's file; one of other bytes is removed, and one that is not there (any more) fetched again.

        Where the cache cannot be used, whatever is wrong with it, the archive is fetched without it.
        """
        try:
            arrived = self._take_from_cache(item, path, is_fresh=is_fresh)
            if arrived is not None:
                with self._lock:
                    self._cached_count += not is_fresh
                return arrived
            if not is_fresh:
                arrived = self._refill(item, path)
            if arrived is not None:
                return arrived
            self._leave_cache(item, f"{str(path)!a} was gone when it was to be used")
        except CacheError as error:
            self._leave_cache(item, _words(error))
        return self._use_scratch(item, self._download(item))

    def _refill(self, item: Wanted, path: Path) -> _Arrived | None:
        """Fetch into the cache what it has lost, and use that; None where it is gone again. Raises CacheError."""
        if self._no_room_in_cache:
            raise CacheError(self._no_room_in_cache)
        try:
            self._download(item)
        except LocalFileError as error:
            raise CacheError.of(error) from error
        self._add_made(path)
        return self._take_from_cache(item, path, is_fresh=True)

    def _download(self, item: Wanted) -> DownloadedFile:
        result = self._backend.download([self._download_item(item)], cancel=self._cancel)
        if result.failed:
            raise result.failed[0].error
        return result.downloaded[0]

    def _take_from_cache(self, item: Wanted, path: Path, *, is_fresh: bool) -> _Arrived | None:
        """Extract or copy the cache's file; None where there is none of the right bytes, which then is removed."""
        assert self._cache is not None, "a path in no cache"  # noqa: S101 - a fault of this program
        if self._layout is None:
            target = self._output_dir / item.name
            size_bytes = self._cache.copy(path, item.sha256, target, self._cancel)
            if size_bytes is None:
                self._drop(item, path)
                return None
            self._add_made(target)
            return _Arrived(size_bytes, item.sha256)
        with self._held(item, path) as archive:
            if not is_fresh and not self._cache.is_sound(archive, item.sha256, self._cancel):
                self._drop(item, path)
                return None
            try:
                return _Arrived(item.size_bytes, item.sha256, self._extract(item, archive))
            except LocalFileError:
                if os.access(archive, os.R_OK):  # then it is not the cache that is at fault
                    raise
                return None

    @contextlib.contextmanager
    def _held(self, item: Wanted, path: Path) -> Iterator[Path]:
        """The cache's file under its archive's own name, which no other process can take away.

        Where the file system gives it no second name, it is the cache's file itself.
        """
        held = self._archives / item.name
        try:
            os.link(path, held, follow_symlinks=False)
        except (OSError, NotImplementedError):
            yield path
            return
        try:
            yield held
        finally:
            with contextlib.suppress(OSError):
                held.unlink()

    def _drop(self, item: Wanted, path: Path) -> None:
        """Remove the cache's file of other bytes, if it is still there."""
        assert self._cache is not None, "a path in no cache"  # noqa: S101 - a fault of this program
        if os.path.lexists(path):
            self._cache.remove(path)
            with self._lock:
                self._notices.append(f"cache_dir had other bytes for {item.name}: removed, and fetched again")

    def _extract(self, item: Wanted, archive: Path) -> ExtractedArchive:
        assert self._layout is not None, "nothing is extracted"  # noqa: S101 - a fault of this program
        return extract_archive(
            archive,
            self._trees / str(item.archive.artifact),
            layout=self._layout,
            max_extracted_bytes=self._max_extracted_bytes,
            cancel=self._cancel,
        )

    def _end(self, item: Wanted, outcome: _Arrived | OutputsError) -> None:
        """Keep what came of one archive, and place all that can be placed now, unless another thread is at it."""
        with self._lock:
            self._done[self._places[item.location]] = outcome
            if self._is_placing:
                return
            self._is_placing = True
        while (at := self._next_to_place()) is not None:
            self._place(at)

    def _next_to_place(self) -> int | None:
        """The next archive in order, if it has come so far; None ends this thread's turn at placing."""
        with self._lock:
            has_ended = self._cancel.cancelled and self._layout is not None  # else the archive has its place already
            if self._next not in self._done or has_ended:
                self._is_placing = False
                return None
            self._next += 1
            return self._next - 1

    def _place(self, at: int) -> None:
        item, outcome = self._wanted[at], self._done[at]
        warnings: tuple[str, ...] = ()
        if isinstance(outcome, _Arrived) and outcome.extracted is not None and self._placement is not None:
            try:
                warnings = self._placement.place(str(item.archive.artifact), outcome.extracted)
            except OutputsError as error:
                outcome = error
        with self._lock:
            if isinstance(outcome, OutputsError):
                self._failed[at] = outcome
                return
            self._warnings += warnings
            self._fetched[at] = StoredObject(
                item.location,
                outcome.size_bytes,
                outcome.sha256,
                infer_content_type(item.name),
                "sha256-single" if item.sha256 else "size-only",
            )


def _words(error: OutputsError) -> str:
    return f"{error.what} ({error.why})" if error.why else error.what
