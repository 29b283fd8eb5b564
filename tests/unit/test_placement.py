"""Extracted artifacts reach their place whole, replace what they may, and leave the rest as it was."""

from __future__ import annotations

import errno
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from _therock_utils import _folder
from _therock_utils._cancel import CancelToken
from _therock_utils._errors import InputError, LocalFileError
from _therock_utils._folder import TEMPORARY_NAME, Folder
from _therock_utils.storage_backend import LocalStorageBackend
from _therock_utils.storage_location import StorageLocation
from fakes.archives import Entry, file, folder, hard_link, manifest, snapshot, symbolic_link, write_archive
from fakes.trees import read_tree, write_tree
from therock_outputs import _placement, _tree_merge, artifact_extraction
from therock_outputs.artifact_extraction import Layout, Placement, extract_archive

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

STAGE = "math/stage"


class Fetch:
    """One fetch: makes an archive of each artifact, extracts it and places it."""

    def __init__(self, output_dir: Path, layout: Layout, archives: Path, wanted: Sequence[str]) -> None:
        self.output_dir = output_dir
        self.placement = Placement(output_dir, layout, wanted=wanted)
        self._layout = layout
        self._archives = archives

    def place(self, name: str, entries: Sequence[Entry]) -> tuple[str, ...]:
        archive = write_archive(self._archives / f"{name}.tar.zst", entries)
        extracted = extract_archive(
            archive,
            self.placement.make_scratch() / name,
            layout=self._layout,
            max_extracted_bytes=10_000_000,
            cancel=CancelToken(),
        )
        return self.placement.place(name, extracted)

    def finish(self) -> None:
        """All of it was placed."""
        assert self.placement.finish() == {}
        self.placement.close()

    def place_files(self, name: str, files: Mapping[str, bytes], subtree: str = STAGE) -> tuple[str, ...]:
        members = [file(f"{subtree}/{path}", data) for path, data in sorted(files.items())]
        return self.place(name, [manifest(subtree), *members])


class Fetches:
    """Fetches into one folder; all are closed at the end."""

    def __init__(self, root: Path) -> None:
        self.output_dir = root / "out"
        self._archives = root / "archives"
        self._archives.mkdir()
        self._open: list[Fetch] = []

    def begin(self, layout: Layout, wanted: Sequence[str] = ()) -> Fetch:
        self._open.append(Fetch(self.output_dir, layout, self._archives, wanted))
        return self._open[-1]

    def close(self) -> None:
        for fetch in self._open:
            fetch.placement.close()


@pytest.fixture
def fetches(tmp_path: Path) -> Iterator[Fetches]:
    made = Fetches(tmp_path)
    yield made
    made.close()


RICH: tuple[Entry, ...] = (
    manifest(STAGE, "core/stage"),
    file("core/stage/include/x.h", b"header"),
    folder("math/stage/empty"),
    file("math/stage/lib/libx.so.1", b"\x7fELF", mode=0o755),
    symbolic_link("math/stage/lib/libx.so", "libx.so.1"),
    hard_link("math/stage/lib/same", "math/stage/lib/libx.so.1"),
)
MERGED = {
    "empty": ("folder", 0o755),
    "lib": ("folder", 0o755),
    "lib/libx.so": ("link", "libx.so.1"),
    "lib/libx.so.1": ("file", b"\x7fELF", 0o755, "lib/libx.so.1"),
    "lib/same": ("file", b"\x7fELF", 0o755, "lib/libx.so.1"),
}


def below(prefix: str, tree: Mapping[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
    """`tree` as it is in the folder `prefix`."""
    moved = {
        f"{prefix}/{name}": (*entry[:3], f"{prefix}/{entry[3]}") if entry[0] == "file" else entry
        for name, entry in tree.items()
    }
    ways = prefix.split("/")
    return moved | {"/".join(ways[:end]): ("folder", 0o755) for end in range(1, len(ways) + 1)}


# extract


def test_extract_gives_exactly_the_artifact_directory(fetches: Fetches) -> None:
    fetch = fetches.begin("extract")
    assert fetch.place("blas_lib_generic", RICH) == ()
    fetch.placement.close()
    tree = {
        **below("math/stage", MERGED),
        **below("core/stage/include", {"x.h": ("file", b"header", 0o644, "x.h")}),
        "artifact_manifest.txt": ("file", b"math/stage\ncore/stage\n", 0o644, "artifact_manifest.txt"),
    }
    assert snapshot(fetches.output_dir) == below("blas_lib_generic", tree)
    assert fetch.placement.placed == (fetches.output_dir / "blas_lib_generic",)


def test_extract_replaces_a_former_folder_as_a_whole_and_touches_no_other(fetches: Fetches) -> None:
    write_tree(fetches.output_dir, {"blas_lib_generic/stale": "old", "other_lib_generic/kept": "old", "note": "mine"})
    fetch = fetches.begin("extract")
    fetch.place("blas_lib_generic", [file("new", b"1")])
    fetch.placement.close()
    expected = {"blas_lib_generic/new": b"1", "other_lib_generic/kept": b"old", "note": b"mine"}
    assert read_tree(fetches.output_dir) == expected
    assert sorted(path.name for path in fetches.output_dir.iterdir()) == [
        "blas_lib_generic",
        "note",
        "other_lib_generic",
    ]


@pytest.mark.parametrize("kind", ["file", "link"])
def test_extract_replaces_no_file_and_follows_no_link(kind: str, fetches: Fetches, tmp_path: Path) -> None:
    victim = write_tree(tmp_path / "victim", {"kept": "1"})
    fetches.output_dir.mkdir()
    target = fetches.output_dir / "blas_lib_generic"
    target.write_text("mine") if kind == "file" else target.symlink_to(victim)
    with pytest.raises(LocalFileError, match="blas_lib_generic"):
        fetches.begin("extract").place("blas_lib_generic", [file("new", b"1")])
    assert read_tree(victim) == {"kept": b"1"}
    assert target.is_symlink() == (kind == "link")


def test_extract_puts_the_former_folder_back_where_the_new_one_cannot_come(
    fetches: Fetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(fetches.output_dir, {"blas_lib_generic/former": "old"})
    fetch = fetches.begin("extract")
    _fail_at(monkeypatch, 2)
    with pytest.raises(LocalFileError, match="No space left"):
        fetch.place("blas_lib_generic", [file("new", b"1")])
    fetch.placement.close()
    assert read_tree(fetches.output_dir) == {"blas_lib_generic/former": b"old"}


def _fail_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The `number`-th move finds the disk full; those after it do not."""
    moves: list[str] = []

    def move(source: Folder, name: str, target: Folder, new_name: str) -> None:
        moves.append(name)
        if len(moves) == number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, name, target, new_name)

    real = _placement.move
    monkeypatch.setattr(_placement, "move", move)
    monkeypatch.setattr(_tree_merge, "move", move)


@pytest.mark.parametrize("name", ["", "..", "a/b", "/a", "a\\b", "a\n", ".therock-outputs-0123456789abcdef.partial"])
def test_a_name_that_is_no_folder_s_is_refused(name: str, fetches: Fetches, tmp_path: Path) -> None:
    placement = Placement(fetches.output_dir, "extract")
    archive = write_archive(tmp_path / "a.tar.zst", [file("a")])
    with placement:
        scratch = placement.make_scratch() / "a"
        extracted = extract_archive(archive, scratch, layout="extract", max_extracted_bytes=9999, cancel=CancelToken())
        with pytest.raises((InputError, LocalFileError)):
            placement.place(name, extracted)
    assert list(fetches.output_dir.iterdir()) == []


# flatten


def test_flatten_is_the_subtrees_merged_by_hand(fetches: Fetches) -> None:
    fetch = fetches.begin("flatten")
    assert fetch.place("blas_lib_generic", RICH) == ()
    assert fetch.place_files("blas_dev_generic", {"include/y.h": b"2", "lib/cmake/blas.cmake": b"3"}) == ()
    fetch.placement.close()
    assert snapshot(fetches.output_dir) == {
        **MERGED,
        "include": ("folder", 0o755),
        "include/x.h": ("file", b"header", 0o644, "include/x.h"),
        "include/y.h": ("file", b"2", 0o644, "include/y.h"),
        "lib/cmake": ("folder", 0o755),
        "lib/cmake/blas.cmake": ("file", b"3", 0o644, "lib/cmake/blas.cmake"),
    }
    assert fetch.placement.placed == tuple(fetches.output_dir / name for name in ("empty", "include", "lib"))


def test_flatten_keeps_what_the_user_has_and_replaces_what_a_former_fetch_left_without_a_word(fetches: Fetches) -> None:
    write_tree(fetches.output_dir, {"bin/mine": "mine", "bin/tool": "old", "note": "mine"})
    (fetches.output_dir / "bin/link").symlink_to("mine")
    fetch = fetches.begin("flatten")
    assert fetch.place_files("a_run_generic", {"bin/tool": b"new", "bin/link": b"a file now", "bin/more": b"1"}) == ()
    expected = {"bin/mine": b"mine", "bin/tool": b"new", "note": b"mine", "bin/link": b"a file now", "bin/more": b"1"}
    fetch.placement.close()
    assert read_tree(fetches.output_dir) == expected


def test_the_same_bytes_from_two_artifacts_are_fine(fetches: Fetches) -> None:
    big = os.urandom(3_000_000)
    fetch = fetches.begin("flatten")
    link = symbolic_link(f"{STAGE}/lib/l", "x")
    entries = [manifest(STAGE), file(f"{STAGE}/lib/x", big), link]
    assert fetch.place("a_lib_generic", entries) == ()
    assert fetch.place("b_lib_generic", entries) == ()
    assert (fetches.output_dir / "lib/x").read_bytes() == big


def test_of_other_bytes_the_later_win_and_one_warning_says_how_many_and_which_first(fetches: Fetches) -> None:
    fetch = fetches.begin("flatten")
    fetch.place_files("a_lib_generic", {"lib/x": b"a" * 2_000_000, "lib/y": b"1", "lib/z": b"same", "lib/q": b"short"})
    warnings = fetch.place_files(
        "b_lib_generic", {"lib/x": b"a" * 1_999_999 + b"b", "lib/y": b"2", "lib/z": b"same", "lib/q": b"longer"}
    )
    assert len(warnings) == 1
    assert all(part in warnings[0] for part in ("3 paths", "'lib/q'", "'a_lib_generic'", "'b_lib_generic'"))
    assert (fetches.output_dir / "lib/y").read_bytes() == b"2"
    (again,) = fetch.place_files("c_lib_generic", {"lib/y": b"3"})
    assert "1 path " in again
    assert "'b_lib_generic'" in again


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (symbolic_link(f"{STAGE}/x", "y"), symbolic_link(f"{STAGE}/x", "z")),
        (symbolic_link(f"{STAGE}/x", "y"), file(f"{STAGE}/x", b"y")),
        (file(f"{STAGE}/x", b"y"), symbolic_link(f"{STAGE}/x", "y")),
    ],
    ids=["links", "link and file", "file and link"],
)
def test_links_and_files_replace_each_other_with_a_warning(earlier: Entry, later: Entry, fetches: Fetches) -> None:
    fetch = fetches.begin("flatten")
    fetch.place("a_lib_generic", [manifest(STAGE), earlier])
    (warning,) = fetch.place("b_lib_generic", [manifest(STAGE), later])
    assert "'x'" in warning
    assert snapshot(fetches.output_dir)["x"][1] == (later.target or later.content)


CLASHES = {
    "file for a folder": ([file(f"{STAGE}/a/b", b"1")], [file(f"{STAGE}/a", b"2")]),
    "folder for a file": ([file(f"{STAGE}/a", b"1")], [file(f"{STAGE}/a/b", b"2")]),
    "link for a folder": ([folder(f"{STAGE}/a")], [symbolic_link(f"{STAGE}/a", "b")]),
    "folder for a link": ([symbolic_link(f"{STAGE}/a", "b")], [folder(f"{STAGE}/a")]),
}


@pytest.mark.parametrize("clash", CLASHES)
@pytest.mark.parametrize("layout", ["flatten", "bootstrap"])
def test_a_folder_against_a_file_is_refused_by_both_names_and_leaves_nothing(
    clash: str, layout: Layout, fetches: Fetches
) -> None:
    earlier, later = CLASHES[clash]
    fetch = fetches.begin(layout)
    fetch.place("a_lib_generic", [manifest(STAGE), *earlier])
    before = snapshot(fetches.output_dir)
    with pytest.raises(LocalFileError) as caught:
        fetch.place("b_lib_generic", [manifest(STAGE), file(f"{STAGE}/0first", b"3"), *later])
    assert all(part in str(caught.value) for part in ("a'", "'a_lib_generic'", "'b_lib_generic'"))
    fetch.placement.close()
    assert snapshot(fetches.output_dir) == {
        name: entry for name, entry in before.items() if not TEMPORARY_NAME.match(name)
    }


@pytest.mark.parametrize("clash", CLASHES)
def test_two_subtrees_of_one_artifact_that_clash_leave_nothing(clash: str, fetches: Fetches) -> None:
    earlier, later = CLASHES[clash]
    moved = [
        Entry(entry.name.replace(STAGE, "two/stage"), entry.content, entry.type, target=entry.target) for entry in later
    ]
    fetch = fetches.begin("flatten")
    with pytest.raises(LocalFileError, match=r"a_lib_generic \(math/stage\)"):
        fetch.place("a_lib_generic", [manifest(STAGE, "two/stage"), *earlier, *moved])
    fetch.placement.close()
    assert list(fetches.output_dir.iterdir()) == []


def test_two_subtrees_of_one_artifact_with_one_path_are_told(fetches: Fetches) -> None:
    fetch = fetches.begin("flatten")
    entries = [manifest("one", "two"), file("one/x", b"1"), file("two/x", b"2")]
    (warning,) = fetch.place("a_lib_generic", entries)
    assert all(part in warning for part in ("'x'", "a_lib_generic (one)", "a_lib_generic (two)"))
    assert (fetches.output_dir / "x").read_bytes() == b"2"


@pytest.mark.parametrize("layout", ["flatten", "bootstrap"])
@pytest.mark.parametrize("kind", ["file", "link", "pipe"])
def test_what_the_user_has_in_the_way_is_told_and_no_link_is_followed(
    layout: Layout, kind: str, fetches: Fetches, tmp_path: Path
) -> None:
    victim = write_tree(tmp_path / "victim", {"kept": "1"})
    at = fetches.output_dir / ("lib" if layout == "flatten" else "math")
    fetches.output_dir.mkdir()
    if kind == "file":
        at.write_text("mine")
    elif kind == "link":
        at.symlink_to(victim)
    else:
        os.mkfifo(at)
    fetch = fetches.begin(layout)
    with pytest.raises(LocalFileError, match=at.name):
        fetch.place_files("a_lib_generic", {"0": b"0", "lib/x": b"1"})
    fetch.placement.close()
    assert read_tree(victim) == {"kept": b"1"}
    assert [path.name for path in fetches.output_dir.iterdir()] == [at.name]


def test_a_pipe_in_a_file_s_place_is_refused(fetches: Fetches) -> None:
    fetches.output_dir.mkdir()
    os.mkfifo(fetches.output_dir / "x")
    with pytest.raises(LocalFileError, match="a named pipe"):
        fetches.begin("flatten").place_files("a_lib_generic", {"x": b"1"})


@pytest.mark.parametrize("layout", ["flatten", "bootstrap"])
def test_a_merge_that_fails_half_way_says_that_the_tree_is_incomplete(
    layout: Layout, fetches: Fetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = fetches.begin(layout)
    fetch.place_files("a_lib_generic", {"x": b"old", "y": b"old"})
    at = fetches.output_dir / (STAGE if layout == "bootstrap" else "")
    _fail_at(monkeypatch, 4 if layout == "flatten" else 2)  # flatten merges the subtrees first
    with pytest.raises(LocalFileError, match="incomplete: 'b_lib_generic'"):
        fetch.place_files("b_lib_generic", {"x": b"new", "y": b"new"})
    assert {path.name: path.read_bytes() for path in at.iterdir() if path.is_file()} == {"x": b"new", "y": b"old"}
    assert not (fetches.output_dir / f"{STAGE}.prebuilt").exists()


# bootstrap


def test_bootstrap_puts_subtrees_back_with_a_marker_each(fetches: Fetches) -> None:
    fetch = fetches.begin("bootstrap")
    assert fetch.place("blas_lib_generic", RICH) == ()
    fetch.finish()
    marker = b"blas_lib_generic\n"
    assert snapshot(fetches.output_dir) == {
        **below(STAGE, MERGED),
        **below("core/stage/include", {"x.h": ("file", b"header", 0o644, "x.h")}),
        "math/stage.prebuilt": ("file", marker, 0o644, "math/stage.prebuilt"),
        "core/stage.prebuilt": ("file", marker, 0o644, "core/stage.prebuilt"),
    }
    assert fetch.placement.placed == tuple(
        fetches.output_dir / name for name in ("core/stage", "core/stage.prebuilt", STAGE, f"{STAGE}.prebuilt")
    )


def test_bootstrap_merges_the_artifacts_of_a_subtree_and_removes_a_former_fetch_s_once(fetches: Fetches) -> None:
    former = fetches.begin("bootstrap")
    former.place_files("blas_lib_generic", {"lib/stale": b"old", "lib/x": b"old"})
    former.finish()
    fetch = fetches.begin("bootstrap", ["blas_lib_generic", "blas_run_generic"])
    assert fetch.place_files("blas_lib_generic", {"lib/x": b"1"}) == ()
    assert fetch.place_files("blas_run_generic", {"bin/y": b"2"}) == ()
    fetch.finish()
    assert read_tree(fetches.output_dir) == {
        f"{STAGE}/lib/x": b"1",
        f"{STAGE}/bin/y": b"2",
        f"{STAGE}.prebuilt": b"blas_lib_generic\nblas_run_generic\n",
    }


def test_bootstrap_keeps_what_a_fetch_of_other_artifacts_brought_and_lists_all_of_them(fetches: Fetches) -> None:
    wanted = {"blas_lib_generic": {"lib/x": b"1"}, "blas_dev_generic": {"include/y": b"2"}}
    for name, files in wanted.items():
        fetch = fetches.begin("bootstrap", [name])
        assert fetch.place_files(name, files) == ()
        fetch.finish()
    both = {
        f"{STAGE}/lib/x": b"1",
        f"{STAGE}/include/y": b"2",
        f"{STAGE}.prebuilt": b"blas_dev_generic\nblas_lib_generic\n",
    }
    assert read_tree(fetches.output_dir) == both
    fetch = fetches.begin("bootstrap", [*wanted])
    fetch.place_files("blas_lib_generic", {"lib/z": b"3"})
    fetch.place_files("blas_dev_generic", {"include/y": b"4"})
    fetch.finish()
    assert read_tree(fetches.output_dir).keys() == {f"{STAGE}/lib/z", f"{STAGE}/include/y", f"{STAGE}.prebuilt"}


MARKERS = {
    "empty": b"",
    "a person's": b"built by hand\n",
    "no text": b"\xff\xfe\n",
    "cut": b"a_lib_generic",
    "too big": b"a_lib_generic12345\n" + b"a_lib_generic\n" * 100_000,  # what may be read ends with a line
}


@pytest.mark.parametrize("kind", [*MARKERS, "link", "unreadable"])
def test_bootstrap_removes_nothing_where_the_marker_is_no_fetch_s(
    kind: str, fetches: Fetches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(fetches.output_dir, {f"{STAGE}/mine": "mine"})
    marker = fetches.output_dir / f"{STAGE}.prebuilt"
    if kind == "link":
        (tmp_path / "list").write_text("a_lib_generic\n")
        marker.symlink_to(tmp_path / "list")
    else:
        marker.write_bytes(MARKERS.get(kind, b"a_lib_generic\n"))
    if kind == "unreadable":
        monkeypatch.setattr(Folder, "open_to_read", _refuse_markers)
    fetch = fetches.begin("bootstrap", ["a_lib_generic"])
    fetch.place_files("a_lib_generic", {"x": b"1"})
    fetch.finish()
    monkeypatch.undo()
    assert (fetches.output_dir / STAGE / "mine").read_text() == "mine"
    assert marker.read_text().splitlines()[1:] == ["a_lib_generic"]
    assert not marker.is_symlink()


_open_to_read = Folder.open_to_read


def _refuse_markers(folder: Folder, name: str) -> int:
    if name.endswith(".prebuilt"):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return _open_to_read(folder, name)


def test_bootstrap_never_removes_what_a_person_built_before_the_first_fetch(fetches: Fetches) -> None:
    write_tree(fetches.output_dir, {f"{STAGE}/mine": "mine"})
    for wanted in (["a_lib_generic"], ["a_lib_generic", "b_lib_generic"], ["a_lib_generic", "b_lib_generic"]):
        fetch = fetches.begin("bootstrap", wanted)
        for name in wanted:
            fetch.place_files(name, {name: b"1"})
        fetch.finish()
        assert (fetches.output_dir / STAGE / "mine").read_text() == "mine"
    lines = (fetches.output_dir / f"{STAGE}.prebuilt").read_text().splitlines()
    assert lines[0].startswith("#")
    assert lines[1:] == ["a_lib_generic", "b_lib_generic"]


def test_bootstrap_without_its_end_writes_no_marker_and_leaves_none_of_a_former_fetch(fetches: Fetches) -> None:
    former = fetches.begin("bootstrap")
    former.place_files("a_lib_generic", {"x": b"1"})
    former.place_files("b_lib_generic", {"x": b"1"}, "other/stage")
    former.finish()
    fetch = fetches.begin("bootstrap", ["a_lib_generic"])
    fetch.place_files("a_lib_generic", {"x": b"2"})
    fetch.placement.close()
    assert read_tree(fetches.output_dir) == {
        f"{STAGE}/x": b"2",
        "other/stage/x": b"1",
        "other/stage.prebuilt": b"b_lib_generic\n",
    }
    assert fetch.placement.placed == (fetches.output_dir / STAGE,)


def test_two_fetches_into_one_folder_at_once_leave_one_marker_of_both(fetches: Fetches) -> None:
    one, two = (fetches.begin("bootstrap", [name]) for name in ("a_lib_generic", "b_lib_generic"))
    one.place_files("a_lib_generic", {"a": b"1"})
    two.place_files("b_lib_generic", {"b": b"2"})
    one.finish()
    two.finish()
    found = read_tree(fetches.output_dir)
    lines = found.pop(f"{STAGE}.prebuilt").decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["a_lib_generic", "b_lib_generic"]
    assert found == {f"{STAGE}/a": b"1", f"{STAGE}/b": b"2"}


def test_a_marker_that_cannot_be_written_is_an_error_of_its_artifacts_alone(fetches: Fetches) -> None:
    fetch = fetches.begin("bootstrap", ["a_lib_generic", "b_lib_generic", "c_lib_generic"])
    fetch.place_files("a_lib_generic", {"a": b"1"})
    fetch.place_files("b_lib_generic", {"b": b"1"})
    fetch.place_files("c_lib_generic", {"c": b"1"}, "other/stage")
    write_tree(fetches.output_dir, {f"{STAGE}.prebuilt/in the way": "1"})
    errors = fetch.placement.finish()
    assert errors.keys() == {"a_lib_generic", "b_lib_generic"}
    assert all("stage.prebuilt" in error.what for error in errors.values())
    assert (fetches.output_dir / "other/stage.prebuilt").read_text() == "c_lib_generic\n"


def test_a_marker_behind_a_link_is_an_error_and_not_written(fetches: Fetches, tmp_path: Path) -> None:
    fetch = fetches.begin("bootstrap")
    fetch.place_files("a_lib_generic", {"a": b"1"})
    (fetches.output_dir / "math").rename(tmp_path / "moved")
    (fetches.output_dir / "math").symlink_to(tmp_path / "moved")
    assert fetch.placement.finish().keys() == {"a_lib_generic"}
    assert read_tree(tmp_path / "moved") == {"stage/a": b"1"}


def test_bootstrap_leaves_alone_what_has_no_marker(fetches: Fetches) -> None:
    write_tree(fetches.output_dir, {f"{STAGE}/mine": "mine", "math/CMakeLists.txt": "mine"})
    fetches.begin("bootstrap").place_files("blas_lib_generic", {"lib/x": b"1"})
    assert (fetches.output_dir / STAGE / "mine").read_text() == "mine"
    assert (fetches.output_dir / "math/CMakeLists.txt").read_text() == "mine"


def test_bootstrap_marks_a_listed_subtree_that_the_archive_does_not_have(fetches: Fetches) -> None:
    listed = b"a_dbg_generic\n"
    write_tree(fetches.output_dir, {"a/stage/stale": "old", "a/stage.prebuilt": listed, "b/stage.prebuilt": listed})
    fetch = fetches.begin("bootstrap", ["a_dbg_generic"])
    fetch.place("a_dbg_generic", [manifest("a/stage", "b/stage", "c/stage")])
    fetch.finish()
    assert read_tree(fetches.output_dir) == {f"{name}/stage.prebuilt": listed for name in "abc"}


def test_bootstrap_has_no_marker_while_content_is_missing(fetches: Fetches, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = fetches.output_dir / f"{STAGE}.prebuilt"
    seen: list[bool] = []

    def move(source: Folder, name: str, target: Folder, new_name: str) -> None:
        seen.append(marker.exists())
        real(source, name, target, new_name)

    real = _tree_merge.move
    monkeypatch.setattr(_tree_merge, "move", move)
    fetch = fetches.begin("bootstrap")
    for name in ("a_lib_generic", "a_run_generic"):
        fetch.place_files(name, {name: b"1"})
    assert seen == [False, False]
    assert not marker.exists()
    fetch.finish()
    assert marker.exists()


def test_bootstrap_refuses_a_marker_s_place_that_is_a_folder(fetches: Fetches) -> None:
    write_tree(fetches.output_dir, {f"{STAGE}.prebuilt/mine": "mine"})
    fetch = fetches.begin("bootstrap")
    with pytest.raises(LocalFileError, match="prebuilt"):
        fetch.place_files("a_lib_generic", {"x": b"1"})
    assert not (fetches.output_dir / STAGE).exists()


def test_bootstrap_replaces_a_marker_that_is_a_link_and_not_where_it_leads(fetches: Fetches, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (fetches.output_dir / "math").mkdir(parents=True)
    (fetches.output_dir / f"{STAGE}.prebuilt").symlink_to(victim)
    fetch = fetches.begin("bootstrap")
    fetch.place_files("a_lib_generic", {"x": b"1"})
    fetch.finish()
    assert victim.read_text() == "kept"
    assert (fetches.output_dir / f"{STAGE}.prebuilt").is_file()
    assert not (fetches.output_dir / f"{STAGE}.prebuilt").is_symlink()


def test_bootstrap_follows_no_link_in_a_former_subtree_s_place(fetches: Fetches, tmp_path: Path) -> None:
    victim = write_tree(tmp_path / "victim", {"kept": "1"})
    (fetches.output_dir / "math").mkdir(parents=True)
    (fetches.output_dir / STAGE).symlink_to(victim)
    (fetches.output_dir / f"{STAGE}.prebuilt").write_text("a_lib_generic\n")
    with pytest.raises(LocalFileError, match="a symbolic link"):
        fetches.begin("bootstrap", ["a_lib_generic"]).place_files("a_lib_generic", {"x": b"1"})
    assert read_tree(victim) == {"kept": b"1"}


@pytest.mark.parametrize(("first", "second"), [("a", "a/stage"), ("a/stage", "a")])
def test_bootstrap_refuses_subtrees_of_two_artifacts_in_each_other(first: str, second: str, fetches: Fetches) -> None:
    fetch = fetches.begin("bootstrap")
    fetch.place_files("a_lib_generic", {"x": b"1"}, first)
    with pytest.raises(LocalFileError) as caught:
        fetch.place_files("b_lib_generic", {"y": b"2"}, second)
    assert all(f"'{part}'" in str(caught.value) for part in ("a_lib_generic", "b_lib_generic", first, second))
    fetch.placement.close()
    assert read_tree(fetches.output_dir) == {f"{first}/x": b"1"}


# all


@pytest.mark.parametrize("layout", ["extract", "flatten", "bootstrap"])
def test_a_second_fetch_of_the_same_gives_the_same(layout: Layout, fetches: Fetches) -> None:
    trees = []
    for _ in range(2):
        fetch = fetches.begin(layout, ["a_lib_generic", "b_lib_generic"])
        fetch.place("a_lib_generic", RICH)
        assert fetch.place_files("b_lib_generic", {"lib/libx.so.1": b"\x7fELF", "bin/y": b"1"}) == ()
        fetch.finish()
        trees.append(snapshot(fetches.output_dir))
    assert trees[0] == trees[1]


@pytest.mark.parametrize("layout", ["extract", "flatten", "bootstrap"])
def test_no_scratch_is_seen_as_an_output_and_none_is_left(layout: Layout, fetches: Fetches) -> None:
    fetch = fetches.begin(layout)
    scratch = fetch.placement.make_scratch()
    (scratch / "half").write_text("1")
    backend = LocalStorageBackend(fetches.output_dir)
    assert list(backend.list_objects(StorageLocation("local", ""))) == []
    assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
    assert scratch.parent == fetches.output_dir
    with fetch.placement:
        fetch.place("a_lib_generic", RICH)
    assert [path for path in fetches.output_dir.rglob("*") if TEMPORARY_NAME.fullmatch(path.name)] == []
    fetch.placement.close()


def test_only_old_scratch_of_a_killed_process_is_removed(fetches: Fetches, tmp_path: Path) -> None:
    names = {letter: f".therock-outputs-{letter * 16}.partial" for letter in "abcd"}
    write_tree(fetches.output_dir, {f"{names['a']}/x/y": "1", f"{names['b']}/x": "1", names["c"]: "1", "old/x": "1"})
    victim = write_tree(tmp_path / "victim", {"kept": "1"})
    (fetches.output_dir / names["d"]).symlink_to(victim)
    long_ago = time.time() - 25 * 3600
    for name in (names["a"], names["c"], "old"):
        os.utime(fetches.output_dir / name, (long_ago, long_ago))
    os.utime(fetches.output_dir / names["d"], (long_ago, long_ago), follow_symlinks=False)
    os.utime(victim, (long_ago, long_ago))
    fetches.begin("extract").placement.make_scratch()
    left = {path.name for path in fetches.output_dir.iterdir()}
    assert names["a"] not in left
    assert {names["b"], names["c"], names["d"], "old"} <= left
    assert read_tree(victim) == {"kept": b"1"}


def test_an_output_dir_that_cannot_be_made_is_told(fetches: Fetches) -> None:
    fetches.output_dir.write_text("a file")
    with pytest.raises(LocalFileError, match="out"):
        fetches.begin("extract").placement.make_scratch()


def test_an_output_dir_may_be_a_link_of_the_user_s(fetches: Fetches, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    fetches.output_dir.symlink_to(tmp_path / "disk")
    fetch = fetches.begin("bootstrap")
    fetch.place_files("a_lib_generic", {"x": b"1"})
    fetch.finish()
    assert read_tree(tmp_path / "disk") == {f"{STAGE}/x": b"1", f"{STAGE}.prebuilt": b"a_lib_generic\n"}


def test_all_descriptors_are_closed_again(fetches: Fetches) -> None:
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("Linux tells what is open")
    before = len(list(descriptors.iterdir()))
    fetch = fetches.begin("flatten")
    fetch.place_files("a_lib_generic", {"a/b/c": b"1", "a/d": b"1"})
    with pytest.raises(LocalFileError):
        fetch.place_files("b_lib_generic", {"a/b/c/d": b"1"})
    fetch.placement.close()
    assert len(list(descriptors.iterdir())) == before


@pytest.mark.parametrize("layout", ["extract", "flatten", "bootstrap"])
def test_without_folder_descriptors_everything_becomes_the_same(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = []
    for has_descriptors in (True, False):
        monkeypatch.setattr(_folder, "_HAS_FOLDER_DESCRIPTORS", has_descriptors)
        monkeypatch.setattr(artifact_extraction, "_BY_DESCRIPTOR", has_descriptors)
        root = tmp_path / str(has_descriptors)
        root.mkdir()
        fetches = Fetches(root)
        for _ in range(2):
            fetch = fetches.begin(layout, ["a_lib_generic", "b_lib_generic"])
            fetch.place("a_lib_generic", RICH)
            fetch.place_files("b_lib_generic", {"lib/libx.so.1": b"other", "bin/y": b"1"})
            fetch.finish()
            fetches.close()
        trees.append(snapshot(fetches.output_dir))
    assert trees[0] == trees[1]


PATHS = st.sampled_from(["a", "b", "a/b", "a/c", "a/b/c", "d/e/f", "d/e/g", "d"])
ARTIFACTS = st.lists(st.dictionaries(PATHS, st.binary(max_size=2), max_size=4), max_size=4)


def _conflicts(tree: Mapping[str, bytes], files: Mapping[str, bytes]) -> bool:
    paths = {*tree, *files}
    return any(other.startswith(f"{path}/") for path in paths for other in paths)


@settings(max_examples=200)
@given(artifacts=ARTIFACTS, former=st.dictionaries(PATHS, st.binary(max_size=2), max_size=3))
@pytest.mark.parametrize("layout", ["flatten", "bootstrap"])
def test_any_artifacts_merge_as_by_hand_or_are_refused_whole(
    layout: Layout,
    artifacts: list[dict[str, bytes]],
    former: dict[str, bytes],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("merge")
    fetches = Fetches(root)
    at = fetches.output_dir / (STAGE if layout == "bootstrap" else "")
    tree: dict[str, bytes] = {} if _conflicts(former, {}) else dict(former)
    write_tree(at, tree)
    brought: dict[str, bytes] = {}
    fetch = fetches.begin(layout)
    for number, files in enumerate(artifacts):
        if _conflicts(files, {}):
            continue
        if _conflicts(tree, files):
            with pytest.raises(LocalFileError):
                fetch.place_files(f"{number}_lib_generic", files)
        else:
            warnings = fetch.place_files(f"{number}_lib_generic", files)
            assert bool(warnings) == any(path in brought and brought[path] != data for path, data in files.items())
            tree |= files
            brought |= files
        found = read_tree(at) if at.is_dir() else {}
        assert {path: data for path, data in found.items() if not path.startswith(".therock")} == tree
    fetches.close()
