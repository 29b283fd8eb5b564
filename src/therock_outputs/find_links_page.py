"""The page for `pip --find-links`, which is also the one that people open. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from therock_outputs.simple_pages import FIND_LINKS_GENERATOR, load_template
from therock_outputs.text_safety import count, size, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from therock_outputs.simple_pages import PackageEntry


def render_find_links_page(title: str, entries: Iterable[PackageEntry]) -> bytes:
    """HTML in UTF-8 that lists `entries` by name, with digests for pip and sizes for people; about 1 KB a package.

    Generic packages, which lie in the folder above, stand among the others.
    """
    ordered = sorted(entries)
    rows = [
        {
            "attributes": entry.anchor("" if entry.is_generic else "./"),
            "name": entry.file_name,
            "requires_python": entry.requires_python,
            "sha256": entry.sha256,
            "size": size(entry.size_bytes),
        }
        for entry in ordered
    ]
    total = f"{count(len(ordered), 'package')}, {size(sum(entry.size_bytes for entry in ordered))}"
    template = load_template("find_links.html.j2")
    return template.render(generator=FIND_LINKS_GENERATOR, title=visible(title), rows=rows, total=total).encode()
