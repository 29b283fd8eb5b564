"""Decisions of the S3 transfer."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _therock_utils._s3_plan import (
    MAX_PARTS,
    MIB,
    PART_SIZE_BYTES,
    SINGLE_PUT_LIMIT_BYTES,
    ConflictState,
    ListingWindow,
    LocalDigests,
    StoredFacts,
    byte_ranges,
    choose_part_size,
    common_folder,
    compare,
    decide_action,
    decide_state,
    is_earlier_attempt,
    is_large,
    joined_digest,
    just_before,
    listing_windows,
    matches_joined_digest,
    multipart_etag,
)
from _therock_utils._transfer_types import OnConflict, Origin

KEYS = st.lists(st.text("ab-/", min_size=1).filter(lambda key: "" not in key.split("/")), min_size=1)


@pytest.mark.parametrize(
    ("size_bytes", "part_size_bytes"),
    [
        (0, 8 * MIB),
        (1, 8 * MIB),
        (8 * MIB * 10_000, 8 * MIB),
        (8 * MIB * 10_000 + 1, 9 * MIB),
        (9 * MIB * 10_000, 9 * MIB),
        (5 * 1024**4, 525 * MIB),
    ],
)
def test_parts_have_8_mib_until_10_000_of_them_are_too_few(size_bytes: int, part_size_bytes: int) -> None:
    assert choose_part_size(size_bytes) == part_size_bytes


@given(st.integers(min_value=1, max_value=50 * 1024**4))
def test_every_size_fits_into_10_000_parts(size_bytes: int) -> None:
    part_size_bytes = choose_part_size(size_bytes)
    assert part_size_bytes >= PART_SIZE_BYTES
    assert -(-size_bytes // part_size_bytes) <= MAX_PARTS


def test_only_an_object_above_the_limit_is_large() -> None:
    assert not is_large(SINGLE_PUT_LIMIT_BYTES)
    assert is_large(SINGLE_PUT_LIMIT_BYTES + 1)


@given(st.integers(min_value=0, max_value=10_000), st.integers(min_value=1, max_value=3000))
def test_ranges_cover_every_byte_once(size_bytes: int, part_size_bytes: int) -> None:
    ranges = byte_ranges(size_bytes, part_size_bytes)
    assert [byte for start, end in ranges for byte in (start, end)][1:-1:2] == [start for start, _ in ranges[1:]]
    assert sum(end - start for start, end in ranges) == size_bytes
    assert all(0 < end - start <= part_size_bytes for start, end in ranges)


PARTS = (hashlib.sha256(b"one").digest(), hashlib.sha256(b"two").digest())
JOINED = base64.b64encode(hashlib.sha256(PARTS[0] + PARTS[1]).digest()).decode()


@pytest.mark.parametrize(
    ("stored", "expected"),
    [(JOINED, True), (f"{JOINED}-2", True), (f"{JOINED}-3", False), ("AAAA-2", False), ("", False)],
)
def test_a_composite_checksum_matches_with_its_number_of_parts_or_without(stored: str, *, expected: bool) -> None:
    assert joined_digest(PARTS) == JOINED
    assert matches_joined_digest(stored, PARTS) is expected


def test_the_etag_of_a_multipart_upload_is_that_of_its_joined_md5s() -> None:
    md5s = [hashlib.md5(data, usedforsecurity=False).digest() for data in (b"one", b"two")]
    assert multipart_etag(md5s) == hashlib.md5(b"".join(md5s), usedforsecurity=False).hexdigest() + "-2"


WHOLE = hashlib.sha256(b"onetwo").digest()
LOCAL = LocalDigests(WHOLE, PARTS, "etag")
WHOLE_TEXT = base64.b64encode(WHOLE).decode()
OTHER_TEXT = base64.b64encode(b"o" * 32).decode()


@pytest.mark.parametrize(
    ("stored", "state"),
    [
        (StoredFacts(5, WHOLE_TEXT, ""), "different"),
        (StoredFacts(6, "", ""), "unknown"),
        (StoredFacts(6, WHOLE_TEXT, ""), "same"),
        (StoredFacts(6, JOINED, ""), "same"),
        (StoredFacts(6, f"{JOINED}-2", ""), "same"),
        (StoredFacts(6, OTHER_TEXT, ""), "different"),
        (StoredFacts(6, f"{OTHER_TEXT}-2", "1/j/1"), "different"),
        (StoredFacts(6, f"{OTHER_TEXT}-2", ""), "unknown"),
        (StoredFacts(6, f"{OTHER_TEXT}-3", "1/j/1"), "unknown"),
    ],
)
def test_stored_bytes_are_compared_by_size_then_checksum(stored: StoredFacts, state: ConflictState) -> None:
    assert compare(6, LOCAL, stored) == state


def test_bytes_that_were_not_read_here_cannot_be_compared() -> None:
    assert compare(6, None, StoredFacts(6, WHOLE_TEXT, "")) == "unknown"


@pytest.mark.parametrize(
    ("stored", "ours", "earlier"),
    [
        ("12/build/1", Origin("12", "build", "2"), True),
        ("12/build/9", Origin("12", "build", "10"), True),
        ("12/build/2", Origin("12", "build", "2"), False),
        ("12/build/3", Origin("12", "build", "2"), False),
        ("12/other/1", Origin("12", "build", "2"), False),
        ("11/build/1", Origin("12", "build", "2"), False),
        ("12/build/x", Origin("12", "build", "2"), False),
        ("12/build/1", Origin("12", "build", "x"), False),
        ("12/build/\u00b2", Origin("12", "build", "3"), False),
        ("12/build/" + "1" * 5000, Origin("12", "build", "2"), False),
        ("12/build", Origin("12", "build", "2"), False),
        ("", Origin("12", "build", "2"), False),
        ("12/build/1", None, False),
    ],
)
def test_only_the_same_run_and_job_can_be_an_earlier_attempt(
    stored: str, ours: Origin | None, *, earlier: bool
) -> None:
    assert is_earlier_attempt(stored, ours) is earlier


@pytest.mark.parametrize(
    ("stored", "state"),
    [
        (StoredFacts(6, WHOLE_TEXT, "12/build/1"), "same"),
        (StoredFacts(6, OTHER_TEXT, "12/build/1"), "rerun"),
        (StoredFacts(6, "", "12/build/1"), "rerun"),
        (StoredFacts(7, "", "12/build/1"), "rerun"),
        (StoredFacts(6, OTHER_TEXT, "12/build/2"), "different"),
        (StoredFacts(6, "", "12/build/2"), "unknown"),
    ],
)
def test_what_an_earlier_attempt_of_this_job_wrote_is_a_rerun(stored: StoredFacts, state: ConflictState) -> None:
    assert decide_state(6, LOCAL, stored, Origin("12", "build", "2")) == state


@pytest.mark.parametrize(
    ("state", "on_conflict", "action"),
    [
        ("different", "overwrite", "overwritten"),
        ("different", "error", "refused"),
        ("different", "skip", "skipped"),
        ("unknown", "overwrite", "overwritten"),
        ("unknown", "error", "refused"),
        ("unknown", "skip", "skipped"),
        ("rerun", "overwrite", "overwritten"),
        ("rerun", "error", "overwritten"),
        ("rerun", "skip", "overwritten"),
    ],
)
def test_a_rerun_is_overwritten_and_anything_else_is_as_the_user_chose(
    state: ConflictState, on_conflict: OnConflict, action: str
) -> None:
    assert state != "same"
    assert decide_action(state, on_conflict) == action


@pytest.mark.parametrize(
    ("keys", "folder"),
    [
        (["a/b/c"], "a/b"),
        (["a/b/c", "a/b/d"], "a/b"),
        (["a/b/c", "a/bc/d"], "a"),
        (["a/b/c", "a/b"], "a"),
        (["a", "b/c"], ""),
        (["a"], ""),
    ],
)
def test_the_common_folder_is_found_by_whole_segments(keys: list[str], folder: str) -> None:
    assert common_folder(keys) == folder


@given(KEYS)
def test_every_key_lies_in_one_window_of_its_own_top_folder(keys: list[str]) -> None:
    windows = listing_windows(keys)
    for key in keys:
        assert sum(_holds(window, key) for window in windows) >= 1
    assert all(window.prefix or "/" not in window.last for window in windows)


def _holds(window: ListingWindow, key: str) -> bool:
    inside = key.startswith(f"{window.prefix}/") if window.prefix else True
    return inside and window.after.encode() < key.encode() <= window.last.encode()


def test_a_run_is_listed_below_its_own_prefix_only() -> None:
    keys = ["12-linux/logs/a", "12-linux/logs/b/c", "13-linux/x"]
    assert listing_windows(keys) == [
        ListingWindow("12-linux/logs", "", "12-linux/logs/b/c"),
        ListingWindow("13-linux", "", "13-linux/x"),
    ]


@pytest.mark.parametrize(("key", "before"), [("a/bc", "a/b"), ("a/b", ""), ("a", ""), ("ab", "a")])
def test_a_listing_begins_just_before_the_first_key(key: str, before: str) -> None:
    assert just_before(key) == before
    assert before < key
