"""Makes archives of artifact directories in threads of its own, while the caller stores those that are ready.

Temporary files: at most `READY_AT_MOST` archives that wait, those under way, and those that the caller has in hand.
Memory at zstd's level 3: about 26 MB an archive under way and 13 MB for each of its workers, so 80 MB on 2 cores and
520 MB at most, on 32 cores and more; at xz's preset 6: 94 MB an archive, 750 MB at most.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError, OutputsError
from therock_outputs._archives import usable_cores
from therock_outputs.artifact_archive import MAX_WORKERS, WrittenArchive, write_artifact_archive
from therock_outputs.text_safety import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from _therock_utils._transfer_types import UploadItem
    from therock_outputs.artifact_archive import Compression

READY_AT_MOST: Final = 8
"""Archives that may wait to be stored before no further one is begun."""

_POLL_SECONDS: Final = 0.1
_PATIENCE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Making:
    """How archives are made: `at_once` of them, each in `workers` threads."""

    compression: Compression
    level: int | None
    at_once: int
    workers: int

    @classmethod
    def on_this_machine(cls, compression: Compression, level: int | None, *, count: int) -> Making:
        """What keeps all cores busy with `count` archives. One that takes long is then seldom left to the end alone."""
        cores = usable_cores()
        if compression == "xz":  # its library has no threads
            return cls(compression, level, at_once=max(1, min(cores, 8, count)), workers=1)
        at_once = max(1, min(4, max(2, cores // 4), count))
        return cls(compression, level, at_once=at_once, workers=min(math.ceil(cores / at_once), MAX_WORKERS))


@dataclass(frozen=True, slots=True)
class Made:
    """What came of one directory: an archive, or why there is none. `item` is as it was given."""

    item: UploadItem
    archive: WrittenArchive | None = None
    error: OutputsError | None = None


class ArchivePipeline:
    """A context manager; on leaving it, no archive is begun any more, and those under way are given up.

    `items`: directory and destination, in the order in which they are begun. Archives are made in `scratch` under their
    own names; the caller removes them. With `keeps_all` nothing waits for the caller.
    """

    def __init__(
        self,
        items: Sequence[UploadItem],
        scratch: Path,
        making: Making,
        *,
        keeps_all: bool,
        cancel: CancelToken,
        say: Callable[[str], None],
    ) -> None:
        self._waiting = deque(items)
        self._scratch = scratch
        self._making = making
        self._room = len(items) if keeps_all else READY_AT_MOST
        self._cancel = cancel
        self._stop = _Stop(cancel)
        self._say = say
        self._condition = threading.Condition()
        self._ready: list[Made] = []
        self._in_hand = 0
        self._running = 0
        self._fault: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        count = min(self._making.at_once, len(self._waiting))
        self._running = count
        for _ in range(count):  # daemons: what compresses at a high level must not keep the process from exiting
            thread = threading.Thread(target=self._work, name="therock-archive", daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.cancel()
        with self._condition:
            self._condition.notify_all()
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def batches(self) -> Iterator[list[Made]]:
        """All that is ready each time, until everything is; asking for more means that the last batch is dealt with.

        Raises CancelledError, and what a thread could not deal with.
        """
        while True:
            with self._condition:
                self._in_hand = 0
                self._condition.notify_all()
                while self._running and not (self._ready or self._fault or self._cancel.cancelled):
                    self._condition.wait(_POLL_SECONDS)  # short: nobody notifies of a cancel
                if self._fault is not None:
                    raise self._fault
                self._cancel.check()
                batch, self._ready = self._ready, []
                self._in_hand = len(batch)
            if not batch:
                return
            yield batch

    def _work(self) -> None:
        try:
            while (item := self._next()) is not None:
                made = self._make(item)
                with self._condition:
                    self._ready.append(made)
                    self._condition.notify_all()
        except BaseException as fault:  # noqa: BLE001 - handed to the thread that waits, which raises it
            self._fault = self._fault or fault
        finally:
            with self._condition:
                self._running -= 1
                self._condition.notify_all()

    def _next(self) -> UploadItem | None:
        with self._condition:
            while self._waiting and not self._stop.cancelled and len(self._ready) + self._in_hand >= self._room:
                self._condition.wait(_POLL_SECONDS)
            return self._waiting.popleft() if self._waiting and not self._stop.cancelled else None

    def _make(self, item: UploadItem) -> Made:
        name, began = item.destination.name, time.monotonic()
        try:
            archive = write_artifact_archive(
                Path(str(item.source)),
                self._scratch / name,
                compression=self._making.compression,
                level=self._making.level,
                workers=self._making.workers,
                cancel=self._stop,
            )
        except OutputsError as error:
            return Made(item, error=error)
        seconds = time.monotonic() - began
        self._say(f"{name}: {size(archive.content_bytes)} -> {size(archive.size_bytes)} in {seconds:.1f} s")
        return Made(item, archive)


class _Stop(CancelToken):
    """Set by a cancel, or by itself when nobody wants the rest."""

    def __init__(self, outer: CancelToken) -> None:
        super().__init__()
        self._outer = outer

    @property
    def cancelled(self) -> bool:
        return super().cancelled or self._outer.cancelled

    def check(self) -> None:
        if self.cancelled:
            raise CancelledError(self._outer.signal_number)
