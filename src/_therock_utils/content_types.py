"""File name -> content type, the same on every machine: the host's own tables are never asked. Pure.

Chosen for what a browser does with a link: whatever a person wants to read (logs, YAML, patches) is `text/plain` and so
is shown, not offered as a download. `text/*` carries `charset=utf-8`, without which browsers guess. No object ever
carries a Content-Encoding: a `.gz` is what is stored.
"""

from __future__ import annotations

import re
from pathlib import Path

DEFAULT_CONTENT_TYPE = "application/octet-stream"

_TEXT = "text/plain"
_TYPES_WITH_EXTENSIONS = {
    _TEXT: (
        # logs and reports
        "log txt text err stdout stderr md markdown rst ninja_log jsonl ndjson "
        # configuration and sources
        "yaml yml toml cfg conf ini properties env cmake ninja mk make sh bash py pyi pl lua bat cmd ps1 "
        "patch diff j2 in "
        "c h cc cpp cxx hpp hip cu cuh s ll mlir f90 go rs "
        # digests, armoured signatures, package metadata
        "md5 md5sum sha1 sha1sum sha256 sha256sum sha512 sha512sum asc "
        "changes dsc buildinfo repo list sources metadata spec"
    ),
    "text/html": "html htm",
    "text/css": "css",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "text/javascript": "js mjs",  # RFC 9239
    "application/json": "json map",
    "application/xml": "xml xsl xsd",
    "application/pdf": "pdf",
    "application/wasm": "wasm",
    "application/gzip": "gz tgz",  # RFC 6713
    "application/x-bzip2": "bz2 tbz2",
    "application/x-xz": "xz txz",
    "application/zstd": "zst tzst",  # RFC 8878
    "application/x-tar": "tar",
    "application/zip": "zip whl egg",
    "application/x-7z-compressed": "7z",
    "application/java-archive": "jar",
    "application/vnd.debian.binary-package": "deb ddeb udeb",
    "application/x-rpm": "rpm drpm",
    "application/pgp-keys": "gpg key",  # RFC 3156
    "application/pgp-signature": "sig",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpg jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/vnd.microsoft.icon": "ico",
    "font/woff": "woff",
    "font/woff2": "woff2",
}
_BY_EXTENSION = {
    extension: content_type
    for content_type, extensions in _TYPES_WITH_EXTENSIONS.items()
    for extension in extensions.split()
}
_BY_NAME = {
    # an APT repository's metadata (Debian wiki, "DebianRepository/Format")
    **dict.fromkeys(("Packages", "Sources", "Release", "InRelease"), _TEXT),
    "Release.gpg": "application/pgp-signature",
    **dict.fromkeys(("SHA256SUMS", "SHA512SUMS", "MD5SUMS"), _TEXT),
    **dict.fromkeys(("README", "LICENSE", "COPYING", "NOTICE", "CHANGELOG", "METADATA", "RECORD"), _TEXT),
    **dict.fromkeys(("Makefile", "Dockerfile"), _TEXT),
}
_ROTATED_LOG = re.compile(r".*\.(?:log|txt)\.[0-9]{1,9}", re.DOTALL)


def infer_content_type(path: str | Path) -> str:
    """The content type of a file of that name; only the last segment counts, its extension in any case.

    Never fails: an unknown name is `application/octet-stream`.
    """
    name = path.name if isinstance(path, Path) else path.rpartition("/")[2]
    content_type = _content_type(name)
    return f"{content_type}; charset=utf-8" if content_type.startswith("text/") else content_type


def _content_type(name: str) -> str:
    if name in _BY_NAME:
        return _BY_NAME[name]
    lowered = name.lower()
    _, dot, extension = lowered.rpartition(".")
    if extension.isdigit() and _ROTATED_LOG.fullmatch(lowered):
        return _TEXT
    return _BY_EXTENSION.get(extension, DEFAULT_CONTENT_TYPE) if dot else DEFAULT_CONTENT_TYPE
