"""Looks for single objects: is it there, how large is it, which digest does the service keep of it.

A HEAD's answer has no body, so it cannot say whether the object or the bucket is missing, or why it was refused: what a
HEAD refuses is asked once more as a GET, whose answer decides.
"""

from __future__ import annotations

import base64
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from _therock_utils._errors import BucketNotFoundError, NotFoundError, NotPermittedError, OutputsError, ServiceError
from _therock_utils._s3_calls import boto3_call, obstore_call, reading
from _therock_utils._s3_retry import BucketHealth
from _therock_utils._s3_workers import affordable_concurrency, call_abandonably, lane, run_lanes
from _therock_utils._transfer_types import ListedObject, ObjectFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mypy_boto3_s3.client import S3Client
    from obstore import GetResult, ObjectMeta
    from obstore.store import S3Store

    from _therock_utils._cancel import CancelToken
    from _therock_utils._s3_retry import Retrier
    from _therock_utils._s3_session import S3Connection
    from _therock_utils.storage_location import StorageLocation

_T = TypeVar("_T")
_DIGEST_BYTES: Final = 32
_GRACE_SECONDS: Final = 0.5
_FIRST_DENIALS: Final = 8


class Looker:
    """Looks for objects of one storage. Safe to share between threads. Memory: one answer without its body."""

    def __init__(self, connection: S3Connection, retrier: Retrier) -> None:
        """Nothing is asked yet."""
        self._connection = connection
        self._retrier = retrier

    def find(self, location: StorageLocation, *, cancel: CancelToken) -> ListedObject | None:
        """As `StorageBackend.find`."""
        return call_abandonably(partial(self._find, location), cancel=cancel)

    def _find(self, location: StorageLocation) -> ListedObject | None:
        def ask() -> ListedObject | None:
            try:
                return _listed(location, self._head(location))
            except OutputsError as error:
                if error.transient:
                    raise
            answer = self._get(location)
            return None if answer is None else _listed(location, answer.meta)

        return self._retrier.call(ask, BucketHealth())

    def facts(self, location: StorageLocation, health: BucketHealth) -> ObjectFacts | None:
        """What a HEAD says, None where there is no object. Raises as `find` does, but does not end with a cancel."""

        def ask() -> ObjectFacts | None:
            try:
                return self._head_facts(location)
            except OutputsError as error:
                if error.transient:
                    raise
            answer = self._get(location)
            if answer is None:
                return None
            content_type = answer.attributes.get("Content-Type", "")
            return ObjectFacts(location, answer.meta["size"], "", str(content_type))

        return self._retrier.call(ask, health)

    def _head(self, location: StorageLocation) -> ObjectMeta:
        def ask(store: S3Store) -> ObjectMeta:
            import obstore

            return obstore.head(store, location.relative_path)

        return reading(
            self._connection,
            location.bucket,
            lambda signed: obstore_call(
                self._connection, "look at", location.bucket, location.relative_path, ask, signed=signed
            ),
        )

    def _head_facts(self, location: StorageLocation) -> ObjectFacts:
        bucket, key = location.bucket, location.relative_path

        def ask(client: S3Client) -> ObjectFacts:
            answer = client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
            size_bytes = answer.get("ContentLength")
            if size_bytes is None:
                raise ServiceError(f"could not look at {location.s3_uri}", why="the service gives no size of it")
            return ObjectFacts(location, size_bytes, whole_sha256(answer), answer.get("ContentType", ""))

        return reading(
            self._connection,
            bucket,
            lambda signed: boto3_call(self._connection, "look at", bucket, key, ask, signed=signed),
        )

    def _get(self, location: StorageLocation) -> GetResult | None:
        """A GET's answer, its body unread; None where there is no object."""

        def ask(store: S3Store) -> GetResult:
            import obstore

            return obstore.get(store, location.relative_path)

        try:
            return reading(
                self._connection,
                location.bucket,
                lambda signed: obstore_call(
                    self._connection, "look at", location.bucket, location.relative_path, ask, signed=signed
                ),
            )
        except BucketNotFoundError:
            raise
        except NotFoundError:
            return None
        except NotPermittedError as error:
            if is_denial(error):
                raise refusal(location, error) from error
            raise


def ask_all(
    ask: Callable[[StorageLocation, BucketHealth], _T],
    locations: Sequence[StorageLocation],
    *,
    at_once: int,
    cancel: CancelToken,
) -> tuple[_T | OutputsError, ...]:
    """What `ask` returns or raises for each location, in order, `at_once` at a time.

    What a bucket answers to all alike ends it for that bucket. Raises CancelledError within a second of a cancel.
    """
    healths = {at.bucket: tolerant_health() for at in locations}
    answers: dict[int, _T | OutputsError] = {}

    def job(number: int, location: StorageLocation) -> None:
        try:
            answers[number] = ask(location, healths[location.bucket])
        except OutputsError as error:
            answers[number] = error

    jobs = [partial(job, number, location) for number, location in enumerate(locations)]
    run_lanes([lane(jobs, affordable_concurrency(at_once))], cancel=cancel, grace_seconds=_GRACE_SECONDS)
    cancel.check()
    return tuple(answers[number] for number in range(len(locations)))


def tolerant_health() -> BucketHealth:
    """For objects that are looked at one by one: some may be denied, or missing, which can look the same."""
    return BucketHealth(tolerates_denials=True, first_denials=_FIRST_DENIALS)


def is_denial(error: OutputsError) -> bool:
    """Whether it is a plain 403, and not one about credentials or the region."""
    return type(error) is NotPermittedError


def refusal(location: StorageLocation, error: OutputsError) -> NotPermittedError:
    """A denial of one object, with the word that the object may as well be missing."""
    return NotPermittedError(
        f"{location.s3_uri} may not be looked at, or does not exist",
        why=error.why,
        remedy=f"{error.remedy} To those who may not do s3:ListBucket, S3 answers so of a missing object too.",
    )


def whole_sha256(head: Mapping[str, object]) -> str:
    """Hex SHA-256 of the whole object out of a HeadObject answer, "" where it has none.

    A multipart upload's is the digest of its parts' digests: Amazon S3 User Guide, "Checking object integrity".
    """
    in_parts = "-" in str(head.get("ETag", "")) or head.get("ChecksumType", "FULL_OBJECT") != "FULL_OBJECT"
    try:
        digest = base64.b64decode(str(head.get("ChecksumSHA256", "")), validate=True)
    except ValueError:
        return ""
    return "" if in_parts or len(digest) != _DIGEST_BYTES else digest.hex()


def _listed(location: StorageLocation, meta: ObjectMeta) -> ListedObject:
    return ListedObject(location, meta["size"], (meta["e_tag"] or "").strip('"'), meta["last_modified"])
