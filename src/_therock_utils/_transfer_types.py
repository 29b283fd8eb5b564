"""What goes into a transfer and what comes out of it, as frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    import datetime

    from _therock_utils._errors import OutputsError
    from _therock_utils.storage_location import StorageLocation

OnConflict = Literal["overwrite", "error", "skip"]
Verified = Literal["sha256-single", "sha256-parts", "size-only", "local", "dry-run"]
"""How a stored object was checked: the service refused any other body (`sha256-single`), it returned the digest of the
joined part digests (`sha256-parts`), only its byte count was compared (`size-only`), it was written through this
process to a folder (`local`), or nothing was written (`dry-run`)."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Who wrote an object; kept as its metadata `therock-origin`."""

    run_id: str
    job: str
    attempt: str

    def __str__(self) -> str:
        """`run/job/attempt`."""
        return f"{self.run_id}/{self.job}/{self.attempt}"


@dataclass(frozen=True, slots=True)
class UploadItem:
    """One object to store: a file, or bytes made here (an index page)."""

    source: Path | bytes
    destination: StorageLocation
    content_type: str = ""  # "" means: inferred from the destination's name

    @property
    def label(self) -> str:
        """What a message calls it."""
        return str(self.source) if isinstance(self.source, Path) else self.destination.relative_path


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object that is stored. `sha256` is the hex digest of all its bytes ("" where it was not read here)."""

    location: StorageLocation
    size_bytes: int
    sha256: str
    content_type: str
    verified: Verified


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file that was left out on purpose, and why (a symbolic link, an illegal name, vanished, ...)."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class FailedItem:
    """An object that was to be stored (or fetched, or copied) and was not."""

    path: str
    location: StorageLocation
    error: OutputsError


@dataclass(frozen=True, slots=True)
class Conflict:
    """Other bytes lay under a key that was to be written.

    `state`: `different`, `unknown` (the service keeps nothing to compare) or `rerun` (an earlier attempt of this job).
    `origin`: who wrote them, `run/job/attempt`, or "" where they do not say. `action`: what was done.
    """

    location: StorageLocation
    state: Literal["different", "unknown", "rerun"]
    origin: str
    action: Literal["overwritten", "skipped", "refused"]


@dataclass(frozen=True, slots=True)
class UploadResult:
    """Everything that came of one upload, each part in key or path order.

    `notices` is what the caller must be told though nothing failed, one line each.
    """

    stored: tuple[StoredObject, ...] = ()
    skipped: tuple[SkippedFile, ...] = ()
    failed: tuple[FailedItem, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        """Bytes stored."""
        return sum(item.size_bytes for item in self.stored)

    def __add__(self, other: UploadResult) -> UploadResult:
        """Both results as one; this one's parts first."""
        return UploadResult(
            self.stored + other.stored,
            self.skipped + other.skipped,
            self.failed + other.failed,
            self.conflicts + other.conflicts,
            self.notices + tuple(notice for notice in other.notices if notice not in self.notices),
        )


SMALL_OBJECT_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""The largest object that `read_small` reads."""


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """A small object's bytes, and the etag that `replace` takes: opaque, it names this version of the object."""

    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Replacement:
    """One object that `replace_all` stores, as `replace` takes it: `content_type` "" means that of its name."""

    location: StorageLocation
    data: bytes
    content_type: str
    etag: str  # what `read_small` gave; "" means: only where there is no object


@dataclass(frozen=True, slots=True)
class ListedObject:
    """One object as a listing shows it. `etag` has no quotes and is never a digest; "" in a staging directory."""

    location: StorageLocation
    size_bytes: int
    etag: str
    modified: datetime.datetime


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """What is stored under a key. `sha256`: hex digest of all its bytes, "" where the service keeps no such digest."""

    location: StorageLocation
    size_bytes: int
    sha256: str
    content_type: str


@dataclass(frozen=True, slots=True)
class DownloadItem:
    """One object to fetch to `target`; `sha256` is the hex digest that it must have, "" where none is known."""

    location: StorageLocation
    target: Path
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class DownloadedFile:
    """One file that is complete at its final name."""

    item: DownloadItem
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class DownloadResult:
    """What arrived and what did not, in the order asked for."""

    downloaded: tuple[DownloadedFile, ...] = ()
    failed: tuple[FailedItem, ...] = ()
