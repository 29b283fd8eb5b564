"""Makes artifact archives: honest ones, and ones that no honest program makes."""

from __future__ import annotations

import io
import lzma
import os
import stat
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

MANIFEST = "artifact_manifest.txt"


@dataclass(frozen=True, slots=True)
class Entry:
    """One member as it is written, true or not: a name may be anything, and `size` may lie (None: the content's)."""

    name: str
    content: bytes = b""
    type: bytes = tarfile.REGTYPE
    mode: int = 0o644
    target: str = ""
    modified: float = 0
    size: int | None = None
    pax: tuple[tuple[str, str], ...] = ()


def file(name: str, content: bytes = b"", *, mode: int = 0o644, modified: float = 0) -> Entry:
    return Entry(name, content, mode=mode, modified=modified)


def folder(name: str, *, mode: int = 0o755) -> Entry:
    return Entry(name, type=tarfile.DIRTYPE, mode=mode)


def symbolic_link(name: str, target: str) -> Entry:
    return Entry(name, type=tarfile.SYMTYPE, mode=0o777, target=target)


def hard_link(name: str, target: str) -> Entry:
    return Entry(name, type=tarfile.LNKTYPE, target=target)


def manifest(*subtrees: str) -> Entry:
    return file(MANIFEST, "".join(f"{subtree}\n" for subtree in subtrees).encode())


def tar_bytes(entries: Iterable[Entry], *, tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.TarFile(fileobj=buffer, mode="w", format=tar_format, errors="surrogateescape") as archive:
        for entry in entries:
            member = tarfile.TarInfo(entry.name)
            member.type, member.mode, member.linkname = entry.type, entry.mode, entry.target
            member.mtime = entry.modified
            member.size = len(entry.content) if entry.size is None else entry.size
            member.pax_headers = dict(entry.pax)
            buffer.write(member.tobuf(tar_format, "utf-8", "surrogateescape"))
            buffer.write(entry.content + bytes(-len(entry.content) % 512))
            archive.offset = buffer.tell()
    return buffer.getvalue()


def compressed(data: bytes, kind: str) -> bytes:
    return zstd.compress(data, level=1) if kind == "zst" else lzma.compress(data, preset=0)


def write_archive(
    path: Path, entries: Iterable[Entry], *, kind: str = "", tar_format: int = tarfile.PAX_FORMAT
) -> Path:
    """Write `path`, compressed as its name or `kind` says."""
    path.write_bytes(compressed(tar_bytes(entries, tar_format=tar_format), kind or path.suffix.removeprefix(".")))
    return path


def artifact(path: Path, contents: Mapping[str, bytes], *subtrees: str) -> Path:
    """An honest artifact archive of regular files in `subtrees`."""
    return write_archive(path, [manifest(*subtrees), *(file(name, data) for name, data in sorted(contents.items()))])


def gnu_tar(source: Path, target: Path, *options: str, names: Iterable[str] = (".",)) -> Path:
    """Archive `source` with the system's tar."""
    command = ["tar", "--create", f"--file={target}", f"--directory={source}", "--auto-compress", *options, *names]
    subprocess.run(command, check=True, capture_output=True)
    return target


def zeros_bomb(path: Path, size_bytes: int, *, name: str = "zeros") -> Path:
    """A small archive whose one file has `size_bytes` zeros."""
    member = tarfile.TarInfo(name)
    member.size = size_bytes
    piece = bytes(1024 * 1024)
    with path.open("wb") as raw, zstd.ZstdFile(raw, "wb", level=1) as out:
        out.write(member.tobuf())
        for _ in range(size_bytes // len(piece)):
            out.write(piece)
        out.write(bytes(size_bytes % len(piece) + -size_bytes % 512 + 1024))
    return path


def snapshot(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything below `root`: kind, content or target, and mode of files and folders, by "/"-separated path.

    Names of one file have the first of them as the last element.
    """
    found: dict[str, tuple[object, ...]] = {}
    first_names: dict[tuple[int, int], str] = {}
    for path in sorted(root.rglob("*")):
        status, name = path.lstat(), path.relative_to(root).as_posix()
        if stat.S_ISLNK(status.st_mode):
            found[name] = ("link", os.readlink(path))  # noqa: PTH115 - a Path is not what the link says
        elif stat.S_ISDIR(status.st_mode):
            found[name] = ("folder", stat.S_IMODE(status.st_mode))
        else:
            first = first_names.setdefault((status.st_dev, status.st_ino), name)
            found[name] = ("file", path.read_bytes(), stat.S_IMODE(status.st_mode), first)
    return found


REFUSED: Mapping[str, tuple[tuple[Entry, ...], str]] = {
    "absolute name": ((file("/etc/passwd"),), "absolute path"),
    "root folder": ((folder("/"),), "empty name"),
    "double slash": ((file("//etc/passwd"),), "absolute path"),
    "parent": ((file("../escaped"),), "'..'"),
    "parent in the middle": ((file("a/../../escaped"),), "'..'"),
    "parent folder": ((folder(".."),), "'..'"),
    "backslash": ((file("a\\b"),), "backslash"),
    "drive": ((file("C:evil"),), "drive letter"),
    "drive folder": ((file("c:/evil"),), "drive letter"),
    "line feed": ((file("a\n::error::b"),), "control character"),
    "escape": ((file("a\x1b[2J"),), "control character"),
    "NUL": ((Entry("a", pax=(("path", "a\0b"),)),), "control character"),
    "not UTF-8": ((file("caf\udce9"),), "not valid Unicode"),
    "empty name": ((file(""),), "empty name"),
    "dot": ((file("."),), "empty name"),
    "reserved": ((file("a/.therock-outputs-0123456789abcdef.partial"),), "still being written"),
    "device": ((Entry("null", type=tarfile.CHRTYPE),), "a device"),
    "block device": ((Entry("sda", type=tarfile.BLKTYPE),), "a device"),
    "pipe": ((Entry("pipe", type=tarfile.FIFOTYPE),), "a named pipe"),
    "contiguous": ((Entry("a", type=tarfile.CONTTYPE),), "unknown type"),
    "unknown type": ((Entry("a", type=b"Q"),), "unknown type"),
    "volume label": ((Entry("a", type=b"V"),), "unknown type"),
    "sparse": ((Entry("a", type=tarfile.GNUTYPE_SPARSE),), "a sparse file"),
    "pax sparse": ((Entry("a", pax=(("GNU.sparse.map", "0,1"), ("GNU.sparse.size", "1"))),), "a sparse file"),
    "setuid": ((file("a", mode=0o4755),), "setuid"),
    "setgid": ((file("a", mode=0o2755),), "setuid, setgid"),
    "sticky": ((file("a", mode=0o1755),), "sticky"),
    "setuid by hard link": ((file("a"), Entry("b", type=tarfile.LNKTYPE, target="a", mode=0o4755)), "setuid"),
    "absolute link": ((symbolic_link("a", "/etc/passwd"),), "absolute path"),
    "link out": ((symbolic_link("a", ".."),), "out of the archive's tree"),
    "deep link out": ((symbolic_link("a/b/c", "../../../x"),), "out of the archive's tree"),
    "link by another": ((symbolic_link("a/b/c", "d/../../x"),), "another link"),
    "link to a drive": ((symbolic_link("a", "C:/x"),), "absolute path"),
    "link with a backslash": ((symbolic_link("a", "b\\..\\..\\x"),), "no file can be called"),
    "link to nothing": ((symbolic_link("a", ""),), "is empty"),
    "link with NUL": ((Entry("a", type=tarfile.SYMTYPE, pax=(("linkpath", "a\0b"),)),), "no file can be called"),
    "through a link": ((symbolic_link("a", "."), file("a/b")), "'a' above it is a file or a link"),
    "through a folder link": ((folder("d"), symbolic_link("a", "d"), folder("a/b")), "'a' above it"),
    "below a file": ((file("a"), file("a/b/c")), "'a' above it"),
    "hard link to nothing": ((hard_link("a", "b"),), "no file before it"),
    "hard link to itself": ((hard_link("a", "a"),), "no file before it"),
    "hard link to the root": ((hard_link("a", "."),), "no file before it"),
    "hard link ahead": ((hard_link("a", "b"), file("b")), "no file before it"),
    "hard link to a folder": ((folder("b"), hard_link("a", "b")), "no file before it"),
    "hard link to a link": ((symbolic_link("b", "c"), hard_link("a", "b")), "no file before it"),
    "hard link through a link": (
        (file("d/f"), symbolic_link("l", "d"), hard_link("a", "l/f")),
        "no file before it",
    ),
    "hard link outside": ((hard_link("a", "../canary"),), "cannot be in an archive"),
    "hard link to an absolute path": ((hard_link("a", "/etc/passwd"),), "cannot be in an archive"),
    "twice": ((file("a", b"1"), file("a", b"2")), "appears twice"),
    "twice by dots": ((file("a/b"), file("a/./b")), "appears twice"),
    "file and folder": ((file("a"), folder("a")), "appears twice"),
    "folder and file": ((folder("a"), file("a")), "appears twice"),
    "implied folder and file": ((file("a/b"), file("a")), "appears twice"),
    "link twice": ((symbolic_link("a", "b"), symbolic_link("a", "b")), "appears twice"),
    "link and folder": ((folder("b"), symbolic_link("a", "b"), folder("a")), "appears twice"),
    "hard link twice": ((file("a"), file("b"), hard_link("b", "a")), "appears twice"),
    "long name": ((file("/".join(["a" * 100] * 41)),), "more than 4096 bytes"),
    "deep name": ((file("/".join(["a"] * 257)),), "more than 256 segments"),
    "huge header": ((Entry("a", pax=(("comment", "x" * (1 << 20)),)),), "headers take more than"),
    "hostile text": ((symbolic_link("\u202e##[error]", "/"),), "absolute path"),
}
"""Archives that break one rule each, and a part of the rule's text."""
