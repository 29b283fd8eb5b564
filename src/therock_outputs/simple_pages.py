"""Pages and JSON that installers read: the simple repository API, and what a page says about packages. Pure.

Sources: PEP 503 (pages), PEP 691 and PEP 700 (JSON 1.1), PEP 658 and PEP 714 (metadata files). URLs are relative, so
that a repository works under any address, also from a folder. No times: a re-run gives the same bytes.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib import resources
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

from therock_outputs.index_page import OWN_GENERATORS, feed, generator_of
from therock_outputs.python_packages import legal_requires_python, package_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jinja2 import Environment, Template

GENERATOR: Final = "therock-outputs python"
"""Value of the generator tag of the simple repository's pages."""

FIND_LINKS_GENERATOR: Final = "therock-outputs find-links"
"""Value of the generator tag of pages for `pip --find-links`."""

JSON_NAME: Final = "index.v1_json"
JSON_TYPE: Final = "application/vnd.pypi.simple.v1+json"
HTML_TYPE: Final = "text/html; charset=utf-8"

_HTML_VERSION: Final = "1.0"
_JSON_VERSION: Final = "1.1"
_OBJECT_VERSION: Final = "_object-version"
_UP: Final = "../"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_SIZE: Final = re.compile(r"[0-9]{1,15}")
_VERSION: Final = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True, slots=True, order=True)
class PackageEntry:
    """A package on a page. `sha256`: hex digest of the file, `metadata_sha256` of its metadata file; "": not known.

    `is_generic`: it lies in the folder above the repository's. `object_version` is the object that all this was said
    of, "" where that is not known; only JSON keeps it.
    """

    file_name: str
    size_bytes: int
    sha256: str = ""
    requires_python: str = ""
    metadata_sha256: str = ""
    is_generic: bool = False
    object_version: str = field(default="", compare=False)

    def url(self, start: str) -> str:
        """Its URL, relative to a page from which `start` leads to the repository's folder; percent-encoded."""
        return f"{start}{_UP if self.is_generic else ''}{quote(self.file_name, safe='~')}"

    def anchor(self, start: str) -> dict[str, str]:
        """The attributes of its link (PEP 503, PEP 658, PEP 714) on such a page."""
        attributes = {"href": self.url(start) + (f"#sha256={self.sha256}" if self.sha256 else "")}
        if self.requires_python:
            attributes["data-requires-python"] = self.requires_python
        if self.metadata_sha256:
            attributes["data-core-metadata"] = f"sha256={self.metadata_sha256}"
            attributes["data-dist-info-metadata"] = f"sha256={self.metadata_sha256}"
        return attributes | {"data-size-bytes": str(self.size_bytes)}


def render_project_page(project: str, entries: Iterable[PackageEntry]) -> bytes:
    """The page simple/{project}/ of a repository."""
    rows = [{"attributes": entry.anchor("../../"), "name": entry.file_name} for entry in sorted(entries)]
    return _render(f"Links for {project}", rows)


def render_root_page(projects: Iterable[str]) -> bytes:
    """The page simple/ of a repository; it links to each project's URL, which ends in a slash (PEP 503)."""
    rows = [{"attributes": {"href": f"{quote(name)}/"}, "name": name} for name in sorted(set(projects))]
    return _render("Simple index", rows)


def render_project_json(project: str, entries: Iterable[PackageEntry]) -> bytes:
    """The same as JSON (PEP 691, PEP 700); `upload-time` is left out."""
    ordered = sorted(entries)
    return _as_json({"name": project, "versions": _versions(ordered), "files": [_file(entry) for entry in ordered]})


def render_root_json(projects: Iterable[str]) -> bytes:
    """The list of projects as JSON."""
    return _as_json({"projects": [{"name": name} for name in sorted(set(projects))]})


def read_entries(document: bytes) -> tuple[PackageEntry, ...] | None:
    """The packages that a document names, a page or JSON; None where it is none of ours.

    Entries that cannot be of ours are dropped: whoever may write there may have changed it.
    """
    if document.startswith(b"{"):
        return _read_json(document)
    if generator_of(document) not in {GENERATOR, FIND_LINKS_GENERATOR}:
        return None
    reader = _Reader()
    feed(reader, document.decode("utf-8", errors="replace"))
    return tuple(reader.entries)


def is_ours(document: bytes) -> bool:
    """Whether a page was made by this program, whichever mode: its generator tag says so."""
    return generator_of(document).startswith(OWN_GENERATORS)


def sha256_of(data: bytes) -> str:
    """Hex digest."""
    return hashlib.sha256(data).hexdigest()


def read_projects(document: bytes) -> tuple[str, ...]:
    """The projects that a repository's root JSON names; () where it is none of ours."""
    data = _own_json(document)
    listed = data.get("projects") if data is not None else None
    names = [item.get("name") for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    return tuple(name for name in names if isinstance(name, str) and re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", name))


def _render(title: str, rows: Sequence[dict[str, Any]]) -> bytes:
    return (
        load_template("simple.html.j2")
        .render(generator=GENERATOR, repository_version=_HTML_VERSION, title=title, rows=rows)
        .encode()
    )


def _versions(entries: Sequence[PackageEntry]) -> list[str]:
    from packaging.version import Version

    names = (package_name(entry.file_name) for entry in entries)
    return sorted({name.version for name in names if name is not None}, key=Version)


def _file(entry: PackageEntry) -> dict[str, Any]:
    metadata = {"sha256": entry.metadata_sha256} if entry.metadata_sha256 else False
    file: dict[str, Any] = {
        "filename": entry.file_name,
        "url": entry.url("../../"),
        "hashes": {"sha256": entry.sha256} if entry.sha256 else {},
        "size": entry.size_bytes,
        "core-metadata": metadata,
        "dist-info-metadata": metadata,
    }
    if entry.requires_python:
        file["requires-python"] = entry.requires_python
    if entry.object_version:
        file[_OBJECT_VERSION] = entry.object_version
    return file


def _as_json(content: dict[str, Any]) -> bytes:
    """`content` with what all of them have. Keys that begin with an underscore are the index's own (PEP 691)."""
    meta = {"api-version": _JSON_VERSION, "_generator": GENERATOR}
    return (json.dumps({"meta": meta} | content, indent=1) + "\n").encode()


def _own_json(document: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(document)
    except (ValueError, RecursionError):
        return None
    meta = data.get("meta") if isinstance(data, dict) else None
    return data if isinstance(meta, dict) and meta.get("_generator") == GENERATOR else None


def _read_json(document: bytes) -> tuple[PackageEntry, ...] | None:
    data = _own_json(document)
    if data is None:
        return None
    files = data.get("files")
    found = [_entry_of(file) for file in files if isinstance(file, dict)] if isinstance(files, list) else []
    return tuple(entry for entry in found if entry is not None)


def _entry_of(file: dict[str, Any]) -> PackageEntry | None:
    size_bytes = file.get("size")
    if type(size_bytes) is not int:
        return None
    return _entry(
        file.get("url"),
        str(size_bytes),
        sha256=_digest_of(file.get("hashes")),
        requires_python=file.get("requires-python"),
        metadata_sha256=_digest_of(file.get("core-metadata")),
        object_version=file.get(_OBJECT_VERSION),
    )


def _digest_of(hashes: object) -> object:
    return hashes.get("sha256") if isinstance(hashes, dict) else ""


def _entry(
    url: object,
    size_bytes: str,
    *,
    sha256: object,
    requires_python: object,
    metadata_sha256: object,
    object_version: object = "",
) -> PackageEntry | None:
    """An entry of what a document says; None where it names no package, "" for what is no digest or specifier."""
    if not (isinstance(url, str) and _SIZE.fullmatch(size_bytes)):
        return None
    try:
        folder, _, encoded = urlsplit(url).path.rpartition("/")
    except ValueError:
        return None
    name = package_name(unquote(encoded))
    if name is None:
        return None
    return PackageEntry(
        name.file_name,
        int(size_bytes),
        _legal_digest(sha256),
        legal_requires_python(requires_python) if isinstance(requires_python, str) else "",
        _legal_digest(metadata_sha256),
        is_generic=folder in {"..", "../../.."},
        object_version=object_version if isinstance(object_version, str) and _VERSION.fullmatch(object_version) else "",
    )


def _legal_digest(value: object) -> str:
    return value if isinstance(value, str) and _SHA256.fullmatch(value) else ""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.entries: list[PackageEntry] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "a":
            url, _, fragment = values.get("href", "").partition("#")
            entry = _entry(
                url,
                values.get("data-size-bytes", ""),
                sha256=fragment.removeprefix("sha256="),
                requires_python=values.get("data-requires-python", ""),
                metadata_sha256=values.get("data-core-metadata", "").removeprefix("sha256="),
            )
            if entry is not None:
                self.entries.append(entry)


def load_template(name: str) -> Template:
    """The template of that name, which escapes all it is given."""
    return _environment().get_template(name)


@functools.cache
def _environment() -> Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )


def _source(name: str) -> str:
    return resources.files("therock_outputs").joinpath("templates", name).read_text(encoding="utf-8")
