"""Mode upload-artifacts as a step: what lies where, what the job is told, and what one bad artifact costs."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import sys
import tarfile
import time
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

import pytest

from fakes import markdown
from fakes.moto_server import moto_server
from fakes.runner import PROJECT, FakeRunner, Invocation, Launch
from fakes.s3_environment import ACCESS_KEY_ID
from fakes.trees import digest, read_tree, write_tree

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from mypy_boto3_s3.client import S3Client

    from fakes.runner import StepResult

P = "15948739823-linux"
BUCKET = "therock-ci-artifacts"
INPUTS = {"mode": "upload-artifacts", "staging_dir": "out"}
TOPOLOGY = """\
[build_stages.math-libs]
artifact_groups = ["math"]
[build_stages.compiler]
artifact_groups = ["compiler"]
[build_stages.windows-only]
artifact_groups = ["tools"]
[artifact_groups.math]
[artifact_groups.compiler]
[artifact_groups.tools]
[artifacts.blas]
artifact_group = "math"
type = "target-specific"
[artifacts.fft]
artifact_group = "math"
[artifacts.sparse]
artifact_group = "math"
[artifacts.solver]
artifact_group = "math"
disable_platforms_if_flags_not_set = { linux = "SOLVER" }
[artifacts.dx]
artifact_group = "math"
platform = "windows"
[artifacts.amd-llvm]
artifact_group = "compiler"
[artifacts.wsl]
artifact_group = "tools"
platform = "windows"
"""


def artifact(name: str, content: str = "") -> dict[str, str]:
    """The files of one artifact directory."""
    return {
        f"artifacts/{name}/artifact_manifest.txt": f"{name}/stage\n",
        f"artifacts/{name}/{name}/stage/lib/{name}.so": content or f"bytes of {name}\n" * 500,
        f"artifacts/{name}/{name}/stage/empty.txt": "",
    }


READY = "fft_lib_generic.tar.xz"
BUILD = {
    **artifact("blas_lib_gfx1151"),
    **artifact("blas_run_generic"),
    **artifact("amd-llvm_lib_generic"),
    f"artifacts/{READY}": "ready",
    "artifacts/notes.txt": "x",
    "artifacts/not-an-artifact/x": "x",
    "logs/a.log": "a",
}
ARCHIVES = ["amd-llvm_lib_generic.tar.zst", "blas_lib_gfx1151.tar.zst", "blas_run_generic.tar.zst", READY]


class Job(Protocol):
    """Makes a job with the files of a build tree."""

    def __call__(self, *, build: dict[str, str] = ..., **options: object) -> FakeRunner: ...


@pytest.fixture
def make(job: Callable[..., FakeRunner]) -> Job:
    def build_job(*, build: dict[str, str] = BUILD, **options: object) -> FakeRunner:
        return job(build=build, **options)

    return build_job


def staged(runner: FakeRunner) -> dict[str, bytes]:
    """What was stored, without the record, by key below the run's folder."""
    tree = read_tree(runner.workspace / "out" / P)
    return {key: data for key, data in tree.items() if not key.startswith("reports/")}


def report_of(runner: FakeRunner, result: StepResult) -> dict[str, object]:
    return json.loads((runner.workspace / result.outputs["report"]).read_text(encoding="utf-8"))


def names_in(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(zstd.decompress(archive)), mode="r:") as opened:
        return opened.getnames()


def listed(result: StepResult, name: str = "artifacts") -> list[str]:
    return json.loads(result.outputs[name])


def named(archives: Iterable[str]) -> list[str]:
    """The artifacts of these archives."""
    return [name.partition(".tar.")[0] for name in archives]


def skipped(runner: FakeRunner, result: StepResult) -> dict[str, str]:
    return {file["path"]: file["reason"] for file in report_of(runner, result)["skipped"]}


def left_in_temp(runner: FakeRunner) -> list[str]:
    return [path.name for path in runner.temp.iterdir() if path.name.startswith("therock-outputs-")]


def test_directories_become_archives_and_ready_archives_go_as_they_are(make: Job) -> None:
    runner = make()
    result = runner.run(INPUTS)
    assert result.succeeded, result.log
    tree = staged(runner)
    assert sorted(tree) == sorted([*ARCHIVES, *(f"{name}.sha256sum" for name in ARCHIVES)])
    assert listed(result) == named(ARCHIVES)
    assert listed(result, "missing") == []
    assert tree[READY] == b"ready"
    name = "blas_lib_gfx1151"
    assert names_in(tree[f"{name}.tar.zst"]) == [
        "artifact_manifest.txt",
        f"{name}/stage",
        f"{name}/stage/empty.txt",
        f"{name}/stage/lib",
        f"{name}/stage/lib/{name}.so",
    ]
    for archive in ARCHIVES:
        assert tree[f"{archive}.sha256sum"].decode() == f"{digest(tree[archive])}  {archive}\n"
    assert left_in_temp(runner) == []


def test_the_outputs_and_the_report_say_what_was_stored(make: Job) -> None:
    runner = make()
    result = runner.run(INPUTS)
    tree = staged(runner)
    assert result.outputs["file_count"] == str(len(tree))
    assert result.outputs["total_bytes"] == str(sum(map(len, tree.values())))
    assert result.outputs["url"] == "", "no server makes a page in a folder; mode index does"
    assert "the server makes this page" not in result.summary
    document = report_of(runner, result)
    assert {item["key"].removeprefix(f"{P}/"): item["sha256"] for item in document["objects"]} == {
        key: digest(data) for key, data in tree.items()
    }
    assert skipped(runner, result) == {
        "artifacts/not-an-artifact": "its name is not of the form name_component_target",
        "artifacts/notes.txt": "it is no artifact archive: name_component_target.tar.zst or .tar.xz",
    }


def test_console_and_summary_say_what_became_of_each_artifact(make: Job) -> None:
    result = make().run(INPUTS)
    for archive in ARCHIVES[:3]:
        (line,) = [line for line in result.log.splitlines() if line.startswith(f"{archive}: ")]
        assert " -> " in line
        assert line.endswith(" s")
    assert "| Artifacts | 4 |" in result.summary
    assert f"| `out/{P}` |" in result.summary
    assert "Staged, not uploaded: `out`" in result.summary
    assert markdown.links(result.summary) == []


def test_the_record_lies_under_the_stage_the_group_or_the_word_artifacts(make: Job) -> None:
    runner = make()
    inputs = [
        {"stage": "math-libs", "family": "gfx1151"},
        {"stage": "all"},
        {"artifact_group": "gfx94X-dcgpu"},
        {},
    ]
    for given in inputs:
        assert runner.run({**INPUTS, **given}).exit_code == 0
    records = sorted(path.name for path in (runner.workspace / "out" / P / "reports" / "upload-artifacts").iterdir())
    starts = ["all-build-1-", "artifacts-build-1-", "gfx94X-dcgpu-build-1-", "math-libs-gfx1151-build-1-"]
    assert [name[: len(start)] for name, start in zip(records, starts, strict=True)] == starts


def test_a_second_run_stores_the_same_bytes(make: Job) -> None:
    runner = make()
    runner.run(INPUTS)
    before = staged(runner)
    for number, path in enumerate((runner.workspace / "build").rglob("*")):
        os.utime(path, (number, number))
    second = runner.run(INPUTS)
    assert staged(runner) == before
    assert second.messages("warning") == unexpected(second)
    assert listed(second) == named(ARCHIVES)


def unexpected(result: StepResult) -> list[str]:
    return [message for message in result.messages("warning") if message.startswith("Unexpected input")]


def warnings(result: StepResult) -> list[str]:
    return [message for message in result.messages("warning") if message not in unexpected(result)]


def test_xz_and_a_level_are_what_the_archives_are_made_with(make: Job) -> None:
    runner = make(build=artifact("blas_lib_gfx1151"))
    result = runner.run({**INPUTS, "compression": "xz", "compression_level": "0"})
    assert listed(result) == named(["blas_lib_gfx1151.tar.xz"])
    with tarfile.open(runner.workspace / "out" / P / "blas_lib_gfx1151.tar.xz", "r:xz") as archive:
        assert archive.getnames()[0] == "artifact_manifest.txt"


@pytest.mark.parametrize(
    "inputs",
    [
        {"compression": "gz"},
        {"compression_level": "10", "compression": "xz"},
        {"compression_level": "0"},
        {"compression_level": "20"},
        {"artifacts": "[abc"},
        {"path": "build/artifacts/notes.txt"},
        {"topology": "none.toml", "stage": "math-libs"},
        {"topology": "build/artifacts/notes.txt", "stage": "math-libs"},
        {"platform": "linux,windows"},
    ],
)
def test_settings_that_the_mode_cannot_use_are_exit_code_2_and_nothing_is_stored(
    make: Job, inputs: dict[str, str]
) -> None:
    runner = make()
    result = runner.run(INPUTS | inputs)
    assert result.exit_code == 2, result.log
    assert not (runner.workspace / "out").exists()


@pytest.mark.parametrize("name", ["elsewhere", "{workspace}/elsewhere", "./elsewhere/", "linked"])
def test_another_folder_can_be_named(make: Job, name: str) -> None:
    runner = make(build={})
    write_tree(runner.workspace / "elsewhere", {"blas_lib_generic/artifact_manifest.txt": "", READY: "ready", "x": ""})
    (runner.workspace / "linked").symlink_to("elsewhere", target_is_directory=True)
    result = runner.run({**INPUTS, "path": name.format(workspace=runner.workspace)})
    assert result.succeeded, result.log
    assert listed(result) == named(["blas_lib_generic.tar.zst", READY])
    assert list(skipped(runner, result)) == ["x"]


@pytest.mark.parametrize(
    ("told", "exit_code", "count"), [("", 3, 0), ("error", 3, 0), ("warn", 0, 1), ("ignore", 0, 0)]
)
@pytest.mark.parametrize("case", ["no build", "no folder", "nothing in it", "no such path", "globs"])
def test_nothing_to_store_is_an_error_a_warning_or_nothing(
    make: Job, case: str, told: str, exit_code: int, count: int
) -> None:
    builds = {"no build": {}, "no folder": {"logs/a.log": "a"}, "nothing in it": {"artifacts/x/y": "z"}}
    runner = make(build=builds.get(case, BUILD))
    extra = {"no such path": {"path": "nowhere"}, "globs": {"exclude_artifacts": "*"}}.get(case, {})
    result = runner.run({**INPUTS, **extra, "if_no_files_found": told})
    assert result.exit_code == exit_code, result.log
    assert len(warnings(result)) == count
    assert not (runner.workspace / "out").exists()
    assert listed(result) == named([])


def test_globs_narrow_what_is_stored_and_one_that_matches_nothing_is_told(make: Job) -> None:
    runner = make()
    inputs = {"artifacts": "blas\nfft_lib\nnothing", "exclude_components": "run"}
    result = runner.run({**INPUTS, **inputs})
    assert result.exit_code == 0, result.log
    assert listed(result) == named(["blas_lib_gfx1151.tar.zst", READY])
    assert warnings(result) == ["artifacts: nothing here matches nothing"]
    assert set(skipped(runner, result)) == {"artifacts/not-an-artifact", "artifacts/notes.txt"}


def test_a_stage_stores_what_it_makes_and_tells_what_it_did_not_make(make: Job) -> None:
    runner = make()
    write_tree(runner.workspace, {"BUILD_TOPOLOGY.toml": TOPOLOGY})
    result = runner.run({**INPUTS, "stage": "math-libs", "family": "gfx1151"})
    assert result.exit_code == 0, result.log
    assert listed(result) == named([name for name in ARCHIVES if not name.startswith("amd-llvm")])
    assert listed(result, "missing") == ["sparse"]  # dx is not for linux, and solver needs a flag
    assert warnings(result) == ["stage math-libs did not make 1 artifact of the topology: sparse"]
    assert skipped(runner, result)["artifacts/amd-llvm_lib_generic"] == "not produced by stage math-libs"


def test_a_stage_that_made_nothing_is_an_error_and_all_of_it_is_missing(make: Job) -> None:
    runner = make(build=artifact("blas_lib_gfx1151"))
    write_tree(runner.workspace, {"topology.toml": TOPOLOGY})
    result = runner.run({**INPUTS, "stage": "compiler", "topology": "topology.toml"})
    assert result.exit_code == 3
    assert listed(result, "missing") == ["amd-llvm"]
    assert "that stage compiler makes" in result.messages("error")[0]


def test_a_stage_that_makes_nothing_on_this_platform_is_success(make: Job) -> None:
    runner = make(build=artifact("blas_lib_gfx1151"))
    write_tree(runner.workspace, {"BUILD_TOPOLOGY.toml": TOPOLOGY})
    result = runner.run({**INPUTS, "stage": "windows-only"})
    assert result.exit_code == 0, result.log
    assert warnings(result) == []
    assert "stage windows-only makes no artifact for linux" in result.log
    assert listed(runner.run({**INPUTS, "stage": "windows-only", "platform": "windows"}), "missing") == ["wsl"]


def test_a_stage_that_the_topology_does_not_know_is_an_error_that_lists_them(make: Job) -> None:
    runner = make()
    write_tree(runner.workspace, {"BUILD_TOPOLOGY.toml": TOPOLOGY})
    result = runner.run({**INPUTS, "stage": "math-lib"})
    assert result.exit_code == 2
    assert "math-libs" in result.messages("error")[0]


@pytest.mark.parametrize("inputs", [{"stage": "math-libs"}, {"stage": "all"}, {}])
def test_without_a_topology_everything_is_taken(make: Job, inputs: dict[str, str]) -> None:
    result = make().run({**INPUTS, **inputs})
    assert result.succeeded, result.log
    assert listed(result) == named(ARCHIVES)
    told = ["there is no topology BUILD_TOPOLOGY.toml" in warning for warning in warnings(result)]
    assert told == ([True] if inputs.get("stage") == "math-libs" else [])


def test_of_a_directory_and_an_archive_of_one_artifact_the_directory_counts(make: Job) -> None:
    stale = {f"artifacts/blas_lib_gfx1151.tar.{end}": "stale" for end in ("zst", "xz", "zst.sha256sum")}
    runner = make(build={**artifact("blas_lib_gfx1151"), **stale})
    result = runner.run(INPUTS)
    assert result.succeeded, result.log
    assert listed(result) == named(["blas_lib_gfx1151.tar.zst"])
    assert staged(runner)["blas_lib_gfx1151.tar.zst"] != b"stale"
    assert set(skipped(runner, result)) == {f"artifacts/blas_lib_gfx1151.tar.{end}" for end in ("zst", "xz")}
    assert "2 archives left out, because the directory beside it counts" in result.log


@pytest.mark.parametrize(
    ("sidecar", "exit_code"),
    [("{digest}\n", 0), ("{digest}  {name}\n", 0), ("{digest}  other.tar.xz\n", 6), ("0" * 64, 6), ("", 6), (None, 0)],
)
def test_a_ready_archive_is_stored_with_a_digest_that_is_its_own_or_not_at_all(
    make: Job, sidecar: str | None, exit_code: int
) -> None:
    text = None if sidecar is None else sidecar.format(digest=digest("ready"), name=READY)
    extra = {} if text is None else {f"artifacts/{READY}.sha256sum": text}
    runner = make(build={**artifact("blas_lib_gfx1151"), f"artifacts/{READY}": "ready", **extra})
    result = runner.run(INPUTS)
    assert result.exit_code == exit_code, result.log
    tree = staged(runner)
    assert listed(result) == named(["blas_lib_gfx1151.tar.zst", *([] if exit_code else [READY])])
    if exit_code:
        assert not {READY, f"{READY}.sha256sum"} & set(tree)
        assert "is not what its sidecar says" in result.messages("error")[0]
        assert result.outputs["file_count"] == "2"
    else:
        assert tree[f"{READY}.sha256sum"].decode() == (text or f"{digest('ready')}  {READY}\n")


def test_a_sidecar_without_its_archive_is_left_out_and_told(make: Job) -> None:
    runner = make(build={**artifact("blas_lib_gfx1151"), f"artifacts/{READY}.sha256sum": "0" * 64})
    result = runner.run(INPUTS)
    assert skipped(runner, result) == {f"artifacts/{READY}.sha256sum": "there is no archive beside it"}
    assert listed(result) == named(["blas_lib_gfx1151.tar.zst"])


def spoil(runner: FakeRunner, how: str) -> None:
    folder = runner.workspace / "build" / "artifacts" / "blas_lib_gfx1151"
    stage = folder / "blas_lib_gfx1151" / "stage"
    if how == "no manifest":
        (folder / "artifact_manifest.txt").unlink()
    elif how == "bad manifest":
        (folder / "artifact_manifest.txt").write_text("/etc\n")
    elif how == "link out":
        (stage / "evil").symlink_to("../../../../../../secret")
    elif how == "name":
        (stage / os.fsdecode(b"Gr\xfc\xdfe.txt")).touch()  # ISO-8859-1
    elif how == "pipe":
        os.mkfifo(stage / "pipe")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("no manifest", "it has no artifact_manifest.txt"),
        ("bad manifest", "its artifact_manifest.txt cannot be used: it lists '/etc'"),
        ("link out", "the symbolic link blas_lib_gfx1151/stage/evil -> ../../../../../../secret cannot be kept"),
        ("name", r"the name blas_lib_gfx1151/stage/Gr\udcfc\udcdfe.txt cannot be kept"),
        ("pipe", "blas_lib_gfx1151/stage/pipe is a named pipe"),
    ],
)
def test_a_bad_artifact_costs_only_itself(make: Job, how: str, why: str) -> None:
    runner = make()
    spoil(runner, how)
    result = runner.run(INPUTS)
    assert result.exit_code == 6, result.log
    good = [name for name in ARCHIVES if not name.startswith("blas_lib")]
    assert listed(result) == named(good)
    assert sorted(staged(runner)) == sorted([*good, *(f"{name}.sha256sum" for name in good)])
    (message,) = result.messages("error")
    assert "the artifact blas_lib_gfx1151 cannot be archived" in message
    assert why in message
    assert "| Artifacts | 3 |" in result.summary
    assert "1 of 4 not stored" in result.summary
    assert "`build/artifacts/blas_lib_gfx1151`" in result.summary
    assert report_of(runner, result)["complete"] is False
    assert left_in_temp(runner) == []


def test_two_bad_artifacts_of_two_kinds_are_one_error_and_each_is_listed(make: Job) -> None:
    runner = make()
    spoil(runner, "pipe")
    (runner.workspace / "build" / "artifacts" / "blas_run_generic" / "artifact_manifest.txt").unlink()
    result = runner.run(INPUTS)
    assert result.exit_code == 6
    (message,) = result.messages("error")
    assert message.startswith("2 of 6 objects were not stored")
    assert [item["path"].rpartition("/")[2] for item in report_of(runner, result)["failed"]] == [
        "blas_lib_gfx1151",
        "blas_run_generic",
    ]


def test_what_a_manifest_does_not_list_is_left_out_and_told(make: Job) -> None:
    runner = make(build={**artifact("blas_lib_gfx1151"), "artifacts/blas_lib_gfx1151/other/x": "x"})
    result = runner.run(INPUTS)
    assert result.exit_code == 0
    why = "outside the subtrees that artifact_manifest.txt lists"
    assert skipped(runner, result) == {"artifacts/blas_lib_gfx1151/other": why}


def test_links_and_special_files_beside_artifacts_are_not_followed_and_told(make: Job) -> None:
    runner = make(build=artifact("blas_lib_gfx1151"))
    folder = runner.workspace / "build" / "artifacts"
    (folder / "fft_lib_generic").symlink_to("blas_lib_gfx1151", target_is_directory=True)
    write_tree(runner.workspace, {"secret": "secret"})
    (folder / READY).symlink_to(runner.workspace / "secret")
    os.mkfifo(folder / "rand_lib_generic.tar.xz")
    (folder / "sparse_lib_generic.tar.xz").mkdir()
    (folder / os.fsdecode(b"\xfc_lib_generic")).mkdir()
    (folder / "::error::a\n##[error]b").touch()
    result = runner.run(INPUTS)
    assert result.succeeded, result.log
    assert listed(result) == named(["blas_lib_gfx1151.tar.zst"])
    assert result.messages("error") == []
    assert skipped(runner, result) == {
        "artifacts/fft_lib_generic": "it is a symbolic link",
        f"artifacts/{READY}": "it is a symbolic link",
        "artifacts/rand_lib_generic.tar.xz": "it is a named pipe",
        "artifacts/sparse_lib_generic.tar.xz": "its name is that of an archive, and it is a folder",
        r"artifacts/\udcfc_lib_generic": "it is not valid Unicode",
        r"artifacts/::error::a\x0a##[error]b": "it has a control character",
    }


def test_a_dry_run_makes_and_stores_nothing_and_says_what_it_would(make: Job) -> None:
    runner = make()
    spoil(runner, "pipe")
    result = runner.run({**INPUTS, "dry_run": "true"})
    assert result.exit_code == 6, result.log
    assert not (runner.workspace / "out").exists()
    assert "would make blas_run_generic.tar.zst of 5 members, 13 kB" in result.log
    assert "would store 6 objects" in result.log
    assert listed(result) == named([])
    assert left_in_temp(runner) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_what_root_writes_into_the_workspace_belongs_to_its_owner(make: Job) -> None:
    runner = make()
    os.chown(runner.workspace, 1234, 2345)
    runner.run(INPUTS)
    mine = [runner.workspace / "out", *(runner.workspace / "out").rglob("*")]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in mine} == {(1234, 2345)}


# On a server


class Cloud:
    """The inventory's bucket on a server of this process."""

    def __init__(self, url: str, client: S3Client) -> None:
        self.url = url
        self.client = client
        self.environment = {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": "made-up",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL_S3": url,
        }

    def contents(self) -> dict[str, bytes]:
        """Every object but the records, by key below the run's folder."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return {
            key.removeprefix(f"{P}/"): self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
            for key in keys
            if "/reports/" not in key
        }


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
    for page in server.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET):
        for entry in page.get("Contents", []):
            server.client.delete_object(Bucket=BUCKET, Key=entry["Key"])
    server.client.delete_bucket(Bucket=BUCKET)


def run_on(place: str, runner: FakeRunner, cloud: Cloud, inputs: dict[str, str]) -> StepResult:
    if place == "folder":
        return runner.run({**inputs, "staging_dir": "out"})
    return runner.run({**inputs, "staging_dir": ""}, env=cloud.environment)


def contents_of(place: str, runner: FakeRunner, cloud: Cloud) -> dict[str, bytes]:
    return staged(runner) if place == "folder" else cloud.contents()


def test_a_server_and_a_staging_folder_hold_the_same_keys_and_bytes(make: Job, cloud: Cloud) -> None:
    runner = make()
    write_tree(runner.workspace / "build", artifact("big_lib_generic", noise(20_000_000)))  # in parts, on the server
    results = [run_on(place, runner, cloud, INPUTS) for place in ("folder", "server")]
    assert [result.exit_code for result in results] == [0, 0], [result.log for result in results]
    assert cloud.contents() == staged(runner)
    assert listed(results[0]) == listed(results[1])
    assert len(listed(results[1])) == 5


def noise(size_bytes: int) -> str:
    return random.Random(1).randbytes(size_bytes // 2).hex()


@pytest.mark.parametrize("place", ["folder", "server"])
@pytest.mark.parametrize(("on_conflict", "exit_code"), [("overwrite", 0), ("skip", 0), ("error", 6)])
def test_other_bytes_under_a_key_are_dealt_with_as_told(
    make: Job, cloud: Cloud, place: str, on_conflict: str, exit_code: int
) -> None:
    runner = make(build={**artifact("blas_lib_gfx1151"), **artifact("fft_lib_generic")})
    inputs = {"mode": "upload-artifacts", "on_conflict": on_conflict}
    first = run_on(place, runner, cloud, inputs)
    assert first.exit_code == 0, first.log
    before = contents_of(place, runner, cloud)
    changed = artifact("blas_lib_gfx1151", "other bytes\n")
    write_tree(runner.workspace / "build", {**changed, **artifact("rand_lib_generic")})
    runner.github = {"job": "another"}  # a re-run of the same job is no conflict
    result = run_on(place, runner, cloud, inputs)
    assert result.exit_code == exit_code, result.log
    after = contents_of(place, runner, cloud)
    name = "blas_lib_gfx1151.tar.zst"
    for archive in [key for key in after if not key.endswith(".sha256sum")]:
        assert after[f"{archive}.sha256sum"].decode() == f"{digest(after[archive])}  {archive}\n"
    assert (after[name] == before[name]) == (on_conflict != "overwrite")
    assert ("rand_lib_generic.tar.zst" in after) == (on_conflict != "error")
    if on_conflict == "error":
        assert after == before
        assert listed(result) == named([])
    else:
        assert (named([name])[0] in listed(result)) == (on_conflict == "overwrite")
        assert "rand_lib_generic" in listed(result)
    assert left_in_temp(runner) == []


def test_a_bucket_that_is_not_there_is_told_once_and_nothing_more_is_compressed(make: Job, cloud: Cloud) -> None:
    build: dict[str, str] = {}
    for number in range(40):
        build |= artifact(f"a{number:02}_lib_generic")
    runner = make(build=build)
    result = run_on("server", runner, cloud, {"mode": "upload-artifacts", "bucket": "therock-not-there"})
    assert result.exit_code == 3, result.log
    (message,) = result.messages("error")
    assert "therock-not-there" in message
    assert len(report_of(runner, result)["failed"]) == 40
    assert result.log.count(" -> ") < 30
    assert left_in_temp(runner) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no such signals")
@pytest.mark.parametrize("place", ["folder", "server"])
@pytest.mark.parametrize("on_conflict", ["overwrite", "error"])
def test_a_cancel_in_mid_compression_leaves_nothing_half_done(
    make: Job, cloud: Cloud, place: str, on_conflict: str
) -> None:
    words = "".join(random.Random(2).choices(["compiling ", "hit\n", "/usr/bin/cc ", "0123456789"], k=2_000_000))
    runner = make(build={**artifact("big_lib_generic", words), **artifact("fft_lib_generic")})
    pid: list[int] = []

    def cancel(process: subprocess.Popen[bytes], _stdout: Path) -> None:
        pid.append(process.pid)
        while process.poll() is None and not list(runner.temp.glob("therock-outputs-*/.therock-outputs-*.partial")):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)

    inputs = {"mode": "upload-artifacts", "on_conflict": on_conflict, "compression": "xz", "compression_level": "9"}
    inputs |= {"staging_dir": "out"} if place == "folder" else {"staging_dir": ""}
    result = runner.run(inputs, env=cloud.environment if place == "server" else {}, while_running=cancel)
    assert result.exit_code == 143, result.log
    assert "Traceback" not in result.log
    (message,) = result.messages("error")
    assert message.startswith("cancelled")
    assert not [key for key in contents_of(place, runner, cloud) if key.startswith("big")]
    assert "reports" not in "".join(contents_of(place, runner, cloud))
    assert left_in_temp(runner) == []
    failed = [item["key"] for item in report_of(runner, result)["failed"]]
    assert f"{P}/big_lib_generic.tar.xz" in failed


def test_a_temporary_folder_that_cannot_be_written_is_replaced_by_the_systems(make: Job, tmp_path: Path) -> None:
    runner = make()
    result = runner.run(INPUTS, env={"RUNNER_TEMP": str(tmp_path / "missing"), "TMPDIR": str(runner.root)})
    assert listed(result) == named(ARCHIVES)


def test_no_temporary_folder_at_all_costs_only_what_has_to_be_made(make: Job, tmp_path: Path) -> None:
    runner = make()
    code = (
        "import tempfile\n"
        "def refuse(*_, **__): raise OSError(28, 'No space left on device')\n"
        "tempfile.mkdtemp = refuse\n"
    )
    result = spoiled_run(runner, code, tmp_path)
    assert result.exit_code == 8, result.log
    assert listed(result) == named([READY])
    (message,) = result.messages("error")
    assert "No space left on device" in message
    assert "RUNNER_TEMP" in message


def spoiled_run(runner: FakeRunner, code: str, tmp_path: Path) -> StepResult:
    """Run the step in a Python that does `code` first."""
    script = tmp_path / "spoiled.py"
    script.write_text(
        f"import sys\nsys.path[:0] = {sys.path!r}\n{code}\nfrom therock_outputs.main import main\nsys.exit(main())\n"
    )

    def launch(invocation: Invocation) -> Launch:
        environment = {**invocation.environment, "PATH": os.environ["PATH"]}
        return Launch(arguments=[sys.executable, "-X", "utf8", str(script)], environment=environment, directory=PROJECT)

    runner.launcher = launch
    return runner.run(INPUTS)


def test_a_full_disk_is_told_once_with_the_remedy_and_ready_archives_are_stored(make: Job, tmp_path: Path) -> None:
    runner = make()
    code = (
        "from therock_outputs import artifact_archive\n"
        "def write(self, data): raise OSError(28, 'No space left on device')\n"
        "artifact_archive._Compressed._put = write\n"
    )
    result = spoiled_run(runner, code, tmp_path)
    assert result.exit_code == 8, result.log
    assert listed(result) == named([READY])
    (message,) = result.messages("error")
    assert message.count("No space left on device") == 1
    assert "Free some space" in message
    assert left_in_temp(runner) == []
