"""The page that lists what a run stored: names that link, and sizes. No times: a re-run gives the same bytes."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from therock_outputs.text_safety import size, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jinja2 import Template

GENERATOR: Final = "therock-outputs files"
"""Value of the page's generator tag, by which it is known for one of ours."""


@dataclass(frozen=True, slots=True, order=True)
class ListedFile:
    """A file on the page: its key relative to the page's folder, and its size."""

    name: str
    size_bytes: int


def render_index_page(title: str, files: Iterable[ListedFile]) -> bytes:
    """HTML in UTF-8 that lists `files` by name; memory is a few hundred bytes a file."""
    ordered = sorted(files)
    rows = [
        {"href": f"./{quote(file.name, safe='/~')}", "name": visible(file.name), "size": size(file.size_bytes)}
        for file in ordered
    ]
    total = size(sum(file.size_bytes for file in ordered))
    return _template().render(generator=GENERATOR, title=visible(title), rows=rows, total=total).encode()


@functools.cache
def _template() -> Template:
    import jinja2

    source = resources.files("therock_outputs").joinpath("templates/files.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    return environment.from_string(source)
