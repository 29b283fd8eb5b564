"""Keys with a slash at their end are told from objects' by what a listing shows around them."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _therock_utils._cancel import CancelToken
from _therock_utils._s3_folder_keys import ShownKeys
from _therock_utils._s3_listing import Listed, Listing, _Page

if TYPE_CHECKING:
    from collections.abc import Iterator

NOON = datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.UTC)

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


LAID = st.dictionaries(
    st.text(alphabet="ab/-", min_size=1, max_size=5).filter(lambda key: "//" not in key and key[0] != "/"),
    st.integers(0, 1),
    max_size=12,
)


class _Laid(Listing):
    """The listing of keys with sizes, in pages; who looks at one sees whether there is an object."""

    def __init__(self, laid: dict[str, int], page_keys: int) -> None:
        super().__init__(
            *[Any] * 3,  # type: ignore[arg-type] # nothing is asked of a service
            cancel=CancelToken(),
            bucket="bucket",
            folder="",
        )
        self._laid = laid
        self._page_keys = page_keys
        self.looked_at: list[str] = []

    def _pages(self) -> Iterator[_Page]:
        keys = [Listed(key, self._laid[true_key], "", NOON) for key, true_key in shown({*self._laid})]
        for start in range(0, len(keys), self._page_keys):
            yield _Page(keys[start : start + self._page_keys], is_last=False, is_exact=False)
        yield _Page([], is_last=True, is_exact=False)

    def _folders_of(self, doubtful: set[Listed]) -> set[Listed]:
        self.looked_at += [listed.key for listed in doubtful]
        return {listed for listed in doubtful if listed.key not in self._laid}


@given(LAID, st.integers(1, 4))
def test_every_object_is_listed_and_no_empty_key_that_stands_for_a_folder(laid: dict[str, int], page_keys: int) -> None:
    # A folder's key that is not empty is known by what lies in it.
    laid = {
        key: size_bytes
        for key, size_bytes in laid.items()
        if not key.endswith("/") or not size_bytes or any(one != key and one.startswith(key) for one in laid)
    }
    objects = sorted((key for key in laid if not key.endswith("/")), key=str.encode)
    assert [listed.key for listed in _Laid(laid, page_keys)] == objects


def test_only_what_nothing_decides_is_looked_at() -> None:
    listing = _Laid({"a": 1, "b": 0, "b-1": 1, "c": 1, "d": 0, "d/x": 1, "e/": 0, "f": 0}, 100)
    assert [listed.key for listed in listing] == ["a", "b", "b-1", "c", "d", "d/x", "f"]
    assert sorted(listing.looked_at) == ["d", "e", "f"]


@pytest.mark.parametrize("key", ["x/", "x/y/"])
def test_a_slash_that_is_shown_is_believed(key: str) -> None:
    assert ShownKeys(after="").take(key) == "folder"
