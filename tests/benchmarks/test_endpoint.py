"""The benchmark's endpoint must answer like S3 where the clients rely on it, else it would measure something else."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from benchmarks.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3 import S3Client

pytestmark = pytest.mark.needs("nginx", "nginx-lua")
BUCKET = "benchmark"
PART_BYTES = 5 * 1024 * 1024


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # macOS has none
    with tempfile.TemporaryDirectory(dir=memory) as folder, Endpoint(Path(folder, "endpoint")) as running:
        yield running


@pytest.fixture
def client(endpoint: Endpoint) -> Iterator[S3Client]:
    made = boto3.client(
        "s3",
        endpoint_url=endpoint.url,
        region_name="us-east-2",
        aws_access_key_id="benchmark",
        aws_secret_access_key="benchmark",
        config=Config(retries={"total_max_attempts": 1}),
    )
    yield made
    made.close()
    endpoint.remove(BUCKET, "")


@pytest.mark.parametrize("key", ["a.log", "deep/er/a.log", "odd name+%41 é&=#?~.log"])
def test_what_is_put_is_got_back(client: S3Client, endpoint: Endpoint, key: str) -> None:
    client.put_object(Bucket=BUCKET, Key=key, Body=b"hello")
    assert client.get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"hello"
    assert client.get_object(Bucket=BUCKET, Key=key, Range="bytes=1-3")["Body"].read() == b"ell"
    assert client.head_object(Bucket=BUCKET, Key=key)["ContentLength"] == 5
    assert [entry["Key"] for entry in client.list_objects_v2(Bucket=BUCKET)["Contents"]] == [key]
    assert endpoint.sizes(BUCKET, "") == {key: 5}
    assert endpoint.stored_digest(BUCKET, key) == hashlib.sha256(b"hello").hexdigest()


def test_a_missing_key_is_the_error_that_s3_gives(client: S3Client) -> None:
    with pytest.raises(ClientError) as error:
        client.get_object(Bucket=BUCKET, Key="missing")
    assert error.value.response["Error"]["Code"] == "NoSuchKey"
    with pytest.raises(ClientError) as error:
        client.head_object(Bucket=BUCKET, Key="missing")
    assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 404


def test_a_multipart_object_has_its_true_size_and_its_parts_in_order(client: S3Client, endpoint: Endpoint) -> None:
    upload = client.create_multipart_upload(Bucket=BUCKET, Key="big")["UploadId"]
    other = client.create_multipart_upload(Bucket=BUCKET, Key="big")["UploadId"]
    assert upload != other
    assert {one["UploadId"] for one in client.list_multipart_uploads(Bucket=BUCKET)["Uploads"]} == {upload, other}
    bodies = {2: b"b" * 10, 1: b"a" * PART_BYTES}
    etags = {
        number: client.upload_part(Bucket=BUCKET, Key="big", UploadId=upload, PartNumber=number, Body=body)["ETag"]
        for number, body in bodies.items()
    }
    client.upload_part(Bucket=BUCKET, Key="big", UploadId=other, PartNumber=1, Body=b"another upload's")
    client.abort_multipart_upload(Bucket=BUCKET, Key="big", UploadId=other)
    client.complete_multipart_upload(
        Bucket=BUCKET,
        Key="big",
        UploadId=upload,
        MultipartUpload={"Parts": [{"ETag": etags[number], "PartNumber": number} for number in sorted(etags)]},
    )
    assert endpoint.open_uploads() == 0
    assert client.head_object(Bucket=BUCKET, Key="big")["ContentLength"] == PART_BYTES + 10
    assert client.list_objects_v2(Bucket=BUCKET)["Contents"][0]["Size"] == PART_BYTES + 10
    assert endpoint.stored_digest(BUCKET, "big") == hashlib.sha256(bodies[1] + bodies[2]).hexdigest()


def test_completing_without_a_named_part_is_refused(client: S3Client, endpoint: Endpoint) -> None:
    upload = client.create_multipart_upload(Bucket=BUCKET, Key="big")["UploadId"]
    with pytest.raises(ClientError) as error:
        client.complete_multipart_upload(
            Bucket=BUCKET, Key="big", UploadId=upload, MultipartUpload={"Parts": [{"ETag": "x", "PartNumber": 1}]}
        )
    assert error.value.response["Error"]["Code"] == "InvalidPart"
    assert endpoint.open_uploads() == 1


def test_listings_are_paged_in_key_order_and_know_folders(client: S3Client, endpoint: Endpoint, tmp_path: Path) -> None:
    keys = [f"list/{number % 3}/{number:04}" for number in range(2100)] + ["list/3"]
    for key in keys:
        path = endpoint.data / BUCKET / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    pages = list(client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="list/"))
    assert [page["KeyCount"] for page in pages] == [1000, 1000, 101]
    assert [entry["Key"] for page in pages for entry in page["Contents"]] == sorted(keys)
    folders = client.list_objects_v2(Bucket=BUCKET, Prefix="list/", Delimiter="/")
    assert [entry["Prefix"] for entry in folders["CommonPrefixes"]] == ["list/0/", "list/1/", "list/2/"]
    assert [entry["Key"] for entry in folders["Contents"]] == ["list/3"]
    assert client.list_objects_v2(Bucket=BUCKET, Prefix="li")["KeyCount"] == 1000
    assert client.list_objects_v2(Bucket=BUCKET, Prefix="none/")["KeyCount"] == 0


def test_an_object_is_copied_inside_the_bucket_whatever_its_key(client: S3Client, endpoint: Endpoint) -> None:
    endpoint.make_folder(BUCKET, "to")
    client.put_object(Bucket=BUCKET, Key="from/odd name+%41 é.log", Body=b"hello")
    for key in ("to/a", "to/odd +%41 é"):
        client.copy({"Bucket": BUCKET, "Key": "from/odd name+%41 é.log"}, BUCKET, key)
        assert client.get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"hello"
    with pytest.raises(ClientError) as error:
        client.copy_object(Bucket=BUCKET, Key="to/b", CopySource={"Bucket": BUCKET, "Key": "missing"})
    assert error.value.response["Error"]["Code"] == "NoSuchKey"


def test_a_kept_listing_is_the_same_until_objects_are_removed(client: S3Client, endpoint: Endpoint) -> None:
    endpoint.lay(BUCKET, [f"list/{number:04}" for number in range(1100)], b"x")
    endpoint.keep_listings()
    pages = client.get_paginator("list_objects_v2")
    for _ in range(2):
        keys = [entry["Key"] for page in pages.paginate(Bucket=BUCKET, Prefix="list/") for entry in page["Contents"]]
        assert keys == [f"list/{number:04}" for number in range(1100)]
    endpoint.remove(BUCKET, "list/0000")
    endpoint.remove(BUCKET, "list")
    assert client.list_objects_v2(Bucket=BUCKET, Prefix="list/")["KeyCount"] == 0


def test_an_object_and_its_listing_have_the_same_etag(client: S3Client) -> None:
    client.put_object(Bucket=BUCKET, Key="a", Body=b"hello")
    listed = client.list_objects_v2(Bucket=BUCKET)["Contents"][0]
    assert listed["ETag"] == client.head_object(Bucket=BUCKET, Key="a")["ETag"]


def test_published_files_can_be_fetched(client: S3Client, endpoint: Endpoint) -> None:
    source = endpoint.data.parent / "source"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a").write_bytes(b"hello")
    endpoint.publish(BUCKET, "run-1", source)
    assert client.get_object(Bucket=BUCKET, Key="run-1/sub/a")["Body"].read() == b"hello"


def test_the_second_port_delays_every_answer(tmp_path: Path) -> None:
    with Endpoint(tmp_path / "endpoint", latency_seconds=0.05) as running:
        client = boto3.client(
            "s3",
            endpoint_url=running.delayed_url,
            region_name="us-east-2",
            aws_access_key_id="benchmark",
            aws_secret_access_key="benchmark",
        )
        start = time.monotonic()
        client.put_object(Bucket=BUCKET, Key="a", Body=b"hello")
        assert client.get_object(Bucket=BUCKET, Key="a")["Body"].read() == b"hello"
        assert time.monotonic() - start >= 0.1  # a lower bound holds on any machine
        client.close()
