"""What the input `path` may name, and which of the files there are sources."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from _therock_utils._errors import InputError, LocalFileError
from fakes.contexts import STAGED, make_context
from fakes.trees import write_tree
from therock_outputs.mode_names import Mode
from therock_outputs.modes._source import SourceFolder
from therock_outputs.paths import Workspace
from therock_outputs.report_file import REPORT_FOLDER

pytestmark = pytest.mark.usefixtures("no_job")

HTML = (".html", ".htm")


def find(workspace: Path, path: str, *, file_extensions: tuple[str, ...] = ()) -> SourceFolder:
    return SourceFolder.find(make_context(workspace, Mode.UPLOAD_REPORT, path=path), file_extensions=file_extensions)


def names(workspace: Path, path: str = "dist", *, top_level_only: bool = False, **inputs: object) -> list[str]:
    context = make_context(workspace, Mode.UPLOAD_REPORT, path=path, **inputs)
    walked = SourceFolder.find(context, file_extensions=HTML).walk(
        context, key_prefix="100-linux/x", top_level_only=top_level_only, include_hidden=True
    )
    assert all(found == walked_path(workspace, path, name) for found, name in walked.files)
    return [*(name for _, name in walked.files), *(f"{file.path}: {file.reason}" for file in walked.skipped)]


def walked_path(workspace: Path, path: str, name: str) -> Path:
    folder = workspace / path
    return folder if folder.is_file() else folder / name


def test_a_folder_is_found_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "dist").mkdir()
    (tmp_path / "link").symlink_to("dist")
    assert find(tmp_path, "dist") == SourceFolder(tmp_path / "dist")
    assert find(tmp_path, "link") == SourceFolder(tmp_path / "link")


def test_a_missing_folder_is_a_finding(tmp_path: Path) -> None:
    assert find(tmp_path, "dist").absence == "there is no folder dist"
    assert find(tmp_path, "dist/page.HTML").absence == "there is no folder dist/page.HTML"
    assert find(tmp_path, "dist/page.HTML", file_extensions=HTML).absence == "there is no file dist/page.HTML"
    assert find(tmp_path, "dist", file_extensions=HTML).absence == "there is no folder dist"
    write_tree(tmp_path, {"file": "x"})
    assert find(tmp_path, "file/dist").absence == "there is no folder file/dist"


def test_a_path_of_another_file_system_comes_with_a_hint(tmp_path: Path) -> None:
    import dataclasses

    context = make_context(tmp_path, Mode.UPLOAD_REPORT, path="/elsewhere/dist")
    context = dataclasses.replace(context, workspace=Workspace(tmp_path, ("/home/runner/work",)))
    absence = SourceFolder.find(context).absence
    assert absence.startswith("there is no folder /elsewhere/dist. Only the workspace and RUNNER_TEMP are mounted here")


def test_without_a_path_there_is_nothing_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mode upload-report needs path") as caught:
        find(tmp_path, "")
    assert caught.value.remedy == "Give a folder: what is to be stored."


@pytest.mark.parametrize(
    ("name", "extensions", "message"),
    [
        ("a.html", (), "path 'a.html' is a file, not a folder"),
        ("a.txt", HTML, r"path 'a.txt' is a file, not a folder or a file \*.html or \*.htm"),
        ("link.html", HTML, "path 'link.html' is a symbolic link, not a folder or a file"),
        ("gone.html", HTML, "path 'gone.html' is a symbolic link, not a folder or a file"),
        ("pipe.html", HTML, "path 'pipe.html' is a named pipe, not a folder or a file"),
    ],
)
def test_what_is_neither_folder_nor_wanted_file_is_refused(
    tmp_path: Path, name: str, extensions: tuple[str, ...], message: str
) -> None:
    write_tree(tmp_path, {"a.html": "x", "a.txt": "x"})
    (tmp_path / "link.html").symlink_to("a.html")
    (tmp_path / "gone.html").symlink_to("nothing")
    os.mkfifo(tmp_path / "pipe.html")
    with pytest.raises(InputError, match=message):
        find(tmp_path, name, file_extensions=extensions)


def test_a_path_that_cannot_be_looked_at_is_told(tmp_path: Path) -> None:
    with pytest.raises(LocalFileError, match="cannot be looked at"):
        find(tmp_path, "a" * 300)


def test_one_file_is_all_of_its_folder_that_is_a_source(tmp_path: Path) -> None:
    write_tree(tmp_path, {"dist/a.HTML": "x", "dist/b.html": "x"})
    assert find(tmp_path, "dist/a.HTML", file_extensions=HTML) == SourceFolder(tmp_path / "dist", file_name="a.HTML")
    assert names(tmp_path, "dist/a.HTML") == ["a.HTML"]
    assert names(tmp_path, "dist/a.HTML", include="*.html") == []
    assert names(tmp_path, "dist/a.HTML", exclude="a.*") == []


def test_one_file_whose_name_no_key_has_is_left_out(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a\nb.html": "x"})
    (only,) = names(tmp_path, "a\nb.html")
    assert only == "'a\\nb.html': its name cannot be part of an object key: it has a control character"


def test_a_key_at_the_buckets_root_has_no_prefix(tmp_path: Path) -> None:
    write_tree(tmp_path, {"a.html": "x"})
    context = make_context(tmp_path, Mode.UPLOAD_REPORT, path="a.html")
    walked = SourceFolder.find(context, file_extensions=HTML).walk(context, key_prefix="")
    assert walked.files == ((tmp_path / "a.html", "a.html"),)


def test_the_patterns_choose_among_the_files(tmp_path: Path) -> None:
    write_tree(tmp_path / "dist", {"a.html": "x", "b.html": "x", "sub/c.html": "x", "d.css": "x"})
    assert names(tmp_path) == ["a.html", "b.html", "d.css", "sub/c.html"]
    assert names(tmp_path, include="*.html", exclude="sub/**") == ["a.html", "b.html"]


def test_the_top_level_is_that_and_no_sub_folder_is_even_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path / "dist", {"a.html": "x", "sub/c.html": "x", ".work/deep/d.html": "x"})
    (tmp_path / "dist" / "link").symlink_to("sub")
    scandir, read = os.scandir, []
    monkeypatch.setattr(os, "scandir", lambda path: read.append(Path(path)) or scandir(path))
    assert names(tmp_path, top_level_only=True) == ["a.html"]
    assert names(tmp_path, top_level_only=True, include="*.css") == []
    assert read == [tmp_path / "dist"] * 2


def test_hidden_files_are_left_out_unless_wanted(tmp_path: Path) -> None:
    write_tree(tmp_path / "dist", {".a.html": "x", "b.html": "x"})
    context = make_context(tmp_path, Mode.UPLOAD_REPORT, path="dist")
    walked = SourceFolder.find(context).walk(context, key_prefix="x")
    assert [name for _, name in walked.files] == ["b.html"]
    assert names(tmp_path) == [".a.html", "b.html"]


def test_what_this_program_wrote_itself_is_no_source(tmp_path: Path) -> None:
    write_tree(
        tmp_path,
        {"a.html": "x", f"{STAGED}/100-linux/b.html": "x", f"{REPORT_FOLDER}/c.json": "{}", f"{STAGED}.html": "x"},
    )
    (tmp_path / STAGED / "link").symlink_to("nothing")
    assert names(tmp_path, ".") == ["a.html", f"{STAGED}.html"]


def test_a_source_in_the_staging_folder_is_one_all_the_same(tmp_path: Path) -> None:
    write_tree(tmp_path, {f"{STAGED}/in/b.html": "x"})
    assert names(tmp_path, f"{STAGED}/in") == ["b.html"]
    assert names(tmp_path, STAGED) == ["in/b.html"]
