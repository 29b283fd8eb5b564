"""A job that is killed between a package and the metadata that are to name it: whoever comes next completes them."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import createrepo_c
import pytest

from fakes.deb_packages import control_text, deb_of, offered_packages
from fakes.moto_server import moto_server
from fakes.rpm_packages import build_rpm
from fakes.runner import FakeRunner
from fakes.s3_environment import ACCESS_KEY_ID
from fakes.s3_fault_proxy import HoldUp, Stall, fault_proxy
from fakes.trees import write_tree

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mypy_boto3_s3.client import S3Client

    from fakes.s3_fault_proxy import Fault, FaultProxy, Request

P = "15948739823-linux"
ROOTS = {"deb": f"{P}/packages/deb", "rpm": f"{P}/packages/rpm/x86_64"}
RPM = pytest.param("rpm", "before the metadata", marks=pytest.mark.needs("rpmbuild"))
_numbers = itertools.count()


class Cloud:
    """A server, and the proxy through which jobs reach it."""

    def __init__(self, proxy: FaultProxy, client: S3Client, folder: Path) -> None:
        self.folder = folder
        self.proxy = proxy
        self.client = client
        self.bucket = f"crash-{os.getpid()}-{next(_numbers)}"
        client.create_bucket(Bucket=self.bucket)

    def contents(self) -> dict[str, bytes]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return {key: self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read() for key in keys}

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": "made-up",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL_S3": self.proxy.url,
        }


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    import boto3
    from botocore.config import Config

    with moto_server() as url, fault_proxy(url) as proxy:
        session = boto3.session.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
        with closing(session.client("s3", endpoint_url=url, config=Config(proxies={}))) as client:
            yield Cloud(proxy, client, tmp_path)


@pytest.fixture
def job(tmp_path: Path, cloud: Cloud) -> Callable[..., FakeRunner]:
    def make(name: str, kind: str, *packages: str) -> FakeRunner:
        runner = FakeRunner(root=tmp_path / name)
        folder = runner.workspace / "packages"
        for package in packages:
            if kind == "rpm":
                folder.mkdir(parents=True, exist_ok=True)
                build_rpm(folder, package)
            else:
                write_tree(folder, {f"{package}_1.0_amd64.deb": deb_of(control_text(package, "1.0"))})
        return runner

    return make


def inputs(cloud: Cloud, kind: str) -> dict[str, str]:
    return {
        "mode": "upload-packages",
        "package_type": kind,
        "path": "packages",
        "bucket": cloud.bucket,
        "index": "none",
    }


def offered(cloud: Cloud, kind: str, folder: Path) -> set[str]:
    files = cloud.contents()
    if kind == "deb":
        return {name for name, _ in offered_packages(files, ROOTS["deb"])}
    start = f"{ROOTS['rpm']}/"
    write_tree(folder, {key.removeprefix(start): data for key, data in files.items() if key.startswith(start)})
    packages = list(createrepo_c.RepositoryReader.from_path(str(folder)).iter_packages())
    assert all(start + package.location_href in files for package in packages)
    return {package.name for package in packages}


def is_metadata(request: Request) -> bool:
    return request.is_write and ("/dists/" in request.path or "/repodata/" in request.path)


def is_commit(request: Request) -> bool:
    return request.is_write and request.path.endswith(("/dists/stable/Release", "/repodata/repomd.xml"))


def is_plain_copy(request: Request) -> bool:
    return request.is_write and request.path.endswith(("/Packages", "/Packages.gz"))


def kill_at(cloud: Cloud, stage: Callable[[Request], bool]) -> Callable[[subprocess.Popen[bytes], Path], None]:
    """Let the first request of `stage` wait for an answer for ever, and kill the process meanwhile."""

    def rule(request: Request) -> Fault:
        return Stall() if stage(request) else None

    cloud.proxy.rule = rule
    before = cloud.proxy.count(stage)

    def kill(process: subprocess.Popen[bytes], _stdout: Path) -> None:
        while cloud.proxy.count(stage) == before:
            assert process.poll() is None, "it ended before it came to its metadata"
            cloud.proxy.ended.wait(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        cloud.proxy.rule = lambda _: None

    return kill


STAGES = {"before the metadata": is_metadata, "before the commit": is_commit}


@pytest.mark.parametrize("next_job", ["a re-run", "another job"])
@pytest.mark.parametrize(("kind", "stage"), [("deb", "before the metadata"), ("deb", "before the commit"), RPM])
def test_a_job_killed_between_packages_and_metadata_loses_nothing(
    cloud: Cloud, job: Callable[..., FakeRunner], kind: str, stage: str, next_job: str
) -> None:
    folder = cloud.folder
    assert job("first", kind, "rocm-first").run(inputs(cloud, kind), env=cloud.environment()).succeeded
    killed = job("killed", kind, "rocm-a", "rocm-b")
    result = killed.run(inputs(cloud, kind), env=cloud.environment(), while_running=kill_at(cloud, STAGES[stage]))
    assert result.exit_code == -signal.SIGKILL
    assert offered(cloud, kind, folder / "between") == {"rocm-first"}
    runner, expected = killed, {"rocm-first", "rocm-a", "rocm-b"}
    if next_job == "another job":
        runner, expected = job("other", kind, "rocm-c"), expected | {"rocm-c"}
    completed = runner.run(inputs(cloud, kind), env=cloud.environment())
    assert completed.succeeded, completed.log
    assert offered(cloud, kind, folder / "after") == expected


def test_a_job_killed_between_the_commit_and_the_copies_under_fixed_names_is_completed_by_a_rerun(
    cloud: Cloud, job: Callable[..., FakeRunner], tmp_path: Path
) -> None:
    assert job("first", "deb", "rocm-first").run(inputs(cloud, "deb"), env=cloud.environment()).succeeded
    runner = job("killed", "deb", "rocm-a")
    runner.run(inputs(cloud, "deb"), env=cloud.environment(), while_running=kill_at(cloud, is_plain_copy))
    with pytest.raises(AssertionError, match="is another one than Release says"):
        offered(cloud, "deb", tmp_path)
    assert runner.run(inputs(cloud, "deb"), env=cloud.environment()).succeeded
    assert offered(cloud, "deb", tmp_path) == {"rocm-first", "rocm-a"}


def is_package(request: Request) -> bool:
    return request.is_write and "/pool/main/" in request.path


def is_commit_read(request: Request) -> bool:
    return request.method == "GET" and request.path.endswith("/dists/stable/Release")


@pytest.mark.parametrize("on_conflict", ["overwrite", "skip", "error"])
def test_two_builds_of_one_package_of_which_the_slow_one_is_killed_leave_no_wrong_digest(
    cloud: Cloud, job: Callable[..., FakeRunner], on_conflict: str
) -> None:
    """The slow job's file is sent before, and arrives after, the other job published; its size is the same."""
    slow, quick = job("slow", "deb"), job("quick", "deb")
    name, builds = "shared_1.0_amd64.deb", {}
    for runner, content in ((slow, "a"), (quick, "b")):
        control = control_text("shared", "1.0", extra=f"Content: {content}\n")
        builds[content] = deb_of(control, compression="")
        write_tree(runner.workspace / "packages", {name: builds[content]})
    assert len(builds["a"]) == len(builds["b"])
    may_arrive = threading.Event()
    others: list[int] = []

    def rule(request: Request) -> Fault:
        if is_package(request) and cloud.proxy.count(is_package) == 1:
            return HoldUp(may_arrive)
        return Stall() if may_arrive.is_set() and is_commit_read(request) else None

    def meanwhile(process: subprocess.Popen[bytes], _stdout: Path) -> None:
        wait_for(process, lambda: cloud.proxy.count(is_package) == 1)
        result = quick.run({**inputs(cloud, "deb"), "on_conflict": on_conflict}, env=cloud.environment())
        others.append(result.exit_code)
        before = cloud.proxy.count(is_commit_read)
        may_arrive.set()
        wait_for(process, lambda: cloud.proxy.count(is_commit_read) > before)
        process.send_signal(signal.SIGKILL)
        process.wait(30)

    def wait_for(process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> None:
        while not condition():
            assert process.poll() is None, "it ended before it came so far"
            cloud.proxy.ended.wait(0.02)

    cloud.proxy.rule = rule
    killed = slow.run(
        {**inputs(cloud, "deb"), "on_conflict": "error"}, env=cloud.environment(), while_running=meanwhile
    )
    cloud.proxy.rule = lambda _: None
    assert (killed.exit_code, others) == (-signal.SIGKILL, [0])
    assert job("next", "deb", "third").run(inputs(cloud, "deb"), env=cloud.environment()).succeeded
    files = cloud.contents()
    found = offered_packages(files, ROOTS["deb"])
    assert {package for package, _ in found} == {"shared", "third"}
    offered_build = files[f"{ROOTS['deb']}/pool/main/{found['shared', '1.0']}"]
    assert offered_build == builds["b"]
    assert files[f"{ROOTS['deb']}/pool/main/{name}"] == builds["a"]
