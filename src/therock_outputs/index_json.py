"""The list beside a folder's page for machines, `index.json` (docs, "Index pages"). Pure."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from therock_outputs.index_page import GENERATOR, OWN_GENERATORS, PAGE_NAME, utc_time

if TYPE_CHECKING:
    import datetime
    from collections.abc import Sequence

    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.index_page import FileEntry, FolderEntry

JSON_NAME: Final = "index.json"
JSON_CONTENT_TYPE: Final = "application/json"
INDEX_FORMAT: Final = "therock-outputs/index/1"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_START: Final = '{"generator":'
_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def render_index_json(folder: StorageLocation, files: Sequence[FileEntry], folders: Sequence[FolderEntry]) -> bytes:
    """JSON in UTF-8 of one folder, an entry a line; `url` of a folder is its page's.

    Memory: about 500 bytes an entry.
    """
    url = folder.https_url
    fields = {
        "generator": GENERATOR,
        "format": INDEX_FORMAT,
        "prefix": folder.relative_path,
        "url": f"{url}/{PAGE_NAME}",
    }
    lists = {
        "folders": [_folder(url, entry) for entry in sorted(folders, key=lambda entry: entry.name)],
        "files": [_file(url, entry) for entry in sorted(files, key=lambda entry: entry.name)],
    }
    start = _json(fields).removesuffix("}")
    return f"{start}{''.join(f',{_json(name)}:{_array(entries)}' for name, entries in lists.items())}}}\n".encode()


def read_digests(data: bytes) -> dict[tuple[str, int, str], str]:
    """The digests that a list of ours says, each by a file's name, size in bytes and time as in the list.

    Nothing where it cannot be read.
    """
    try:
        document = json.loads(data)
        entries = [
            (entry["name"], entry["size_bytes"], entry["modified"], entry["sha256"]) for entry in document["files"]
        ]
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}
    return {
        (name, size_bytes, modified): sha256
        for name, size_bytes, modified, sha256 in entries
        if isinstance(name, str)
        and isinstance(size_bytes, int)
        and isinstance(modified, str)
        and isinstance(sha256, str)
        and _SHA256.fullmatch(sha256)
    }


def list_time(at: datetime.datetime) -> str:
    """RFC 3339, in UTC, to the second: how a list tells a time."""
    return f"{utc_time(at, separator='T')}Z"


def is_own_json(data: bytes) -> bool:
    """Whether one of this project's programs wrote it. Nothing is parsed: it may be anything, and large."""
    return data.startswith(f'{_START}"{OWN_GENERATORS}'.encode())


def _folder(url: str, entry: FolderEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "file_count": entry.file_count,
        "total_bytes": entry.total_bytes,
        "modified": list_time(entry.modified),
        "url": f"{url}/{_quoted(entry.name)}/{PAGE_NAME}" if entry.has_page else "",
    }


def _file(url: str, entry: FileEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "size_bytes": entry.size_bytes,
        "sha256": entry.sha256,
        "modified": list_time(entry.modified),
        "url": f"{url}/{_quoted(entry.name)}",
    }


def _array(entries: Sequence[dict[str, object]]) -> str:
    """A JSON array, an entry a line."""
    lines = ",\n".join(map(_json, entries))
    return f"[\n{lines}]" if lines else "[]"


def _quoted(name: str) -> str:
    """As StorageLocation.https_url has it."""
    return quote(name, safe="~")
