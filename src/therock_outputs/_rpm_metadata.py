"""The boundary to createrepo_c, the library that reads and writes the metadata of rpm repositories.

It is C, and is given files from outside. So: what it parses has been decompressed here up to a bound and begins as such
a file does, with no document type (so no entities); of a package it gets the headers only, whose digests are right; its
errors become ours here; what it and librpm print on standard error, unescaped, is dropped.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import os
import re
import sys
import threading
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

from _therock_utils._errors import InputError, IntegrityError, LocalFileError
from _therock_utils._folder import local_file_error
from _therock_utils._keys import quote
from _therock_utils._source_file import BUFFER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType
    from typing import IO

    from _therock_utils._cancel import CancelToken

Kind = Literal["primary", "filelists", "other"]

KINDS: Final[tuple[Kind, ...]] = ("primary", "filelists", "other")
"""The files that make up the metadata of packages, in the order in which they are read."""

MAX_OPEN_BYTES: Final = 512 * 2**20
"""Most that one metadata file may have when it is decompressed; 20,000 packages with 30 million bytes of file names."""

_ROOTS: Final[Mapping[bytes, Kind]] = {b"metadata": "primary", b"filelists": "filelists", b"otherdata": "other"}
_SNIFFED_BYTES: Final = 4096
_ROOT: Final = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:<\?xml\s[^<>]{0,200}\?>)?(?:\s|<!--(?:(?!--).)*-->)*<([a-z]+)[\s>/]", re.DOTALL
)
_STANDARD_ERROR: Final = 2
_ONE_AT_A_TIME: Final = threading.Lock()


class UnusableError(Exception):
    """What is wrong with a package or with metadata, for the `why` of an error of ours."""


class RpmPackage(Protocol):
    """The part of createrepo_c.Package that is used here; dates are seconds since 1970, in UTC."""

    name: str
    epoch: str
    version: str
    release: str
    arch: str
    pkgId: str  # noqa: N815 - createrepo_c's name
    checksum_type: str
    size_package: int
    location_href: str
    location_base: str | None
    time_file: int
    time_build: int


class RepomdRecord(Protocol):
    """The part of createrepo_c.RepomdRecord that is used here: one file that repomd.xml names."""

    type: str
    location_href: str | None
    location_base: str | None
    checksum: str | None
    checksum_type: str | None
    size: int


def library() -> ModuleType:
    """createrepo_c. Raises InputError where it cannot be loaded."""
    try:
        with _quiet():  # librpm complains where no rpm is installed
            return importlib.import_module("createrepo_c")
    except ImportError as error:
        raise InputError(
            "rpm repositories cannot be written here",
            why=f"the library createrepo_c cannot be loaded: {error}",
            remedy="Run this on Linux, with the Python package createrepo-c and the system's GLib (libglib2.0).",
        ) from error


def metadata_error(what: str, why: str) -> IntegrityError:
    """The error for repository metadata that cannot be used."""
    return IntegrityError(f"{what} of the rpm repository cannot be used", why=why)


def package_of_head(head: bytes) -> RpmPackage:
    """What the headers of a package file say; the ten newest changelog entries, as createrepo_c's own program takes.

    Sizes and digest are those of `head`: the caller sets the file's. Raises UnusableError.
    """
    createrepo_c = library()
    with _file_of(head) as path, _calling(createrepo_c, path, "its headers"):
        package: RpmPackage = createrepo_c.package_from_rpm(path, location_href="package.rpm")
        createrepo_c.xml_dump(package)  # refuses what could not be written later, such as control characters
    return package


def parse_repomd(commit: bytes) -> tuple[RepomdRecord, ...]:
    """The files that a repomd.xml names. Raises IntegrityError where it is none."""
    if _root_of(commit) != b"repomd":
        raise metadata_error("repomd.xml", "it does not begin as such a file does")
    createrepo_c = library()
    try:
        with _file_of(commit) as path, _calling(createrepo_c, path, "repomd.xml"):
            return tuple(createrepo_c.Repomd(path).records)
    except UnusableError as error:
        raise metadata_error("repomd.xml", str(error)) from error


def open_metadata(path: Path, target: Path, *, cancel: CancelToken) -> Kind:
    """Decompress the metadata file `path` into `target` and say which it is.

    Compression (none, gzip, bzip2, xz, zstd) and kind are told by the content: names are free. Raises IntegrityError,
    LocalFileError, CancelledError.
    """
    try:
        with path.open("rb") as source, target.open("wb") as sink:
            kind = _ROOTS.get(_copy(source, sink, cancel))
    except OSError as error:
        raise local_file_error(path, "decompressed", error) from error
    if kind is None:
        raise metadata_error("a metadata file", "it does not begin as primary.xml, filelists.xml or other.xml does")
    return kind


def parse_packages(files: Mapping[Kind, Path], *, cancel: CancelToken) -> tuple[RpmPackage, ...]:
    """The packages that decompressed metadata files name together, each of which must be in all of them.

    Raises IntegrityError, CancelledError.
    """
    createrepo_c = library()
    packages: list[RpmPackage] = []
    parsers: dict[Kind, Callable[..., None]] = {
        "filelists": createrepo_c.xml_parse_filelists,
        "other": createrepo_c.xml_parse_other,
    }
    try:
        with _calling(createrepo_c, str(files["primary"]), "primary.xml"):
            createrepo_c.xml_parse_primary(str(files["primary"]), pkgcb=packages.append, do_files=0)
        for kind, parse in parsers.items():
            cancel.check()
            with _calling(createrepo_c, str(files[kind]), f"{kind}.xml"):
                lacking = _complete(packages, files[kind], parse)
            if lacking:
                raise metadata_error("the metadata", f"{kind}.xml lacks {lacking:,} packages of primary.xml")
    except UnusableError as error:
        raise metadata_error("the metadata", str(error)) from error
    return tuple(packages)


def _complete(packages: Sequence[RpmPackage], path: Path, parse: Callable[..., None]) -> int:
    """Let `parse` add to `packages` what `path` says of them, in whatever order; how many of them it does not name."""
    waiting: dict[str, list[RpmPackage]] = {}
    for package in reversed(packages):
        waiting.setdefault(package.pkgId, []).append(package)  # one digest twice: two names of the same file

    def next_of(package_id: str, _name: str, _arch: str) -> RpmPackage | None:
        return waiting[package_id].pop() if waiting.get(package_id) else None

    parse(str(path), newpkgcb=next_of)
    return sum(map(len, waiting.values()))


def write_metadata(packages: Sequence[RpmPackage], folder: Path, *, time_seconds: int) -> tuple[RepomdRecord, ...]:
    """Write gzipped primary.xml, filelists.xml and other.xml named by their SHA-256; what a repomd.xml says of them.

    Equal packages in equal order give equal files: createrepo_c writes no time into a gzip header. repomd.xml is to
    call them made at `time_seconds` since 1970. Raises LocalFileError.
    """
    createrepo_c = library()
    writers = (createrepo_c.PrimaryXmlFile, createrepo_c.FilelistsXmlFile, createrepo_c.OtherXmlFile)
    records: list[RepomdRecord] = []
    try:
        for kind, writer in zip(KINDS, writers, strict=True):
            path = folder / f"{kind}.xml.gz"
            with _calling(createrepo_c):
                file = writer(str(path), createrepo_c.GZ_COMPRESSION)
                file.set_num_of_pkgs(len(packages))
                for package in packages:
                    file.add_pkg(package)
                file.close()
                record = createrepo_c.RepomdRecord(kind, str(path))
                record.fill(createrepo_c.SHA256)
                record.rename_file()
                record.set_timestamp(time_seconds)
            records.append(record)
    except UnusableError as error:
        raise LocalFileError(f"{str(folder)!a} cannot be written", why=str(error)) from error
    return tuple(records)


def write_repomd(records: Sequence[RepomdRecord], *, revision: int, tag: str) -> bytes:
    """A repomd.xml that names `records` in this order; `revision` is a time in seconds since 1970, as is the custom."""
    createrepo_c = library()
    with _calling(createrepo_c):
        repomd = createrepo_c.Repomd()
        repomd.set_revision(str(revision))
        if tag:
            repomd.add_repo_tag(tag)
        for record in records:
            repomd.set_record(record)
        text: str = repomd.xml_dump()
    return text.encode()


def _zstd() -> ModuleType:
    return importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def _root_of(data: bytes) -> bytes:
    """The name of the first element of an XML document in UTF-8 or ASCII with no document type, or b""."""
    found = _ROOT.match(data[:_SNIFFED_BYTES])
    return found[1] if found else b""


def _copy(source: IO[bytes], sink: IO[bytes], cancel: CancelToken) -> bytes:
    """Decompress all of `source` into `sink`; the name of the first element. Raises IntegrityError, OSError."""
    reader, root, size_bytes = _decompressed(source), b"", 0
    while True:
        cancel.check()
        try:
            data = reader.read(BUFFER_BYTES)
        except (EOFError, ValueError, zlib.error, lzma.LZMAError, _zstd().ZstdError) as error:
            raise metadata_error("a metadata file", f"it is damaged: {error}") from error
        except OSError as error:
            if error.errno is not None:
                raise
            raise metadata_error("a metadata file", f"it is damaged: {error}") from error  # gzip and bz2 raise these
        if not data:
            return root
        root = root or _root_of(data)
        size_bytes += len(data)
        if not root:
            return root
        if size_bytes > MAX_OPEN_BYTES:
            raise metadata_error("a metadata file", f"it has more than {MAX_OPEN_BYTES:,} bytes when decompressed")
        sink.write(data)


def _decompressed(source: IO[bytes]) -> IO[bytes]:
    """A reader of what `source` holds, compressed in the way that its first bytes tell.

    Memory: what the compressed data may refer back to; up to 128 MB (zstd), or all that is decompressed (xz).
    """
    magic = source.read(6)
    source.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=source, mode="rb"))
    if magic.startswith(b"BZh"):
        return bz2.BZ2File(source)
    if magic == b"\xfd7zXZ\0":
        return lzma.LZMAFile(source, format=lzma.FORMAT_XZ)
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        return cast("IO[bytes]", _zstd().ZstdFile(source))
    return source


@contextmanager
def _file_of(data: bytes) -> Iterator[str]:
    """The path of a file in memory that holds `data`. Linux only, as createrepo_c."""
    descriptor = os.memfd_create("rpm", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"


@contextmanager
def _calling(createrepo_c: ModuleType, path: str = "", shown: str = "") -> Iterator[None]:
    """Turn what createrepo_c raises into UnusableError, which calls the temporary file `path` by the name `shown`."""
    try:
        with _quiet():
            yield
    except (createrepo_c.CreaterepoCError, OSError, UnicodeError) as error:  # each of its functions has its favourite
        text = str(error).strip()
        text = quote(text.replace(path, shown) if path else text, shown_characters=300)
        raise UnusableError(f"createrepo_c says: {text}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Let nobody write to standard error: C code prints names and texts there as they are, and a runner reads them."""
    with _ONE_AT_A_TIME, open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a device, no path of ours
        try:
            saved = os.dup(_STANDARD_ERROR)
        except OSError:  # it is closed: nothing to hide
            yield
            return
        try:
            os.dup2(nowhere.fileno(), _STANDARD_ERROR)
            yield
        finally:
            os.dup2(saved, _STANDARD_ERROR)
            os.close(saved)
