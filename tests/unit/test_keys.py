"""What may be a key, a segment, a bucket, a run and a platform, and how a refusal reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _therock_utils._errors import IllegalLocationError, InputError
from _therock_utils._keys import (
    MAX_KEY_BYTES,
    check_bucket,
    check_external_repo,
    check_key,
    check_platform,
    check_run_id,
    check_segment,
    key_fault,
    quote,
    segment_fault,
)

if TYPE_CHECKING:
    from collections.abc import Callable

ILLEGAL_SEGMENTS = {
    "empty": "",
    "dot": ".",
    "dots": "..",
    "backslash": "a\\b",
    "newline": "a\n",
    "carriage return": "a\r",
    "NUL": "a\x00b",
    "escape": "\x1b[31m",
    "delete": "a\x7f",
    "C1 control": "a\x85b",
    "line separator": "a\u2028b",
    "paragraph separator": "a\u2029b",
    "high surrogate": "a\ud800",
    "low surrogate": "\udcffa",
}
LEGAL_SEGMENTS = [
    "a",
    "...",
    ".hidden",
    "a..b",
    " a ",
    "~",
    "%2e%2e",
    "%2F",
    "rand_lib_gfx942:xnack+.tar.zst",
    "C:",
    "é",
    "e\u0301",
    "日本語",
    "\U0001f680",
    "?a=b#c",
    "<script>",
]


@pytest.mark.parametrize("segment", ILLEGAL_SEGMENTS.values(), ids=list(ILLEGAL_SEGMENTS))
def test_an_illegal_segment_makes_every_key_with_it_illegal(segment: str) -> None:
    assert segment_fault(segment)
    for key in (f"a/{segment}", f"{segment}/a", f"a/{segment}/b"):
        assert key_fault(key)
        with pytest.raises(IllegalLocationError):
            check_key(key)


@pytest.mark.parametrize("segment", LEGAL_SEGMENTS)
def test_a_legal_segment_stays_as_it_is(segment: str) -> None:
    assert check_segment(segment, "name") == segment
    assert check_key(f"a/{segment}/b") == f"a/{segment}/b"


@pytest.mark.parametrize("value", ["a/b", "/", "/a", "a/", "../a"])
def test_a_segment_is_one(value: str) -> None:
    with pytest.raises(IllegalLocationError, match="name"):
        check_segment(value, "name")


@given(st.text("./\\ -~!a[]\x1f\x7f\n\u00e9\u2028", min_size=1, max_size=9))
def test_a_key_is_as_legal_as_its_segments(key: str) -> None:
    faults = [fault for fault in map(segment_fault, key.split("/")) if fault]
    assert key_fault(key) == (faults[0] if faults else "")


def test_the_empty_key_is_the_root_of_the_bucket() -> None:
    assert check_key("") == ""


@pytest.mark.parametrize("key", ["/", "/a", "a/", "a//b", "//"])
def test_slashes_only_separate(key: str) -> None:
    with pytest.raises(IllegalLocationError):
        check_key(key)


@pytest.mark.parametrize(("character", "width"), [("a", 1), ("é", 2), ("日", 3), ("\U0001f680", 4)])
def test_a_key_has_at_most_1024_bytes_in_utf8(character: str, width: int) -> None:
    longest = character * (MAX_KEY_BYTES // width) + "a" * (MAX_KEY_BYTES % width)
    assert len(longest.encode()) == 1024
    assert check_key(longest) == longest
    for too_long in (f"{longest}a", f"a/{longest[1:]}{character}"):
        with pytest.raises(IllegalLocationError, match=f"{len(too_long.encode())} bytes"):
            check_key(too_long)


def test_a_refused_key_is_a_refused_value_and_a_refused_input() -> None:
    with pytest.raises(ValueError, match="'a//b' cannot be used") as caught:
        check_key("a//b")
    assert isinstance(caught.value, InputError)
    assert caught.value.exit_code == 2


RULES: dict[str, tuple[Callable[[str], str], list[str], list[str]]] = {
    "run_id": (
        check_run_id,
        ["1", "12345678901", "local", "a.b_c-D", "a" * 64, "1..2"],
        ["a" * 65, "-1", ".1", "_1", "1/../2", "1 2", "1/2", "..", "1:2"],
    ),
    "platform": (check_platform, ["linux", "windows", "darwin", "win32"], ["Linux", "linux-2", "linux.", "../x"]),
    "bucket": (
        check_bucket,
        ["local", "therock-ci-artifacts", "a.b", "A_b", "a" * 255],
        ["a" * 256, "-a", ".", "..", "a/b", "a:b", "a@b", "a?b", "a#b", "a b"],
    ),
}


@pytest.mark.parametrize(("check", "value"), [(rule[0], value) for rule in RULES.values() for value in rule[1]])
def test_a_name_within_its_rule_is_taken(check: Callable[[str], str], value: str) -> None:
    assert check(value) == value


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, rule in RULES.items() for value in rule[2]])
def test_a_name_outside_its_rule_is_refused(name: str, value: str) -> None:
    with pytest.raises(IllegalLocationError, match=f"^{name} "):
        RULES[name][0](value)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(
    "tail", ["\n", "\r", "\r\n", "\x00", " ", "\u2028", "\u0661", "\u00b2", "é", "\ud800", "\u212a"]
)
def test_a_name_has_no_tail_and_no_character_but_ascii(name: str, tail: str) -> None:
    check, legal, _ = RULES[name]
    for value in (legal[0] + tail, tail + legal[0], tail, ""):
        with pytest.raises(IllegalLocationError):
            check(value)


@pytest.mark.parametrize("value", ["", "ROCm-TheRock/", "githubuser-TheRock/", "a/"])
def test_an_external_repo_is_empty_or_one_folder(value: str) -> None:
    assert check_external_repo(value) == value


@pytest.mark.parametrize("value", ["/", "a", "a//", "/a/", "a/b/", "../", "./", "a\n/", "a/\n", "a\\/", "\ud800/"])
def test_an_external_repo_cannot_leave_its_place(value: str) -> None:
    with pytest.raises(IllegalLocationError, match=r"^external_repo "):
        check_external_repo(value)


@pytest.mark.parametrize("value", ["a\n::error::b", "\x1b[2J", "\u202eevil", "\ud800", "x" * 10_000, "'\"", "\u2028"])
def test_a_quoted_value_can_neither_act_nor_flood(value: str) -> None:
    quoted = quote(value)
    assert quoted.isascii()
    assert quoted.isprintable()
    assert len(quoted) < 100
    assert len(quote(value, shown_characters=5)) < 100


def test_a_short_value_is_quoted_whole() -> None:
    assert quote("a" * 80) == f"'{'a' * 80}'"
    assert quote("a" * 81) == f"'{'a' * 80}...'"
