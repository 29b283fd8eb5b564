"""The page that lists files: names that link, and sizes. Pure.

Upload modes' pages have no times, so that a re-run gives the same bytes; mode index's have times, and folders.
"""

from __future__ import annotations

import base64
import datetime
import functools
import hashlib
import re
from contextlib import suppress
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib import resources
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from _therock_utils._keys import key_fault
from therock_outputs.text_safety import count, size, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jinja2 import Environment, Template

GENERATOR: Final = "therock-outputs files"
"""Value of the page's generator tag, by which it is known for one of ours."""

OWN_GENERATORS: Final = "therock-outputs "
"""What the generator tags of all this project's pages begin with."""

PAGE_NAME: Final = "index.html"
PAGE_CONTENT_TYPE: Final = "text/html; charset=utf-8"
_HREF_START: Final = "./"
_HEAD_BYTES: Final = 16 * 1024
_PIECE_BYTES: Final = 4 * 1024
_HEAD_TAGS: Final = frozenset({"html", "head", "base", "link", "meta", "script", "style"})
_HEAD_TEXTS: Final = frozenset({"noscript", "template", "title"})
"""What a head may hold (HTML Standard, 4.2 and 13.2.6.4.4); in the latter nothing counts."""


@dataclass(frozen=True, slots=True, order=True)
class ListedFile:
    """A file on the page: its key relative to the page's folder, and its size."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a folder: one segment of a key, when it was stored, and its digest in hex, "" where it is not known."""

    name: str
    size_bytes: int
    modified: datetime.datetime
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """A folder in a folder, and the sums of all that lies below it; `modified` is the newest file's time."""

    name: str
    file_count: int
    total_bytes: int
    modified: datetime.datetime
    has_page: bool = True


def render_index_page(title: str, files: Iterable[ListedFile]) -> bytes:
    """HTML in UTF-8 that lists `files` by name, without times; memory is a few hundred bytes a file."""
    ordered = sorted(files)
    return _render(
        title=title,
        heading=title,
        above=(),
        summary=f"{count(len(ordered), 'file')}, {size(sum(file.size_bytes for file in ordered))}",
        newest="",
        folders=(),
        files=[_file_row(file.name, file.size_bytes, "") for file in ordered],
        timed=False,
    )


def render_folder_page(path: Sequence[str], files: Sequence[FileEntry], folders: Sequence[FolderEntry]) -> bytes:
    """HTML in UTF-8 of one folder of a run: its folders, then its files, by name, with times.

    `path`: names of the folders from the run's to this one; those above are linked. A folder without a page is no link.
    There is at least one row. Memory: a few hundred bytes a row.
    """
    *above, own = path
    return _render(
        title=visible("/".join(path)),
        heading=own,
        above=[
            {"name": visible(name), "href": f"{'../' * (len(above) - depth)}{PAGE_NAME}"}
            for depth, name in enumerate(above)
        ],
        summary=_summary(files, folders),
        newest=utc_time(max([file.modified for file in files] + [folder.modified for folder in folders])),
        folders=[_folder_row(folder) for folder in sorted(folders, key=lambda folder: folder.name)],
        files=[
            _file_row(file.name, file.size_bytes, utc_time(file.modified))
            for file in sorted(files, key=lambda file: file.name)
        ],
        timed=True,
    )


def generator_of(page: bytes) -> str:
    """What the first generator tag in the page's head says, "" where the head's first 16 KiB have none.

    What looks like such a tag further down, or in a comment, is what the page is about and not who made it.
    """
    reader = _HeadReader()
    head = page[:_HEAD_BYTES].decode("utf-8", errors="replace")
    for start in range(0, len(head), _PIECE_BYTES):
        if reader.is_over:
            break
        feed(reader, head[start : start + _PIECE_BYTES])
    return reader.generator or ""


def read_index_page(page: bytes) -> tuple[ListedFile, ...] | None:
    """The files that `page` lists, None where it is no page of ours. Rows with a name that no key has are dropped."""
    if generator_of(page) != GENERATOR:
        return None
    reader = _RowReader()
    feed(reader, page.decode("utf-8", errors="replace"))
    return tuple(reader.files)


def utc_time(at: datetime.datetime, *, separator: str = " ") -> str:
    """`2026-12-01 14:03:22`: the time in UTC, to the second."""
    in_utc = at if at.tzinfo is datetime.UTC else at.astimezone(datetime.UTC)
    return in_utc.isoformat(separator, "seconds")[:-6]  # without the +00:00


def _template(name: str) -> Template:
    """A template of this package. What it is given is escaped."""
    return _environment().get_template(name)


def _summary(files: Sequence[FileEntry], folders: Sequence[FolderEntry]) -> str:
    """`2 folders, 340 files, 1.5 GB`: of all that lies below."""
    words = [count(len(folders), "folder")] if folders else []
    words.append(count(len(files) + sum(folder.file_count for folder in folders), "file"))
    words.append(size(sum(file.size_bytes for file in files) + sum(folder.total_bytes for folder in folders)))
    return ", ".join(words)


def _file_row(name: str, size_bytes: int, modified: str) -> tuple[str, str, int, str, str]:
    """Link, name, size as a number and for people, and time. Tuples: templates look up names in others far slower."""
    return _href(name), visible(name), size_bytes, size(size_bytes), modified


def _folder_row(folder: FolderEntry) -> tuple[str, str, str, int, str, str]:
    """As a file's, with the number of files after the name."""
    href = f"{_href(folder.name)}/{PAGE_NAME}" if folder.has_page else ""
    files, total = count(folder.file_count, "file"), folder.total_bytes
    return href, f"{visible(folder.name)}/", files, total, size(total), utc_time(folder.modified)


def _href(name: str) -> str:
    return f"{_HREF_START}{quote(name, safe='/~')}"


def _render(*, title: str, heading: str, **fields: object) -> bytes:
    page = _template("files.html.j2")
    return page.render(generator=GENERATOR, title=visible(title), heading=visible(heading), **fields).encode()


def feed(reader: HTMLParser, text: str) -> None:
    """Let `reader` read on. It stops at `<![` with a word that SGML does not have: html.parser asserts there."""
    with suppress(AssertionError):
        reader.feed(text)


class _HeadReader(HTMLParser):
    """Reads a page up to the end of its head, which the first tag of a body ends, too."""

    def __init__(self) -> None:
        super().__init__()
        self.generator: str | None = None
        self.is_over = False
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.is_over or self._inside:
            return
        if tag in _HEAD_TEXTS:
            self._inside = tag
        elif tag not in _HEAD_TAGS:
            self.is_over = True
        elif tag == "meta":
            values = {name: value or "" for name, value in attrs}
            if values.get("name", "").lower() == "generator":
                self.generator, self.is_over = values.get("content", ""), True

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""
        elif tag == "head":
            self.is_over = True


class _RowReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.files: list[ListedFile] = []
        self._name = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "a":
            self._name = unquote(values.get("href", "").removeprefix(_HREF_START))
        elif tag == "td" and re.fullmatch(r"[0-9]{1,15}", values.get("data-size-bytes", "")):
            if self._name and not key_fault(self._name):
                self.files.append(ListedFile(self._name, int(values["data-size-bytes"])))
            self._name = ""


@functools.cache
def _environment() -> Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["source_digest"] = _source_digest
    return environment


def _source(name: str) -> str:
    return resources.files("therock_outputs").joinpath("templates", name).read_text(encoding="utf-8")


def _source_digest(text: str) -> str:
    """What allows just this inline style or script (W3C Content Security Policy Level 3, 2.3.1)."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
