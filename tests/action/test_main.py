"""The process as a whole: faults of its own, the terminal, the room for the summary."""

from __future__ import annotations

import dataclasses
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fakes.runner import FakeRunner, python_launcher
from fakes.trees import write_tree
from therock_outputs.main import FAULT_EXIT_CODE
from therock_outputs.runner import MAX_SUMMARY_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakes.runner import Invocation, Launch

_FAULTY = """
import sys
from therock_outputs import command_line, main
class Panic(BaseException):
    pass
def load_settings(*_):
    raise {fault}("x\\n::error::y\\n##[error]z")
command_line.load_settings = load_settings
sys.exit(main.main())
"""
_TALKATIVE = """
import logging, sys, warnings
from therock_outputs import command_line, main
def load_settings(*_):
    logging.getLogger("urllib3.connectionpool").warning("%s", "broken\\n::error::y\\n##[add-mask]z")
    logging.getLogger("_therock_utils._s3_transfer").error("ours ##[add-mask]z")
    logging.getLogger("botocore").info("details")
    warnings.warn("old ##[add-mask]z")
    raise SystemExit(0)
command_line.load_settings = load_settings
sys.exit(main.main())
"""


def altered(job: Callable[..., FakeRunner], command: str = "", **environment: str) -> FakeRunner:
    """A job whose step gets these variables instead of the runner's, and is started by `command`, for sh."""
    runner = job()
    as_before = runner.launcher

    def launch(invocation: Invocation) -> Launch:
        launched = as_before(invocation)
        arguments = ["sh", "-c", command, "sh", *launched.arguments] if command else launched.arguments
        changed = {**launched.environment, **environment}
        return dataclasses.replace(launched, arguments=arguments, environment=changed)

    runner.launcher = launch
    return runner


@pytest.mark.parametrize("fault", ["KeyError", "Panic"])
def test_a_fault_of_the_program_has_its_own_exit_code_and_a_harmless_traceback(tmp_path: Path, fault: str) -> None:
    script = tmp_path / "faulty.py"
    script.write_text(_FAULTY.format(fault=fault), encoding="utf-8")
    result = FakeRunner(root=tmp_path / "job", launcher=python_launcher(script)).run({"mode": "locate"})
    assert result.exit_code == FAULT_EXIT_CODE
    assert [command.name for command in result.commands] == ["group", "endgroup", "error"]
    assert "load_settings" in result.log


def test_what_libraries_log_is_shown_and_harmless(tmp_path: Path) -> None:
    script = tmp_path / "talkative.py"
    script.write_text(_TALKATIVE, encoding="utf-8")
    result = FakeRunner(root=tmp_path / "job", launcher=python_launcher(script)).run({"mode": "locate"})
    assert result.exit_code == 0
    assert (result.commands, result.stderr) == ((), "")
    assert "warning: broken\n" in result.log
    assert all(word in result.log for word in ("error: ours", "UserWarning: old"))
    assert "details" not in result.log


def test_outputs_that_cannot_be_written_do_not_cost_the_summary(job: Callable[..., FakeRunner], tmp_path: Path) -> None:
    result = altered(job, GITHUB_OUTPUT=str(tmp_path)).run(
        {"mode": "upload-stage", "stage": "math-libs", "staging_dir": "out"}
    )
    assert result.exit_code == 8
    assert "### ✅ upload-stage · `math-libs`" in result.summary
    assert "cannot write the runner" in result.summary
    assert [message.partition("\n")[0] for message in result.messages("error")] == [
        f"cannot write the runner's file {tmp_path.name}"
    ]


def test_a_summary_that_cannot_be_written_does_not_cost_the_outputs(job: Callable[..., FakeRunner]) -> None:
    runner = altered(job, GITHUB_STEP_SUMMARY="/dev/full")
    result = runner.run({"mode": "locate"})
    assert (result.exit_code, result.outputs["bucket"]) == (8, "therock-ci-artifacts")
    missing = {"mode": "upload-build", "artifact_group": "g", "staging_dir": "out", "build_dir": "none"}
    result = runner.run(missing)
    assert result.exit_code == 3  # what the mode says counts more
    assert len(result.messages("error")) == 2


@pytest.mark.parametrize("path", ["/" + "a" * 5000, "/dev/null/x"])
def test_a_runner_temp_that_is_no_folder_is_done_without(job: Callable[..., FakeRunner], path: str) -> None:
    result = altered(job, RUNNER_TEMP=path).run({"mode": "locate"})
    assert result.succeeded, result.log
    assert result.summary


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("streams", [">/dev/full 2>&1", ">&-", ">&- 2>&-"])
def test_a_log_that_nobody_can_hear_does_not_cost_the_step(job: Callable[..., FakeRunner], streams: str) -> None:
    result = altered(job, command=f'exec "$@" {streams}').run({"mode": "locate"})
    assert result.succeeded, result.log
    assert result.outputs["bucket"] == "therock-ci-artifacts"
    assert "Traceback" not in result.stderr


def test_a_workspace_that_is_not_there_is_not_made_and_its_report_is_missed(
    job: Callable[..., FakeRunner], tmp_path: Path
) -> None:
    missing = tmp_path / "missing"
    result = altered(job, GITHUB_WORKSPACE=str(missing)).run({"mode": "locate"})
    assert (result.exit_code, result.outputs["report"]) == (0, "")
    (warning,) = result.messages("warning")
    assert warning.startswith("the report file was not written: ")
    assert not missing.exists()


def test_staging_where_the_job_cannot_look_is_warned_of(job: Callable[..., FakeRunner], tmp_path: Path) -> None:
    runner = altered(job, RUNNER_WORKSPACE="/home/runner/work/TheRock")
    staged = {"mode": "upload-stage", "stage": "math-libs"}
    result = runner.run(staged | {"staging_dir": str(tmp_path / "elsewhere")})
    assert any("is gone when this step's container ends" in message for message in result.messages("warning"))
    for staging_dir in ("out", str(runner.temp / "out")):
        assert runner.run(staged | {"staging_dir": staging_dir}).messages("warning") == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("dry_run", ["true", "false"])
def test_only_what_the_run_stored_changes_hands(job: Callable[..., FakeRunner], dry_run: str) -> None:
    runner = job()
    secret = runner.workspace / "secret"
    secret.touch(0o600)
    os.chown(runner.workspace, 1234, 2345)
    before = set(runner.workspace.rglob("*"))
    result = runner.run({"mode": "upload-stage", "stage": "math-libs", "staging_dir": ".", "dry_run": dry_run})
    assert result.succeeded, result.log
    assert {path.stat().st_uid for path in before} == {0}
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    new = set(runner.workspace.rglob("*")) - before
    assert any("reports" in path.parts for path in new) == (dry_run == "false")
    assert {(path.stat().st_uid, path.stat().st_gid) for path in new} == {(1234, 2345)}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_the_record_of_another_run_of_the_mode_does_not_change_hands(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    earlier = runner.workspace / "15948739823-linux/reports/upload-stage/earlier.json"
    earlier.parent.mkdir(parents=True)
    earlier.touch()
    os.chown(runner.workspace, 1234, 2345)
    assert runner.run({"mode": "upload-stage", "stage": "math-libs", "staging_dir": "."}).succeeded
    assert earlier.stat().st_uid == 0
    (own,) = [record for record in earlier.parent.iterdir() if record != earlier]
    assert own.stat().st_uid == 1234


def test_a_step_in_whose_summary_nothing_fits_any_more_keeps_what_is_there(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    as_before = runner.launcher

    def launch(invocation: Invocation) -> Launch:
        Path(invocation.environment["GITHUB_STEP_SUMMARY"]).write_bytes(b"x" * (MAX_SUMMARY_BYTES - 10))
        return as_before(invocation)

    runner.launcher = launch
    result = runner.run({"mode": "locate"})
    assert result.succeeded, result.log
    assert not result.summary_dropped
    assert result.summary == "x" * (MAX_SUMMARY_BYTES - 10)


_PROGRAM = "import sys; from therock_outputs.main import main; sys.exit(main())"


def at_a_terminal(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command with no variable of a job."""
    return subprocess.run(
        [sys.executable, "-I", "-c", _PROGRAM, *arguments],
        cwd=folder,
        env={name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_at_a_terminal_results_go_to_stdout_and_words_to_stderr(tmp_path: Path) -> None:
    write_tree(tmp_path / "build" / "logs", {"Grüße.log": "x"})
    done = at_a_terminal(tmp_path, "upload-stage", "--stage", "math-libs", "--staging-dir", "out")
    assert done.returncode == 0, done.stderr
    outputs = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert outputs["file_count"] == "2"
    assert outputs["log_url"].endswith("/logs/math-libs/index.html")
    assert outputs["report"] == ""
    assert "staged 2 objects" in done.stderr
    assert not (tmp_path / ".therock-outputs").exists()
    assert not any(line.startswith("::") for line in done.stdout.splitlines() + done.stderr.splitlines())


@pytest.mark.parametrize("arguments", [["upload-sage"], ["locate", "--rnu-id", "5"], []])
def test_at_a_terminal_an_error_is_words_on_stderr(tmp_path: Path, arguments: list[str]) -> None:
    done = at_a_terminal(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
