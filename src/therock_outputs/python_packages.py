"""Wheels and sdists: what their names say, and what the metadata inside them says.

Sources: "Binary distribution format", "Source distribution format" and "Core metadata specifications" of the Python
Packaging User Guide. Names are read by `packaging`, metadata by it and the standard library; nothing of a package runs.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, Literal

from _therock_utils._errors import InputError, IntegrityError, LocalFileError
from _therock_utils._keys import quote
from _therock_utils._source_file import READ_FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from _therock_utils._cancel import CancelToken

WHEEL_SUFFIX: Final = ".whl"
SDIST_SUFFIX: Final = ".tar.gz"
METADATA_SUFFIX: Final = ".metadata"
"""What a wheel's metadata file has behind the wheel's own name (PEP 658)."""

EXCLUDE_REMEDY: Final = "Leave out what is not to be stored with exclude."

MAX_METADATA_BYTES: Final = 4 * 2**20
MAX_HEADER_BYTES: Final = 2**20
"""Most that the headers of metadata may have; the description behind them may be longer."""

MAX_HEADERS: Final = 10_000
MAX_REQUIRES_PYTHON_CHARACTERS: Final = 256
MAX_SDIST_BYTES: Final = 64 * 2**20
"""So much of an sdist is decompressed; what a larger one says of itself is not known if it comes later."""

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,254}")
_LINE_END: Final = rb"(?>\r\n?|\n)"
_BLANK_LINE: Final = re.compile(_LINE_END * 2)
_HEADER_START: Final = re.compile(rb"(?:\A|[\r\n])[^ \t\r\n]")
_MAX_VERSION_CHARACTERS: Final = 256
_WHEEL_METADATA: Final = re.compile(r"[^/]+\.dist-info/METADATA")
_SDIST_METADATA: Final = re.compile(r"(?:\./)?[^/]+/PKG-INFO")
_CHUNK_BYTES: Final = 2**16
_BROKEN_ZIP: Final = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,  # a compression method, or a version, that zipfile does not know
    RuntimeError,  # an encrypted member
    ValueError,  # offsets before the file's start; names that are no text
    OverflowError,
)
_BROKEN_TAR: Final = (
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    ValueError,
    OverflowError,
)


@dataclass(frozen=True, slots=True, order=True)
class PackageName:
    """A package's file name and what it says: `project` in its normalised form (PEP 503), `version` as PEP 440's."""

    file_name: str
    kind: Literal["wheel", "sdist"]
    project: str
    version: str


@dataclass(frozen=True, slots=True)
class PackageMetadata:
    """What a package says of itself. `data`: a wheel's METADATA as it is; None for an sdist.

    `requires_python` is a legal specifier, or "" (none, not known, or an illegal one, which is
    `illegal_requires_python` then); `extras` are normalised.
    """

    data: bytes | None = None
    requires_python: str = ""
    extras: tuple[str, ...] = ()
    illegal_requires_python: str = ""


@dataclass(frozen=True, slots=True)
class _Headers:
    """The headers that count, as they are; "" for one that is not there, or there several times."""

    name: str
    version: str
    requires_python: str
    extras: tuple[str, ...]


class _TooManyHeadersError(Exception):
    """Metadata that no package has."""


def is_package(file_name: str) -> bool:
    """Whether a file of that name is to be a wheel or an sdist."""
    return file_name.endswith((WHEEL_SUFFIX, SDIST_SUFFIX))


def parse_package_name(file_name: str) -> PackageName:
    """Read the name of a wheel or an sdist (.tar.gz only). Raises InputError for any other, or a malformed one."""
    from packaging.utils import InvalidName, canonicalize_name, parse_sdist_filename, parse_wheel_filename

    try:
        if not _FILE_NAME.fullmatch(file_name):
            raise InvalidName("it may have only A-Z a-z 0-9 . _ + ! -, 255 at most")
        if file_name.endswith(WHEEL_SUFFIX):
            project, version, _build, _tags = parse_wheel_filename(file_name)
            return PackageName(file_name, "wheel", canonicalize_name(project, validate=True), str(version))
        if file_name.endswith(SDIST_SUFFIX):
            project, version = parse_sdist_filename(file_name)
            return PackageName(file_name, "sdist", canonicalize_name(project, validate=True), str(version))
    except ValueError as error:  # all of packaging's errors are
        raise InputError(
            f"{quote(file_name)} is not a package's file name",
            why=_unquoted(str(error)),
            remedy="A wheel is named {name}-{version}-{python}-{abi}-{platform}.whl, an sdist {name}-{version}.tar.gz. "
            f"{EXCLUDE_REMEDY}",
        ) from error
    raise InputError(f"{quote(file_name)} is neither a wheel nor an sdist")


def package_name(file_name: str) -> PackageName | None:
    """What `parse_package_name` gives, None where it raises: names that others stored."""
    try:
        return parse_package_name(file_name) if is_package(file_name) else None
    except InputError:
        return None


def legal_requires_python(value: str) -> str:
    """`value` in its normal form where it is a version specifier that pip can compare a version with, else ""."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    if len(value) > MAX_REQUIRES_PYTHON_CHARACTERS:
        return ""
    try:
        specifiers = SpecifierSet(value)
        for specifier in specifiers:
            Version(specifier.version.removesuffix(".*"))
    except ValueError:
        return ""
    return str(specifiers)


def metadata_of(data: bytes) -> PackageMetadata:
    """What core metadata say; fields that cannot be read count as not there, and so do metadata that no package has."""
    try:
        return _said(data, _headers_of(data))
    except _TooManyHeadersError:
        return PackageMetadata()


def _said(data: bytes, headers: _Headers) -> PackageMetadata:
    from packaging.utils import InvalidName, canonicalize_name

    extras = set()
    for extra in headers.extras:
        try:
            extras.add(canonicalize_name(extra, validate=True))
        except InvalidName:
            continue
    legal = legal_requires_python(headers.requires_python)
    illegal = "" if legal else headers.requires_python.strip()
    return PackageMetadata(data, legal, tuple(sorted(extras)), illegal)


def _headers_of(data: bytes) -> _Headers:
    """The headers; they end at the first blank line. Raises _TooManyHeadersError before anything is parsed.

    Source: "Core metadata specifications": the standard library's `email.parser` with the policy compat32 is the
    format. It takes time in proportion to the headers, which `packaging.metadata` does not.
    """
    from email.parser import BytesHeaderParser
    from email.policy import compat32

    blank = _BLANK_LINE.search(data)
    head = data[: blank.end()] if blank is not None else data
    if len(head) > MAX_HEADER_BYTES:
        raise _TooManyHeadersError(f"the headers of its metadata have more than {MAX_HEADER_BYTES} bytes")
    if len(_HEADER_START.findall(head)) > MAX_HEADERS:
        raise _TooManyHeadersError(f"its metadata have more than {MAX_HEADERS} headers")
    message = BytesHeaderParser(policy=compat32).parsebytes(head)

    def values(header: str) -> tuple[str, ...]:
        return tuple(str(value) for value in message.get_all(header, ()))  # what is not ASCII is of another type

    def only(header: str) -> str:
        found = values(header)
        return found[0] if len(found) == 1 else ""

    return _Headers(only("Name"), only("Version"), only("Requires-Python"), values("Provides-Extra"))


def read_package(path: Path, name: PackageName, *, cancel: CancelToken) -> PackageMetadata:
    """Read what the package at `path` says of itself, and that it is the package that its name says.

    Of a wheel the table of members and METADATA are read; of an sdist everything, up to MAX_SDIST_BYTES. Memory: a
    wheel's table of members (about 0.5 KB a member), and MAX_METADATA_BYTES. Raises IntegrityError for a broken archive
    and for another package, LocalFileError where it cannot be read, CancelledError.
    """
    cancel.check()
    try:
        with os.fdopen(os.open(path, READ_FLAGS), "rb") as file:
            if name.kind == "wheel":
                return _checked(name, _wheel_metadata(name, file))
            data = _sdist_metadata(name, file, cancel)
    except OSError as error:
        if error.errno in {None, errno.EINVAL}:  # gzip's own, and an offset that no file has
            raise _broken(name, str(error)) from error
        raise LocalFileError(f"the file {str(path)!a} cannot be read", why=error.strerror or str(error)) from error
    if data is None:
        return PackageMetadata()
    found = _checked(name, data)
    return PackageMetadata(None, found.requires_python, found.extras)


def _wheel_metadata(name: PackageName, file: IO[bytes]) -> bytes:
    try:
        with zipfile.ZipFile(file) as archive:
            members = [member for member in archive.infolist() if _WHEEL_METADATA.fullmatch(member.filename)]
            if len(members) != 1:
                raise _broken(name, f"it has {len(members)} files *.dist-info/METADATA, and a wheel has one")
            if members[0].compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                # zipfile bounds what it decompresses at a time of no other method
                raise _broken(name, "its METADATA is neither stored nor deflated, as a wheel's is")
            with archive.open(members[0]) as member:
                return _bounded(name, member.read(MAX_METADATA_BYTES + 1))
    except _BROKEN_ZIP as error:
        raise _broken(name, str(error) or type(error).__name__) from error


def _sdist_metadata(name: PackageName, file: IO[bytes], cancel: CancelToken) -> bytes | None:
    """PKG-INFO; None where it does not come in the first MAX_SDIST_BYTES."""
    found: bytes | None = None
    try:
        with (
            gzip.GzipFile(fileobj=file) as unpacked,
            tarfile.open(fileobj=_Limited(unpacked, cancel), mode="r|") as archive,
        ):
            for member in _members(archive):
                if found is None and member.isreg() and _SDIST_METADATA.fullmatch(member.name):
                    content = archive.extractfile(member)
                    found = _bounded(name, content.read(MAX_METADATA_BYTES + 1)) if content is not None else None
    except _EnoughError:
        return found
    except RecursionError as error:  # tarfile reads a header's header inside the reading of the other
        raise _broken(name, "it has headers of headers, many of them in a row") from error
    except _BROKEN_TAR as error:
        raise _broken(name, str(error) or type(error).__name__) from error
    if found is None:
        raise _broken(name, "it has no file PKG-INFO in its folder, and an sdist has one")
    return found


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members in their order; none is kept."""
    while (member := archive.next()) is not None:
        archive.members = []  # type: ignore[attr-defined]  # tarfile would keep each, without an end
        yield member


class _EnoughError(Exception):
    """So much of an archive was read as is to be read."""


class _Limited(io.RawIOBase):
    """A stream that ends with _EnoughError after MAX_SDIST_BYTES."""

    def __init__(self, stream: gzip.GzipFile, cancel: CancelToken) -> None:
        super().__init__()
        self._stream = stream
        self._cancel = cancel
        self._left_bytes = MAX_SDIST_BYTES

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes. Raises _EnoughError, CancelledError."""
        self._cancel.check()
        if self._left_bytes <= 0:
            raise _EnoughError
        data = self._stream.read(size if 0 <= size <= _CHUNK_BYTES else _CHUNK_BYTES)
        self._left_bytes -= len(data)
        return data


def _bounded(name: PackageName, data: bytes) -> bytes:
    if len(data) > MAX_METADATA_BYTES:
        raise _broken(name, f"its metadata have more than {MAX_METADATA_BYTES} bytes")
    return data


def _checked(name: PackageName, data: bytes) -> PackageMetadata:
    """What `data` say, where they are those of the package that `name` says; pip refuses any other."""
    from packaging.utils import canonicalize_name

    try:
        headers = _headers_of(data)
    except _TooManyHeadersError as error:
        raise _broken(name, str(error)) from error
    if canonicalize_name(headers.name) != name.project or not _is_version(headers.version, name.version):
        said = f"{quote(headers.name)} {quote(headers.version)}"
        raise _broken(name, f"its metadata are of {said}, its file name says {name.project} {name.version}")
    return _said(data, headers)


def _is_version(text: str, version: str) -> bool:
    from packaging.version import Version

    try:
        return len(text) <= _MAX_VERSION_CHARACTERS and Version(text) == Version(version)
    except ValueError:
        return False


def _broken(name: PackageName, why: str) -> IntegrityError:
    what = "a wheel" if name.kind == "wheel" else "an sdist"
    return IntegrityError(
        f"{name.file_name} is not {what} that pip could install",
        why=_unquoted(why),
        remedy=f"Build it again. {EXCLUDE_REMEDY}",
    )


def _unquoted(text: str) -> str:
    """`text`, which may quote what comes from outside, on one line and cut."""
    return quote(text, shown_characters=200)[1:-1]
