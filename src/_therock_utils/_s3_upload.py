"""Stores one object and proves that it is stored.

A small object is read once into memory and sent in one request, with its SHA-256 in the request, so that S3 refuses any
other body. A large one goes as a multipart upload, each part with its SHA-256; one HEAD afterwards must give our byte
count and, where it gives a checksum, the digest of the joined part digests.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

from _therock_utils._errors import IntegrityError, NotPermittedError, OutputsError
from _therock_utils._s3_budget import ByteBudget, PartBuffers
from _therock_utils._s3_calls import ORIGIN_METADATA, head_facts, listed_size, obstore_call
from _therock_utils._s3_plan import (
    MIB,
    PART_SIZE_BYTES,
    LocalDigests,
    StoredFacts,
    byte_ranges,
    choose_part_size,
    is_large,
    matches_joined_digest,
    multipart_etag,
)
from _therock_utils._s3_retry import BucketHealth
from _therock_utils._s3_source import open_source
from _therock_utils._transfer_types import StoredObject, UploadItem
from _therock_utils.content_types import infer_content_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from obstore.store import S3Store

    from _therock_utils._cancel import CancelToken
    from _therock_utils._s3_retry import Retrier
    from _therock_utils._s3_session import S3Connection
    from _therock_utils._s3_source import UploadSource
    from _therock_utils._transfer_types import Origin, Verified
    from _therock_utils.storage_location import StorageLocation

_logger = logging.getLogger(__name__)
SMALL_BUDGET_BYTES = 48 * MIB
PART_BUDGET_BYTES = 160 * MIB
PARTS_IN_FLIGHT = 8


class ObjectWriter:
    """Stores objects for one transfer. Safe to share between threads.

    Memory: SMALL_BUDGET_BYTES of small objects and PART_BUDGET_BYTES of parts at most, whatever the number of threads
    (one part more where parts must be larger than the budget, which begins at files of 1.6 TB).
    """

    def __init__(
        self, connection: S3Connection, retrier: Retrier, *, origin: Origin | None, cancel: CancelToken, dry_run: bool
    ) -> None:
        """`origin` becomes metadata of every object. With `dry_run` everything is read and nothing sent."""
        self._connection = connection
        self._retrier = retrier
        self._metadata = {ORIGIN_METADATA: header_value(str(origin))} if origin else {}
        self._cancel = cancel
        self._dry_run = dry_run
        self._small = ByteBudget(SMALL_BUDGET_BYTES)
        self._parts = PartBuffers(PART_BUDGET_BYTES, kept_bytes=PART_SIZE_BYTES)
        self._lock = threading.Lock()
        self.healths: defaultdict[str, BucketHealth] = defaultdict(BucketHealth)
        self.open_uploads: set[StorageLocation] = set()
        """Where a multipart upload was begun and is not known to be finished or aborted."""

    def write(self, item: UploadItem) -> StoredObject:
        """Store one item. Raises SkipFileError, or the OutputsError that says why it is not stored."""
        self._cancel.check()
        health = self._health(item)
        health.check()
        if not item.content_type:
            item = UploadItem(item.source, item.destination, infer_content_type(item.destination.relative_path))
        with open_source(item.source) as source:
            if is_large(source.size_bytes):
                return self._write_large(item, source, health)
            with self._small.holding(source.size_bytes, self._cancel):
                return self._write_small(item, source, health)

    def _health(self, item: UploadItem) -> BucketHealth:
        with self._lock:
            return self.healths[item.destination.bucket]

    def _write_small(self, item: UploadItem, source: UploadSource, health: BucketHealth) -> StoredObject:
        import obstore

        data = source.read_all()
        sha256 = hashlib.sha256(data).hexdigest()
        if self._dry_run:
            return _stored(item, len(data), sha256, "dry-run")
        attributes = self._attributes(item)

        def put(store: S3Store) -> None:
            obstore.put(store, item.destination.relative_path, data, use_multipart=False, attributes=attributes)

        self._retrier.call(lambda: self._send(item, put), health)
        return _stored(item, len(data), sha256, "sha256-single")

    def _write_large(self, item: UploadItem, source: UploadSource, health: BucketHealth) -> StoredObject:
        reader = PartReader(source, self._parts, self._cancel)
        if self._dry_run:
            for _ in reader.parts():
                pass
            return _stored(item, source.size_bytes, reader.sha256.hexdigest(), "dry-run")
        self._retrier.call(lambda: self._send_parts(item, reader), health)
        verified = self._verify(item, source.size_bytes, reader.part_sha256s)
        return _stored(item, source.size_bytes, reader.sha256.hexdigest(), verified)

    def _send_parts(self, item: UploadItem, reader: PartReader) -> None:
        import obstore

        attributes = self._attributes(item)

        def put(store: S3Store) -> None:
            obstore.put(
                store,
                item.destination.relative_path,
                self._noting(item, reader),
                use_multipart=True,
                chunk_size=reader.part_size_bytes,
                max_concurrency=PARTS_IN_FLIGHT,
                attributes=attributes,
            )

        self._send(item, put)
        if not reader.failed_before:
            with self._lock:
                self.open_uploads.discard(item.destination)

    def _noting(self, item: UploadItem, reader: PartReader) -> Iterator[memoryview]:
        """The reader's parts. obstore asks for the first one when it has begun the multipart upload."""
        with self._lock:
            self.open_uploads.add(item.destination)
        yield from reader.parts()

    def _send(self, item: UploadItem, put: Callable[[S3Store], None]) -> None:
        destination = item.destination
        obstore_call(self._connection, "store", destination.bucket, destination.relative_path, put)

    def _attributes(self, item: UploadItem) -> dict[str, str]:
        return {"Content-Type": item.content_type, **self._metadata}

    def _verify(self, item: UploadItem, size_bytes: int, part_sha256s: list[bytes]) -> Verified:
        """Compare what is stored with what was sent. Raises IntegrityError where they differ."""
        bucket, key = item.destination.bucket, item.destination.relative_path
        # Its own health: credentials that may write but not look are no reason to stop writing.
        facts = self._retrier.call(lambda: self._look(bucket, key), BucketHealth())
        if facts.size_bytes != size_bytes:
            raise _differs(item, f"{facts.size_bytes} bytes are stored, {size_bytes} were sent")
        if not facts.checksum_sha256:
            return "size-only"
        if not matches_joined_digest(facts.checksum_sha256, part_sha256s):
            raise _differs(item, "the stored SHA-256 is not that of the parts that were sent")
        return "sha256-parts"

    def _look(self, bucket: str, key: str) -> StoredFacts:
        try:
            return head_facts(self._connection, bucket, key)
        except NotPermittedError:
            size_bytes = listed_size(self._connection, bucket, key)
            if size_bytes is None:
                raise
            return StoredFacts(size_bytes, "", "")


class PartReader:
    """Reads a source in parts, once an attempt, and takes the digests on the way."""

    def __init__(self, source: UploadSource, buffers: PartBuffers, cancel: CancelToken) -> None:
        """Nothing is read yet."""
        self._source = source
        self._buffers = buffers
        self._cancel = cancel
        self._attempts = 0
        self.part_size_bytes = choose_part_size(source.size_bytes)
        self.sha256 = hashlib.sha256()
        self.part_sha256s: list[bytes] = []

    @property
    def failed_before(self) -> bool:
        """Whether an attempt before this one ended early."""
        return self._attempts > 1

    def parts(self) -> Iterator[memoryview]:
        """Each part's bytes, from the first part on.

        Raises CancelledError, IntegrityError or LocalFileError; obstore then aborts the multipart upload it feeds.
        """
        self._attempts += 1
        self.sha256, self.part_sha256s = hashlib.sha256(), []
        for start in range(0, self._source.size_bytes, self.part_size_bytes):
            self._cancel.check()
            size_bytes = min(self.part_size_bytes, self._source.size_bytes - start)
            view = self._buffers.take(size_bytes, self.part_size_bytes, self._cancel)
            self._source.read_into(view, start)
            self.sha256.update(view)
            self.part_sha256s.append(hashlib.sha256(view).digest())
            if start + size_bytes == self._source.size_bytes:
                self._source.check_unchanged()
            yield view
            del view  # the last reference here: the buffer is free as soon as obstore has sent it
        self._cancel.check()


def digest_locally(item: UploadItem, cancel: CancelToken) -> LocalDigests:
    """Digests of an item's bytes as an upload would cut them, and the ETag it would probably get. Memory: 1 MiB.

    Raises SkipFileError and OutputsError as reading does.
    """
    with open_source(item.source) as source:
        large = is_large(source.size_bytes)
        part_size_bytes = choose_part_size(source.size_bytes) if large else max(source.size_bytes, 1)
        whole = hashlib.sha256()
        parts, md5s = [], []
        buffer = memoryview(bytearray(min(MIB, source.size_bytes)))
        for start, end in byte_ranges(source.size_bytes, part_size_bytes) or [(0, 0)]:
            part, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
            for offset in range(start, end, MIB):
                cancel.check()
                view = buffer[: min(MIB, end - offset)]
                source.read_into(view, offset)
                for digest in (whole, part, md5):
                    digest.update(view)
            parts.append(part.digest())
            md5s.append(md5.digest())
        source.check_unchanged()
    return LocalDigests(whole.digest(), tuple(parts), multipart_etag(md5s) if large else md5s[0].hex())


def header_value(text: str) -> str:
    """`text` in printable ASCII: metadata travels as a header."""
    return "".join(character if " " <= character <= "~" else "?" for character in text)


def _stored(item: UploadItem, size_bytes: int, sha256: str, verified: Verified) -> StoredObject:
    return StoredObject(item.destination, size_bytes, sha256, item.content_type, verified)


def _differs(item: UploadItem, why: str) -> OutputsError:
    remedy = "Something else may write the same key at the same time: run the job again."
    return IntegrityError(f"{item.destination.s3_uri} is not what was uploaded", why=why, remedy=remedy)
