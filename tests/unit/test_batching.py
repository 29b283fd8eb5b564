"""Batches keep order and bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from therock_outputs.batching import batches


def identity(size: int) -> int:
    return size


@pytest.mark.parametrize(
    ("sizes", "most_items", "expected"),
    [
        ([], None, []),
        ([4, 6, 1], None, [[4, 6], [1]]),
        ([11, 1, 12], None, [[11], [1], [12]]),
        ([0, 0, 0], 2, [[0, 0], [0]]),
        ([3, 3, 3, 3], 2, [[3, 3], [3, 3]]),
    ],
)
def test_a_batch_ends_before_it_would_be_too_large(
    sizes: list[int], most_items: int | None, expected: list[list[int]]
) -> None:
    assert list(batches(sizes, identity, most_bytes=10, most_items=most_items)) == expected


@given(st.lists(st.integers(0, 20)), st.none() | st.integers(1, 5))
def test_nothing_is_lost_and_only_one_alone_may_be_too_large(sizes: list[int], most_items: int | None) -> None:
    made = list(batches(iter(sizes), identity, most_bytes=10, most_items=most_items))
    assert [size for batch in made for size in batch] == sizes
    assert all(batch and (sum(batch) <= 10 or len(batch) == 1) for batch in made)
    assert most_items is None or all(len(batch) <= most_items for batch in made)
