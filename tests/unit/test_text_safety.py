"""Text from outside stays text: in a log line, in a workflow command, in Markdown."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fakes import markdown
from fakes.runner_protocol import read_console
from therock_outputs.text_safety import (
    code,
    code_block,
    command_data,
    command_property,
    count,
    link,
    log_line,
    prose,
    size,
    visible,
)

# What .NET's String.TrimStart() removes, which the runner applies before it looks for "::".
_DOTNET_WHITESPACE = "".join(
    chr(number)
    for number in range(0x3001)
    if unicodedata.category(chr(number)) in {"Zs", "Zl", "Zp"} or chr(number) in "\t\n\v\f\r\x85"
)

_CHARACTERS = "`*_~|\\<>[]()!#@&$.:;=+-\"' \t\r\n\x00\x1b\x85\xa0\u2028\u202e\u200b\u3000\ud800e1x"
_WORDS = (
    *("::", "##[", "error", "<script>", "<!--", "-->", "&lt;", "&#64;", "@user", "#12", "1.", "1)", "---"),
    *("![x](y)", "[x](y)", "[x]: y", "https://evil.example/x", "ftp://evil.example", "www.evil.example"),
    *("me@evil.example", "mailto:me@evil.example"),
)
_FRAGMENTS = st.lists(st.sampled_from([*_CHARACTERS, *_WORDS]), max_size=12).map("".join)
hostile_text = _FRAGMENTS | st.text()


@given(hostile_text)
@example("::error::x")
@example(" \u3000::error::x")
@example(":::error::x")
@example("###[error]x")
@example("##\x1b[[error]x")
@example("\r::error::x")
def test_a_log_line_is_one_line_and_never_a_command(text: str) -> None:
    line = log_line(text)
    assert len(line.splitlines()) <= 1
    assert not line.lstrip(_DOTNET_WHITESPACE).startswith("::")
    assert "##[" not in line
    assert read_console(f"{line}\n").commands == ()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("std::vector", "std::vector"),
        ("::error::x", r"\x3a:error::x"),
        ("a ##[error]x", r"a #\x23[error]x"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\r\nb", r"a\x0d\x0ab"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\udcff", r"\udcff"),
        ("\U000e0041", r"\U000e0041"),
        ("Grüße 漢字 😀", "Grüße 漢字 😀"),
    ],
)
def test_a_log_line_shows_what_it_escapes(text: str, line: str) -> None:
    assert log_line(text) == line


@given(hostile_text)
def test_visible_text_has_no_character_that_cannot_be_seen(text: str) -> None:
    assert {unicodedata.category(character)[0] for character in visible(text)} <= set("LMNPSZ")
    assert {unicodedata.category(character) for character in visible(text)}.isdisjoint({"Zl", "Zp"})


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_visible_text_keeps_every_character_that_can_be_seen(text: str) -> None:
    assert visible(text) == text


@given(hostile_text, hostile_text)
def test_a_command_says_to_the_runner_exactly_what_was_meant(message: str, title: str) -> None:
    shown, title = visible(message), visible(title).strip()
    (command,) = read_console(f"::warning title={command_property(title)}::{command_data(shown)}\n").commands
    assert command.value == shown
    assert command.properties["title"] == title


def test_a_message_of_several_lines_is_one_command() -> None:
    message = "50% done\r\n::error::x"
    (command,) = read_console(f"::error::{command_data(message)}\n").commands
    assert command.value == message


@given(hostile_text)
@example("a\\|b")
@example("a|b")
@example("``")
@example("`")
@example(" ")
@example("")
def test_a_code_span_in_a_table_is_that_text_and_nothing_else(text: str) -> None:
    _head, _head, first, last = markdown.cells(f"| a | b |\n|---|---|\n| {code(text)} | end |\n")
    (span,) = first
    assert span.type == "code_inline"
    expected = visible(text).replace("|", r"\x7c")
    assert span.content.strip(" ") == expected.strip(" ")
    assert markdown.plain_text(last) == "end"


@given(hostile_text)
@example("`` `")
def test_a_code_span_in_a_list_is_that_text_and_nothing_else(text: str) -> None:
    tokens = markdown.parse(f"- {code(text)}: why\n")
    (inline,) = [token for token in tokens if token.type == "inline"]
    span, rest = inline.children or []
    assert (span.type, rest.type, rest.content) == ("code_inline", "text", ": why")
    assert span.content.strip(" ") == visible(text).replace("|", r"\x7c").strip(" ")


@given(hostile_text)
@example("a\\|b | c")
@example("&#64;user")
def test_prose_in_a_table_is_that_text_and_nothing_else(text: str) -> None:
    *_, first, last = markdown.cells(f"| a | b |\n|---|---|\n| {prose(text)} | end |\n")
    assert markdown.plain_text(first) == visible(text).strip()
    assert markdown.plain_text(last) == "end"


@pytest.mark.parametrize("start", ["", "- ", "> ", "### "], ids=["line", "list", "quote", "heading"])
@given(text=hostile_text)
@example(text="# x")
@example(text="    indented")
@example(text="--- x")
@example(text="> x")
@example(text="1. x")
@example(text="22) x")
@example(text="+ x")
@example(text="===")
@example(text="```")
@example(text="~~~")
@example(text="[x]: http://evil.example")
@example(text="www.evil.example")
@example(text="HTTPS://evil.example")
@example(text="me@evil.example")
@example(text="<!-- x")
def test_prose_at_a_start_is_that_text_and_nothing_else(start: str, text: str) -> None:
    tokens = markdown.parse(f"{start}{prose(text)}\n")
    expected = visible(text).strip()
    shown = "".join(markdown.plain_text(token.children or []) for token in tokens if token.type == "inline")
    assert shown == expected
    structure = {"inline", "paragraph_open", "paragraph_close"}
    structure |= (
        {"bullet_list_open", "list_item_open", "list_item_close", "bullet_list_close"} if start == "- " else set()
    )
    structure |= {"blockquote_open", "blockquote_close"} if start == "> " else set()
    structure |= {"heading_open", "heading_close"} if start == "### " else set()
    assert {token.type for token in tokens} <= structure


@given(hostile_text.filter(lambda text: visible(text).strip()))
def test_bold_prose_is_bold_text_and_nothing_else(text: str) -> None:
    (inline,) = [token for token in markdown.parse(f"> **{prose(text)}**\n") if token.type == "inline"]
    opening, *inside, closing = [token for token in inline.children or [] if token.content or token.nesting]
    assert (opening.type, closing.type) == ("strong_open", "strong_close")
    assert markdown.plain_text(inside) == visible(text).strip()


@given(st.lists(hostile_text | st.sampled_from(["```", "    ````", "~~~", "`" * 9, "</details>", "", "> x"])))
@example(["```", "after"])
@example(["`" * 5, "```"])
@example(["one\n```\ntwo"])
def test_nothing_in_a_code_block_ends_it(lines: list[str]) -> None:
    tokens = markdown.parse(f"before\n\n{code_block(lines, 'sh')}\n\nafter\n")
    (fence,) = [token for token in tokens if token.type == "fence"]
    assert (fence.info, fence.content) == ("sh", "".join(f"{visible(line)}\n" for line in lines))
    assert [token.content for token in tokens if token.type == "inline"] == ["before", "after"]


def test_a_code_block_reads_like_this() -> None:
    assert code_block(["pip install x"], "sh") == "```sh\npip install x\n```"
    assert code_block(["a ``` b"], "text") == "````text\na ``` b\n````"


@given(hostile_text)
def test_a_link_goes_where_it_should_whatever_its_text(text: str) -> None:
    url = "https://bucket.s3.amazonaws.com/1-linux/a%2Bb.log"
    assert markdown.links(f"| a |\n|---|\n| {link(text, url)} |\n") == [url]


def test_what_github_finds_after_undoing_escapes_is_broken_up() -> None:
    assert prose("@octocat") == "@<!-- -->octocat"
    assert prose("see #12") == "see #<!-- -->12"
    assert prose("$x$") == "<span>$</span>x<span>$</span>"


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1549, "1.5 kB"),
        (9_949, "9.9 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (23_000_000, "23 MB"),
        (5_368_709_120, "5.4 GB"),
        (3 * 10**15, "3000 TB"),
    ],
)
def test_sizes_are_in_decimal_units(size_bytes: int, text: str) -> None:
    assert size(size_bytes) == text


@pytest.mark.parametrize(("number", "text"), [(0, "0 files"), (1, "1 file"), (21_000, "21,000 files")])
def test_counts_agree_with_their_noun(number: int, text: str) -> None:
    assert count(number, "file") == text
