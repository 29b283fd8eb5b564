"""An index page links every file to exactly its object, and shows any name as text."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import re
from html.parser import HTMLParser
from urllib.parse import urljoin

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from _therock_utils._keys import key_fault
from fakes.reports import HOSTILE_NAMES, at
from therock_outputs.index_json import is_own_json, list_time, read_digests, render_index_json
from therock_outputs.index_page import (
    GENERATOR,
    FileEntry,
    FolderEntry,
    ListedFile,
    generator_of,
    read_index_page,
    render_folder_page,
    render_index_page,
)
from therock_outputs.text_safety import visible

PAGE = at("logs/gfx94X-dcgpu/index.html")
FOLDER = at("logs/gfx94X-dcgpu")
NOON = datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.UTC)
LATER = datetime.datetime(2026, 12, 1, 15, 4, 5, 999_999, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))

legal_names = (
    st.text(st.sampled_from("ab/#?%+&;=:@ \"'<>~.é漢😀"), min_size=1, max_size=20) | st.text(min_size=1, max_size=20)
).filter(lambda name: not key_fault(name))


json_names = legal_names.map(lambda name: name.replace("/", "-")) | (
    st.text(st.sampled_from("{}[]:,\"'x\ufeff"), min_size=1, max_size=8).filter(lambda name: not key_fault(name))
)
"""Segments, of what JSON is made of above all."""


class Reader(HTMLParser):
    """Tags, attributes and texts of a page."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.hrefs: list[str] = []
        self.texts: list[str] = []
        self.meta: dict[str, str] = {}
        self.cells: list[str] = []
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = {name: value or "" for name, value in attrs}
        assert all(not name.startswith("on") for name in values)
        if tag == "a":
            self.hrefs.append(values["href"])
            self.texts.append("")
        if tag == "td":
            self.cells.append("")
        if tag == "meta" and "name" in values:
            self.meta[values["name"]] = values["content"]

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] += data if self._in_link else ""
        if self.cells and self._in_cell:
            self.cells[-1] += data

    _in_link = _in_cell = False

    def parse_starttag(self, i: int) -> int:
        end = super().parse_starttag(i)
        self._in_link = self.lasttag == "a" or (self._in_link and self.lasttag == "bdi")
        self._in_cell = self.lasttag in {"a", "bdi", "td", "span", "small"}
        return end

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._in_link = False
        if tag == "td":
            self._in_cell = False


def tags_of(page: bytes) -> set[str]:
    return set(Reader(page).tags)


def folder_page(*names: str, folders: tuple[str, ...] = ()) -> bytes:
    files = [FileEntry(name, 1, NOON) for name in names]
    return render_folder_page(("100-linux", "logs"), files, [FolderEntry(name, 1, 1, NOON) for name in folders])


def segment(name: str) -> str:
    return name.replace("/", "-")


def written_once(page: str, tag: str) -> str:
    """The text of the page's one element of this kind, and that the page allows just this text to act."""
    (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    assert f"{tag}-src 'sha256-{digest}'" in page
    return str(text)


PLAIN_TAGS = tags_of(render_index_page("Logs", [ListedFile("a", 1)]))
FOLDER_TAGS = tags_of(folder_page("a", folders=("b",)))


@given(legal_names)
@example("javascript:alert(1)")
@example("//evil.example/x")
@example("a/../b#c?d%2F+e")
@example("100%")
@example("x:y")
@example("1.0+rocm7.tar.gz")
@example("Ünïcode 漢字.log")
def test_a_link_leads_to_exactly_the_objects_url(name: str) -> None:
    if key_fault(name):
        return
    (href,) = Reader(render_index_page("Logs", [ListedFile(name, 1)])).hrefs
    assert urljoin(PAGE.https_url, href) == FOLDER.child(name).https_url


@given(st.lists(st.builds(ListedFile, legal_names, st.integers(0, 10**14)), unique_by=lambda file: file.name))
def test_a_page_is_read_back_to_its_very_files(files: list[ListedFile]) -> None:
    assert read_index_page(render_index_page("Logs", files)) == tuple(sorted(files))


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"\xff\x00<",
        b"<html><a href='./x'>x</a></html>",
        render_index_page("x", [ListedFile("a", 1)]).replace(GENERATOR.encode(), b"another"),
        b"therock-outputs files",
        b"<!doctype html>" + b" " * 20_000 + b'<meta name="generator" content="therock-outputs files">',
    ],
)
def test_a_page_of_another_program_is_none_of_ours(page: bytes) -> None:
    assert read_index_page(page) is None


@pytest.mark.parametrize("href", ["../x", "./a/../b", "./%00", "./", "/x", "./a%2F%2E%2E"])
def test_a_row_whose_name_no_key_has_is_dropped(href: str) -> None:
    page = render_index_page("x", [ListedFile("a", 1), ListedFile("b", 2)]).replace(b'"./a"', f'"{href}"'.encode())
    assert read_index_page(page) == (ListedFile("b", 2),)


@given(st.text())
@example("<script>alert(1)</script>")
@example('"><img src=x onerror=alert(1)>')
@example("</title></style><h1>")
def test_a_name_and_a_title_are_text_and_nothing_else(text: str) -> None:
    name = text.encode(errors="replace").decode()
    page = Reader(render_index_page(text, [ListedFile(name or "x", 1)]))
    assert set(page.tags) == PLAIN_TAGS
    assert page.texts == [visible(name or "x")]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_name_is_one_row(name: str) -> None:
    page = Reader(render_index_page(name, [ListedFile(name, 1)]))
    assert len(page.hrefs) == 1
    assert page.hrefs[0].startswith("./")
    assert set(page.tags) == PLAIN_TAGS


def test_files_are_listed_by_name_with_sizes_and_the_sum_whatever_their_order() -> None:
    files = [
        ListedFile("b/c.log", 2_000),
        ListedFile("a.log", 0),
        ListedFile("b.log", 1_500_000),
        ListedFile("B.log", 1),
    ]
    data = render_index_page("Logs: gfx94X-dcgpu", files)
    assert data == render_index_page("Logs: gfx94X-dcgpu", iter(reversed(files)))
    page = Reader(data)
    cells = [cell.strip() for cell in page.cells]
    assert cells == ["B.log", "1 B", "a.log", "0 B", "b.log", "1.5 MB", "b/c.log", "2.0 kB"]
    assert "Modified" not in data.decode()
    assert "<p>4 files, 1.5 MB</p>" in data.decode()
    assert "<p>1 file, 1 B</p>" in render_index_page("x", [ListedFile("a", 1)]).decode()


def test_a_page_is_known_for_ours_and_needs_nothing_from_elsewhere() -> None:
    data = render_index_page("Logs", [ListedFile("a", 1)])
    assert Reader(data).meta["generator"] == GENERATOR
    assert (PLAIN_TAGS | FOLDER_TAGS).isdisjoint({"link", "img", "iframe"})
    assert b"http:" not in data
    assert b"https:" not in data
    assert b"url(" not in data


@pytest.mark.parametrize("page", [render_index_page("Logs", [ListedFile("a", 1)]), folder_page("a", folders=("b",))])
def test_only_the_pages_own_style_and_script_can_act(page: bytes) -> None:
    text = page.decode()
    assert "default-src 'none';" in text
    assert written_once(text, "style")
    assert written_once(text, "script")


def test_a_page_of_no_files_is_a_page() -> None:
    assert "<p>0 files, 0 B</p>" in render_index_page("Logs", []).decode()


@given(legal_names.map(segment), legal_names.map(segment))
@example("javascript:alert(1)", "b#c?d%2F+e")
@example("100%", "<script>")
def test_rows_of_a_folder_lead_to_exactly_their_objects(file: str, folder: str) -> None:
    if key_fault(file) or key_fault(folder):
        return
    page = Reader(folder_page(file, folders=(folder,)))
    here = at("logs/index.html").https_url
    assert [urljoin(here, href) for href in page.hrefs] == [
        at("index.html").https_url,
        at("logs").child(folder).child("index.html").https_url,
        at("logs").child(file).https_url,
    ]
    assert page.texts == ["100-linux", f"{visible(folder)}/", visible(file)]
    assert set(page.tags) == FOLDER_TAGS


@pytest.mark.parametrize("name", [name.replace("/", "") for name in HOSTILE_NAMES])
def test_a_hostile_path_is_text_and_links_up(name: str) -> None:
    page = Reader(render_folder_page(("100-linux", name, name), [FileEntry(name, 1, NOON)], []))
    assert page.hrefs[:2] == ["../../index.html", "../index.html"]
    assert len(page.hrefs) == 3
    assert set(page.tags) == FOLDER_TAGS - {"small"}


def test_a_folders_page_shows_folders_first_with_their_sums_and_times_in_utc() -> None:
    files = [FileEntry("b.log", 2_000, LATER), FileEntry("a.log", 5, NOON)]
    folders = [FolderEntry("z", 1, 7, NOON), FolderEntry("m", 1_200, 5_000_000, LATER, has_page=False)]
    data = render_folder_page(("100-linux",), files, folders)
    page = Reader(data)
    assert [cell.strip() for cell in page.cells if cell.strip()] == [
        *("m/ 1,200 files", "5.0 MB", "2026-12-01 13:04:05"),
        *("z/ 1 file", "7 B", "2026-12-01 12:00:00"),
        *("a.log", "5 B", "2026-12-01 12:00:00"),
        *("b.log", "2.0 kB", "2026-12-01 13:04:05"),
    ]
    assert page.hrefs == ["./z/index.html", "./a.log", "./b.log"]  # and no link where there is no page
    summary = "<p>2 folders, 1,203 files, 5.0 MB, <span>newest 2026-12-01 13:04:05 UTC</span></p>"
    assert summary in data.decode()
    assert data == render_folder_page(("100-linux",), files[::-1], folders[::-1])
    assert data.count(b"<tbody") == 2
    assert folder_page("a").count(b"<tbody") == 1


def test_folders_are_no_files_where_a_page_is_read_back() -> None:
    assert read_index_page(folder_page("b", "a", folders=("c", "d"))) == (ListedFile("a", 1), ListedFile("b", 1))


def test_a_row_takes_less_than_200_bytes() -> None:
    names = [f"therock-dist-linux-component-{number:05}-build.log" for number in range(1_000)]
    assert len(folder_page(*names)) < len(folder_page("a")) + 200 * 1_000


@pytest.mark.parametrize(
    ("page", "generator"),
    [
        (b"", ""),
        (b"<meta name=generator content='Sphinx 9'>", "Sphinx 9"),
        (b"<meta name='generator'>", ""),
        (b"<title>&lt;meta name=generator content=x></title>", ""),
        (b"\xff<meta charset=x><meta content='therock-outputs python' name='generator'>", "therock-outputs python"),
        (b"<META NAME='Generator' CONTENT='Doxygen 1.9'>", "Doxygen 1.9"),
        (b"<meta name=generator content='Doxygen'><meta name=generator content='therock-outputs files'>", "Doxygen"),
        (b"<meta name=generator><meta name=generator content='therock-outputs files'>", ""),
        (b"<head></head><meta name=generator content='therock-outputs files'>", ""),
        (b"<body><textarea><meta name=generator content='therock-outputs files'></textarea>", ""),
        (b"<p>How it is made:<meta name=generator content='therock-outputs files'>", ""),
        (b"<title><meta name=generator content='therock-outputs files'></title>", ""),
        (b"<title>x</title><meta name=generator content='therock-outputs files'>", GENERATOR),
        (b"<template><p><meta name=generator content='x'></template><meta name=generator content='y'>", "y"),
        (b"<script>'<meta name=generator content=x>'</script><link><meta name=generator content='y'>", "y"),
        (b"<!-- <meta name=generator content='x'> --><meta name=generator content='y'>", "y"),
        (b"<meta name=generator content='x'>" + b"<![what[ever]]>", "x"),
        (b"<![what[ever]]><meta name=generator content='therock-outputs files'>", ""),
        (folder_page("a"), GENERATOR),
    ],
)
def test_a_page_says_which_program_made_it(page: bytes, generator: str) -> None:
    assert generator_of(page) == generator


def test_the_list_for_machines_says_all_of_a_folder() -> None:
    name = 'q"\u00e9+ 1.txt'
    data = render_index_json(
        at("logs"),
        [FileEntry(name, 3, LATER, "a" * 64), FileEntry("a", 0, NOON)],
        [FolderEntry("z", 2, 9, NOON), FolderEntry("m", 1, 4, NOON, has_page=False)],
    )
    assert json.loads(data) == {
        "generator": "therock-outputs files",
        "format": "therock-outputs/index/1",
        "prefix": at("logs").relative_path,
        "url": at("logs/index.html").https_url,
        "folders": [
            {"name": "m", "file_count": 1, "total_bytes": 4, "modified": "2026-12-01T12:00:00Z", "url": ""},
            {
                "name": "z",
                "file_count": 2,
                "total_bytes": 9,
                "modified": "2026-12-01T12:00:00Z",
                "url": at("logs/z/index.html").https_url,
            },
        ],
        "files": [
            {
                "name": "a",
                "size_bytes": 0,
                "sha256": "",
                "modified": "2026-12-01T12:00:00Z",
                "url": at("logs/a").https_url,
            },
            {
                "name": name,
                "size_bytes": 3,
                "sha256": "a" * 64,
                "modified": "2026-12-01T13:04:05Z",
                "url": at("logs").child(name).https_url,
            },
        ],
    }
    assert is_own_json(data)
    assert json.loads(render_index_json(at("logs"), [], []))["files"] == []


@given(st.lists(json_names, unique=True), st.lists(json_names, unique=True))
@example(['},{"', ':[{"', '"},{"name":"'], ['},{"'])
@example(["x},{", "x:[{", "},", "[", "\ufeff", '"'], ["b:[{", "},{"])
def test_the_list_names_every_entry_one_a_line_whatever_the_names(files: list[str], folders: list[str]) -> None:
    data = render_index_json(
        at("logs"),
        [FileEntry(name, 1, NOON) for name in files],
        [FolderEntry(name, 1, 1, NOON) for name in folders],
    )
    document = json.loads(data)
    assert [entry["name"] for entry in document["files"]] == sorted(files)
    assert [entry["name"] for entry in document["folders"]] == sorted(folders)
    assert [entry["url"] for entry in document["files"]] == [at("logs").child(name).https_url for name in sorted(files)]
    assert data.count(b"\n") == 1 + len(files) + len(folders)


def test_the_digests_of_a_list_are_read_back_by_name_size_and_time() -> None:
    files = [FileEntry("a},{", 3, LATER, "a" * 64), FileEntry("b", 0, NOON)]
    assert read_digests(render_index_json(at("logs"), files, [])) == {
        ("a},{", 3, list_time(LATER)): "a" * 64,
    }


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"files":3}',
        b'{"files":[3]}',
        b'{"files":[{"name":"x"}]}',
        b'{"files":[{"name":"x","size_bytes":1,"modified":"x","sha256":"no digest"}]}',
        b'{"files":[{"name":["x"],"size_bytes":1,"modified":"x","sha256":"%s"}]}' % (b"a" * 64),
        b'{"files":[{"name":"x","size_bytes":1,"modified":"x","sha256":["%s"]}]}' % (b"a" * 64),
        b'{"generator":' * 100_000,
        b'{"files":[{"name":"x","size_bytes":' + b"9" * 5_000 + b"}]}",
    ],
)
def test_a_list_that_cannot_be_read_says_no_digest(data: bytes) -> None:
    assert read_digests(data) == {}


def test_names_are_shown_with_all_their_blanks_and_never_turn_what_stands_beside_them() -> None:
    page = folder_page("a  b", "\u05d0.log", folders=("\u05d1",)).decode()
    assert "bdi{white-space:pre-wrap}" in page
    for name in ("a  b", "\u05d0.log", "\u05d1/", "100-linux", "logs"):
        assert f"<bdi>{name}</bdi>" in page
    unlinked = render_folder_page(("x",), [], [FolderEntry("\u05d1", 1, 1, NOON, has_page=False)]).decode()
    assert "<span><bdi>\u05d1/</bdi></span>" in unlinked
    assert "<bdi>a  b</bdi>" in render_index_page("x", [ListedFile("a  b", 1)]).decode()


@pytest.mark.parametrize("data", [b"", b"{}", b'{"generator":"another"}', b"\xff" * 40, b'["therock-outputs files"]'])
def test_another_programs_list_is_none_of_ours(data: bytes) -> None:
    assert not is_own_json(data)
