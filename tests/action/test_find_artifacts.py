"""Mode find-artifacts as a step and as a command, between a server for S3 and a double of GitHub's API."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from fakes import markdown
from fakes.github_api import Answer, FakeGitHub, primary_rate_limit, refusal, runs_path, secondary_rate_limit
from fakes.moto_server import moto_server
from fakes.runner import PROJECT, FakeRunner
from fakes.s3_environment import ACCESS_KEY_ID
from fakes.s3_fault_proxy import fault_proxy, s3_error
from fakes.trees import write_tree

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mypy_boto3_s3.client import S3Client

    from fakes.runner import StepResult

NAME = "ROCm/TheRock"
WORKFLOW = "multi_arch_ci.yml"
SHA = "0123456789abcdef0123456789abcdef01234567"
OTHER = "fedcba9876543210fedcba9876543210fedcba98"
BUCKET, EXTERNAL = "therock-ci-artifacts", "therock-ci-artifacts-external"
GENERIC, GFX942, GFX1151 = "hip_lib_generic.tar.zst", "blas_lib_gfx942.tar.zst", "blas_lib_gfx1151.tar.zst"
HOSTILE = "x\r\n::error::owned\n::set-output name=found::true\n##[error]owned [a](https://evil.example/) | `b` <img>"


def record(run_id: int, **changes: object) -> dict[str, Any]:
    return {
        "id": run_id,
        "repository": {"full_name": NAME},
        "head_repository": {"full_name": NAME},
        "head_sha": SHA,
        "head_branch": "main",
        "status": "completed",
        "conclusion": "success",
        "run_attempt": 1,
        "created_at": "2026-11-30T12:00:00Z",
        "updated_at": "2026-11-30T13:00:00Z",
    } | changes


class World:
    """GitHub and S3 on 127.0.0.1, and a job that is to find something there."""

    def __init__(self, github: FakeGitHub, s3_url: str, client: S3Client, root: Path) -> None:
        self.github = github
        self.s3_url = s3_url
        self.client = client
        self.runner = FakeRunner(root=root, github={"api_url": github.url})

    def set_runs(self, *records: object, workflow: str = WORKFLOW) -> None:
        self.github.set_runs(NAME, workflow, records)

    def store(self, run_id: int, *names: str, bucket: str = BUCKET, prefix: str = "") -> None:
        for name in names:
            self.client.put_object(Bucket=bucket, Key=f"{prefix}{run_id}-linux/{name}", Body=b"12345")

    def environment(self, **changes: str) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
            "AWS_SECRET_ACCESS_KEY": "made-up",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL_S3": self.s3_url,
        } | changes

    def find(self, inputs: dict[str, str] | None = None, **changes: str) -> StepResult:
        """Run the step for SHA, unless `inputs` name a branch or run."""
        given = inputs or {}
        start = {} if {"branch", "run_id"} & given.keys() else {"commit": SHA}
        return self.runner.run({"mode": "find-artifacts", **start, **given}, env=self.environment(**changes))

    def pages(self) -> list[str]:
        return [request.query["page"] for request in self.github.requests if "page" in request.query]


@pytest.fixture(scope="module")
def s3() -> Iterator[tuple[str, S3Client]]:
    import boto3

    with moto_server() as url:
        session = boto3.session.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-2")
        with closing(session.client("s3", endpoint_url=url)) as client:
            yield url, client


@pytest.fixture
def world(s3: tuple[str, S3Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    url, client = s3
    for bucket in (BUCKET, EXTERNAL):
        client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "us-east-2"})
    with FakeGitHub() as github:
        yield World(github, url, client, tmp_path / "job")
    for bucket in (BUCKET, EXTERNAL):
        for entry in client.list_objects_v2(Bucket=bucket).get("Contents", []):
            client.delete_object(Bucket=bucket, Key=entry["Key"])
        client.delete_bucket(Bucket=bucket)


def test_a_step_finds_the_newest_run_and_says_where_its_outputs_are(world: World) -> None:
    world.set_runs(record(9), record(8), record(7))
    world.store(9, GENERIC, "logs/blas_lib_gfx942.tar.zst")
    world.store(8, GENERIC, GFX942, "index-gfx94X-dcgpu.html")
    result = world.find({"artifact_group": "gfx94X-dcgpu"})
    assert result.succeeded, result.log
    outputs = result.outputs
    assert (outputs["found"], outputs["found_run_id"], outputs["prefix"]) == ("true", "8", "8-linux")
    assert outputs["s3_uri"] == f"s3://{BUCKET}/8-linux"
    page = f"https://{BUCKET}.s3.amazonaws.com/8-linux/index-gfx94X-dcgpu.html"
    assert outputs["url"] == page
    assert (outputs["file_count"], outputs["total_bytes"], outputs["truncated"]) == ("2", "10", "false")
    (run,) = json.loads(outputs["runs"])
    assert (run["run_id"], run["head_sha"], run["groups"]) == ("8", SHA, ["gfx94X-dcgpu"])
    assert run["archives"] == [GFX942, GENERIC]
    assert markdown.links(result.summary) == [page]
    assert "find-artifacts · `commit 0123456789ab`" in result.summary
    assert "found 2 objects (10 B)" in result.log
    report = json.loads((world.runner.workspace / outputs["report"]).read_text(encoding="utf-8"))
    assert [item["key"] for item in report["objects"]] == [f"8-linux/{GFX942}", f"8-linux/{GENERIC}"]
    assert [row[0] for row in report["tables"][0]["rows"]] == ["9", "8"]


def test_nothing_found_is_success_and_says_what_is_lacking(world: World) -> None:
    world.set_runs(record(9))
    world.store(9, GENERIC)
    result = world.find({"families": "gfx94X-dcgpu"})
    assert result.succeeded, result.log
    outputs = result.outputs
    assert (outputs["found"], outputs["found_run_id"], outputs["runs"]) == ("false", "", "[]")
    assert (outputs["bucket"], outputs["prefix"], outputs["s3_uri"], outputs["url"]) == ("", "", "", "")
    assert "not found: the newest run, 9 (success), lacks gfx94X-dcgpu" in result.log
    assert "not found: the newest run" in result.summary
    assert result.annotations == ()


def test_a_short_commit_a_branch_and_a_run_lead_to_the_same_run(world: World) -> None:
    world.set_runs(record(9, head_sha=OTHER, head_branch="topic"), record(8))
    world.github.add_commit(NAME, SHA)
    world.github.add_run(NAME, record(8))
    world.store(8, GENERIC)
    world.store(9, GENERIC)
    for where in ({"commit": "01234567"}, {"branch": "main"}, {"run_id": "8"}):
        result = world.find(where)
        assert result.outputs["found_run_id"] == "8", result.log


def test_of_250_runs_all_pages_are_read_only_where_no_newer_one_holds_it(world: World) -> None:
    world.set_runs(*(record(run_id) for run_id in range(1250, 1000, -1)))
    world.store(1101, GFX942)
    assert world.find({"targets": "gfx942"}).outputs["found_run_id"] == "1101"
    assert world.pages() == ["1", "2"]
    result = world.find({"targets": "gfx1151"})
    assert result.outputs["found"] == "false"
    assert world.pages() == ["1", "2", "1", "2", "3"]
    assert "250 runs looked at" in result.log


@pytest.mark.parametrize("head", [None, {"full_name": "someone/TheRock"}])
def test_a_forks_run_is_looked_for_in_the_external_bucket(world: World, head: object) -> None:
    world.set_runs(record(9, head_repository=head))
    world.store(9, GENERIC)
    assert world.find().outputs["found"] == "false"
    world.store(9, GENERIC, bucket=EXTERNAL, prefix="ROCm-TheRock/")
    assert world.find().outputs["s3_uri"] == f"s3://{EXTERNAL}/ROCm-TheRock/9-linux"


def test_runs_of_a_commit_hold_it_together_unless_one_must(world: World) -> None:
    world.set_runs(record(9), record(8))
    world.store(9, GFX942)
    world.store(8, GFX1151)
    asked = {"artifact_group": "gfx94X-dcgpu\ngfx1151"}
    both = world.find(asked)
    assert [run["run_id"] for run in json.loads(both.outputs["runs"])] == ["9", "8"]
    assert "2 runs of the commit hold it together" in both.summary
    assert world.find({**asked, "require_single_run": "true"}).outputs["found"] == "false"


def test_hostile_records_act_nowhere(world: World) -> None:
    hostile = record(9, head_branch=HOSTILE, html_url="javascript:alert(1)", status=HOSTILE, created_at=HOSTILE)
    world.set_runs({"head_branch": HOSTILE, "head_sha": SHA}, hostile, record(8, conclusion=HOSTILE))
    world.store(9, GFX1151)
    world.store(8, GFX942)
    result = world.find({"targets": "gfx942,gfx1151"})
    assert result.succeeded, result.log
    assert {command.name for command in result.commands} <= {"add-mask", "group", "endgroup", "warning"}
    assert result.messages("error") == []
    assert "##[error]" not in result.log
    assert "evil" not in "".join(markdown.links(result.summary))
    assert "javascript" not in result.summary + result.outputs["runs"]
    assert json.loads(result.outputs["runs"])[0]["head_branch"] == HOSTILE
    assert "without a run's number" in result.log


def test_what_the_user_asked_for_is_shown_as_text(world: World) -> None:
    world.set_runs(record(9))
    result = world.find({"include_regex": "[a](https://evil.example/)|<b>x</b>`"})
    assert result.outputs["found"] == "false", result.log
    assert "evil" not in "".join(markdown.links(result.summary))
    for cell in markdown.cells(result.summary)[9:]:
        markdown.plain_text(cell)


# What cannot be told


@pytest.mark.parametrize(
    ("answer", "exit_code", "words"),
    [
        (refusal(401, "Bad credentials"), 4, "refused the token"),
        (refusal(404, "Not Found"), 7, "if that repository is private"),
        (primary_rate_limit(reset_in_seconds=3600), 7, "rate limit"),
        (Answer(body=b"<html>a login page</html>", headers={"content-type": "text/html"}), 7, "cannot be read"),
    ],
    ids=["401", "404", "rate-limit", "html"],
)
def test_a_failure_of_github_fails_the_step(world: World, answer: Answer, exit_code: int, words: str) -> None:
    world.set_runs(record(9))
    world.store(9, GENERIC)
    world.github.script(runs_path(NAME, WORKFLOW), answer)
    result = world.find()
    assert result.exit_code == exit_code
    (message,) = result.messages("error")
    assert words in message
    assert result.outputs == {}


def test_a_limit_that_passes_is_waited_for_and_told(world: World) -> None:
    world.store(9, GENERIC)
    world.set_runs()
    page = {"total_count": 1, "workflow_runs": [record(9)]}
    world.github.script(runs_path(NAME, WORKFLOW), secondary_rate_limit(retry_after="1"), Answer(body=page))
    result = world.find()
    assert result.outputs["found_run_id"] == "9", result.log
    assert "asking again in" in result.log


def test_a_bucket_that_refuses_to_be_listed_fails_the_step_unless_a_newer_run_holds_it(world: World) -> None:
    world.set_runs(record(9), record(8))
    world.store(8, GFX942)
    with fault_proxy(world.s3_url) as proxy:
        proxy.rule = lambda request: (
            s3_error(403, "AccessDenied") if request.query.get("prefix", "").startswith("8-linux") else None
        )
        result = world.find({"targets": "gfx942"}, AWS_ENDPOINT_URL_S3=proxy.url)
        assert result.exit_code == 4
        assert result.outputs == {}
        world.store(9, GFX942)
        assert world.find({"targets": "gfx942"}, AWS_ENDPOINT_URL_S3=proxy.url).outputs["found_run_id"] == "9"


def test_a_record_that_cannot_be_read_fails_the_step_unless_another_run_holds_it(world: World) -> None:
    world.set_runs(record(9, updated_at=f"{HOSTILE}"), record(10**70), record(8))
    result = world.find({"targets": "gfx942"})
    assert result.exit_code == 7
    (message,) = result.messages("error")
    assert "run 9: its record cannot be read" in message
    assert result.outputs == {}
    world.store(8, GFX942)
    result = world.find({"targets": "gfx942"})
    assert result.outputs["found_run_id"] == "8", result.log
    assert "run 9 is left out: its record cannot be read" in result.log
    assert "without a run's number" in result.log
    assert result.messages("error") == []
    assert "##[error]" not in result.log


def test_a_staging_folder_that_is_not_there_fails_the_step(world: World) -> None:
    world.set_runs(record(9))
    result = world.find({"staging_dir": "ouput"})
    assert result.exit_code == 3
    assert "there is no folder ouput" in result.messages("error")[0]
    assert result.outputs == {}
    (world.runner.workspace / "ouput").mkdir()
    assert world.find({"staging_dir": "ouput"}).outputs["found"] == "false"


def test_a_bucket_that_does_not_exist_fails_the_step(world: World) -> None:
    world.set_runs(record(9))
    result = world.find({"bucket": "no-such-bucket"})
    assert result.exit_code == 3
    assert "no-such-bucket" in result.messages("error")[0]


# On the command line


def command(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", str(PROJECT / "entrypoint.py"), "find-artifacts", *arguments, "--json"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_prints_one_json_object_and_everything_else_on_stderr(world: World, tmp_path: Path) -> None:
    world.set_runs(record(9), {"no": "id"}, record(8))
    world.github.add_commit(NAME, SHA)
    world.store(8, GENERIC, GFX942)
    arguments = ["--commit", "0123456", "--repo", NAME, "--platform", "linux"]
    environment = world.environment(GITHUB_API_URL=world.github.url)
    done = command(tmp_path, *arguments, "--amdgpu-target", "gfx942", "--require-artifact", "^hip_", **environment)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["found"], answer["found_run_id"]) == (True, "8")
    assert answer["runs"][0]["archives"] == [GFX942, GENERIC]
    assert "found 2 objects" in done.stderr
    missed = command(tmp_path, *arguments, "--amdgpu-target", "gfx1151", **environment)
    assert missed.returncode == 0
    assert (json.loads(missed.stdout)["found"], json.loads(missed.stdout)["runs"]) == (False, [])
    assert "not found" in missed.stderr


def test_a_command_that_cannot_tell_prints_nothing_on_stdout(world: World, tmp_path: Path) -> None:
    world.set_runs(record(9))
    environment = world.environment(GITHUB_API_URL=world.github.url)
    unknown = command(tmp_path, "--commit", "fffffff", "--platform", "linux", **environment)
    wrong = command(tmp_path, "--commit", "main", **environment)
    assert (unknown.returncode, wrong.returncode) == (3, 2)
    assert (unknown.stdout, wrong.stdout) == ("", "")
    assert "GitHub shows no commit fffffff" in unknown.stderr


def test_a_staged_run_is_checked_without_any_network(tmp_path: Path) -> None:
    write_tree(tmp_path / "out" / "local-linux", {GENERIC: "1", GFX942: "2"})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        nowhere = f"http://127.0.0.1:{taken.getsockname()[1]}"
        done = command(
            tmp_path,
            *("--run-id", "local", "--staging-dir", "out", "--families", "gfx94X-dcgpu", "--platform", "linux"),
            GITHUB_API_URL=nowhere,
            AWS_ENDPOINT_URL_S3=nowhere,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["found_run_id"] == "local"


def test_runs_of_a_commit_are_looked_for_in_a_staging_folder(world: World) -> None:
    world.set_runs(record(9), record(8))
    write_tree(world.runner.workspace / "out" / "8-linux", {GENERIC: "1"})
    result = world.find({"staging_dir": "out"})
    assert result.outputs["found_run_id"] == "8", result.log
    assert "in out/8-linux" in result.summary


@pytest.mark.slow
def test_it_waits_for_a_run_that_is_under_way(world: World) -> None:
    world.set_runs(record(9, status="in_progress", conclusion=None))

    def store_when_it_waits(process: subprocess.Popen[bytes], stdout: Path) -> None:
        while process.poll() is None and b"waiting, " not in stdout.read_bytes():
            time.sleep(0.05)
        world.store(9, GFX942)

    result = world.runner.run(
        {"mode": "find-artifacts", "commit": SHA, "targets": "gfx942", "wait_seconds": "60"},
        env=world.environment(),
        while_running=store_when_it_waits,
    )
    assert result.outputs["found_run_id"] == "9", result.log
