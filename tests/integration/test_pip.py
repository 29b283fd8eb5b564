"""pip itself, with what upload-python stored: from a staging folder behind a web server, and straight from S3."""

from __future__ import annotations

import concurrent.futures
import functools
import http.server
import json
import os
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakes.ministack_server import ministack_server
from fakes.moto_server import moto_server
from fakes.runner import FakeRunner
from fakes.s3_environment import ACCESS_KEY_ID
from fakes.s3_fault_proxy import fault_proxy, s3_error
from fakes.wheels import make_sdist, make_wheel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3.client import S3Client

pytestmark = pytest.mark.slow

BUCKET = "some-bucket"
P = "15948739823-linux"
GROUP = "gfx94X-dcgpu"
FAMILIES = ("gfx1151", "gfx94X-dcgpu")
STAGED = {"mode": "upload-python", "path": "packages", "staging_dir": "out", "bucket": BUCKET}


@dataclass(frozen=True)
class PipResult:
    exit_code: int
    output: str
    installed: dict[str, str]

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0


def pip(target: Path, *arguments: str) -> PipResult:
    """`pip install --target` with no network but 127.0.0.1, and nothing of this machine's settings."""
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(target.parent),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    options = ["--no-cache-dir", "--no-build-isolation", "--retries=0", "--timeout=20", f"--target={target}"]
    done = subprocess.run(
        [sys.executable, "-I", "-m", "pip", "install", *options, *arguments],
        env=environment,
        cwd=target.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    )
    found = sorted(target.glob("*.dist-info")) if target.exists() else []
    return PipResult(
        done.returncode, done.stdout, dict(entry.name.removesuffix(".dist-info").split("-", 1) for entry in found)
    )


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """A web server of `folder` on 127.0.0.1: its URL, and the paths asked for."""
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - as http.server's
            asked.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


def on_server(url: str, server: str) -> str:
    """The URL of an output, on the test's server of the same bucket."""
    return url.replace(f"https://{BUCKET}.s3.amazonaws.com", server)


@pytest.fixture
def job(tmp_path: Path) -> FakeRunner:
    return FakeRunner(root=tmp_path / "job")


def write_packages(folder: Path) -> None:
    """An sdist that needs a wheel, which needs another one whose version has a `+`."""
    make_sdist(folder, "rocm", "7.10.0", requires=("rocm-sdk-core",), extras=("libraries", "devel"))
    make_wheel(folder, "rocm-sdk-core", "7.10.0", requires=("torch==2.10.0+rocm7.10.0",), requires_python=">=3.8")
    make_wheel(folder, "rocm-sdk-core", "99", requires_python=">=99")  # a Python that nobody has
    make_wheel(folder, "torch", "2.10.0+rocm7.10.0")


INSTALLED = {"rocm": "7.10.0", "rocm_sdk_core": "7.10.0", "torch": "2.10.0+rocm7.10.0"}


@pytest.mark.parametrize("inputs", [{"artifact_group": GROUP}, {}], ids=["of a group", "multi-arch"])
@pytest.mark.parametrize("how", ["--find-links", "--index-url"])
def test_pip_installs_from_a_staged_repository(
    job: FakeRunner, tmp_path: Path, inputs: dict[str, str], how: str
) -> None:
    write_packages(job.workspace / "packages")
    result = job.run(STAGED | inputs)
    assert result.succeeded, result.log
    with served(job.workspace / "out") as (url, asked):
        if how == "--find-links":
            arguments = ["--no-index", how, on_server(result.outputs["package_find_links_url"], url)]
        else:
            arguments = [how, on_server(result.outputs["index_url"], url)]
        done = pip(tmp_path / "target", *arguments, "rocm[devel]")
    assert done.succeeded, done.output
    assert done.installed == INSTALLED
    assert any(path.endswith("rocm_sdk_core-7.10.0-py3-none-any.whl.metadata") for path in asked)  # PEP 658
    assert not any("99" in path.rpartition("/")[2] for path in asked)  # Requires-Python is on the page


def test_the_command_of_the_summary_installs_from_the_staged_folder(job: FakeRunner, tmp_path: Path) -> None:
    write_packages(job.workspace / "packages")
    summary = job.run(STAGED).summary
    lines = summary.partition("```sh\n")[2].partition("```")[0].replace("\\\n", "").split()
    assert lines[:4] == ["python", "-m", "pip", "install"]
    arguments = [word.strip("'") for word in lines[4:]]
    at = arguments.index("--find-links") + 1
    arguments[at] = str(job.workspace / arguments[at])
    done = pip(tmp_path / "target", "--no-index", *arguments)
    assert done.succeeded, done.output
    assert done.installed == INSTALLED


@pytest.mark.parametrize("how", ["--find-links", "--index-url"])
def test_each_family_installs_its_own_packages_and_the_generic_ones(job: FakeRunner, tmp_path: Path, how: str) -> None:
    packages = job.workspace / "packages"
    make_wheel(packages, "rocm-sdk-core", "7.10.0")
    for number, family in enumerate(FAMILIES):
        make_wheel(packages / family, "rocm-sdk-libraries", f"7.10.{number}", requires=("rocm-sdk-core",))
    result = job.run(STAGED)
    assert result.succeeded, result.log
    assert result.outputs["kpack_split"] == "false"
    with served(job.workspace / "out") as (url, _):
        for number, family in enumerate(FAMILIES):
            if how == "--find-links":
                base = on_server(result.outputs["package_find_links_url"], url)
                arguments = ["--no-index", how, f"{base}/{family}/index.html"]
            else:
                arguments = [how, f"{on_server(result.outputs['index_url'], url)}/{family}/simple/"]
            done = pip(tmp_path / family, *arguments, "rocm-sdk-libraries")
            assert done.succeeded, done.output
            assert done.installed == {"rocm_sdk_core": "7.10.0", "rocm_sdk_libraries": f"7.10.{number}"}


@pytest.mark.parametrize("how", ["--find-links", "--index-url"])
def test_pip_refuses_a_wheel_whose_bytes_are_not_those_that_were_stored(
    job: FakeRunner, tmp_path: Path, how: str
) -> None:
    make_wheel(job.workspace / "packages", "torch", "2.10.0")
    result = job.run(STAGED)
    stored = job.workspace / "out" / P / "python" / "torch-2.10.0-py3-none-any.whl"
    stored.write_bytes(make_wheel(tmp_path / "other", "torch", "2.10.0", requires_python=">=3").read_bytes())
    with served(job.workspace / "out") as (url, _):
        arguments = (
            ["--no-index", how, on_server(result.outputs["package_find_links_url"], url)]
            if how == "--find-links"
            else [how, on_server(result.outputs["index_url"], url)]
        )
        done = pip(tmp_path / "target", *arguments, "torch")
    assert not done.succeeded
    assert "DO NOT MATCH THE HASHES" in done.output
    assert done.installed == {}


# Straight from S3


@dataclass(frozen=True)
class Cloud:
    """A public bucket on a server of 127.0.0.1."""

    url: str
    client: S3Client

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": "made-up",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL_S3": self.url,
        }

    def get(self, key: str) -> bytes:
        return self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def project_names(self, folder: str) -> list[str]:
        return [item["name"] for item in json.loads(self.get(f"{folder}/simple/index.v1_json"))["projects"]]


@contextmanager
def cloud_at(url: str) -> Iterator[Cloud]:
    import boto3
    from botocore.config import Config

    session = boto3.session.Session(aws_access_key_id=ACCESS_KEY_ID, aws_secret_access_key="made-up")
    with closing(session.client("s3", endpoint_url=url, region_name="us-east-1", config=Config(proxies={}))) as client:
        yield Cloud(url, client)


@pytest.fixture(scope="module", params=["moto", pytest.param("ministack", marks=[pytest.mark.needs("ministack")])])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    if request.param == "moto":
        with moto_server() as url, cloud_at(url) as cloud:
            yield cloud
        return
    program = Path(os.environ["THEROCK_OUTPUTS_MINISTACK"])
    with ministack_server(program, tmp_path_factory.mktemp("ministack")) as url, cloud_at(url) as cloud:
        yield cloud


@pytest.fixture
def cloud(server: Cloud) -> Iterator[Cloud]:
    server.client.create_bucket(Bucket=BUCKET)
    statement = {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{BUCKET}/*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    server.client.put_bucket_policy(Bucket=BUCKET, Policy=policy)
    yield server
    pages = server.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    for key in [entry["Key"] for page in pages for entry in page.get("Contents", [])]:
        server.client.delete_object(Bucket=BUCKET, Key=key)
    server.client.delete_bucket(Bucket=BUCKET)


IN_S3 = {"mode": "upload-python", "path": "packages", "bucket": BUCKET, "lookup": "false"}


@pytest.mark.parametrize("how", ["--find-links", "--index-url"])
def test_pip_installs_straight_from_s3(job: FakeRunner, tmp_path: Path, cloud: Cloud, how: str) -> None:
    write_packages(job.workspace / "packages")
    result = job.run(IN_S3 | {"artifact_group": GROUP}, env=cloud.environment())
    assert result.succeeded, result.log
    address = f"{cloud.url}/{BUCKET}"
    if how == "--find-links":
        arguments = ["--no-index", how, on_server(result.outputs["package_find_links_url"], address)]
    else:
        arguments = [how, on_server(result.outputs["index_url"], address)]
    done = pip(tmp_path / "target", *arguments, "rocm[libraries]")
    assert done.succeeded, done.output
    assert done.installed == INSTALLED


@pytest.mark.timeout(300)
def test_jobs_that_append_at_once_are_all_on_every_page(tmp_path: Path, cloud: Cloud) -> None:
    names = ("torch", "torchaudio", "torchvision", "apex")
    runners = [FakeRunner(root=tmp_path / name) for name in names]
    for runner, name in zip(runners, names, strict=True):
        make_wheel(runner.workspace / "packages", name, "1.0")
        make_wheel(runner.workspace / "packages", "shared", "1.0", tag=f"py3-none-linux_{name}")
    with concurrent.futures.ThreadPoolExecutor(len(runners)) as pool:
        done = list(pool.map(lambda runner: runner.run(IN_S3, env=cloud.environment()), runners))
    assert all(result.succeeded for result in done), [result.log for result in done]
    folder = f"{P}/python"
    assert cloud.project_names(folder) == sorted((*names, "shared"))
    shared = cloud.get(f"{folder}/simple/shared/index.html")
    assert all(f"py3-none-linux_{name}.whl#sha256=".encode() in shared for name in names)
    page = cloud.get(f"{folder}/index.html")
    assert page.count(b"#sha256=") == 2 * len(names)
    for project in (*names, "shared"):
        at_slash = cloud.get(f"{folder}/simple/{project}/")
        assert at_slash == cloud.get(f"{folder}/simple/{project}/index.html")
    assert cloud.get(f"{folder}/simple/") == cloud.get(f"{folder}/simple/index.html")


@pytest.mark.timeout(300)
def test_a_generic_package_is_on_the_pages_of_families_that_are_stored_at_the_same_time(
    tmp_path: Path, cloud: Cloud
) -> None:
    generic, family = (FakeRunner(root=tmp_path / name) for name in ("generic", "family"))
    make_wheel(generic.workspace / "packages", "rocm-sdk-core", "7.10.0")
    make_wheel(family.workspace / "packages" / "gfx1151", "rocm-sdk-libraries", "7.10.0", requires=("rocm-sdk-core",))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda runner: runner.run(IN_S3, env=cloud.environment()), (generic, family)))
    assert all(result.succeeded for result in done), [result.log for result in done]
    index = f"{cloud.url}/{BUCKET}/{P}/python/gfx1151/simple/"
    installed = pip(tmp_path / "target", "--index-url", index, "rocm-sdk-libraries")
    assert installed.installed == {"rocm_sdk_core": "7.10.0", "rocm_sdk_libraries": "7.10.0"}, installed.output
    assert b'"../rocm_sdk_core-7.10.0' in cloud.get(f"{P}/python/gfx1151/index.html")


def test_a_job_that_may_only_store_takes_nothing_from_the_pages_of_others_and_fails(
    tmp_path: Path, cloud: Cloud
) -> None:
    folder = f"{P}/python"
    pages = [
        f"{folder}/simple/{at}" for at in ("", "torch/", "torch/index.html", "torch/index.v1_json", "index.v1_json")
    ]
    runners = {name: FakeRunner(root=tmp_path / name) for name in ("first", "second", "third")}
    for number, runner in enumerate(runners.values()):
        make_wheel(runner.workspace / "packages", "torch", f"{number}.0")
        make_wheel(runner.workspace / "packages", f"other{number}", "1.0")
    assert runners["first"].run(IN_S3, env=cloud.environment()).succeeded
    before = [cloud.get(key) for key in pages]
    with fault_proxy(cloud.url) as proxy:
        proxy.rule = lambda request: None if request.is_write else s3_error(403, "AccessDenied")
        result = runners["second"].run(IN_S3, env=cloud.environment() | {"AWS_ENDPOINT_URL_S3": proxy.url})
    assert result.exit_code == 4, result.log
    assert "does not name the packages of this run" in result.log
    assert "pip install" not in result.summary
    assert [cloud.get(key) for key in pages] == before
    assert runners["third"].run(IN_S3, env=cloud.environment()).succeeded
    assert cloud.project_names(folder) == ["other0", "other1", "other2", "torch"]
    at_slash = cloud.get(f"{folder}/simple/torch/")
    assert all(f"torch-{number}.0-py3-none-any.whl".encode() in at_slash for number in range(3))


def test_pip_installs_what_a_job_laid_over_a_package_before_it_was_killed(tmp_path: Path, cloud: Cloud) -> None:
    first, other = (FakeRunner(root=tmp_path / name) for name in ("first", "other"))
    wheel = make_wheel(first.workspace / "packages", "torch", "1.0")
    make_wheel(other.workspace / "packages", "apex", "1.0")
    assert first.run(IN_S3, env=cloud.environment()).succeeded
    changed = wheel.read_bytes().replace(b"torch.py", b"TORCH.py")  # a member of another name, and the same size
    cloud.client.put_object(Bucket=BUCKET, Key=f"{P}/python/{wheel.name}", Body=changed)
    result = other.run(IN_S3, env=cloud.environment())
    assert result.succeeded, result.log
    index = on_server(result.outputs["index_url"], f"{cloud.url}/{BUCKET}")
    done = pip(tmp_path / "target", "--index-url", index, "torch", "apex")
    assert done.succeeded, done.output
    assert (tmp_path / "target" / "TORCH.py").exists()


@pytest.mark.parametrize("how", ["--find-links", "--index-url"])
def test_what_one_family_gives_can_be_given_to_pip_as_it_is(job: FakeRunner, tmp_path: Path, how: str) -> None:
    write_packages(job.workspace / "packages")
    result = job.run(STAGED | {"family": "gfx1151"})
    assert result.succeeded, result.log
    output = "index_url" if how == "--index-url" else "package_find_links_url"
    with served(job.workspace / "out") as (url, _):
        arguments = [how, on_server(result.outputs[output], url)]
        done = pip(tmp_path / "target", *arguments, *(["--no-index"] if how == "--find-links" else []), "rocm")
    assert done.succeeded, done.output
    assert done.installed == INSTALLED


def test_a_program_that_speaks_json_finds_the_same_files(job: FakeRunner) -> None:
    write_packages(job.workspace / "packages")
    job.run(STAGED)
    simple = job.workspace / "out" / P / "python" / "simple"
    listed = json.loads((simple / "rocm-sdk-core" / "index.v1_json").read_text())
    assert listed["versions"] == ["7.10.0", "99"]
    for file in listed["files"]:
        assert (simple / "rocm-sdk-core" / file["url"]).resolve() == simple.parent / file["filename"]
