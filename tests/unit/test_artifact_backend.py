"""Which backend the environment asks for, and whether GitHub is asked about the run."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from _therock_utils import _github
from _therock_utils._errors import GitHubError, IllegalLocationError, InputError
from _therock_utils.artifact_backend import LocalDirectoryBackend, S3Backend, create_backend_from_env

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _therock_utils.s3_buckets import Repository

FORK = {"repository": {"full_name": "ROCm/TheRock"}, "head_repository": {"full_name": "someone/TheRock"}}


@pytest.fixture(autouse=True)
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """A clean environment, in which GitHub knows every run as a fork's pull request; what it was asked."""
    for name in (
        "THEROCK_LOCAL_STAGING_DIR",
        "THEROCK_RUN_ID",
        "THEROCK_PLATFORM",
        "GITHUB_RUN_ID",
        "GITHUB_REPOSITORY",
        "GITHUB_EVENT_NAME",
        "IS_PR_FROM_FORK",
        "RELEASE_TYPE",
    ):
        monkeypatch.delenv(name, raising=False)
    asked: list[tuple[str, str]] = []

    def fetch(repository: Repository, run_id: str) -> Mapping[str, object]:
        asked.append((repository.full_name, run_id))
        return FORK

    monkeypatch.setattr(_github, "fetch_workflow_run", fetch)
    return asked


def test_a_staging_directory_wins_and_asks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lookups: list[tuple[str, str]]
) -> None:
    monkeypatch.setenv("THEROCK_LOCAL_STAGING_DIR", f"{tmp_path}\n")
    monkeypatch.setenv("GITHUB_RUN_ID", "1")
    monkeypatch.setenv("THEROCK_RUN_ID", "2")
    monkeypatch.setenv("THEROCK_PLATFORM", "windows")
    backend = create_backend_from_env()
    assert isinstance(backend, LocalDirectoryBackend)
    assert Path(backend.base_uri) == tmp_path / "2-windows"
    named = create_backend_from_env(run_id="override-run", platform="override")
    assert Path(named.base_uri).name == "override-run-override"
    assert lookups == []


@pytest.mark.parametrize(
    ("variables", "run_id"),
    [
        ({}, "local"),
        ({"GITHUB_RUN_ID": "1"}, "1"),
        ({"THEROCK_RUN_ID": "", "GITHUB_RUN_ID": "1"}, "1"),
        ({"THEROCK_RUN_ID": "my-build", "GITHUB_RUN_ID": "1"}, "my-build"),
        ({"THEROCK_RUN_ID": "2"}, "2"),
    ],
)
def test_the_run_and_platform_are_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, lookups: list[tuple[str, str]], variables: dict[str, str], run_id: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    backend = create_backend_from_env()
    assert isinstance(backend, S3Backend)
    assert backend.base_uri == f"s3://therock-ci-artifacts/{run_id}-{platform.system().lower()}"
    monkeypatch.setenv("THEROCK_PLATFORM", "windows")
    assert create_backend_from_env().base_uri == f"s3://therock-ci-artifacts/{run_id}-windows"
    assert lookups == []


def test_another_run_than_the_job_s_is_looked_up(
    monkeypatch: pytest.MonkeyPatch, lookups: list[tuple[str, str]]
) -> None:
    monkeypatch.setenv("GITHUB_RUN_ID", "1")
    there = "s3://therock-ci-artifacts-external/ROCm-TheRock"
    assert create_backend_from_env("2", platform="linux").base_uri == f"{there}/2-linux"
    monkeypatch.setenv("THEROCK_RUN_ID", "3")
    assert create_backend_from_env(platform="linux").base_uri == f"{there}/3-linux"
    assert create_backend_from_env("1", platform="linux").base_uri == "s3://therock-ci-artifacts/1-linux"
    assert lookups == [("ROCm/TheRock", "2"), ("ROCm/TheRock", "3")]


def test_another_repository_s_run_is_looked_up(monkeypatch: pytest.MonkeyPatch, lookups: list[tuple[str, str]]) -> None:
    monkeypatch.setenv("GITHUB_REPOSITORY", "ROCm/rocm-libraries")
    monkeypatch.setenv("GITHUB_RUN_ID", "1")
    create_backend_from_env("1", "ROCm/TheRock", "linux")
    create_backend_from_env("1", "rocm/ROCM-libraries", "linux")
    create_backend_from_env("1", "", "linux")
    assert lookups == [("ROCm/TheRock", "1")]


def test_a_run_may_be_given_as_the_number_that_it_is(
    monkeypatch: pytest.MonkeyPatch, lookups: list[tuple[str, str]]
) -> None:
    monkeypatch.setenv("GITHUB_RUN_ID", "1")
    assert create_backend_from_env(500, platform="linux").base_uri.endswith("/500-linux")
    assert lookups == [("ROCm/TheRock", "500")]


@pytest.mark.parametrize("name", ["Linux", "WINDOWS", "linux"])
def test_a_platform_is_meant_in_any_case(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert create_backend_from_env("local", platform=name).base_uri.endswith(f"/local-{name.lower()}")
    monkeypatch.setenv("THEROCK_PLATFORM", name)
    assert create_backend_from_env("local").base_uri.endswith(f"/local-{name.lower()}")


def test_a_lookup_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(repository: Repository, run_id: str) -> Mapping[str, object]:
        raise GitHubError(f"{repository.full_name} {run_id}")

    monkeypatch.setattr(_github, "fetch_workflow_run", fail)
    monkeypatch.setenv("GITHUB_RUN_ID", "1")
    with pytest.raises(GitHubError):
        create_backend_from_env("2")


def test_what_cannot_be_used_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(IllegalLocationError):
        create_backend_from_env("../1")
    with pytest.raises(InputError):
        create_backend_from_env("1", "no repository")
    monkeypatch.setenv("THEROCK_PLATFORM", "Linux/../x")
    with pytest.raises(IllegalLocationError):
        create_backend_from_env()
