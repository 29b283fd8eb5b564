"""Repositories that the mode wrote, used by dnf: from web servers of both kinds, from S3 servers, and from a folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakes.contexts import STAGED, make_context
from fakes.ministack_server import ministack_server
from fakes.moto_server import moto_server
from fakes.rpm_packages import build_rpm, file_server, full_rpm, program
from fakes.runner import FakeRunner, image_launcher
from fakes.s3_environment import ACCESS_KEY_ID
from therock_outputs.mode_names import Mode
from therock_outputs.modes.upload_packages import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3.client import S3Client

    from therock_outputs.report import Report

pytestmark = [pytest.mark.needs("dnf", "rpm", "rpmbuild"), pytest.mark.slow]

P = "100-linux"
POOL = f"{P}/packages/rpm/x86_64"
BUCKET = "therock-ci-artifacts"
PUBLIC = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": f"arn:aws:s3:::{BUCKET}/*"}
    ],
}


@dataclass
class Dnf:
    """dnf with a system of its own below `folder` and no repository but the one that it is told."""

    folder: Path

    def arguments(self) -> list[str]:
        for name in ("cache", "log", "none", "root"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        options = {
            "cachedir": self.folder / "cache",
            "logdir": self.folder / "log",
            "varsdir": self.folder / "none",
            "pluginpath": self.folder / "none",
            "install_weak_deps": "False",
            "retries": 1,
        }
        settings = [f"--setopt={name}={value}" for name, value in options.items()]
        return ["dnf", "--assumeyes", "--quiet", f"--installroot={self.folder}/root", "--releasever=1", *settings]

    def run(self, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        repository = [f"--setopt=reposdir={self.folder}/none", f"--repofrompath=rocm,{url}"]
        repository += ["--setopt=rocm.gpgcheck=0", "--setopt=rocm.skip_if_unavailable=0"]
        command = [*self.arguments(), *repository, *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, env=environment())

    def query(self, url: str, *arguments: str) -> set[str]:
        """The lines that `dnf repoquery` prints."""
        done = self.run(url, "repoquery", "--available", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return set(done.stdout.splitlines())

    def install(self, url: str, *names: str) -> None:
        done = self.run(url, "install", *names)
        assert done.returncode == 0, done.stdout + done.stderr

    def installed(self) -> set[str]:
        """Name, epoch, version and release of all packages."""
        form = "%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n"
        command = ["rpm", f"--root={self.folder}/root", "--query", "--all", f"--queryformat={form}"]
        return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines())

    def content(self, path: str) -> str:
        return Path(f"{self.folder}/root{path}").read_text("utf-8")


def environment() -> dict[str, str]:
    """The process's without proxies, in a locale that every machine has."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return kept | {"LC_ALL": "C.UTF-8"}


@pytest.fixture
def dnf(tmp_path: Path) -> Dnf:
    return Dnf(tmp_path / "dnf")


@pytest.fixture(scope="session")
def rpms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packages whose names and versions have all that these may have; read only."""
    folder = tmp_path_factory.mktemp("rpms")
    version = "7.1.0~rc1+git20261201^2"
    build_rpm(folder, "rocm-c++", version, epoch="2", header="Requires: rocm-data = 1:1.0-1\nRecommends: rocm-extra")
    build_rpm(folder, "rocm-data", epoch="1", header="Provides: rocm-virtual = 3")
    build_rpm(folder, "rocm-extra", header="Requires: /opt/rocm-data/file")
    return folder


@pytest.fixture
def packages(tmp_path: Path, rpms: Path) -> Path:
    """The job's folder with them."""
    return Path(shutil.copytree(rpms, tmp_path / "packages"))


def upload(workspace: Path, path: str = "packages", **inputs: object) -> Report:
    report = run(make_context(workspace, Mode.UPLOAD_PACKAGES, path=path, package_type="rpm", **inputs))
    assert report.error is None, report.error
    return report


@pytest.mark.parametrize("plus_is_space", [False, True], ids=["plain server", "like S3"])
@pytest.mark.usefixtures("packages")
def test_dnf_installs_names_and_versions_with_plus_tilde_caret_and_epoch(
    tmp_path: Path, dnf: Dnf, *, plus_is_space: bool
) -> None:
    upload(tmp_path)
    with file_server(tmp_path / STAGED, plus_is_space=plus_is_space) as (url, asked):
        dnf.install(f"{url}/{POOL}", "rocm-c++")
    assert dnf.installed() == {"rocm-c++ 2:7.1.0~rc1+git20261201^2-1", "rocm-data 1:1.0-1"}
    assert dnf.content("/opt/rocm-c++/file") == "content\n"
    assert [path for path in asked if path.endswith("primary.xml.gz")]
    assert not [path for path in asked if "+" in path]


@pytest.mark.usefixtures("packages")
def test_dnf_finds_packages_by_what_they_provide_and_by_their_files(tmp_path: Path, dnf: Dnf) -> None:
    upload(tmp_path)
    with file_server(tmp_path / STAGED) as (url, _):
        dnf.install(f"{url}/{POOL}", "rocm-virtual >= 2", "rocm-extra")
        assert dnf.query(f"{url}/{POOL}", "--list", "rocm-c++") == {"/opt/rocm-c++/file"}
        assert dnf.query(f"{url}/{POOL}", "--recommends", "rocm-c++") == {"rocm-extra"}
    assert dnf.installed() == {"rocm-data 1:1.0-1", "rocm-extra 0:1.0-1"}


def test_jobs_add_to_one_repository_and_dnf_upgrades_to_the_newer_version(
    tmp_path: Path, dnf: Dnf, packages: Path
) -> None:
    with file_server(tmp_path / STAGED) as (url, _):
        upload(tmp_path)
        dnf.install(f"{url}/{POOL}", "rocm-data")
        later = tmp_path / "later"
        later.mkdir()
        build_rpm(later, "rocm-data", "1.1", epoch="1", contents={"/opt/rocm-data/file": "newer"})
        full_rpm(later)
        upload(tmp_path, "later")
        done = dnf.run(f"{url}/{POOL}", "upgrade", "--refresh")
        assert done.returncode == 0, done.stdout + done.stderr
        listed = dnf.query(f"{url}/{POOL}", "--queryformat=%{name} %{evr}")
    assert dnf.content("/opt/rocm-data/file") == "newer"
    assert listed == {
        "rocm-c++ 2:7.1.0~rc1+git20261201^2-1",
        "rocm-core 1:7.1.0~rc1+git^2-3",
        "rocm-data 1:1.0-1",
        "rocm-data 1:1.1-1",
        "rocm-extra 1.0-1",
    }
    assert len(list(packages.glob("*.rpm"))) == 3


def test_a_package_built_again_is_what_dnf_gets_and_older_metadata_still_find_the_old_one(
    tmp_path: Path, dnf: Dnf, packages: Path
) -> None:
    old, new = Dnf(dnf.folder / "old"), Dnf(dnf.folder / "new")
    with file_server(tmp_path / STAGED) as (url, _):
        upload(tmp_path)
        assert old.run(f"{url}/{POOL}", "makecache").returncode == 0
        path = packages / "rocm-data-1.0-1.noarch.rpm"
        path.unlink()
        build_rpm(packages, "rocm-data", epoch="1", contents={"/opt/rocm-data/file": "again"})
        report = upload(tmp_path)
        assert any("rocm-data-1.0-1.noarch.rpm" in warning for warning in report.warnings)
        old.install(f"{url}/{POOL}", "rocm-data", "--setopt=metadata_expire=-1")
        new.install(f"{url}/{POOL}", "rocm-data")
    assert old.content("/opt/rocm-data/file") == "content\n"
    assert new.content("/opt/rocm-data/file") == "again"


@pytest.mark.usefixtures("packages")
def test_dnf_refuses_a_package_whose_bytes_are_not_those_that_were_uploaded(tmp_path: Path, dnf: Dnf) -> None:
    upload(tmp_path)
    stored = tmp_path / STAGED / POOL / "rocm-data-1.0-1.noarch.rpm"
    data = bytearray(stored.read_bytes())
    data[-1] ^= 1
    stored.write_bytes(data)
    with file_server(tmp_path / STAGED) as (url, _):
        done = dnf.run(f"{url}/{POOL}", "install", "rocm-data", "--verbose")
    assert done.returncode != 0
    assert "checksum doesn't match" in done.stdout + done.stderr
    assert dnf.installed() == set()


@pytest.mark.parametrize("options", [(), ("--no-database", "--simple-md-filenames", "--general-compress-type=gz")])
def test_what_createrepo_c_published_stays_installable(
    tmp_path: Path, dnf: Dnf, packages: Path, options: tuple[str, ...]
) -> None:
    pool = tmp_path / STAGED / POOL
    pool.mkdir(parents=True)
    full_rpm(pool)
    program("createrepo_c", "--quiet", *options, pool)
    report = upload(tmp_path)
    assert not [warning for warning in report.warnings if "made again" in warning]
    with file_server(tmp_path / STAGED) as (url, _):
        dnf.install(f"{url}/{POOL}", "rocm-data")
        assert dnf.query(f"{url}/{POOL}", "--requires", "rocm-core") >= {"bash >= 5", "/bin/sh"}
        assert dnf.query(f"{url}/{POOL}", "--recommends", "rocm-core") == {"recommended"}
        assert "/opt/rocm/ghost" in dnf.query(f"{url}/{POOL}", "--list", "rocm-core")
        assert "- second & <last>" in dnf.query(f"{url}/{POOL}", "--changelogs", "rocm-core")
    assert len(list(packages.iterdir())) == 3


@pytest.mark.usefixtures("packages")
def test_the_lines_of_the_summary_install_the_packages(tmp_path: Path, dnf: Dnf) -> None:
    (snippet,) = upload(tmp_path).snippets
    sources = tmp_path / "sources"
    sources.mkdir()
    dnf_line = " ".join(f"'{argument}'" for argument in [*dnf.arguments(), f"--setopt=reposdir={sources}"][1:])
    script = f"""
sudo() {{ "$@"; }}
tee() {{ command tee '{sources}/'"$(basename "$1")"; }}
dnf() {{ command dnf {dnf_line} "$@"; }}
"""
    command = ["bash", "-euc", script + "\n".join(snippet.lines)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
    assert {line.partition(" ")[0] for line in dnf.installed()} == {"rocm-c++", "rocm-data", "rocm-extra"}


@pytest.fixture(params=["moto", pytest.param("ministack", marks=[pytest.mark.needs("ministack")])])
def s3(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, S3Client]]:
    """URL and client of a server with the inventory's bucket, whose objects everybody may read."""
    import boto3

    with ExitStack() as stack:
        if request.param == "moto":
            url = stack.enter_context(moto_server())
        else:
            url = stack.enter_context(ministack_server(Path(os.environ["THEROCK_OUTPUTS_MINISTACK"]), tmp_path))
        session = boto3.session.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-2")
        client = stack.enter_context(closing(session.client("s3", endpoint_url=url)))
        client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
        client.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps(PUBLIC))
        yield url, client
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
            for entry in page.get("Contents", []):
                client.delete_object(Bucket=BUCKET, Key=entry["Key"])
        client.delete_bucket(Bucket=BUCKET)  # moto's state is the process's, and other tests use that name


def test_dnf_installs_straight_from_s3(tmp_path: Path, dnf: Dnf, rpms: Path, s3: tuple[str, S3Client]) -> None:
    server, client = s3
    runner = FakeRunner(root=tmp_path / "job")
    shutil.copytree(rpms, runner.workspace / "packages")
    inputs = {"mode": "upload-packages", "package_type": "rpm", "path": "packages"}
    keys = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": "made-up",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL_S3": server,
        "AWS_DEFAULT_REGION": "us-east-2",
    }
    first, again = runner.run(inputs, env=keys), runner.run(inputs, env=keys)
    assert first.succeeded, first.log
    assert again.succeeded, again.log
    pool = first.outputs["package_repository_url"].removeprefix(f"https://{BUCKET}.s3.amazonaws.com/")
    dnf.install(f"{server}/{BUCKET}/{pool}", "rocm-c++", "rocm-extra")
    assert {line.partition(" ")[0] for line in dnf.installed()} == {"rocm-c++", "rocm-data", "rocm-extra"}
    stored = [item["Key"] for item in client.list_objects_v2(Bucket=BUCKET, Prefix=f"{pool}/repodata/")["Contents"]]
    assert len(stored) == 4, "the second upload wrote the same metadata under the same keys"
    commit = client.head_object(Bucket=BUCKET, Key=f"{pool}/repodata/repomd.xml")
    assert commit["ContentType"] == "application/xml"


@pytest.mark.needs("image")
def test_the_image_writes_a_repository_that_dnf_uses(tmp_path: Path, dnf: Dnf, rpms: Path) -> None:
    runner = FakeRunner(root=tmp_path / "job", launcher=image_launcher(os.environ["THEROCK_OUTPUTS_IMAGE"]))
    shutil.copytree(rpms, runner.workspace / "packages")
    result = runner.run({"mode": "upload-packages", "package_type": "rpm", "path": "packages", "staging_dir": "out"})
    assert result.succeeded, result.log
    assert not [line for line in result.log.splitlines() if "rpmrc" in line]
    (pool,) = (runner.workspace / "out").glob("*/packages/rpm/x86_64")
    with file_server(pool) as (url, _):
        dnf.install(url, "rocm-c++")
    assert dnf.content("/opt/rocm-c++/file") == "content\n"
