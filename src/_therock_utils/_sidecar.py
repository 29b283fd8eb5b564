"""The digest file beside an archive: SHA-256 in hex, alone or as `sha256sum` writes it (GNU coreutils). Pure."""

from __future__ import annotations

import re
from typing import Final

from _therock_utils._errors import InputError
from _therock_utils._keys import check_segment, quote
from _therock_utils.artifact_names import SIDECAR_EXTENSION

MAX_SIDECAR_BYTES: Final = 4096
"""More than this is no sidecar."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
# One line; `sha256sum --binary` marks the name with a star.
_SIDECAR: Final = re.compile(r"([0-9A-Fa-f]{64})(?:[ \t]([^\r\n]*+))?\s*")


def sidecar_name(archive: str) -> str:
    """File name of the sidecar of the file `archive`."""
    return archive + SIDECAR_EXTENSION


def render_sidecar(digest: str, name: str) -> bytes:
    """What the sidecar of the file `name` holds. `digest`: 64 lower-case hex digits.

    Raises InputError for another digest, and for a name that is no single legal segment of a key.
    """
    if not _DIGEST.fullmatch(digest):
        raise InputError(f"{quote(digest)} is no SHA-256 digest in lower-case hex")
    return f"{digest}  {check_segment(name, 'file name')}\n".encode()


def parse_sidecar(data: bytes, *, name: str = "") -> str:
    """The digest in a sidecar, in lower case, or "" where it holds none that can be trusted.

    That is so for more than `MAX_SIDECAR_BYTES`, for anything but `digest` or `digest  name` on one line, and where
    `name` is given and the sidecar names a file of another name. Folders before the name do not count.
    """
    if len(data) > MAX_SIDECAR_BYTES:
        return ""
    try:
        match = _SIDECAR.fullmatch(data.decode())
    except UnicodeDecodeError:
        return ""
    if match is None:
        return ""
    named = re.split(r"[/\\]", (match[2] or "").strip())
    is_other = bool(name and any(named)) and name.strip() not in {named[-1], named[-1].removeprefix("*")}
    return "" if is_other else match[1].lower()
