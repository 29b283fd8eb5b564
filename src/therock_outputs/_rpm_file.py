"""Reads an rpm package file once, and compares it with the digests that are in it, as `rpm --checksig` does.

Format: rpm.org, "RPM v4 Package Format": a lead of 96 bytes, the signature header (padded to 8 bytes), the header, the
compressed payload. Numbers are big-endian.
"""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import IntegrityError
from _therock_utils._folder import local_file_error
from _therock_utils._keys import quote
from _therock_utils._source_file import READ_FLAGS, SkipFileError, SourceFile

if TYPE_CHECKING:
    from pathlib import Path

    from _therock_utils._cancel import CancelToken

MAX_HEADER_BYTES: Final = 128 * 2**20
"""Most that a header may take, which is held in memory: about 150 bytes a file of the package (rpm itself: 256 MB)."""

_LEAD_BYTES: Final = 96
_LEAD_MAGIC: Final = b"\xed\xab\xee\xdb"
_HEADER_MAGIC: Final = b"\x8e\xad\xe8\x01"
_INTRO: Final = struct.Struct(">4s4xII")  # magic and version, reserved, index entries, bytes of data
_ENTRY: Final = struct.Struct(">IIII")  # tag, type, offset in the data, count
_PADDING_BYTES: Final = 8

# Tags of the signature header; its sizes and MD5 are those of header and payload together.
_SIGNATURE_SIZE: Final = 1000
_SIGNATURE_MD5: Final = 1004
_SIGNATURE_SHA1: Final = 269
_SIGNATURE_LONG_SIZE: Final = 270
_SIGNATURE_SHA256: Final = 273
# Tags of the header.
_PAYLOAD_DIGEST: Final = 5092
_PAYLOAD_DIGEST_ALGORITHM: Final = 5093

_INT32: Final = 4
_INT64: Final = 5
_STRING: Final = 6
_BINARY: Final = 7
_STRING_ARRAY: Final = 8
_MD5_BYTES: Final = 16
_MAX_TEXT_BYTES: Final = 128  # the longest digest in hex: SHA-512

_SHA256_ALGORITHM: Final = 8
_ALGORITHMS: Final = {_SHA256_ALGORITHM: "sha256", 9: "sha384", 10: "sha512"}  # RFC 4880, section 9.4


@dataclass(frozen=True, slots=True)
class RpmFile:
    """A sound package file: its bytes up to the payload, and size and hex SHA-256 of the whole."""

    head: bytes
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class _Promise:
    """`expected` (hex) is to be the digest by `algorithm` of the bytes from `start` up to `end`."""

    what: str
    algorithm: str
    start: int
    end: int
    expected: str


class _UnsoundError(Exception):
    """What is wrong with a file; never leaves this module."""


def unsound(name: str, why: str) -> IntegrityError:
    """The error for a package file that cannot be used."""
    return IntegrityError(
        f"{quote(name)} is no sound rpm package",
        why=why,
        remedy="Build the package again, or leave it out with exclude.",
    )


def read_rpm(path: Path, *, file_name: str, cancel: CancelToken) -> RpmFile:
    """Read all of `path`, which messages call `file_name`, in pieces of 1 MB.

    Header and payload each need a digest that matches. Memory: three times the header's size. Raises IntegrityError,
    LocalFileError where it cannot be read, CancelledError.
    """
    try:
        descriptor = os.open(path, READ_FLAGS)
    except OSError as error:
        raise local_file_error(path, "opened", error) from error
    try:
        with SourceFile(descriptor, file_name) as source:
            layout = _Layout.read(_Pieces(descriptor, path, source.size_bytes))
            digests = [(promise, hashlib.new(promise.algorithm, usedforsecurity=False)) for promise in layout.promises]
            whole, position = hashlib.sha256(), 0
            for chunk in source.chunks(cancel):
                whole.update(chunk)
                for promise, digest in digests:
                    digest.update(chunk[max(0, promise.start - position) : max(0, promise.end - position)])
                position += len(chunk)
    except SkipFileError as error:
        raise unsound(file_name, error.reason) from error
    except _UnsoundError as error:
        raise unsound(file_name, str(error)) from error
    for promise, digest in digests:
        if digest.hexdigest() != promise.expected:
            raise unsound(file_name, f"the {promise.algorithm} digest of its {promise.what} is not the one in it")
    return RpmFile(layout.head, position, whole.hexdigest())


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Parts of an open file by their offsets."""

    descriptor: int
    path: Path
    size_bytes: int

    def read(self, offset: int, size_bytes: int) -> bytes:
        if offset + size_bytes > self.size_bytes:
            message = f"it ends within its headers: it has {self.size_bytes} bytes, and they {offset + size_bytes}"
            raise _UnsoundError(message)
        try:
            data = os.pread(self.descriptor, size_bytes, offset)
        except OSError as error:
            raise local_file_error(self.path, "read", error) from error
        if len(data) < size_bytes:
            raise _UnsoundError("it shrank while it was read")
        return data


@dataclass(frozen=True, slots=True)
class _Header:
    """Index and data of a header in a file, from `start` up to `end`."""

    raw: bytes
    start: int
    end: int
    entries: dict[int, tuple[int, int, int]]
    data_start: int

    @classmethod
    def read(cls, pieces: _Pieces, start: int, what: str) -> _Header:
        magic, entry_count, data_bytes = _INTRO.unpack(pieces.read(start, _INTRO.size))
        if magic != _HEADER_MAGIC:
            raise _UnsoundError(f"there is no {what} at byte {start}")
        data_start = _INTRO.size + entry_count * _ENTRY.size
        total = data_start + data_bytes
        if total > MAX_HEADER_BYTES:
            raise _UnsoundError(f"its {what} claims {total} bytes, more than {MAX_HEADER_BYTES}")
        raw = pieces.read(start, total)
        entries: dict[int, tuple[int, int, int]] = {}
        for tag, kind, offset, count in _ENTRY.iter_unpack(raw[_INTRO.size : data_start]):
            entries.setdefault(tag, (kind, offset, count))
        return cls(raw, start, start + total, entries, data_start)

    def number(self, tag: int) -> int | None:
        """The first number of an entry; None where there is no such entry."""
        data = self._data(tag, {_INT32: 4, _INT64: 8})
        return None if data is None else int.from_bytes(data, "big")

    def text(self, tag: int) -> str | None:
        """The first string of an entry, which is to be a digest; None where there is none."""
        data = self._data(tag, {_STRING: _MAX_TEXT_BYTES + 1, _STRING_ARRAY: _MAX_TEXT_BYTES + 1})
        return None if data is None else data.partition(b"\0")[0].decode("ascii", "replace")

    def binary(self, tag: int, size_bytes: int) -> bytes | None:
        """The bytes of an entry; None where there are none."""
        return self._data(tag, {_BINARY: size_bytes})

    def _data(self, tag: int, sizes: dict[int, int]) -> bytes | None:
        kind, offset, count = self.entries.get(tag, (0, 0, 0))
        if not count:
            return None
        data = self.raw[self.data_start + offset :][: sizes.get(kind, 0)]
        if not data:
            raise _UnsoundError(f"the entry {tag} of a header is of the wrong type, or beyond the header's end")
        return data


@dataclass(frozen=True, slots=True)
class _Layout:
    """The bytes up to the payload, and what the file promises about itself."""

    head: bytes
    promises: tuple[_Promise, ...]

    @classmethod
    def read(cls, pieces: _Pieces) -> _Layout:
        lead = pieces.read(0, _LEAD_BYTES)
        if not lead.startswith(_LEAD_MAGIC):
            raise _UnsoundError("it does not begin as an rpm package does")
        signature = _Header.read(pieces, _LEAD_BYTES, "signature header")
        start = signature.end + -signature.end % _PADDING_BYTES
        padding = pieces.read(signature.end, start - signature.end)
        header = _Header.read(pieces, start, "header")
        promised = signature.number(_SIGNATURE_LONG_SIZE) or signature.number(_SIGNATURE_SIZE)
        size_bytes = pieces.size_bytes
        if promised and header.start + promised != size_bytes:
            message = f"it has {size_bytes} bytes, and {header.start + promised} by its own account: is it complete?"
            raise _UnsoundError(message)
        head = lead + signature.raw + padding + header.raw
        return cls(head, (_header_promise(signature, header), _payload_promise(signature, header, size_bytes)))


def _header_promise(signature: _Header, header: _Header) -> _Promise:
    for tag, algorithm in ((_SIGNATURE_SHA256, "sha256"), (_SIGNATURE_SHA1, "sha1")):
        expected = signature.text(tag)
        if expected:
            return _Promise("header", algorithm, header.start, header.end, expected)
    raise _UnsoundError("it has no digest of its header, so nobody can tell whether it is intact")


def _payload_promise(signature: _Header, header: _Header, size_bytes: int) -> _Promise:
    expected = header.text(_PAYLOAD_DIGEST)
    algorithm = _ALGORITHMS.get(header.number(_PAYLOAD_DIGEST_ALGORITHM) or _SHA256_ALGORITHM)
    if expected and algorithm:
        return _Promise("payload", algorithm, header.end, size_bytes, expected)
    digest = signature.binary(_SIGNATURE_MD5, _MD5_BYTES)
    if digest:
        return _Promise("header and payload", "md5", header.start, size_bytes, digest.hex())
    raise _UnsoundError("it has no digest of its payload, so nobody can tell whether it is intact")
