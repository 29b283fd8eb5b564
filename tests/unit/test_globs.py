"""Globs mean the same for files and keys, and no pattern can make matching slow."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _therock_utils._errors import InputError
from _therock_utils._globs import check_pattern, compile_filter, is_selected, matches

NAMES = st.text(alphabet="abA.-é", min_size=1, max_size=5).filter(lambda name: name not in {".", ".."})
PATHS = st.lists(NAMES, min_size=1, max_size=5).map("/".join)
PATTERN_SEGMENTS = st.one_of(
    st.just("**"),
    st.just("*"),
    st.lists(
        st.one_of(st.sampled_from(["*", "?", "[ab]", "[!a]", "[^b]", "[a-z]", "[]a]"]), st.sampled_from("abA.-é")),
        min_size=1,
        max_size=5,
    ).map("".join),
).filter(lambda segment: segment not in {".", ".."})
PATTERNS = st.builds(
    lambda lead, segments, tail: lead + "/".join(segments) + tail,
    st.sampled_from(["", "", "/"]),
    st.lists(PATTERN_SEGMENTS, min_size=1, max_size=5),
    st.sampled_from(["", "", "/"]),
)
CLASSES = {
    "[ab]": lambda c: c in "ab",
    "[!a]": lambda c: c != "a",
    "[^b]": lambda c: c != "b",
    "[a-z]": lambda c: "a" <= c <= "z",
    "[]a]": lambda c: c in "]a",
}


def plainly_matches(path: str, pattern: str) -> bool:
    """The rules of the module's documentation, spelled out by trying everything."""
    segments = pattern.removeprefix("/").split("/")
    if not segments[-1]:
        segments[-1] = "**"
    if "/" not in pattern:
        segments = ["**", *segments]
    parts = path.split("/")

    @functools.cache
    def path_matches(at: int, part: int) -> bool:
        if at == len(segments):
            return part == len(parts)
        if segments[at] == "**":
            least = 1 if at == len(segments) - 1 else 0
            return any(path_matches(at + 1, later) for later in range(part + least, len(parts) + 1))
        return part < len(parts) and segment_matches(parts[part], segments[at]) and path_matches(at + 1, part + 1)

    return path_matches(0, 0)


def segment_matches(name: str, pattern: str) -> bool:
    tokens: list[str] = []
    rest = pattern
    while rest:
        token = next((known for known in CLASSES if rest.startswith(known)), rest[0])
        tokens.append(token)
        rest = rest[len(token) :]

    @functools.cache
    def from_here(at: int, character: int) -> bool:
        if at == len(tokens):
            return character == len(name)
        token = tokens[at]
        if token == "*":
            return any(from_here(at + 1, later) for later in range(character, len(name) + 1))
        if character == len(name):
            return False
        accepts = CLASSES.get(token, lambda c: token in {"?", c})
        return accepts(name[character]) and from_here(at + 1, character + 1)

    return from_here(0, 0)


@given(PATHS, PATTERNS)
def test_matching_follows_the_documented_rules(path: str, pattern: str) -> None:
    assert matches(path, pattern) == plainly_matches(path, pattern)


@pytest.mark.parametrize(
    ("pattern", "selected", "left_out"),
    [
        ("*.tar.xz*", ["a.tar.xz", "d/e/a.tar.xz.sha256sum"], ["a.tar.zst", "a.tar.xz/b"]),
        ("logs/*", ["logs/a"], ["logs/a/b", "x/logs/a", "logs"]),
        ("/a.log", ["a.log"], ["x/a.log"]),
        ("logs/", ["logs/a", "logs/a/b"], ["logs", "logs2/a", "x/logs/a"]),
        ("logs/**", ["logs/a", "logs/a/b"], ["logs", "logs2/a", "x/logs/a"]),
        ("**/logs/**", ["logs/a", "x/y/logs/a/b"], ["logs", "x/logs"]),
        ("logs/**/*.log", ["logs/a.log", "logs/x/y/a.log"], ["a.log", "logs/a.txt"]),
        ("**/ccache/*", ["ccache/a", "x/ccache/a"], ["x/ccache/a/b"]),
        ("**", ["a", "a/b", ".hidden/x"], []),
        ("*", ["a", "a/b"], []),
        ("a**b", ["ab", "axxb", "d/a-b"], ["a/b"]),
        ("?", ["a", "x/é"], ["ab"]),
        ("[[]x].log", ["[x].log"], ["x.log"]),
        ("[*]", ["*"], ["a"]),
        ("[a-c-]", ["a", "b", "-"], ["d"]),
        ("[!a]b", ["xb"], ["ab", "/b"]),
        ("x[!a]b", ["xcb"], ["x/b"]),
        (".*", [".ninja_log", "a/.x"], ["a"]),
        ("A.LOG", ["A.LOG"], ["a.log"]),
        ("a.log", ["a.log"], ["aXlog"]),
        ("a/**/b/**/c", ["a/b/c", "a/x/b/y/b/z/c"], ["a/c", "a/b", "b/c"]),
        ("**/a*/b?/**/c", ["ax/by/c", "q/ax/z/a/bb/c"], ["ax/b/c"]),
    ],
)
def test_a_pattern_selects_what_it_says(pattern: str, selected: list[str], left_out: list[str]) -> None:
    assert [path for path in selected + left_out if matches(path, pattern)] == selected


def test_no_include_means_everything_and_exclude_wins() -> None:
    assert is_selected("a/b.log")
    assert is_selected("a/b.log", include=[])
    assert is_selected("a/b.log", include=["*.txt", "*.log"])
    assert not is_selected("a/b.txt", include=["*.log"])
    assert not is_selected("a/b.log", include=["*.log"], exclude=["a/**"])
    assert not is_selected("a/b.log", exclude=["*.txt", "b.*"])


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("", "empty"),
        ("/", "empty"),
        ("a//b", "empty segment"),
        ("//a", "empty segment"),
        ("./a", "segment"),
        ("a/../b", "segment"),
        ("logs\\*.log", "backslash"),
        ("a\nb", "control character"),
        ("[abc", "no ']'"),
        ("[]", "no ']'"),
        ("[!]", "no ']'"),
        ("[a/b]", "no ']'"),
        ("[z-a]", "range"),
        ("[[:alpha:]]", "named classes"),
        ("a" * 1025, "1025 characters"),
        ("a\udcff", "Unicode"),
    ],
)
def test_a_pattern_that_cannot_be_meant_is_refused_with_the_reason(pattern: str, why: str) -> None:
    with pytest.raises(InputError) as caught:
        check_pattern(pattern)
    assert why in str(caught.value)
    assert str(caught.value).isascii()
    with pytest.raises(InputError):
        compile_filter(exclude=[pattern])


def test_a_good_pattern_passes_the_check_unchanged() -> None:
    assert check_pattern("logs/**/[a-z]*.log") == "logs/**/[a-z]*.log"


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 400 + "*b", "a" * 1024),
        ("*" * 1000 + "b", "a" * 1024),
        ("?*" * 400 + "b", "a" * 1024),
        ("*[ab]" * 200 + "c", "ab" * 512),
        ("**/a/" * 200 + "b", "/".join("a" * 512)),
        ("**/*a*/" * 140 + "b", "/".join(["aaa"] * 256)),
        ("*a*/" * 200 + "**/c", "/".join(["aaa"] * 256)),
        ("a/**/" * 200 + "**", "/".join("b" * 512)),
    ],
)
def test_a_hostile_pattern_cannot_make_matching_explode(pattern: str, path: str) -> None:
    compiled = compile_filter(include=[pattern], exclude=[pattern.removesuffix("b") + "zz"])
    assert not any(compiled.selects(path) for _ in range(20))


@given(st.lists(PATTERNS, min_size=1, max_size=3), PATHS, PATHS)
def test_a_folder_is_pruned_only_where_everything_below_it_is_excluded(
    patterns: list[str], folder: str, below: str
) -> None:
    compiled = compile_filter(exclude=patterns)
    if compiled.prunes(folder):
        assert compiled.excludes(f"{folder}/{below}")


@pytest.mark.parametrize("pattern", ["logs/ccache/", "logs/ccache/**", "**/ccache/**", "l*/c*/**", "logs/**", "**"])
def test_an_excluded_subtree_is_pruned(pattern: str) -> None:
    compiled = compile_filter(exclude=[pattern])
    assert compiled.prunes("logs/ccache")
    assert compiled.prunes("logs/ccache/0/1")


def test_a_folder_with_something_wanted_is_not_pruned() -> None:
    compiled = compile_filter(exclude=["logs/ccache/**", "*.log", "a/*"])
    assert not any(compiled.prunes(folder) for folder in ("logs", "logs/ccache2", "x/logs/ccache", "a"))
    assert not compile_filter().prunes("logs")
