"""What upload-artifacts stores of a real build, fetch-artifacts lays out again: in a folder, and on an S3 server."""

from __future__ import annotations

import json
import os
import shutil
import stat
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from fakes.build_tree import make_build_tree
from fakes.moto_server import moto_server
from fakes.runner import FakeRunner
from fakes.s3_environment import ACCESS_KEY_ID
from fakes.trees import digest, write_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mypy_boto3_s3.client import S3Client

    from fakes.runner import StepResult

pytestmark = pytest.mark.needs("cc", "cmake", "ninja")

BUCKET = "therock-ci-artifacts"
FAMILY = "gfx1151"
TOPOLOGY = """
[build_stages.compiler-runtime]
artifact_groups = ["compiler"]
[build_stages.math-libs]
artifact_groups = ["math"]
[artifact_groups.compiler]
[artifact_groups.math]
artifact_group_deps = ["compiler"]
[artifacts.amd-llvm]
artifact_group = "compiler"
type = "target-neutral"
[artifacts.blas]
artifact_group = "math"
type = "target-specific"
[artifacts.miopen]
artifact_group = "math"
type = "target-specific"
"""

Entry = tuple[str, ...] | tuple[str, bool, bytes]


def entries(folder: Path, *, leave_out: str = "") -> dict[str, Entry]:
    """Everything below `folder`: folders, links and where they lead, files with their executable bit and bytes."""
    found: dict[str, Entry] = {}
    for path in sorted(folder.rglob("*")):
        name, status = path.relative_to(folder).as_posix(), path.lstat()
        if leave_out and name == leave_out:
            continue
        if stat.S_ISLNK(status.st_mode):
            found[name] = ("link", str(path.readlink()))
        elif stat.S_ISDIR(status.st_mode):
            found[name] = ("folder",)
        else:
            found[name] = ("file", bool(status.st_mode & stat.S_IXUSR), path.read_bytes())
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build tree with artifacts of several subtrees, too, and what archives are bad at."""
    tree = make_build_tree(tmp_path_factory.mktemp("built") / "build", units=2, family=FAMILY)
    write_tree(
        tree / "artifacts" / "blas_dev_generic",
        {
            "artifact_manifest.txt": "rocBLAS/stage\nrocBLAS-extra/stage\n",
            "rocBLAS/stage/include/blas.h": "#pragma once\n",
            f"rocBLAS/stage/share/{'long-' * 30}/odd + n\u00e4me.txt": "odd",
            "rocBLAS-extra/stage/tool.sh": "#!/bin/sh\n",
        },
    )
    (tree / "artifacts" / "blas_dev_generic" / "rocBLAS-extra" / "stage" / "tool.sh").chmod(0o755)
    (tree / "artifacts" / "blas_dev_generic" / "rocBLAS-extra" / "stage" / "nothing").mkdir()
    return tree


@dataclass(frozen=True)
class Place:
    """Where the run's outputs are, as inputs and environment of a step say it."""

    inputs: dict[str, str]
    environment: dict[str, str]


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, S3Client]]:
    import boto3

    with moto_server() as url:
        session = boto3.session.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-2")
        with closing(session.client("s3", endpoint_url=url)) as client:
            client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
            yield url, client
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
                for entry in page.get("Contents", []):
                    client.delete_object(Bucket=BUCKET, Key=entry["Key"])
            client.delete_bucket(Bucket=BUCKET)  # moto's state is the process's, and other tests use that name


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    if request.param == "folder":
        yield Place({"staging_dir": "out"}, {})
        return
    url, client = request.getfixturevalue("server")
    yield Place(
        {},
        {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": "made-up",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL_S3": url,
        },
    )
    for entry in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=entry["Key"])


@pytest.fixture
def runner(tmp_path: Path, built: Path) -> FakeRunner:
    """A job with the built artifacts in its workspace."""
    runner = FakeRunner(root=tmp_path / "job")
    shutil.copytree(built / "artifacts", runner.workspace / "build" / "artifacts", symlinks=True)
    folder = runner.workspace / "build" / "artifacts" / "blas_dev_generic" / "rocBLAS" / "stage" / "include"
    os.link(folder / "blas.h", folder / "same.h")
    return runner


def upload(runner: FakeRunner, place: Place, **inputs: str) -> StepResult:
    result = runner.run({"mode": "upload-artifacts", **place.inputs, **inputs}, env=place.environment)
    assert result.succeeded, result.log
    return result


def fetch(runner: FakeRunner, place: Place, **inputs: str) -> StepResult:
    values = {"mode": "fetch-artifacts", "stage": "all", "output_dir": "got", **place.inputs, **inputs}
    result = runner.run(values, env=place.environment)
    assert result.succeeded, result.log
    return result


def artifact_folders(runner: FakeRunner) -> list[Path]:
    return sorted((runner.workspace / "build" / "artifacts").iterdir())


def merged_by_hand(runner: FakeRunner, target: Path, *, keeps_subtrees: bool) -> dict[str, Entry]:
    """The listed subtrees of all artifacts copied over each other, in `target` itself or in their own folders."""
    target.mkdir()
    for folder in artifact_folders(runner):
        for subtree in (folder / "artifact_manifest.txt").read_text(encoding="utf-8").split():
            goal = target / subtree if keeps_subtrees else target
            if (folder / subtree).is_dir():
                shutil.copytree(folder / subtree, goal, symlinks=True, dirs_exist_ok=True)
            if keeps_subtrees:
                with (target / f"{subtree}.prebuilt").open("a", encoding="utf-8") as marker:
                    marker.write(f"{folder.name}\n")
    return entries(target)


@pytest.mark.parametrize("compression", ["zst", "xz"])
def test_extract_gives_every_artifact_back_as_it_was(runner: FakeRunner, place: Place, compression: str) -> None:
    upload(runner, place, compression=compression)
    result = fetch(runner, place)
    folders = artifact_folders(runner)
    assert json.loads(result.outputs["artifacts"]) == [folder.name for folder in folders]
    expected = {folder.name: entries(folder) for folder in folders}
    assert {path.name: entries(path) for path in (runner.workspace / "got").iterdir()} == expected
    include = runner.workspace / "got" / "blas_dev_generic" / "rocBLAS" / "stage" / "include"
    assert (include / "blas.h").samefile(include / "same.h")
    kinds = {entry[0:2] for tree in expected.values() for entry in tree.values()}
    assert {("folder",), ("file", True), ("file", False)} < kinds
    assert any(kind[0] == "link" for kind in kinds)


def test_flatten_equals_merging_the_listed_subtrees_by_hand(runner: FakeRunner, place: Place, tmp_path: Path) -> None:
    upload(runner, place)
    fetch(runner, place, extract="flatten")
    expected = merged_by_hand(runner, tmp_path / "by-hand", keeps_subtrees=False)
    assert entries(runner.workspace / "got") == expected


def test_bootstrap_puts_subtrees_back_with_markers(runner: FakeRunner, place: Place, tmp_path: Path) -> None:
    upload(runner, place)
    fetch(runner, place, extract="bootstrap")
    expected = merged_by_hand(runner, tmp_path / "by-hand", keeps_subtrees=True)
    assert "rocBLAS-extra/stage.prebuilt" in expected
    assert entries(runner.workspace / "got") == expected
    fetch(runner, place, extract="bootstrap")  # once more over what is there
    assert entries(runner.workspace / "got") == expected


def test_none_gives_the_archives_themselves_and_a_cache_serves_them_again(runner: FakeRunner, place: Place) -> None:
    upload(runner, place)
    results = [fetch(runner, place, extract="none", cache_dir="cache") for _ in range(2)]
    report = json.loads((runner.workspace / results[0].outputs["report"]).read_text(encoding="utf-8"))
    digests = {item["key"].rpartition("/")[2]: item["sha256"] for item in report["objects"]}
    assert len(digests) == len(artifact_folders(runner))
    assert {path.name: digest(path.read_bytes()) for path in (runner.workspace / "got").iterdir()} == digests
    assert f"{len(digests)} of {len(digests)} archives came from cache_dir" in results[1].log
    assert results[0].outputs["artifacts"] == results[1].outputs["artifacts"]


def test_a_stage_gets_what_it_needs_and_nothing_else(runner: FakeRunner, place: Place) -> None:
    write_tree(runner.workspace, {"BUILD_TOPOLOGY.toml": TOPOLOGY})
    upload(runner, place)
    math = fetch(runner, place, stage="math-libs", families=FAMILY, output_dir="math")
    assert {name.partition("_")[0] for name in json.loads(math.outputs["artifacts"])} == {"amd-llvm"}
    compiler = fetch(runner, place, stage="compiler-runtime", output_dir="compiler")
    assert (compiler.outputs["artifacts"], compiler.outputs["file_count"]) == ("[]", "0")
    assert "needs no artifacts of other stages" in compiler.summary


def test_a_fetch_that_waits_ends_as_soon_as_the_producers_are_done(runner: FakeRunner, place: Place) -> None:
    write_tree(runner.workspace, {"BUILD_TOPOLOGY.toml": TOPOLOGY})
    upload(runner, place, stage="compiler-runtime")
    result = fetch(runner, place, stage="math-libs", wait_seconds="600")
    assert {name.partition("_")[0] for name in json.loads(result.outputs["artifacts"])} == {"amd-llvm"}
    assert "waiting" not in result.log
