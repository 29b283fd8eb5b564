"""Artifact archives: the same tree gives the same bytes, and what no reader would take is refused by name."""

from __future__ import annotations

import contextlib
import hashlib
import io
import lzma
import os
import random
import shutil
import socket
import stat
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _therock_utils._cancel import CancelToken
from _therock_utils._errors import CancelledError, IntegrityError, LocalFileError
from _therock_utils._folder import NewFile
from _therock_utils._transfer_types import SkippedFile
from fakes.trees import write_tree
from therock_outputs._artifact_tree import link_fault
from therock_outputs._tar_members import MAX_MANIFEST_BYTES
from therock_outputs.artifact_archive import WrittenArchive, write_artifact_archive
from therock_outputs.artifact_extraction import extract_archive

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "blas_lib_gfx1151"
SUBTREE = "math-libs/BLAS/rocBLAS/stage"
MANIFEST = f"{SUBTREE}\ncore/stage\nnot/there\n"


def artifact(tmp_path: Path, files: dict[str, bytes | str] | None = None, *, manifest: str = MANIFEST) -> Path:
    return write_tree(tmp_path / NAME, {"artifact_manifest.txt": manifest, **(files or {})})


def full_artifact(tmp_path: Path) -> Path:
    """One of everything that an archive keeps."""
    folder = artifact(
        tmp_path,
        {
            f"{SUBTREE}/lib/librocblas.so.5.1.0": b"\x7fELF" * 3000,
            f"{SUBTREE}/lib-more/a": "sorts between lib and lib/",
            f"{SUBTREE}/bin/rocblas-bench": "#!/bin/sh\n",
            f"{SUBTREE}/share/Grüße 漢字 #?%.txt": "names\n",
            f"{SUBTREE}/{'x' * 120}/{'y' * 120}": "long",
            "core/stage/empty.txt": "",
        },
    )
    stage = folder / SUBTREE
    (stage / "bin" / "rocblas-bench").chmod(0o700)
    (stage / "lib" / "librocblas.so.5").symlink_to("librocblas.so.5.1.0")
    (stage / "lib" / "include").symlink_to("../bin", target_is_directory=True)
    (stage / "lib" / "dangling").symlink_to("./nowhere/")
    (stage / "lib" / "again.so").hardlink_to(stage / "lib" / "librocblas.so.5.1.0")
    (stage / "empty" / "inner").mkdir(parents=True)
    return folder


def write(folder: Path, target: Path, **options: object) -> WrittenArchive:
    options = {"compression": "zst", "cancel": CancelToken(), **options}
    return write_artifact_archive(folder, target, **options)  # type: ignore[arg-type]  # whatever it takes


def plain(archive: WrittenArchive) -> bytes:
    data = archive.path.read_bytes()
    return lzma.decompress(data) if data.startswith(b"\xfd7zXZ") else zstd.decompress(data)


def members(archive: WrittenArchive) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(plain(archive)), mode="r:") as opened:
        return opened.getmembers()


def names(archive: WrittenArchive) -> list[str]:
    return [member.name for member in members(archive)]


def test_the_manifest_comes_first_and_the_rest_is_sorted_by_bytes(tmp_path: Path) -> None:
    found = names(write(full_artifact(tmp_path), tmp_path / "a.tar.zst"))
    assert found[0] == "artifact_manifest.txt"
    assert found[1:] == sorted(found[1:], key=str.encode)
    assert found.index(f"{SUBTREE}/lib") < found.index(f"{SUBTREE}/lib-more") < found.index(f"{SUBTREE}/lib/again.so")
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("compression", ["zst", "xz"])
def test_what_a_plain_reader_extracts_is_the_tree(tmp_path: Path, compression: str) -> None:
    folder = full_artifact(tmp_path)
    archive = write(folder, tmp_path / "archive", compression=compression)
    with tarfile.open(fileobj=io.BytesIO(plain(archive)), mode="r:") as opened:
        opened.extractall(tmp_path / "out", filter="fully_trusted")  # noqa: S202 - it was made here
    assert described(tmp_path / "out") == described(folder)
    assert (tmp_path / "out" / SUBTREE / "lib" / "again.so").samefile(
        tmp_path / "out" / SUBTREE / "lib" / "librocblas.so.5.1.0"
    )


def described(root: Path) -> dict[str, object]:
    """Every path below a folder: a folder, a link and its target, or a file's bytes and executable bit."""
    found: dict[str, object] = {}
    for path in root.rglob("*"):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            found[path.relative_to(root).as_posix()] = os.readlink(path)  # noqa: PTH115 - exactly as it is
        elif stat.S_ISREG(status.st_mode):
            found[path.relative_to(root).as_posix()] = (path.read_bytes(), bool(status.st_mode & stat.S_IXUSR))
        else:
            found[path.relative_to(root).as_posix()] = "folder"
    return found


def test_members_tell_nothing_of_the_machine(tmp_path: Path) -> None:
    found = members(write(full_artifact(tmp_path), tmp_path / "a"))
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in found} == {(0, 0, 0, "", "")}
    modes = {member.name.rpartition("/")[2]: member.mode for member in found}
    assert modes["rocblas-bench"] == 0o755
    assert modes["librocblas.so.5.1.0"] == modes["artifact_manifest.txt"] == 0o644
    assert modes["inner"] == 0o755
    assert modes["librocblas.so.5"] == 0o777


def test_links_stay_links_and_the_first_name_of_a_file_carries_its_data(tmp_path: Path) -> None:
    found = {m.name.removeprefix(f"{SUBTREE}/lib/"): m for m in members(write(full_artifact(tmp_path), tmp_path / "a"))}
    assert found["librocblas.so.5"].issym()
    assert found["librocblas.so.5"].linkname == "librocblas.so.5.1.0"
    assert found["include"].linkname == "../bin"
    assert found["dangling"].linkname == "./nowhere/"
    assert found["again.so"].isreg()
    assert found["librocblas.so.5.1.0"].islnk()
    assert found["librocblas.so.5.1.0"].linkname == f"{SUBTREE}/lib/again.so"


def test_a_file_with_another_name_outside_of_the_artifact_is_a_plain_file(tmp_path: Path) -> None:
    folder = artifact(tmp_path, {"core/stage/a": "data"})
    (tmp_path / "elsewhere").hardlink_to(folder / "core" / "stage" / "a")
    (folder / "core" / "manifest").hardlink_to(folder / "artifact_manifest.txt")
    archive = write(folder, tmp_path / "archive")
    assert [member.isreg() for member in members(archive) if member.name.endswith("/a")] == [True]


def test_pax_records_are_there_only_for_what_the_older_format_cannot_hold(tmp_path: Path) -> None:
    folder = artifact(tmp_path, {"core/stage/plain": "x" * 100})
    assert tarfile.XHDTYPE not in {header[156:157] for header in blocks(plain(write(folder, tmp_path / "a")))}
    (folder / "core" / "stage" / "é").touch()
    with_pax = [member for member in members(write(folder, tmp_path / "a")) if member.pax_headers]
    assert [(member.name, dict(member.pax_headers)) for member in with_pax] == [
        ("core/stage/é", {"path": "core/stage/é"})
    ]


def blocks(data: bytes) -> list[bytes]:
    return [data[start : start + 512] for start in range(0, len(data), 512)]


def same_tree_otherwise(first: Path, second: Path) -> Path:
    """A copy of a tree with other times, other order of creation and other permission bits."""
    for path in sorted(first.rglob("*"), reverse=True):
        target = second / path.relative_to(first)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            target.symlink_to(os.readlink(path))  # noqa: PTH115 - exactly as it is
        elif path.is_dir():
            target.mkdir(exist_ok=True)
        elif path.name != "again.so":
            shutil.copyfile(path, target)
    again = second / SUBTREE / "lib" / "again.so"
    again.hardlink_to(again.with_name("librocblas.so.5.1.0"))
    for number, path in enumerate(sorted(second.rglob("*"))):
        if not path.is_symlink():
            os.utime(path, (number * 1000, number * 1000))
            path.chmod(0o700 if path.is_dir() or path.name == "rocblas-bench" else 0o600)
    return second


@pytest.mark.parametrize("compression", ["zst", "xz"])
def test_equal_trees_give_equal_bytes(tmp_path: Path, compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = full_artifact(tmp_path / "first")
    second = same_tree_otherwise(first, tmp_path / "second" / NAME)
    one = write(first, tmp_path / "one", compression=compression)
    scan = os.scandir

    class Backwards:
        def __init__(self, path: str) -> None:
            with scan(path) as entries:
                self.entries = sorted(entries, key=lambda entry: entry.name, reverse=True)

        def __enter__(self) -> object:
            return iter(self.entries)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", Backwards)
    umask = os.umask(0o077)
    try:
        two = write(second, tmp_path / "two", compression=compression)
    finally:
        os.umask(umask)
    assert two.path.read_bytes() == one.path.read_bytes()
    assert (two.sha256, two.size_bytes, two.member_count) == (one.sha256, one.size_bytes, one.member_count)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_does_not_change_the_bytes(tmp_path: Path) -> None:
    folder = full_artifact(tmp_path)
    before = write(folder, tmp_path / "a").sha256
    for path in folder.rglob("*"):
        os.chown(path, 1234, 2345, follow_symlinks=False)
    assert write(folder, tmp_path / "a").sha256 == before


def test_the_number_of_workers_does_not_change_the_bytes(tmp_path: Path) -> None:
    words = random.Random(7).choices([b"compiling ", b"hit\n", b"/usr/bin/cc ", b"-O2 ", b"0123456789"], k=5_000_000)
    folder = artifact(tmp_path, {"core/stage/a.log": b"".join(words)})  # several jobs of the compressor
    written = {write(folder, tmp_path / "a", workers=workers).sha256 for workers in (1, 2, 8)}
    assert len(written) == 1
    assert (tmp_path / "a").stat().st_size > 2_000_000


def test_the_digest_and_the_counts_are_the_archives_own(tmp_path: Path) -> None:
    folder = full_artifact(tmp_path)
    archive = write(folder, tmp_path / "a.tar.zst")
    data = archive.path.read_bytes()
    assert (archive.sha256, archive.size_bytes) == (hashlib.sha256(data).hexdigest(), len(data))
    assert archive.member_count == len(members(archive))
    assert archive.content_bytes == sum(member.size for member in members(archive) if member.isreg())
    assert archive.skipped == ()


def test_the_level_decides_on_the_size_and_the_default_is_that_of_the_layout(tmp_path: Path) -> None:
    words = random.Random(3).choices([b"compiling ", b"hit\n", b"miss\n", b"-O2 ", b"0123456789"], k=200_000)
    folder = artifact(tmp_path, {"core/stage/a.log": b"".join(words)})
    assert write(folder, tmp_path / "a", level=3).sha256 == write(folder, tmp_path / "a").sha256
    assert write(folder, tmp_path / "a", level=19).size_bytes < write(folder, tmp_path / "a").size_bytes
    xz = write(folder, tmp_path / "a", compression="xz").sha256
    assert xz == write(folder, tmp_path / "a", compression="xz", level=6).sha256
    assert xz != write(folder, tmp_path / "a", compression="xz", level=0).sha256


def test_a_zstd_archive_ends_in_a_checksum(tmp_path: Path) -> None:
    data = bytearray(write(full_artifact(tmp_path), tmp_path / "a").path.read_bytes())
    data[-1] ^= 1
    with pytest.raises(zstd.ZstdError):
        zstd.decompress(bytes(data))


def test_what_is_not_listed_is_left_out_and_told_at_its_highest_folder(tmp_path: Path) -> None:
    files = {"notes.txt": "x", "math-libs/other/a": "x", "math-libs/other/b": "x", f"{SUBTREE}-2/x": "x"}
    folder = artifact(tmp_path, {f"{SUBTREE}/a": "in", **files})
    (folder / "math-libs" / os.fsdecode(b"\xff")).mkdir()
    (folder / "link").symlink_to("/etc")
    archive = write(folder, tmp_path / "a")
    assert names(archive) == ["artifact_manifest.txt", SUBTREE, f"{SUBTREE}/a"]
    why = "outside the subtrees that artifact_manifest.txt lists"
    outside = ["link", r"math-libs/\udcff", "math-libs/other", f"{SUBTREE}-2", "notes.txt"]
    assert archive.skipped == tuple(SkippedFile(path, why) for path in sorted(outside))


@pytest.mark.parametrize("manifest", ["", "\n\n", "not/there\n", "not/there"])
def test_an_artifact_of_nothing_is_its_manifest(tmp_path: Path, manifest: str) -> None:
    archive = write(artifact(tmp_path, manifest=manifest), tmp_path / "a")
    assert names(archive) == ["artifact_manifest.txt"]


@pytest.mark.parametrize("manifest", ["core/stage\r\nb\r\n", "b\n\ncore/stage"])
def test_a_manifest_may_end_its_lines_as_windows_does(tmp_path: Path, manifest: str) -> None:
    archive = write(artifact(tmp_path, {"core/stage/a": "x"}, manifest=manifest), tmp_path / "a")
    assert names(archive) == ["artifact_manifest.txt", "core/stage", "core/stage/a"]


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        ("/etc\n", "it lists '/etc'"),
        ("a/../b\n", "it lists 'a/../b'"),
        ("..\n", "it lists '..'"),
        (".\n", "it lists '.'"),
        ("a//b\n", "it lists 'a//b'"),
        ("core/stage/\n", "it lists 'core/stage/'"),
        ("C:/a\n", "its name begins with a drive letter"),
        ("a\\b\n", "it has a backslash"),
        ("a\x1bb\n", "it has a control character"),
        ("core/stage\ncore/stage\n", "it lists 'core/stage': it is listed twice"),
        ("core/stage/lib\ncore\n", "it lists 'core/stage/lib', and 'core' around it"),
        ("core\nfirst\ncore/stage\n", "it lists 'core/stage', and 'core' around it"),
        ("\xff\n", "it is not UTF-8"),
    ],
)
def test_a_manifest_that_cannot_be_meant_is_an_error_with_the_remedy(tmp_path: Path, manifest: str, why: str) -> None:
    folder = artifact(tmp_path, {"core/stage/lib/a": "x"})
    (folder / "artifact_manifest.txt").write_bytes(manifest.encode("latin-1"))
    with pytest.raises(IntegrityError) as caught:
        write(folder, tmp_path / "a")
    assert why in caught.value.why
    assert caught.value.what == f"the artifact {NAME} cannot be archived"
    assert "one path a line" in caught.value.remedy
    assert not (tmp_path / "a").exists()


def test_no_manifest_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    folder = write_tree(tmp_path / NAME, {"core/stage/a": "x"})
    with pytest.raises(IntegrityError, match=r"has no artifact_manifest\.txt") as caught:
        write(folder, tmp_path / "a")
    assert "one path a line" in caught.value.remedy
    (folder / "artifact_manifest.txt").symlink_to("core/stage/a")
    with pytest.raises(IntegrityError, match="it is a symbolic link"):
        write(folder, tmp_path / "a")
    (folder / "artifact_manifest.txt").unlink()
    (folder / "artifact_manifest.txt").mkdir()
    with pytest.raises(IntegrityError, match="it is a folder"):
        write(folder, tmp_path / "a")


def test_an_endless_manifest_is_not_read(tmp_path: Path) -> None:
    folder = artifact(tmp_path, manifest="x" * (MAX_MANIFEST_BYTES + 1))
    with pytest.raises(IntegrityError, match="has more than"):
        write(folder, tmp_path / "a")


@pytest.mark.parametrize("path", ["core", "core/stage"])
@pytest.mark.parametrize("what", ["a symbolic link", "a file"])
def test_something_else_where_a_folder_is_listed_is_an_error(tmp_path: Path, path: str, what: str) -> None:
    folder = artifact(tmp_path)
    write_tree(tmp_path / "elsewhere", {"stage/a": "secret"})
    (folder / path).parent.mkdir(exist_ok=True)
    if what == "a file":
        (folder / path).touch()
    else:
        (folder / path).symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with pytest.raises(IntegrityError, match=f"{path} is {what}, where a folder is listed"):
        write(folder, tmp_path / "a")


@pytest.mark.parametrize(
    ("target", "depth", "kept"),
    [
        ("a", 0, True),
        ("a/b", 0, True),
        ("../a", 1, True),
        ("../../a/b", 2, True),
        ("..", 1, True),
        ("./../a", 1, True),
        ("a..b/...", 0, True),
        ("a/", 0, True),
        (".", 0, True),
        ("../a", 0, False),
        ("..", 0, False),
        ("../../a", 1, False),
        ("a/../b", 5, False),
        ("../a/..", 5, False),
        (".././../a", 1, False),
        ("..//../a", 1, False),
        ("/", 5, False),
        ("/etc/passwd", 5, False),
        ("//a", 5, False),
        ("C:/a", 5, False),
        ("a\\b", 5, False),
        ("a\nb", 5, False),
        ("../\udcff", 5, False),
        ("/".join(["d"] * 257), 5, False),
        ("/".join(["d" * 250] * 17), 5, False),
    ],
)
def test_a_link_may_climb_only_at_its_start_and_as_far_as_its_subtrees_root(
    target: str, depth: int, kept: bool
) -> None:
    assert (link_fault(target, depth=depth) == "") == kept


@given(st.lists(st.sampled_from(["..", ".", "a", "", "b"]), max_size=7).map("/".join), st.integers(0, 4))
def test_a_link_that_is_kept_never_leaves_its_subtree(target: str, depth: int) -> None:
    if target and not link_fault(target, depth=depth):
        end = os.path.normpath("/".join(["/root", *["x"] * depth, target]))
        assert end == "/root" or end.startswith("/root/")


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside", "../lib/../../../x"])
def test_a_link_out_of_its_subtree_is_an_error_that_names_it(tmp_path: Path, target: str) -> None:
    folder = artifact(tmp_path, {"core/stage/lib/a": "x"})
    (folder / "core" / "stage" / "lib" / "evil").symlink_to(target)
    with pytest.raises(IntegrityError) as caught:
        write(folder, tmp_path / "a")
    assert f"core/stage/lib/evil -> {target}" in caught.value.why
    assert caught.value.remedy
    assert not (tmp_path / "a").exists()


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    folder = artifact(tmp_path, {"core/stage/a/x": "x"})
    (folder / "core" / "stage" / "loop").symlink_to(".", target_is_directory=True)
    assert names(write(folder, tmp_path / "a")) == [
        "artifact_manifest.txt",
        "core/stage",
        "core/stage/a",
        "core/stage/a/x",
        "core/stage/loop",
    ]


@given(st.lists(st.sampled_from(["..", ".", "a", "", "b", "C:", "é", "a\\b"]), min_size=1, max_size=6).map("/".join))
def test_what_is_kept_is_what_the_reader_takes(tmp_path_factory: pytest.TempPathFactory, target: str) -> None:
    folder = artifact(tmp_path_factory.mktemp("links"), {"core/stage/x/a": "x"})
    (folder / "core" / "stage" / "x" / "link").symlink_to(target or ".")
    try:
        archive = write(folder, folder.parent / "a.tar.zst")
    except IntegrityError:
        assert link_fault(target, depth=1)
        return
    options = {"layout": "flatten", "max_extracted_bytes": 1_000_000, "cancel": CancelToken()}
    extract_archive(archive.path, folder.parent / "out", **options)  # type: ignore[arg-type]  # a literal


def test_the_reader_takes_everything_that_is_kept(tmp_path: Path) -> None:
    folder = full_artifact(tmp_path)
    archive = write(folder, tmp_path / "a.tar.zst")
    options = {"layout": "flatten", "max_extracted_bytes": 1_000_000, "cancel": CancelToken()}
    extract_archive(archive.path, tmp_path / "out", **options)  # type: ignore[arg-type]  # a literal
    assert described(tmp_path / "out") == described(folder)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(path.parent)  # a socket's path is short
        listener.bind(path.name)


SPECIAL: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "is a named pipe"),
    "socket": (make_socket, "is a socket"),
    "setuid": (lambda path: (path.touch(), path.chmod(0o4755)), "is a setuid or setgid file"),
    "setgid": (lambda path: (path.touch(), path.chmod(0o2755)), "is a setuid or setgid file"),
    "no UTF-8": (lambda path: path.with_name(os.fsdecode(b"lib\xfc.so")).touch(), r"the name core/stage/lib\udcfc.so"),
    "backslash": (lambda path: path.with_name("a\\b").touch(), "it has a backslash"),
    "line end": (lambda path: path.with_name("a\nb").touch(), r"the name core/stage/a\x0ab cannot be kept"),
    "link to no UTF-8": (lambda path: path.symlink_to(os.fsdecode(b"\xfc")), "it is not valid Unicode"),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_what_no_archive_may_hold_is_an_error_that_names_it(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make, why = SPECIAL[kind]
    folder = artifact(tmp_path, {"core/stage/a": "x"})
    make(folder / "core" / "stage" / "special")
    with pytest.raises(IntegrityError) as caught:
        write(folder, tmp_path / "a")
    assert why in caught.value.why
    assert not (tmp_path / "a").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root makes devices")
def test_a_device_is_an_error(tmp_path: Path) -> None:
    folder = artifact(tmp_path, {"core/stage/a": "x"})
    try:
        os.mknod(folder / "core" / "stage" / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this container makes no devices")
    with pytest.raises(IntegrityError, match="core/stage/null is a device"):
        write(folder, tmp_path / "a")


def refuse_to_open(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    open_file = os.open

    def refuse(path: Path, *arguments: int, **options: int) -> int:
        if os.fspath(path).endswith(name):
            raise PermissionError(13, "Permission denied", path)
        return open_file(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def test_a_file_that_cannot_be_read_is_an_error_and_leaves_no_archive(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = artifact(tmp_path, {"core/stage/a": "x" * 100_000, "core/stage/b": "x"})
    refuse_to_open(monkeypatch, "stage/b")
    with pytest.raises(LocalFileError, match="Permission denied"):
        write(folder, scratch / "a")
    assert left_in(scratch) == []


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = artifact(tmp_path, {"core/stage/sub/b": "x"})
    scan = os.scandir

    def refuse(path: Path) -> object:
        if os.fspath(path).endswith("sub"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(LocalFileError, match="Permission denied"):
        write(folder, tmp_path / "a")


def when_listing(monkeypatch: pytest.MonkeyPatch, folder: Path, change: Callable[[], object], *, after: bool) -> None:
    """Let `change` happen before the entries of `folder` are read, or `after` it and before they are looked at."""
    scan = os.scandir

    def listed(path: Path) -> object:
        if path != folder:
            return scan(path)
        monkeypatch.setattr(os, "scandir", scan)
        if not after:
            change()
            return scan(path)
        with scan(path) as entries:
            found = list(entries)
        change()
        return contextlib.nullcontext(found)

    monkeypatch.setattr(os, "scandir", listed)


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("artifact_manifest.txt", False),
        ("artifact_manifest.txt", True),
        ("core/stage/b", True),
        ("core/stage/sub", True),
        ("core/stage/sub/", False),
        ("core/stage/link", True),
    ],
)
def test_what_vanishes_while_the_folder_is_looked_at_is_an_error(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, name: str, after: bool
) -> None:
    folder = artifact(tmp_path, {"core/stage/sub/a": "x", "core/stage/b": "x"})
    (folder / "core" / "stage" / "link").symlink_to("b")
    target = folder / name

    def vanish() -> None:
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    when_listing(monkeypatch, target if name.endswith("/") else target.parent, vanish, after=after)
    with pytest.raises(IntegrityError, match=f"{name.rstrip('/')} changed or vanished meanwhile"):
        write(folder, scratch / "a")
    assert left_in(scratch) == []


def when_reading(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[], object]) -> None:
    """Let `change` happen when the file `name` is open and looked at, before its first byte is read."""
    fdopen = os.fdopen

    def opened(descriptor: int, *arguments: str) -> object:
        file = fdopen(descriptor, *arguments)
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(name):  # noqa: PTH115 - no file of the tree
            return _Changing(file, change)
        return file

    monkeypatch.setattr(os, "fdopen", opened)


class _Changing:
    def __init__(self, file: object, change: Callable[[], object]) -> None:
        self.file, self.change = file, change

    def __enter__(self) -> object:
        self.file.__enter__()  # type: ignore[attr-defined]  # a file
        return self

    def __exit__(self, *details: object) -> None:
        self.file.__exit__(*details)  # type: ignore[attr-defined]  # a file

    def read(self, size: int) -> bytes:
        self.change()
        self.change = lambda: None
        return self.file.read(size)  # type: ignore[attr-defined,no-any-return]  # a file


@pytest.mark.skipif(sys.platform != "linux", reason="finds the open file by /proc")
@pytest.mark.parametrize("after", [b"0123456789", b"123", b"0123456789more", b""])
def test_a_file_that_changes_while_it_is_read_is_an_error_and_leaves_no_archive(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, after: bytes
) -> None:
    folder = artifact(tmp_path, {"core/stage/a": b"0123456789", "core/stage/b": "x"})
    os.utime(folder / "core" / "stage" / "a", (1, 1))
    when_reading(monkeypatch, "stage/a", lambda: (folder / "core" / "stage" / "a").write_bytes(after))
    with pytest.raises(IntegrityError, match="core/stage/a changed or vanished meanwhile"):
        write(folder, scratch / "a")
    assert left_in(scratch) == []


@pytest.mark.skipif(sys.platform != "linux", reason="finds the open file by /proc")
@pytest.mark.parametrize("what", ["gone", "link", "folder gone", "other file", "pipe"])
def test_a_file_that_is_no_longer_what_it_was_is_an_error(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    folder = artifact(tmp_path, {"core/stage/a": "x", "core/stage/sub/b": "secret", "core/stage/other": "secret"})
    target = folder / "core" / "stage" / "sub" / "b"

    def change() -> None:
        if what == "folder gone":
            shutil.rmtree(target.parent)
            return
        target.unlink()
        if what == "link":
            target.symlink_to("../other")
        elif what == "other file":
            target.write_text("SECRET")
        elif what == "pipe":
            os.mkfifo(target)

    when_reading(monkeypatch, "stage/a", change)
    with pytest.raises(IntegrityError, match="core/stage/sub/b changed or vanished meanwhile"):
        write(folder, scratch / "a")
    assert left_in(scratch) == []


def test_a_read_that_fails_is_the_sources_fault(tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = artifact(tmp_path, {"core/stage/a": "x"})

    def fail() -> None:
        raise OSError(5, "Input/output error")

    when_reading(monkeypatch, "stage/a", fail)
    with pytest.raises(LocalFileError, match=r"core/stage/a.* cannot be read"):
        write(folder, scratch / "a")
    assert left_in(scratch) == []


def test_a_full_disk_is_told_with_the_remedy_and_leaves_no_archive(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_self: NewFile, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(NewFile, "write", full)
    with pytest.raises(LocalFileError, match="No space left on device") as caught:
        write(artifact(tmp_path), scratch / "a")
    assert "Free some space" in caught.value.remedy
    assert left_in(scratch) == []


def test_a_target_whose_folder_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LocalFileError, match="cannot be written"):
        write(artifact(tmp_path), tmp_path / "missing" / "a")


@pytest.mark.skipif(sys.platform != "linux", reason="finds the open file by /proc")
def test_a_cancel_stops_inside_a_file_and_leaves_no_archive(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = artifact(tmp_path, {"core/stage/a": b"x" * 5_000_000})
    cancel = CancelToken()
    read: list[int] = []

    def arrive() -> None:
        read.append(1)
        cancel.cancel(15)

    when_reading(monkeypatch, "stage/a", arrive)
    with pytest.raises(CancelledError) as caught:
        write(folder, scratch / "a", cancel=cancel)
    assert caught.value.exit_code == 143
    assert read == [1]
    assert left_in(scratch) == []


def test_a_cancel_before_it_begins_reads_nothing(tmp_path: Path, scratch: Path) -> None:
    cancel = CancelToken()
    cancel.cancel(2)
    with pytest.raises(CancelledError):
        write(artifact(tmp_path), scratch / "a", cancel=cancel)
    assert left_in(scratch) == []
