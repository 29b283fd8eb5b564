"""Aborts multipart uploads that an upload left open.

obstore aborts the upload whose reader raises; it gives no upload id, so what a failed part or an abandoned worker
leaves open is found by listing: exactly our keys, begun after our start by the service's clock.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import threading
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING

from _therock_utils._errors import NotFoundError, OutputsError
from _therock_utils._s3_calls import boto3_call
from _therock_utils._s3_plan import common_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mypy_boto3_s3.client import S3Client

    from _therock_utils._s3_session import S3Connection
    from _therock_utils.storage_location import StorageLocation

_logger = logging.getLogger(__name__)
_CLOCK_ALLOWANCE = datetime.timedelta(seconds=2)  # the service's times are whole seconds


def abort_uploads(
    connection: S3Connection,
    locations: Collection[StorageLocation],
    *,
    since: datetime.datetime,
    timeout_seconds: float,
) -> frozenset[StorageLocation]:
    """Abort open uploads to `locations` begun after `since` (aware); those for which it could not be done in time."""
    if not locations:
        return frozenset()
    left = set(locations)
    lock = threading.Lock()

    def work() -> None:
        for bucket in sorted({at.bucket for at in locations}):
            ours = {at.relative_path: at for at in locations if at.bucket == bucket}
            try:
                _abort_in_bucket(connection, bucket, frozenset(ours), since)
            except OutputsError as error:
                _logger.warning("open multipart uploads in bucket %s cannot be aborted: %s", bucket, error)
            else:
                with lock:
                    left.difference_update(ours.values())

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout_seconds)
    with lock:
        return frozenset(left)


def _abort_in_bucket(connection: S3Connection, bucket: str, keys: frozenset[str], since: datetime.datetime) -> None:
    def find(client: S3Client) -> list[tuple[str, str]]:
        return list(_open_uploads(client, bucket, keys, since))

    for key, upload_id in boto3_call(connection, "list", bucket, common_folder(sorted(keys)), find):
        with contextlib.suppress(NotFoundError):  # it ended meanwhile
            boto3_call(connection, "store", bucket, key, partial(_abort, bucket=bucket, key=key, upload_id=upload_id))


def _abort(client: S3Client, *, bucket: str, key: str, upload_id: str) -> None:
    client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)


def _open_uploads(
    client: S3Client, bucket: str, keys: frozenset[str], since: datetime.datetime
) -> Iterator[tuple[str, str]]:
    folder = common_folder(sorted(keys))
    prefix = f"{folder}/" if folder else ""
    pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix)
    for page in pages:
        begun_after = since + clock_offset(page["ResponseMetadata"]["HTTPHeaders"].get("date", "")) - _CLOCK_ALLOWANCE
        for upload in page.get("Uploads", []):
            if upload["Key"] in keys and upload["Initiated"] >= begun_after:
                yield upload["Key"], upload["UploadId"]


def clock_offset(date_header: str) -> datetime.timedelta:
    """How far the service's clock is ahead of ours, by its Date header; nothing where there is no such header."""
    try:
        served = parsedate_to_datetime(date_header)
    except ValueError:
        return datetime.timedelta()
    return served - datetime.datetime.now(datetime.UTC)
