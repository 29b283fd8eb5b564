"""What archives need: compressors whose bytes do not depend on the machine, an exact reader, the number of cores."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from _therock_utils._cancel import CancelToken

ZSTD_LEVEL: Final = 3
XZ_PRESET: Final = 6


def usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Compressor(Protocol):
    """As in the `lzma` module: bytes in, compressed bytes out, in pieces of any size."""

    def compress(self, data: bytes, /) -> bytes:
        """Take `data`; what is ready of the compressed bytes."""

    def flush(self) -> bytes:
        """The rest of the compressed bytes."""


def zstd_options(*, level: int, workers: int) -> dict[int, int]:
    """Options of a zstd frame that ends in a checksum; `workers` compress at the same time.

    One worker or many: the bytes are the same; none at all would give others.
    """
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    parameter = zstd.CompressionParameter
    return {
        parameter.compression_level: level,
        parameter.nb_workers: max(1, workers),
        parameter.checksum_flag: 1,
    }


def zstd_compressor(*, level: int, workers: int) -> Compressor:
    """A compressor of one zstd frame. It works in `workers` threads of its own and needs about 20 MB for each."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    compressor: Compressor = zstd.ZstdCompressor(options=zstd_options(level=level, workers=workers))
    return compressor


def xz_compressor(*, preset: int) -> Compressor:
    """A compressor of one xz stream with a CRC-64, in the caller's thread; preset 6 needs 94 MB (xz(1))."""
    import lzma

    return lzma.LZMACompressor(lzma.FORMAT_XZ, check=lzma.CHECK_CRC64, preset=preset)


class ExactReader:
    """Gives exactly `size_bytes`, with zeros where the file shrank: the member's header is written already.

    `missing_bytes` says how many are made up.
    """

    def __init__(self, source: IO[bytes], size_bytes: int, cancel: CancelToken) -> None:
        """Read from `source`, which the caller closes."""
        self._source = source
        self._left_bytes = size_bytes
        self._cancel = cancel
        self.missing_bytes = 0

    def read(self, wanted_bytes: int = -1) -> bytes:
        """At most `wanted_bytes`. Raises CancelledError, OSError."""
        self._cancel.check()
        wanted_bytes = self._left_bytes if wanted_bytes < 0 else min(wanted_bytes, self._left_bytes)
        data = self._source.read(wanted_bytes)
        if len(data) < wanted_bytes:
            self.missing_bytes += wanted_bytes - len(data)
            data += b"\0" * (wanted_bytes - len(data))
        self._left_bytes -= len(data)
        return data
