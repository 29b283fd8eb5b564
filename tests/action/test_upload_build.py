"""Mode upload-build as a step, staged into a folder: what lies where, and what the job is told."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from typing import TYPE_CHECKING

import pytest

from fakes import markdown
from fakes.runner import PROJECT, Invocation, Launch
from fakes.trees import digest, read_tree, write_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fakes.runner import FakeRunner, StepResult

GROUP = "gfx94X-dcgpu"
P = "15948739823-linux"
INPUTS = {"mode": "upload-build", "artifact_group": GROUP, "staging_dir": "out"}
STORED = {
    "blas_lib_gfx1151.tar.zst",
    "blas_lib_gfx1151.tar.zst.sha256sum",
    f"index-{GROUP}.html",
    f"logs/{GROUP}/.hidden/y.log",
    f"logs/{GROUP}/build_observability.html",
    f"logs/{GROUP}/ccache_logs.tar.zst",
    f"logs/{GROUP}/comp-summary.html",
    f"logs/{GROUP}/comp-summary.md",
    f"logs/{GROUP}/empty.log",
    f"logs/{GROUP}/index.html",
    f"logs/{GROUP}/ninja_logs.tar.gz",
    f"logs/{GROUP}/proj/ccache/x.log",
    f"logs/{GROUP}/rocBLAS_build.log",
    f"logs/{GROUP}/therock-build-prof/comp-summary.html",
    f"logs/{GROUP}/therock-build-prof/comp-summary.md",
    f"manifests/{GROUP}/therock_manifest.json",
}


def staged(runner: FakeRunner, folder: str = "out") -> dict[str, bytes]:
    """What was stored, without the record, by key below the run's folder."""
    tree = read_tree(runner.workspace / folder / P)
    return {key: data for key, data in tree.items() if not key.startswith("reports/")}


def report_of(runner: FakeRunner, result: StepResult) -> dict[str, object]:
    return json.loads((runner.workspace / result.outputs["report"]).read_text(encoding="utf-8"))


def test_a_whole_build_lies_where_the_layout_says(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    result = runner.run(INPUTS)
    assert result.succeeded, result.log
    tree = staged(runner)
    assert set(tree) == STORED
    assert tree[f"logs/{GROUP}/comp-summary.md"] == tree[f"logs/{GROUP}/therock-build-prof/comp-summary.md"]
    assert tree[f"logs/{GROUP}/empty.log"] == b""
    assert result.annotations == ()
    with tarfile.open(runner.workspace / "out" / P / "logs" / GROUP / "ninja_logs.tar.gz") as archive:
        assert archive.getnames() == ["rocBLAS/build/.ninja_log"]


def test_the_outputs_link_to_what_was_stored_and_count_it(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    result = runner.run(INPUTS)
    base = f"https://therock-ci-artifacts.s3.amazonaws.com/{P}"
    assert {name: value for name, value in result.outputs.items() if name != "report"} == {
        "bucket": "therock-ci-artifacts",
        "prefix": P,
        "s3_uri": f"s3://therock-ci-artifacts/{P}",
        "url": f"{base}/logs/{GROUP}/index.html",
        "file_count": str(len(STORED)),
        "total_bytes": str(sum(map(len, staged(runner).values()))),
        "truncated": "false",
        "log_url": f"{base}/logs/{GROUP}/index.html",
        "observability_url": f"{base}/logs/{GROUP}/build_observability.html",
        "manifest_url": f"{base}/manifests/{GROUP}/therock_manifest.json",
        "artifact_index_url": f"{base}/index-{GROUP}.html",
    }
    document = report_of(runner, result)
    assert {item["key"].removeprefix(f"{P}/"): item["sha256"] for item in document["objects"]} == {
        key: digest(data) for key, data in staged(runner).items()
    }


def test_the_summary_says_that_it_is_staged_and_where(job: Callable[..., FakeRunner]) -> None:
    summary = job().run(INPUTS).summary
    assert "Staged, not uploaded: `out`" in summary
    assert f"`out/{P}/index-{GROUP}.html`" in summary
    assert markdown.links(summary) == []


def test_a_second_run_stores_the_same_bytes_but_for_its_record(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    first, before = runner.run(INPUTS), staged(runner)
    for path in (runner.workspace / "build").rglob("*"):
        os.utime(path, (1, 1))
    second = runner.run(INPUTS)
    assert staged(runner) == before
    assert second.annotations == ()
    unlike = {"report"}
    assert {k: v for k, v in first.outputs.items() if k not in unlike} == {
        k: v for k, v in second.outputs.items() if k not in unlike
    }
    assert len(list((runner.workspace / "out" / P / "reports" / "upload-build").iterdir())) == 2


@pytest.mark.parametrize(
    "build",
    ["build", "./build", "{workspace}/build", "/__w/TheRock/TheRock/build"],
)
def test_the_build_is_found_by_any_of_its_names(job: Callable[..., FakeRunner], build: str) -> None:
    runner = job()
    # As in the container, where the workspace is mounted elsewhere than the host says.
    elsewhere = {"RUNNER_WORKSPACE": "/home/runner/work/TheRock"}
    inputs = {**INPUTS, "build_dir": build.format(workspace=runner.workspace)}
    assert runner.run(inputs, env=elsewhere).exit_code == 0
    assert set(staged(runner)) == STORED


MISSING = {
    "no build directory": lambda build: build.rename(build.with_name("elsewhere")),
    "no logs": lambda build: (build / "logs").rename(build / "elsewhere"),
    "no artifacts": lambda build: (build / "artifacts").rename(build / "elsewhere"),
    "no manifest": lambda build: (build / "base").rename(build / "elsewhere"),
}


@pytest.mark.parametrize(
    ("missing", "told", "exit_code", "warnings"),
    [
        ("no build directory", "", 3, 2),
        ("no build directory", "error", 3, 0),
        ("no build directory", "warn", 0, 3),
        ("no build directory", "ignore", 0, 0),
        ("no logs", "", 0, 0),
        ("no artifacts", "", 3, 0),
        ("no artifacts", "warn", 0, 1),
        ("no artifacts", "ignore", 0, 0),
        ("no manifest", "", 0, 1),
        ("no manifest", "error", 3, 0),
        ("no manifest", "ignore", 0, 0),
    ],
)
def test_what_is_missing_is_an_error_a_warning_or_nothing_and_the_rest_is_stored(
    job: Callable[..., FakeRunner], missing: str, told: str, exit_code: int, warnings: int
) -> None:
    runner = job()
    MISSING[missing](runner.workspace / "build")
    result = runner.run({**INPUTS, "if_no_files_found": told})
    assert result.exit_code == exit_code, result.log
    assert len(result.messages("warning")) == warnings
    assert len(result.messages("error")) == (exit_code != 0)
    stored = staged(runner)
    assert bool(stored) == (missing != "no build directory")
    assert result.outputs["file_count"] == str(len(stored))
    assert (f"manifests/{GROUP}/therock_manifest.json" in stored) == (missing in {"no logs", "no artifacts"})
    if missing in {"no artifacts", "no build directory"}:
        assert result.outputs["artifact_index_url"] == ""


@pytest.mark.parametrize("status", ["failure", "cancelled"])
def test_a_job_that_did_not_succeed_stores_its_logs_and_no_artifact(
    job: Callable[..., FakeRunner], status: str
) -> None:
    runner = job(job_status=status)
    result = runner.run(INPUTS)
    assert result.succeeded, result.log
    assert set(staged(runner)) == {key for key in STORED if key.startswith(("logs/", "manifests/"))}
    assert f"the job's status is {status}" in result.summary
    assert result.outputs["artifact_index_url"] == ""


def test_a_failed_build_without_a_build_directory_breaks_nothing(job: Callable[..., FakeRunner]) -> None:
    runner = job(build={}, job_status="failure")
    result = runner.run(INPUTS)
    assert result.succeeded, result.log
    assert result.summary.startswith("### ⚠️ upload-build")
    assert not (runner.workspace / "out").exists()


def test_a_page_that_the_build_brings_is_kept(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    write_tree(runner.workspace / "build" / "logs", {"index.html": "the build's own"})
    result = runner.run(INPUTS)
    assert staged(runner)[f"logs/{GROUP}/index.html"] == b"the build's own"
    assert result.outputs["log_url"].endswith(f"/logs/{GROUP}/index.html")


@pytest.mark.parametrize(("index", "pages"), [("auto", True), ("write", True), ("none", False)])
def test_pages_are_written_as_told(job: Callable[..., FakeRunner], index: str, pages: bool) -> None:
    runner = job()
    result = runner.run({**INPUTS, "index": index})
    written = {key for key in staged(runner) if key in {f"index-{GROUP}.html", f"logs/{GROUP}/index.html"}}
    assert len(written) == (2 if pages else 0)
    assert bool(result.outputs["log_url"]) == bool(result.outputs["artifact_index_url"]) == pages


HOSTILE = [
    "::error::x.log",
    "##[error]x.log",
    " ::warning::y.log",
    "a|b `c`.log",
    "<img src=x>.log",
    "%25+#?.log",
    "é漢.log",
]


def test_hostile_names_are_stored_shown_and_never_obeyed(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    logs = runner.workspace / "build" / "logs"
    write_tree(logs, dict.fromkeys(HOSTILE, "x"))
    (logs / "::error::link\n##[error]z").symlink_to("nowhere")
    (logs / "##[error]link").symlink_to("nowhere")
    (logs / os.fsdecode(b"\xff\r::error::z")).touch()
    result = runner.run(INPUTS)
    assert result.succeeded, result.log
    assert {f"logs/{GROUP}/{name}" for name in HOSTILE} < set(staged(runner))
    assert result.annotations == ()
    assert {command.name for command in result.commands} == {"add-mask", "group", "endgroup"}
    assert len(report_of(runner, result)["skipped"]) == 3
    assert "<details><summary>Left out: 3</summary>" in result.summary
    assert markdown.links(result.summary) == []


def test_raw_ccache_logs_are_archived_and_never_stored_one_by_one(job: Callable[..., FakeRunner]) -> None:
    runner = job(build={"logs/ccache/a.log": "1", "logs/ccache/sub/b.log": "2", "logs/x/ccache/c.log": "3"})
    runner.run({**INPUTS, "if_no_files_found": "ignore"})
    names = {key.removeprefix(f"logs/{GROUP}/") for key in staged(runner)}
    assert names == {"ccache_logs.tar.zst", "index.html", "x/ccache/c.log"}


def test_a_name_that_makes_too_long_a_key_is_left_out_and_told_and_the_rest_is_stored(
    job: Callable[..., FakeRunner],
) -> None:
    start = f"{P}/logs/{GROUP}/"
    folders = "/".join(["d" * 200] * 4)
    fits = f"{folders}/{'f' * (1024 - len(start) - len(folders) - 1)}"
    runner = job(build={f"logs/{fits}": "1,024 bytes", f"logs/{fits}x": "1,025 bytes", "logs/a.log": "a"})
    result = runner.run({**INPUTS, "if_no_files_found": "ignore"})
    assert result.exit_code == 0, result.log
    assert f"logs/{GROUP}/{fits}" in staged(runner)
    (skipped,) = report_of(runner, result)["skipped"]
    assert skipped["path"].endswith("fx")
    assert "1025 bytes" in skipped["reason"]


def test_a_loop_of_links_ends_and_is_told(job: Callable[..., FakeRunner]) -> None:
    runner = job(build={"logs/a.log": "a"})
    (runner.workspace / "build" / "logs" / "loop").symlink_to(".", target_is_directory=True)
    (runner.workspace / "build" / "up").symlink_to("..", target_is_directory=True)
    result = runner.run({**INPUTS, "if_no_files_found": "ignore"})
    assert result.exit_code == 0
    assert [file["path"] for file in report_of(runner, result)["skipped"]] == ["logs/loop"]


def test_include_and_exclude_choose_the_logs(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    inputs = {**INPUTS, "include": "*.log\n*.md", "exclude": "proj/**", "include_hidden": "false"}
    runner.run(inputs)
    logs = {key.removeprefix(f"logs/{GROUP}/") for key in staged(runner) if key.startswith("logs/")}
    assert logs == {
        "empty.log",
        "rocBLAS_build.log",
        "therock-build-prof/comp-summary.md",
        "comp-summary.md",
        "index.html",
    }


@pytest.mark.parametrize(
    ("on_conflict", "exit_code", "kept"), [("overwrite", 0, "second"), ("skip", 0, "first"), ("error", 6, "first")]
)
def test_other_bytes_under_a_key_are_dealt_with_as_told(
    job: Callable[..., FakeRunner], on_conflict: str, exit_code: int, kept: str
) -> None:
    runner = job(build={"logs/a.log": "first"})
    inputs = {**INPUTS, "if_no_files_found": "ignore", "on_conflict": on_conflict}
    assert runner.run(inputs).exit_code == 0
    write_tree(runner.workspace / "build", {"logs/a.log": "second"})
    result = runner.run(inputs)
    assert result.exit_code == exit_code, result.log
    assert staged(runner)[f"logs/{GROUP}/a.log"].decode() == kept
    assert "<summary>Conflicts: 1</summary>" in result.summary
    assert len(result.messages("warning")) == (exit_code == 0)


@pytest.mark.parametrize(("sidecar", "exit_code"), [("right", 0), ("wrong", 6), ("absent", 0)])
def test_an_archive_is_published_with_a_digest_that_is_its_own(
    job: Callable[..., FakeRunner], sidecar: str, exit_code: int
) -> None:
    name, data = "blas_lib_gfx1151.tar.zst", "archive\n"
    text = {"right": f"{digest(data)}  {name}\n", "wrong": f"{digest('other')}\n"}.get(sidecar)
    runner = job()
    if text is not None:
        write_tree(runner.workspace / "build" / "artifacts", {f"{name}.sha256sum": text})
    result = runner.run(INPUTS)
    assert result.exit_code == exit_code, result.log
    tree = staged(runner)
    if exit_code:
        assert {name, f"{name}.sha256sum", f"index-{GROUP}.html"}.isdisjoint(tree)
        assert f"logs/{GROUP}/index.html" in tree
        (message,) = result.messages("error")
        assert "is not what its sidecar says" in message
    else:
        assert tree[f"{name}.sha256sum"].decode() == f"{digest(data)}  {name}\n"
        assert tree[f"index-{GROUP}.html"].count(b"<a href") == 2


def test_a_dry_run_stores_nothing_and_says_what_it_would(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    result = runner.run({**INPUTS, "dry_run": "true"})
    assert result.succeeded, result.log
    assert not (runner.workspace / "out").exists()
    assert result.outputs["file_count"] == str(len(STORED))
    assert "would store 16 objects" in result.log
    assert "Build logs: would be stored" in result.log
    assert "https://" not in result.log
    assert {value for name, value in result.outputs.items() if name.endswith("url")} == {""}
    assert "Dry run: nothing was stored." in result.summary


@pytest.mark.parametrize("inputs", [{"artifact_group": ""}, {"artifact_group": "../x"}, {"layout": "multi-arch"}])
def test_settings_that_the_mode_cannot_use_are_exit_code_2_and_nothing_is_stored(
    job: Callable[..., FakeRunner], inputs: dict[str, str]
) -> None:
    runner = job()
    result = runner.run(INPUTS | inputs)
    assert result.exit_code == 2
    assert not (runner.workspace / "out").exists()


@pytest.mark.parametrize("name", ["../../x", "a\nb::error::", "x" * 90, "job with spaces"])
def test_a_hostile_job_name_changes_no_key(job: Callable[..., FakeRunner], name: str) -> None:
    runner = job(github={"job": name})
    result = runner.run(INPUTS)
    assert result.succeeded, result.log
    assert set(staged(runner)) == STORED
    (record,) = (runner.workspace / "out" / P / "reports" / "upload-build").iterdir()
    assert record.name.startswith(f"{GROUP}-")
    assert not list(runner.workspace.parent.glob("x*"))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_what_root_writes_into_the_workspace_belongs_to_its_owner(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    os.chown(runner.workspace, 1234, 2345)
    os.chown(runner.temp, 1234, 2345)
    runner.run(INPUTS)
    mine = [*(runner.workspace / "out").rglob("*"), *(runner.workspace / ".therock-outputs").rglob("*")]
    mine += [runner.workspace / "out", runner.temp / "job_summary.md"]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in mine} == {(1234, 2345)}
    assert (runner.workspace / "build").stat().st_uid == 0


@pytest.mark.needs("setpriv")
def test_a_workspace_that_cannot_be_written_stores_elsewhere_and_warns(
    job: Callable[..., FakeRunner], tmp_path: Path
) -> None:
    runner = job()
    runner.workspace.chmod(0o555)
    as_before = runner.launcher

    def launch(invocation: Invocation) -> Launch:
        """Root without its right to write everywhere."""
        launch = as_before(invocation)
        root = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
        return dataclasses.replace(launch, arguments=[*root, *launch.arguments])

    runner.launcher = launch
    elsewhere = runner.run({**INPUTS, "staging_dir": str(tmp_path / "out")})
    assert elsewhere.exit_code == 0, elsewhere.log
    assert elsewhere.outputs["report"] == ""
    assert elsewhere.outputs["file_count"] == str(len(STORED))
    (message,) = elsewhere.messages("warning")
    assert message.startswith("the report file was not written: ")
    inside = runner.run(INPUTS)
    runner.workspace.chmod(0o755)
    assert inside.exit_code == 8, inside.log
    assert inside.summary.count("**failed: ") == 3
    assert inside.outputs["file_count"] == "0"


@pytest.mark.skipif(sys.platform != "linux", reason="the locale of a Linux job")
@pytest.mark.parametrize(
    "locale", ["C", pytest.param("en_US.ISO-8859-1", marks=pytest.mark.needs("localedef", "locales"))]
)
def test_a_locale_that_is_not_utf_8_changes_no_key(job: Callable[..., FakeRunner], locale: str, tmp_path: Path) -> None:
    if locale != "C":
        language, _, charset = locale.partition(".")
        subprocess.run(["localedef", "-i", language, "-f", charset, str(tmp_path / locale)], check=True)

    def launch(invocation: Invocation) -> Launch:
        settings = {
            "LC_ALL": locale,
            "LOCPATH": str(tmp_path),
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        return Launch(
            arguments=[sys.executable, "-u", str(PROJECT / "entrypoint.py")],
            environment={**invocation.environment, **settings, "PATH": os.environ["PATH"]},
            directory=invocation.workspace,
        )

    runner = job(build={"logs/Grüße 漢字.log": "x"})
    runner.launcher = launch
    result = runner.run({**INPUTS, "if_no_files_found": "ignore"})
    assert result.exit_code == 0, result.log
    assert f"logs/{GROUP}/Grüße 漢字.log" in staged(runner)
    assert report_of(runner, result)["skipped"] == []
    assert "✅" in result.summary


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no such signals")
@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_cancel_is_told_with_what_is_not_stored(
    job: Callable[..., FakeRunner], number: signal.Signals, exit_code: int
) -> None:
    runner = job(build={"logs/a.log": "a", **{f"logs/{n:05}.log": "x" for n in range(3000)}})

    def cancel(process: subprocess.Popen[bytes], stdout: Path) -> None:
        while process.poll() is None and b"::group::" not in stdout.read_bytes():
            time.sleep(0.01)
        process.send_signal(number)

    result = runner.run({**INPUTS, "if_no_files_found": "ignore"}, while_running=cancel)
    assert result.exit_code == exit_code, result.log
    (message,) = result.messages("error")
    assert message.startswith("cancelled")
    assert "Traceback" not in result.log


def test_the_resource_report_has_a_row_of_its_own_in_the_summary(job: Callable[..., FakeRunner]) -> None:
    without = job(build={"logs/a.log": "a"}).run({**INPUTS, "if_no_files_found": "ignore"}).summary
    assert "observability" not in without
    runner = job(build={"logs/a.log": "a", "logs/build_observability.html": "<p>"})
    summary = runner.run({**INPUTS, "if_no_files_found": "ignore"}).summary
    (row,) = [line for line in summary.splitlines() if "observability" in line]
    assert row.startswith("| Build observability |  |  | `out/")
    assert row.endswith(f"/logs/{GROUP}/build_observability.html` |")
