"""Archives of logs: the same logs give the same bytes, and what could not be taken whole is told."""

from __future__ import annotations

import gzip
import io
import os
import random
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError
from _therock_utils._transfer_types import SkippedFile
from fakes.trees import write_tree
from therock_outputs import log_archives
from therock_outputs.log_archives import LogArchive, write_ccache_archive, write_ninja_archive

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NINJA_TREE = {
    "a/build/.ninja_log": "# ninja log v5\n1\n",
    "b/.ninja_log": "# ninja log v5\n2\n",
    ".ninja_log": "# ninja log v5\n3\n",
    "b/other.log": "not taken",
    ".git/.ninja_log": "not taken",
    "c/.ninja_log/file": "not taken",
}


def ninja(build: Path, target: Path) -> LogArchive:
    made = write_ninja_archive(build, target, cancel=CancelToken())
    assert made is not None
    return made


def ccache(folder: Path, target: Path) -> LogArchive:
    made = write_ccache_archive(folder, target, cancel=CancelToken())
    assert made is not None
    return made


def members(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        found = {}
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            found[member.name] = file.read()
        return found


def ccache_members(archive: LogArchive) -> dict[str, bytes]:
    return members(zstd.decompress(archive.path.read_bytes()))


def test_the_ninja_archive_holds_every_ninja_log_by_its_path_in_the_build(tmp_path: Path) -> None:
    archive = ninja(write_tree(tmp_path / "build", NINJA_TREE), tmp_path / "n.tar.gz")
    assert members(gzip.decompress(archive.path.read_bytes())) == {
        name: NINJA_TREE[name].encode() for name in (".ninja_log", "a/build/.ninja_log", "b/.ninja_log")
    }
    assert (archive.member_count, archive.skipped) == (3, ())


def test_the_ccache_archive_holds_every_file_of_its_folder(tmp_path: Path) -> None:
    files = {"a.log": "1", "sub/b.log": "2", "Ä.log": "3", ".hidden": "", "x" * 120 + "/" + "y" * 120: "long"}
    archive = ccache(write_tree(tmp_path / "ccache", files), tmp_path / "c.tar.zst")
    assert ccache_members(archive) == {name: content.encode() for name, content in files.items()}


def test_members_tell_nothing_of_the_machine(tmp_path: Path) -> None:
    build = write_tree(tmp_path / "build", NINJA_TREE)
    (build / ".ninja_log").chmod(0o4755)
    data = gzip.decompress(ninja(build, tmp_path / "n").path.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        told = {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode, m.type) for m in archive}
    assert told == {(0, 0, 0, "", "", 0o644, tarfile.REGTYPE)}


@pytest.mark.parametrize("write", [ninja, ccache])
def test_equal_logs_give_equal_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, Path], LogArchive]
) -> None:
    names = [f"{folder}/.ninja_log" for folder in ("b", "a", "a-b", "a/b", "Z", "ä")]
    files = {name: f"log of {name}\n" * 50 for name in names}
    first = write_tree(tmp_path / "first", files)
    second = write_tree(tmp_path / "second", dict(reversed(files.items())))
    for number, path in enumerate(sorted(second.rglob("*"), reverse=True)):
        os.utime(path, (number * 1000, number * 1000))
        path.chmod(0o700 if path.is_dir() else 0o600)
    one = write(first, tmp_path / "one").path.read_bytes()
    walk = os.walk

    def backwards(top: Path, **options: object) -> object:
        for folder, folders, filenames in walk(top, **options):
            folders.sort(reverse=True)
            yield folder, folders, filenames[::-1]

    monkeypatch.setattr(os, "walk", backwards)
    assert write(second, tmp_path / "two").path.read_bytes() == one


def test_the_number_of_cores_does_not_change_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = random.Random(5).choices(
        [b"compiling ", b"hit\n", b"miss\n", b"/usr/bin/cc ", b"-O2 ", b"0123456789"], k=3_000_000
    )
    folder = tmp_path / "ccache"
    write_tree(folder, {"a.log": b"".join(words)})  # several jobs of the compressor
    written = []
    for cores in (1, 2, 3, None):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        written.append(ccache(folder, tmp_path / "c").path.read_bytes())
    assert len(set(written)) == 1
    assert len(written[0]) > 1_000_000


@pytest.mark.parametrize(("write", "name"), [(write_ninja_archive, "build"), (write_ccache_archive, "file")])
def test_nothing_to_archive_makes_no_archive(
    tmp_path: Path, write: Callable[..., LogArchive | None], name: str
) -> None:
    write_tree(tmp_path, {"build/other": "x", "file": "x"})
    for folder in (tmp_path / name, tmp_path / "missing"):
        assert write(folder, tmp_path / "target", cancel=CancelToken()) is None
    assert not (tmp_path / "target").exists()


def changing(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[], None]) -> None:
    """Let `change` happen when the file `name` was opened and before it is read."""
    open_file = os.open

    def opened(path: Path, *arguments: int, **options: int) -> int:
        descriptor = open_file(path, *arguments, **options)
        if os.fspath(path).endswith(name):
            os.fstat(descriptor)
            stat = os.fstat

            def first_stat(number: int) -> os.stat_result:
                status = stat(number)
                if number == descriptor:
                    monkeypatch.setattr(os, "fstat", stat)
                    change()
                return status

            monkeypatch.setattr(os, "fstat", first_stat)
        return descriptor

    monkeypatch.setattr(os, "open", opened)


@pytest.mark.parametrize(
    ("after", "archived"),
    [
        (b"1234567890", b"1234567890"),
        (b"123", b"123\0\0\0\0\0\0\0"),
        (b"1234567890more", b"1234567890"),
        (b"", b"\0" * 10),
    ],
    ids=["rewritten", "shrunk", "grown", "emptied"],
)
def test_a_log_that_changes_meanwhile_keeps_its_size_in_the_archive_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bytes, archived: bytes
) -> None:
    folder = write_tree(tmp_path / "ccache", {"a.log": b"1234567890", "b.log": b"whole"})
    os.utime(folder / "a.log", (1, 1))
    changing(monkeypatch, "a.log", lambda: (folder / "a.log").write_bytes(after) and None)
    archive = ccache(folder, tmp_path / "c")
    assert ccache_members(archive) == {"a.log": archived, "b.log": b"whole"}
    assert (archive.skipped, archive.changed) == ((), ("a.log",))
    assert archive.member_count == 2


def test_a_log_that_vanishes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_tree(tmp_path / "ccache", {"a.log": "1", "b.log": "2"})
    is_symlink = log_archives.Path.is_symlink

    def vanish(path: Path) -> bool:
        if path.name == "a.log":
            path.unlink(missing_ok=True)
        return is_symlink(path)

    monkeypatch.setattr(log_archives.Path, "is_symlink", vanish)
    archive = ccache(folder, tmp_path / "c")
    assert ccache_members(archive) == {"b.log": b"2"}
    assert archive.skipped == (SkippedFile("a.log", "it vanished before it was read"),)


def test_links_and_special_files_are_left_out_and_told(tmp_path: Path) -> None:
    write_tree(tmp_path, {"secret": "s", "outside/secret": "s"})
    folder = write_tree(tmp_path / "ccache", {"a.log": "1"})
    (folder / "file.log").symlink_to(tmp_path / "secret")
    (folder / "folder").symlink_to(tmp_path / "outside")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    archive = ccache(folder, tmp_path / "c")
    assert ccache_members(archive) == {"a.log": b"1"}
    assert archive.skipped == (
        SkippedFile("file.log", "it is a symbolic link"),
        SkippedFile("folder", "it is a symbolic link"),
        SkippedFile("loop", "it is a symbolic link"),
        SkippedFile("pipe", "it is a named pipe"),
    )


def test_a_linked_ninja_log_is_left_out_and_told(tmp_path: Path) -> None:
    build = write_tree(tmp_path / "build", {"secret": "s", "a/x": ""})
    (build / "a" / ".ninja_log").symlink_to(build / "secret")
    archive = ninja(build, tmp_path / "n")
    assert (archive.member_count, archive.skipped) == (0, (SkippedFile("a/.ninja_log", "it is a symbolic link"),))
    assert not archive.path.exists()


def test_a_name_that_is_no_unicode_is_left_out_and_told_in_a_form_that_can_be_shown(tmp_path: Path) -> None:
    folder = write_tree(tmp_path / "ccache", {"a.log": "1"})
    (folder / os.fsdecode(b"\xff\x1b.log")).touch()
    assert ccache(folder, tmp_path / "c").skipped == (SkippedFile(r"\udcff\x1b.log", "its name is not valid Unicode"),)


def test_a_log_that_cannot_be_opened_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_tree(tmp_path / "ccache", {"a.log": "1", "b.log": "2"})
    open_file = os.open

    def refuse(path: Path, *arguments: int, **options: int) -> int:
        if os.fspath(path).endswith("a.log"):
            raise PermissionError(13, "Permission denied", path)
        return open_file(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    archive = ccache(folder, tmp_path / "c")
    assert archive.skipped == (SkippedFile("a.log", "it cannot be read (Permission denied)"),)
    assert archive.member_count == 1


def test_a_folder_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_tree(tmp_path / "ccache", {"a.log": "1", "sub/x\n/b.log": "2"})
    scan = os.scandir

    def refuse(path: str) -> object:
        if os.fspath(path).endswith("x\n"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    archive = ccache(folder, tmp_path / "c")
    assert archive.skipped == (SkippedFile(r"sub/x\x0a", "the folder cannot be read (Permission denied)"),)


def test_a_cancel_stops_between_files_and_inside_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_tree(tmp_path / "ccache", {"a.log": b"x" * 500_000, "b.log": "2"})
    cancel = CancelToken()
    cancel.cancel(15)
    with pytest.raises(CancelledError) as caught:
        write_ccache_archive(folder, tmp_path / "c", cancel=cancel)
    assert caught.value.exit_code == 143
    later = CancelToken()
    changing(monkeypatch, "a.log", lambda: later.cancel(2))
    with pytest.raises(CancelledError):
        write_ccache_archive(folder, tmp_path / "c", cancel=later)


def test_a_target_that_cannot_be_written_raises(tmp_path: Path) -> None:
    folder = write_tree(tmp_path / "ccache", {"a.log": "1"})
    with pytest.raises(FileNotFoundError):
        write_ccache_archive(folder, tmp_path / "missing" / "c", cancel=CancelToken())
