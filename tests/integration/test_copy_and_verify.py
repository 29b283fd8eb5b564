"""Copies between runs and buckets, and verifies what lies there, on S3 servers, with runs that upload modes stored."""

from __future__ import annotations

import dataclasses
import json
import os
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils._errors import IntegrityError, NotFoundError, NotPermittedError
from _therock_utils.storage_backend import create_storage_backend
from fakes.contexts import make_context
from fakes.runner import FakeRunner
from fakes.s3_environment import ACCESS_KEY_ID, use_endpoint
from fakes.s3_fault_proxy import fault_proxy, s3_error
from fakes.trees import digest, write_tree
from therock_outputs.mode_names import Mode
from therock_outputs.modes import load_mode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from mypy_boto3_s3.client import S3Client

    from therock_outputs.report import Report

BUCKET, OTHER = "therock-ci-artifacts", "therock-nightly-artifacts"
P = "100-linux"
MIB = 1024 * 1024
BUILD = {
    "logs/a.log": "a\n",
    "logs/sub/b + c.log": "b\n",
    "logs/ccache/raw.log": "raw\n",
    "x/.ninja_log": "# ninja log v5\n",
    "base/aux-overlay/build/therock_manifest.json": "{}\n",
    "artifacts/blas_lib_gfx1151/artifact_manifest.txt": "blas/stage\n",
    "artifacts/blas_lib_gfx1151/blas/stage/lib/libblas.so": "bytes of blas\n" * 100,
    "artifacts/rccl_lib_generic.tar.xz": "an archive that the build brings\n",
}


@dataclass(frozen=True)
class Cloud:
    """Two buckets of the inventory on a server of this machine, empty at first.

    `keeps_digests`: the service gives the SHA-256 that came with a put; moto does not.
    """

    url: str
    client: S3Client
    keeps_digests: bool

    def etags(self, bucket: str = BUCKET) -> dict[str, str]:
        """The ETag of each object by key: of objects as small as these the MD5 of their bytes."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        return {entry["Key"]: entry["ETag"] for page in pages for entry in page.get("Contents", [])}

    def keys(self, bucket: str = BUCKET) -> list[str]:
        return list(self.etags(bucket))

    def get(self, key: str, bucket: str = BUCKET) -> bytes:
        return self.client.get_object(Bucket=bucket, Key=key)["Body"].read()

    def put(self, key: str, data: bytes | str, bucket: str = BUCKET) -> None:
        """Lay an object there as another program would: the service keeps no SHA-256 of it."""
        body = data.encode() if isinstance(data, str) else data
        self.client.put_object(Bucket=bucket, Key=key, Body=body)

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=BUCKET, Key=key)

    def run_files(self, prefix: str, bucket: str = BUCKET) -> dict[str, bytes]:
        """What lies directly in a run, by file name."""
        names = [key.removeprefix(f"{prefix}/") for key in self.keys(bucket) if key.startswith(f"{prefix}/")]
        return {name: self.get(f"{prefix}/{name}", bucket) for name in names if "/" not in name}


@pytest.fixture(params=["moto", pytest.param("ministack", marks=[pytest.mark.needs("ministack")])])
def cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    import boto3

    url = request.getfixturevalue(f"{request.param}_url")
    for name in [name for name in os.environ if name.startswith(("GITHUB_", "INPUT_", "RUNNER_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("RELEASE_TYPE", raising=False)
    use_endpoint(monkeypatch, url)
    session = boto3.session.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
    with closing(session.client("s3", endpoint_url=url)) as client:
        cloud = Cloud(url, client, keeps_digests=request.param != "moto")
        for bucket in (BUCKET, OTHER):
            client.create_bucket(Bucket=bucket)
        yield cloud
        for bucket in (BUCKET, OTHER):
            keys = cloud.keys(bucket)
            for start in range(0, len(keys), 1000):
                objects = [{"Key": key} for key in keys[start : start + 1000]]
                client.delete_objects(Bucket=bucket, Delete={"Objects": objects})
            client.delete_bucket(Bucket=bucket)


def run(workspace: Path, mode: Mode, **inputs: Any) -> Report:  # noqa: ANN401 - make_context's
    """One step in this process, on S3."""
    inputs = {"lookup": "false"} | inputs
    context = make_context(workspace, mode, backend=create_storage_backend(), **inputs)
    return load_mode(mode).run(dataclasses.replace(context, staging_dir=None))


def verify(workspace: Path, **inputs: Any) -> Report:  # noqa: ANN401 - make_context's
    return run(workspace, Mode.VERIFY, **inputs)


def copy(workspace: Path, **inputs: Any) -> Report:  # noqa: ANN401 - make_context's
    return run(workspace, Mode.COPY_ARTIFACTS, **({"stage": "all", "run_id": "300", "source_run_id": "100"} | inputs))


def states(report: Report) -> dict[str, str]:
    return {key: sign for sign, key, _ in report.tables[0].rows}


@pytest.fixture
def workspace(tmp_path: Path, cloud: Cloud) -> Path:
    """A workspace whose build is stored, as a multi-arch run's jobs store it."""
    write_tree(tmp_path / "build", BUILD)
    stage = {"stage": "math-libs", "family": "gfx1151"}
    uploads = [
        run(tmp_path, Mode.UPLOAD_STAGE, index="write", **stage),
        run(tmp_path, Mode.UPLOAD_STAGE, index="write", stage="compiler-runtime"),
        run(tmp_path, Mode.UPLOAD_ARTIFACTS, **stage),
    ]
    assert [upload.error for upload in uploads] == [None, None, None]
    return tmp_path


ARCHIVE = "blas_lib_gfx1151.tar.zst"
BROUGHT = "rccl_lib_generic.tar.xz"
NAMES = ["blas_lib_gfx1151", "rccl_lib_generic"]
FILES = {name for archive in (ARCHIVE, BROUGHT) for name in (archive, f"{archive}.sha256sum")}


@pytest.mark.parametrize("check", ["size", "stored", "read"])
def test_a_run_that_was_just_stored_is_the_same(cloud: Cloud, workspace: Path, check: str) -> None:
    report = verify(workspace, check=check)
    assert report.error is None, report.error
    assert set(states(report).values()) == {"="}
    stored = [key for key in cloud.keys(BUCKET) if not key.startswith(f"{P}/reports/")]
    assert report.outputs["same_count"] == str(len(stored))
    assert report.warnings == ()
    by_digest = {item.location.name for item in report.result.stored if item.verified == "sha256-single"}
    if check == "size":
        assert by_digest == set()
    elif check == "read" or cloud.keeps_digests:
        assert by_digest == {key.rpartition("/")[2] for key in stored}
    else:
        assert by_digest == {f"{ARCHIVE}.sha256sum", f"{BROUGHT}.sha256sum"}, "sidecars are read"


def test_a_single_stage_run_is_the_same_and_also_after_a_second_job_of_its_group(cloud: Cloud, tmp_path: Path) -> None:
    for job, content in (("one", "1"), ("two", "2")):
        write_tree(tmp_path / job / "build", {**BUILD, f"logs/{job}.log": content, "logs/a.log": content})
        inputs = {"artifact_group": "gfx94X-dcgpu", "environment": {"GITHUB_JOB": job}}
        assert run(tmp_path / job, Mode.UPLOAD_BUILD, **inputs).error is None
    report = verify(tmp_path, check="read")
    assert report.error is None, report.error
    assert set(states(report).values()) == {"="}


def test_what_is_removed_replaced_and_added_is_found(cloud: Cloud, workspace: Path) -> None:
    logs = "logs/math-libs/gfx1151"
    cloud.delete(f"{P}/{logs}/a.log")
    cloud.put(f"{P}/{logs}/sub/b + c.log", "longer\n")
    cloud.put(f"{P}/{ARCHIVE}.sha256sum", f"{'0' * 64}  {ARCHIVE}\n")
    cloud.put(f"{P}/{logs}/new.log", "new")
    cloud.put(f"{P}/logs/index.html", "the server's page")
    cloud.put("100-linux2/logs/x.log", "another run's")
    report = verify(workspace)
    assert isinstance(report.error, IntegrityError)
    trouble = {key: sign for key, sign in states(report).items() if sign != "="}
    assert trouble == {
        f"{logs}/a.log": "-",
        f"{logs}/sub/b + c.log": "*",
        f"{ARCHIVE}.sha256sum": "*",
        f"{logs}/new.log": "+",
    }
    outputs = report.outputs
    assert (outputs["missing_count"], outputs["differs_count"], outputs["extra_count"]) == ("1", "2", "1")


def test_other_bytes_of_the_same_size_are_found_by_reading_where_the_service_keeps_no_digest(
    cloud: Cloud, workspace: Path
) -> None:
    cloud.put(f"{P}/logs/math-libs/gfx1151/a.log", "x\n")
    stored = verify(workspace)
    assert stored.error is None
    assert "no SHA-256 was compared, because the service keeps none" in stored.notices[-1]
    assert stored.notices[-1].startswith("1 object:") or not cloud.keeps_digests
    read = verify(workspace, check="read")
    assert read.exit_code == 6
    assert states(read)["logs/math-libs/gfx1151/a.log"] == "*"


def test_other_bytes_of_the_same_size_are_found_by_the_digest_that_the_service_keeps(
    cloud: Cloud, workspace: Path
) -> None:
    key = f"{P}/logs/math-libs/gfx1151/a.log"
    cloud.client.put_object(Bucket=BUCKET, Key=key, Body=b"x\n", ChecksumAlgorithm="SHA256")
    report = verify(workspace)
    assert (report.exit_code, report.outputs["differs_count"]) == (6, "1")


def test_a_copied_run_verifies_and_is_the_same_byte_for_byte(cloud: Cloud, workspace: Path) -> None:
    report = copy(workspace)
    assert report.error is None, report.error
    assert json.loads(report.outputs["artifacts"]) == NAMES
    assert cloud.run_files("300-linux") == cloud.run_files(P)
    assert set(cloud.run_files(P)) == FILES
    digests = {name: digest(data) for name, data in cloud.run_files(P).items()}
    if not cloud.keeps_digests:
        digests |= {ARCHIVE: "", BROUGHT: ""}
    assert {item.location.name: item.sha256 for item in report.result.stored} == digests
    assert any("because the service keeps no SHA-256" in notice for notice in report.notices) != cloud.keeps_digests
    verified = verify(workspace, run_id="300", check="read")
    assert verified.error is None, verified.error
    assert (verified.outputs["same_count"], verified.notices) == ("4", ())


def test_a_copy_by_the_records_of_the_source_takes_one_stage_s_archives_only(cloud: Cloud, workspace: Path) -> None:
    write_tree(workspace / "other" / "build", {"artifacts/hip_lib_generic.tar.xz": "hip"})
    assert run(workspace / "other", Mode.UPLOAD_ARTIFACTS, stage="compiler-runtime").error is None
    report = copy(workspace, stage="math-libs")
    assert json.loads(report.outputs["per_stage"]) == {"math-libs": NAMES}
    assert set(cloud.run_files("300-linux")) == FILES
    onward = copy(workspace, run_id="400", source_run_id="300", stage="math-libs")
    assert onward.outputs == report.outputs


def with_digests(cloud: Cloud, prefix: str) -> None:
    """Store the run's files as they are, each with the SHA-256 that the service then keeps."""
    for name, data in cloud.run_files(prefix).items():
        cloud.client.put_object(Bucket=BUCKET, Key=f"{prefix}/{name}", Body=data, ChecksumAlgorithm="SHA256")


def test_a_second_copy_asks_for_no_copy_where_the_service_keeps_digests(
    cloud: Cloud, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_digests(cloud, P)
    first = copy(workspace)
    with_digests(cloud, "300-linux")
    with fault_proxy(cloud.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
        second = copy(workspace)
        writes = [request.path for request in proxy.requests if request.is_write]
    assert second.outputs == first.outputs
    assert second.warnings == ()
    assert len(writes) == 1, "the record"
    assert "/reports/copy-artifacts/" in writes[0]


def test_an_archive_that_is_not_what_its_sidecar_says_is_not_copied_at_all(cloud: Cloud, workspace: Path) -> None:
    with_digests(cloud, P)
    good = cloud.get(f"{P}/{ARCHIVE}")
    bad = bytes(len(good))
    cloud.client.put_object(Bucket=BUCKET, Key=f"{P}/{ARCHIVE}", Body=bad, ChecksumAlgorithm="SHA256")
    cloud.put(f"300-linux/{ARCHIVE}", "what lay there")
    report = copy(workspace)
    assert isinstance(report.error, IntegrityError)
    assert report.error.why == f"the sidecar has sha256 {digest(good)}, the archive {digest(bad)}"
    assert [item.path for item in report.result.failed] == [ARCHIVE]
    assert report.outputs["artifacts"] == json.dumps(NAMES[1:])
    assert cloud.get(f"300-linux/{ARCHIVE}") == b"what lay there"
    assert report.result.conflicts == ()


@pytest.mark.parametrize("is_kept", [True, False])
def test_damage_behind_the_right_digest_is_repaired_by_the_next_copy(
    cloud: Cloud, workspace: Path, is_kept: bool
) -> None:
    copy(workspace)
    good = cloud.get(f"300-linux/{ARCHIVE}")
    kept: dict[str, Any] = {"ChecksumAlgorithm": "SHA256"} if is_kept else {}
    cloud.client.put_object(Bucket=BUCKET, Key=f"300-linux/{ARCHIVE}", Body=bytes(len(good)), **kept)
    report = copy(workspace)
    assert report.error is None, report.error
    assert cloud.get(f"300-linux/{ARCHIVE}") == good
    assert len(report.warnings) == is_kept
    assert verify(workspace, run_id="300", check="read").error is None


def test_each_archive_costs_one_look(cloud: Cloud, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_digests(cloud, P)
    with fault_proxy(cloud.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
        assert copy(workspace).error is None
        looks = [request.path for request in proxy.requests if request.method == "HEAD" and f"/{P}/" in request.path]
    assert sorted(path.rpartition("/")[2] for path in looks) == [ARCHIVE, BROUGHT]


@pytest.mark.slow
def test_three_hundred_archives_go_between_two_buckets(cloud: Cloud, tmp_path: Path) -> None:
    names = [f"part{number:03}_lib_generic.tar.zst" for number in range(300)]
    for name in names:
        cloud.put(f"{P}/{name}", name, OTHER)
        cloud.put(f"{P}/{name}.sha256sum", f"{digest(name)}  {name}\n", OTHER)
    report = copy(tmp_path, source_bucket=OTHER)
    assert report.error is None, report.error
    assert json.loads(report.outputs["artifacts"]) == [name.removesuffix(".tar.zst") for name in names]
    copied = {key: etag for key, etag in cloud.etags().items() if "/reports/" not in key}
    assert copied == {key.replace(P, "300-linux"): etag for key, etag in cloud.etags(OTHER).items()}
    assert len(report.result.stored) == 600
    verified = verify(tmp_path, run_id="300")
    assert (verified.error, verified.outputs["same_count"]) == (None, "600")


def test_a_run_may_be_copied_to_the_same_run_of_another_bucket(cloud: Cloud, workspace: Path) -> None:
    report = copy(workspace, run_id="100", source_run_id="100", bucket=OTHER, source_bucket=BUCKET)
    assert report.error is None, report.error
    assert set(cloud.run_files(P, OTHER)) == FILES


@pytest.mark.parametrize("source_bucket", [BUCKET, OTHER])
def test_an_archive_above_the_limit_of_one_request_is_copied_in_parts(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source_bucket: str
) -> None:
    monkeypatch.setattr("_therock_utils._s3_copy.COPY_LIMIT_BYTES", 9 * MIB)
    data = os.urandom(10 * MIB)
    cloud.client.put_object(
        Bucket=source_bucket, Key=f"{P}/{ARCHIVE}", Body=data, ContentType="application/zstd", Metadata={"a": "b"}
    )
    cloud.put(f"{P}/{ARCHIVE}.sha256sum", f"{digest(data)}  {ARCHIVE}\n", source_bucket)
    with fault_proxy(cloud.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
        report = copy(tmp_path, source_bucket=source_bucket)
        parts = proxy.count(lambda request: request.is_part)
    assert report.error is None, report.error
    assert parts == 2
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", cloud.url)
    head = cloud.client.head_object(Bucket=BUCKET, Key=f"300-linux/{ARCHIVE}")
    assert (head["ContentType"], head["Metadata"]) == ("application/zstd", {"a": "b"})
    assert verify(tmp_path, run_id="300", check="read").outputs["same_count"] == "2"


def test_denied_writes_are_one_error_and_nothing_is_copied(
    cloud: Cloud, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fault_proxy(cloud.url) as proxy:
        proxy.rule = lambda request: s3_error(403, "AccessDenied") if request.is_write else None
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
        report = copy(workspace)
    assert isinstance(report.error, NotPermittedError)
    assert report.outputs["artifacts"] == "[]"
    assert cloud.run_files("300-linux") == {}


def test_an_archive_that_vanishes_costs_only_itself(
    cloud: Cloud, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fault_proxy(cloud.url) as proxy:
        proxy.rule = lambda request: (
            s3_error(404, "NoSuchKey") if request.is_write and request.path.endswith(BROUGHT) else None
        )
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
        report = copy(workspace)
    assert report.exit_code == 3
    assert [item.location.name for item in report.result.failed] == [BROUGHT]
    assert [item.path for item in report.result.failed] == [BROUGHT]
    assert report.outputs["artifacts"] == json.dumps(NAMES[:1])
    assert set(cloud.run_files("300-linux")) == {ARCHIVE, f"{ARCHIVE}.sha256sum"}


def test_a_source_or_destination_that_may_not_be_listed_is_an_error_before_anything_is_copied(
    cloud: Cloud, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fault_proxy(cloud.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
        for run_id in ("100", "300"):
            proxy.rule = lambda request, run_id=run_id: (
                s3_error(403, "AccessDenied")
                if request.is_listing and run_id in request.query.get("prefix", "")
                else None
            )
            with pytest.raises(NotPermittedError):
                copy(workspace)
        assert proxy.count(lambda request: request.is_write) == 0


def test_a_source_in_another_bucket_is_found_and_said(cloud: Cloud, workspace: Path) -> None:
    cloud.put(f"500-linux/{ARCHIVE}", "x", OTHER)
    with pytest.raises(NotFoundError) as caught:
        copy(workspace, source_run_id="500")
    assert caught.value.why == f"found in s3://{OTHER}/500-linux"
    assert caught.value.remedy == "Set source_release_type: nightly."


def test_an_object_that_may_not_be_looked_at_is_a_failure_of_its_own(
    cloud: Cloud, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fault_proxy(cloud.url) as proxy:
        proxy.rule = lambda request: (
            s3_error(403, "AccessDenied")
            if request.method in {"GET", "HEAD"} and request.path.endswith("/gfx1151/a.log")
            else None
        )
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.url)
        report = verify(workspace)
    assert report.exit_code == 4
    assert [item.path for item in report.result.failed] == ["logs/math-libs/gfx1151/a.log"]
    assert set(states(report).values()) == {"="}


def test_both_modes_work_as_steps(cloud: Cloud, workspace: Path, tmp_path: Path) -> None:
    runner = FakeRunner(root=tmp_path / "job")
    environment: Mapping[str, str] = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": "made-up",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL_S3": cloud.url,
    }
    inputs = {"mode": "copy-artifacts", "source_run_id": "100", "families": "gfx115X-all", "lookup": "false"}
    copied = runner.run(inputs, env=environment)
    assert copied.succeeded, copied.log
    assert json.loads(copied.outputs["artifacts"]) == NAMES
    verified = runner.run({"mode": "verify"}, env=environment)
    assert verified.succeeded, verified.log
    assert (verified.outputs["verified"], verified.outputs["same_count"]) == ("true", "4")
