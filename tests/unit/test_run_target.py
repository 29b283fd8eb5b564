"""Whose outputs are meant: this job's run, another run, another repository; and when GitHub is asked."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from _therock_utils import _github
from _therock_utils._cancel import CancelToken
from _therock_utils._errors import InputError
from _therock_utils.s3_buckets import Repository
from therock_outputs.command_line import load_settings
from therock_outputs.run_target import (
    RunTarget,
    resolve_source,
    resolve_target,
    root_of_record,
    single_platform,
    single_root,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("no_job")

JOB = {"GITHUB_RUN_ID": "100", "GITHUB_REPOSITORY": "ROCm/TheRock", "GITHUB_EVENT_NAME": "push", "RUNNER_OS": "Linux"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str | None]]:
    """What GitHub was asked; it answers that the run is a fork's."""
    questions: list[tuple[str, str, str | None]] = []

    def fetch(repository: Repository, run_id: str, *, token: str | None = None, wait: object) -> Mapping[str, object]:
        questions.append((repository.full_name, run_id, token))
        return {
            "repository": {"full_name": "ROCm/TheRock"},
            "head_repository": {"full_name": "someone/TheRock"},
            "updated_at": "2026-01-01T00:00:00Z",
        }

    monkeypatch.setattr(_github, "fetch_workflow_run", fetch)
    return questions


def target(monkeypatch: pytest.MonkeyPatch, *arguments: str, **environment: str) -> RunTarget:
    for name, value in (JOB | environment).items():
        monkeypatch.setenv(name, value)
    return resolve_target(load_settings(arguments, os.environ)[0], CancelToken(), say=lambda _text: None)


def event(folder: Path, head: object) -> dict[str, str]:
    path = folder / "event.json"
    path.write_text(json.dumps({"pull_request": {"head": {"repo": head}}}), encoding="utf-8")
    return {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": str(path)}


def test_this_jobs_run_is_the_default(monkeypatch: pytest.MonkeyPatch, asked: list[Any]) -> None:
    found = target(monkeypatch, "upload-stage")
    assert found.root.root().s3_uri == "s3://therock-ci-artifacts/100-linux"
    assert (found.is_pr_from_fork, found.notices, asked) == (False, (), [])


def test_a_forks_pull_request_is_told_by_the_payload(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = target(monkeypatch, "upload-stage", **event(tmp_path, {"full_name": "someone/TheRock"}))
    assert found.root.root().s3_uri == "s3://therock-ci-artifacts-external/ROCm-TheRock/100-linux"
    assert found.is_pr_from_fork
    assert not target(monkeypatch, "upload-stage", **event(tmp_path, {"full_name": "rocm/therock"})).is_pr_from_fork
    assert target(monkeypatch, "upload-stage", **event(tmp_path, None)).is_pr_from_fork


@pytest.mark.parametrize("path", ["", "/nowhere/event.json"])
def test_a_payload_that_cannot_be_read_is_an_error_only_where_it_decides(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    broken = {"GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": path}
    with pytest.raises(InputError):
        target(monkeypatch, "upload-stage", **broken)
    with pytest.raises(InputError):  # here it decides on the role
        target(monkeypatch, "upload-stage", **broken, GITHUB_REPOSITORY="ROCm/rocm-libraries")
    assert not target(monkeypatch, "upload-stage", "--release-type", "nightly", **broken).is_pr_from_fork
    monkeypatch.setenv("RELEASE_TYPE", "")
    assert target(monkeypatch, "upload-stage", IS_PR_FROM_FORK="true", **broken).is_pr_from_fork


@pytest.mark.parametrize(
    ("arguments", "looks_up"),
    [
        (["upload-stage"], False),
        (["upload-stage", "--run-id", "100"], False),
        (["upload-stage", "--run-id", "7"], True),
        (["upload-stage", "--repository", "ROCm/rocm-libraries"], True),
        (["upload-stage", "--repository", "rocm/therock"], False),
        (["upload-stage", "--run-id", "local-7"], False),
        (["upload-stage", "--run-id", "7", "--staging-dir", "out"], False),
        (["upload-stage", "--run-id", "7", "--lookup", "false"], False),
        (["upload-stage", "--lookup", "true"], True),
        (["locate", "--run-id", "7"], False),
        (["locate", "--run-id", "7", "--lookup", "true"], True),
    ],
)
def test_github_is_asked_about_a_run_that_is_not_this_jobs(
    monkeypatch: pytest.MonkeyPatch, asked: list[Any], arguments: list[str], looks_up: bool
) -> None:
    found = target(monkeypatch, *arguments)
    assert bool(asked) == looks_up
    assert found.is_pr_from_fork == looks_up


def test_the_lookup_uses_the_token_of_the_input_and_leaves_the_environments_to_the_library(
    monkeypatch: pytest.MonkeyPatch, asked: list[Any]
) -> None:
    target(monkeypatch, "locate", "--run-id", "7", "--lookup", "true", GITHUB_TOKEN="of-environment")
    target(monkeypatch, "locate", "--run-id", "7", "--lookup", "true", "--github-token", "of-input")
    assert asked == [("ROCm/TheRock", "7", ""), ("ROCm/TheRock", "7", "of-input")]


def test_what_is_waited_for_is_said_before(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def fetch(
        repository: Repository, run_id: str, *, token: str, wait: Callable[[float, str], None]
    ) -> dict[str, object]:
        assert said == ["asking GitHub about run 7 of ROCm/TheRock"]
        wait(2.4, "the connection was refused")
        return {"head_repository": None}

    monkeypatch.setattr(_github, "fetch_workflow_run", fetch)
    monkeypatch.setattr(CancelToken, "sleep", lambda _token, seconds: said.append(f"slept {seconds}"))
    settings, _warnings = load_settings(["locate", "--run-id", "7", "--lookup", "true"], os.environ)
    resolve_target(settings, CancelToken(), say=said.append)
    assert said[1:] == ["GitHub's API: the connection was refused: asking again in 2.4 s", "slept 2.4"]


def test_this_jobs_pull_request_says_nothing_about_another_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fork = event(tmp_path, {"full_name": "someone/TheRock"}) | {"IS_PR_FROM_FORK": "true"}
    assert target(monkeypatch, "locate", **fork).is_pr_from_fork
    other = target(monkeypatch, "locate", "--run-id", "7", **fork)
    assert not other.is_pr_from_fork
    assert other.root.root().s3_uri == "s3://therock-ci-artifacts/7-linux"
    assert target(monkeypatch, "locate", "--run-id", "7", **fork, GITHUB_RUN_ID="").is_pr_from_fork  # no job: a person


def test_another_run_of_this_repository_is_spelled_as_github_spells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    job = {"GITHUB_REPOSITORY": "ROCm/rocm-libraries"}
    other = target(monkeypatch, "locate", "--run-id", "7", "--repository", "rocm/ROCM-libraries", **job)
    assert other.root.prefix == "ROCm-rocm-libraries/7-linux"


@pytest.mark.parametrize(
    ("arguments", "noticed"),
    [
        (["locate"], False),
        (["locate", "--run-id", "100"], False),
        (["locate", "--run-id", "7"], True),
        (["locate", "--repository", "ROCm/rocm-libraries"], True),
        (["upload-stage", "--run-id", "7", "--staging-dir", "out"], False),
        (["upload-stage", "--run-id", "local-7", "--staging-dir", "out"], False),
        (["locate", "--run-id", "7", "--lookup", "false"], False),
        (["locate", "--run-id", "7", "--lookup", "true"], False),
    ],
)
def test_it_is_said_that_github_was_not_asked_about_another_run(
    monkeypatch: pytest.MonkeyPatch, asked: list[Any], arguments: list[str], noticed: bool
) -> None:
    notices = target(monkeypatch, *arguments).notices
    assert bool(notices) == noticed
    assert all("GitHub was not asked" in notice for notice in notices)


@pytest.mark.parametrize(
    ("arguments", "environment", "bucket", "noticed"),
    [
        (["locate"], {"RELEASE_TYPE": ""}, "therock-ci-artifacts", False),
        (["locate"], {"RELEASE_TYPE": "nightly"}, "therock-nightly-artifacts", False),
        (["locate", "--release-type", "dev"], {"RELEASE_TYPE": "nightly"}, "therock-dev-artifacts", False),
        (["locate", "--run-id", "7"], {"RELEASE_TYPE": "nightly"}, "therock-nightly-artifacts", True),
        (["locate", "--run-id", "7"], {"RELEASE_TYPE": ""}, "therock-ci-artifacts", False),
        (
            ["locate", "--run-id", "7", "--release-type", "dev"],
            {"RELEASE_TYPE": "nightly"},
            "therock-dev-artifacts",
            False,
        ),
        (
            ["locate", "--run-id", "7"],
            {"RELEASE_TYPE": "nightly", "GITHUB_RUN_ID": ""},
            "therock-nightly-artifacts",
            False,
        ),
    ],
)
def test_the_release_type_is_the_inputs_then_the_jobs_which_is_said_for_another_run(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], environment: dict[str, str], bucket: str, noticed: bool
) -> None:
    found = target(monkeypatch, *arguments, **environment)
    assert found.root.bucket == bucket
    assert any("release_type" in notice for notice in found.notices) == noticed


def test_another_repository_decides_on_bucket_and_prefix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fork = event(tmp_path, {"full_name": "someone/TheRock"})
    found = target(monkeypatch, "locate", "--repository", "ROCm/rocm-libraries", "--lookup", "false", **fork)
    assert found.root.root().s3_uri == "s3://therock-ci-artifacts-external/ROCm-rocm-libraries/100-linux"
    assert not found.is_pr_from_fork  # the payload speaks of this job's repository


def test_a_bucket_of_ones_own_keeps_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    found = target(monkeypatch, "locate", "--bucket", "mine", GITHUB_REPOSITORY="ROCm/rocm-libraries")
    assert found.root.root().s3_uri == "s3://mine/ROCm-rocm-libraries/100-linux"


@pytest.mark.parametrize(
    ("arguments", "environment", "platforms"),
    [
        (["locate", "--platform", "linux,windows"], {}, ["linux", "windows"]),
        (["locate", "--platform", "Windows"], {}, ["windows"]),
        (["locate", "--platform", "linux;linux"], {}, ["linux"]),
        (["locate"], {"RUNNER_OS": "Windows"}, ["windows"]),
    ],
)
def test_the_platform_is_the_inputs_then_the_runners(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], environment: dict[str, str], platforms: list[str]
) -> None:
    assert [root.platform for root in target(monkeypatch, *arguments, **environment).roots] == platforms


@pytest.mark.parametrize(("system", "platform"), [("linux", "linux"), ("win32", "windows"), ("darwin", "linux")])
def test_without_any_word_the_platform_is_this_machines(
    monkeypatch: pytest.MonkeyPatch, system: str, platform: str
) -> None:
    monkeypatch.setattr("sys.platform", system)
    assert target(monkeypatch, "locate", RUNNER_OS="").root.platform == platform


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["locate", "--platform", "macos"], {}),
        (["locate"], {"RUNNER_OS": "macOS"}),
        (["locate", "--run-id", "1/../2"], {}),
        (["locate", "--run-id", "1\n2"], {}),
        (["locate"], {"GITHUB_RUN_ID": "../1"}),
        (["locate", "--repository", "no-slash"], {}),
        (["locate", "--repository", "ROCm/.."], {}),
        (["locate", "--release-type", "weekly"], {}),
        (["locate"], {"RELEASE_TYPE": "weekly"}),
        (["locate", "--bucket", "a/b"], {}),
        (["locate"], {"IS_PR_FROM_FORK": "perhaps"}),
        (["upload-stage"], {"GITHUB_RUN_ID": ""}),
    ],
)
def test_values_that_cannot_be_used_are_input_errors(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], environment: dict[str, str]
) -> None:
    with pytest.raises(InputError):
        target(monkeypatch, *arguments, **environment)


def test_without_a_run_a_staging_folder_gets_a_local_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = target(monkeypatch, "upload-stage", "--staging-dir", "out", GITHUB_RUN_ID="", GITHUB_REPOSITORY="")
    assert found.root.prefix == "local-linux"


def test_a_mode_that_takes_one_platform_refuses_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    one = target(monkeypatch, "upload-stage", "--platform", "windows")
    assert single_root(one) is one.root
    with pytest.raises(InputError, match="platform is a list"):
        single_root(target(monkeypatch, "upload-stage", "--platform", "linux,windows"))


def source(monkeypatch: pytest.MonkeyPatch, *arguments: str, **environment: str) -> RunTarget:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings, _warnings = load_settings(["copy-artifacts", "--lookup", "false", *arguments], os.environ)
    return resolve_source(settings, CancelToken(), say=lambda _text: None)


def test_a_copys_source_is_another_run_of_its_own_repository_and_release_type(monkeypatch: pytest.MonkeyPatch) -> None:
    own = source(monkeypatch, "--source-run-id", "7", "--repository", "ROCm/rocm-systems")
    assert own.root.root().s3_uri == "s3://therock-ci-artifacts/7-linux"  # of this job's repository
    other = source(monkeypatch, "--source-run-id", "7", "--source-repository", "ROCm/rocm-libraries")
    assert other.root.root().s3_uri == "s3://therock-ci-artifacts-external/ROCm-rocm-libraries/7-linux"
    nightly = source(monkeypatch, "--source-run-id", "7", "--source-release-type", "nightly", "--release-type", "dev")
    assert nightly.root.bucket == "therock-nightly-artifacts"
    assert source(monkeypatch, "--source-run-id", "7", "--release-type", "dev").root.bucket == "therock-dev-artifacts"


def test_a_copys_source_is_in_the_bucket_that_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert source(monkeypatch, "--source-run-id", "7", "--bucket", "mine").root.bucket == "mine"
    both = source(monkeypatch, "--source-run-id", "7", "--bucket", "mine", "--source-bucket", "theirs")
    assert both.root.bucket == "theirs"


def test_a_copy_needs_a_source(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="source_run_id"):
        source(monkeypatch)


def test_where_a_run_is_looked_for_there_is_no_root_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert target(monkeypatch, "find-artifacts", "--commit", "0123abc", GITHUB_RUN_ID="").roots == ()


def test_a_record_decides_whose_the_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    settings, _warnings = load_settings(["find-artifacts", "--release-type", "ci"], {})
    repository = Repository.parse("rocm/therock")
    record = {"repository": {"full_name": "ROCm/TheRock"}, "head_repository": {"full_name": "ROCm/TheRock"}}
    root = root_of_record(settings, repository, record, run_id="7", platform="windows")
    assert root.root().s3_uri == "s3://therock-ci-artifacts/7-windows"
    forked = root_of_record(settings, repository, record | {"head_repository": None}, run_id="7", platform="linux")
    assert forked.root().s3_uri == "s3://therock-ci-artifacts-external/ROCm-TheRock/7-linux"


def test_one_platform_is_meant_or_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUNNER_OS", raising=False)
    assert single_platform(load_settings(["find-artifacts", "--platform", "windows"], {})[0]) == "windows"
    with pytest.raises(InputError, match="platform is a list"):
        single_platform(load_settings(["find-artifacts", "--platform", "windows,linux"], {})[0])
