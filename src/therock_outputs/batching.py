"""Groups what is to be in memory, or on disk, at once. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_T = TypeVar("_T")


def batches(
    items: Iterable[_T], size_bytes: Callable[[_T], int], *, most_bytes: int, most_items: int | None = None
) -> Iterator[list[_T]]:
    """`items` in order, in lists of at most `most_bytes` bytes together (one alone may have more) and `most_items`."""
    batch: list[_T] = []
    batch_bytes = 0
    for item in items:
        item_bytes = size_bytes(item)
        if batch and (len(batch) == most_items or batch_bytes + item_bytes > most_bytes):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(item)
        batch_bytes += item_bytes
    if batch:
        yield batch
