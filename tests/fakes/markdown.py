"""Reads Markdown as GitHub does: tables, strikethrough, and addresses that become links by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

OUR_HTML = frozenset({"<!-- -->", "<span>", "</span>"})
"""What prose() puts between characters that would act together; it shows nothing."""


def parse(markdown: str) -> list[Token]:
    """The tokens of a document."""
    reader = MarkdownIt("commonmark", {"linkify": True}).enable(["table", "strikethrough", "linkify"])
    assert reader.linkify is not None
    reader.linkify.set({"fuzzy_link": False})  # GitHub wants http:, https:, ftp: or www.
    reader.linkify.add("//", None)
    reader.linkify.add("www.", {"validate": lambda _self, text, at: len(text[at:].split(" ", 1)[0])})
    return reader.parse(markdown)


def flat(tokens: list[Token]) -> Iterator[Token]:
    """All tokens, those inside inline ones, too."""
    for token in tokens:
        yield token
        yield from flat(token.children or [])


def types(markdown: str) -> set[str]:
    """The types of all tokens."""
    return {token.type for token in flat(parse(markdown))}


def cells(markdown: str) -> list[list[Token]]:
    """The inline tokens of each cell of the document's tables, head first."""
    tokens = parse(markdown)
    opening = {"td_open", "th_open"}
    return [tokens[at + 1].children or [] for at, token in enumerate(tokens) if token.type in opening]


def plain_text(tokens: list[Token]) -> str:
    """The text of inline tokens that are nothing but text (and our own HTML). Fails for any other."""
    others = [
        token
        for token in tokens
        if token.type != "text" and not (token.type == "html_inline" and token.content in OUR_HTML)
    ]
    assert others == [], [(token.type, token.content) for token in others]
    return "".join(token.content for token in tokens if token.type == "text")


def links(markdown: str) -> list[str]:
    """The targets of all links."""
    return [str(token.attrs["href"]) for token in flat(parse(markdown)) if token.type == "link_open"]
