"""A path means the same folder whichever name of the workspace the job used, and files get their owner."""

from __future__ import annotations

import os
import stat
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


as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
_OWNER = (1234, 2345)


def owner(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid


@as_root
def test_what_is_adopted_gets_the_workspaces_owner_and_sharing_down_to_it(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    file = workspace / "a" / "b" / "c" / "file"
    file.parent.mkdir(parents=True)
    file.touch(0o600)
    script = file.with_name("script")
    script.touch(0o755)
    sibling = workspace / "a" / "sibling"
    sibling.touch()
    workspace.chmod(0o775)
    os.chown(workspace, *_OWNER)
    Workspace(workspace).adopt(workspace / "a" / "b")
    adopted = [workspace / "a", workspace / "a" / "b", file.parent, file, script]
    assert {owner(path) for path in adopted} == {_OWNER}
    assert owner(sibling) == (0, 0)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file, script)]
    assert modes == [0o775, 0o664, 0o775]


@as_root
def test_links_are_not_followed_when_files_are_adopted(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    (workspace / "staged").mkdir(parents=True)
    outside.mkdir()
    (outside / "file").touch(0o600)
    (workspace / "staged" / "folder").symlink_to(outside)
    (workspace / "staged" / "file").symlink_to(outside / "file")
    os.chown(workspace, *_OWNER)
    Workspace(workspace).adopt(workspace / "staged")
    assert owner(workspace / "staged" / "file") == _OWNER
    assert owner(outside) == owner(outside / "file") == (0, 0)
    assert stat.S_IMODE((outside / "file").stat().st_mode) == 0o600


@as_root
def test_what_lies_outside_the_workspace_is_left_alone(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    os.chown(workspace, *_OWNER)
    Workspace(workspace).adopt(outside)
    assert owner(outside) == (0, 0)


def test_what_cannot_be_adopted_is_no_failure(tmp_path: Path) -> None:
    Workspace(tmp_path / "missing").adopt(tmp_path / "missing" / "a")
    Workspace(tmp_path).adopt(tmp_path / "missing" / "a")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no such owners")
def test_other_users_than_root_give_nothing_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    given: list[object] = []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "chown", lambda *arguments, **_options: given.append(arguments))
    Workspace(tmp_path).adopt(tmp_path / "a")
    assert given == []
