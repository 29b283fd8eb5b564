"""The report file lies in the workspace, is new each time, and goes through no link."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from _therock_utils._errors import LocalFileError
from therock_outputs.mode_names import Mode
from therock_outputs.paths import Workspace
from therock_outputs.report_file import REPORT_FOLDER, write_report_file

if TYPE_CHECKING:
    from pathlib import Path


def test_the_path_is_relative_to_the_workspace_and_new_each_time(tmp_path: Path) -> None:
    paths = [write_report_file(Workspace(tmp_path), Mode.LOCATE, b"{}") for _ in range(2)]
    assert len(set(paths)) == 2
    for path in paths:
        assert path.startswith(f"{REPORT_FOLDER}/locate-")
        assert (tmp_path / path).read_bytes() == b"{}"
    assert len(list((tmp_path / REPORT_FOLDER).iterdir())) == 2


@pytest.mark.parametrize("leads_to", ["folder", "nowhere"])
def test_a_link_in_its_place_is_refused(tmp_path: Path, leads_to: str) -> None:
    workspace, outside = tmp_path / "workspace", tmp_path / "folder"
    workspace.mkdir()
    outside.mkdir()
    (workspace / REPORT_FOLDER).symlink_to(tmp_path / leads_to)
    with pytest.raises(LocalFileError, match="is in the way"):
        write_report_file(Workspace(workspace), Mode.LOCATE, b"{}")
    assert list(outside.iterdir()) == []


def test_a_file_in_its_place_is_a_local_file_error(tmp_path: Path) -> None:
    (tmp_path / REPORT_FOLDER).touch()
    with pytest.raises(LocalFileError):
        write_report_file(Workspace(tmp_path), Mode.LOCATE, b"{}")


def test_a_workspace_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(LocalFileError) as caught:
        write_report_file(Workspace(tmp_path / "missing"), Mode.LOCATE, b"{}")
    assert caught.value.why == "No such file or directory"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_it_belongs_to_the_owner_of_the_workspace(tmp_path: Path) -> None:
    os.chown(tmp_path, 1234, 2345)
    report = tmp_path / write_report_file(Workspace(tmp_path), Mode.LOCATE, b"{}")
    for path in (report, report.parent):
        assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)
