"""Says what is stored under many keys: by a HEAD each, or by reading and hashing every byte."""

from __future__ import annotations

import hashlib
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import BucketNotFoundError, NotFoundError, NotPermittedError, OutputsError
from _therock_utils._s3_look import Looker, ask_all, is_denial, refusal, tolerant_health
from _therock_utils._s3_read import Handover, LargeObjectError, ObjectReader, run_by_size
from _therock_utils._transfer_types import ObjectFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from _therock_utils._cancel import CancelToken
    from _therock_utils._s3_read import Version
    from _therock_utils._s3_retry import BucketHealth, Retrier
    from _therock_utils._s3_session import S3Connection
    from _therock_utils.storage_location import StorageLocation

HEADS_AT_ONCE: Final = 32  # boto3: more only wait for one another
_GRACE_SECONDS: Final = 0.5


def describe_by_head(
    connection: S3Connection, retrier: Retrier, locations: Sequence[StorageLocation], *, cancel: CancelToken
) -> tuple[ObjectFacts | OutputsError | None, ...]:
    """As `StorageBackend.describe` without `reads`."""
    return ask_all(Looker(connection, retrier).facts, locations, at_once=HEADS_AT_ONCE, cancel=cancel)


class Reading:
    """One call of `StorageBackend.describe` with `reads`. Memory: that of one ObjectReader."""

    def __init__(self, connection: S3Connection, retrier: Retrier, *, cancel: CancelToken, concurrency: int) -> None:
        """Nothing is read yet; `concurrency` small objects are read at once."""
        self._reader = ObjectReader(connection, retrier, cancel=cancel)
        self._cancel = cancel
        self._concurrency = concurrency
        self._lock = threading.Lock()
        self._healths: dict[str, BucketHealth] = {}
        self._outcomes: dict[int, ObjectFacts | OutputsError | None] = {}

    def run(self, locations: Sequence[StorageLocation]) -> tuple[ObjectFacts | OutputsError | None, ...]:
        """Read each of `locations`. Raises CancelledError within a second of a cancel."""
        self._healths = {at.bucket: tolerant_health() for at in locations}
        large = Handover(len(locations))
        run_by_size(
            [partial(self._read_small, number, at, large) for number, at in enumerate(locations)],
            large,
            concurrency=self._concurrency,
            cancel=self._cancel,
            grace_seconds=_GRACE_SECONDS,
        )
        self._cancel.check()
        with self._lock:
            return tuple(self._outcomes[number] for number in range(len(locations)))

    def _read_small(self, number: int, location: StorageLocation, large: Handover) -> None:
        try:
            self._keep(number, location, partial(self._hash_small, location))
        except LargeObjectError as found:
            hash_ranges = partial(self._hash_ranges, location, found.version)
            large.add(partial(self._keep, number, location, hash_ranges))
        finally:
            large.one_less_to_come()

    def _hash_small(self, location: StorageLocation) -> ObjectFacts:
        data, version = self._reader.read_small(location, self._healths[location.bucket])
        return ObjectFacts(location, version.size_bytes, hashlib.sha256(data).hexdigest(), version.content_type)

    def _hash_ranges(self, location: StorageLocation, version: Version) -> ObjectFacts:
        sink = _Hash()
        self._reader.read_ranges(location, version, sink, self._healths[location.bucket])
        return ObjectFacts(location, version.size_bytes, sink.sha256, version.content_type)

    def _keep(self, number: int, location: StorageLocation, read: Callable[[], ObjectFacts]) -> None:
        outcome: ObjectFacts | OutputsError | None
        try:
            outcome = read()
        except BucketNotFoundError as error:
            outcome = error
        except NotFoundError:
            outcome = None
        except NotPermittedError as error:
            outcome = refusal(location, error) if is_denial(error) else error
        except OutputsError as error:
            outcome = error
        with self._lock:
            self._outcomes[number] = outcome


class _Hash:
    """A sink that keeps nothing but the digest."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> None:
        self._digest.update(data)
        self.size_bytes += len(data)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()
