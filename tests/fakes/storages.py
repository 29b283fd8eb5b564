"""The storages that keep one contract: a staging directory, and a bucket of an S3 server on 127.0.0.1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from _therock_utils.storage_backend import StorageBackend, create_storage_backend
from _therock_utils.storage_location import StorageLocation

if TYPE_CHECKING:
    from pathlib import Path

    from mypy_boto3_s3.client import S3Client


class Storage:
    """A storage that holds nothing at first, and a way to look into it that is not the backend's own."""

    kind: str
    bucket: str

    def at(self, key: str) -> StorageLocation:
        """The location of a key."""
        return StorageLocation(self.bucket, key)

    def backend(self, *, dry_run: bool = False) -> StorageBackend:
        """A new backend for it."""
        raise NotImplementedError

    def contents(self) -> dict[str, bytes]:
        """Every object's bytes by key."""
        raise NotImplementedError

    def put(self, key: str, data: bytes) -> None:
        """Lay an object there."""
        raise NotImplementedError


@dataclass(frozen=True)
class LocalStorage(Storage):
    """A staging directory."""

    staging_dir: Path
    kind: str = "local"
    bucket: str = "local"

    def backend(self, *, dry_run: bool = False) -> StorageBackend:
        return create_storage_backend(staging_dir=self.staging_dir, dry_run=dry_run)

    def contents(self) -> dict[str, bytes]:
        files = (path for path in self.staging_dir.rglob("*") if path.is_file())
        return {path.relative_to(self.staging_dir).as_posix(): path.read_bytes() for path in files}

    def put(self, key: str, data: bytes) -> None:
        path = self.staging_dir / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@dataclass(frozen=True)
class S3Storage(Storage):
    """A bucket of a server on 127.0.0.1, which the AWS environment variables name."""

    kind: str
    bucket: str
    client: S3Client

    def backend(self, *, dry_run: bool = False) -> StorageBackend:
        return create_storage_backend(dry_run=dry_run)

    def contents(self) -> dict[str, bytes]:
        return {key: self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in self.keys()}

    def keys(self) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=data)

    def head(self, key: str) -> dict[str, Any]:
        return dict(self.client.head_object(Bucket=self.bucket, Key=key))
