"""An index page links every file to exactly its object, and shows any name as text."""

from __future__ import annotations

from html.parser import HTMLParser
from urllib.parse import urljoin

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from _therock_utils._keys import key_fault
from fakes.reports import HOSTILE_NAMES, at
from therock_outputs.index_page import GENERATOR, ListedFile, read_index_page, render_index_page
from therock_outputs.text_safety import visible

PAGE = at("logs/gfx94X-dcgpu/index.html")
FOLDER = at("logs/gfx94X-dcgpu")

legal_names = (
    st.text(st.sampled_from("ab/#?%+&;=:@ \"'<>~.é漢😀"), min_size=1, max_size=20) | st.text(min_size=1, max_size=20)
).filter(lambda name: not key_fault(name))


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
        self._in_link = self.lasttag == "a"
        self._in_cell = self.lasttag in {"a", "td"}
        return end

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._in_link = False
        if tag == "td":
            self._in_cell = False


def tags_of(page: bytes) -> set[str]:
    return set(Reader(page).tags)


PLAIN_TAGS = tags_of(render_index_page("Logs", [ListedFile("a", 1)]))


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
    assert page.cells == ["B.log", "1 B", "a.log", "0 B", "b.log", "1.5 MB", "b/c.log", "2.0 kB"]
    assert "<p>4 files, 1.5 MB</p>" in data.decode()
    assert "<p>1 file, 1 B</p>" in render_index_page("x", [ListedFile("a", 1)]).decode()


def test_a_page_is_known_for_ours_and_needs_nothing_from_elsewhere() -> None:
    data = render_index_page("Logs", [ListedFile("a", 1)])
    assert Reader(data).meta["generator"] == GENERATOR
    assert PLAIN_TAGS.isdisjoint({"script", "link", "img", "iframe"})
    assert b"http" not in data


def test_a_page_of_no_files_is_a_page() -> None:
    assert "<p>0 files, 0 B</p>" in render_index_page("Logs", []).decode()
