"""The bytes of a .tar.zst or .tar.xz, read once from front to end in large pieces.

Memory: one buffer of the file, one piece of what it holds, and the decompressor's window (at most 128 MiB).
"""

from __future__ import annotations

import contextlib
import itertools
import lzma
import os
import sys
from typing import TYPE_CHECKING, Final, Protocol

from _therock_utils._errors import IntegrityError, LocalFileError
from _therock_utils._keys import quote
from _therock_utils._source_file import SkipFileError, SourceFile

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from _therock_utils._cancel import CancelToken

PIECE_BYTES: Final = 128 * 1024
"""Most that is decompressed at a time: the most that a block of zstd holds."""

MAX_WINDOW_LOG: Final = 27
"""An archive that needs more than 2**27 bytes (128 MiB) to be decompressed is refused; zstd's own default limit."""

MAX_PADDING_BYTES: Final = 1024 * 1024
"""Most zeros after a tar archive's end mark: programs fill up their last record, of 10 KiB mostly."""

_XZ_MAGIC: Final = b"\xfd7zXZ\0"
_ZEROS: Final = bytes(PIECE_BYTES)


class TarStream:
    """Reads forward only. `archive` names the file in messages; `pieces` are the decompressed bytes.

    What it reads raises IntegrityError where the bytes end too early.
    """

    def __init__(self, archive: Path, pieces: Iterator[bytes]) -> None:
        self._archive = archive
        self._pieces = pieces
        self._piece = memoryview(b"")
        self._at = 0  # what is before it in the piece was read
        self._position = 0

    def tell(self) -> int:
        """How many bytes were read."""
        return self._position

    def read(self, size_bytes: int) -> bytes:
        """Exactly `size_bytes`, for headers: all of them are held."""
        parts = bytearray()
        while len(parts) < size_bytes:
            parts += self._next(size_bytes - len(parts))
        return bytes(parts)

    def push_back(self, data: bytes) -> None:
        """Let `data`, which was read last, be read again."""
        if self._at >= len(data):
            self._at -= len(data)
        else:
            self._piece, self._at = memoryview(data + bytes(self._piece[self._at :])), 0
        self._position -= len(data)

    def copy_to(self, descriptor: int, size_bytes: int) -> None:
        """Write the next `size_bytes` to an open file. Raises OSError where that fails."""
        while size_bytes:
            part = self._next(size_bytes)
            size_bytes -= len(part)
            while part:
                part = part[os.write(descriptor, part) :]

    def skip(self, size_bytes: int) -> None:
        """Leave out the next `size_bytes`."""
        while size_bytes:
            size_bytes -= len(self._next(size_bytes))

    def finish(self) -> None:
        """Read to the end, where only some zeros may be left; raises IntegrityError otherwise."""
        left_bytes = MAX_PADDING_BYTES
        while self._has_more():
            part = self._take(PIECE_BYTES)
            left_bytes -= len(part)
            if left_bytes < 0 or part != _ZEROS[: len(part)]:
                fault = "other bytes follow" if left_bytes >= 0 else f"more than {MAX_PADDING_BYTES} zeros follow"
                raise damaged(self._archive, f"{fault} the end of the tar archive")

    def _next(self, most_bytes: int) -> memoryview:
        if not self._has_more():
            raise damaged(self._archive, "it ends in the middle: the tar archive has no end mark")
        return self._take(most_bytes)

    def _take(self, most_bytes: int) -> memoryview:
        part = self._piece[self._at : self._at + most_bytes]
        self._at += len(part)
        self._position += len(part)
        return part

    def _has_more(self) -> bool:
        if self._at == len(self._piece):
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self._piece, self._at = memoryview(piece), 0
        return True


@contextlib.contextmanager
def open_tar_stream(archive: Path, cancel: CancelToken) -> Iterator[TarStream]:
    """The decompressed bytes of `archive`, whose first bytes say whether it is xz, else it is zstd.

    Reading raises IntegrityError for damaged, cut or trailing bytes and where the file changes meanwhile, and
    CancelledError. LocalFileError is raised where the file cannot be read.
    """
    try:
        source = SourceFile.open(archive)
    except SkipFileError as error:
        raise LocalFileError(f"the archive {str(archive)!a} cannot be read", why=error.reason) from error
    with source, contextlib.closing(_pieces(archive, source.chunks(cancel), cancel)) as pieces:
        yield TarStream(archive, pieces)


def damaged(archive: Path, why: str) -> IntegrityError:
    """The error for an archive that is no whole one."""
    return IntegrityError(
        f"the archive {quote(archive.name)} is damaged",
        why=why,
        remedy="Fetch it again; where that does not help, it must be made and uploaded again.",
    )


class _Decompressor(Protocol):
    """What zstd's and lzma's have in common: one frame or stream each."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def _pieces(archive: Path, chunks: Iterator[bytes], cancel: CancelToken) -> Generator[bytes, None, None]:
    first = next(chunks, b"")
    if not first:
        raise damaged(archive, "it is empty")
    is_xz = first.startswith(_XZ_MAGIC)
    make, error_type = _xz() if is_xz else _zstd()
    try:
        decompressor = make()
        is_between_frames = False
        for data in _parts(first, chunks):
            rest = data
            while rest or not (is_between_frames or decompressor.needs_input):
                cancel.check()
                if is_between_frames and is_xz and not (rest := rest.lstrip(b"\0")):
                    break  # the xz file format 1.2.1, 2.2: zeros may follow a stream
                piece = decompressor.decompress(rest, PIECE_BYTES)
                is_between_frames = decompressor.eof
                rest = b""
                if is_between_frames:
                    rest, decompressor = decompressor.unused_data, make()
                if piece:
                    yield piece
    except error_type as error:
        raise _as_ours(archive, error) from error
    if not is_between_frames:
        raise damaged(archive, "it ends in the middle of its compressed bytes")


def _parts(first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """All bytes in small parts: what follows a frame is copied, so many tiny frames in large parts would take long."""
    for chunk in itertools.chain([first], chunks):
        for start in range(0, len(chunk), PIECE_BYTES):
            yield chunk[start : start + PIECE_BYTES]


def _xz() -> tuple[Callable[[], _Decompressor], type[Exception]]:
    def make() -> _Decompressor:
        # The dictionary and some tables; xz -9 needs 65 MiB.
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=(1 << MAX_WINDOW_LOG) + PIECE_BYTES)

    return make, lzma.LZMAError


def _zstd() -> tuple[Callable[[], _Decompressor], type[Exception]]:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
    return lambda: zstd.ZstdDecompressor(options=options), zstd.ZstdError


def _as_ours(archive: Path, error: Exception) -> IntegrityError:
    if "too much memory" in str(error) or "Memory usage limit" in str(error):
        return IntegrityError(
            f"the archive {quote(archive.name)} is refused",
            why=f"decompressing it would need more than {1 << (MAX_WINDOW_LOG - 20)} MiB of memory",
            remedy="It must be made again with a smaller window (zstd without --ultra --long=28 or more).",
        )
    return damaged(archive, str(error))
