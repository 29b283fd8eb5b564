"""Two processes that add packages to one repository at once, round after round: nothing is lost, all of it is valid."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import createrepo_c
import pytest

from fakes.deb_packages import control_text, deb_of, offered_packages
from fakes.ministack_server import ministack_server
from fakes.moto_server import moto_server
from fakes.runner import PROJECT
from fakes.s3_environment import ACCESS_KEY_ID
from fakes.trees import digest, write_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mypy_boto3_s3.client import S3Client

pytestmark = [pytest.mark.slow]

ROUNDS = 20
STEP_SECONDS = 0.01
P = "100-linux"
_numbers = itertools.count()

# A job that is told by a line which folder to publish, and answers with its error's kind or "done".
WORKER = """
import dataclasses, pathlib, sys
from _therock_utils.storage_backend import create_storage_backend
from fakes.contexts import make_context
from therock_outputs.mode_names import Mode
from therock_outputs.modes.upload_packages import run

workspace, package_type, bucket = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
print("ready", flush=True)
for line in sys.stdin:
    inputs = {"path": line.strip(), "package_type": package_type, "bucket": bucket}
    context = make_context(workspace, Mode.UPLOAD_PACKAGES, **inputs)
    report = run(dataclasses.replace(context, staging_dir=None, open_backend=create_storage_backend))
    print(f"{type(report.error).__name__}: {report.error}" if report.error or report.warnings else "done", flush=True)
"""


@dataclass(frozen=True)
class Bucket:
    """An empty bucket of a server on this machine."""

    name: str
    client: S3Client
    known: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def contents(self) -> dict[str, bytes]:
        """Every object but the records, by key; those that are as they were last time are not fetched again."""
        found = {}
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name):
            for entry in page.get("Contents", []):
                version = (entry["Key"], entry["ETag"])
                if "/reports/" not in entry["Key"]:
                    if version not in self.known:
                        self.known[version] = self.client.get_object(Bucket=self.name, Key=entry["Key"])["Body"].read()
                    found[entry["Key"]] = self.known[version]
        return found


@pytest.fixture(params=["moto", pytest.param("ministack", marks=pytest.mark.needs("ministack"))])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bucket]:
    import boto3
    from botocore.config import Config

    with ExitStack() as stack:
        if request.param == "moto":
            url = stack.enter_context(moto_server())
        else:
            program = Path(os.environ["THEROCK_OUTPUTS_MINISTACK"])
            url = stack.enter_context(ministack_server(program, tmp_path))
        session = boto3.session.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
        client = stack.enter_context(closing(session.client("s3", endpoint_url=url, config=Config(proxies={}))))
        name = f"at-once-{os.getpid()}-{next(_numbers)}"
        client.create_bucket(Bucket=name)
        yield Bucket(name, client)


@dataclass(frozen=True)
class Kind:
    """One package of two jobs and each round, and what a repository offers, as others than this project read it."""

    name: str
    build: Callable[[Path], dict[str, bytes]]
    offered: Callable[[Mapping[str, bytes], Path], set[str]]


def package_names() -> list[str]:
    return [f"rocm-{job}-{number:02}" for number in range(ROUNDS) for job in "ab"]


def build_debs(_folder: Path) -> dict[str, bytes]:
    return {f"{name}_1.0_amd64.deb": deb_of(control_text(name, "1.0")) for name in package_names()}


def offered_debs(files: Mapping[str, bytes], _folder: Path) -> set[str]:
    return {name for name, _ in offered_packages(files, f"{P}/packages/deb")}


def build_rpms(folder: Path) -> dict[str, bytes]:
    """All of them by one call of rpmbuild."""
    folder.mkdir()
    parts = [
        f"%package -n {name}\nSummary: Test\n%description -n {name}\nTest.\n%files -n {name}\n"
        for name in package_names()
    ]
    spec = "Name: none\nVersion: 1.0\nRelease: 1\nSummary: Test\nLicense: MIT\nBuildArch: noarch\n%description\nTest.\n"
    (folder / "all.spec").write_text(spec + "".join(parts), encoding="utf-8")
    subprocess.run(
        [
            "rpmbuild",
            "-bb",
            "--quiet",
            f"--define=_topdir {folder}",
            f"--define=_rpmdir {folder}",
            str(folder / "all.spec"),
        ],
        check=True,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
    )
    return {path.name: path.read_bytes() for path in folder.rglob("*.rpm")}


def offered_rpms(files: Mapping[str, bytes], folder: Path) -> set[str]:
    repository = f"{P}/packages/rpm/x86_64/"
    write_tree(
        folder, {key.removeprefix(repository): data for key, data in files.items() if key.startswith(repository)}
    )
    names = set()
    for package in createrepo_c.RepositoryReader.from_path(str(folder)).iter_packages():
        data = files[repository + package.location_href]
        assert (digest(data), len(data)) == (package.pkgId, package.size_package)
        names.add(package.name)
    for record in createrepo_c.Repomd(str(folder / "repodata" / "repomd.xml")).records:
        assert digest(files[repository + record.location_href]) == record.checksum
    return names


KINDS = [
    pytest.param(Kind("deb", build_debs, offered_debs), id="deb"),
    pytest.param(Kind("rpm", build_rpms, offered_rpms), id="rpm", marks=pytest.mark.needs("rpmbuild")),
]


def start_worker(workspace: Path, kind: str, bucket: Bucket, job: str) -> subprocess.Popen[str]:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join((str(PROJECT / "src"), str(PROJECT / "tests"))),
        "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": "made-up",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_ENDPOINT_URL_S3": bucket.client.meta.endpoint_url,
    }
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(workspace / job), kind, bucket.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def told(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    return worker.stdout.readline().strip()


def in_rounds(
    folder: Path, kind: str, bucket: Bucket, packages: Callable[[str, int], dict[str, bytes]]
) -> Iterator[list[str]]:
    """Let two jobs publish their `packages` of each round at once; what both say, round after round."""
    workers = {job: start_worker(folder, kind, bucket, job) for job in "ab"}
    try:
        assert [told(worker) for worker in workers.values()] == ["ready", "ready"]
        for number in range(ROUNDS):
            for job, worker in workers.items():
                write_tree(folder / job / str(number), packages(job, number))
                assert worker.stdin is not None
                worker.stdin.write(f"{number}\n")
            for worker in workers.values():
                assert worker.stdin is not None
                worker.stdin.flush()
                time.sleep(number * STEP_SECONDS)  # so that in some round each step of one meets each of the other
            yield [told(worker) for worker in workers.values()]
    finally:
        for worker in workers.values():
            worker.communicate()
    assert [worker.returncode for worker in workers.values()] == [0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_at_once_lose_nothing_and_leave_valid_metadata_each_time(
    tmp_path: Path, bucket: Bucket, kind: Kind
) -> None:
    packages = kind.build(tmp_path / "built")
    assert len(packages) == 2 * ROUNDS

    def own(job: str, number: int) -> dict[str, bytes]:
        return {name: data for name, data in packages.items() if name.startswith(f"rocm-{job}-{number:02}")}

    for number, answers in enumerate(in_rounds(tmp_path, kind.name, bucket, own)):
        assert answers == ["done", "done"], f"round {number}"
        expected = set(package_names()[: 2 * (number + 1)])
        assert kind.offered(bucket.contents(), tmp_path / f"read-{number}") == expected, f"round {number}"


def test_two_processes_that_publish_other_builds_of_one_package_at_once_replace_no_byte(
    tmp_path: Path, bucket: Bucket
) -> None:
    """Both keep their files; one of the builds is offered, with the digest of its own bytes."""

    def builds(job: str, number: int) -> dict[str, bytes]:
        control = control_text(f"shared-{number:02}", "1.0", extra=f"Content: {job}\n")
        return {f"shared-{number:02}_1.0_amd64.deb": deb_of(control, compression="")}

    for number, answers in enumerate(in_rounds(tmp_path, "deb", bucket, builds)):
        assert set(answers) <= {"done", "NoneType: None"}, f"round {number}"
        files = bucket.contents()
        assert offered_debs(files, tmp_path) == {f"shared-{so_far:02}" for so_far in range(number + 1)}
        stored = {data for key, data in files.items() if f"/pool/main/shared-{number:02}" in key}
        assert stored == {data for job in "ab" for data in builds(job, number).values()}, f"round {number}"
