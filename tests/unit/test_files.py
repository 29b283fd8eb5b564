"""Walking a folder finds what can be uploaded, and says what was left out and why."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from _therock_utils import _files
from _therock_utils._errors import InputError, LocalFileError
from _therock_utils._files import is_junction, kind_fault, walk_files


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode("utf-8", "surrogateescape"))


def names(result: _files.WalkResult) -> list[str]:
    return [relative for _, relative in result.files]


def skipped(result: _files.WalkResult) -> dict[str, str]:
    return {file.path: file.reason for file in result.skipped}


def test_files_come_sorted_by_relative_path_with_their_real_path(tmp_path: Path) -> None:
    make(tmp_path, "b/c.log", "b.log", "a/z", "é", "Z", "b-c", "a/.x")
    result = walk_files(tmp_path)
    assert names(result) == sorted(["b/c.log", "b.log", "a/z", "é", "Z", "b-c", "a/.x"], key=str.encode)
    assert all(path == tmp_path / relative and path.is_file() for path, relative in result.files)
    assert result.skipped == ()


def test_an_empty_folder_gives_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert walk_files(tmp_path) == _files.WalkResult((), ())


def test_a_linked_root_is_followed(tmp_path: Path) -> None:
    make(tmp_path, "real/a")
    (tmp_path / "root").symlink_to("real")
    assert names(walk_files(tmp_path / "root")) == ["a"]


def test_symbolic_links_are_listed_and_never_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    make(tmp_path, "root/a/file", "outside/secret")
    (root / "to_file").symlink_to("a/file")
    (root / "to_outside").symlink_to(tmp_path / "outside")
    (root / "a" / "loop").symlink_to("..")
    (root / "self").symlink_to("self")
    (root / "broken").symlink_to("nowhere")
    result = walk_files(root)
    assert names(result) == ["a/file"]
    links = ["a/loop", "broken", "self", "to_file", "to_outside"]
    assert skipped(result) == dict.fromkeys(links, "it is a symbolic link")
    assert [file.path for file in result.skipped] == links


def test_what_is_no_regular_file_is_listed_with_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert skipped(walk_files(tmp_path)) == {"pipe": "it is a named pipe", "socket": "it is a socket"}


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        (stat.S_IFREG, ""),
        (stat.S_IFLNK, "a symbolic link"),
        (stat.S_IFDIR, "a folder"),
        (stat.S_IFIFO, "a named pipe"),
        (stat.S_IFSOCK, "a socket"),
        (stat.S_IFBLK, "a device"),
        (stat.S_IFCHR, "a device"),
        (0, "no regular file"),
    ],
)
def test_every_kind_of_file_has_a_name(mode: int, kind: str) -> None:
    assert kind_fault(mode | 0o644) == kind


def test_names_that_make_no_key_are_listed_so_that_they_can_be_printed(tmp_path: Path) -> None:
    bad = ["new\nline", "back\\slash", "bell\x07", "bad-\udcff", "sep\u2028"]
    make(tmp_path, "good", *bad, "bad\x1bdir/inner")
    result = walk_files(tmp_path)
    assert names(result) == ["good"]
    assert set(skipped(result)) == {ascii(name) for name in [*bad, "bad\x1bdir"]}
    assert all(path.isprintable() and path.isascii() for path in skipped(result))
    assert all("cannot be part of an object key" in reason for reason in skipped(result).values())


def test_hostile_but_legal_names_are_files(tmp_path: Path) -> None:
    hostile = ["::error::x.log", "a b+#?%~é:[x].log", "-rf", "$(x)", "..x", "<b>.html"]
    make(tmp_path, *hostile)
    assert names(walk_files(tmp_path)) == sorted(hostile)


def test_a_path_too_long_for_a_key_is_listed(tmp_path: Path) -> None:
    folder = "/".join(["d" * 200] * 5)
    make(tmp_path, f"{folder}/ok", f"{folder}/{'x' * 30}")
    result = walk_files(tmp_path)
    assert names(result) == [f"{folder}/ok"]
    assert "more than 1024" in next(iter(skipped(result).values()))


def test_a_path_too_long_for_a_key_below_its_prefix_is_listed(tmp_path: Path) -> None:
    make(tmp_path, "d/é", "d/ab", "a")
    result = walk_files(tmp_path, key_prefix="p" * 1020)
    assert names(result) == ["a"]
    assert list(skipped(result)) == ["d/ab", "d/é"]


def test_globs_choose_files_and_what_is_told_as_skipped(tmp_path: Path) -> None:
    make(tmp_path, "a.log", "a.txt", "logs/b.log", "logs/ccache/raw.log")
    for link in ("link.log", "link.txt", "logs/ccache/link.log"):
        (tmp_path / link).symlink_to("a.log")
    (tmp_path / "linked_folder").symlink_to("logs")
    (tmp_path / "other_folder").symlink_to("logs")
    result = walk_files(tmp_path, include=["*.log"], exclude=["logs/ccache/**", "other_folder/"])
    assert names(result) == ["a.log", "logs/b.log"]
    assert list(skipped(result)) == ["link.log", "linked_folder"]


def test_an_excluded_subtree_is_not_even_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "logs/a", "logs/ccache/0/x")
    read: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: read.append(os.path.relpath(path, tmp_path)) or scandir(path))
    assert names(walk_files(tmp_path, exclude=["logs/ccache/"])) == ["logs/a"]
    assert read == [".", "logs"]


def test_hidden_files_can_be_left_out(tmp_path: Path) -> None:
    make(tmp_path, "a", ".hidden", ".git/config", "d/.x/y")
    (tmp_path / ".link").symlink_to("a")
    assert names(walk_files(tmp_path)) == [".git/config", ".hidden", "a", "d/.x/y"]
    result = walk_files(tmp_path, include_hidden=False)
    assert (names(result), skipped(result)) == (["a"], {})


def test_a_very_deep_tree_needs_no_recursion(tmp_path: Path) -> None:
    deep = "/".join("d" * 500)
    make(tmp_path, f"{deep}/x")
    assert names(walk_files(tmp_path)) == [f"{deep}/x"]


@pytest.mark.parametrize("name", ["missing", "file", "file/below"])
def test_a_root_that_is_no_folder_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    make(tmp_path, "file")
    with pytest.raises(LocalFileError, match=name):
        walk_files(tmp_path / name)


def test_a_bad_pattern_is_an_error_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        walk_files(tmp_path / "missing", include=["[a"])


def deny(monkeypatch: pytest.MonkeyPatch, denied: Path, error: OSError) -> None:
    """Make one folder unreadable, also for root."""
    scandir = os.scandir

    def scandir_or_fail(path: Path) -> object:
        if Path(path) == denied:
            raise error
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scandir_or_fail)


def test_an_unreadable_folder_is_listed_and_the_rest_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a/x", "b/y")
    deny(monkeypatch, tmp_path / "a", PermissionError(13, "Permission denied"))
    result = walk_files(tmp_path, include=["*y", "*x"])
    assert names(result) == ["b/y"]
    assert skipped(result) == {"a": "the folder cannot be read: Permission denied"}


def test_a_folder_that_vanishes_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a/x", "b/y")
    deny(monkeypatch, tmp_path / "a", FileNotFoundError(2, "No such file or directory"))
    assert skipped(walk_files(tmp_path)) == {"a": "it vanished while the folder was read"}


def test_an_unreadable_root_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deny(monkeypatch, tmp_path, PermissionError(13, "Permission denied"))
    with pytest.raises(LocalFileError, match="Permission denied"):
        walk_files(tmp_path)


class FakeEntry:
    """An entry whose kind the folder does not say, and that cannot be looked at."""

    name = "x"

    def __init__(self, error: OSError) -> None:
        self.error = error

    def is_symlink(self) -> bool:
        raise self.error


def test_entries_that_vanish_or_cannot_be_looked_at_are_listed() -> None:
    assert _files._classify(FakeEntry(FileNotFoundError())) == (False, "it vanished while the folder was read")
    assert _files._classify(FakeEntry(OSError(5, "Input/output error"))) == (
        False,
        "it cannot be looked at: Input/output error",
    )


def test_a_windows_junction_is_told_by_its_reparse_tag() -> None:
    class Status:
        st_reparse_tag = 0xA0000003

    assert is_junction(Status())
    assert not is_junction(os.stat_result(range(10)))
