"""Folders are put together from a listing in one pass: all of them, those inside first, with the right sums."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from therock_outputs.index_json import render_index_json
from therock_outputs.index_page import FileEntry, ListedFile, render_index_page
from therock_outputs.modes._index_digests import RecordedDigests
from therock_outputs.modes._index_tree import Folder, Item, Maker, folders_of, maker_of, parents
from therock_outputs.run_records import RecordedObject, RunRecord

NOON = datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.UTC)
ROOT_JSON = b'{"generator":"therock-outputs files","format":"x"}'


def at(minute: int) -> datetime.datetime:
    return NOON + datetime.timedelta(minutes=minute)


def folders(
    *names: str, top: str = "", force: bool = False, makers: dict[str, Maker] | None = None
) -> dict[str, Folder]:
    items = [Item(name, 1, NOON) for name in sorted(names, key=str.encode)]
    found = folders_of(items, lambda name: (makers or {}).get(name, "this"), top=top, force=force)
    return {folder.path: folder for folder in found}


def rows(folder: Folder) -> list[str]:
    return [f"{entry.name}/" for entry in folder.folders] + [entry.name for entry in folder.files]


segments = st.text(st.sampled_from("ab-.!é😀"), min_size=1, max_size=3).filter(lambda text: bool(text.strip(".")))
names = st.lists(segments, min_size=1, max_size=4).map("/".join)


@given(st.dictionaries(names, st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=25))
def test_one_pass_gives_what_looking_at_all_keys_for_each_folder_gives(sizes: dict[str, tuple[int, int]]) -> None:
    items = [Item(name, size, at(minute)) for name, (size, minute) in sizes.items()]
    items.sort(key=lambda item: item.name.encode())
    found = list(folders_of(items, lambda _name: "this", top="", force=False))
    paths = [folder.path for folder in found]
    assert set(paths) == {path for name in sizes for path in parents(name)}
    assert len(paths) == len(set(paths))
    for number, folder in enumerate(found):
        assert not set(parents(folder.path)) & set(paths[:number])
        start = f"{folder.path}/" if folder.path else ""
        below = {name.removeprefix(start): value for name, value in sizes.items() if name.startswith(start)}
        assert {file.name: (file.size_bytes, file.modified) for file in folder.files} == {
            name: (size, at(minute)) for name, (size, minute) in below.items() if "/" not in name
        }
        for entry in folder.folders:
            inside = [value for name, value in below.items() if name.startswith(f"{entry.name}/")]
            assert entry.file_count == len(inside)
            assert entry.total_bytes == sum(size for size, _ in inside)
            assert entry.modified == at(max(minute for _, minute in inside))


def test_documents_of_this_project_are_no_rows_and_make_no_folder() -> None:
    makers: dict[str, Maker] = {"python/simple/index.html": "sibling"}
    found = folders("a", "index.html", "gone/index.html", "gone/index.json", "python/simple/index.html", makers=makers)
    assert rows(found[""]) == ["a"]
    assert not found["gone"].has_content
    assert found["gone"].documents == {"index.html": "this", "index.json": "this"}
    assert found["python/simple"].is_siblings
    assert not found["python"].has_content


def test_another_programs_page_is_a_file_that_stays() -> None:
    makers: dict[str, Maker] = {"x/index.html": "other", "x/index.json": "unknown"}
    found = folders("x/index.html", "x/index.json", "x/a", makers=makers)
    assert rows(found["x"]) == ["a", "index.html", "index.json"]
    assert found["x"].kept == {"index.html", "index.json"}
    assert rows(found[""]) == ["x/"]


def test_with_force_another_programs_page_is_no_file_but_what_cannot_be_read_stays() -> None:
    makers: dict[str, Maker] = {"x/index.html": "other", "x/index.json": "unknown"}
    found = folders("x/index.html", "x/index.json", "x/a", makers=makers, force=True)
    assert rows(found["x"]) == ["a", "index.json"]
    assert found["x"].kept == {"index.json"}


def test_even_with_force_a_page_that_is_all_there_is_stays() -> None:
    found = folders("report/index.html", "a", makers={"report/index.html": "other"}, force=True)
    assert rows(found["report"]) == ["index.html"]
    assert found["report"].kept == {"index.html"}
    assert rows(found[""]) == ["report/", "a"]


def test_a_document_that_nobody_has_read_is_told() -> None:
    assert folders("x/a", "x/index.html", makers={"x/index.html": "new"})["x"].new_documents == ("index.html",)
    assert folders("x/a", "x/index.html")["x"].new_documents == ()


def test_beside_the_page_of_another_mode_only_the_list_is_to_be_written() -> None:
    makers: dict[str, Maker] = {"x/index.html": "sibling", "y/index.html": "sibling", "z/index.html": "sibling"}
    found = folders(
        "x/a", "x/index.html", "y/index.html", "y/index.json", "z/index.html", "w/index.json", makers=makers
    )
    assert {path: found[path].names_to_write for path in "wxyz"} == {
        "w": (),
        "x": ("index.json",),
        "y": ("index.json",),  # its page stays, so what it says stays true
        "z": (),
    }


def test_a_folders_row_says_whether_it_has_a_page() -> None:
    found = folders("x/a", "x/index.html", "y/a", "y/index.json")
    assert [(row.name, row.has_page) for row in found[""].folders] == [("x", True), ("y", False)]


def test_below_a_folder_it_is_the_first_and_nothing_above_it_is_given() -> None:
    assert list(folders("logs/g/a/b/c", "logs/g/x", top="logs/g")) == ["logs/g/a/b", "logs/g/a", "logs/g"]
    assert folders(top="logs/g") == {}


@pytest.mark.parametrize(
    ("name", "data", "maker"),
    [
        ("index.html", render_index_page("x", [ListedFile("a", 1)]), "this"),
        ("index.html", b"<meta name=generator content='therock-outputs python'>", "sibling"),
        ("index.html", b"<meta name=generator content='therock-outputs-like'>", "other"),
        ("index.html", b"<h1>Index of /", "other"),
        ("index.html", b"", "other"),
        ("index.json", ROOT_JSON, "this"),
        ("index.json", b'{"generator": "therock-outputs files"}', "other"),
        ("index.json", b"[]", "other"),
    ],
)
def test_a_documents_maker_is_known_by_its_generator(name: str, data: bytes, maker: str) -> None:
    assert maker_of(name, data) == maker


def record(name: str, *claims: tuple[str, int, str]) -> RunRecord:
    objects = tuple(RecordedObject(f"100-linux/{key}", size, digest) for key, size, digest in claims)
    return RunRecord(name, "upload-build", "g", complete=True, objects=objects, per_stage={})


def test_a_digest_is_known_where_a_record_since_then_says_it_of_that_size() -> None:
    records = [record("r1", ("a", 5, "1" * 64), ("b", 5, "")), record("r2", ("a", 5, "2" * 64), ("c", 1, "3" * 64))]
    digests = RecordedDigests(records, {"r1": at(10), "r2": at(20)}, prefix="100-linux")
    assert digests.of("a", 5, at(11)) == "2" * 64  # the first record is older than the object
    assert digests.of("a", 5, at(20)) == "2" * 64
    assert digests.of("a", 5, at(10)) == ""  # they disagree
    assert digests.of("a", 5, at(21)) == ""
    assert digests.of("a", 6, at(11)) == ""
    assert digests.of("b", 5, at(1)) == ""
    assert digests.of("c", 1, at(1)) == "3" * 64
    assert digests.of("x", 1, at(1)) == ""


def test_a_record_whose_time_is_not_known_says_nothing() -> None:
    assert RecordedDigests([record("r", ("a", 5, "1" * 64))], {}, prefix="100-linux").of("a", 5, at(0)) == ""


def test_a_list_of_ours_begins_as_it_is_known_by() -> None:
    from fakes.reports import at as location

    assert render_index_json(location("x"), [FileEntry("a", 1, NOON)], []).startswith(ROOT_JSON.partition(b",")[0])
