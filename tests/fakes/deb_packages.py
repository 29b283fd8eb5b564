"""Small Debian packages: built by dpkg-deb, or put together byte by byte where they are to be unsound."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import subprocess
import tarfile
import zlib
from typing import TYPE_CHECKING

from debian.deb822 import Packages, Release

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

DEBIAN_BINARY = ("debian-binary", b"2.0\n")


def control_text(name: str, version: str, architecture: str = "amd64", *, extra: str = "") -> str:
    """A control file with what policy demands."""
    return (
        f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n"
        f"Maintainer: ROCm <rocm@example.com>\n{extra}"
        "Description: made for a test\n of several lines\n .\n to the end\n"
    )


def build_deb(
    folder: Path,
    name: str,
    version: str,
    *,
    architecture: str = "amd64",
    content: str = "content\n",
    compression: str = "gzip",
    file_name: str = "",
    extra: str = "",
) -> Path:
    """Let dpkg-deb build a package that installs `/opt/rocm-test/{name}` into `folder`; the same each time."""
    folder.mkdir(parents=True, exist_ok=True)
    tree = folder / f".{name}-tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "opt" / "rocm-test").mkdir(parents=True)
    (tree / "DEBIAN" / "control").write_text(control_text(name, version, architecture, extra=extra), encoding="utf-8")
    (tree / "opt" / "rocm-test" / name).write_text(content, encoding="utf-8")
    path = folder / (file_name or f"{name}_{version.rpartition(':')[2]}_{architecture}.deb")
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", f"-Z{compression}", "--build", str(tree), str(path)],
        check=True,
        capture_output=True,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SOURCE_DATE_EPOCH": "1700000000"},
    )
    for leaf in sorted(tree.rglob("*"), reverse=True):
        leaf.rmdir() if leaf.is_dir() else leaf.unlink()
    tree.rmdir()
    return path


def tar_of(members: Mapping[str, bytes]) -> bytes:
    """A tar archive of regular files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            archive.addfile(header, io.BytesIO(data))
    return buffer.getvalue()


def gzipped(data: bytes) -> bytes:
    """`data` in the format of gzip."""
    compressor = zlib.compressobj(wbits=31)
    return compressor.compress(data) + compressor.flush()


def ar_header(name: str, size: object) -> bytes:
    """The header of an ar member, with whatever is said of its size."""
    return f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{size!s:<10}`\n".encode()


def ar_of(members: Iterable[tuple[str, bytes]]) -> bytes:
    """An ar archive."""
    parts = [ar_header(name, len(data)) + data + b"\n" * (len(data) % 2) for name, data in members]
    return b"!<arch>\n" + b"".join(parts)


def deb_of(control: bytes | str, *, compression: str = "gz") -> bytes:
    """A package with this control file, made without dpkg-deb; nothing is installed by it."""
    archive = tar_of({"./control": control.encode() if isinstance(control, str) else control})
    return deb_of_archive(archive, compression=compression)


def deb_of_archive(archive: bytes, *, compression: str = "gz") -> bytes:
    """A package with this control archive, which is compressed as told."""
    packed = {"": lambda: archive, "gz": lambda: gzipped(archive), "xz": lambda: lzma.compress(archive)}[compression]()
    suffix = f".{compression}" if compression else ""
    return ar_of([DEBIAN_BINARY, (f"control.tar{suffix}", packed), ("data.tar.gz", gzipped(tar_of({})))])


def offered_packages(files: Mapping[str, bytes], repository: str) -> dict[tuple[str, str], str]:
    """What an APT repository below the key `repository` offers: file name by package and version.

    `files` are all stored files by key. Fails where Release, an index or a package is not what the other says: all that
    apt checks, by python-debian and hashlib only.
    """
    found = {}
    suite = f"{repository}/dists/stable"
    release = Release(files[f"{suite}/Release"])
    for field, key in (("MD5Sum", "md5sum"), ("SHA1", "sha1"), ("SHA256", "sha256")):
        for entry in release[field]:
            data = files[f"{suite}/{entry['name'].rpartition('/')[0]}/by-hash/{field}/{entry[key]}"]
            assert data == files[f"{suite}/{entry['name']}"], f"{entry['name']} is another one than Release says"
            assert hashlib.new(key.removesuffix("sum"), data).hexdigest() == entry[key]
            assert len(data) == int(entry["size"])
    for entry in release["SHA256"]:
        data = files[f"{suite}/{entry['name']}"]
        text = gzip.decompress(data) if entry["name"].endswith(".gz") else data
        for paragraph in Packages.iter_paragraphs(text.splitlines(), use_apt_pkg=False):
            data = files[f"{repository}/{paragraph['Filename']}"]
            assert (len(data), hashlib.sha256(data).hexdigest()) == (int(paragraph["Size"]), paragraph["SHA256"])
            found[paragraph["Package"], paragraph["Version"]] = paragraph["Filename"].rpartition("/")[2]
    return found
