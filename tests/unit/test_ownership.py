"""What root writes into the workspace becomes the job's, and nothing else does."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from therock_outputs.ownership import Adoption

if TYPE_CHECKING:
    from pathlib import Path

as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
_OWNER = (1234, 2345)
_OTHER = (3456, 4567)


def owner(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        os.chown(folder, *_OWNER)
    return folder


def write(path: Path, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.chmod(mode)
    return path


@as_root
def test_files_and_the_folders_made_for_them_get_the_workspaces_owner(workspace: Path) -> None:
    adoption = Adoption(workspace, workspace / "a" / "staged")
    files = [write(workspace / "a" / "staged" / name) for name in ("one", "x/y/two", "x/three")]
    adoption.adopt(files)
    made = [workspace / "a", workspace / "a/staged", workspace / "a/staged/x", workspace / "a/staged/x/y"]
    assert {owner(path) for path in (*made, *files)} == {_OWNER}


@as_root
def test_no_mode_changes(workspace: Path) -> None:
    workspace.chmod(0o777)
    adoption = Adoption(workspace, workspace / "staged")
    file, script = write(workspace / "staged" / "file", 0o640), write(workspace / "staged" / "script", 0o711)
    (workspace / "staged").chmod(0o700)
    adoption.adopt([file, script])
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (workspace / "staged", file, script)]
    assert modes == [0o700, 0o640, 0o711]


@as_root
def test_what_was_there_before_and_what_others_wrote_stays_as_it_was(workspace: Path) -> None:
    earlier = write(workspace / "a" / "secret")
    adoption = Adoption(workspace, workspace / "a" / "staged")
    file, not_ours = write(workspace / "a" / "staged" / "file"), write(workspace / "a" / "staged" / "not-ours")
    others = write(workspace / "a" / "staged" / "others")
    os.chown(others, *_OTHER)
    adoption.adopt([file, others])
    assert {owner(path) for path in (file, file.parent)} == {_OWNER}
    assert {owner(path) for path in (earlier, earlier.parent, not_ours)} == {(0, 0)}
    assert owner(others) == _OTHER


@as_root
def test_the_workspace_itself_can_be_the_folder(workspace: Path) -> None:
    secret, file = write(workspace / "secret"), write(workspace / "100-linux" / "file")
    Adoption(workspace, workspace).adopt([file])
    assert {owner(path) for path in (file, file.parent)} == {_OWNER}
    assert owner(secret) == (0, 0)


@as_root
def test_links_are_not_followed(workspace: Path, tmp_path: Path) -> None:
    victim = write(tmp_path / "outside" / "file")
    adoption = Adoption(workspace, workspace / "staged")
    (workspace / "staged").mkdir()
    (workspace / "staged" / "folder").symlink_to(victim.parent)
    (workspace / "staged" / "file").symlink_to(victim)
    (workspace / "staged" / "hard").hardlink_to(victim)
    adoption.adopt([workspace / "staged" / name for name in ("folder/file", "file", "hard")])
    assert owner(victim) == owner(victim.parent) == (0, 0)
    assert stat.S_IMODE(victim.stat().st_mode) == 0o600


@as_root
def test_a_pipe_in_a_files_place_does_not_make_it_wait(workspace: Path) -> None:
    (workspace / "staged").mkdir()
    os.mkfifo(workspace / "staged" / "file")
    Adoption(workspace, workspace / "staged").adopt([workspace / "staged" / "file"])
    assert owner(workspace / "staged" / "file") == (0, 0)


@as_root
def test_what_lies_outside_the_workspace_is_left_alone(workspace: Path, tmp_path: Path) -> None:
    adoption = Adoption(workspace, tmp_path / "outside")
    file = write(tmp_path / "outside" / "file")
    adoption.adopt([file])
    assert owner(file) == owner(file.parent) == (0, 0)


def test_what_cannot_be_adopted_is_no_failure(tmp_path: Path) -> None:
    Adoption(tmp_path / "missing", tmp_path / "missing" / "a").adopt([tmp_path / "missing" / "a" / "b"])
    Adoption(tmp_path, tmp_path / "missing").adopt([tmp_path / "missing" / "a"])


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no such owners")
def test_other_users_than_root_give_nothing_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[object] = []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "fchown", lambda *arguments: given.append(arguments))
    Adoption(tmp_path, tmp_path / "a").adopt([write(tmp_path / "a" / "b")])
    assert given == []
