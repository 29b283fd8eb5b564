"""Artifact archives made by Python's tarfile, honest ones and others, and a run's folder with them and digests."""

from __future__ import annotations

import io
import lzma
import sys
import tarfile
from typing import TYPE_CHECKING

from fakes.trees import digest, write_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

MANIFEST = "artifact_manifest.txt"


def make_archive(
    files: Mapping[str, bytes | str],
    *,
    subtrees: Iterable[str] = ("stage",),
    compression: str = "zst",
    more: Iterable[tarfile.TarInfo] = (),
) -> bytes:
    """The manifest, then `files` by path, then `more`, which may be what no honest archive has."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in {MANIFEST: "".join(f"{subtree}\n" for subtree in subtrees), **files}.items():
            data = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for member in more:
            archive.addfile(member)
    return compress(raw.getvalue(), compression)


def compress(data: bytes, compression: str) -> bytes:
    """`data` as zst or xz."""
    if compression == "xz":
        return lzma.compress(data, preset=0)
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.compress(data)


def write_run(folder: Path, archives: Mapping[str, bytes], *, without_digest: Iterable[str] = ()) -> Path:
    """Lay `archives` (by file name) into a run's folder, each with a sidecar unless it is in `without_digest`."""
    return write_tree(folder, run_files(archives, without_digest=without_digest))


def run_files(archives: Mapping[str, bytes], *, without_digest: Iterable[str] = ()) -> dict[str, bytes]:
    """The same as bytes by name."""
    without = set(without_digest)
    sidecars = {
        f"{name}.sha256sum": f"{digest(data)}  {name}\n".encode()
        for name, data in archives.items()
        if name not in without
    }
    return {**archives, **sidecars}
