"""Mode locate as a step: it needs nothing but the job's environment."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import pytest

from fakes import markdown

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakes.runner import FakeRunner, Invocation, Launch

CI = "https://therock-ci-artifacts.s3.amazonaws.com/15948739823-linux"


def test_the_step_says_where_everything_will_be(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    result = runner.run({"mode": "locate", "artifact_group": "gfx94X-dcgpu"})
    assert result.succeeded, result.log
    assert result.outputs["log_url"] == f"{CI}/logs/gfx94X-dcgpu/index.html"
    assert result.outputs["url"] == result.outputs["log_url"]
    assert result.outputs["file_count"] == "0"
    assert f"{CI}/index-gfx94X-dcgpu.html" in markdown.links(result.summary)
    assert result.annotations == ()
    report = json.loads((runner.workspace / result.outputs["report"]).read_text(encoding="utf-8"))
    assert report["mode"] == "locate"


def test_the_jobs_mirror_of_the_summary_has_every_step(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    first, second = (runner.run({"mode": "locate", "stage": stage}) for stage in ("math-libs", "comm-libs"))
    assert (runner.temp / "job_summary.md").read_text(encoding="utf-8") == first.summary + second.summary
    assert first.summary.startswith("### ✅ locate · `math-libs`\n")


@pytest.mark.parametrize(
    ("environment", "prefix"),
    [
        ({"RELEASE_TYPE": ""}, "s3://therock-ci-artifacts/15948739823-linux"),
        ({"RELEASE_TYPE": "nightly"}, "s3://therock-nightly-artifacts/15948739823-linux"),
        ({"IS_PR_FROM_FORK": "true"}, "s3://therock-ci-artifacts-external/ROCm-TheRock/15948739823-linux"),
        ({"GITHUB_EVENT_PATH": ""}, "s3://therock-ci-artifacts/15948739823-linux"),
        ({"RUNNER_TEMP": ""}, "s3://therock-ci-artifacts/15948739823-linux"),
        ({"RUNNER_WORKSPACE": ""}, "s3://therock-ci-artifacts/15948739823-linux"),
    ],
)
def test_the_jobs_environment_decides(job: Callable[..., FakeRunner], environment: dict[str, str], prefix: str) -> None:
    result = job().run({"mode": "locate"}, env=environment)
    assert result.succeeded, result.log
    assert result.outputs["s3_uri"] == prefix


@pytest.mark.parametrize("head", [{"full_name": "someone/TheRock"}, None])
def test_a_forks_pull_request_goes_to_the_external_bucket_and_gets_no_role(
    job: Callable[..., FakeRunner], head: object
) -> None:
    runner = job(event={"pull_request": {"head": {"repo": head}}}, github={"event_name": "pull_request"})
    outputs = runner.run({"mode": "locate"}, env={"IS_PR_FROM_FORK": "false"}).outputs
    assert outputs["s3_uri"] == "s3://therock-ci-artifacts-external/ROCm-TheRock/15948739823-linux"
    assert (outputs["is_pr_from_fork"], outputs["iam_role"]) == ("true", "")


def test_a_pull_request_without_its_payload_fails_with_the_path_and_the_remedy(job: Callable[..., FakeRunner]) -> None:
    runner = job(github={"event_name": "pull_request"})
    result = runner.run({"mode": "locate"}, env={"GITHUB_EVENT_PATH": "/nowhere/event.json"})
    assert result.exit_code == 2
    (message,) = result.messages("error")
    assert "/nowhere/event.json" in message
    assert "IS_PR_FROM_FORK" in message
    assert result.outputs == {}
    assert result.summary.startswith("### ❌ therock-outputs\n")


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"mode": "no-such-mode"}, "mode 'no-such-mode' is not known"),
        ({"mode": ""}, "no mode was given"),
        ({"mode": "locate", "run_id": "1/../2"}, "run_id '1/../2' cannot be used"),
        ({"mode": "locate", "artifacts_group": "x"}, "Did you mean artifact_group?"),
        ({"mode": "locate", "build-dir": "x"}, "Did you mean build_dir?"),
        ({"mode": "locate", "lookup": "perhaps"}, "lookup: "),
        ({"mode": "locate", "artifact_group": "::error::x\n::set-output name=x::y"}, "artifact_group"),
    ],
)
def test_a_wrong_input_is_one_error_with_exit_code_2(
    job: Callable[..., FakeRunner], inputs: dict[str, str], words: str
) -> None:
    result = job().run(inputs)
    assert result.exit_code == 2
    (message,) = result.messages("error")
    assert words in message
    assert "Traceback" not in result.log
    assert {command.name for command in result.commands} <= {"error", "add-mask", "group", "endgroup", "warning"}
    assert "### ❌ therock-outputs" in result.summary
    assert markdown.links(result.summary) == []


def test_no_summary_is_written_where_none_is_wanted(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    good = runner.run({"mode": "locate", "summary": "false"})
    bad = runner.run({"mode": "upload-stage", "summary": "false"})
    assert (good.exit_code, bad.exit_code) == (0, 2)
    assert good.summary == bad.summary == ""
    assert not (runner.temp / "job_summary.md").exists()


def test_the_token_is_masked_before_anything_else_is_said_and_shown_nowhere(job: Callable[..., FakeRunner]) -> None:
    runner = job(token="ghs_0123456789abcdef")
    result = runner.run({"mode": "locate", "stage": "ghs_0123456789abcdef"})
    assert result.commands[0].name == "add-mask"
    assert "ghs_0123456789abcdef" not in result.log


def test_the_token_is_in_no_file_and_no_output(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    result = runner.run({"mode": "locate"})
    files = [path.read_text(encoding="utf-8") for path in runner.workspace.rglob("*.json")]
    assert runner.token not in "".join([result.summary, *result.outputs.values(), *files])


def test_a_workspace_full_of_python_files_does_not_reach_the_program(job: Callable[..., FakeRunner]) -> None:
    runner = job()
    for name in ("logging", "boto3", "sitecustomize", "json", "therock_outputs", "pydantic", "usercustomize"):
        (runner.workspace / f"{name}.py").write_text(
            "raise SystemExit('the checkout was imported')\n", encoding="utf-8"
        )
    hostile = {"PYTHONPATH": str(runner.workspace), "PYTHONSTARTUP": str(runner.workspace / "logging.py")}
    result = runner.run({"mode": "locate"}, env=hostile)
    assert result.succeeded, result.log


def test_a_report_file_that_cannot_be_written_is_a_warning_and_the_outputs_are_there(
    job: Callable[..., FakeRunner],
) -> None:
    runner = job()
    (runner.workspace / ".therock-outputs").symlink_to(runner.root)
    result = runner.run({"mode": "locate"})
    assert result.exit_code == 0
    (message,) = result.messages("warning")
    assert message.startswith("the report file was not written: ")
    assert result.outputs["report"] == ""
    assert result.outputs["bucket"] == "therock-ci-artifacts"
    assert "the report file was not written" in result.summary
    assert not list(runner.root.glob("*.json"))


@pytest.mark.parametrize("variable", ["GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"])
def test_a_file_of_the_runner_that_cannot_be_written_fails_with_one_error(
    job: Callable[..., FakeRunner], variable: str
) -> None:
    runner = job()
    launcher = runner.launcher

    def launch(invocation: Invocation) -> Launch:
        broken = {**invocation.environment, variable: "/nowhere/file"}
        return launcher(dataclasses.replace(invocation, environment=broken))

    runner.launcher = launch
    result = runner.run({"mode": "locate"})
    assert result.exit_code == 8
    assert len(result.messages("error")) == 1
    assert "Traceback" not in result.log
