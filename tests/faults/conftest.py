"""A proxy that makes faults, in front of moto, and a bucket behind it."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import boto3
import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from _therock_utils._transfer_types import UploadItem
from _therock_utils.storage_backend import S3StorageBackend
from _therock_utils.storage_location import StorageLocation
from fakes.moto_server import moto_server
from fakes.s3_environment import use_endpoint
from fakes.s3_fault_proxy import FaultProxy, fault_proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3.client import S3Client

_numbers = itertools.count()


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    with moto_server() as url:
        yield url


@pytest.fixture(scope="session")
def moto_client(moto_url: str) -> Iterator[S3Client]:
    session = boto3.session.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")
    client = session.client("s3", endpoint_url=moto_url)
    yield client
    client.close()


@dataclass(frozen=True)
class Bucket:
    """A bucket, empty at first: `proxy` is what a backend reaches, `client` goes past it."""

    name: str
    proxy: FaultProxy
    client: S3Client

    def at(self, key: str) -> StorageLocation:
        return StorageLocation(self.name, key)

    def item(self, key: str, data: bytes = b"data") -> UploadItem:
        return UploadItem(data, self.at(key))

    def lay(self, *keys: str, data: bytes = b"x") -> None:
        """Many objects at once: past HTTP, straight into moto's memory."""
        for key in keys:
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(self.name, key, data)

    def keys(self) -> list[str]:
        return [entry["Key"] for entry in self.client.list_objects_v2(Bucket=self.name).get("Contents", [])]

    def get(self, key: str) -> bytes:
        return self.client.get_object(Bucket=self.name, Key=key)["Body"].read()

    def open_uploads(self) -> list[str]:
        return [entry["Key"] for entry in self.client.list_multipart_uploads(Bucket=self.name).get("Uploads", [])]


@pytest.fixture
def bucket(moto_url: str, moto_client: S3Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    with fault_proxy(moto_url) as proxy:
        use_endpoint(monkeypatch, proxy.url)
        name = f"faults-{os.getpid()}-{next(_numbers)}"
        moto_client.create_bucket(Bucket=name)
        yield Bucket(name, proxy, moto_client)


@pytest.fixture
def backend(bucket: Bucket) -> S3StorageBackend:
    """Patient enough to try again a few times, and no longer."""
    return S3StorageBackend(retry_seconds=20, request_timeout_seconds=20)


@pytest.fixture
def impatient_backend(bucket: Bucket) -> S3StorageBackend:
    return S3StorageBackend(retry_seconds=0.5, request_timeout_seconds=0.5)
