"""Reads pages, and lists for machines, to know who made each; the bytes are not kept."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from _therock_utils._errors import OutputsError
from _therock_utils._transfer_types import SMALL_OBJECT_LIMIT_BYTES
from therock_outputs.batching import batches
from therock_outputs.modes._index_tree import maker_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from _therock_utils._cancel import CancelToken
    from _therock_utils.storage_backend import StorageBackend
    from _therock_utils.storage_location import StorageLocation
    from therock_outputs.modes._index_tree import Maker

_READ_BYTES: Final = 8 * 1024 * 1024
_READS_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A document as it was read: who made it, its etag, and the SHA-256 of its bytes."""

    maker: Maker
    etag: str = ""
    digest: bytes = b""


def read_documents(
    backend: StorageBackend, listed: Iterable[tuple[StorageLocation, int]], *, cancel: CancelToken
) -> Iterator[tuple[StorageLocation, ReadDocument | OutputsError]]:
    """Each of the documents, given with its size in bytes, or why it cannot be read; those that are gone are left out.

    One of more than SMALL_OBJECT_LIMIT_BYTES, which this project never writes, is not read: its maker is `unknown`.
    Raises CancelledError. Memory: 8 MiB, or one document.
    """
    for batch in batches(listed, lambda entry: entry[1], most_bytes=_READ_BYTES, most_items=_READS_AT_ONCE):
        small = [location for location, size_bytes in batch if size_bytes <= SMALL_OBJECT_LIMIT_BYTES]
        answers = dict(zip(small, backend.read_all_small(small, cancel=cancel), strict=True)) if small else {}
        for location, _ in batch:
            answer = answers.get(location, _TOO_LARGE)
            if answer is None:
                continue
            if isinstance(answer, (OutputsError, ReadDocument)):
                yield location, answer
            else:
                maker = maker_of(location.name, answer.data)
                yield location, ReadDocument(maker, answer.etag, hashlib.sha256(answer.data).digest())


_TOO_LARGE: Final = ReadDocument("unknown")
