"""Small trees of files, written and read in one go."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write_tree(root: Path, files: Mapping[str, bytes | str]) -> Path:
    """Write each file (path relative to `root`) and return `root`."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def read_tree(root: Path) -> dict[str, bytes]:
    """The bytes of every regular file below `root`, by "/"-separated path."""
    files = (path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(files)}


def digest(content: bytes | str) -> str:
    """Hex SHA-256."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
