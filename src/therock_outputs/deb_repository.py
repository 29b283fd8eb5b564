"""An APT repository (Debian wiki, "DebianRepository/Format"): dists/stable with one component, main, and its pool.

python-debian parses and writes the control data. Packages indexes have keys made of their digests (by-hash), so that a
client which read one Release gets the indexes which that Release names, whatever is published meanwhile.
"""

from __future__ import annotations

import datetime
import gzip
import hashlib
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from _therock_utils._errors import IntegrityError, LocalFileError
from _therock_utils._folder import local_file_error
from _therock_utils._keys import quote
from _therock_utils._source_file import SkipFileError, SourceFile
from therock_outputs._deb_archive import read_control, unsound
from therock_outputs.package_repository import (
    Metadata,
    MetadataFile,
    Package,
    Reference,
    RepositoryKind,
    in_order,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from debian.deb822 import Deb822

    from _therock_utils._cancel import CancelToken
    from _therock_utils.storage_location import StorageLocation

SUITE: Final = "stable"
COMPONENT: Final = "main"
DEFAULT_ARCHITECTURE: Final = "amd64"
MAX_INDEX_BYTES: Final = 256 * 1024 * 1024
"""Most that a Packages index may have, decompressed: about 200,000 packages."""

_ALL: Final = "all"
_POOL: Final = f"pool/{COMPONENT}"
_INDEX: Final = re.compile(rf"{COMPONENT}/binary-([a-z0-9][a-z0-9-]{{1,31}})/Packages\.gz")
_PACKAGE: Final = re.compile(r"[a-z0-9][a-z0-9+.-]{1,127}")  # Debian policy 5.6.1
_VERSION: Final = re.compile(r"(?:[0-9]{1,9}:)?[0-9A-Za-z][0-9A-Za-z.+~-]{0,199}")  # 5.6.12, more strictly
_ARCHITECTURE: Final = re.compile(r"[a-z0-9][a-z0-9-]{1,31}")
_FILE_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~_%:^-]*\.deb")
_HASHES: Final = (("MD5Sum", "md5", 32), ("SHA1", "sha1", 40), ("SHA256", "sha256", 64))
"""Fields of a Release file, their algorithms, and the digests' lengths in hex."""

_POOL_FIELDS: Final = ("Filename", "Size", "MD5sum", "SHA1", "SHA256", "SHA512", "Description-md5")
"""What an index says of the file: a control file has no say in these. None is written that apt checks and ignores."""

# Debian policy 7.1, as apt reads it in an index: no architectures in brackets and no profiles, which are for sources.
# apt wants three characters in parentheses at least: it takes `a (=1)` at a field's end for damage.
_RELATION: Final = re.compile(
    r"[0-9A-Za-z][0-9A-Za-z+._-]{0,127}+(?::[0-9A-Za-z][0-9A-Za-z-]{0,31}+)?"
    r"(?:[ \t\n]*+\([ \t\n]*+(?=[^)]{3})(?P<operator><<|<=|=|>=|>>|<|>)[ \t\n]*+"
    r"(?:[0-9]{1,9}:)?[0-9A-Za-z][0-9A-Za-z.+~-]{0,199}+[ \t\n]*+\))?"
)
_WITH_ALTERNATIVES: Final = ("Depends", "Pre-Depends", "Recommends", "Suggests", "Enhances", "Recommended", "Optional")
_WITHOUT_ALTERNATIVES: Final = ("Breaks", "Conflicts", "Replaces", "Provides")
_BLANK: Final = " \t\n"
_APT_STRINGS: Final = ("Section", "Source", "Priority", "Essential", "Important")
_MULTI_ARCH: Final = {"no", "same", "foreign", "allowed"}
_MAX_APT_STRING_CHARACTERS: Final = 1000
"""apt keeps these values in a cache that takes no longer ones than 65,535 bytes, and ends without a word."""

_CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LINE: Final = re.compile(r"[!-\"$-,.-9;-~][!-9;-~]*:.*|[ \t].*")  # deb822(5); what apt would stumble over is none
_STRICT: Final = {"whitespace-separates-paragraphs": False}  # as apt has it
_TEXT: Final = "text/plain; charset=utf-8"
_GZIP_TYPE: Final = "application/gzip"
_GZIP_LEVEL: Final = 9


@dataclass(frozen=True, slots=True)
class DebRecord:
    """What an index says beside name, size and SHA-256 of the file: the control paragraph as text, MD5 and SHA-1.

    `fault` says why apt could not use the index that has this paragraph, or "".
    """

    control: str
    md5: str
    sha1: str
    fault: str = ""


@dataclass(frozen=True, slots=True)
class _Index:
    """One file that Release lists: its path below dists/stable, and its digests by field of Release."""

    path: str
    size_bytes: int
    digests: Mapping[str, str]


class DebRepository(RepositoryKind):
    """Memory: the parsed packages of all indexes, and the text of one; of a package file 1 MiB and its control data."""

    @property
    def extension(self) -> str:
        """See RepositoryKind."""
        return ".deb"

    @property
    def pool(self) -> StorageLocation:
        """See RepositoryKind."""
        return self.root.child(_POOL)

    @property
    def commit(self) -> StorageLocation:
        """See RepositoryKind; the Release file."""
        return self._suite.child("Release")

    @property
    def url(self) -> StorageLocation:
        """See RepositoryKind."""
        return self.root

    @property
    def _suite(self) -> StorageLocation:
        return self.root.child(f"dists/{SUITE}")

    def inspect(self, path: Path, *, file_name: str, cancel: CancelToken) -> Package:
        """See RepositoryKind."""
        if not _FILE_NAME.fullmatch(file_name):
            raise unsound(file_name, "its name has other characters than letters, digits and . + ~ _ % : ^ -")
        hashes = [hashlib.new(algorithm, usedforsecurity=False) for _, algorithm, _ in _HASHES]
        try:
            with SourceFile.open(path) as source:  # the control data are read meanwhile: it notices a change
                control = _parsed(file_name, read_control(path, file_name=file_name))
                for chunk in source.chunks(cancel):
                    for digest in hashes:
                        digest.update(chunk)
                size_bytes = source.size_bytes
        except SkipFileError as skip:
            raise LocalFileError(f"the package {str(path)!a} cannot be read", why=skip.reason) from skip
        md5, sha1, sha256 = (digest.hexdigest() for digest in hashes)
        return Package(_identity(control), file_name, size_bytes, sha256, DebRecord(control.dump(), md5, sha1))

    def entry_fault(self, package: Package) -> str:
        """See RepositoryKind. One paragraph that apt cannot read makes it read none of the whole index."""
        return cast("DebRecord", package.record).fault

    def referenced(self, commit: bytes) -> tuple[Reference, ...]:
        """See RepositoryKind; the compressed index of each architecture, by its SHA-256."""
        from debian.deb822 import Release

        try:
            entries = Release(commit.decode("utf-8"))["SHA256"]
            found = [(str(entry["name"]), str(entry["sha256"]), str(entry["size"])) for entry in entries]
        except (ValueError, LookupError, TypeError) as error:
            raise _bad_metadata("Release", f"it lists no SHA-256 ({type(error).__name__})") from error
        references = []
        for name, sha256, size in found:
            if not _INDEX.fullmatch(name):
                continue
            if not (_is_hex(sha256, 64) and _is_number(size)):
                raise _bad_metadata("Release", f"its entry of {quote(name)} is no digest and size")
            location = self._suite.child(f"{name.rpartition('/')[0]}/by-hash/SHA256/{sha256}")
            references.append(Reference(location, int(size), sha256))
        if not references:
            raise _bad_metadata("Release", "it lists no compressed Packages index")
        return tuple(references)

    def read(self, files: Mapping[StorageLocation, Path], *, cancel: CancelToken) -> tuple[Package, ...]:
        """See RepositoryKind. A package of all architectures is in several indexes and counts once."""
        from debian.deb822 import Deb822

        found: dict[tuple[tuple[str, ...], str], Package] = {}
        for location in sorted(files, key=lambda location: location.relative_path):
            try:
                with gzip.open(files[location], "rb") as index:
                    for paragraph in Deb822.iter_paragraphs(_lines(index, cancel), use_apt_pkg=False, strict=_STRICT):
                        package = _package_of(paragraph)
                        found[package.identity, package.file_name] = package
            except (OSError, ValueError) as error:
                raise _bad_metadata("Packages", f"it cannot be read: {error}") from error
        return in_order(found.values())

    def compose(
        self,
        packages: Sequence[Package],
        scratch: Path,
        *,
        previous: bytes | None,
        now: datetime.datetime,
        label: str,
    ) -> Metadata:
        """See RepositoryKind. Each index has the packages of its architecture and those of all."""
        architectures = sorted({DEFAULT_ARCHITECTURE, *(_architecture(package) for package in packages)} - {_ALL})
        files: list[MetadataFile] = []
        plain: list[MetadataFile] = []
        listed: list[_Index] = []
        for architecture in architectures:
            chosen = [package for package in in_order(packages) if _architecture(package) in {architecture, _ALL}]
            folder = f"{COMPONENT}/binary-{architecture}"
            text = "".join(_paragraph(package) for package in chosen).encode()
            for name, data, content_type in (
                ("Packages", text, _TEXT),
                ("Packages.gz", gzip.compress(text, _GZIP_LEVEL, mtime=0), _GZIP_TYPE),
            ):
                path = scratch / f"{architecture}-{name}"
                try:
                    path.write_bytes(data)
                except OSError as error:
                    raise local_file_error(path, "written", error) from error
                digests = {
                    field: hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
                    for field, algorithm, _ in _HASHES
                }
                listed.append(_Index(f"{folder}/{name}", len(data), digests))
                plain.append(MetadataFile(self._suite.child(f"{folder}/{name}"), path, content_type))
                files += [
                    MetadataFile(self._suite.child(f"{folder}/by-hash/{field}/{digest}"), path, content_type)
                    for field, digest in digests.items()
                ]
        commit = _release(listed, architectures, label=label, date=_date(now))
        if previous is not None and _without_date(previous) == _without_date(commit):
            commit = previous
        return Metadata(tuple(files), commit, _TEXT, tuple(plain))


def _parsed(file_name: str, text: str) -> Deb822:
    """The control paragraph without what only an index says. Raises IntegrityError."""
    from debian.deb822 import Deb822

    if _CONTROL_CHARACTER.search(text):
        raise unsound(file_name, "its control file has control characters")
    paragraph = Deb822(text.encode().split(b"\n"), strict=_STRICT)  # str.splitlines knows further line ends
    _clean(paragraph)
    fault = _identity_fault(_identity(paragraph)) or _lines_fault(paragraph) or _fields_fault(paragraph)
    if fault:
        raise unsound(file_name, fault)
    return paragraph


def _clean(paragraph: Deb822) -> None:
    """Take out what the control file has no say in, and empty relation fields: apt fails at an empty Provides."""
    for field in _POOL_FIELDS:
        paragraph.pop(field, None)
    for field in (*_WITH_ALTERNATIVES, *_WITHOUT_ALTERNATIVES):
        if not str(paragraph.get(field, "")).strip(_BLANK):
            paragraph.pop(field, None)


def _identity(paragraph: Mapping[str, str]) -> tuple[str, ...]:
    """Name, version and architecture, or "" for what is missing."""
    return tuple(str(paragraph.get(field, "")) for field in ("Package", "Version", "Architecture"))


def _lines_fault(paragraph: Deb822) -> str:
    bad = next((line for line in paragraph.dump().rstrip("\n").split("\n") if not _LINE.fullmatch(line)), None)
    return f"its control file has the line {quote(bad)}" if bad is not None else ""


def _fields_fault(paragraph: Deb822) -> str:
    """Why apt cannot read a paragraph with these fields, or ""."""
    for field in (*_WITH_ALTERNATIVES, *_WITHOUT_ALTERNATIVES):
        fault = _relation_fault(field, str(paragraph[field])) if field in paragraph else ""
        if fault:
            return f"its {field} {fault}"
    if str(paragraph.get("Multi-Arch", "no")).lower() not in _MULTI_ARCH:
        return f"its Multi-Arch is {quote(str(paragraph['Multi-Arch']))}"
    long = (field for field in _APT_STRINGS if len(str(paragraph.get(field, ""))) > _MAX_APT_STRING_CHARACTERS)
    return next((f"its {field} has more than {_MAX_APT_STRING_CHARACTERS} characters" for field in long), "")


def _relation_fault(field: str, value: str) -> str:
    """What is wrong with the value of a relation field, or ""."""
    for element in value.split(","):
        alternatives = element.split("|") if field in _WITH_ALTERNATIVES else [element]
        for alternative in alternatives:
            text = alternative.strip(_BLANK)
            if not text:
                return f"has an empty element: {quote(value)}"
            relation = _RELATION.fullmatch(text)
            if relation is None:
                return f"has the element {quote(text)}"
            if field == "Provides" and relation["operator"] not in {None, "="}:
                return f"has the element {quote(text)}: only exact versions are provided"
    return ""


def _identity_fault(identity: tuple[str, ...]) -> str:
    rules = (("Package", _PACKAGE), ("Version", _VERSION), ("Architecture", _ARCHITECTURE))
    for (field, rule), value in zip(rules, identity, strict=True):
        if not rule.fullmatch(value):
            return f"its {field} is {quote(value)}" if value else f"it has no {field}"
    return ""


def _package_of(paragraph: Deb822) -> Package:
    """The package of a paragraph of an index, which it takes over. Raises IntegrityError."""
    identity = _identity(paragraph)
    md5, sha1, sha256 = (str(paragraph.get(field, "")) for field in ("MD5sum", "SHA1", "SHA256"))
    folder, _, file_name = str(paragraph.get("Filename", "")).rpartition("/")
    size = str(paragraph.get("Size", ""))
    fault = _identity_fault(identity)
    if folder != _POOL or not _FILE_NAME.fullmatch(file_name):
        fault = fault or f"it names no file of the pool: {quote(str(paragraph.get('Filename', '')))}"
    if not (_is_number(size) and _is_hex(md5, 32) and _is_hex(sha1, 40) and _is_hex(sha256, 64)):
        fault = fault or f"size or digests of {quote(file_name)} are none"
    if fault:
        raise _bad_metadata("Packages", fault)
    _clean(paragraph)
    fault = _lines_fault(paragraph)
    if fault:
        raise _bad_metadata("Packages", fault)
    record = DebRecord(paragraph.dump(), md5, sha1, _fields_fault(paragraph))
    return Package(identity, file_name, int(size), sha256, record)


def _paragraph(package: Package) -> str:
    record = cast("DebRecord", package.record)
    return (
        f"{record.control}Filename: {_POOL}/{package.file_name}\nSize: {package.size_bytes}\nMD5sum: {record.md5}\n"
        f"SHA1: {record.sha1}\nSHA256: {package.sha256}\n\n"
    )


def _release(indexes: Iterable[_Index], architectures: Iterable[str], *, label: str, date: str) -> bytes:
    from debian.deb822 import Release

    release = Release()
    release["Origin"] = "ROCm"
    release["Label"] = label
    release["Suite"] = SUITE
    release["Codename"] = SUITE
    release["Date"] = date
    release["Acquire-By-Hash"] = "yes"
    release["Architectures"] = " ".join(architectures)
    release["Components"] = COMPONENT
    for field, algorithm, _ in _HASHES:
        key = "md5sum" if algorithm == "md5" else algorithm
        release[field] = [  # type: ignore[assignment]  # the library's own types know single values only
            {key: index.digests[field], "size": str(index.size_bytes), "name": index.path} for index in indexes
        ]
    return release.dump().encode()


def _date(now: datetime.datetime) -> str:
    """As RFC 5322 has it, in UTC, whatever the locale."""
    from email.utils import format_datetime

    return format_datetime(now.astimezone(datetime.UTC), usegmt=True).replace("GMT", "UTC")


def _without_date(release: bytes) -> list[bytes]:
    return [line for line in release.splitlines() if not line.startswith(b"Date:")]


def _architecture(package: Package) -> str:
    return package.identity[2]


def _lines(index: gzip.GzipFile, cancel: CancelToken) -> Iterator[bytes]:
    """The lines, at most MAX_INDEX_BYTES of them. Raises IntegrityError, and CancelledError."""
    left_bytes = MAX_INDEX_BYTES
    try:  # here: python-debian takes an EOFError for the end
        while line := index.readline(left_bytes + 1):
            cancel.check()
            left_bytes -= len(line)
            if left_bytes < 0:
                raise _bad_metadata("Packages", f"it has more than {MAX_INDEX_BYTES} bytes")
            yield line
    except (OSError, EOFError, zlib.error) as error:
        raise _bad_metadata("Packages", f"it cannot be decompressed: {error}") from error


def _bad_metadata(name: str, why: str) -> IntegrityError:
    return IntegrityError(f"the repository's {name} cannot be used", why=why)


def _is_hex(text: str, length: int) -> bool:
    return len(text) == length and all(character in "0123456789abcdef" for character in text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16  # noqa: PLR2004 - below a petabyte
