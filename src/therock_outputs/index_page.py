"""The page that lists what a run stored: names that link, and sizes. No times: a re-run gives the same bytes."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib import resources
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from _therock_utils._keys import key_fault
from therock_outputs.text_safety import size, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jinja2 import Template

GENERATOR: Final = "therock-outputs files"
"""Value of the page's generator tag, by which it is known for one of ours."""

_HREF_START: Final = "./"


@dataclass(frozen=True, slots=True, order=True)
class ListedFile:
    """A file on the page: its key relative to the page's folder, and its size."""

    name: str
    size_bytes: int


def render_index_page(title: str, files: Iterable[ListedFile]) -> bytes:
    """HTML in UTF-8 that lists `files` by name; memory is a few hundred bytes a file."""
    ordered = sorted(files)
    rows = [
        {
            "href": f"{_HREF_START}{quote(file.name, safe='/~')}",
            "name": visible(file.name),
            "size": size(file.size_bytes),
            "size_bytes": file.size_bytes,
        }
        for file in ordered
    ]
    total = size(sum(file.size_bytes for file in ordered))
    return _template().render(generator=GENERATOR, title=visible(title), rows=rows, total=total).encode()


def read_index_page(page: bytes) -> tuple[ListedFile, ...] | None:
    """The files that `page` lists, None where it is no page of ours. Rows with a name that no key has are dropped."""
    reader = _Reader()
    reader.feed(page.decode("utf-8", errors="replace"))
    return tuple(reader.files) if reader.is_ours else None


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.is_ours = False
        self.files: list[ListedFile] = []
        self._name = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "meta" and values.get("name") == "generator":
            self.is_ours = values.get("content") == GENERATOR
        elif tag == "a":
            self._name = unquote(values.get("href", "").removeprefix(_HREF_START))
        elif tag == "td" and re.fullmatch(r"[0-9]{1,15}", values.get("data-size-bytes", "")):
            if self._name and not key_fault(self._name):
                self.files.append(ListedFile(self._name, int(values["data-size-bytes"])))
            self._name = ""


@functools.cache
def _template() -> Template:
    import jinja2

    source = resources.files("therock_outputs").joinpath("templates/files.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(source)
