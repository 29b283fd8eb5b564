"""Manifests of framework builds: `therock-manifest_{torch or jax}_py{x.y}_{ref}.json`, a JSON object each. Pure."""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn

MANIFEST_START: Final = "therock-manifest_"
MANIFEST_PATTERN: Final = f"{MANIFEST_START}{{torch or jax}}_py{{3.12}}_{{git ref}}.json"
"""The form of such a name, for people; a "/" in the ref is written "-"."""

MAX_MANIFEST_BYTES: Final = 16 * 2**20
"""The largest manifest that is read; real ones have some KB."""

# What git allows in no ref (git-check-ref-format) is none: a space, ~ ^ : ? * [ \
_NAME: Final = re.compile(rf"{MANIFEST_START}(?:torch|jax)_py[0-9]+\.[0-9]+t?_[^\s\x00-\x1f/\\~^:?*\[]+\.json")


def is_manifest_name(filename: str) -> bool:
    """Whether `filename` is a framework manifest's. Case-sensitive, the whole name."""
    return _NAME.fullmatch(filename) is not None


def manifest_fault(data: bytes) -> str:
    """Why `data` is no JSON object in UTF-8 (RFC 8259) of at most MAX_MANIFEST_BYTES, or "" where it is one."""
    if len(data) > MAX_MANIFEST_BYTES:
        return f"it has more than {MAX_MANIFEST_BYTES} bytes"
    try:
        document = json.loads(data.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return f"it is no JSON: {error}"
    return "" if isinstance(document, dict) else f"it is JSON, but a {type(document).__name__} and no object"


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not in JSON")
