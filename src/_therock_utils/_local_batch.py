"""Runs a step for each object of a transfer to or from a local folder, and keeps what came of each."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, TypeVar

from _therock_utils._errors import CancelledError, OutputsError
from _therock_utils._folder import local_file_error
from _therock_utils._source_file import SkipFileError
from _therock_utils._transfer_types import Conflict, FailedItem, SkippedFile, StoredObject, UploadResult

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from _therock_utils._cancel import CancelToken
    from _therock_utils.storage_location import StorageLocation

_Result = TypeVar("_Result")
# What the next file would meet as well: it is told once, and the rest is not tried.
_STOPPING = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}


class Batch:
    """What came of each item so far. After a cancel, or an error that the others would meet too, no more is tried."""

    def __init__(self, cancel: CancelToken | None) -> None:
        self.skipped: list[SkippedFile] = []
        self.failed: list[FailedItem] = []
        self.conflicts: list[Conflict] = []
        self._stored: list[StoredObject] = []
        self._cancel = cancel
        self._stop: OutputsError | None = None

    def attempt(
        self, label: str, location: StorageLocation, target: Path, step: Callable[[], _Result]
    ) -> _Result | None:
        """The step's result, or None where it was skipped or failed. `target` is the file that it writes."""
        error = self._stop
        try:
            if error is None:
                if self._cancel is not None:
                    self._cancel.check()
                return step()
        except SkipFileError as skip:
            self.skipped.append(SkippedFile(label, skip.reason))
            return None
        except CancelledError as cancelled:
            error = self._stop = cancelled
        except OutputsError as failure:
            error = failure
        except OSError as failure:
            error = local_file_error(target, "written", failure)
            if failure.errno in _STOPPING:
                self._stop = error
        self.failed.append(FailedItem(label, location, error))
        return None

    def store(
        self, label: str, location: StorageLocation, target: Path, step: Callable[[], StoredObject | None]
    ) -> None:
        """`attempt` a step that stores an object, or nothing."""
        stored = self.attempt(label, location, target, step)
        if stored is not None:
            self._stored.append(stored)

    def result(self) -> UploadResult:
        """Everything, sorted."""
        return UploadResult(
            tuple(sorted(self._stored, key=lambda stored: stored.location.relative_path)),
            tuple(sorted(self.skipped, key=lambda file: file.path)),
            tuple(sorted(self.failed, key=lambda failed: failed.location.relative_path)),
            tuple(sorted(self.conflicts, key=lambda conflict: conflict.location.relative_path)),
        )
