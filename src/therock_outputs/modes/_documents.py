"""Small documents that several jobs write: read, made anew, and stored only where they still are what was read.

A document is a page, or another list of what lies beside it. Whoever wins a conditional write has listed after reading
what earlier winners wrote, so it has seen all that they saw.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import ConflictError, NotPermittedError, OutputsError
from _therock_utils._transfer_types import FailedItem, Replacement, StoredBytes, StoredObject
from _therock_utils.storage_location import StorageLocation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _therock_utils._transfer_types import Verified
    from therock_outputs.context import Context
    from therock_outputs.modes._upload import Uploader

MAX_ATTEMPTS: Final = 8
_MAX_PAUSE_SECONDS: Final = 2.0
_UNREADABLE: Final = "it cannot be read with these credentials, so nothing can be added to it"


@dataclass(frozen=True, slots=True)
class Write:
    """Store these bytes."""

    data: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Leave the document as it is. `why` is told; "" where nobody needs to know."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete the document."""


Decision = Write | Keep | Remove
Compose = Callable[[Mapping[StorageLocation, StoredBytes | None]], Mapping[StorageLocation, Decision]]
"""From what is stored (None: nothing) to what is to be done with each. Called after the reads: what it looks up itself,
a listing for instance, is newer than what it is given. Raises an OutputsError where it cannot decide about any."""


def store_documents(
    uploader: Uploader, locations: Sequence[StorageLocation], compose: Compose
) -> tuple[StorageLocation, ...]:
    """Do with each document what `compose` decides, and decide again about those that another job changed meanwhile.

    Returns those that are there at the end, stored or kept. Never raises: a document that fails is a failed item.
    Bytes that are there already are not written again, and count as stored. A dry run reads nothing. Memory: all
    documents at once, old and new.
    """
    course = _Course(uploader, compose, locations)
    try:
        if course.pending:
            in_rounds(uploader.context, course.go)
    except OutputsError as error:
        course.pending = dict.fromkeys(course.pending, error)
    add_failed(uploader, course.pending)
    return tuple(location for location in dict.fromkeys(locations) if location in course.there)


def in_rounds(context: Context, go: Callable[[], object]) -> None:
    """Call `go` until it returns nothing to be done again, MAX_ATTEMPTS times at most, with pauses that grow.

    Raises what `go` raises, and CancelledError.
    """
    import tenacity

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(bool),
        stop=tenacity.stop_after_attempt(MAX_ATTEMPTS),
        wait=tenacity.wait_random_exponential(multiplier=0.1, max=_MAX_PAUSE_SECONDS),
        sleep=context.cancel.sleep,
        retry_error_callback=lambda _state: None,
    )
    retrying(go)


def add_failed(uploader: Uploader, failed: Mapping[StorageLocation, OutputsError | None]) -> None:
    """Count documents that could not be stored, in key order."""
    ordered = sorted(failed.items(), key=lambda item: item[0].relative_path.encode())
    uploader.add_failed(FailedItem(at.relative_path, at, error) for at, error in ordered if error is not None)


def unchanged(context: Context, write: Write, location: StorageLocation) -> StoredObject:
    """The document that has the bytes to be written already, as all of them were read."""
    verified: Verified = "sha256-single" if context.staging_dir is None else "local"
    return _as_stored(location, write, verified)


def _as_stored(location: StorageLocation, write: Write, verified: Verified) -> StoredObject:
    digest = hashlib.sha256(write.data).hexdigest()
    return StoredObject(location, len(write.data), digest, write.content_type, verified)


class _Course:
    """The documents that are still to be done, each with the conflict that its last round ended in; and those there."""

    def __init__(self, uploader: Uploader, compose: Compose, locations: Sequence[StorageLocation]) -> None:
        self._uploader = uploader
        self._context = uploader.context
        self._compose = compose
        self._unreadable: set[StorageLocation] = set()
        self.pending: dict[StorageLocation, OutputsError | None] = dict.fromkeys(locations)
        self.there: set[StorageLocation] = set()

    def go(self) -> dict[StorageLocation, OutputsError | None]:
        """One round. Returns what is to be done again."""
        self._context.cancel.check()
        present = dict.fromkeys(self.pending) if self._context.settings.dry_run else self._read()
        decisions = self._compose(present) if present else {}
        writes: list[Replacement] = []
        for location, found in present.items():
            match decisions[location]:
                case Keep(why):
                    self._keep(location, why, found)
                case Remove():
                    self._remove(location, found)
                case Write() as write if self._context.settings.dry_run:
                    self._count(_as_stored(location, write, "dry-run"))
                case Write(data) as write if found is not None and found.data == data:
                    self._count(unchanged(self._context, write, location))
                case Write(data, content_type):
                    writes.append(Replacement(location, data, content_type, found.etag if found is not None else ""))
        self._replace(writes)
        return self.pending

    def _read(self) -> dict[StorageLocation, StoredBytes | None]:
        """What is there; what cannot be read fails, but for want of permission, which may mean that it is not there."""
        locations = tuple(self.pending)
        answers = self._uploader.backend.read_all_small(locations, cancel=self._context.cancel)
        present: dict[StorageLocation, StoredBytes | None] = {}
        for location, answer in zip(locations, answers, strict=True):
            if isinstance(
                answer, NotPermittedError
            ):  # without the right to list, S3 says this of a missing object, too
                self._unreadable.add(location)
                present[location] = None
            elif isinstance(answer, OutputsError):
                self._fail(location, answer)
            else:
                present[location] = answer
        return present

    def _keep(self, location: StorageLocation, why: str, found: StoredBytes | None) -> None:
        del self.pending[location]
        if why:
            self._uploader.keep_page(location, why)
        elif found is not None:
            self._uploader.kept_pages.add(location)
        else:
            return
        self.there.add(location)

    def _remove(self, location: StorageLocation, found: StoredBytes | None) -> None:
        try:
            if found is not None:
                self._uploader.backend.remove(location, etag=found.etag, cancel=self._context.cancel)
        except ConflictError as error:
            self.pending[location] = error
        except OutputsError as error:
            self._fail(location, error)
        else:
            del self.pending[location]

    def _replace(self, writes: Sequence[Replacement]) -> None:
        answers = self._uploader.backend.replace_all(writes, cancel=self._context.cancel) if writes else ()
        for item, answer in zip(writes, answers, strict=True):
            location = item.location
            if isinstance(answer, StoredObject):
                self._count(answer)
            elif not isinstance(answer, ConflictError):
                self._fail(location, answer)
            elif location in self._unreadable:
                self._keep(location, _UNREADABLE, None)
            else:
                self.pending[location] = answer

    def _count(self, stored: StoredObject) -> None:
        del self.pending[stored.location]
        self._uploader.add_stored(stored)
        self.there.add(stored.location)

    def _fail(self, location: StorageLocation, error: OutputsError) -> None:
        del self.pending[location]
        add_failed(self._uploader, {location: error})
