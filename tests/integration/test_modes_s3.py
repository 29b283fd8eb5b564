"""Both upload modes against an S3 server, on a build tree of a real build: the same tree as in a staging folder."""

from __future__ import annotations

import concurrent.futures
import io
import json
import os
import shutil
import tarfile
from contextlib import closing
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from fakes import markdown
from fakes.build_tree import make_build_tree
from fakes.moto_server import moto_server
from fakes.runner import FakeRunner, image_launcher
from fakes.s3_environment import ACCESS_KEY_ID
from fakes.s3_fault_proxy import fault_proxy, s3_error
from fakes.trees import digest, read_tree, write_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from mypy_boto3_s3.client import S3Client

    from fakes.runner import StepResult

pytestmark = pytest.mark.needs("cc", "cmake", "ninja")

BUCKET = "therock-ci-artifacts"
GROUP = "gfx94X-dcgpu"
P = "15948739823-linux"
BUILD = {"mode": "upload-build", "artifact_group": GROUP}
STAGE = {"mode": "upload-stage", "stage": "compiler-runtime", "index": "write"}
FAMILY_STAGE = {"mode": "upload-stage", "stage": "math-libs", "family": "gfx1151", "index": "write"}
MODES = [pytest.param(BUILD, id="build"), pytest.param(STAGE, id="stage"), pytest.param(FAMILY_STAGE, id="family")]


@dataclass(frozen=True)
class Cloud:
    """The inventory's bucket on a server of this process, empty at first."""

    url: str
    client: S3Client

    def environment(self, **changes: str) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": "made-up",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL_S3": self.url,
        } | changes

    def object_keys(self) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def contents(self) -> dict[str, bytes]:
        """Every object but the records, by key."""
        return {
            key: self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
            for key in self.object_keys()
            if not key.startswith(f"{P}/reports/")
        }

    def head(self, key: str) -> Mapping[str, object]:
        return dict(self.client.head_object(Bucket=BUCKET, Key=key))


@pytest.fixture(scope="module")
def server() -> Iterator[Cloud]:
    import boto3

    with moto_server() as url:
        session = boto3.session.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-2")
        with closing(session.client("s3", endpoint_url=url)) as client:
            yield Cloud(url, client)


@pytest.fixture
def cloud(server: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    server.client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
    yield server
    for key in server.object_keys():
        server.client.delete_object(Bucket=BUCKET, Key=key)
    server.client.delete_bucket(Bucket=BUCKET)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = make_build_tree(tmp_path_factory.mktemp("built") / "build", units=2)
    for folder in sorted((tree / "artifacts").iterdir()):
        with tarfile.open(f"{folder}.tar.xz", "w:xz", preset=0) as archive:
            archive.add(folder, arcname="")
    write_tree(tree / "logs", {"odd + names/100%#?.log": "x", "::error::x.log": "x", "empty.log": ""})
    return tree


@pytest.fixture
def runner(tmp_path: Path, built: Path) -> FakeRunner:
    runner = FakeRunner(root=tmp_path / "job")
    shutil.copytree(built, runner.workspace / "build", symlinks=True)
    return runner


def run(runner: FakeRunner, cloud: Cloud, inputs: dict[str, str], **changes: str) -> StepResult:
    return runner.run(inputs, env=cloud.environment(**changes))


def key_of(url: str) -> str:
    assert urlsplit(url).netloc == f"{BUCKET}.s3.amazonaws.com"
    return unquote(urlsplit(url).path.removeprefix("/"))


@pytest.mark.parametrize("inputs", MODES)
def test_s3_and_a_staging_folder_hold_the_same_keys_and_bytes(
    runner: FakeRunner, cloud: Cloud, inputs: dict[str, str]
) -> None:
    uploaded, staged = run(runner, cloud, inputs), runner.run({**inputs, "staging_dir": "out"})
    assert uploaded.succeeded, uploaded.log
    assert staged.succeeded, staged.log
    tree = read_tree(runner.workspace / "out")
    assert cloud.contents() == {key: data for key, data in tree.items() if not key.startswith(f"{P}/reports/")}
    assert len(cloud.contents()) > 12
    unlike = {"report"}
    assert {k: v for k, v in uploaded.outputs.items() if k not in unlike} == {
        k: v for k, v in staged.outputs.items() if k not in unlike
    }


@pytest.mark.parametrize("inputs", MODES)
def test_every_link_of_outputs_and_summary_leads_to_an_object(
    runner: FakeRunner, cloud: Cloud, inputs: dict[str, str]
) -> None:
    result = run(runner, cloud, inputs)
    urls = {value for name, value in result.outputs.items() if name.endswith("url") and value}
    urls |= set(markdown.links(result.summary))
    assert len(urls) >= 2 or inputs is not BUILD
    keys = set(cloud.object_keys())
    assert {key_of(url) for url in urls} <= keys


def test_the_page_of_a_stage_is_written_where_the_endpoint_is_not_that_of_the_server_that_makes_pages(
    runner: FakeRunner, cloud: Cloud
) -> None:
    result = run(runner, cloud, {**STAGE, "index": "auto"})
    assert key_of(result.outputs["log_url"]) in cloud.object_keys()


def test_jobs_of_one_group_share_its_pages_also_when_they_run_at_once(runner: FakeRunner, cloud: Cloud) -> None:
    jobs = ["a", "b", "c"]
    runners = [FakeRunner(root=runner.root / job) for job in jobs]
    for job, its_runner in zip(jobs, runners, strict=True):
        files = {f"logs/{job}.log": job, f"artifacts/{job}_lib_generic.tar.xz": job}
        write_tree(its_runner.workspace / "build", files)
    inputs = {**BUILD, "if_no_files_found": "ignore"}
    with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
        results = list(pool.map(lambda job, it: run(it, cloud, inputs, GITHUB_JOB=job), jobs, runners))
    assert [result.exit_code for result in results] == [0] * len(jobs), [result.log for result in results]
    contents = cloud.contents()
    logs = Links(contents[f"{P}/logs/{GROUP}/index.html"]).targets
    artifacts = Links(contents[f"{P}/index-{GROUP}.html"]).targets
    assert logs == [f"./{job}.log" for job in jobs]
    assert artifacts == [f"./{job}_lib_generic.tar.xz{end}" for job in jobs for end in ("", ".sha256sum")]


class Links(HTMLParser):
    """The targets of a page's links."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.targets += [value or "" for name, value in attrs if tag == "a" and name == "href"]


@pytest.mark.parametrize(("inputs", "pages"), [(BUILD, 2), (FAMILY_STAGE, 1)], ids=["build", "family"])
def test_every_link_of_a_page_leads_to_an_object_and_every_file_is_linked(
    runner: FakeRunner, cloud: Cloud, inputs: dict[str, str], pages: int
) -> None:
    run(runner, cloud, inputs)
    contents = cloud.contents()
    written = [key for key in contents if key.endswith(".html") and b'content="therock-outputs files"' in contents[key]]
    assert len(written) == pages
    linked = set()
    for page in written:
        base = f"https://{BUCKET}.s3.amazonaws.com/{page}"
        linked |= {key_of(urljoin(base, target)) for target in Links(contents[page]).targets}
    manifest = {f"{P}/manifests/{GROUP}/therock_manifest.json"}
    assert linked == set(contents) - set(written) - manifest


def test_objects_have_the_types_that_browsers_show_and_name_their_writer(runner: FakeRunner, cloud: Cloud) -> None:
    assert run(runner, cloud, BUILD).succeeded
    types = {key: cloud.head(key)["ContentType"] for key in cloud.object_keys()}
    logs = f"{P}/logs/{GROUP}"
    assert types[f"{logs}/rocBLAS_build.log"] == "text/plain; charset=utf-8"
    assert types[f"{logs}/index.html"] == "text/html; charset=utf-8"
    assert types[f"{logs}/ninja_logs.tar.gz"] == "application/gzip"
    assert types[f"{P}/manifests/{GROUP}/therock_manifest.json"] == "application/json"
    assert types[f"{P}/blas_lib_gfx1151.tar.xz"] == "application/x-xz"
    assert types[f"{P}/blas_lib_gfx1151.tar.xz.sha256sum"].startswith("text/plain")  # type: ignore[attr-defined]  # a string
    assert cloud.head(f"{logs}/rocBLAS_build.log")["Metadata"] == {"therock-origin": "15948739823/build/1"}
    assert all("ContentEncoding" not in cloud.head(key) for key in types)


def test_a_job_name_that_no_header_can_carry_stores_all_the_same(runner: FakeRunner, cloud: Cloud) -> None:
    result = run(runner, cloud, FAMILY_STAGE, GITHUB_JOB="bäd\njob: x\r\n漢")
    assert result.succeeded, result.log
    assert f"{P}/logs/math-libs/gfx1151/rocBLAS_build.log" in cloud.object_keys()


def test_digests_are_those_of_the_stored_bytes(runner: FakeRunner, cloud: Cloud) -> None:
    result = run(runner, cloud, BUILD)
    document = json.loads((runner.workspace / result.outputs["report"]).read_text(encoding="utf-8"))
    contents = cloud.contents()
    assert {item["key"]: item["sha256"] for item in document["objects"]} == {k: digest(v) for k, v in contents.items()}
    assert {item["verified"] for item in document["objects"]} == {"sha256-single"}
    archives = [key for key in contents if key.endswith(".tar.xz")]
    assert len(archives) == 9
    for key in archives:
        assert contents[f"{key}.sha256sum"].decode() == f"{digest(contents[key])}  {key.rpartition('/')[2]}\n"
        tarfile.open(fileobj=io.BytesIO(contents[key])).close()


@pytest.mark.parametrize("inputs", MODES)
def test_a_second_run_changes_nothing_but_leaves_its_record(
    runner: FakeRunner, cloud: Cloud, inputs: dict[str, str]
) -> None:
    first, before = run(runner, cloud, inputs), cloud.contents()
    for path in (runner.workspace / "build").rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
    second = run(runner, cloud, inputs, GITHUB_RUN_ATTEMPT="2")
    assert second.succeeded, second.log
    assert cloud.contents() == before
    assert second.annotations == ()
    assert second.outputs["total_bytes"] == first.outputs["total_bytes"]
    records = [key for key in cloud.object_keys() if key.startswith(f"{P}/reports/")]
    assert len(records) == 2


def test_a_changed_file_of_the_same_job_is_replaced_without_a_warning_and_of_another_with_one(
    runner: FakeRunner, cloud: Cloud
) -> None:
    log = runner.workspace / "build" / "logs" / "rocBLAS_build.log"
    run(runner, cloud, FAMILY_STAGE)
    log.write_text("second attempt\n")
    again = run(runner, cloud, FAMILY_STAGE, GITHUB_RUN_ATTEMPT="2")
    assert again.messages("warning") == []
    log.write_text("another job\n")
    other = run(runner, cloud, FAMILY_STAGE, GITHUB_JOB="other")
    (message,) = other.messages("warning")
    assert message.endswith("was overwritten: other bytes lay there, written by 15948739823/build/2")
    assert cloud.contents()[f"{P}/logs/math-libs/gfx1151/rocBLAS_build.log"] == b"another job\n"


def is_a_full_account_of_the_failure(result: StepResult, exit_code: int) -> None:
    assert result.exit_code == exit_code, result.log
    (message,) = result.messages("error")
    assert len(message.splitlines()) == 3, "what, why and the remedy"
    assert result.summary.startswith("### ❌ upload-build")
    assert result.summary.count("| **failed: ") == 3
    assert "<details><summary>Not stored: " in result.summary
    assert "rocBLAS_build.log" in result.summary
    assert (result.outputs["file_count"], result.outputs["url"], result.outputs["log_url"]) == ("0", "", "")
    assert "Traceback" not in result.log


def test_without_credentials_the_exit_code_is_4_and_all_is_told(runner: FakeRunner, cloud: Cloud) -> None:
    result = run(runner, cloud, BUILD, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    is_a_full_account_of_the_failure(result, 4)
    assert "credentials" in result.messages("error")[0]
    assert cloud.object_keys() == []


def test_access_denied_is_exit_code_4_and_is_not_tried_for_every_file(runner: FakeRunner, cloud: Cloud) -> None:
    with fault_proxy(cloud.url) as proxy:
        proxy.rule = lambda request: s3_error(403, "AccessDenied") if request.is_write else None
        result = run(runner, cloud, BUILD, AWS_ENDPOINT_URL_S3=proxy.url)
        writes = proxy.count(lambda request: request.is_write)
    is_a_full_account_of_the_failure(result, 4)
    assert writes <= 64
    assert cloud.object_keys() == []


def test_no_such_bucket_is_exit_code_3(runner: FakeRunner, cloud: Cloud) -> None:
    result = run(runner, cloud, {**BUILD, "bucket": "no-such-bucket-of-this-test"})
    is_a_full_account_of_the_failure(result, 3)
    assert "no-such-bucket-of-this-test" in result.messages("error")[0]


def test_without_the_right_to_list_everything_is_stored_and_the_page_shows_this_run(
    runner: FakeRunner, cloud: Cloud
) -> None:
    with fault_proxy(cloud.url) as proxy:
        proxy.rule = lambda request: s3_error(403, "AccessDenied") if request.is_listing else None
        result = run(runner, cloud, BUILD, AWS_ENDPOINT_URL_S3=proxy.url)
    assert result.succeeded, result.log
    assert "rocBLAS_build.log" in cloud.contents()[f"{P}/logs/{GROUP}/index.html"].decode()


def test_a_part_that_is_denied_leaves_the_rest_stored_and_both_sides_told(runner: FakeRunner, cloud: Cloud) -> None:
    with fault_proxy(cloud.url) as proxy:
        proxy.rule = lambda request: (
            s3_error(403, "AccessDenied") if request.is_write and "/manifests/" in request.path else None
        )
        result = run(runner, cloud, BUILD, AWS_ENDPOINT_URL_S3=proxy.url)
    assert result.exit_code == 4, result.log
    assert result.outputs["manifest_url"] == ""
    rows = [line for line in result.summary.splitlines() if line.startswith("| ")]
    assert rows[1].startswith("| Manifest |  |  | **failed: 1 of 1 not stored**")
    contents = cloud.contents()
    (record,) = [key for key in cloud.object_keys() if key.startswith(f"{P}/reports/")]
    document = json.loads(cloud.client.get_object(Bucket=BUCKET, Key=record)["Body"].read())
    assert document["complete"] is False
    assert {item["key"] for item in document["objects"]} == set(contents)
    assert [item["key"] for item in document["failed"]] == [f"{P}/manifests/{GROUP}/therock_manifest.json"]


def test_a_dry_run_writes_nothing(runner: FakeRunner, cloud: Cloud) -> None:
    result = run(runner, cloud, {**BUILD, "dry_run": "true"})
    assert result.succeeded, result.log
    assert cloud.object_keys() == []


@pytest.mark.needs("image")
@pytest.mark.slow
@pytest.mark.parametrize("inputs", [BUILD, STAGE], ids=["build", "stage"])
def test_the_image_stores_what_the_program_stores_and_leaves_nothing_of_its_own(
    runner: FakeRunner, cloud: Cloud, inputs: dict[str, str]
) -> None:
    if os.geteuid() == 0:
        os.chown(runner.workspace, 1234, 1234)
    on_host = run(runner, cloud, inputs)
    stored = cloud.contents()
    runner.launcher = image_launcher(os.environ["THEROCK_OUTPUTS_IMAGE"])
    inside = run(runner, cloud, inputs)
    assert inside.succeeded, inside.log
    assert cloud.contents() == stored
    assert inside.summary == on_host.summary
    assert {**inside.outputs, "report": ""} == {**on_host.outputs, "report": ""}
    report = runner.workspace / inside.outputs["report"]
    assert {file.stat().st_uid for file in (report, report.parent)} == {runner.workspace.stat().st_uid}
    failed = run(runner, cloud, {**inputs, "bucket": "no-such-bucket"})
    assert failed.exit_code == 3, failed.log
    assert "no-such-bucket" in failed.summary
