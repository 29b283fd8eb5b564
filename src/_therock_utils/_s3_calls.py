"""Single S3 requests, each with its errors translated. What a request is made with comes from S3Connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from _therock_utils._errors import NotPermittedError
from _therock_utils._s3_errors import is_panic, panicked, translate_botocore, translate_obstore
from _therock_utils._s3_plan import StoredFacts

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3.client import S3Client
    from obstore.store import S3Store

    from _therock_utils._s3_session import S3Connection

_T = TypeVar("_T")
ORIGIN_METADATA = "therock-origin"


def obstore_call(
    connection: S3Connection,
    action: str,
    bucket: str,
    key: str,
    request: Callable[[S3Store], _T],
    *,
    signed: bool = True,
) -> _T:
    """What `request` returns for the bucket's store. Raises an OutputsError for what obstore raises.

    A panic of its Rust code, which is no Exception, counts as an error: a header or URL that it cannot build.
    """
    from obstore.exceptions import BaseError

    store = connection.store(bucket, signed=signed)
    try:
        return request(store)
    except (BaseError, FileNotFoundError) as error:
        raise translate_obstore(error, connection.context(action, bucket, key, signed=signed)) from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise panicked(connection.context(action, bucket, key, signed=signed)) from error


def boto3_call(
    connection: S3Connection,
    action: str,
    bucket: str,
    key: str,
    request: Callable[[S3Client], _T],
    *,
    signed: bool = True,
) -> _T:
    """What `request` returns for the bucket's boto3 client. Raises an OutputsError for what botocore raises."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        return request(connection.client(bucket, signed=signed))
    except (BotoCoreError, ClientError, ResponseParserError) as error:
        raise translate_botocore(error, connection.context(action, bucket, key, signed=signed)) from error


def reading(connection: S3Connection, bucket: str, request: Callable[[bool], _T]) -> _T:
    """Call `request(signed)`: anonymously first for a public inventory bucket, signed after it was denied so."""
    signed = connection.reads_signed(bucket)
    try:
        return request(signed)
    except NotPermittedError:
        if signed or not connection.sign_reads(bucket):
            raise
        return request(True)  # noqa: FBT003 - the callback's only argument


def head_facts(connection: S3Connection, bucket: str, key: str) -> StoredFacts:
    """Size, SHA-256 and origin of an object, by HeadObject with ChecksumMode=ENABLED."""

    def ask(client: S3Client) -> StoredFacts:
        answer = client.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        metadata = answer.get("Metadata", {})
        return StoredFacts(answer["ContentLength"], answer.get("ChecksumSHA256", ""), metadata.get(ORIGIN_METADATA, ""))

    try:
        return boto3_call(connection, "look at", bucket, key, ask)
    except NotPermittedError:
        if not connection.anonymous_reads_allowed(bucket):
            raise
        return boto3_call(connection, "look at", bucket, key, ask, signed=False)


def head_origin(connection: S3Connection, bucket: str, key: str) -> str:
    """Who wrote an object, as its metadata says; ten times cheaper than `head_facts`."""

    def ask(store: S3Store) -> str:
        import obstore

        return str(obstore.get(store, key, options={"head": True}).attributes.get(ORIGIN_METADATA, ""))

    def request(signed: bool) -> str:  # noqa: FBT001 - the shape that `reading` calls
        return obstore_call(connection, "look at", bucket, key, ask, signed=signed)

    return reading(connection, bucket, request)


def listed_size(connection: S3Connection, bucket: str, key: str) -> int | None:
    """Size of an object as the listing shows it, or None: for credentials that may list it but not look at it."""

    def ask(client: S3Client) -> int | None:
        for entry in client.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1).get("Contents", []):
            if entry.get("Key") == key:
                return entry.get("Size")
        return None

    return boto3_call(connection, "list", bucket, key, ask)
