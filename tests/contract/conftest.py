"""Each test runs on every storage: a staging directory, and S3 as two servers know it."""

from __future__ import annotations

import itertools
import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakes.ministack_server import ministack_server
from fakes.moto_server import moto_server
from fakes.storages import LocalStorage, S3Storage, Storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3.client import S3Client

_numbers = itertools.count()


@pytest.fixture(scope="session")
def moto_client() -> Iterator[S3Client]:
    with moto_server() as url, closing(make_client(url)) as client:
        yield client


@pytest.fixture(scope="session")
def ministack_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Client]:
    program = Path(os.environ["THEROCK_OUTPUTS_MINISTACK"])
    with ministack_server(program, tmp_path_factory.mktemp("ministack")) as url, closing(make_client(url)) as client:
        yield client


def make_client(url: str) -> S3Client:
    """A client that looks into the server past the backends; whatever the environment says plays no part."""
    import boto3
    from botocore.config import Config

    return boto3.session.Session().client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(proxies={}),
    )


@pytest.fixture(
    params=["local", "s3-moto", pytest.param("s3-ministack", marks=[pytest.mark.needs("ministack")])],
)
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """Each kind of storage in turn, empty."""
    if request.param == "local":
        return LocalStorage(tmp_path / "staging")
    return make_s3_storage(request, request.param, monkeypatch)


@pytest.fixture(params=["s3-moto", pytest.param("s3-ministack", marks=[pytest.mark.needs("ministack")])])
def s3_storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> S3Storage:
    """Each kind of S3 in turn, with an empty bucket."""
    return make_s3_storage(request, request.param, monkeypatch)


def make_s3_storage(request: pytest.FixtureRequest, kind: str, monkeypatch: pytest.MonkeyPatch) -> S3Storage:
    client = request.getfixturevalue("moto_client" if kind == "s3-moto" else "ministack_client")
    for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ENDPOINT_URL": client.meta.endpoint_url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    bucket = f"contract-{os.getpid()}-{next(_numbers)}"
    client.create_bucket(Bucket=bucket)
    return S3Storage(kind, bucket, client)
