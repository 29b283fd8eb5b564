"""A path means the same folder whichever name of the workspace the job used."""

from __future__ import annotations

from pathlib import Path

import pytest

from _therock_utils._errors import InputError
from therock_outputs.paths import Workspace

HOST = "/home/runner/work/TheRock"


@pytest.fixture
def container() -> Workspace:
    return Workspace.from_environment(workspace="/github/workspace", runner_workspace=HOST, repository="ROCm/TheRock")


@pytest.mark.parametrize(
    ("value", "resolved"),
    [
        ("build", "/github/workspace/build"),
        ("./a/../build/", "/github/workspace/build"),
        (".", "/github/workspace"),
        ("/github/workspace/build", "/github/workspace/build"),
        (f"{HOST}/TheRock", "/github/workspace"),
        (f"{HOST}/TheRock/", "/github/workspace"),
        (f"{HOST}/TheRock//build", "/github/workspace/build"),
        (f"{HOST}/TheRock2", f"{HOST}/TheRock2"),
        (f"{HOST}/TheRock2/build", f"{HOST}/TheRock2/build"),
        (HOST, HOST),
        ("/__w/TheRock/TheRock/build", "/github/workspace/build"),
        ("/__w/TheRock/TheRock2/build", "/__w/TheRock/TheRock2/build"),
        ("../outside", "/github/outside"),
        ("/opt/build", "/opt/build"),
        ("C:\\build", "/github/workspace/C:\\build"),
        ("build\n", "/github/workspace/build\n"),
    ],
)
def test_a_path_is_found_in_the_container(container: Workspace, value: str, resolved: str) -> None:
    assert container.resolve(value, what="build_dir") == Path(resolved)


@pytest.mark.parametrize("value", ["", "a\0b", "\0"])
def test_what_no_file_system_takes_is_an_input_error_that_names_the_input(container: Workspace, value: str) -> None:
    with pytest.raises(InputError, match=r"^staging_dir ") as caught:
        container.resolve(value, what="staging_dir")
    assert "\0" not in str(caught.value)


@pytest.mark.parametrize(
    ("runner_workspace", "repository"),
    [("", "ROCm/TheRock"), (HOST, ""), ("D:\\a\\TheRock", "ROCm/TheRock"), ("relative", "ROCm/TheRock")],
)
def test_an_unknown_host_maps_nothing(runner_workspace: str, repository: str) -> None:
    workspace = Workspace.from_environment(
        workspace="/github/workspace", runner_workspace=runner_workspace, repository=repository
    )
    assert workspace.other_names == ()
    assert workspace.hint("/x", Path("/x")) == ""


def test_without_a_workspace_paths_are_relative_to_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    workspace = Workspace.from_environment(workspace="", runner_workspace=HOST, repository="ROCm/TheRock")
    assert workspace.resolve("build", what="build_dir") == tmp_path / "build"
    assert workspace.other_names == ()


def test_on_the_host_itself_nothing_is_mapped_or_hinted() -> None:
    workspace = Workspace.from_environment(
        workspace=f"{HOST}/TheRock", runner_workspace=HOST, repository="ROCm/TheRock"
    )
    assert workspace.other_names == ()
    path = workspace.resolve(f"{HOST}/TheRock/build", what="build_dir")
    assert workspace.hint(f"{HOST}/TheRock/build", path) == ""


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("build", ""),
        (f"{HOST}/TheRock/build", "In a job with `container:`"),
        ("/__w/TheRock/TheRock/build", "In a job with `container:`"),
        ("/github/workspace/build", "In a job with `container:`"),
        (f"{HOST}/TheRock2", "Only the workspace and RUNNER_TEMP are mounted"),
        ("/opt/build", "Only the workspace and RUNNER_TEMP are mounted"),
    ],
)
def test_a_missing_path_is_explained_where_the_container_may_be_why(
    container: Workspace, value: str, words: str
) -> None:
    hint = container.hint(value, container.resolve(value, what="build_dir"))
    assert hint.startswith(words)
    assert bool(hint) == bool(words)


def test_paths_are_shown_relative_to_the_workspace() -> None:
    workspace = Workspace(Path("/github/workspace"))
    assert workspace.shown(Path("/github/workspace/a/b")) == "a/b"
    assert workspace.shown(Path("/github/workspace")) == "."
    assert workspace.shown(Path("/github/workspace2/a")) == str(Path("/github/workspace2/a"))


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/github/workspace/out", True),
        ("/github/runner_temp/out", True),
        ("/github/runner_temp2", False),
        ("/github/out", False),
        ("/home/runner/work/_temp/out", False),
    ],
)
def test_the_job_sees_what_a_container_writes_to_the_workspace_and_to_runner_temp_only(
    container: Workspace, path: str, seen: bool
) -> None:
    assert container.is_seen_by_job(Path(path), runner_temp="/github/runner_temp") == seen
    assert Workspace(Path("/github/workspace")).is_seen_by_job(Path(path), runner_temp="")


def test_without_runner_temp_only_the_workspace_is_seen(container: Workspace) -> None:
    assert container.is_seen_by_job(Path("/github/workspace"), runner_temp="")
    assert not container.is_seen_by_job(Path("/github/runner_temp/out"), runner_temp="")
