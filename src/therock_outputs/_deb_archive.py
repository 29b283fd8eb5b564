"""The control file of a .deb (deb(5)), which may be hostile: python-debian reads the ar members, tarfile the control.

python-debian's own reader of the whole is not used: it would start a program for zstd, follow a size of -60 bytes, and
decompress without a limit.
"""

from __future__ import annotations

import lzma
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from _therock_utils._errors import IntegrityError, LocalFileError
from _therock_utils._keys import quote
from therock_outputs._tar_members import Kind, read_members
from therock_outputs._tar_stream import MAX_WINDOW_LOG, TarStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from debian.arfile import ArMember

MAX_CONTROL_ARCHIVE_BYTES: Final = 16 * 1024 * 1024
"""Most that the control archive may have, compressed and decompressed: a list of md5sums of 150,000 files."""

MAX_CONTROL_BYTES: Final = 1024 * 1024
_MAX_MEMBERS: Final = 16
_GLOBAL_HEADER: Final = b"!<arch>\n"
_FORMAT_MEMBER: Final = "debian-binary"
_FORMAT: Final = b"2."
_GZIP: Final = 31  # zlib's window bits for a gzip header


def read_control(path: Path, *, file_name: str) -> str:
    """The text of the control file of the package at `path`, which messages call `file_name`.

    Raises IntegrityError for a file that is no sound package, LocalFileError where it cannot be read. Memory: the
    control archive, MAX_CONTROL_ARCHIVE_BYTES at most compressed and decompressed, and a decompressor's window.
    """
    try:
        with path.open("rb") as file:
            name, compressed = _control_archive(file, file_name, path.stat().st_size)
    except OSError as error:
        raise LocalFileError(f"the package {str(path)!a} cannot be read", why=error.strerror or str(error)) from error
    shown = Path(file_name)
    stream = TarStream(shown, iter([_decompressed(file_name, name, compressed)]))
    for member in read_members(shown, stream):
        if member.segments != ("control",):
            stream.skip(member.size_bytes)
        elif member.kind is not Kind.FILE or member.size_bytes > MAX_CONTROL_BYTES:
            raise unsound(file_name, f"its control file is no file of at most {MAX_CONTROL_BYTES} bytes")
        else:
            return _decoded(file_name, stream.read(member.size_bytes))
    raise unsound(file_name, "its control archive has no file control")


def unsound(file_name: str, why: str) -> IntegrityError:
    """The error for a file that is no package to be offered to anybody."""
    return IntegrityError(
        f"{quote(file_name)} is no sound Debian package",
        why=why,
        remedy="Build it again (dpkg-deb --info shows what is in it), or leave it out with exclude.",
    )


def _control_archive(file: BinaryIO, file_name: str, size_bytes: int) -> tuple[str, bytes]:
    """Name and bytes of the member control.tar*, which comes between debian-binary and data.tar*."""
    if file.read(len(_GLOBAL_HEADER)) != _GLOBAL_HEADER:
        raise unsound(file_name, "it is no ar archive")
    members = _members(file, file_name, size_bytes)
    first = next(members, None)
    if first is None or first.name != _FORMAT_MEMBER or file.read(len(_FORMAT)) != _FORMAT:
        raise unsound(file_name, "it does not begin with a member debian-binary of format 2")
    control: tuple[str, bytes] | None = None
    for member in members:
        if control is None and member.name.startswith("control.tar"):
            if member.size > MAX_CONTROL_ARCHIVE_BYTES:
                raise unsound(file_name, f"its control archive has more than {MAX_CONTROL_ARCHIVE_BYTES} bytes")
            control = member.name, file.read(member.size)
        elif control is not None and member.name.startswith("data.tar"):
            return control
        elif not member.name.startswith("_"):  # deb(5): such members are passed over
            break
    raise unsound(file_name, "its members are not debian-binary, control.tar* and data.tar*, in this order")


def _members(file: BinaryIO, file_name: str, size_bytes: int) -> Iterator[ArMember]:
    """The members of the ar archive from where `file` is, which then stands at the start of each one's data."""
    from debian.arfile import ArMember

    start = file.tell()
    for _ in range(_MAX_MEMBERS):
        file.seek(start)
        try:
            member = ArMember.from_file(file, None, encoding="ascii", errors="backslashreplace")
        except (OSError, ValueError) as error:
            raise unsound(file_name, f"its ar archive is damaged at byte {start}: {error}") from error
        if member is None:
            return
        data_start = file.tell()
        if not 0 <= member.size <= size_bytes - data_start:
            raise unsound(file_name, f"its member {quote(member.name)} says that it has {member.size} bytes")
        start = data_start + member.size + member.size % 2
        yield member


def _decompressed(file_name: str, name: str, data: bytes) -> bytes:
    """The bytes of the control archive, by the extensions of deb(5)."""
    limit = MAX_CONTROL_ARCHIVE_BYTES
    try:
        match name.removeprefix("control.tar"):
            case "":
                return data
            case ".gz":
                gzip = zlib.decompressobj(_GZIP)
                whole, ended = gzip.decompress(data, limit), gzip.eof
            case ".xz":
                xz = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=1 << MAX_WINDOW_LOG)
                whole, ended = xz.decompress(data, limit), xz.eof
            case ".zst":
                whole, ended = _zstd_decompressed(file_name, data, limit)
            case _:
                raise unsound(file_name, f"its control archive has an unknown compression: {quote(name)}")
    except (zlib.error, lzma.LZMAError) as error:
        raise unsound(file_name, f"its control archive is damaged: {error}") from error
    if not ended:
        raise unsound(file_name, f"its control archive ends in the middle, or has more than {limit} bytes")
    return whole


def _zstd_decompressed(file_name: str, data: bytes, limit: int) -> tuple[bytes, bool]:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
    try:
        decompressor = zstd.ZstdDecompressor(options=options)
        return decompressor.decompress(data, limit), decompressor.eof
    except zstd.ZstdError as error:
        raise unsound(file_name, f"its control archive is damaged: {error}") from error


def _decoded(file_name: str, control: bytes) -> str:
    try:
        return control.decode("utf-8")
    except UnicodeDecodeError as error:
        raise unsound(file_name, f"its control file is not UTF-8: {error}") from error
