"""Mode upload-stage as a step: logs of a stage and family, and the manifest from the stage that owns it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fakes.trees import read_tree, write_tree

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakes.runner import FakeRunner

P = "15948739823-linux"
INPUTS = {"mode": "upload-stage", "staging_dir": "out"}
LOGS = {
    ".hidden/y.log",
    "build_observability.html",
    "ccache_logs.tar.zst",
    "comp-summary.html",
    "comp-summary.md",
    "empty.log",
    "ninja_logs.tar.gz",
    "proj/ccache/x.log",
    "rocBLAS_build.log",
    "therock-build-prof/comp-summary.html",
    "therock-build-prof/comp-summary.md",
}


def staged(runner: FakeRunner) -> set[str]:
    return {key for key in read_tree(runner.workspace / "out" / P) if not key.startswith("reports/")}


@pytest.mark.parametrize(
    ("stage", "family", "folder"),
    [
        ("math-libs", "gfx1151", "logs/math-libs/gfx1151"),
        ("comm-libs", "", "logs/comm-libs"),
        ("new-stage", "", "logs/new-stage"),
    ],
)
def test_logs_lie_in_the_folder_of_stage_and_family(
    job: Callable[..., FakeRunner], stage: str, family: str, folder: str
) -> None:
    runner = job()
    result = runner.run({**INPUTS, "stage": stage, "family": family})
    assert result.succeeded, result.log
    assert staged(runner) == {f"{folder}/{name}" for name in {*LOGS, "index.html"}}
    page = f"https://therock-ci-artifacts.s3.amazonaws.com/{P}/{folder}/index.html"
    assert (result.outputs["log_url"], result.outputs["url"]) == (page, page)
    assert result.outputs["manifest_url"] == ""
    assert "the server makes this page" not in result.summary
    assert result.annotations == ()


def test_where_the_server_makes_the_page_none_is_written_and_the_summary_says_so(
    job: Callable[..., FakeRunner],
) -> None:
    inputs = {"mode": "upload-stage", "stage": "math-libs", "dry_run": "true"}
    result = job().run(inputs, env={"AWS_EC2_METADATA_DISABLED": "true"})
    assert result.succeeded, result.log
    assert "the server makes this page" in result.summary
    assert result.outputs["file_count"] == str(len(LOGS))


def test_the_manifest_comes_from_the_stage_that_owns_it(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    result = runner.run({**INPUTS, "stage": "compiler-runtime"})
    assert "manifests/therock_manifest.json" in staged(runner)
    assert result.outputs["manifest_url"].endswith(f"/{P}/manifests/therock_manifest.json")


def test_a_missing_manifest_of_that_stage_is_a_warning(job: Callable[..., FakeRunner]) -> None:
    result = job(build={"logs/a.log": "a"}).run({**INPUTS, "stage": "compiler-runtime"})
    assert result.exit_code == 0
    (message,) = result.messages("warning")
    assert message.startswith("Manifest: there is no build/base/")


@pytest.mark.parametrize(
    ("index", "bucket", "written", "url"),
    [
        ("auto", "", True, True),
        ("write", "", True, True),
        ("none", "", False, False),
        ("auto", "my-own-bucket", True, True),
        ("none", "my-own-bucket", False, False),
    ],
)
def test_the_page_is_written_where_no_server_does_it_or_as_told(
    job: Callable[..., FakeRunner], index: str, bucket: str, written: bool, url: bool
) -> None:
    runner = job()
    result = runner.run({**INPUTS, "stage": "math-libs", "index": index, "bucket": bucket})
    assert ("logs/math-libs/index.html" in staged(runner)) == written
    assert bool(result.outputs["log_url"]) == url


def test_a_page_that_the_build_brings_is_kept(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    write_tree(runner.workspace / "build" / "logs", {"index.html": "own"})
    result = runner.run({**INPUTS, "stage": "math-libs", "index": "write"})
    assert (runner.workspace / "out" / P / "logs" / "math-libs" / "index.html").read_text() == "own"
    assert "the server makes this page" not in result.summary


@pytest.mark.parametrize(
    ("told", "exit_code", "level"),
    [("", 0, "warning"), ("warn", 0, "warning"), ("error", 3, "error"), ("ignore", 0, "")],
)
@pytest.mark.parametrize("build", [{}, {"other": "x"}], ids=["no build directory", "no logs"])
def test_nothing_to_store_is_told_as_wanted_and_leaves_no_link(
    job: Callable[..., FakeRunner], build: dict[str, str], told: str, exit_code: int, level: str
) -> None:
    runner = job(build=build)
    result = runner.run({**INPUTS, "stage": "math-libs", "if_no_files_found": told})
    assert result.exit_code == exit_code, result.log
    assert [annotation.level for annotation in result.annotations] == ([level] if level else [])
    assert (result.outputs["log_url"], result.outputs["url"], result.outputs["file_count"]) == ("", "", "0")
    assert not (runner.workspace / "out").exists()


def test_a_path_that_is_not_in_the_shared_workspace_is_explained(job: Callable[..., FakeRunner]) -> None:
    inputs = {**INPUTS, "stage": "math-libs", "build_dir": "/__w/TheRock/TheRock/nothing"}
    result = job().run(inputs, env={"RUNNER_WORKSPACE": "/home/runner/work/TheRock"})
    (message,) = result.messages("warning")
    assert "In a job with `container:`" in message


@pytest.mark.parametrize("inputs", [{"stage": ""}, {"stage": "a/b"}, {"stage": "math-libs", "layout": "single-stage"}])
def test_settings_that_the_mode_cannot_use_are_exit_code_2(
    job: Callable[..., FakeRunner], inputs: dict[str, str]
) -> None:
    result = job().run(INPUTS | inputs)
    assert result.exit_code == 2
    assert len(result.messages("error")) == 1


def test_inputs_of_other_modes_are_warnings(job: Callable[..., FakeRunner]) -> None:
    result = job().run({**INPUTS, "stage": "math-libs", "artifact_group": "gfx94X-dcgpu"})
    assert result.summary.partition("\n")[0] == "### ⚠️ upload-stage · `math-libs`"
    assert result.messages("warning") == ["input artifact_group is not used by mode upload-stage"]
