"""Keys with a slash at their end are told from objects' by what a listing shows around them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _therock_utils._s3_folder_keys import ShownKeys

KEYS = st.sets(
    st.text(alphabet="ab/-\U0010ffff", min_size=1, max_size=6).filter(lambda key: "//" not in key and key[0] != "/")
)


def shown(keys: set[str]) -> list[tuple[str, str]]:
    """The keys as obstore shows them, with the true ones, in the service's order."""
    return [(key.removesuffix("/"), key) for key in sorted(keys, key=str.encode)]


@given(KEYS)
def test_no_object_is_taken_for_a_folder_nor_the_other_way_round_where_it_can_be_known(keys: set[str]) -> None:
    known = ShownKeys(after="")
    for key, true_key in shown(keys):
        verdict = known.take(key)
        if true_key == key:
            assert verdict == "object"
        elif key in keys:
            assert verdict == "folder"
        elif any(key < other < true_key for other in keys):
            assert verdict == "unknown"


@given(KEYS, st.text(alphabet="ab/-", max_size=4))
def test_a_listing_that_begins_anywhere_shows_no_folder_as_an_object_before_it(keys: set[str], after: str) -> None:
    known = ShownKeys(after=after)
    for key, true_key in shown({key for key in keys if key > after}):
        verdict = known.take(key)
        if true_key == key:
            assert verdict == "object"
        elif key <= after or key in keys:
            assert verdict == "folder"


@given(KEYS)
def test_keys_that_are_shown_twice_after_a_page_broke_are_taken_once(keys: set[str]) -> None:
    known = ShownKeys(after="")
    once = [key for key, _ in shown(keys) if known.take(key) != "folder"]
    again = [key for key, true_key in shown(keys) if true_key > known.highest and known.take(key) != "folder"]
    assert again == []
    assert len(once) == len(set(once))


@pytest.mark.parametrize("key", ["x/", "x/y/"])
def test_a_slash_that_is_shown_is_believed(key: str) -> None:
    assert ShownKeys(after="").take(key) == "folder"
