"""Sizes of many objects: by one listing of a folder that holds many of them, else by a HEAD each."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import CancelledError, NotPermittedError, OutputsError
from _therock_utils._s3_calls import obstore_call
from _therock_utils._s3_listing import Listing
from _therock_utils._s3_plan import just_before
from _therock_utils._s3_retry import BucketHealth
from _therock_utils._s3_workers import lane, run_lanes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from obstore.store import S3Store

    from _therock_utils._cancel import CancelToken
    from _therock_utils._s3_retry import Retrier
    from _therock_utils._s3_session import S3Connection
    from _therock_utils.storage_location import StorageLocation

_logger = logging.getLogger(__name__)
_HEADS_A_PAGE: Final = 8
"""A page of a listing is worth it where it stands for so many HEADs."""
_LISTINGS_AT_ONCE: Final = 16


class Sizes:
    """Finds the sizes in bytes of objects. Memory: a page of each of 16 listings, and what is found."""

    def __init__(
        self,
        connection: S3Connection,
        retrier: Retrier,
        healths: Mapping[str, BucketHealth],
        *,
        cancel: CancelToken,
        concurrency: int,
        grace_seconds: float,
    ) -> None:
        """`healths` by bucket; `concurrency` HEADs at once; after a cancel requests have `grace_seconds` to end."""
        self._connection = connection
        self._retrier = retrier
        self._healths = healths
        self._cancel = cancel
        self._concurrency = concurrency
        self._grace_seconds = grace_seconds
        self._lock = threading.Lock()
        self._found: dict[StorageLocation, int | OutputsError] = {}

    def find(self, locations: Iterable[StorageLocation]) -> dict[StorageLocation, int | OutputsError]:
        """The size of each, or why it is not known. After a cancel some are left out."""
        wanted = list(dict.fromkeys(locations))
        folders: dict[StorageLocation, list[StorageLocation]] = {}
        for location in wanted:
            folders.setdefault(location.parent, []).append(location)
        many = [partial(self._list, folder, ours) for folder, ours in folders.items() if len(ours) >= _HEADS_A_PAGE]
        run_lanes([lane(many, _LISTINGS_AT_ONCE)], cancel=self._cancel, grace_seconds=self._grace_seconds)
        with self._lock:
            heads = [partial(self._head, location) for location in wanted if location not in self._found]
        run_lanes([lane(heads, self._concurrency)], cancel=self._cancel, grace_seconds=self._grace_seconds)
        with self._lock:
            return dict(self._found)

    def _list(self, folder: StorageLocation, ours: Sequence[StorageLocation]) -> None:
        """Take sizes from a listing of `folder`, as far as it shows them within fewer requests than HEADs."""
        wanted = {at.relative_path: at for at in ours}
        last = max(wanted)  # in the order of the code points, which is that of the UTF-8 bytes
        health = self._healths[folder.bucket]
        listing = Listing(
            self._connection,
            self._retrier,
            BucketHealth(),  # its own: a listing that is refused is no reason to stop
            cancel=self._cancel,
            bucket=folder.bucket,
            folder=folder.relative_path,
            after=just_before(min(wanted)),
            direct=True,
            most_pages=len(ours) // _HEADS_A_PAGE,
        )
        try:
            health.check()
            for entry in listing:
                if entry.key in wanted:
                    with self._lock:
                        self._found[wanted[entry.key]] = entry.size_bytes
                if entry.key >= last:
                    break
        except CancelledError:
            return
        except NotPermittedError as error:
            _logger.info("folder %s cannot be listed, each object is looked at: %s", folder.s3_uri, error.why)
        except OutputsError as error:
            health.stop(error)

    def _head(self, location: StorageLocation) -> None:
        found: int | OutputsError
        try:
            found = self._retrier.call(partial(self._size_bytes, location), self._healths[location.bucket])
        except OutputsError as error:
            found = error
        with self._lock:
            self._found[location] = found

    def _size_bytes(self, location: StorageLocation) -> int:
        def ask(store: S3Store) -> int:
            import obstore

            return obstore.head(store, location.relative_path)["size"]

        return obstore_call(self._connection, "look at", location.bucket, location.relative_path, ask)
